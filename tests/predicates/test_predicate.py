"""Tests of the predicate interface: required and optional methods, and errors that name the caller."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.predicates import PredicateBase, checked_predicate, field_name, field_names, in_set, told_by
from petastore.schema import UnischemaField


class OfAnother:
    """User-defined predicate without optional methods."""

    cache_key = "no method"

    def get_fields(self) -> set[str]:
        return {"id"}

    def do_include(self, values: Any) -> bool:
        return bool(values)


class Silent(PredicateBase):
    def get_fields(self) -> set[str]:
        return {"id"}

    def do_include(self, values: Any) -> bool:
        return bool(values)


def test_missing_optional_predicate_method_counts_as_none() -> None:
    for method in ("cache_key", "as_expression"):
        assert told_by(OfAnother(), method) is None
        assert told_by(Silent(), method) is None
        assert told_by(lambda _: True, method) is None
        assert told_by(in_set({1}, "id"), method) is not None


@pytest.mark.parametrize("predicate", [OfAnother(), Silent(), in_set({1}, "id")])
def test_object_with_predicate_methods_is_a_predicate(predicate: Any) -> None:
    assert checked_predicate(predicate, name="in_negate") is predicate


@pytest.mark.parametrize("predicate", [OfAnother, None, "id", lambda _: True])
def test_argument_that_is_not_a_predicate_raises_with_the_caller_name(predicate: Any) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"^in_negate must be made of objects with get_fields and do_include or do_include_batch, got ",
    ):
        checked_predicate(predicate, name="in_negate")


def test_predicate_fields_may_be_names_or_unischema_fields() -> None:
    field = UnischemaField("id", "int64")
    assert field_name(field, name="in_set") == field_name("id", name="in_set") == "id"
    assert field_names([field, "x"], name="in_lambda") == ("id", "x")
    for wrong in ("", None, 3):
        with pytest.raises(InvalidArgumentError, match="in_set"):
            field_name(wrong, name="in_set")
    nothing: list[Any] = ["id", [], None]
    for none in nothing:
        with pytest.raises(InvalidArgumentError, match="in_lambda"):
            field_names(none, name="in_lambda")
