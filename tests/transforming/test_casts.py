"""Tests that values out of range of their field's dtype raise, instead of wrapping around or becoming infinite."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import TransformError
from petastore.transforming.transform import Takes, TransformSpec

TOO_LARGE = {
    "int32 to int8": (np.array([1, 200, -200], np.int32), "int8", "200"),
    "negative int64 to int32": (np.array([1, -(2**40), 0]), "int32", "-1099511627776"),
    "uint64 to int64": (np.array([1, 2**63, 2], np.uint64), "int64", "9223372036854775808"),
    "int64 to float16": (np.array([1, 10**6, 2]), "float16", "1000000"),
    "float64 to float16": (np.array([1, 1e6, 2]), "float16", r"1000000\.0"),
    "float64 to float32": (np.array([np.inf, -1e300, np.nan]), "float32", r"-1e\+300"),
    "complex128 to complex64": (np.array([1, 1e300j, 2]), "complex64", r"1e\+300j"),
    "microseconds to nanoseconds": (np.array(["NaT", "2300", "2000"], "M8[us]"), "datetime64[ns]", "2300-01-01T.*"),
    "durations to nanoseconds": (np.array([1, 10**13, 2], "m8[s]"), "timedelta64[ns]", "10000000000000 seconds"),
}
"""Three values of which the second is out of range of a dtype, the dtype, and the value in the message."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("numbers")
    numbers = {"id": pa.array([0, 1, 2], pa.int32()), "small": pa.array([1, 2, 3], pa.int8())}
    pq.write_table(pa.table(numbers), path / "x.parquet")
    return str(path)


def returning(values: Any, takes: Takes) -> Callable[[Any], Any]:
    """Return a function of a transform that adds a column `x` with one of the values per row, by id."""
    if takes == "row":
        return lambda row: row | {"x": values[row["id"]]}
    if takes == "dataframe":
        return lambda frame: frame.assign(x=pd.Series(values)[frame["id"]].array)
    return lambda columns: columns | {"x": values[columns["id"]]}


def read(url: str, spec: TransformSpec) -> dict[str, Any]:
    with petastore.make_batch_reader(url, transform_spec=spec, shuffle_row_groups=False) as reader:
        return dict(next(reader.iter_batches(3)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("takes", ["row", "columns", "dataframe"])
@pytest.mark.parametrize("case", TOO_LARGE)
def test_transform_value_out_of_range_raises_with_field_value_and_dtype(url: str, case: str, takes: Takes) -> None:
    values, dtype, shown = TOO_LARGE[case]
    spec = TransformSpec(returning(values, takes), [("x", dtype, (), True)], takes=takes)
    name = dtype.replace("[", r"\[")
    with pytest.raises(TransformError, match=rf"must return 'x' in the range of {name}, got {shown}\. Declare .*id=1"):
        read(url, spec)


@pytest.mark.parametrize("takes", ["row", "columns"])
@pytest.mark.parametrize("shape", [(2,), (None,)])
def test_transform_array_out_of_range_raises_with_its_row(url: str, shape: tuple[int | None], takes: Takes) -> None:
    pairs = np.array([[1, 2], [3, 300], [5, 600]])
    for values in (pairs, np.ma.masked_greater(pairs, 300)):
        spec = TransformSpec(returning(values, takes), [("x", np.uint8, shape, True)], takes=takes)
        with pytest.raises(TransformError, match=r"must return 'x' as uint8 of shape"):
            read(url, spec)  # a cast from signed to unsigned integers is another kind
        spec = TransformSpec(returning(values, takes), [("x", np.int8, shape, True)], takes=takes)
        with pytest.raises(TransformError, match=r"must return 'x' in the range of int8, got 300\..*id=1"):
            read(url, spec)


@pytest.mark.parametrize("number", [200, 2**40, 2**63, 2**70, -(2**70)])
@pytest.mark.parametrize("takes", ["row", "columns"])
def test_python_int_out_of_range_of_an_inferred_field_raises(url: str, takes: Takes, number: int) -> None:
    def change(columns: Any) -> Any:
        if takes == "row":
            return columns | {"small": number if columns["id"] else 1}
        return columns | {"small": [number if row else 1 for row in columns["id"].tolist()]}

    with pytest.raises(TransformError, match=rf"must return 'small' in the range of int8, got {number}\. .*id=1"):
        read(url, TransformSpec(change, takes=takes))


def test_python_int_out_of_range_raises_in_a_column_with_missing_values(url: str) -> None:
    spec = TransformSpec(returning([None, 127, 128], "row"), [("x", np.int8, (), True)], takes="row")
    with pytest.raises(TransformError, match=r"must return 'x' in the range of int8, got 128\. .*id=2"):
        read(url, spec)
    made = read(url, TransformSpec(returning([None, 127, -128], "row"), [("x", np.int8, (), True)], takes="row"))["x"]
    assert made.dtype == np.int8
    assert made.tolist() == [None, 127, -128]


def test_edit_fields_without_a_function_raise_for_values_out_of_range(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2**31]}), tmp_path / "x.parquet")
    spec = TransformSpec(edit_fields=[("n", np.int32, (), False)])
    with pytest.raises(TransformError, match=r"must return 'n' in the range of int32, got 2147483648\."):
        read(str(tmp_path), spec)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("takes", ["row", "columns", "dataframe"])
@pytest.mark.parametrize(
    ("values", "dtype", "cast"),
    [
        (np.array([0.1, np.inf, -np.inf]), "float32", [np.float32(0.1), np.inf, -np.inf]),
        (np.array([2**53 + 1, 2**60 + 1, 0]), "float32", [2.0**53, 2.0**60, 0.0]),
        (np.array([-128, 127, 0]), "int8", [-128, 127, 0]),
        (np.array(["2000-01-01T01:02:03", "NaT", "2300-01-01"], "M8[us]"), "datetime64[s]", None),
    ],
)
def test_transform_values_in_range_are_cast_and_rounded(
    url: str, values: Any, dtype: str, cast: list[float] | None, takes: Takes
) -> None:
    made = read(url, TransformSpec(returning(values, takes), [("x", dtype, (), True)], takes=takes))["x"]
    times = [dt.datetime.fromisoformat("2000-01-01T01:02:03"), None, dt.datetime.fromisoformat("2300-01-01")]
    assert made.dtype == np.dtype(dtype)
    assert made.tolist() == (times if cast is None else cast)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("takes", ["columns", "dataframe"])
def test_missing_values_of_a_transform_may_have_data_out_of_range(url: str, takes: Takes) -> None:
    values: Any = np.ma.masked_greater(np.array([1, 1e300, 2]), 1e6)
    if takes == "dataframe":
        values = pd.array([1, None, 2], "Int64")
    made = read(url, TransformSpec(returning(values, takes), [("x", np.float32, (), True)], takes=takes))["x"]
    assert made.tolist() == [1.0, None, 2.0]


@pytest.mark.parametrize("takes", ["row", "columns"])
def test_missing_items_of_arrays_of_a_transform_may_have_data_out_of_range(url: str, takes: Takes) -> None:
    pairs = np.ma.masked_greater(np.array([[1, 2], [3, 300], [5, 600]]), 299)
    made = read(url, TransformSpec(returning(pairs, takes), [("x", np.int8, (2,), True)], takes=takes))["x"]
    assert made.tolist() == [[1, 2], [3, None], [5, None]]
