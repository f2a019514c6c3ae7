"""pyarrow's nested lists mean what they mean in pyarrow, and other forms are refused at the call."""

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
def test_both_forms_are_one_expression(filters: Any, expression: Expression) -> None:
    assert parse_filters(filters) == expression


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([], "no filter"),
        ((), "no filter"),
        (("a", "=", 1), "no filter"),
        ("a = 1", "no filter"),
        ({"a": 1}, "no filter"),
        (True, "no filter"),
        (print, "no filter"),
        (col("flag"), "compare it"),
        ([[]], "empty list"),
        ([[("a", "=", 1)], []], "empty list"),
        ([("a", "=", 1), [("b", "=", 2)]], "mixes"),
        ([["a", "=", 1]], "no \\(column, operator, value\\)"),
        ([("a", "=")], "no \\(column, operator, value\\)"),
        ([("a", "=", 1, 2)], "no \\(column, operator, value\\)"),
        ([("a", "like", "x")], "'like'"),
        ([("a", None, "x")], "operator None"),
        ([(7, "=", "x")], "name of a column"),
        ([("a", "in", "xyz")], "brackets"),
        ([("a", "in", 3)], "isin takes a list"),
        ([("a", "=", None)], "is_null"),
        ([("a", "is", 3)], "'is' asks"),
        ([("a", "is not", 3)], "'is' asks"),
    ],
)
def test_other_forms_are_refused(filters: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_filters(filters)
