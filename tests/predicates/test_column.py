"""Tests of predicates on columns: None for missing values, and one call per distinct value with the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from petastore.predicates import of_distinct, python_values
from petastore.schema.values import each_value

COLUMNS = st.one_of(
    hnp.arrays(np.int16, st.integers(0, 8), elements=st.integers(-2, 2)),
    hnp.arrays(np.float32, st.integers(0, 8), elements=st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    hnp.arrays("datetime64[s]", st.integers(0, 8), elements=st.integers(0, 3).map(lambda n: np.datetime64(n, "s"))),
    st.lists(st.sampled_from(["a", "b", None]), max_size=8).map(lambda values: np.array(values, object)),
)


@given(COLUMNS)
def test_predicate_on_column_equals_predicate_on_values(column: NDArray[Any]) -> None:
    def answer(value: Any) -> bool:
        return str(value) in ("1", "nan", "-0.0", "a", "None", "1970-01-01T00:00:01")

    found = of_distinct(column, answer)
    assert found.dtype == np.bool_
    assert found.tolist() == [answer(value) for value in each_value(column)]


def test_predicate_is_called_once_per_distinct_number() -> None:
    asked: list[int] = []

    def answer(value: Any) -> bool:
        asked.append(int(value))
        return True

    of_distinct(np.array([3, 5, 3, 3], np.int32), answer)
    assert sorted(asked) == [3, 5]


@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_predicate_receives_none_for_missing_values(shape: tuple[int, ...]) -> None:
    mask = np.zeros(shape, np.bool_)
    mask[1] = True
    values = each_value(np.ma.MaskedArray(np.ones(shape), mask))
    assert [value is None for value in values] == [False, True, False]


def test_predicate_receives_python_numbers_and_numpy_times() -> None:
    assert [type(value) for value in python_values(np.array([1.5]))] == [float]
    assert [type(value) for value in python_values(np.array([1], "M8[s]"))] == [np.datetime64]
