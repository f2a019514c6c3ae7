"""What a function returned is the same columns whether it came as rows, as arrays or as a DataFrame."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.decoding.decoded import Decoded
from petastore.errors import TransformError
from petastore.schema import Unischema, UnischemaField
from petastore.transforming.results import Asked, columns_of_arrays, columns_of_frame, columns_of_rows

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


def asked(rows: int, func: Callable[[Any], Any] | None = None) -> Asked:
    return Asked(func, {"id": Decoded(np.arange(rows), None)}, 0, rows, SCHEMA, {})


def same(one: Mapping[str, Decoded], other: Mapping[str, Decoded]) -> None:
    assert list(one) == list(other) == list(SCHEMA.fields)
    for name, column in one.items():
        np.testing.assert_array_equal(column.values, other[name].values, strict=True)
        assert (column.missing is None) == (other[name].missing is None)
        if column.missing is not None:
            np.testing.assert_array_equal(column.missing, other[name].missing)


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_rows_lists_and_frames_give_the_same_columns(rows: list[dict[str, Any]]) -> None:
    question = asked(len(rows))
    of_rows = columns_of_rows(question, rows)
    lists = {name: [row[name] for row in rows] for name in SCHEMA.fields}
    same(of_rows, columns_of_arrays(question, lists))
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in lists.items()})
    frame["n"] = frame["n"].astype("Int32")
    frame["flag"] = frame["flag"].astype(bool)
    same(of_rows, columns_of_frame(question, frame))


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_masked_arrays_give_what_rows_with_none_give(rows: list[dict[str, Any]]) -> None:
    question = asked(len(rows))
    of_rows = columns_of_rows(question, rows)
    arrays = {name: column.rows(0, len(rows)) for name, column in of_rows.items()}
    same(of_rows, columns_of_arrays(question, arrays))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flag": [None]}, "gave None or nothing for 'flag'"),
        ({"pair": [np.zeros(3, np.float32)]}, "gave 'pair' as float32"),
        ({"n": [2.5]}, "gave 'n' as float64"),
        ({"text": [3]}, "gave 'text' as int"),
        ({"n": [1, 2]}, "was given 1 rows and returned 2 of 'n'"),
        ({"n": 3}, "gave 'n' as int; a column is an array"),
    ],
)
def test_what_the_schema_does_not_promise_is_refused_with_the_function_and_the_row(
    change: dict[str, Any], message: str
) -> None:
    right = {"n": [1], "flag": [True], "at": [None], "text": ["a"], "pair": [np.zeros(2, np.float32)]}
    with pytest.raises(TransformError, match=message) as refused:
        columns_of_arrays(asked(1, sorted), right | change)
    assert str(refused.value).startswith("the transform builtins.sorted ")


def test_a_column_that_is_not_returned_is_named() -> None:
    with pytest.raises(TransformError, match=r"the schema after it also has \['flag', 'at', 'text', 'pair'\]"):
        columns_of_arrays(asked(1), {"n": [1]})
    with pytest.raises(TransformError, match="must return a dict of columns, but it returned list"):
        columns_of_arrays(asked(1), [1])
    with pytest.raises(TransformError, match="must return a DataFrame, but it returned dict"):
        columns_of_frame(asked(1), {"n": [1]})
