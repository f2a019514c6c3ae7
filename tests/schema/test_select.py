"""Tests of selecting fields by name, regular expression or field; the order is the schema's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.schema import UnischemaField, match_unischema_fields
from petastore.schema.select import select_fields

FIELDS = [UnischemaField(name, "int32") for name in ("id", "id_user", "age", "a.b", "aXb", "f(x)")]


def chosen(*wanted: Any) -> list[str]:
    return [field.name for field in select_fields(FIELDS, wanted, among="the dataset")]


def test_regular_expressions_match_whole_names() -> None:
    assert [field.name for field in match_unischema_fields(FIELDS, ["a.*", "id"])] == ["id", "age", "a.b", "aXb"]
    assert match_unischema_fields(FIELDS, "nobody") == []
    assert [field.name for field in match_unischema_fields(FIELDS, "id.+")] == ["id_user"]


def test_existing_field_name_is_not_treated_as_a_regular_expression() -> None:
    assert chosen("a.b") == ["a.b"]
    assert chosen("f(x)") == ["f(x)"]
    assert chosen("a.b|id") == ["id", "a.b", "aXb"]


def test_field_is_looked_up_by_name() -> None:
    (found,) = select_fields(FIELDS, [UnischemaField("age", "float64", (3,))], among="the dataset")
    assert found == FIELDS[2]


@pytest.mark.parametrize(
    "wanted", [["nobody"], [UnischemaField("nobody", "int32")], ["id", "no.*"], [], [5], "id", ["("]]
)
def test_pattern_without_a_match_or_of_a_wrong_type_raises(wanted: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        select_fields(FIELDS, wanted, among="the dataset")


@given(wanted=st.lists(st.sampled_from(["id", "age", ".*b", "id.*", "f(x)"]), min_size=1))
def test_selected_fields_are_unique_in_schema_order(wanted: list[str]) -> None:
    names = chosen(*wanted)
    order = [field.name for field in FIELDS]
    assert names == sorted(set(names), key=order.index)
    assert set(wanted) & set(order) <= set(names)
