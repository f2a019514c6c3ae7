"""Tests of filters and predicates in readers: exact rows, pruned reads, even shards, cached selections."""

from __future__ import annotations

import collections
import datetime as dt
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings

import petastore
from petastore import NGram, Unischema, UnischemaField, col, make_batch_reader, make_reader, open_dataset, select_rows
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.dataset import Dataset
from petastore.errors import (
    DatasetChangedError,
    DecodeError,
    InvalidArgumentError,
    NoDataAvailableError,
    SchemaError,
    TransformError,
)
from petastore.inventory import DataFile
from petastore.plan import ReadUnit, Selection
from petastore.plan.request import LastBatchWord
from petastore.predicates import in_lambda, in_set
from petastore.readers import Workers
from petastore.storage.row_groups.asked_columns import Part
from tests.laws.filter_laws import FilteredRows, filtered_rows
from tests.pace import patience
from tests.tier import examples

SCHEMA = Unischema(
    "frames",
    [
        UnischemaField("id", "int64"),
        UnischemaField("split", "str"),
        UnischemaField("score", "float32", nullable=True),
        UnischemaField("pose", "float32", (2,), NdarrayCodec()),
    ],
)


def frame(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "split": ("train", "train", "val")[number % 3],
        "score": None if number % 7 == 0 else number / 10,
        "pose": np.array([number, -number], np.float32),
    }


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PETASTORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "selections"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Write 100 rows in row groups of 8, with ascending ids."""
    petastore.write_dataset(tmp_path / "frames", SCHEMA, map(frame, range(100)), rows_per_row_group=8)
    return str(tmp_path / "frames")


@pytest.fixture
def partitioned(tmp_path: Path) -> str:
    """Write three days of 20 rows, in row groups of 5; `day` is only in the path."""
    for day in ("2026-01-30", "2026-01-31", "2026-02-01"):
        (tmp_path / "days" / f"day={day}").mkdir(parents=True)
        first = 100 * int(day[-1])
        table = pa.table({"id": range(first, first + 20)})
        pq.write_table(table, tmp_path / "days" / f"day={day}" / "part.parquet", row_group_size=5)
    return str(tmp_path / "days")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[ReadUnit]:
    """Return a list that records each later read of data pages."""
    seen: list[ReadUnit] = []
    read, reading = Dataset.read, Dataset.reading

    def noted(self: Dataset, unit: ReadUnit) -> Any:
        seen.append(unit)
        return read(self, unit)

    def noted_reading(self: Dataset, *arguments: Any) -> Any:
        read_in_parts = reading(self, *arguments)

        def noted_in_parts(file: DataFile, ordinal: int, parts: Sequence[Part]) -> Any:
            inventory, columns = self.inventory, tuple(name for part in parts for name in part.columns)
            is_it = (inventory.file == inventory.files.index(file)) & (inventory.ordinal == ordinal)
            group = int(np.flatnonzero(is_it)[0])
            seen.append(ReadUnit(group, file, ordinal, (0, int(inventory.rows[group])), columns))
            return read_in_parts(file, ordinal, parts)

        return noted_in_parts

    monkeypatch.setattr(Dataset, "read", noted)
    monkeypatch.setattr(Dataset, "reading", noted_reading)
    return seen


def ids(url: str, **arguments: Any) -> list[int]:
    with make_reader(url, ["id"], shuffle_row_groups=False, **arguments) as reader:
        return [int(row.id) for row in reader]


def wanted(test: Any) -> list[int]:
    return [number for number in range(100) if test(frame(number))]


@pytest.mark.parametrize(
    ("filters", "test"),
    [
        (col("split") == "train", lambda row: row["split"] == "train"),
        ([("split", "=", "val"), ("id", ">=", 50)], lambda row: row["split"] == "val" and row["id"] >= 50),
        ([[("id", "<", 3)], [("id", "in", [50, 99, 1000])]], lambda row: row["id"] < 3 or row["id"] in (50, 99)),
        (col("score") > 8.95, lambda row: row["score"] is not None and row["score"] > 8.95),
        (~(col("score") > 1), lambda row: row["score"] is not None and not row["score"] > 1),
        (col("score").is_null(), lambda row: row["score"] is None),
        (col("id") < 0, lambda _: False),
        (col("id") >= 0, lambda _: True),
        ((col("id") < 16) | (col("split") == "val"), lambda row: row["id"] < 16 or row["split"] == "val"),
    ],
    ids=lambda part: None if callable(part) else repr(part),
)
@pytest.mark.filterwarnings("ignore:none of the:UserWarning")
def test_filtered_reader_returns_exactly_the_matching_rows(url: str, filters: Any, test: Any) -> None:
    assert ids(url, filters=filters) == wanted(test)
    assert ids(url, filters=filters, reader_pool_type="dummy", filter_cache=False) == wanted(test)
    with make_batch_reader(url, ["id", "score"], filters=filters, shuffle_row_groups=False) as reader:
        found = [int(number) for batch in reader.iter_batches(7) for number in batch["id"]]
        assert reader.num_rows == len(found)
    assert found == wanted(test)


@pytest.mark.filterwarnings("ignore:none of the:UserWarning")
@given(filtered_rows(max_rows=20))
@settings(max_examples=examples(60))
def test_filter_equals_row_by_row_evaluation(tmp_path_factory: pytest.TempPathFactory, drawn: FilteredRows) -> None:
    folder = tmp_path_factory.mktemp("drawn")
    schema = Unischema("drawn", [UnischemaField("row", "int64"), *drawn.fields])
    names = list(drawn.columns)
    values = list(zip(*drawn.columns.values(), strict=True))
    assume(values)
    rows = [{"row": number, **dict(zip(names, row, strict=True))} for number, row in enumerate(values)]
    petastore.write_dataset(folder / "data", schema, rows, rows_per_row_group=3)
    dataset = open_dataset(str(folder / "data"))
    selection = select_rows(dataset, filters=drawn.expression, workers=Workers("dummy"), filter_cache=False)
    assert selection is not None
    kept = [row for row, is_kept in enumerate(drawn.kept) if is_kept]
    groups = np.repeat(np.arange(len(selection.counts)), selection.counts)
    places = np.concatenate([np.arange(count) for count in selection.counts])
    assert (groups * 3 + selection.rows_at(groups.astype(np.int32), places)).tolist() == kept


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ranks_divide_the_selected_rows_evenly(url: str, ranks: int, last_batch: LastBatchWord) -> None:
    expected = wanted(lambda row: row["split"] == "val")
    seen: collections.Counter[int] = collections.Counter()
    steps = set()
    for rank in range(ranks):
        with make_reader(
            url,
            cur_shard=rank,
            shard_count=ranks,
            last_batch=last_batch,
            filters=col("split") == "val",
            shuffle_rows=True,
            seed=3,
        ) as reader:
            steps.add(reader.steps_per_epoch(4))
            batches = list(reader.iter_batches(4))
            assert len(batches) == reader.steps_per_epoch(4)
            for batch in batches:
                valid = batch["valid"] if last_batch == "pad" else np.ones(batch.num_rows, np.bool_)
                assert (batch["pose"][:, 0] == batch["id"]).all()
                seen.update(batch["id"][valid].tolist())
    assert len(steps) == 1
    assert set(seen) <= set(expected)
    if last_batch in ("even", "pad"):
        assert seen == collections.Counter(expected)
    elif last_batch == "wrap":
        assert set(seen) == set(expected)
    else:
        assert set(seen.values()) <= {1}


def test_filtered_reader_resumes_from_a_state(url: str) -> None:
    arguments: dict[str, Any] = {"filters": col("split") == "train", "shuffle_rows": True, "seed": 5, "num_epochs": 2}
    with make_reader(url, **arguments) as reader:
        whole = [batch["id"].tolist() for batch in reader.iter_batches(10)]
    for stop in (1, 4, 9):
        with make_reader(url, **arguments) as reader:
            batches = reader.iter_batches(10)
            for _ in range(stop):
                next(batches)
            state = reader.state_dict()
        with make_reader(url, workers_count=1, **arguments) as reader:
            reader.load_state_dict(state)
            assert [batch["id"].tolist() for batch in reader.iter_batches(10)] == whole[stop:]
    arguments["filters"] = col("split") == "val"
    with make_reader(url, **arguments) as other, pytest.raises(InvalidArgumentError, match="another dataset or filter"):
        other.load_state_dict(state)


def test_filtered_row_count_is_known_before_reading(url: str, reads: list[ReadUnit]) -> None:
    with make_reader(url, ["pose"], filters=(col("split") == "val") & (col("id") < 40)) as reader:
        assert {unit.columns for unit in reads} == {("split", "id")}
        assert sorted(unit.group for unit in reads) == [0, 1, 2, 3, 4]  # all other row groups have larger ids
        assert (reader.num_rows, len(reader), reader.steps_per_epoch(4)) == (13, 13, 4)
        reads.clear()
        assert next(reader)._fields == ("pose",)
    assert {unit.columns for unit in reads} == {("pose",)}


def test_filter_decided_by_statistics_reads_no_data(url: str, reads: list[ReadUnit]) -> None:
    selection = select_rows(open_dataset(url), filters=(col("id") >= 8) & (col("id") < 32))
    assert reads == []
    assert selection is not None
    assert selection.counts.tolist() == [0, 8, 8, 8] + [0] * 9
    assert selection.bitmaps == {}


def test_filter_on_partitions_opens_no_file(partitioned: str, reads: list[ReadUnit]) -> None:
    dataset = open_dataset(partitioned)
    for part in Path(partitioned).glob("*/*.parquet"):
        part.unlink()
    selection = select_rows(dataset, filters=[("day", ">", "2026-01-30"), ("day", "!=", "2026-02-01")])
    assert selection is not None
    assert selection.counts.tolist() == [0] * 4 + [5] * 4 + [0] * 4
    assert reads == []


def test_filter_opens_only_files_of_matching_partitions(partitioned: str, reads: list[ReadUnit]) -> None:
    dataset = open_dataset(partitioned)
    for part in Path(partitioned).glob("day=2026-01-3?/part.parquet"):
        part.unlink()
    selection = select_rows(dataset, filters=(col("day") == "2026-02-01") & (col("id") < 107))
    assert selection is not None
    assert selection.counts.tolist() == [0] * 8 + [5, 2, 0, 0]
    assert [unit.group for unit in reads] == [9]


def by(selection: Selection | None) -> dict[str, tuple[int, int]]:
    assert selection is not None
    return {step.by: (step.row_groups, step.rows) for step in selection.pruned}


def test_selection_counts_rows_skipped_by_partitions_statistics_and_filter(
    url: str, partitioned: str, cache: Path
) -> None:
    filters = (col("split") == "val") & (col("id") < 40)
    for _ in range(2):  # computed, and then read from the cache
        selection = select_rows(open_dataset(url), filters=filters)
        assert by(selection) == {"statistics": (8, 60), "filter": (0, 27)}
    assert by(select_rows(open_dataset(url), filters=col("id") < 16)) == {"statistics": (11, 84)}
    assert by(select_rows(open_dataset(url), filters=col("id") >= 0)) == {}
    days = open_dataset(partitioned)
    assert by(select_rows(days, filters=col("day") == "2026-01-30")) == {"partition values": (8, 40)}
    filters = (col("day") != "2026-01-30") & col("id").isin([101, 111, 204, 1000])
    assert by(select_rows(days, filters=filters)) == {
        "partition values": (4, 20),
        "statistics": (4, 20),
        "filter": (0, 16),
    }


def test_selection_counts_rows_skipped_by_a_predicate(url: str, partitioned: str) -> None:
    first = Fields({"id"}, lambda values: values["id"] < 20, "first")
    filters = (col("split") == "val") & (col("id") < 40)
    for _ in range(2):
        selection = select_rows(open_dataset(url), filters=filters, predicate=first)
        assert by(selection) == {"statistics": (8, 60), "filter": (0, 27), "predicate": (2, 7)}
    assert by(select_rows(open_dataset(url), predicate=first)) == {"predicate": (10, 80)}
    january = Fields({"day"}, lambda values: str(values["day"]).startswith("2026-01"))
    days = open_dataset(partitioned)
    assert by(select_rows(days, predicate=january)) == {"predicate": (4, 20)}
    assert by(select_rows(days, predicate=january, filters=col("id") >= 113)) == {
        "statistics": (8, 40),
        "filter": (0, 6),
        "predicate": (2, 7),
    }


def test_filter_combines_partition_and_data_columns(partitioned: str) -> None:
    filters = (col("day") == "2026-01-31") & (col("id") >= 113) | (col("day") == "2026-01-30") & (col("id") == 7)
    assert ids(partitioned, filters=filters) == [7, 113, 114, 115, 116, 117, 118, 119]


@pytest.mark.filterwarnings("ignore:none of the:UserWarning")
def test_filter_without_matches_yields_no_batches(url: str) -> None:
    for call in (make_reader, make_batch_reader):
        with call(url, filters=col("id") < 0, cur_shard=0, shard_count=2) as reader:
            assert (reader.num_rows, reader.steps_per_epoch(4), len(reader)) == (0, 0, 0)
            assert list(reader) == []
            assert list(reader.iter_batches(4)) == []


NOTHING = petastore.predicates.in_lambda(["id"], lambda number: number < 0)


@pytest.mark.parametrize("asked", [{"filters": col("id") < 0}, {"predicate": NOTHING}], ids=["filter", "predicate"])
@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_filter_without_matches_warns_once_per_reader(url: str, make: Any, asked: Any) -> None:
    for rank in (0, 1):
        with (
            pytest.warns(UserWarning, match="none of") as told,
            make(url, cur_shard=rank, shard_count=2, **asked) as reader,
        ):
            assert list(reader) == list(reader.iter_batches(4)) == []
        (warning,) = told
        (name,) = asked
        said = f"none of the {open_dataset(url).inventory.num_rows} rows of {reader.dataset.url} matches {name}="
        assert str(warning.message).startswith(said)
        assert warning.filename == __file__


def test_filter_of_an_empty_dataset_gives_no_warning(tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "empty", SCHEMA, [])
    with make_reader(tmp_path / "empty", filters=col("id") < 0) as reader:
        assert list(reader) == []


def test_fewer_rows_than_ranks_raise_with_both_numbers(url: str) -> None:
    for rank in range(3):
        with pytest.raises(NoDataAvailableError, match=r"2 rows .* 3 ranks"):
            make_reader(url, filters=col("id") < 2, cur_shard=rank, shard_count=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filters": col("z") == 1}, r"filters must name columns of.*\('id', 'split', 'score', 'pose'\), got 'z'"),
        ({"filters": [("z", "=", 1)]}, "'z'"),
        (
            {"filters": col("id") == "1"},
            r"filters must compare 'id' \(int64\) with a value of its kind, got the str '1'\. Give a number",
        ),
        ({"filters": col("pose") == 1}, "'pose'.*predicate="),
        ({"filters": []}, "filters must be an expression or lists of tuples, got"),
        ({"filters": "id = 1"}, "filters must be an expression or lists of tuples, got"),
        (
            {"predicate": 7},
            r"predicate must be an object with get_fields\(\) and do_include\(values\), or a function of a row,",
        ),
        ({"predicate": dict}, r"predicate must be an object, got the class dict\. Write dict\(…\)"),
        (
            {"predicate": [("id", "=", 1)]},
            r"predicate must be an object with get_fields\(\) and do_include\(values\), or a function of a row,",
        ),
        ({"filter_cache": 7}, "filter_cache"),
        ({"filter_cache": ""}, "filter_cache"),
        ({"filter_cache": "s3://bucket/x"}, "filter_cache"),
    ],
    ids=repr,
)
def test_invalid_filter_raises_at_the_call(url: str, arguments: dict[str, Any], message: str) -> None:
    for call in (make_reader, make_batch_reader):
        with pytest.raises(InvalidArgumentError, match=message):
            call(url, **arguments)


def test_selection_made_from_another_dataset_raises_in_plan(url: str, tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "other", SCHEMA, map(frame, range(100)), rows_per_row_group=7)
    selection = select_rows(open_dataset(str(tmp_path / "other")), filters=col("id") > 50)
    for shuffle_rows in (False, True):
        with pytest.raises(
            InvalidArgumentError,
            match=r"selection must be made from this version of the dataset, got Selection\(49 rows in 8 of 15 row",
        ):
            open_dataset(url).plan(selection=selection, shuffle_rows=shuffle_rows)


def test_select_rows_without_a_filter_returns_none(url: str, cache: Path) -> None:
    assert select_rows(open_dataset(url)) is None
    assert not cache.exists()


def test_shuffling_sparsely_filtered_rows_keeps_few_row_groups_in_memory(tmp_path: Path) -> None:
    """A block of selected rows must not need the row groups of a hundred times as many rows."""
    table = pa.table({"id": np.arange(10_000)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100)
    dataset = open_dataset(str(tmp_path / "x.parquet"))
    sparse = select_rows(dataset, filters=col("id").isin(range(0, 10_000, 50)), filter_cache=False)
    plan = dataset.plan(selection=sparse, shuffle_rows=True, shuffle_buffer_bytes=100 * 8 * 20)
    at_hand, most = set(), 0
    for span in plan.spans(4, rows_per_span=4):
        at_hand |= set(span.fetch)
        most = max(most, len(at_hand))
        at_hand -= set(span.release)
    assert plan.num_rows == 200
    assert most <= 40


def test_undecodable_filter_cell_raises_with_its_row(tmp_path: Path) -> None:
    schema = Unischema("s", [UnischemaField("id", "uint8")])
    petastore.write_dataset(tmp_path / "data", schema, [{"id": n} for n in range(6)], rows_per_row_group=3)
    (part,) = (tmp_path / "data").glob("*.parquet")
    table = pa.table({"id": pa.array([0, 1, 2, 3, 300, 5], pa.int16())}, schema=pq.read_schema(part))
    pq.write_table(table, part, row_group_size=3)
    (tmp_path / "data" / "_petastore" / "inventory.arrow").unlink()
    with pytest.raises(DecodeError) as caught:
        make_reader(str(tmp_path / "data"), filters=col("id") == 4)
    error = caught.value
    assert (error.column, error.file, error.row_group, error.row) == ("id", part.name, 1, 1)


def test_filter_raises_for_a_rewritten_file(url: str) -> None:
    dataset = open_dataset(url)
    (part,) = Path(url).glob("*.parquet")
    pq.write_table(pq.read_table(part).slice(1), part, row_group_size=8)
    with pytest.raises(DatasetChangedError, match=part.name):
        select_rows(dataset, filters=col("split") == "val")


def test_pruned_and_read_row_groups_are_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "petastore"):
        select_rows(open_dataset(url), filters=(col("split") == "val") & (col("id") < 40))
    text = caplog.text
    assert "13 row groups: 0 dropped by partition values, 8 by statistics, 0 kept whole, 5 to be read" in text
    assert "40 rows looked at" in text
    assert "rows/s" in text


class Fields:
    """A predicate with Petastorm's methods."""

    def __init__(self, fields: set[str], include: Any, key: str | None = None) -> None:
        self.fields = fields
        self.include = include
        self.key = key
        self.calls: list[dict[str, Any]] = []

    def get_fields(self) -> set[str]:
        return self.fields

    def do_include(self, values: dict[str, Any]) -> Any:
        self.calls.append(values)
        return self.include(values)

    def cache_key(self) -> str | None:
        return self.key


