"""Tests of `in_lambda`: the function gets the fields in the given order."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.predicates import in_lambda


def test_in_lambda_passes_fields_in_order_and_then_the_state() -> None:
    calls: list[tuple[Any, ...]] = []
    predicate = in_lambda(["b", "a"], lambda *arguments: calls.append(arguments), calls)
    assert predicate.get_fields() == {"a", "b"}
    predicate.do_include({"a": 1, "b": 2, "c": 3})
    in_lambda(["a"], lambda *arguments: calls.append(arguments)).do_include({"a": None})
    assert calls == [(2, 1, calls), (None,)]


def test_function_predicate_has_no_cache_key() -> None:
    predicate = in_lambda(["a"], bool)
    assert (predicate.cache_key(), predicate.as_expression()) == (None, None)


@pytest.mark.parametrize(
    ("fields", "function", "message"),
    [
        ("a", bool, "in_lambda"),
        ([], bool, "in_lambda"),
        ([1], bool, "in_lambda"),
        (7, bool, "in_lambda"),
        (["a"], "bool", "predicate_func must be callable for in_lambda, got 'bool'"),
    ],
)
def test_in_lambda_invalid_arguments_raise(fields: Any, function: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        in_lambda(fields, function)
