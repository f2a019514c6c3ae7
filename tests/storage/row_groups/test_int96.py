"""Tests of INT96 timestamps: years 1 to 9999 are read, and nanoseconds raise instead of being truncated."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import col, make_batch_reader, make_reader, open_dataset
from petastore.adapters.torch import MapDataset
from petastore.errors import DecodeError
from petastore.storage.files.location import Location
from tests.storage.conftest import Put

US = pa.timestamp("us")
FIRST, LAST, USUAL = map(dt.datetime.fromisoformat, ("0001-01-01", "9999-12-31T23:59:59.999999", "2026-01-02"))
TIMES = [LAST, None, FIRST, USUAL]


def written(put: Put, columns: dict[str, Any], *, files: int = 1, **options: Any) -> None:
    for number in range(files):
        put(f"{number:03}.parquet", pa.table(columns), use_deprecated_int96_timestamps=True, **options)


@pytest.mark.parametrize("files", [1, 70])
def test_int96_timestamps_of_the_years_1_to_9999_are_read(location: Location, put: Put, files: int) -> None:
    written(put, {"id": [0, 1, 2, 3], "t": pa.array(TIMES, US)}, files=files)
    assert open_dataset(location.url).schema["t"].dtype == np.dtype("datetime64[us]")
    with make_reader(location.url, shuffle_row_groups=False) as reader:
        times = [None if row.t is None else row.t.item() for row in reader]
    assert times == TIMES * files
    with make_reader(location.url, filters=col("t") > np.datetime64("9000-01-01"), filter_cache=False) as reader:
        assert [row.id for row in reader] == [0] * files


def test_int96_timestamps_of_a_large_streamed_file_are_read(location: Location, put: Put) -> None:
    written(put, {"t": pa.array([LAST] * 70_000, US), "u": pa.array(range(70_000))}, row_group_size=30_000)
    with make_batch_reader(location.url, schema_fields=["t"]) as reader:
        assert {str(time) for batch in reader.iter_batches(1000) for time in batch["t"]} == {
            "9999-12-31T23:59:59.999999"
        }


def test_int96_timestamps_inside_lists_and_structs_keep_years_1_to_9999(location: Location, put: Put) -> None:
    lists = pa.array([[LAST, FIRST], [USUAL, USUAL]], pa.list_(US))
    structs = pa.array([{"at": {"from": LAST}}, {"at": None}], pa.struct({"at": pa.struct({"from": US})}))
    written(put, {"list": lists, "struct": structs})
    with make_reader(location.url, shuffle_row_groups=False) as reader:
        rows = list(reader)
    assert [row.list.tolist() for row in rows] == [[LAST, FIRST], [USUAL, USUAL]]
    assert [row.struct["at"] for row in rows] == [{"from": np.datetime64(LAST)}, None]


def test_int96_timestamps_by_random_access_keep_years_1_to_9999(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([FIRST, LAST], US)})
    pq.write_table(table, tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    assert [time.item() for time in MapDataset(str(tmp_path)).rows.take([1, 0])["t"]] == [LAST, FIRST]


@pytest.mark.parametrize("files", [1, 70])
def test_int96_timestamps_with_nanoseconds_raise(location: Location, put: Put, files: int) -> None:
    nanoseconds = pa.array([0, None, 1_767_312_000_000_000_001], pa.timestamp("ns"))
    written(put, {"id": [1, 2, 3], "t": nanoseconds, "l": pa.array([[0], None, [1]], pa.list_(pa.timestamp("ns")))})
    for name in ("t", "l"):
        message = f"column '{name}', row group 0 in 000.parquet: INT96 timestamps must be whole microseconds"
        with make_reader(location.url, schema_fields=[name]) as reader, pytest.raises(DecodeError, match=message):
            list(reader)
    with make_reader(location.url, schema_fields=["id"]) as reader:
        assert sorted(row.id for row in reader) == [1, 2, 3]


@given(st.lists(st.one_of(st.none(), st.datetimes()), min_size=1))
def test_int96_timestamps_equal_the_microseconds_written(
    tmp_path_factory: Any, times: list[dt.datetime | None]
) -> None:
    folder = tmp_path_factory.mktemp("int96")
    table = pa.table({"t": pa.array(times, US)})
    pq.write_table(table, folder / "0.parquet", use_deprecated_int96_timestamps=True)
    with make_reader(str(folder), shuffle_row_groups=False) as reader:
        assert [None if row.t is None else row.t.item() for row in reader] == times