class Columns(Fields):
    """A predicate that receives columns."""

    def do_include_batch(self, columns: dict[str, Any]) -> Any:
        self.calls.append(columns)
        return self.include(columns)


def test_predicate_is_called_once_per_row_with_decoded_fields(url: str, reads: list[ReadUnit]) -> None:
    predicate = Fields({"pose", "id"}, lambda values: bool(values["pose"].sum() == 0 and values["id"] % 10 == 3))
    assert ids(url, predicate=predicate) == wanted(lambda row: row["id"] % 10 == 3)
    assert sorted(int(values["id"]) for values in predicate.calls) == list(range(100))
    assert all(set(values) == {"id", "pose"} and values["pose"].shape == (2,) for values in predicate.calls)
    assert {unit.columns for unit in reads} == {("id", "pose"), ("id",)}


def test_predicate_is_called_only_for_rows_of_the_filter(url: str, reads: list[ReadUnit]) -> None:
    predicate = Fields({"pose"}, lambda values: bool(values["pose"][0] % 2 == 0))
    filters = (col("split") == "val") & (col("id") < 40)
    assert ids(url, filters=filters, predicate=predicate) == [2, 8, 14, 20, 26, 32, 38]
    assert len(predicate.calls) == 13
    assert sorted(unit.group for unit in reads if unit.columns == ("pose",)) == [0, 1, 2, 3, 4]


