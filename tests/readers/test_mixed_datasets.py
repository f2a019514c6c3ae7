"""Tests of `make_mixed_reader` over several datasets: rows, codecs, filters, ranks, states, incompatible schemas."""

from __future__ import annotations

import collections
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import TransformSpec, Unischema, UnischemaField
from petastore.adapters.torch import DataLoader
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastore.errors import DatasetNotFoundError, DecodeError, InvalidArgumentError, NoDataAvailableError, SchemaError
from petastore.indexing import SingleFieldIndexer, build_rowgroup_index
from petastore.readers.reader import Reader
from petastore.selectors import SingleIndexSelector

SIZES = (60, 25, 200)


def schema_of(codec: Any, id_codec: Any = None) -> Unischema:
    return Unischema(
        "rows",
        [
            UnischemaField("id", np.int64, (), id_codec),
            UnischemaField("name", np.str_, (), None, nullable=True),
            UnischemaField("pose", np.float32, (2, 3), codec),
            UnischemaField("free", np.int16, (None,), NdarrayCodec()),
        ],
    )


def row_of(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": None if number % 7 == 0 else f"n{number}",
        "pose": np.full((2, 3), number, np.float32),
        "free": np.arange(number % 5, dtype=np.int16),
    }


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Write three datasets whose schemas differ only in codecs; ids begin at 0, 1000 and 2000."""
    folder = tmp_path_factory.mktemp("mixed")
    schemas = [
        schema_of(NdarrayCodec()),
        schema_of(CompressedNdarrayCodec()),
        schema_of(NdarrayCodec(), ScalarCodec("long")),
    ]
    for number, (size, schema) in enumerate(zip(SIZES, schemas, strict=True)):
        rows = (row_of(1000 * number + row) for row in range(size))
        petastore.write_dataset(folder / f"d{number}", schema, rows, rows_per_row_group=11)
    return [str(folder / f"d{number}") for number in range(3)]


def mixed(urls: Any, weights: Any = (3, 1, 4), **kwargs: Any) -> Reader:
    return petastore.make_mixed_reader(urls, weights, **kwargs)


def assert_is_row(row: Any) -> None:
    expected = row_of(int(row["id"]))
    assert row["name"] == expected["name"]
    assert np.array_equal(row["pose"], expected["pose"])
    assert np.array_equal(row["free"], expected["free"])


@pytest.mark.parametrize("shuffle_rows", [False, True])
@pytest.mark.parametrize("batching", ["mixed", "per_source"])
def test_mixed_reader_returns_the_written_rows(urls: list[str], batching: str, shuffle_rows: bool) -> None:
    with mixed(urls, batching=batching, shuffle_rows=shuffle_rows, stop="all_exhausted") as reader:
        seen = []
        for batch in reader.iter_batches(16):
            for row in range(batch.num_rows):
                assert_is_row({name: column[row] for name, column in batch.items()})
            seen += batch["id"].tolist()
    times = collections.Counter(seen)
    for number, size in enumerate(SIZES):
        own = [times[1000 * number + row] for row in range(size)]
        assert max(own) - min(own) <= 1
        assert min(own) >= 1


def test_mixed_reader_yields_single_rows(urls: list[str]) -> None:
    with mixed(urls, seed=1) as reader:
        rows = list(reader)
        assert len(rows) == len(reader) == reader.num_rows
    for row in rows:
        assert_is_row(row._asdict())
    assert {row.id // 1000 for row in rows} == {0, 1, 2}


def test_mixed_reader_masks_missing_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1, None, 3], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([4, 5, 6], pa.int32())}), tmp_path / "b.parquet")
    urls = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    with mixed(urls, [1, 1], shuffle_row_groups=False, stop="all_exhausted") as reader:
        values = [value for batch in reader.iter_batches(4) for value in batch["x"].tolist()]
    assert collections.Counter(values) == collections.Counter([1, None, 3, 4, 5, 6])


@pytest.mark.parametrize("batching", ["mixed", "per_source"])
def test_mixed_batches_have_sources_in_proportion(urls: list[str], batching: str) -> None:
    with mixed(urls, [2, 1, 1], batching=batching, source_column="from", stop="all_exhausted") as reader:
        assert reader.schema["from"].dtype == np.dtype(np.int32)
        batches = list(reader.iter_batches(8))
        shares = [np.bincount(batch["from"], minlength=3) for batch in batches]
    for batch in batches:
        assert (batch["id"] // 1000 == batch["from"]).all()
    if batching == "mixed":
        for share in shares[:-1]:
            assert (np.abs(share - [4, 2, 2]) <= 2).all()
    else:
        assert all((share > 0).sum() == 1 for share in shares)


def test_mixed_sources_may_have_their_own_filters(urls: list[str]) -> None:
    sources = [
        petastore.open_dataset(urls[0]),
        {"dataset_url": urls[2], "filters": [("id", ">=", 2150)], "filter_cache": False},
    ]
    with mixed(sources, [1, 1], filters=petastore.col("id") < 40, filter_cache=False) as reader:
        seen = sorted(int(row.id) for row in reader)
    assert seen[:40] == list(range(40))
    assert set(seen[40:]) <= set(range(2150, 2200))
    assert len(seen) in (79, 80, 81)


def test_mixed_sources_may_have_their_own_selectors(tmp_path: Path) -> None:
    schema = Unischema("number", [UnischemaField("id", "int64")])
    for number in (0, 100):
        rows = [{"id": number + row} for row in range(12)]
        petastore.write_dataset(tmp_path / str(number), schema, rows, rows_per_row_group=3)
        build_rowgroup_index(tmp_path / str(number), indexers=[SingleFieldIndexer("by_id", "id")])
    sources = [
        str(tmp_path / "0"),
        {"dataset_url": str(tmp_path / "100"), "rowgroup_selector": SingleIndexSelector("by_id", [104])},
    ]
    selector = SingleIndexSelector("by_id", [1])
    with mixed(sources, [1, 1], stop="all_exhausted", rowgroup_selector=selector) as reader:
        assert {int(row.id) for row in reader} == {0, 1, 2, 103, 104, 105}


def test_mixed_reader_combines_partition_and_stored_columns(tmp_path: Path) -> None:
    for letter in "xy":
        (tmp_path / f"a/letter={letter}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / f"a/letter={letter}/part.parquet")
    (tmp_path / "b").mkdir()
    pq.write_table(pa.table({"id": [3, 4], "letter": ["z", "z"]}), tmp_path / "b/part.parquet")
    for urls, letters in ((["a", "b"], {"x", "y", "z"}), (["a", "a"], {"x", "y"})):
        with mixed([str(tmp_path / url) for url in urls], [1, 1], stop="all_exhausted") as reader:
            assert {row.letter for row in reader} == letters


def test_mixed_reader_applies_one_transform_to_all_sources(urls: list[str]) -> None:
    def halved(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"], "half": np.float32(row["pose"][0, 0] / 2 + row["from"])}

    spec = TransformSpec(halved, [("half", np.float32, (), False)], selected_fields=["id", "half"])
    with mixed(urls, transform_spec=spec, source_column="from") as reader:
        assert list(reader.schema.fields) == ["id", "half"]
        for row in reader:
            assert row.half == np.float32(row.id / 2 + row.id // 1000)


def test_transform_of_a_mixture_keeps_columns_that_only_a_later_source_has_nullable(tmp_path: Path) -> None:
    for name, nullable, values in (("a", False, [1, 2]), ("b", True, [3, None])):
        schema = Unischema("rows", [UnischemaField("x", np.int64, nullable=nullable)])
        petastore.write_dataset(tmp_path / name, schema, [{"x": value} for value in values])
    urls = [str(tmp_path / name) for name in "ab"]
    with mixed(urls, [1, 1], stop="all_exhausted", transform_spec=lambda row: row) as reader:
        assert sorted({row.x for row in reader}, key=str) == [1, 2, 3, None]


def test_mixed_reader_ranks_together_read_the_batches_of_one_reader(urls: list[str]) -> None:
    for batching in ("mixed", "per_source"):
        with mixed(urls, seed=5, batching=batching, shuffle_rows=True, interleave=6) as reader:
            whole = [sorted(batch["id"].tolist()) for batch in reader.iter_batches(24)]
        readers = [
            mixed(urls, seed=5, batching=batching, shuffle_rows=True, interleave=6, cur_shard=rank, shard_count=3)
            for rank in range(3)
        ]
        batches = [[batch["id"].tolist() for batch in reader.iter_batches(8)] for reader in readers]
        assert {len(own) for own in batches} == {len(whole)} == {reader.steps_per_epoch(8) for reader in readers}
        assert [sorted(itertools.chain(*step)) for step in zip(*batches, strict=True)] == whole
        for reader in readers:
            reader.stop()


@pytest.mark.parametrize("batching", ["mixed", "per_source"])
def test_mixed_reader_resumes_with_other_ranks_and_batch_size(urls: list[str], batching: str) -> None:
    seen: list[int] = []
    state = None
    for ranks, batch_size, steps in [(2, 5, 3), (3, 4, 4), (1, 7, 10**6)]:
        states = []
        for rank in range(ranks):
            with mixed(
                urls, seed=5, batching=batching, num_epochs=2, cur_shard=rank, shard_count=ranks, interleave=6
            ) as one:
                if state is not None:
                    one.load_state_dict(json.loads(state))
                for batch in itertools.islice(one.iter_batches(batch_size), steps):
                    seen += batch["id"].tolist()
                states.append(json.dumps(one.state_dict()))
        assert len(set(states)) == 1
        state = states[0]
    with mixed(urls, seed=5, batching=batching, num_epochs=2, interleave=6) as reader:
        assert sorted(seen) == sorted(int(row.id) for row in reader)


def test_mixed_reader_state_restores_a_random_seed(urls: list[str]) -> None:
    def loader_of(reader: Reader) -> DataLoader:
        return DataLoader(reader, batch_size=10)

    fields = ["id", "pose"]
    with mixed(urls, schema_fields=fields, num_epochs=2, shuffle_rows=True) as reader:
        loader = loader_of(reader)
        batches = iter(loader)
        taken = [next(batches) for _ in range(4)]
        state = json.dumps(loader.state_dict())
        rest = [batch["id"].tolist() for batch in batches]
        assert len(taken) + len(rest) == len(loader)
        for batch in taken:
            assert (batch["pose"][:, 0, 0] == batch["id"]).all()
    with mixed(urls, schema_fields=fields, num_epochs=2, shuffle_rows=True) as reader:
        loader = loader_of(reader)
        loader.load_state_dict(json.loads(state))
        assert [batch["id"].tolist() for batch in loader] == rest


def test_mixed_reader_cycle_is_endless(urls: list[str]) -> None:
    with mixed(urls, stop="cycle", num_epochs=None, schema_fields=["id"]) as reader:
        loader = DataLoader(reader, batch_size=32)
        seen = [batch["id"].tolist() for batch in itertools.islice(loader, 60)]
        assert [len(batch) for batch in seen] == [32] * 60
        with pytest.raises(TypeError, match="endless"):
            len(loader)
        times = collections.Counter(itertools.chain(*seen))
        assert {times[row] for row in range(60)} <= {11, 12, 13}


def test_mixed_reader_pad_marks_repeats(urls: list[str]) -> None:
    with mixed(urls, last_batch="pad", seed=3) as reader:
        batches = list(reader.iter_batches(16))
        assert all(batch.num_rows == 16 for batch in batches)
        assert sum(int(batch["valid"].sum()) for batch in batches) == reader.plan.num_rows


def test_mixed_reader_is_deterministic_by_seed(urls: list[str]) -> None:
    def order(seed: int | None) -> list[int]:
        with mixed([urls[2], urls[2]], [1, 1], seed=seed, source_column="from", schema_fields=["id"]) as reader:
            return [int(row.id) + 10_000 * int(getattr(row, "from", row[1])) for row in reader]

    first, again, other = order(0), order(0), order(1)
    assert first == again != other
    assert [row for row in first if row < 10_000] != [row - 10_000 for row in first if row >= 10_000]


def other_schema(field: UnischemaField) -> Unischema:
    return Unischema("rows", [*list(schema_of(NdarrayCodec()))[:-1], field])


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (
            UnischemaField("free", np.int32, (None,), NdarrayCodec()),
            r"field 'free', got int16\[None\] in .*d0 and int32.*other",
        ),
        (
            UnischemaField("free", np.int16, (2,), NdarrayCodec()),
            r"field 'free', got int16\[None\] in .*d0 and int16\[2\] in .*other",
        ),
        (
            UnischemaField("other", np.int16, (None,), NdarrayCodec()),
            r"same fields, got .*d0 with 'free' and .*other without it",
        ),
    ],
)
def test_mixed_datasets_with_different_fields_raise(
    urls: list[str], tmp_path: Path, field: UnischemaField, message: str
) -> None:
    rows = [{**row_of(n), field.name: np.zeros(2, field.dtype)} for n in range(3)]
    rows = [{name: value for name, value in row.items() if name in other_schema(field)} for row in rows]
    petastore.write_dataset(tmp_path / "other", other_schema(field), rows)
    with pytest.raises(SchemaError, match=message):
        mixed([urls[0], str(tmp_path / "other")], [1, 1])
    with mixed([urls[0], str(tmp_path / "other")], [1, 1], schema_fields=["id", "na.*", "pose"]) as reader:
        assert len(list(reader)) > 3


def test_mixed_reader_names_the_dataset_of_a_damaged_cell(urls: list[str], tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "bad", schema_of(NdarrayCodec()), [row_of(n) for n in range(5)])
    (part,) = (tmp_path / "bad").glob("*.parquet")
    table = pq.read_table(part)
    poses = table.column("pose").to_pylist()
    poses[2] = b"junk"
    place = table.schema.get_field_index("pose")
    table = table.set_column(place, table.schema.field(place), pa.array(poses, table.schema.field(place).type))
    (tmp_path / "plain").mkdir()
    pq.write_table(table, tmp_path / "plain" / part.name)
    for url in urls[:2]:  # decoded together with the same codec, and separately
        with mixed([url, str(tmp_path / "plain")], [1, 1]) as reader, pytest.raises(DecodeError) as caught:
            list(reader)
        assert str(caught.value.file).endswith(f"plain/{part.name}")
        assert (caught.value.column, caught.value.row) == ("pose", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": [1, 2]}, r"weights must be one number per source \(3\), got 2"),
        (
            {"weights": [1, 2, 0]},
            r"weights must be finite numbers above 0, got 0 for source 2\. Leave out sources that are not to",
        ),
        ({"stop": "soon"}, "stop must be one of 'first_exhausted', 'all_exhausted', 'cycle', got 'soon'"),
        ({"batching": "odd"}, "batching must be one of 'mixed', 'per_source', got 'odd'"),
        ({"stop": "cycle"}, "num_epochs must be None with stop='cycle', which never ends, got 1"),
        ({"num_epochs": 0}, "num_epochs"),
        ({"seed": 1.5}, "seed"),
        ({"shuffle_buffer_bytes": 0, "shuffle_rows": True}, "shuffle_buffer_bytes"),
        ({"cur_shard": 1}, "cur_shard"),
        ({"source_column": "id"}, r"source_column must not be a field of the datasets, got 'id'\. Choose another name"),
        ({"schema_fields": ["nam"]}, "'nam'"),
        ({"last_batch": "pad", "source_column": "valid"}, "valid"),
    ],
    ids=str,
)
def test_mixture_invalid_arguments_raise_at_the_call(urls: list[str], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        mixed(urls, **arguments)


@pytest.mark.parametrize("sources", ["/a", b"/a", {"dataset_url": "/a"}, [], 7, [{"url": "/a"}], [{}], [None]])
def test_mixed_reader_requires_a_list_of_sources(sources: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        mixed(sources, [1])


def test_mixed_reader_raises_for_a_missing_dataset(urls: list[str]) -> None:
    with pytest.raises(DatasetNotFoundError):
        mixed([urls[0], urls[0] + "-none"], [1, 1])


def test_mixed_source_without_selected_rows_raises(urls: list[str]) -> None:
    with pytest.warns(UserWarning, match="none of the 25 rows"), pytest.raises(NoDataAvailableError, match="source 1"):
        mixed([urls[0], urls[1]], [1, 1], filters=[("id", "<", 50)], filter_cache=False)


def test_mixed_reader_distinguishes_files_of_equal_names(tmp_path: Path) -> None:
    """The files are too large to be read whole, so they stay open; without statistics, their footers are equal."""
    for number in range(2):
        (tmp_path / f"{number}").mkdir()
        table = pa.table({"id": np.arange(50_000) + 1_000_000 * number})
        options: dict[str, Any] = {"write_statistics": False, "compression": "none", "use_dictionary": False}
        pq.write_table(table, tmp_path / f"{number}" / "part-0.parquet", row_group_size=5_000, **options)
    urls = [str(tmp_path / "0"), str(tmp_path / "1")]
    with mixed(urls, (1, 1), num_epochs=1, seed=1, shuffle_rows=True) as reader:
        ids = np.concatenate([batch["id"] for batch in reader.iter_batches(1000)])
    assert len(np.unique(ids)) == len(ids)
    assert abs(int((ids < 1_000_000).sum()) - len(ids) // 2) <= 1
