"""Tests of binding filters to a schema: literals are converted exactly to the column's dtype, or raise."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from petastore import UnischemaField, col
from petastore.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from petastore.errors import InvalidArgumentError
from petastore.expressions import Expression, Not, bind
from petastore.expressions.bind import Test, decimal_test
from petastore.expressions.literal import as_literal


def bound(expression: Expression, dtype: Any) -> Any:
    return bind(expression, {"x": UnischemaField("x", dtype)}, among="the dataset")


def test_of(operator: str, operand: Any) -> Test:
    return Test("x", operator, operand)


test_of.__test__ = False  # type: ignore[attr-defined]
EAST = dt.timezone(dt.timedelta(hours=1))
never, always = test_of("constant", False), test_of("constant", True)


@pytest.mark.parametrize(
    ("expression", "dtype", "expected"),
    [
        (col("x") < 5, "int8", test_of("<", 5)),
        (col("x") < 5.0, "int8", test_of("<", 5)),
        (col("x") < 2.5, "int8", test_of("<=", 2)),
        (col("x") <= 2.5, "int8", test_of("<=", 2)),
        (col("x") > 2.5, "int8", test_of(">=", 3)),
        (col("x") >= -2.5, "int8", test_of(">=", -2)),
        (col("x") == 2.5, "int8", never),
        (col("x") != 2.5, "int8", Not(never)),
        (col("x") < 128, "int8", always),
        (col("x") <= 127, "int8", test_of("<=", 127)),
        (col("x") > 128, "int8", never),
        (col("x") == 128, "int8", never),
        (col("x") > -129, "int8", always),
        (col("x") < -129, "int8", never),
        (col("x") < 127.5, "int8", always),
        (col("x") > 127.5, "int8", never),
        (col("x") >= -0.5, "uint8", always),
        (col("x") < -0.5, "uint8", never),
        (col("x") == -1, "uint64", never),
        (col("x") <= 2**64 - 1, "uint64", test_of("<=", 2**64 - 1)),
        (col("x") < 2**64, "uint64", always),
        (col("x") < math.inf, "int64", always),
        (col("x") > math.inf, "int64", never),
        (col("x") >= -math.inf, "int64", always),
        (col("x") == math.nan, "int64", never),
        (col("x") != math.nan, "int64", Not(never)),
        (col("x") == Decimal("3.0"), "int64", test_of("==", 3)),
        (col("x") < Decimal("1e999999999"), "int64", always),
        (col("x") > Decimal("-1e999999999"), "int64", always),
        (col("x") > Decimal("1e-999999999"), "int64", test_of(">=", 1)),
        (col("x") > Decimal("-1e-999999999"), "int64", test_of(">=", 0)),
        (col("x").isin([3, 1, 2.5, 300, math.nan, 1.0]), "int8", test_of("in", (1, 3))),
        (col("x") == np.float32(0.1), "float32", test_of("==", float(np.float32(0.1)))),
        (col("x") == 0.1, "float32", never),
        (col("x") < 0.1, "float32", test_of("<=", float(np.nextafter(np.float32(0.1), np.float32(0))))),
        (col("x") > 0.1, "float32", test_of(">=", float(np.float32(0.1)))),
        (col("x") < 1e6, "float16", test_of("<=", 65504.0)),
        (col("x") > 1e6, "float16", test_of(">=", math.inf)),
        (col("x") > -1e6, "float16", test_of(">=", -65504.0)),
        (col("x") > 2**53 + 1, "float64", test_of(">=", float(2**53 + 2))),
        (col("x") < 10**400, "float64", test_of("<=", float(np.finfo("float64").max))),
        (col("x") < -(10**400), "float64", test_of("<=", -math.inf)),
        (col("x") == math.inf, "float32", test_of("==", math.inf)),
        (col("x") > 1e-400 * 0 + 5e-324, "float32", test_of(">=", float(np.finfo("float32").smallest_subnormal))),
        (col("x") == "é", "str", test_of("==", "é".encode())),
        (col("x").isin(["b", "a"]), "str", test_of("in", (b"a", b"b"))),
        (col("x") < b"\xff", "bytes", test_of("<", b"\xff")),
        (col("x") == True, "bool", test_of("==", True)),  # noqa: E712
        (col("x") == 3, Decimal, test_of("==", 3)),
        (col("x") >= dt.date(1970, 1, 2), "datetime64[D]", test_of(">=", 1)),
        (col("x") >= dt.date(1970, 1, 2), "datetime64[ms]", test_of(">=", 86_400_000)),
        (col("x") < dt.datetime(1970, 1, 2, 12), "datetime64[D]", test_of("<=", 1)),  # noqa: DTZ001
        (
            col("x") < dt.datetime(1970, 1, 1, 1, tzinfo=EAST),
            "datetime64[s]",
            test_of("<", 0),
        ),
        (col("x") == np.datetime64(1, "ns"), "datetime64[us]", never),
        (col("x") > np.datetime64(1, "ns"), "datetime64[us]", test_of(">=", 1)),
        (col("x") < np.datetime64(2**62, "s"), "datetime64[ns]", always),
        (col("x") == dt.timedelta(seconds=1), "timedelta64[ms]", test_of("==", 1000)),
        (col("x") == dt.time(0, 0, 1), "timedelta64[us]", test_of("==", 1_000_000)),
        (col("x").is_null(), "int8", test_of("null", None)),
    ],
    ids=repr,
)
def test_filter_literal_is_cast_to_the_dtype_of_its_column(expression: Expression, dtype: Any, expected: Any) -> None:
    assert bound(expression, dtype) == expected


@pytest.mark.parametrize(
    ("dtype", "literal"),
    [
        ("int32", "3"),
        ("int32", True),
        ("int32", b"3"),
        ("float32", "nan"),
        ("float64", False),
        ("str", 3),
        ("str", b"x"),
        ("bytes", "x"),
        ("bool", 1),
        ("bool", "true"),
        (Decimal, 0.1),
        (Decimal, True),
        (Decimal, "0.1"),
        ("datetime64[us]", "2026-01-31"),
        ("datetime64[us]", 0),
        ("datetime64[us]", dt.timedelta(1)),
        ("timedelta64[us]", dt.date(2026, 1, 31)),
        ("timedelta64[us]", 5),
        ("int64", dt.date(2026, 1, 31)),
    ],
)
def test_literal_of_another_type_raises(dtype: Any, literal: Any) -> None:
    name = UnischemaField("x", dtype).dtype_name
    for expression in (col("x") == literal, col("x") < literal, col("x").isin([literal])):
        with pytest.raises(InvalidArgumentError, match=rf"must compare 'x' \({name.split('[')[0]}.*\. Give ") as caught:
            bound(expression, dtype)
        assert repr(as_literal(literal)) in str(caught.value)


def test_literal_with_lone_surrogates_raises() -> None:
    with pytest.raises(InvalidArgumentError, match="surrogate"):
        bound(col("x") == "\ud800", "str")


@pytest.mark.parametrize(
    "field",
    [
        UnischemaField("x", "float32", (3,)),
        UnischemaField("x", "float32", (None,), NdarrayCodec()),
        UnischemaField("x", "uint8", (8, 8), CompressedImageCodec("png")),
        UnischemaField("x", "int64", (), NdarrayCodec()),
        UnischemaField("x", "object"),
        UnischemaField("x", "complex64", (), NdarrayCodec()),
    ],
    ids=repr,
)
def test_comparing_a_column_whose_type_has_no_order_raises_with_advice(field: UnischemaField) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'x'.*predicate="):
        bind(col("x") == 1, {"x": field}, among="the dataset")
    assert bind(col("x").is_null(), {"x": field}, among="the dataset").columns == ("x",)


def test_filter_on_a_column_with_scalar_codec_is_accepted() -> None:
    field = UnischemaField("x", "uint8", (), ScalarCodec("int"))
    assert bind(col("x") > 3, {"x": field}, among="the dataset") == test_of(">", 3)


def test_unknown_column_raises_and_lists_columns() -> None:
    fields = {"a": UnischemaField("a", "int8"), "b": UnischemaField("b", "int8")}
    with pytest.raises(InvalidArgumentError, match=r"filters must name columns of the dataset \('a', 'b'\), got 'z'"):
        bind((col("a") == 1) & (col("z") == 1), fields, among="the dataset")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (test_of("<", Decimal("1.255")), test_of("<=", Decimal("1.25"))),
        (test_of("==", Decimal("1.255")), never),
        (test_of("==", Decimal("1.250")), test_of("==", Decimal("1.25"))),
        (test_of(">", Decimal("-1.255")), test_of(">=", Decimal("-1.25"))),
        (test_of(">", Decimal("999.991")), never),
        (test_of("<", Decimal(10) ** 40), always),
        (test_of("<", 3), test_of("<", Decimal("3.00"))),
        (test_of("in", (Decimal("1.5"), Decimal("1.555"), Decimal(10) ** 9)), test_of("in", (Decimal("1.50"),))),
        (test_of("null", None), test_of("null", None)),
    ],
    ids=repr,
)
def test_decimal_literals_are_compared_exactly(given: Test, expected: Test) -> None:
    found = decimal_test(given, precision=5, scale=2)
    assert (found.operator, found.operand) == (expected.operator, expected.operand)
