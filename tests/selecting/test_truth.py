"""Tests of filter evaluation on columns: equal to evaluation row by row, and to pyarrow."""

from __future__ import annotations

import functools
import operator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings

from petastore.codecs import ScalarCodec
from petastore.codecs.registry import codec_of
from petastore.errors import DecodeError
from petastore.expressions import And, Comparison, Expression, Membership, Not, NullTest, Or, bind, col
from petastore.schema import UnischemaField
from petastore.selecting.truth import true_rows
from tests.laws.filter_laws import FilteredRows, filtered_rows
from tests.tier import examples


def evaluated(expression: Expression, columns: dict[str, Any], fields: dict[str, UnischemaField]) -> list[bool]:
    found: list[bool] = true_rows(bind(expression, fields, among="the test"), columns, fields).tolist()
    return found


def cells_of(drawn: FilteredRows) -> dict[str, Any]:
    return {field.name: codec_of(field).encode_column(list(drawn.columns[field.name]), field) for field in drawn.fields}


@given(filtered_rows())
@settings(max_examples=examples(200))
def test_filter_evaluated_on_columns_equals_evaluation_row_by_row(drawn: FilteredRows) -> None:
    fields = {field.name: field for field in drawn.fields}
    assert evaluated(drawn.expression, cells_of(drawn), fields) == drawn.kept


COMPARE = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def arrow_expression(expression: Expression) -> Any:
    """Return the filter as an Arrow expression; `isin` is spelled out, because Arrow's returns no null for nulls."""
    if isinstance(expression, And):
        return functools.reduce(operator.and_, map(arrow_expression, expression.parts))
    if isinstance(expression, Or):
        return functools.reduce(operator.or_, map(arrow_expression, expression.parts))
    if isinstance(expression, Not):
        return ~arrow_expression(expression.part)
    if isinstance(expression, NullTest):
        return ds.field(expression.column).is_null()
    if isinstance(expression, Membership):
        equal = [ds.field(expression.column) == literal for literal in expression.literals]
        never = (ds.field(expression.column) == "0") & (ds.field(expression.column) == "1")
        return functools.reduce(operator.or_, equal, never)
    assert isinstance(expression, Comparison)
    return COMPARE[expression.operator](ds.field(expression.column), expression.literal)


# Only text, because Arrow compares integers and floats inexactly, and rejects literals that are out of range.
@given(filtered_rows(dtypes=[np.str_]))
@settings(max_examples=examples(50))
def test_filter_on_text_equals_pyarrow(drawn: FilteredRows) -> None:
    cells = cells_of(drawn)
    table = pa.table({"row": pa.array(range(len(drawn.kept))), **cells})
    kept = ds.dataset(table).to_table(filter=arrow_expression(drawn.expression))["row"].to_pylist()
    assert kept == [row for row, is_kept in enumerate(drawn.kept) if is_kept]


NUMBERS = [1.5, None, float("nan"), -0.0, 0.0, float("inf")]


@pytest.mark.parametrize(
    "expression",
    [
        col("x") == 1.5,
        col("x") != 1.5,
        col("x") == 0.0,
        col("x") >= 0.0,
        col("x") < float("inf"),
        ~(col("x") > 1.0),
        (col("x") > 1.0) | col("x").is_null(),
        ~(col("x") > 1.0) & col("x").is_valid(),
        (col("x") == float("nan")) | (col("x") != float("nan")),
    ],
    ids=repr,
)
def test_filter_on_floats_nulls_and_nan_equals_pyarrow(expression: Expression) -> None:
    field = UnischemaField("x", "float64", nullable=True)
    cells = pa.array(NUMBERS, pa.float64())
    table = pa.table({"row": pa.array(range(len(NUMBERS))), "x": cells})
    kept = ds.dataset(table).to_table(filter=arrow_expression(expression))["row"].to_pylist()
    assert np.flatnonzero(evaluated(expression, {"x": cells}, {"x": field})).tolist() == kept