def test_predicate_receives_none_for_missing_values(url: str) -> None:
    assert ids(url, predicate=Fields({"score"}, lambda values: values["score"] is None)) == list(range(0, 100, 7))


def test_predicate_with_do_include_batch_receives_columns(url: str) -> None:
    predicate = Columns({"id", "pose"}, lambda columns: columns["pose"][:, 0] > 90)
    assert ids(url, predicate=predicate) == list(range(91, 100))
    assert all(columns["pose"].shape[1:] == (2,) for columns in predicate.calls)
    filtered = Columns({"pose"}, lambda columns: columns["pose"][:, 0] > 90)
    assert ids(url, predicate=filtered, filters=col("split") == "val") == [92, 95, 98]


def test_function_predicate_receives_all_fields(url: str) -> None:
    assert ids(url, predicate=lambda row: row["id"] > 90 and row["split"] == "val" and len(row) == 4) == [92, 95, 98]


def test_predicate_on_partitions_reads_nothing(partitioned: str, reads: list[ReadUnit]) -> None:
    predicate = Fields({"day"}, lambda values: str(values["day"]).startswith("2026-01"))
    selection = select_rows(open_dataset(partitioned), predicate=predicate)
    assert selection is not None
    assert selection.counts.tolist() == [5] * 8 + [0] * 4
    assert (len(predicate.calls), reads) == (12, [])
    both = select_rows(open_dataset(partitioned), predicate=predicate, filters=col("id").isin([3, 113, 210]))
    assert both is not None
    assert (both.counts.sum(), len(both.bitmaps)) == (2, 2)


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (Fields({"id"}, lambda _: 1 / 0), "raised ZeroDivisionError: division by zero"),
        (Fields({"id"}, lambda _: "yes"), "True or False"),
        (Fields({"id"}, lambda _: None), "True or False"),
        (Columns({"id"}, lambda _: np.ones(3, np.bool_)), "8 booleans"),
        (Columns({"id"}, lambda _: np.ones(8)), "8 booleans"),
    ],
)
def test_predicate_error_names_the_predicate_and_row_group(url: str, predicate: Any, message: str) -> None:
    with pytest.raises(TransformError, match=rf"row group \d+ of .*parquet.*{message}"):
        make_reader(url, predicate=predicate, workers_count=1)


