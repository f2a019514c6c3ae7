"""`in_lambda` calls a function with the fields in the order given."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.predicates import in_lambda


def test_a_function_gets_its_fields_in_order_and_then_the_state() -> None:
    calls: list[tuple[Any, ...]] = []
    predicate = in_lambda(["b", "a"], lambda *arguments: calls.append(arguments), calls)
    assert predicate.get_fields() == {"a", "b"}
    predicate.do_include({"a": 1, "b": 2, "c": 3})
    in_lambda(["a"], lambda *arguments: calls.append(arguments)).do_include({"a": None})
    assert calls == [(2, 1, calls), (None,)]


def test_nobody_can_promise_what_a_function_will_answer() -> None:
    predicate = in_lambda(["a"], bool)
    assert (predicate.cache_key(), predicate.as_expression()) == (None, None)


@pytest.mark.parametrize(("fields", "function"), [("a", bool), ([], bool), ([1], bool), (7, bool), (["a"], "bool")])
def test_what_cannot_be_is_refused(fields: Any, function: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="in_lambda"):
        in_lambda(fields, function)
