"""Tests of partition keys that files also store: the stored values are read, and contradictions raise errors."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import petastore
from petastore import Unischema, UnischemaField, col, make_batch_reader, make_reader, open_dataset
from petastore.adapters.torch import DataLoader
from petastore.dataset.stored_cells import StoredKey
from petastore.errors import DecodeError, SchemaError
from petastore.predicates import in_lambda, in_set
from petastore.schema.arrow import field_from_arrow
from petastore.writers.generate import generate_metadata

NULL = "__HIVE_DEFAULT_PARTITION__"


def write(folder: Path, files: dict[str, list[Any]], stored: Any = None, **options: Any) -> str:
    """Write a file into each directory `day=…`, with a column `day` and row groups of two rows; return the URL."""
    for text, values in files.items():
        (folder / f"day={text}").mkdir(parents=True)
        table = pa.table({"id": np.arange(len(values)), "day": pa.array(values, stored)})
        pq.write_table(table, folder / f"day={text}" / "x.parquet", row_group_size=2, **options)
    return str(folder)


def days(url: str, **asked: Any) -> list[Any]:
    with make_batch_reader(url, shuffle_row_groups=False, filter_cache=False, **asked) as reader:
        return [day for batch in reader for day in batch.day.tolist()]


AGREEING: dict[str, tuple[Any, dict[str, list[Any]]]] = {
    "integers": (pa.int32(), {"01": [1, 1, 1], "-2": [-2]}),
    "unsigned": (pa.uint64(), {str(2**64 - 1): [2**64 - 1]}),
    "text": (pa.string(), {"mon": ["mon", "mon"], quote("a/b c", safe=""): ["a/b c"]}),
    "large text": (pa.large_string(), {"mon": ["mon"]}),
    "words of few kinds": (pa.dictionary(pa.int8(), pa.string()), {"mon": ["mon", "mon"], "tue": ["tue"]}),
    "text like numbers": (pa.string(), {"01": ["01", "01"]}),
    "bytes": (pa.binary(), {"mon": [b"mon"]}),
    "dates": (pa.date32(), {"2026-01-31": [dt.date(2026, 1, 31)]}),
    "instants": (pa.timestamp("us"), {quote("2026-01-31 12:00:00"): [dt.datetime(2026, 1, 31, 12)]}),  # noqa: DTZ001
    "decimals": (pa.decimal128(5, 2), {"1.5": [Decimal("1.50")]}),
    "floats": (pa.float32(), {"0.1": [0.1, 0.1], "nan": [float("nan")]}),
    "flags": (pa.bool_(), {"true": [True], "false": [False]}),
    "missing": (pa.int64(), {NULL: [None, None, None], "7": [7]}),
}


@pytest.mark.parametrize("name", AGREEING)
def test_stored_partition_key_has_the_type_of_the_files(tmp_path: Path, name: str) -> None:
    stored, files = AGREEING[name]
    url = write(tmp_path, files, stored)
    dataset = open_dataset(url)
    assert (dataset.stored_keys, dataset.partition_names) == (("day",), ())
    field = dataset.schema["day"]
    assert field == UnischemaField("day", field_from_arrow(pa.field("day", stored)).numpy_dtype, nullable=True)
    expected = [value for text in sorted(files) for value in pa.array(files[text], stored).to_pylist()]
    found = days(url)
    assert len(found) == len(expected)
    assert all(one == wanted or one != one for one, wanted in zip(found, expected, strict=True))


CONTRADICTING: dict[str, tuple[Any, dict[str, list[Any]], str, int, str]] = {
    "integers": (
        pa.int32(),
        {"1": [1, 1, 1], "2": [2, 2, 2, 3]},
        "day=2/x.parquet",
        3,
        "the cell must equal '2', .* day='2', got 3",
    ),
    "text": (
        pa.string(),
        {"mon": ["mon", "Mon"]},
        "day=mon/x.parquet",
        1,
        "the cell must equal 'mon', .* day='mon', got 'Mon'",
    ),
    "no number": (pa.int64(), {"mon": [1]}, "day=mon/x.parquet", 0, "the cell must equal 'mon', .* day='mon', got 1"),
    "a null": (pa.int64(), {"1": [1, 1, None]}, "day=1/x.parquet", 2, "the cell must equal '1', .* day='1', got null"),
    "no null": (
        pa.int64(),
        {NULL: [None, 5]},
        f"day={NULL}/x.parquet",
        1,
        "the cell must equal null, .* day=null, got 5",
    ),
    "dates": (pa.date32(), {"2026-01-31": [dt.date(2026, 1, 30)]}, "day=2026-01-31/x.parquet", 0, "2026-01-30"),
    "lists": (pa.list_(pa.int8()), {"1": [[1]]}, "day=1/x.parquet", 0, r"the cell must equal .*, got \[1\]"),
}


@pytest.mark.parametrize("shuffle_rows", [False, True])
@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
@pytest.mark.parametrize("name", CONTRADICTING)
def test_stored_partition_key_that_contradicts_its_directory_raises(
    tmp_path: Path, name: str, make: Any, shuffle_rows: bool
) -> None:
    stored, files, path, row, words = CONTRADICTING[name]
    url = write(tmp_path, files, stored)
    with make(url, shuffle_rows=shuffle_rows, seed=1) as reader, pytest.raises(DecodeError, match=words) as caught:
        list(reader)
    place = caught.value.column, caught.value.file, caught.value.row_group, caught.value.row
    assert place == ("day", path, row // 2, row % 2)
    assert "schema_fields" in str(caught.value)


def test_contradicting_partition_key_is_ignored_unless_read(tmp_path: Path) -> None:
    url = write(tmp_path, CONTRADICTING["integers"][1])
    with make_batch_reader(url, ["id"], shuffle_row_groups=False) as reader:
        assert [number for batch in reader for number in batch.id.tolist()] == [0, 1, 2, 0, 1, 2, 3]


def test_loader_raises_for_a_contradicting_partition_key(tmp_path: Path) -> None:
    url = write(tmp_path, CONTRADICTING["integers"][1])
    with make_batch_reader(url) as reader, pytest.raises(DecodeError, match="the value in the directory name day='2'"):
        list(DataLoader(reader, batch_size=100, nulls={"day": 0, "id": 0}))


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("value", [1, 2, 3, 9])
def test_filter_on_a_contradicting_partition_key_raises(tmp_path: Path, value: int, statistics: bool) -> None:
    url = write(tmp_path, CONTRADICTING["integers"][1], write_statistics=statistics)
    for asked in (
        {"filters": col("day") == value},
        {"filters": [("day", "!=", value)]},
        {"predicate": in_set({value}, "day")},
        {"predicate": in_lambda(["day"], lambda day: day == value)},
    ):
        with pytest.raises(DecodeError, match="the value in the directory name day='2'"):
            make_reader(url, ["id"], filter_cache=False, **asked)


@pytest.mark.parametrize("statistics", [False, True])
def test_filter_on_a_stored_partition_key_is_exact(tmp_path: Path, statistics: bool) -> None:
    url = write(tmp_path, {"1": [1, 1, 1], "2": [2, 2], NULL: [None]}, pa.int8(), write_statistics=statistics)
    assert days(url, filters=col("day") == 1) == [1, 1, 1]
    assert days(url, filters=col("day") >= 2) == [2, 2]
    assert days(url, filters=col("day").is_null()) == [None]
    assert days(url, predicate=in_lambda(["day"], lambda day: day == 2)) == [2, 2]


def test_stored_partition_key_is_verified_by_statistics(tmp_path: Path) -> None:
    url = write(tmp_path, {"1": [1, 1, 1], "2": [2, 2]})
    for file in tmp_path.rglob("*.parquet"):  # overwrite all pages, so that reading one would fail
        data = file.read_bytes()
        file.write_bytes(data[:4] + bytes(len(data) - 4 - _footer_bytes(data)) + data[-_footer_bytes(data) :])
    selection = petastore.select_rows(open_dataset(url), filters=col("day") == 1, filter_cache=False)
    assert selection is not None
    assert selection.counts.sum() == 3


def _footer_bytes(data: bytes) -> int:
    return int.from_bytes(data[-8:-4], "little") + 8


def test_partition_keys_not_stored_come_from_directories(tmp_path: Path) -> None:
    (tmp_path / "day=01").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "day=01" / "x.parquet")
    dataset = open_dataset(tmp_path)
    assert (dataset.stored_keys, dataset.partition_names) == ((), ("day",))
    assert days(str(tmp_path)) == ["01", "01"]


def test_one_of_two_partition_keys_can_be_stored(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "year=2026" / "day=1"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"day": pa.array([1, 1], pa.int8()), "id": [5, 6]}), folder / "x.parquet")
    dataset = open_dataset(tmp_path / "data")
    assert (dataset.partition_names, dataset.stored_keys) == (("year",), ("day",))
    with make_reader(str(tmp_path / "data")) as reader:
        assert sorted((row.id, row.year, row.day) for row in reader) == [(5, 2026, 1), (6, 2026, 1)]


def partly_stored(folder: Path, path: str, values: list[Any]) -> Path:
    """Write a file without the partition key into `day=mon/`, and one that stores `values` of the key to `path`."""
    for name, table in [("day=mon/x.parquet", {"id": [0]}), (path, {"id": np.arange(len(values)), "day": values})]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), folder / name, row_group_size=2)
    return folder


def test_partition_key_stored_outside_of_its_directories_raises(tmp_path: Path) -> None:
    url = partly_stored(tmp_path, "x.parquet", ["tue"])
    message = (
        r"^x\.parquet must be in a directory day=VALUE, .* stores 'day' outside of such a directory\. Move the file"
    )
    with pytest.raises(SchemaError, match=message):
        open_dataset(url)
    (problem,) = petastore.verify(url).problems
    assert (problem.kind, problem.message.partition(" ")[0]) == ("schema", "x.parquet")
    schema = Unischema("s", [UnischemaField("id", "int64", nullable=True), UnischemaField("day", "str", nullable=True)])
    with pytest.raises(SchemaError, match=message):
        generate_metadata(url, schema)


@pytest.mark.parametrize("has_manifest", [False, True])
def test_partition_key_stored_in_some_files_must_equal_its_directory(tmp_path: Path, has_manifest: bool) -> None:
    agreeing = partly_stored(tmp_path / "agreeing", "day=tue/x.parquet", ["tue", "tue", "tue"])
    contradicting = partly_stored(tmp_path / "contradicting", "day=tue/x.parquet", ["tue", "tue", "wed"])
    if has_manifest:
        generate_metadata(agreeing)
        generate_metadata(contradicting)
    assert days(str(agreeing)) == ["mon", "tue", "tue", "tue"]
    assert days(str(agreeing), filters=col("day") == "mon") == ["mon"]
    assert petastore.verify(agreeing).is_clean
    dataset = open_dataset(contradicting)
    assert dataset.to_arrow(columns=["id"])["id"].to_pylist() == [0, 0, 1, 2]
    message = "the cell must equal 'tue', the value in the directory name day='tue', got 'wed'"
    for read in (
        dataset.head,
        lambda: days(str(contradicting)),
        lambda: days(str(contradicting), filters=col("day") == "mon"),
        lambda: days(str(contradicting), predicate=in_lambda(["day"], lambda day: day == "mon")),
    ):
        with pytest.raises(DecodeError, match=message) as caught:
            read()
        place = caught.value.column, caught.value.file, caught.value.row_group, caught.value.row
        assert place == ("day", "day=tue/x.parquet", 1, 0)
    (problem,) = petastore.verify(contradicting).problems
    assert (problem.file, problem.row_group, problem.column, problem.row) == ("day=tue/x.parquet", 1, "day", 0)


TYPES: list[tuple[Any, Any]] = [
    (pa.int16(), st.integers(-3, 3)),
    (pa.string(), st.text("ab=/%", max_size=3).filter(bool)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates(dt.date(2000, 1, 1), dt.date(2000, 1, 4))),
]


@given(st.data())
def test_first_contradicting_partition_cell_is_found(data: st.DataObject) -> None:
    stored, values = data.draw(st.sampled_from(TYPES))
    said = data.draw(st.none() | values)
    rows = data.draw(st.lists(st.none() | values | st.just(said), max_size=6))
    text = None if said is None else str(said).lower() if isinstance(said, bool) else str(said)
    key = StoredKey(field_from_arrow(pa.field("day", stored)))
    expected = next((row for row, value in enumerate(rows) if value != said or type(value) is not type(said)), None)
    for kind in (stored, pa.dictionary(pa.int8(), stored)) if stored == pa.string() else (stored,):
        assert key.first_contradiction(pa.array(rows, kind), text) == expected
