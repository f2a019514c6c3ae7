"""Tests of writing columns of Python, NumPy and pandas values: masks, NaN, times, decimals, and errors."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.codecs import ArrowCodec, NdarrayCodec
from petastore.errors import EncodeError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.writers.input_columns import infer_schema

MASKED = np.ma.MaskedArray(np.array([7, 0], np.int32), [False, True])
FINE = pd.Timestamp("2020-01-01T00:00:00.000000007")
FINE_NUMPY = np.datetime64("2020-01-01T00:00:00.000000007")
MORNING = dt.datetime(2020, 1, 1, 5, tzinfo=dt.UTC)


def written(url: Path, data: Any, schema: Unischema | None = None) -> list[Any]:
    """Return the values of the column `x` after it was written and read."""
    if schema is None:
        petastore.write_dataset(url, data)
    else:
        petastore.write_dataset(url, schema, data)
    with petastore.make_reader(str(url), shuffle_row_groups=False) as reader:
        return [row.x for row in reader]


def one_field(dtype: Any, codec: Any = None, shape: tuple[int | None, ...] = ()) -> Unischema:
    return Unischema("one", [UnischemaField("x", dtype, shape, codec, nullable=True)])


def test_nulls_inside_lists_survive_a_round_trip(tmp_path: Path) -> None:
    table = pa.table({"x": [[7, None], [8, 9]], "s": [{"a": [1.5, None]}, None]})
    pq.write_table(table, tmp_path / "plain.parquet")
    petastore.write_dataset(tmp_path / "frame", petastore.open_dataset(tmp_path / "plain.parquet").to_pandas())
    with petastore.make_batch_reader(str(tmp_path / "plain.parquet")) as reader:
        (batch,) = reader.iter_batches(2)
        petastore.write_dataset(tmp_path / "batch", dict(batch))
    for name in ("frame", "batch"):
        assert petastore.open_dataset(tmp_path / name).to_arrow().to_pydict() == table.to_pydict()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([MASKED], [[7, None]], id="list"),
        pytest.param([{"a": MASKED}, None], [{"a": [7, None]}, None], id="struct"),
        pytest.param([[MASKED], [np.array([1], np.int32)]], [[[7, None]], [[1]]], id="list of lists"),
        pytest.param([[("k", MASKED)]], [[("k", [7, None])]], id="map"),
        pytest.param(
            [np.ma.MaskedArray(np.array([5, 6], "datetime64[ns]"), [True, False])],
            [[None, np.datetime64(6, "ns")]],
            id="times",
        ),
        pytest.param(
            np.ma.MaskedArray([[1, 2], [3, 4]], [[True, False], [False, False]]),
            [[None, 2], [3, 4]],
            id="two dimensions",
        ),
    ],
)
def test_masked_items_of_nested_arrays_become_null(tmp_path: Path, values: Any, expected: list[Any]) -> None:
    assert written(tmp_path / "x", {"x": values}) == expected


def test_masked_items_become_null_with_an_explicit_arrow_codec(tmp_path: Path) -> None:
    schema = one_field(object, ArrowCodec(pa.list_(pa.int32())))
    assert written(tmp_path / "x", {"x": [MASKED]}, schema) == [[7, None]]


def test_masked_lists_keep_their_item_type() -> None:
    assert infer_schema({"x": [MASKED]})["x"].codec == ArrowCodec(pa.list_(pa.int32()))


def test_masked_array_of_big_endian_numbers_is_written(tmp_path: Path) -> None:
    values = np.ma.MaskedArray([1, 2], [True, False], dtype=">i4")
    assert written(tmp_path / "inferred", {"x": values}) == [None, 2]
    assert written(tmp_path / "explicit", {"x": values}, one_field("int32")) == [None, 2]


def test_nan_inside_arrays_of_a_pandas_column_stays_nan(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [np.array([1, np.nan]), np.array([2.0, 3.0])]})
    assert infer_schema(frame)["x"] == UnischemaField("x", np.float64, (None,))
    explicit = one_field("float64", NdarrayCodec(), (2,))
    for name, schema in (("inferred", None), ("explicit", explicit)):
        found = written(tmp_path / name, frame, schema)
        assert np.array_equal(found, frame["x"].tolist(), equal_nan=True)


def test_nan_inside_objects_of_a_pandas_column_stays_nan(tmp_path: Path) -> None:
    lists = written(tmp_path / "lists", pd.DataFrame({"x": [[1.0, np.nan], np.nan, None, [1, np.nan]]}))
    assert [None if value is None else value.tolist() for value in lists][1:3] == [None, None]
    assert np.array_equal([lists[0], lists[3]], [[1.0, np.nan]] * 2, equal_nan=True)
    first, second = written(tmp_path / "dicts", pd.DataFrame({"x": [{"a": np.nan}, {"a": 1.0}]}))
    assert np.isnan(first["a"])
    assert second == {"a": 1.0}


def test_missing_values_of_pandas_inside_lists_become_null(tmp_path: Path) -> None:
    assert written(tmp_path / "times", pd.DataFrame({"x": [[pd.NaT, FINE], None]})) == [[None, FINE_NUMPY], None]
    assert written(tmp_path / "numbers", pd.DataFrame({"x": [[pd.NA, 1]]})) == [[None, 1]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(FINE, FINE_NUMPY, id="timestamp"),
        pytest.param(FINE.tz_localize("UTC"), FINE_NUMPY, id="timestamp with a time zone"),
        pytest.param(pd.Timedelta(5, "ns"), np.timedelta64(5, "ns"), id="timedelta"),
        pytest.param({"a": FINE}, {"a": FINE_NUMPY}, id="struct"),
        pytest.param([{"a": pd.Timedelta(5, "ns")}], [{"a": np.timedelta64(5, "ns")}], id="list of structs"),
        pytest.param([("k", FINE)], [("k", FINE_NUMPY)], id="map"),
    ],
)
def test_nanoseconds_of_pandas_times_are_kept(tmp_path: Path, value: Any, expected: Any) -> None:
    assert written(tmp_path / "dict", {"x": [value, None]}) == [expected, None]
    assert written(tmp_path / "frame", pd.DataFrame({"x": pd.Series([value, None], dtype=object)})) == [expected, None]


def test_nanoseconds_of_pandas_times_in_lists_are_kept(tmp_path: Path) -> None:
    (found,) = written(tmp_path / "x", {"x": [[FINE]]})
    assert found.tolist() == np.array([FINE_NUMPY]).tolist()


def test_nanoseconds_are_kept_or_rejected_by_an_explicit_schema(tmp_path: Path) -> None:
    assert written(tmp_path / "x", {"x": [FINE, None]}, one_field("datetime64[ns]")) == [FINE_NUMPY, None]
    for unit in ("us", "D"):
        with pytest.raises(EncodeError, match=r"column 'x', row 1: "):
            written(tmp_path / unit, {"x": [pd.Timestamp("2020"), FINE]}, one_field(f"datetime64[{unit}]"))


def test_column_of_dates_and_times_needs_an_exact_field(tmp_path: Path) -> None:
    values = [dt.date(2020, 1, 1), MORNING, None]
    nested = [{"a": value} for value in values]
    for data in ({"x": values}, {"x": nested}, pd.DataFrame({"x": pd.Series(values, dtype=object)})):
        with pytest.raises(
            SchemaError, match=r"column 'x' must have values of one type .* \(dates and times are mixed"
        ):
            infer_schema(data)
    expected = [np.datetime64("2020-01-01"), np.datetime64("2020-01-01T05"), None]
    assert written(tmp_path / "us", {"x": values}, one_field("datetime64[us]")) == expected
    with pytest.raises(EncodeError, match=r"column 'x', row 1: .*cannot hold this time exactly"):
        written(tmp_path / "D", {"x": values}, one_field("datetime64[D]"))


def test_times_with_and_without_a_time_zone_are_rejected() -> None:
    naive = MORNING.replace(tzinfo=None)
    for values in ([naive, MORNING], [MORNING, None, naive], [[naive], [MORNING]], [pd.Timestamp(naive), MORNING]):
        with pytest.raises(SchemaError, match=r"times with and without a time zone are mixed|cannot compare|tz"):
            infer_schema({"x": values})


def test_masked_values_of_a_list_become_null(tmp_path: Path) -> None:
    for number, present in enumerate((1, 1.5, "a")):
        for values, expected in (
            ([present, np.ma.masked], [present, None]),
            ([np.ma.masked, present], [None, present]),
        ):
            assert written(tmp_path / f"{number} {expected}", {"x": values}) == expected


def test_masked_value_after_an_array_of_times_becomes_null(tmp_path: Path) -> None:
    times = np.array([5, 6], "M8[us]")
    for name, values in (("first", [times, np.ma.masked]), ("second", [None, times, np.ma.masked])):
        found = written(tmp_path / name, {"x": values})
        assert [None if value is None else value.tolist() for value in found] == [
            times.tolist() if value is times else None for value in values
        ]


def test_nan_in_a_pandas_column_of_arrays_of_times_becomes_null(tmp_path: Path) -> None:
    times = np.array([5, 6], "M8[us]")
    columns: list[list[Any]] = [[times, np.float64("nan")], [float("nan"), np.float64("nan"), times]]
    for number, values in enumerate(columns):
        found = written(tmp_path / str(number), {"x": pd.Series(values, dtype=object)})
        assert [None if value is None else value.tolist() for value in found] == [
            times.tolist() if value is times else None for value in values
        ]


def test_time_of_day_with_a_time_zone_is_rejected(tmp_path: Path) -> None:
    values = [dt.time(1, tzinfo=dt.timezone(dt.timedelta(hours=5)))]
    with pytest.raises(SchemaError, match="Arrow has no type for times of day with a time zone"):
        infer_schema({"x": values})
    with pytest.raises(EncodeError, match="the value must be a duration or time of day"):
        written(tmp_path / "x", {"x": values}, one_field("timedelta64[us]"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(np.array(["2020-01", "NaT"], "M8[M]"), [np.datetime64("2020-01-01"), None], id="months"),
        pytest.param(np.array(["2020-01-01T05"], "M8[h]"), [np.datetime64("2020-01-01T05:00:00")], id="hours"),
        pytest.param(np.array([5], "m8[D]"), [np.timedelta64(5, "D")], id="durations in days"),
        pytest.param(np.array([5], "M8[25s]"), [np.datetime64(125, "s")], id="multiples of seconds"),
        pytest.param([np.timedelta64(5, "D"), None], [np.timedelta64(5, "D"), None], id="list of days"),
        pytest.param(
            [np.datetime64(5, "s"), np.datetime64(5, "ns")], [np.datetime64(5, "s"), np.datetime64(5, "ns")], id="units"
        ),
        pytest.param(
            np.ma.MaskedArray(np.array(["2020-01", "2020-02"], "M8[M]"), [False, True]),
            [np.datetime64("2020-01-01"), None],
            id="masked months",
        ),
    ],
)
def test_times_in_units_that_arrow_lacks_are_converted(tmp_path: Path, values: Any, expected: list[Any]) -> None:
    assert written(tmp_path / "x", {"x": values}) == expected


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        pytest.param(np.array([1j]), "complex128", id="complex"),
        pytest.param(["a", "\ud800"], "surrogates not allowed", id="lone surrogate"),
        pytest.param([2**64], "too large", id="integer"),
        pytest.param([{"a": np.arange(2)}, {"a": np.ones((2, 2))}], "1-dimensional", id="arrays in structs"),
        pytest.param(np.array([2**40], "M8[D]"), "too large", id="day"),
        pytest.param([np.datetime64("300000-01-01", "s"), np.datetime64(5, "ns")], "units s and ns", id="units"),
        pytest.param([np.array(None, object)], "Only 1D arrays accepted", id="0-dimensional"),
        pytest.param([np.datetime64(5, "ns"), np.int16(3)], r"datetime64\[ns\] and int16 are mixed", id="mixed"),
        pytest.param(
            [None, [[np.array([5], "M8[us]")], [np.ones(1)]]],
            r"datetime64\[us\] and float64 are mixed",
            id="mixed arrays",
        ),
    ],
)
def test_error_for_an_unsupported_column_names_the_cause(values: Any, cause: str) -> None:
    with pytest.raises(
        SchemaError, match=rf"column 'x' must have values of one type that Arrow supports, got .*{cause}"
    ):
        infer_schema({"x": values})