@pytest.mark.parametrize("fields", [{"z"}, set(), "id", {7}])
def test_predicate_on_unknown_fields_raises(url: str, fields: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="predicate"):
        make_reader(url, predicate=Fields(fields, bool))


def test_predicate_get_fields_may_return_fields(url: str) -> None:
    assert ids(url, predicate=Fields({SCHEMA.id}, lambda values: values["id"] == 5)) == [5]  # type: ignore[arg-type]


def test_predicate_receives_decoded_images(tmp_path: Path) -> None:
    schema = Unischema(
        "s", [UnischemaField("id", "int64"), UnischemaField("image", "uint8", (4, 4), CompressedImageCodec("png"))]
    )
    rows = [{"id": n, "image": np.full((4, 4), n * 10, np.uint8)} for n in range(9)]
    petastore.write_dataset(tmp_path / "images", schema, rows, rows_per_row_group=4)
    bright = Fields({"image"}, lambda values: bool(values["image"].mean() >= 50))
    assert ids(str(tmp_path / "images"), predicate=bright) == [5, 6, 7, 8]


def test_selection_is_cached(url: str, cache: Path, reads: list[ReadUnit]) -> None:
    dataset = open_dataset(url)
    first = select_rows(dataset, filters=col("split") == "val")
    assert len(reads) == 13
    assert len(list(cache.iterdir())) == 1
    reads.clear()
    assert select_rows(open_dataset(url), filters=[("split", "=", "val")]) == first
    assert reads == []
    select_rows(dataset, filters=col("split") == "train")
    assert len(reads) == 13


