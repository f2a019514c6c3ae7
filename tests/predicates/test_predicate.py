"""What others are made of is a predicate; fields are named; what a predicate does not tell is None."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.predicates import PredicateBase, in_set
from petastore.predicates.predicate import checked_predicate, field_name, field_names, told_by
from petastore.schema import UnischemaField


class OfAnother:
    """A predicate of a user's, which tells nothing of itself."""

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


def test_what_a_predicate_does_not_tell_is_none() -> None:
    for method in ("cache_key", "as_expression"):
        assert told_by(OfAnother(), method) is None
        assert told_by(Silent(), method) is None
        assert told_by(lambda _: True, method) is None
        assert told_by(in_set({1}, "id"), method) is not None


@pytest.mark.parametrize("predicate", [OfAnother(), Silent(), in_set({1}, "id")])
def test_whatever_has_the_methods_is_a_predicate(predicate: Any) -> None:
    assert checked_predicate(predicate, name="in_negate") is predicate


@pytest.mark.parametrize("predicate", [OfAnother, None, "id", lambda _: True])
def test_what_is_none_is_refused_by_the_name_of_who_takes_it(predicate: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^in_negate is made of predicates"):
        checked_predicate(predicate, name="in_negate")


def test_fields_are_given_by_name_or_as_they_are() -> None:
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
