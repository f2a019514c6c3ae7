"""Tests of combined predicates: results follow from their parts, and filters exist if all parts have one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.predicates import CombinedPredicate, PredicateBase, in_lambda, in_negate, in_reduce, in_set

LEAVES = [in_set({0, 1}, "x"), in_set({1, 2}, "x"), in_set({None, 3}, "x"), in_set({0, 3}, "x")]


def one_or_three(answers: list[bool]) -> bool:
    return sum(answers) in (1, 3)


def predicates() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.sampled_from(LEAVES),
        lambda parts: (
            st.builds(in_negate, parts)
            | st.builds(in_reduce, st.lists(parts, min_size=1, max_size=3), st.sampled_from([all, any, one_or_three]))
        ),
        max_leaves=6,
    )


def asked(predicate: Any, columns: dict[str, Any]) -> Any:
    if isinstance(predicate, CombinedPredicate):
        return predicate.combined([asked(part, columns) for part in predicate.parts])
    return predicate.do_include_batch(columns)


@given(predicate=predicates())
def test_combined_predicate_on_columns_equals_rows(predicate: Any) -> None:
    values: list[Any] = [0, 1, 2, 3, None]
    column = np.ma.MaskedArray([0, 1, 2, 3, 0], mask=[False] * 4 + [True])
    answers = asked(predicate, {"x": column})
    assert (answers.dtype, answers.tolist()) == (bool, [predicate.do_include({"x": value}) for value in values])


def test_in_reduce_needs_the_fields_of_all_parts() -> None:
    both = in_reduce([in_set({1}, "x"), in_negate(in_set({2}, "y"))], all)
    assert both.get_fields() == {"x", "y"}
    assert both.do_include({"x": 1, "y": 1})
    assert not both.do_include({"x": 1, "y": 2})


def test_combined_predicate_cache_key_contains_its_parts() -> None:
    first, second = LEAVES[:2]
    found = [
        in_reduce([first, second], all).cache_key(),
        in_reduce([first, second], any).cache_key(),
        in_reduce([second], any).cache_key(),
        in_negate(first).cache_key(),
        first.cache_key(),
    ]
    assert None not in found
    assert len(set(found)) == 5
    assert in_reduce([first, second], one_or_three).cache_key() is None
    assert in_negate(in_lambda(["x"], bool)).cache_key() is None


def test_combined_predicate_has_a_filter_if_all_parts_have() -> None:
    first, second = LEAVES[:2]
    assert repr(in_reduce([first, in_negate(second)], any).as_expression()) == (
        "(col('x').isin([0, 1]) & col('x').is_valid()) | ~(col('x').isin([1, 2]) & col('x').is_valid())"
    )
    assert in_reduce([first, second], one_or_three).as_expression() is None
    assert in_reduce([first, in_lambda(["x"], bool)], all).as_expression() is None
    assert in_negate(in_lambda(["x"], bool)).as_expression() is None


@pytest.mark.parametrize("part", [7, in_set, None, bool])
def test_argument_that_is_not_a_predicate_raises(part: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be made of objects with get_fields"):
        in_negate(part)
    with pytest.raises(InvalidArgumentError, match="must be made of objects with get_fields"):
        in_reduce([part], all)


def test_in_reduce_invalid_arguments_raise() -> None:
    parts: list[Any] = [([], all, "at least one"), (7, all, "a list"), (LEAVES, "all", "such as all")]
    for predicate_list, function, message in parts:
        with pytest.raises(InvalidArgumentError, match=message):
            in_reduce(predicate_list, function)


def test_combined_predicate_accepts_user_predicates() -> None:
    class Even(PredicateBase):
        def get_fields(self) -> set[str]:
            return {"x"}

        def do_include(self, values: Any) -> bool:
            return bool(values["x"] % 2 == 0)

    assert in_negate(Even()).do_include({"x": 3})
    assert in_negate(Even()).cache_key() is None