# The table of docs/reference/filters.md: a null, NaN, a value that passes, a value that does not.
OUTCOMES = [
    (col("x") == 1.0, [False, False, True, False]),
    (col("x") != 2.0, [False, True, True, False]),
    (col("x") < 1.5, [False, False, True, False]),
    (~(col("x") < 1.5), [False, True, False, True]),
    (col("x").isin([1.0]), [False, False, True, False]),
    (~col("x").isin([1.0]), [False, True, False, True]),
    (col("x").isin([1.0, None]), [True, False, True, False]),
    (~col("x").isin([1.0, None]), [False, True, False, True]),
    (col("x").isin([float("nan")]), [False, False, False, False]),
    (col("x").isin([]), [False, False, False, False]),
    (~col("x").isin([]), [False, True, True, True]),
    (col("x").is_null(), [True, False, False, False]),
    (col("x").is_valid(), [False, True, True, True]),
    ((col("x") == 1.0) | col("x").is_null(), [True, False, True, False]),
    ((col("x") == 1.0) & col("x").is_null(), [False, False, False, False]),
    (~((col("x") == 1.0) & col("x").is_null()), [False, True, True, True]),
    (col("x") <= float("inf"), [False, False, True, True]),
]


@pytest.mark.parametrize(("expression", "kept"), OUTCOMES, ids=repr)
def test_filter_on_nulls_and_nan_matches_the_reference_page(expression: Expression, kept: list[bool]) -> None:
    field = UnischemaField("x", "float32", nullable=True)
    cells = pa.array([None, float("nan"), 1.0, 2.0], pa.float32())
    assert evaluated(expression, {"x": cells}, {"x": field}) == kept


@pytest.mark.parametrize(
    "stored",
    [
        pa.array(["a", None, "b"]),
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array([b"a", None, b"b"], pa.binary()),
        pa.array(["x", "a", None, "b"])[1:],
    ],
    ids=lambda array: str(array.type),
)
def test_filter_on_text_works_for_every_arrow_type(stored: Any) -> None:
    field = UnischemaField("x", "str", nullable=True)
    assert evaluated(col("x") == "a", {"x": stored}, {"x": field}) == [True, False, False]
    assert evaluated(col("x").isin(["b", "c"]), {"x": stored}, {"x": field}) == [False, False, True]
    assert evaluated(col("x") > "a", {"x": stored}, {"x": field}) == [False, False, True]


@pytest.mark.parametrize(
    "stored",
    [
        pa.array([Decimal("1.25"), None, Decimal("-3.00")], pa.decimal128(5, 2)),
        pa.array([Decimal("1.25"), None, Decimal("-3.00")], pa.decimal256(50, 3)),
        pa.array(["1.25", None, "-3"]),
    ],
    ids=lambda array: str(array.type),
)
def test_filter_on_decimals_is_exact(stored: Any) -> None:
    field = UnischemaField("x", Decimal, nullable=True)
    for expression, kept in [
        (col("x") == Decimal("1.250"), [True, False, False]),
        (col("x") < Decimal("1.2500001"), [True, False, True]),
        (col("x") >= Decimal("1.2500001"), [False, False, False]),
        (col("x") > -3, [True, False, False]),
        (col("x") < 10**60, [True, False, True]),
        (col("x").isin([Decimal("1.25"), Decimal("1.251"), 10**60]), [True, False, False]),
        (col("x").is_null(), [False, True, False]),
    ]:
        assert evaluated(expression, {"x": stored}, {"x": field}) == kept, expression


def test_filter_distinguishes_integers_beyond_float_precision() -> None:
    field = UnischemaField("x", "int64")
    cells = pa.array([2**53, 2**53 + 1, 2**62])
    assert evaluated(col("x") > float(2**53), {"x": cells}, {"x": field}) == [False, True, True]
    assert evaluated(col("x") == float(2**62), {"x": cells}, {"x": field}) == [False, False, True]


def test_filter_raises_for_a_stored_value_outside_the_dtype_range() -> None:
    field = UnischemaField("x", "uint8", (), ScalarCodec("int"))
    with pytest.raises(DecodeError) as caught:
        evaluated(col("x") == 1, {"x": pa.array([1, 300], pa.int32())}, {"x": field})
    assert (caught.value.column, caught.value.row) == ("x", 1)
