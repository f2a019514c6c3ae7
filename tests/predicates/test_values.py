"""Tests of `in_set` and `in_intersection`: rows are included by the values of one field, for rows and for columns."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore import UnischemaField, col
from petastore.errors import InvalidArgumentError
from petastore.expressions import bind
from petastore.predicates import in_intersection, in_negate, in_set
from tests.laws.filter_laws import row_truth
from tests.predicates.columns_to_ask import ANY_VALUE, arrays_in_rows, rows_of, scalars


@given(column=scalars(), values=st.lists(st.sampled_from(ANY_VALUE), max_size=5))
def test_in_set_on_columns_equals_in_set_on_rows(column: NDArray[Any], values: list[Any]) -> None:
    predicate = in_set(values, "x")
    columns = {"x": column}
    answers = predicate.do_include_batch(columns)
    assert answers.dtype == np.bool_
    assert answers.tolist() == [predicate.do_include(row) for row in rows_of(columns)]


@given(column=scalars(), values=st.lists(st.sampled_from(ANY_VALUE), max_size=5))
def test_in_set_equals_its_filter_also_when_negated(column: NDArray[Any], values: list[Any]) -> None:
    predicate, rows = in_set(values, "x"), rows_of({"x": column})
    present = [row["x"] for row in rows if row["x"] is not None]
    declared: Any = type((present or [""])[0]) if column.dtype == np.dtype(object) else column.dtype
    fields = {"x": UnischemaField("x", declared, nullable=True)}
    for test in (predicate, in_negate(predicate)):
        found = test.as_expression()
        try:
            bind(found, fields, among="the test")  # type: ignore[arg-type]
        except (InvalidArgumentError, AttributeError):
            continue  # values of another kind cannot be bound, so such a predicate is called for each value
        assert found is not None
        assert [row_truth(found, row) for row in rows] == [test.do_include(row) for row in rows]


@given(column=arrays_in_rows(), values=st.lists(st.sampled_from([0, 1.0, 2**53, "a", "3", None]), max_size=4))
def test_in_intersection_on_columns_equals_it_on_rows(column: NDArray[Any], values: list[Any]) -> None:
    predicate = in_intersection(values, "x")
    columns = {"x": column}
    assert predicate.do_include_batch(columns).tolist() == [predicate.do_include(row) for row in rows_of(columns)]


def test_in_set_with_none_includes_missing_values() -> None:
    column = np.ma.MaskedArray([1, 2], mask=[False, True])
    assert in_set({2}, "x").do_include_batch({"x": column}).tolist() == [False, False]
    assert in_set({2, None}, "x").do_include_batch({"x": column}).tolist() == [False, True]
    assert not in_intersection({None}, "x").do_include({"x": None})


def test_in_set_compares_equal_values_of_any_type() -> None:
    assert in_set({"a"}, "x").do_include({"x": np.str_("a")})
    assert in_set([np.int16(3)], "x").do_include({"x": 3.0})
    assert in_set([dt.date(2026, 1, 31)], "x").do_include({"x": np.datetime64("2026-01-31", "ns")})
    assert not in_set([2**53], "x").do_include({"x": np.int64(2**53 + 1)})


def test_in_set_accepts_any_collection() -> None:
    predicate = in_set((n for n in (1, 2)), "x")
    assert predicate.do_include({"x": 2})
    assert predicate.do_include({"x": 1})
    assert in_set(np.array([1, 2]), UnischemaField("x", "int64")).get_fields() == {"x"}  # type: ignore[arg-type]


def test_in_set_cache_keys_are_equal_for_equal_sets() -> None:
    keys = [in_set(values, "x").cache_key() for values in ([1, 2], [2, 1, 1], {1, 2}, [1], ["1", "2"], [1, 2, None])]
    assert len(set(keys[:3])) == 1
    assert len(set(keys)) == 4
    assert in_set([1], "x").cache_key() != in_set([1], "y").cache_key() != in_intersection([1], "y").cache_key()
    assert in_set([(1, 2)], "x").cache_key() is None


def test_in_set_becomes_an_expression_unless_values_are_lists() -> None:
    found = in_set({3, None}, "x").as_expression()
    assert found is not None
    assert found == (col("x").isin([3]) | col("x").is_null())
    assert in_set([(1, 2)], "x").as_expression() is None
    assert in_intersection([1], "x").as_expression() is None


@pytest.mark.parametrize("predicate", [in_set, in_intersection])
@pytest.mark.parametrize(("values", "field"), [("train", "x"), (7, "x"), ([[1]], "x"), ([1], ""), ([1], 7)])
def test_in_set_and_in_intersection_invalid_arguments_raise_at_the_call(
    predicate: Any, values: Any, field: Any
) -> None:
    with pytest.raises(InvalidArgumentError, match=predicate.__name__):
        predicate(values, field)


def test_in_intersection_raises_for_a_scalar_column() -> None:
    with pytest.raises(InvalidArgumentError, match=r"in_intersection, got 'x' with 1\. Use in_set"):
        in_intersection([1], "x").do_include({"x": 1})
