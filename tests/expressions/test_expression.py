"""Tests of filter expressions: repr, equality, fingerprints, immutability, and errors for `and`, `or` and `not`."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from petastore import col
from petastore.errors import InvalidArgumentError
from petastore.expressions import And, Expression, Not, Or, fold

SOME = [
    col("a") == 1,
    col("a") == 1.0,
    col("a") == True,  # noqa: E712 - another literal than 1
    col("a") == "1",
    col("a") == b"1",
    col("a") == np.datetime64(1, "s"),
    col("a") == np.timedelta64(1, "s"),
    col("a") == np.timedelta64(1, "ms"),
    col("a") != 1,
    col("a") < 1,
    col("b") == 1,
    ~(col("a") == 1),
    col("a").isin([1]),
    col("a").isin([1, 2]),
    col("a").isin([]),
    col("a").is_null(),
    col("a").is_valid(),
    (col("a") == 1) & (col("b") == 2),
    (col("a") == 1) | (col("b") == 2),
    ((col("a") == 1) & (col("b") == 2)) | (col("c") == 3),
    (col("a") == 1) & ((col("b") == 2) | (col("c") == 3)),
]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("split") == "train", "col('split') == 'train'"),
        (col("a") > 3, "col('a') > 3"),
        (col("a") <= 3, "col('a') <= 3"),
        (col("a").isin([1, 2]), "col('a').isin([1, 2])"),
        (col("a").is_valid(), "col('a').is_valid()"),
        (~(col("a") < 3), "~(col('a') < 3)"),
        (~col("a").isin([1]), "~col('a').isin([1])"),
        (~~(col("a") < 3), "col('a') < 3"),
        (
            ((col("a") == 1) & (col("b") != 2) & ~(col("c") < 3)) | col("d").is_null(),
            "((col('a') == 1) & (col('b') != 2) & ~(col('c') < 3)) | col('d').is_null()",
        ),
    ],
)
def test_expression_repr_evaluates_to_an_equal_expression(expression: Expression, text: str) -> None:
    assert repr(expression) == text
    assert eval(text, {"col": col}) == expression  # noqa: S307 - our own text


def test_expressions_with_equal_parts_are_equal() -> None:
    again = [pickle.loads(pickle.dumps(expression)) for expression in SOME]  # noqa: S301 - our own bytes
    assert again == SOME
    assert len({expression.fingerprint for expression in SOME}) == len(set(SOME)) == len(SOME)
    assert [hash(one) for one in again] == [hash(one) for one in SOME]
    assert (col("a") == 1).equals(col("a") == np.int8(1))
    assert not (col("a") == 1).equals(7)
    assert (col("a") == 1) != 7


def test_expression_description_is_valid_json_also_with_nan_and_infinity() -> None:
    for expression in [*SOME, col("a") == float("nan"), col("a") < float("inf"), col("a") == "\ud800"]:
        assert json.loads(json.dumps(expression.describe(), allow_nan=False)) == expression.describe()
        assert len(expression.fingerprint) == 32


def test_expression_fingerprints_are_stable() -> None:
    expression = ((col("split") == "train") & ~col("label").isin([3, 7])) | (col("t") < np.datetime64("2026-01-31"))
    assert expression.fingerprint == "3fea653e3c974f515de616768b617376"


def test_expressions_are_immutable() -> None:
    with pytest.raises(AttributeError):
        (col("a") == 1).column = "b"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        col("a").name = "b"  # type: ignore[misc]


def test_expression_columns_are_in_order_of_first_use() -> None:
    expression = (col("b") == 1) & ~((col("a") == 1) | col("c").is_null()) & (col("b") < 3)
    assert expression.columns == ("b", "a", "c")


def test_chained_and_or_expressions_are_flattened() -> None:
    every = (col("a") > 1) & (col("b") > 1) & ((col("c") > 1) & (col("d") > 1))
    assert isinstance(every, And)
    assert len(every.parts) == 4
    some = (col("a") > 1) | (col("b") > 1) | (col("c") > 1)
    assert isinstance(some, Or)
    assert len(some.parts) == 3
    assert isinstance(~every, Not)


def test_isin_description_is_sorted() -> None:
    values = {"x", "y", "z", "w", None}
    assert col("a").isin(values) == col("a").isin(frozenset(values))
    assert repr(col("a").isin({"b", "a"})) == "col('a').isin(['a', 'b'])"


@pytest.mark.parametrize(
    "ask",
    [
        lambda: bool(col("a") == 1),
        lambda: bool(col("a")),
        lambda: (col("a") == 1) and (col("b") == 2),
        lambda: (col("a") == 1) or (col("b") == 2),
        lambda: not (col("a") == 1),  # noqa: SIM201
        lambda: 1 < col("a") < 3,
        lambda: col("a") if col("a") > 3 else None,
    ],
)
def test_bool_of_an_expression_raises_with_advice(ask: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"&, \| and ~"):
        ask()


@pytest.mark.parametrize(
    "ask",
    [
        lambda: (col("a") == 1) & True,
        lambda: col("a") == 1 & col("b") == 2,
        lambda: col("a") < 1 | col("b") == 2,
        lambda: False | (col("a") == 1),
        lambda: (col("a") == 1) & col("flag"),
        lambda: col("flag") & (col("a") == 1),
        lambda: col("flag") | (col("a") == 1),
        lambda: ~col("flag"),
        lambda: 3 & (col("a") == 1),
    ],
)
def test_combining_expressions_with_other_objects_raises(ask: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must combine comparisons"):
        ask()


@pytest.mark.parametrize("name", [None, 7, b"a"])
def test_col_requires_a_name(name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="name must be a str, got"):
        col(name)


def test_column_equals_compares_names() -> None:
    assert col("a").equals(col("a"))
    assert not col("a").equals(col("b"))
    assert len({col("a").name, col("a").name}) == 1
    assert hash(col("a")) == hash(col("a"))


def test_fold_combines_leaf_results_by_and_or_not() -> None:
    values = {"a": np.array([1, 2, 3]), "b": np.array([3, 2, 1])}
    expression = ~((col("a") == 1) | (col("b") == 1)) & (col("a") == 2)
    outcome = fold(expression, lambda leaf: values[leaf.column] == leaf.literal)
    assert outcome.tolist() == [False, True, False]
