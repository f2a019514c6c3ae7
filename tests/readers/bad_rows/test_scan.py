"""Tests of `on_error="skip"` and `"quarantine"`: bad rows are removed before sharding, so ranks have equal steps."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from petastore import (
    TransformSpec,
    Unischema,
    UnischemaField,
    col,
    make_batch_reader,
    make_mixed_reader,
    make_reader,
    write_dataset,
)
from petastore.adapters.torch import DataLoader, MapDataset, ReaderDataset
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError, TransformError
from petastore.plan.request import LastBatchWord
from petastore.plan.windows.ngram import NGram
from petastore.readers.options import OnError
from petastore.work.pools import PoolType
from petastore.writers.generate import generate_metadata
from tests.readers.bad_rows.failing_transforms import FAILING, ROWS, doubled, doubled_frame

SCHEMA = Unischema(
    "frames",
    [
        UnischemaField("id", "int64", nullable=True),
        UnischemaField("image", "uint8", (None, None, 3), CompressedImageCodec("png"), nullable=True),
        UnischemaField("pose", "float32", (2,), NdarrayCodec(), nullable=True),
    ],
)
BAD_CELLS = {*range(7, ROWS, 40), *range(33, ROWS, 40)}
"""5 % of the rows: damaged images, and arrays of a wrong shape."""

BATCH = 8


class DoubledWithKey:
    """A transform with a cache key, so that scan results may be cached."""

    calls = 0

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        type(self).calls += 1
        return doubled(row)

    def cache_key(self) -> str:
        return "doubled, version 1"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETASTORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write 240 rows in two files with row groups of 17; 12 rows have a cell that cannot be decoded."""
    folder = tmp_path_factory.mktemp("frames")
    image_field, pose_field = SCHEMA["image"], SCHEMA["pose"]
    assert image_field.codec is not None
    assert pose_field.codec is not None
    (image,) = image_field.codec.encode_column([np.zeros((4, 4, 3), np.uint8)], image_field).to_pylist()
    (pose,) = pose_field.codec.encode_column([np.zeros(2, np.float32)], pose_field).to_pylist()
    longer = UnischemaField("pose", "float32", (3,), NdarrayCodec())
    (wrong,) = NdarrayCodec().encode_column([np.zeros(3, np.float32)], longer).to_pylist()
    for file, first in enumerate(range(0, ROWS, ROWS // 2)):
        ids = range(first, first + ROWS // 2)
        images = [image[:-20] if row in BAD_CELLS and row % 40 == 7 else image for row in ids]
        poses = [wrong if row in BAD_CELLS and row % 40 == 33 else pose for row in ids]
        table = pa.table({"id": ids, "image": images, "pose": poses})
        pq.write_table(table, folder / f"{file}.parquet", row_group_size=17)
    generate_metadata(str(folder), SCHEMA)
    return str(folder)


def ids_of(url: str, **options: Any) -> list[int]:
    with make_reader(url, shuffle_row_groups=False, **options) as reader:
        return [int(row.id) for row in reader]


def without(*bad: set[int]) -> list[int]:
    return [row for row in range(ROWS) if not any(row in each for each in bad)]


def trained(
    url: str, ranks: int, last_batch: LastBatchWord, quarantine: Path, *, steps: int | None, state: Any = None
) -> tuple[list[list[list[int]]], Any]:
    """Return the valid ids of each batch of each rank, and the state after some steps, which all ranks share."""
    batches, states = [], []
    for rank in range(ranks):
        with make_reader(
            url,
            transform_spec=doubled,
            on_error="quarantine",
            quarantine=quarantine,
            seed=3,
            shuffle_rows=True,
            interleave=4,
            cur_shard=rank,
            shard_count=ranks,
            last_batch=last_batch,
            reader_pool_type="dummy",
        ) as reader:
            if state is not None:
                reader.load_state_dict(state)
            own = []
            for batch in itertools.islice(reader.iter_batches(BATCH), steps):
                assert batch.num_rows == BATCH or last_batch == "even"
                assert (batch["twice"] == 2 * batch["id"]).all()
                own.append(batch["id"][batch["valid"] if last_batch == "pad" else slice(None)].tolist())
            batches.append(own)
            states.append(reader.state_dict())
    assert all(state == states[0] for state in states)
    return batches, states[0]


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"])
@pytest.mark.parametrize(("ranks", "later_ranks"), [(1, 2), (2, 3), (3, 1), (3, 2)])
def test_on_error_skip_after_a_resume_keeps_equal_steps_and_each_good_row(
    url: str, tmp_path: Path, ranks: int, later_ranks: int, last_batch: LastBatchWord
) -> None:
    first, state = trained(url, ranks, last_batch, tmp_path / "bad", steps=3)
    rest, _ = trained(url, later_ranks, last_batch, tmp_path / "bad", steps=None, state=state)
    assert {len(own) for own in first} == {3}
    assert len({len(own) for own in rest}) == 1
    counts = Counter(row for own in [*first, *rest] for batch in own for row in batch)
    good = set(without(BAD_CELLS, FAILING))
    assert set(counts) <= good
    if last_batch in ("even", "pad"):
        assert counts == Counter(good)
    elif last_batch == "drop":
        assert set(counts.values()) == {1}
        assert len(good) - len(counts) < BATCH * later_ranks
    else:
        assert set(counts) == good
        assert counts.total() - len(good) < BATCH * later_ranks
    table = pq.read_table(tmp_path / "bad").to_pylist()
    places = [(row["source_file"], row["source_row_group"], row["source_row"]) for row in table]
    assert len(set(places)) == len(places)
    assert sorted(row["row"]["id"] for row in table) == sorted(BAD_CELLS | FAILING)
    assert {row["error"] for row in table if row["row"]["id"] in FAILING} == {"TransformError"}


def test_on_error_quarantine_writes_location_error_and_cells_of_bad_rows(url: str, tmp_path: Path) -> None:
    assert ids_of(url, on_error="quarantine", quarantine=tmp_path / "bad") == without(BAD_CELLS)
    table = pq.read_table(tmp_path / "bad")
    row = table.slice(0, 1).to_pylist()[0]
    columns = ["source_file", "source_row_group", "source_row"]
    assert [row[name] for name in [*columns, "column", "error"]] == ["0.parquet", 0, 7, "image", "DecodeError"]
    assert row["message"].startswith("column 'image', row 7 of row group 0 in 0.parquet: ")
    assert row["row"]["image"].startswith(b"\x89PNG")
    places = [tuple(place.values()) for place in table.select(columns).to_pylist()]
    assert ids_of(url, exclude_rows=places) == without(BAD_CELLS)


@pytest.mark.parametrize(
    ("takes", "pool"),
    [
        ("row", "thread"),
        ("dataframe", "process"),
        *(
            pytest.param(takes, pool, marks=pytest.mark.slow)
            for takes, pool in [("row", "process"), ("row", "dummy"), ("dataframe", "thread"), ("dataframe", "dummy")]
        ),
    ],
)
def test_on_error_skip_finds_rows_of_failing_transforms_in_every_pool(url: str, pool: PoolType, takes: Any) -> None:
    spec = TransformSpec(doubled if takes == "row" else doubled_frame, takes=takes)
    options: dict[str, Any] = {"on_error": "skip", "transform_spec": spec, "reader_pool_type": pool}
    assert ids_of(url, **options, workers_count=2) == without(BAD_CELLS, FAILING)


def test_on_error_skip_finds_rows_of_failing_dataframe_transforms(url: str) -> None:
    with make_batch_reader(url, shuffle_row_groups=False, on_error="skip", transform_spec=doubled_frame) as reader:
        ids = [row for batch in reader for row in batch.id.tolist()]
    assert ids == without(BAD_CELLS, FAILING)


def test_schema_inference_skips_bad_first_rows(url: str) -> None:
    def late(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] < 3:
            raise ValueError("too early")
        return {**row, "twice": np.int64(row["id"] * 2)}

    assert ids_of(url, on_error="skip", transform_spec=late) == without(BAD_CELLS, {0, 1, 2})


def test_on_error_skip_retries_in_place_transform_with_the_stored_values(url: str) -> None:
    def in_place(columns: dict[str, Any]) -> dict[str, Any]:
        columns["id"] += 1000
        assert columns["id"].max() < 2000
        if np.isin(columns["id"] - 1000, list(FAILING)).any():
            raise ValueError("no pose")
        return columns

    spec = TransformSpec(in_place, takes="columns", edit_fields=[])
    ids = ids_of(url, on_error="skip", transform_spec=spec)
    assert [row - 1000 for row in ids] == without(BAD_CELLS, FAILING)


def test_on_error_skip_checks_only_selected_columns_and_rows(url: str) -> None:
    assert ids_of(url, schema_fields=["id"], on_error="skip", max_bad_rows=0) == without()
    only = col("id").isin([1, 7, 8])
    with make_reader(url, filters=only, shuffle_row_groups=False, on_error="skip", max_bad_rows=1) as reader:
        assert [int(row.id) for row in reader] == [1, 8]
        assert reader.plan.selection is not None
        assert [(step.by, step.rows) for step in reader.plan.selection.pruned][-1] == ("bad rows", 1)


def test_state_of_a_skipping_reader_without_bad_rows_loads_into_any_reader(url: str) -> None:
    with make_reader(url, ["id"], on_error="skip") as reader, make_reader(url, ["id"]) as other:
        next(reader)
        other.load_state_dict(reader.state_dict())
        assert len(list(other)) == ROWS - 1


@pytest.mark.parametrize("pool", ["thread", "dummy"])
@pytest.mark.parametrize("shuffle_rows", [False, True])
def test_state_saved_before_an_error_resumes_with_on_error_skip(url: str, pool: PoolType, shuffle_rows: bool) -> None:
    def read(rank: int, ranks: int, state: Any, steps: int | None, **options: Any) -> tuple[list[int], Any]:
        shard: dict[str, Any] = {
            "cur_shard": rank,
            "shard_count": ranks,
            "seed": 3,
            "interleave": 6,
            "shuffle_rows": shuffle_rows,
        }
        with make_reader(url, num_epochs=2, reader_pool_type=pool, **shard, **options) as reader:
            if state is not None:
                reader.load_state_dict(state)
            batches = itertools.islice(reader.iter_batches(BATCH), steps)
            return [row for batch in batches for row in batch["id"].tolist()], reader.state_dict()

    early = [read(rank, 2, None, 4, schema_fields=["id"]) for rank in range(2)]
    state = early[0][1]
    more = [read(rank, 3, state, 2, on_error="skip") for rank in range(3)]
    assert more[0][1] == more[2][1]
    assert more[0][1]["rest"] == {"dataset": state["dataset"], "position": 64}
    rest = [read(rank, 2, more[0][1], None, on_error="skip") for rank in range(2)]
    counts = Counter(row for ids, _ in [*early, *more, *rest] for row in ids)
    bad_and_early = BAD_CELLS & {row for ids, _ in early for row in ids}
    assert counts == Counter([*without(BAD_CELLS), *without(BAD_CELLS), *bad_and_early])
    with pytest.raises(
        InvalidArgumentError,
        match="Exclude the rows that were excluded when the state was saved, or start without a state",
    ):
        read(0, 1, more[0][1], None, schema_fields=["id"])
    with pytest.raises(InvalidArgumentError, match="the state must belong to the data that is read"):
        ReaderDataset(url, batch_size=BATCH, on_error="skip", seed=3).load_state_dict(state)


def scans(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    return (record.getMessage() for record in caplog.records if "decoded once" in record.getMessage())


def test_scan_for_bad_rows_is_cached_without_a_transform_or_with_cache_key(
    url: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        assert ids_of(url, on_error="skip") == without(BAD_CELLS)
    assert len(list(scans(caplog))) == 1
    assert ids_of(url, on_error="quarantine", quarantine=tmp_path / "bad") == without(BAD_CELLS)
    assert len(list(scans(caplog))) == 1
    assert len(pq.read_table(tmp_path / "bad")) == len(BAD_CELLS)
    spec = TransformSpec(DoubledWithKey(), edit_fields=[("twice", np.int64, (), False)])
    for _ in range(2):
        assert ids_of(url, on_error="skip", transform_spec=spec) == without(BAD_CELLS, FAILING)
    assert len(list(scans(caplog))) == 2
    for _ in range(2):
        assert ids_of(url, on_error="skip", transform_spec=doubled) == without(BAD_CELLS, FAILING)
    assert len(list(scans(caplog))) == 4


@pytest.mark.parametrize("most", [3, 0.0125])
def test_more_bad_rows_than_max_bad_rows_raise_and_name_the_first_ones(url: str, most: float) -> None:
    message = r"max_bad_rows must be at least .* row 7 of row group 0 in 0\.parquet"
    with pytest.raises(DecodeError, match=message) as caught:
        make_reader(url, on_error="skip", max_bad_rows=most)
    assert isinstance(caught.value.__cause__, DecodeError)
    assert len(ids_of(url, on_error="skip", max_bad_rows=0.05)) == ROWS - len(BAD_CELLS)
    with pytest.raises(DecodeError, match="max_bad_rows must be at least"):  # the scan is cached now
        make_reader(url, on_error="skip", max_bad_rows=most)


def test_on_error_skip_raises_when_every_row_is_bad(url: str) -> None:
    with pytest.raises(TransformError, match=r"on_error must leave at least one good row, but all .*ZeroDivisionError"):
        make_reader(url, ["id"], on_error="skip", transform_spec=lambda _: {"id": 1 // 0})


def test_on_error_skip_works_with_windows_and_mixtures(url: str) -> None:
    ngram = NGram({0: ["id", "image"], 1: ["id"]}, delta_threshold=1, timestamp_field="id")
    damaged = {row for row in BAD_CELLS if row % 40 == 7}
    with make_reader(url, ngram, shuffle_row_groups=False, on_error="skip") as reader:
        starts = [int(window[0].id) for window in reader]
    assert starts == [row for row in range(ROWS - 1) if not damaged & {row, row + 1}]

    def of_source(row: dict[str, Any]) -> dict[str, Any]:
        if row["source"] == 1 and row["id"] == 0:
            raise ValueError("no")
        return row

    with make_mixed_reader(
        [url, url], [1, 1], source_column="source", transform_spec=of_source, on_error="skip", stop="all_exhausted"
    ) as reader:
        counts = Counter((int(row.source), int(row.id)) for row in reader)
        assert reader.diagnostics["bad_rows"] == 2 * len(BAD_CELLS) + 1
    assert set(counts) == {(source, row) for source in (0, 1) for row in without(BAD_CELLS)} - {(1, 0)}


def test_on_error_skip_works_with_torch_loaders_and_datasets(url: str) -> None:
    options: dict[str, Any] = {"on_error": "skip", "transform_spec": doubled}
    good = without(BAD_CELLS, FAILING)
    with DataLoader(make_reader(url, ["id"], shuffle_row_groups=False, **options), batch_size=BATCH) as loader:
        assert torch.cat([batch["id"] for batch in loader]).tolist() == without(FAILING)
    rows = MapDataset(url, **options)
    assert [int(rows[number]["id"]) for number in range(len(rows))] == good
    dataset = ReaderDataset(url, batch_size=BATCH, shuffle_row_groups=False, **options)
    assert torch.cat([batch["id"] for batch in dataset]).tolist() == good


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, "on_error must be one of 'raise', 'skip', 'quarantine'"),
        ({"on_error": "quarantine"}, "quarantine must be a directory or URL with on_error='quarantine'"),
        ({"quarantine": "x"}, "quarantine must be a directory or URL with on_error='quarantine'"),
        ({"max_bad_rows": 3}, "max_bad_rows must be an int of at least 0 or a float below 1"),
        ({"on_error": "skip", "max_bad_rows": 1.5}, "max_bad_rows must be an int"),
        ({"on_error": "skip", "max_bad_rows": -1}, "max_bad_rows must be an int"),
        ({"on_error": "skip", "max_bad_rows": True}, "max_bad_rows must be an int"),
        ({"exclude_rows": "0.parquet"}, "exclude_rows must be a list of"),
        ({"exclude_rows": [("0.parquet", 0)]}, "exclude_rows must have items"),
        ({"exclude_rows": [("0.parquet", 0, -1)]}, "exclude_rows must have items"),
        (
            {"exclude_rows": [("0.parquet", 0, 17)]},
            r"must name rows of the dataset, got \('0.parquet', 0, 17\)",
        ),
        ({"exclude_rows": [("2.parquet", 0, 0)]}, "exclude_rows must name rows of the dataset"),
    ],
)
def test_invalid_on_error_options_raise(url: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make_reader(url, **options)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_rows_of_exclude_rows_are_neither_read_nor_checked_for_errors(url: str, on_error: OnError) -> None:
    excluded = [(f"{row // 120}.parquet", row % 120 // 17, row % 120 % 17) for row in sorted(BAD_CELLS)]
    with make_reader(url, exclude_rows=excluded, shuffle_row_groups=False, on_error=on_error) as reader:
        assert [int(row.id) for row in reader] == without(BAD_CELLS)
        assert reader.plan.selection is not None
        assert [(step.by, step.rows) for step in reader.plan.selection.pruned] == [("excluded rows", len(BAD_CELLS))]
        assert reader.diagnostics["excluded_rows"] == len(BAD_CELLS)


def has_no_three(row: dict[str, Any]) -> dict[str, Any]:
    return row if row["id"] != 3 else row["missing"]


@pytest.mark.parametrize("quarantine", ["{}", "{}/bad", "file://{}/a/../b", "{}-link/bad"])
def test_quarantine_inside_the_dataset_raises(tmp_path: Path, quarantine: str) -> None:
    url = tmp_path / "data"
    write_dataset(url, {"id": range(10)})
    (tmp_path / "data-link").symlink_to(url)
    options: dict[str, Any] = {"transform_spec": has_no_three, "on_error": "quarantine"}
    options["quarantine"] = quarantine.format(url)
    write_dataset(tmp_path / "more", {"id": range(10, 20)})
    for open_reader in (
        lambda: make_reader(url, **options),
        lambda: make_reader([str(url)], **options),
        lambda: make_mixed_reader([str(tmp_path / "more"), str(url)], [1, 1], **options),
        lambda: MapDataset(url, **options),
    ):
        with pytest.raises(InvalidArgumentError, match=r"quarantine must be outside the dataset, got .*is inside"):
            open_reader()
    assert make_reader(url).num_rows == 10


def test_quarantine_inside_a_remote_dataset_raises(tmp_path: Path) -> None:
    write_dataset("memory://quarantined/data", {"id": range(10)})
    options: dict[str, Any] = {"transform_spec": has_no_three, "on_error": "quarantine"}
    with pytest.raises(InvalidArgumentError, match="quarantine must be outside the dataset"):
        make_reader("memory://quarantined/data", quarantine="memory://quarantined/data/bad", **options)
    for outside in ("memory://quarantined/data-bad", tmp_path / "quarantined" / "data" / "bad"):
        with make_reader("memory://quarantined/data", quarantine=outside, **options) as reader:
            assert reader.num_rows == 9
        with make_reader(outside, ["source_row"]) as reader:
            assert [int(row.source_row) for row in reader] == [3]


def test_quarantine_may_be_beside_the_listed_files_of_a_dataset(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"id": range(10)})
    files = sorted(str(file) for file in tmp_path.glob("*.parquet"))
    options: dict[str, Any] = {"transform_spec": has_no_three, "on_error": "quarantine"}
    with make_reader(files, quarantine=tmp_path / "bad", **options) as reader:
        assert reader.num_rows == 9
    with make_reader(files) as reader:
        assert reader.num_rows == 10
