"""Tests of loading huge row groups in parts: same rows and batches, with the memory of a few parts."""

from __future__ import annotations

import functools
import json
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import petastore
from petastore import make_batch_reader, make_reader
from petastore.errors import DecodeError, LargeRowGroupWarning
from petastore.readers.loaded import part_loads
from petastore.readers.loaded.part_loads import PartLoads
from petastore.writers.generate import generate_metadata
from tests.tier import sized
from tests.warm_interpreters import WarmInterpreter

ROWS = 3000
BUDGET = 250_000_000


def table(rows: int, seed: int = 0) -> pa.Table:
    """Return a table with many column types, some with nulls."""
    generator = np.random.default_rng(seed)
    some = [None if row % 5 == 0 else row for row in range(rows)]
    return pa.table(
        {
            "id": np.arange(rows),
            "x": generator.random(rows, np.float32),
            "y": generator.random(rows, np.float32),
            "maybe": pa.array(some, pa.int32()),
            "name": pa.array([None if row is None else f"row {row} " * (row % 4) for row in some], pa.string()),
            "word": pa.array([f"word {row % 7}" for row in range(rows)]).dictionary_encode(),
            "raw": pa.array([bytes([row % 250]) * (row % 9) for row in range(rows)], pa.binary()),
            "list": pa.array([[row] * (row % 3) for row in range(rows)], pa.list_(pa.int16())),
            "vector": pa.FixedSizeListArray.from_arrays(generator.random(rows * 40), 40),
            "flag": np.arange(rows) % 3 == 0,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write three files, the first with two row groups."""
    directory = tmp_path_factory.mktemp("huge")
    for number, rows in enumerate((ROWS, 100, ROWS // 2)):
        path = directory / f"day={number}" / "part.parquet"
        path.parent.mkdir()
        pq.write_table(table(rows, number), path, row_group_size=2000)
    return str(directory)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lower the limit for huge row groups to about 100 kB; return the list of parts that are loaded."""
    in_parts(monkeypatch, 2500)
    loaded: list[int] = []
    submit = PartLoads.submit

    def noted(self: PartLoads, part: int, *options: Any, **named: Any) -> Any:
        loaded.append(part)
        return submit(self, part, *options, **named)

    monkeypatch.setattr(PartLoads, "submit", noted)
    return loaded


def in_parts(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    monkeypatch.setattr(part_loads, "_HUGE_SHARE", share)
    monkeypatch.setattr(part_loads, "_PART_SHARE", 4 * share)
    monkeypatch.setattr(part_loads, "STREAMED_COLUMN_BYTES", 0)


def values(batch: Any) -> dict[str, Any]:
    """Return the cells of a batch by column, as lists or as text, with None for nulls."""
    return {
        name: column.tolist() if column.dtype != np.object_ else [str(cell) for cell in column]
        for name, column in batch.columns.items()
    }


def read(url: Any, size: int, skip: int = 0, **options: Any) -> list[dict[str, Any]]:
    """Return the batches of a reader; after `skip` batches, another reader resumes."""
    options = {"workers_count": 2, **options}
    read: list[dict[str, Any]] = []
    with make_batch_reader(url, **options) as reader:
        if not skip:
            return [values(batch) for batch in reader.iter_batches(size)]
        batches = reader.iter_batches(size)
        read += [values(batch) for _, batch in zip(range(skip), batches, strict=False)]
        state = json.dumps(reader.state_dict())
    with make_batch_reader(url, **options) as reader:
        reader.load_state_dict(json.loads(state))
        return read + [values(batch) for batch in reader.iter_batches(size)]


@pytest.mark.parametrize("pool", ["thread", "dummy"])
@pytest.mark.parametrize(
    "options",
    [
        {"shuffle_row_groups": False},
        {"seed": 3, "num_epochs": 2},
        {"seed": 3, "filters": [("id", "<", 2500), ("maybe", "!=", 7), ("day", "!=", 1)]},
        {"shuffle_row_groups": False, "exclude_rows": [("day=0/part.parquet", 0, 3), ("day=0/part.parquet", 1, 999)]},
        {"shuffle_row_groups": False, "provenance": True, "schema_fields": ["id", "word", "day"]},
    ],
    ids=["in order", "row groups shuffled", "filter", "excluded rows", "provenance"],
)
def test_row_groups_read_in_parts_give_the_same_batches(
    folder: str, pool: str, options: dict[str, Any], small_parts: list[int]
) -> None:
    whole = read(folder, 77, reader_pool_type=pool, **options)
    assert not small_parts
    assert read(folder, 77, reader_pool_type=pool, memory_budget=BUDGET, **options) == whole
    assert len(small_parts) > 20
    assert read(folder, 77, skip=9, reader_pool_type=pool, memory_budget=BUDGET, **options) == whole


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_row_groups_read_in_parts_are_sharded_like_whole_ones(
    folder: str, last_batch: str, ranks: int, small_parts: list[int]
) -> None:
    for rank in range(ranks):
        options: dict[str, Any] = {
            "cur_shard": rank,
            "shard_count": ranks,
            "last_batch": last_batch,
            "shuffle_row_groups": False,
            "schema_fields": ["id", "name", "vector"],
        }
        whole = read(folder, 100, **options)
        assert read(folder, 100, skip=4, memory_budget=BUDGET, **options) == whole
        assert small_parts


def test_row_groups_read_in_parts_have_the_values_that_pyarrow_reads(folder: str, small_parts: list[int]) -> None:
    path = f"{folder}/day=0/part.parquet"
    with make_reader(path, shuffle_row_groups=False, memory_budget=BUDGET, workers_count=2) as reader:
        rows = list(reader)
    assert small_parts
    stored = pq.ParquetFile(path).read().to_pydict()
    assert [row.id for row in rows] == stored["id"]
    assert [row.name for row in rows] == stored["name"]
    assert [row.word for row in rows] == stored["word"]
    assert [row.raw for row in rows] == stored["raw"]
    assert [list(row.list) for row in rows] == stored["list"]
    assert np.array_equal([row.vector for row in rows], stored["vector"])


@st.composite
def layouts(draw: Any) -> dict[str, Any]:
    ranks = draw(st.integers(1, 3))
    return {
        "rows": draw(st.lists(st.integers(3 * ranks, 60), min_size=1, max_size=3)),  # a filter removes a third
        "group": draw(st.integers(1, 60)),
        "page": draw(st.sampled_from([64, 1024])),
        "share": draw(st.sampled_from([60_000, 250_000, 2_000_000])),
        "batch": draw(st.integers(1, 25)),
        "skip": draw(st.integers(0, 5)),
        "options": {
            "shuffle_row_groups": draw(st.booleans()),
            "seed": draw(st.integers(0, 3)),
            "num_epochs": draw(st.integers(1, 2)),
            "last_batch": draw(st.sampled_from(["even", "drop", "pad", "wrap"])),
            "shard_count": ranks,
            "cur_shard": draw(st.integers(0, ranks - 1)),
            "reader_pool_type": draw(st.sampled_from(["thread", "dummy"])),
            "filters": draw(st.none() | st.just([("flag", "=", False)])),
            "schema_fields": draw(st.sampled_from([["id"], ["id", "name", "x"], ["vector", "list", "id", "maybe"]])),
        },
    }


@pytest.mark.filterwarnings("ignore:none of the .* rows:UserWarning")  # with few rows a filter may match none
@settings(max_examples=sized(full=120, quick=8), deadline=None)
@given(layouts())
def test_row_groups_read_in_tiny_parts_give_the_same_batches(layout: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        in_parts(patch, layout["share"])
        for number, rows in enumerate(layout["rows"]):
            pq.write_table(
                table(rows, number),
                f"{directory}/{number}.parquet",
                row_group_size=layout["group"],
                data_page_size=layout["page"],
                write_batch_size=4,
            )
        whole = read(directory, layout["batch"], **layout["options"])
        parts = read(directory, layout["batch"], layout["skip"], memory_budget=BUDGET, **layout["options"])
        assert parts == whole


def test_reader_position_read_in_parts_names_rows_of_the_row_group(folder: str) -> None:
    with make_batch_reader(folder, ["id"], shuffle_row_groups=False, memory_budget=BUDGET) as reader:
        batches = reader.iter_batches(500)
        last = [next(batches)["id"].tolist() for _ in range(5)][-1]
        rows = reader.position().rows
    assert last == list(range(2000, 2500))
    assert rows[0] == ("day=0/part.parquet", 1, 0)
    assert rows[-1] == ("day=0/part.parquet", 1, 499)


def test_damaged_cell_read_in_parts_is_named_by_its_row_in_the_row_group(
    tmp_path: Path, small_parts: list[int]
) -> None:
    schema = petastore.Unischema("s", [petastore.UnischemaField("x", "f4", (None,), petastore.codecs.NdarrayCodec())])
    url = str(tmp_path / "arrays")
    petastore.write_dataset(url, schema, ({"x": np.zeros(40, "f4")} for _ in range(1000)), rows_per_row_group=1000)
    (path,) = Path(url).glob("*.parquet")
    stored = pq.ParquetFile(path).read()
    cells = stored.column("x").to_pylist()
    cells[777] = b"no array"
    pq.write_table(pa.table({"x": cells}, schema=stored.schema), path, use_dictionary=False)
    generate_metadata(url, schema)
    with (
        make_reader(url, shuffle_row_groups=False, memory_budget=BUDGET) as reader,
        pytest.raises(DecodeError) as failed,
    ):
        list(reader)
    assert small_parts
    assert (failed.value.column, failed.value.row_group, failed.value.row) == ("x", 0, 777)


@pytest.mark.parametrize("rows", [1, 70])
def test_damaged_page_raises_after_the_rows_before_it(tmp_path: Path, rows: int, small_parts: list[int]) -> None:
    path = tmp_path / "a.parquet"
    values = np.random.default_rng(0).integers(0, 2**60, 20_000)
    pq.write_table(
        pa.table({"id": values, "x": values}), path, compression="none", use_dictionary=False, data_page_size=8192,
        write_page_checksum=True,
    )  # fmt: skip
    dataset = petastore.open_dataset(str(tmp_path))
    data = bytearray(path.read_bytes())
    data[100_000] ^= 1
    path.write_bytes(data)
    seen: list[int] = []
    with make_batch_reader(dataset.url, shuffle_row_groups=False, memory_budget=BUDGET, workers_count=2) as reader:
        batches = reader.iter_batches(rows)
        with pytest.raises(DecodeError, match=r"a\.parquet") as failed:
            seen.extend(row for batch in batches for row in batch["id"].tolist())
    assert small_parts
    assert failed.value.column == "id"
    assert failed.value.row_group == 0
    assert seen == values[: len(seen)].tolist()
    assert len(seen) <= 12_500


@pytest.mark.parametrize(
    ("change", "problem"), [(-1, "as its footer declares, got fewer"), (1, "as its footer declares, got more")]
)
def test_row_group_part_with_another_number_of_rows_than_planned_raises(
    folder: str, change: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartLoads, "_begun", functools.partialmethod(begun_with_rows, PartLoads._begun, change))
    with (
        make_batch_reader(
            folder, ["id", "vector"], shuffle_row_groups=False, memory_budget=BUDGET, workers_count=1
        ) as reader,
        pytest.raises(DecodeError, match=problem),
    ):
        list(reader)


def begun_with_rows(self: PartLoads, begun: Any, change: int, part: int) -> list[Any]:
    """Return streams of tables that lack the last row, or repeat it."""
    (tables,) = ([*stream] for stream in begun(self, part))
    rows = pa.concat_tables(tables)
    other = rows.slice(0, rows.num_rows - 1) if change < 0 else pa.concat_tables([rows, rows.slice(0, 1)])
    group = int(self._parts.groups[part])
    first, stop = self._parts.starts[group : group + 2]
    return [part_loads._tables(iter([other]), self._parts.rows[first:stop])]


def test_shuffled_huge_row_group_warns_and_is_loaded_whole(folder: str, small_parts: list[int]) -> None:
    with pytest.warns(LargeRowGroupWarning, match=r"shuffle_rows=False.* \(petastore copy --row-group-size-mb \d"):
        shuffled = read(folder, 77, shuffle_rows=True, seed=1, memory_budget=BUDGET)
    assert not small_parts
    assert shuffled == read(folder, 77, shuffle_rows=True, seed=1)
    with pytest.warns(LargeRowGroupWarning):
        read(folder, 77, interleave=3, seed=1, memory_budget=BUDGET)


def test_large_row_group_warning_is_given_once_per_reader(folder: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with make_batch_reader(folder, shuffle_rows=True, seed=1, memory_budget=BUDGET) as reader:
            reader.estimate_memory(10)
            assert sum(batch.num_rows for batch in reader.iter_batches(10)) == 4600
    assert [one.category for one in caught] == [LargeRowGroupWarning]


@pytest.fixture
def remote(folder: str) -> Iterator[str]:
    memory = fsspec.filesystem("memory")
    memory.put(folder, "/huge-row-groups", recursive=True)
    yield "memory://huge-row-groups"
    memory.rm("/huge-row-groups", recursive=True)


@pytest.mark.parametrize("cache", [False, True])
def test_remote_row_groups_read_in_parts_give_the_same_batches(
    folder: str, remote: str, cache: bool, tmp_path: Path, small_parts: list[int]
) -> None:
    cached: dict[str, Any] = {"cache_type": "local-disk", "cache_location": str(tmp_path)} if cache else {}
    options: dict[str, Any] = {"seed": 2, "shuffle_row_groups": True, "num_epochs": 2}
    whole = read(folder, 50, reshuffle_each_epoch=False, **options)
    assert read(remote, 50, memory_budget=BUDGET, reshuffle_each_epoch=False, **options, **cached) == whole
    assert small_parts


# Prints the estimated and measured memory of reading one huge row group, as in `tests/readers/test_memory.py`.
PROGRAM = """
import json, sys
from petastore import make_batch_reader
from tests.readers import memory_counters

small, url, budget, size = *sys.argv[1:4], int(sys.argv[4])
options = {"workers_count": 2, "shuffle_row_groups": False, "memory_budget": budget}
with make_batch_reader(small, **options) as reader:
    rows = sum(batch.num_rows for batch in reader.iter_batches(size))
memory_counters.begin()
with make_batch_reader(url, **options) as reader:
    foretold = reader.estimate_memory(size).total_bytes
    rows = sum(batch.num_rows for batch in reader.iter_batches(size))
print(json.dumps({"rows": rows, "foretold": foretold, "taken": memory_counters.most_taken()}))
"""


@pytest.mark.parametrize(("kind", "budget"), [("rows", 130), ("cells", 256)])
def test_memory_budget_holds_for_a_row_group_larger_than_it(
    tmp_path: Path, kind: str, budget: int, warm_python: WarmInterpreter
) -> None:
    """A row group has 300 MB of short rows, or 500 MB of 20 MB cells."""
    generator = np.random.default_rng(0)
    for name, rows in (("small", 2), ("large", 25 if kind == "cells" else 600_000)):
        (tmp_path / name).mkdir()
        raw = pa.array([generator.bytes(20_000_000) for _ in range(rows)], pa.binary()) if kind == "cells" else None
        vector = pa.FixedSizeListArray.from_arrays(generator.random(64 * rows), 64)
        columns = {"id": np.arange(rows), "raw": raw} if raw else {"id": np.arange(rows), "vector": vector}
        pq.write_table(
            pa.table(columns), tmp_path / name / "a.parquet", row_group_size=rows, use_dictionary=False,
            compression="none", write_batch_size=1 if kind == "cells" else 1024,
        )  # fmt: skip
    size = "2" if kind == "cells" else "256"
    ran = warm_python.run(PROGRAM, str(tmp_path / "small"), str(tmp_path / "large"), f"{budget}MB", size)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["rows"] == (25 if kind == "cells" else 600_000)
    assert said["taken"] <= said["foretold"] <= budget * 10**6