RANK = """
import sys
from petastore import col, open_dataset, select_rows
dataset = open_dataset(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(select_rows(dataset, filters=col("split") == "val").fingerprint)
"""


def test_ranks_that_scan_concurrently_get_one_selection(url: str, cache: Path, reads: list[ReadUnit]) -> None:
    command = [sys.executable, "-c", RANK, url]
    ranks = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("go\n")
        rank.stdin.flush()
    fingerprints = {rank.communicate(timeout=patience(100))[0].strip() for rank in ranks}
    assert [path.suffix for path in cache.iterdir()] == [".selection"]
    late = select_rows(open_dataset(url), filters=col("split") == "val")
    assert late is not None
    assert reads == []
    alone = select_rows(open_dataset(url), filters=col("split") == "val", filter_cache=False)
    assert alone == late
    assert fingerprints == {late.fingerprint}


def test_scan_that_fails_writes_no_selection(url: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Dataset, unit: ReadUnit) -> Any:
        raise OSError("on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(Dataset, "read", fail)
        with pytest.raises(OSError, match="on purpose"):
            select_rows(open_dataset(url), filters=col("split") == "val")
    assert not cache.exists()
    assert len(ids(url, filters=col("split") == "val")) == 33


def test_cached_selection_is_not_used_after_an_append(url: str, reads: list[ReadUnit]) -> None:
    select_rows(open_dataset(url), filters=col("split") == "val")
    petastore.write_dataset(url, SCHEMA, map(frame, range(100, 140)), mode="append", rows_per_row_group=8)
    reads.clear()
    selection = select_rows(open_dataset(url), filters=col("split") == "val")
    assert selection is not None
    assert selection.counts.sum() == 46
    assert reads != []


def test_predicate_selection_is_cached_if_it_has_a_cache_key(url: str) -> None:
    unknown, known, other = (Fields({"id"}, lambda values: values["id"] > 95, key) for key in (None, "95", "96"))
    for _ in range(2):
        for predicate in (unknown, known, other):
            assert ids(url, predicate=predicate) == [96, 97, 98, 99]
    assert [len(predicate.calls) for predicate in (unknown, known, other)] == [200, 100, 100]
    assert ids(url, predicate=known, filters=col("split") == "val") == [98]
    assert ids(url, predicate=known, filters=col("split") == "train") == [96, 97, 99]


def test_filter_cache_false_stores_nothing(url: str, cache: Path, tmp_path: Path) -> None:
    assert len(ids(url, filters=col("split") == "val", filter_cache=False)) == 33
    assert not cache.exists()
    assert len(ids(url, filters=col("split") == "val", filter_cache=tmp_path / "here")) == 33
    assert len(list((tmp_path / "here").glob("*.selection"))) == 1
    assert not cache.exists()


def test_unwritable_filter_cache_is_skipped(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    assert len(ids(url, filters=col("split") == "val", filter_cache=tmp_path / "file" / "below")) == 33
    assert "cannot be written" in caplog.text


def test_filter_compares_time_zones_as_utc(tmp_path: Path) -> None:
    instants = [dt.datetime(2026, 1, 31, hour, tzinfo=dt.UTC) for hour in range(6)]
    table = pa.table({"id": range(6), "at": pa.array(instants, pa.timestamp("ms", "America/New_York"))})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    east = dt.timezone(dt.timedelta(hours=3))
    filters = col("at") >= dt.datetime(2026, 1, 31, 6, tzinfo=east)
    assert ids(str(tmp_path / "x.parquet"), filters=filters) == [3, 4, 5]


@pytest.mark.parametrize("rows_per_group", [1, 3])
def test_is_null_filters_lists_and_structs(rows_per_group: int, tmp_path: Path) -> None:
    columns = {
        "l": [[1], None, []],
        "s": [{"a": 1}, None, {"a": None}],
        "f": pa.array([[1, 2], None, [0, 3]], pa.list_(pa.int64(), 2)),
    }
    pq.write_table(pa.table({"id": [0, 1, 2], **columns}), tmp_path / "a.parquet", row_group_size=rows_per_group)
    for name in columns:
        for question, expected in [(col(name).is_null(), [1]), (col(name).is_valid(), [0, 2])]:
            with make_reader(tmp_path, filters=question, filter_cache=False, shuffle_row_groups=False) as reader:
                assert [int(row.id) for row in reader] == expected


def test_is_null_filters_fields_with_a_codec(tmp_path: Path) -> None:
    field = UnischemaField("v", "float32", (2,), NdarrayCodec(), nullable=True)
    rows = [{"id": number, "v": None if number == 1 else np.zeros(2, np.float32)} for number in range(3)]
    petastore.write_dataset(tmp_path, Unischema("s", [UnischemaField("id", "int64"), field]), rows)
    with make_reader(tmp_path, filters=col("v").is_null(), filter_cache=False) as reader:
        assert [int(row.id) for row in reader] == [1]


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        (col("none") > 1, 0),
        (col("none") != "a", 0),
        (~(col("none") == 1), 0),
        (col("none").isin([1, 2]), 0),
        (~col("none").isin([1, 2]), 0),
        (col("none").is_null(), 6),
        (col("none").is_valid(), 0),
        ((col("none") == 1) | (col("id") < 2), 2),
    ],
)
@pytest.mark.filterwarnings("ignore:none of the")
def test_comparison_of_a_column_of_type_null_selects_no_rows(filters: Any, rows: int, tmp_path: Path) -> None:
    table = pa.table({"id": range(6), "none": pa.nulls(6)})
    pq.write_table(table, tmp_path / "part.parquet", row_group_size=4)
    with make_reader(tmp_path, ["id"], filters=filters, filter_cache=False) as reader:
        assert reader.num_rows == rows


@pytest.mark.parametrize(
    "options",
    [
        {"filters": col("time") < 1},
        {"filters": [("time", "<", 1)]},
        {"predicate": in_set([1], "time")},
        {"predicate": in_lambda(["time"], bool)},
        {"schema_fields": NGram({0: ["id"]}, 1, "time")},
        {"schema_fields": NGram({0: ["id"]}, 1, "id", group_by="time")},
        {"schema_fields": NGram({0: ["id", "time"]}, 1, "id")},
        {"schema_fields": ["time"]},
    ],
    ids=["filter", "list", "set", "lambda", "timestamp", "group_by", "window", "column"],
)
def test_column_whose_types_do_not_unify_raises_its_reason(options: dict[str, Any], tmp_path: Path) -> None:
    for zone in ("Europe-Berlin", "UTC"):
        times = pa.array([1, 2, 3], pa.timestamp("us", zone.replace("-", "/")))
        pq.write_table(pa.table({"id": range(3), "time": times}), tmp_path / f"{zone}.parquet")
    with pytest.raises(SchemaError, match=r"^column 'time' must have types that unify exactly, got .* Leave it out"):
        make_reader(tmp_path, **options)
