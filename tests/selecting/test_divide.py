"""Tests of splitting a predicate into a filter, a partition predicate, and a row predicate."""

from __future__ import annotations

from typing import Any

import pytest

from petastore import Unischema, UnischemaField, col
from petastore.codecs import NdarrayCodec
from petastore.predicates import in_lambda, in_negate, in_pseudorandom_split, in_reduce, in_set
from petastore.selecting.divide import divide

SCHEMA = Unischema(
    "s",
    [
        UnischemaField("day", "str"),
        UnischemaField("city", "str"),
        UnischemaField("id", "int64"),
        UnischemaField("pose", "float32", (2,), NdarrayCodec()),
    ],
)
IN_MAY = in_lambda(["day"], lambda day: day.startswith("2026-05"))
AT_SEA = in_lambda(["city", "day"], lambda city, day: bool(city and day))
EVEN = in_lambda(["id"], lambda number: number % 2 == 0)
MIXED = in_lambda(["id", "day"], lambda number, day: number > len(day))
FEW = in_set({1, 2}, "id")
IS_FEW = col("id").isin([1, 2]) & col("id").is_valid()


def divided(predicate: Any) -> tuple[Any, list[Any]]:
    found = divide(predicate, SCHEMA, ("day", "city"))
    return found.filter, [part for part in (found.of_partitions, found.of_rows) if part is not None]


def test_predicate_equal_to_a_filter_is_replaced_by_the_filter() -> None:
    assert divided(FEW) == (IS_FEW, [])
    assert divided(in_negate(FEW)) == (~IS_FEW, [])


@pytest.mark.parametrize("predicate", [IN_MAY, EVEN, in_pseudorandom_split([1], 0, "id"), in_reduce([FEW, EVEN], any)])
def test_predicate_without_an_equal_filter_stays_a_predicate(predicate: Any) -> None:
    assert divided(predicate) == (None, [predicate])


def test_in_reduce_all_is_split_into_filter_partition_and_row_predicates() -> None:
    nested = in_reduce([MIXED, in_reduce([EVEN, FEW, AT_SEA], all), IN_MAY], all)
    found, (by_partitions, by_rows) = divided(nested)
    assert found == IS_FEW
    assert by_partitions.parts == (AT_SEA, IN_MAY)
    assert by_rows.parts == (MIXED, EVEN)
    assert by_partitions.is_all
    assert by_rows.is_all


def test_negated_in_reduce_any_is_split_like_in_reduce_all() -> None:
    found, (rest,) = divided(in_negate(in_reduce([FEW, EVEN], any)))
    assert found == ~IS_FEW
    assert (type(rest), rest.parts) == (in_negate, (EVEN,))


def test_in_set_with_values_of_another_type_stays_a_predicate() -> None:
    for predicate in (in_set({"1"}, "id"), in_set({1.0}, "pose")):
        assert divided(predicate) == (None, [predicate])


def test_function_predicate_stays_a_predicate() -> None:
    assert divided(bool) == (None, [bool])
