"""Tests of filters as nested lists (DNF): the same meaning as in pyarrow, and errors for invalid lists."""

from __future__ import annotations

from typing import Any

import pytest

from petastore import col
from petastore.errors import InvalidArgumentError
from petastore.expressions import Expression, parse_filters


@pytest.mark.parametrize(
    ("filters", "expression"),
    [
        ([("a", "=", 1)], col("a") == 1),
        ([("a", "==", 1)], col("a") == 1),
        ([("a", "!=", 1)], col("a") != 1),
        ([("a", "<", 1)], col("a") < 1),
        ([("a", "<=", 1)], col("a") <= 1),
        ([("a", ">", 1)], col("a") > 1),
        ([("a", ">=", 1)], col("a") >= 1),
        ([("a", "in", (1, 2))], col("a").isin([1, 2])),
        ([("a", "not in", {1})], ~col("a").isin([1])),
        ([("a", "is", None)], col("a").is_null()),
        ([("a", "is not", None)], col("a").is_valid()),
        ([("a", "=", 1), ("b", "=", 2)], (col("a") == 1) & (col("b") == 2)),
        ([[("a", "=", 1), ("b", "=", 2)]], (col("a") == 1) & (col("b") == 2)),
        ([[("a", "=", 1)], [("b", "=", 2), ("c", "<", 3)]], (col("a") == 1) | ((col("b") == 2) & (col("c") < 3))),
        (col("a") == 1, col("a") == 1),
    ],
)
def test_filters_as_nested_lists_equal_the_same_expression(filters: Any, expression: Expression) -> None:
    assert parse_filters(filters) == expression


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([], "filters must be an expression or lists of tuples, got"),
        ((), "filters must be an expression or lists of tuples, got"),
        (("a", "=", 1), "filters must be an expression or lists of tuples, got"),
        ("a = 1", "filters must be an expression or lists of tuples, got"),
        ({"a": 1}, "filters must be an expression or lists of tuples, got"),
        (True, "filters must be an expression or lists of tuples, got"),
        (print, "filters must be an expression or lists of tuples, got"),
        (
            col("flag"),
            r"filters must be an expression, got the column col\('flag'\)\. Compare it, such as col\('flag'\) ==",
        ),
        ([[]], "empty list"),
        ([[("a", "=", 1)], []], "empty list"),
        (
            [("a", "=", 1), [("b", "=", 2)]],
            r"filters must not mix lists and tuples, or contain an empty list, got \[\('a', '=', 1\), \[\('b',",
        ),
        ([["a", "=", 1]], r"filters must have items \(column, operator, value\), got"),
        ([("a", "=")], r"filters must have items \(column, operator, value\), got"),
        ([("a", "=", 1, 2)], r"filters must have items \(column, operator, value\), got"),
        ([("a", "like", "x")], "'like'"),
        (
            [("a", None, "x")],
            r"filters must use one of the operators =, ==, !=, <, <=, >, >=, in, not in, is, is not, got None in \(",
        ),
        ([(7, "=", "x")], "name must be a str, got 7"),
        (
            [("a", "in", "xyz")],
            r"values must be a list or another collection, got 'xyz'\. Pass \['xyz'\] for one value",
        ),
        ([("a", "in", 3)], r"values must be a list or another collection, got 3\. Pass \[3\] for one value"),
        ([("a", "=", None)], "is_null"),
        ([("a", "is", 3)], r"filters must have None after 'is', got 3\. Use '=' for values"),
        ([("a", "is not", 3)], r"filters must have None after 'is', got 3\. Use '=' for values"),
    ],
)
def test_invalid_filter_lists_raise(filters: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_filters(filters)
