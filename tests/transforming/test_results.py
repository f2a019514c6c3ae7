"""Tests of transform results: rows, arrays and DataFrames give the same columns; wrong results raise."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.decoding.decode import Decoded
from petastore.errors import TransformError
from petastore.schema import Unischema, UnischemaField
from petastore.transforming.results import FunctionCall, columns_of_arrays, columns_of_frame, columns_of_rows

SCHEMA = Unischema(
    "s",
    [
        UnischemaField("n", "int32", nullable=True),
        UnischemaField("flag", "bool"),
        UnischemaField("at", "datetime64[us]", nullable=True),
        UnischemaField("text", str, nullable=True),
        UnischemaField("pair", "float32", (2,)),
    ],
)
INSTANTS = st.datetimes(dt.datetime.fromisoformat("1800-01-01"), dt.datetime.fromisoformat("2200-01-01"))
ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**31), 2**31 - 1).map(np.int32),
        "flag": st.booleans(),
        "at": st.none() | INSTANTS,
        "text": st.none() | st.text(max_size=3),
        "pair": st.lists(st.integers(0, 9), min_size=2, max_size=2).map(lambda pair: np.array(pair, np.float32)),
    }
)


def call_of(rows: int, func: Callable[[Any], Any] | None = None) -> FunctionCall:
    return FunctionCall(func, {"id": Decoded(np.arange(rows), None)}, 0, rows, SCHEMA)


def same(one: Mapping[str, Decoded], other: Mapping[str, Decoded]) -> None:
    assert list(one) == list(other) == list(SCHEMA.fields)
    for name, column in one.items():
        np.testing.assert_array_equal(column.values, other[name].values, strict=True)
        assert (column.missing is None) == (other[name].missing is None)
        if column.missing is not None:
            np.testing.assert_array_equal(column.missing, other[name].missing)


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_row_dict_and_dataframe_transform_results_give_the_same_columns(rows: list[dict[str, Any]]) -> None:
    question = call_of(len(rows))
    of_rows = columns_of_rows(question, rows)
    lists = {name: [row[name] for row in rows] for name in SCHEMA.fields}
    same(of_rows, columns_of_arrays(question, lists))
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in lists.items()})
    frame["n"] = frame["n"].astype("Int32")
    frame["flag"] = frame["flag"].astype(bool)
    same(of_rows, columns_of_frame(question, frame))


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_masked_arrays_from_a_transform_equal_rows_with_none(rows: list[dict[str, Any]]) -> None:
    question = call_of(len(rows))
    of_rows = columns_of_rows(question, rows)
    arrays = {name: column.rows(0, len(rows)) for name, column in of_rows.items()}
    same(of_rows, columns_of_arrays(question, arrays))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flag": [None]}, r"the transform builtins\.sorted must not return None or nothing for 'flag', which is not"),
        (
            {"pair": [np.zeros(3, np.float32)]},
            r"must return 'pair' as float32 of shape \(2,\), got float32 of shape \(3,\)",
        ),
        ({"n": [2.5]}, r"must return 'n' as int32 .*, got float64"),
        ({"text": [3]}, r"the transform builtins\.sorted must return 'text' as str, got int\. Declare the change in"),
        ({"n": [1, 2]}, r"the transform builtins\.sorted must return 1 rows, as many as it received, got 2 of 'n':"),
        ({"n": 3}, r"the transform builtins\.sorted must return 'n' as an array with one entry per row, or a list,"),
    ],
)
def test_transform_result_that_contradicts_the_schema_raises(change: dict[str, Any], message: str) -> None:
    right = {"n": [1], "flag": [True], "at": [None], "text": ["a"], "pair": [np.zeros(2, np.float32)]}
    with pytest.raises(TransformError, match=message) as refused:
        columns_of_arrays(call_of(1, sorted), right | change)
    assert str(refused.value).startswith("the transform builtins.sorted ")


def test_transform_result_without_a_declared_column_raises_with_its_name() -> None:
    with pytest.raises(
        TransformError, match=r"must return \['flag', 'at', 'text', 'pair'\], which the schema .* has, got \['n'\]"
    ):
        columns_of_arrays(call_of(1), {"n": [1]})
    with pytest.raises(TransformError, match="must return a dict of columns, got list"):
        columns_of_arrays(call_of(1), [1])
    with pytest.raises(TransformError, match="must return a DataFrame, got dict"):
        columns_of_frame(call_of(1), {"n": [1]})
