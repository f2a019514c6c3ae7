"""Bind a filter expression to a schema: check literals, compile tests. No I/O.

The resulting tests are on stored values. Comparisons are exact: a literal that the column's type cannot represent is
never rounded. For integers, `x < 2.5` becomes `x <= 2`, and `x == 2.5` is never true; for `uint8`, `x < 300` is always
true. Literals are converted to the *domain* of the column, a Python type in which comparisons are exact:

| field                     | domain                                                                  |
|---------------------------|-------------------------------------------------------------------------|
| booleans                  | `bool`, False below True                                                |
| integers                  | `int`                                                                   |
| floats                    | `float`, the values of the column's own width                           |
| text                      | `bytes` of UTF-8, whose order is that of code points                    |
| bytes                     | `bytes`                                                                 |
| decimals                  | `Decimal`                                                               |
| dates, times, durations   | `int`, in the field's unit; instants in UTC, dates since 1970           |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from petastore.errors import InvalidArgumentError
from petastore.expressions.expression import Comparison, Expression, Membership, Not, NullTest, fold
from petastore.expressions.literal import Literal
from petastore.schema.field import UnischemaField
from petastore.schema.select import similar_name_advice
from petastore.schema.values import date_or_bool

__all__ = ["Neighbours", "Test", "bind", "decimal_test"]

_SECONDS: dict[str, Fraction] = {
    "D": Fraction(86400),
    **{unit: Fraction(1, 1000**power) for power, unit in enumerate(("s", "ms", "us", "ns", "ps", "fs", "as"))},
}
_LARGEST_DIGITS = 1000
_SCALAR_CODEC = "scalar"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Test(Expression):
    """Test of one column: comparison with a value of the column's domain.

    The domain is a Python type in which comparisons are exact. The result is null for missing values, except with the
    operator `null`.
    """

    __test__ = False  # otherwise, pytest would collect this class as a test

    column: str
    """Name of the column."""

    operator: str
    """Operator: `==`, `<`, `<=`, `>`, `>=`, `in`, `constant` or `null`.

    `constant` has the same result for all values; `null` tests whether a value is missing."""

    operand: Any
    """Operand: a value of the domain (Python values that compare exactly).

    For `in`, a sorted tuple of values; for `constant`, the result (a bool); for `null`, None."""

    def describe(self) -> list[Any]:
        """Return `["test", column, operator, operand]`, for display."""
        return ["test", self.column, self.operator, repr(self.operand)]

    def __repr__(self) -> str:
        return f"test({self.column!r} {self.operator} {self.operand!r})"


@dataclasses.dataclass(frozen=True, slots=True)
class Neighbours:
    """Nearest values below and above a number in a domain.

    A domain is the set of values of a column, as Python values that compare exactly. Both values equal the number if
    the domain contains it.
    """

    below: Any
    """Largest value of the domain that is at most the number.

    None if all values are greater."""

    above: Any
    """Smallest value of the domain that is at least the number.

    None if all values are less."""

    exact: bool
    """Whether the domain contains the number."""

    def test(self, column: str, operator: str) -> Test:
        """Return the test of a column that is equivalent to a comparison with the number.

        The operand of the test is a value of the domain.
        """
        if self.exact:
            return Test(column, operator, self.below)
        if operator == "==":
            return Test(column, "constant", False)
        if operator in ("<", "<="):
            below = self.below
            if below is None or self.above is None:
                return Test(column, "constant", below is not None)
            return Test(column, "<=", below)
        if self.below is None or self.above is None:
            return Test(column, "constant", self.above is not None)
        return Test(column, ">=", self.above)


def bind(expression: Expression, fields: Mapping[str, UnischemaField], *, among: str) -> Expression:
    """Return the expression with a `Test` on stored values instead of each comparison.

    Args:
        expression: Expression to bind.
        fields: Fields by name.
        among: Name of the source of the fields, for messages.

    Raises:
        InvalidArgumentError: A column is unknown, its values cannot be compared, or a literal has another type.

    Example:
        >>> from petastore.expressions import col
        >>> age = UnischemaField("age", "uint8")
        >>> bind((col("age") > 17.5) & (col("age") < 300), {"age": age}, among="the dataset")
        (test('age' >= 18)) & (test('age' constant True))
    """
    return fold(expression, lambda leaf: _bound(leaf, _field(leaf, fields, among)))


def _field(leaf: Any, fields: Mapping[str, UnischemaField], among: str) -> UnischemaField:
    name = leaf.column
    if name not in fields:
        raise InvalidArgumentError(
            f"filters must name columns of {among} ({', '.join(map(repr, fields))}), got {name!r}"
            f"{similar_name_advice(name, fields)}"
        )
    field = fields[name]
    if isinstance(leaf, NullTest) or _has_only_nulls(field):
        return field  # without the checks below, because any column can be tested for missing values
    if field.codec is not None and field.codec.codec_id != _SCALAR_CODEC:
        raise InvalidArgumentError(
            f"filters must name columns without a codec, got {field!r}. Use predicate= for this column"
        )
    if field.shape:
        raise InvalidArgumentError(f"filters must name scalar columns, got {field!r}. Use predicate= for this column")
    if field.numpy_dtype not in (np.str_, np.bytes_, Decimal) and field.dtype.kind not in "biufmM":
        raise InvalidArgumentError(
            f"filters must name columns whose values have an order, got {field!r} of {field.dtype_name}. Use "
            "predicate= for this column"
        )
    return field


def _has_only_nulls(field: UnischemaField) -> bool:
    """Return whether the Arrow type of a column is `null`."""
    return str(getattr(field.codec, "arrow_type", "")) == "null"


def _bound(leaf: Expression, field: UnischemaField) -> Expression:
    if isinstance(leaf, NullTest):
        return Test(leaf.column, "null", None)
    if _has_only_nulls(field) and isinstance(leaf, (Comparison, Membership)):
        return Test(leaf.column, "constant", False)  # the result is null, because all values are missing
    if isinstance(leaf, Membership):
        places = [_place(literal, field) for literal in leaf.literals]
        return Test(leaf.column, "in", tuple(sorted({place.below for place in places if place and place.exact})))
    if not isinstance(leaf, Comparison):
        raise InvalidArgumentError(f"filters must be made of comparisons such as col('x') > 1, got {leaf!r}")
    place = _place(leaf.literal, field)
    # For NaN, `place` is None. As in IEEE 754, every comparison with NaN is false, except `!=`, which is true.
    operator = "==" if leaf.operator == "!=" else leaf.operator
    test = Test(leaf.column, "constant", False) if place is None else place.test(leaf.column, operator)
    return Not(test) if leaf.operator == "!=" else test


def _place(literal: Literal, field: UnischemaField) -> Neighbours | None:
    """Return the values of a field that are nearest to a literal; None for NaN.

    Raises:
        InvalidArgumentError: The literal's type does not match the field.
    """
    kind, takes = _kind(field)
    if isinstance(literal, str) and kind == "M" and field.dtype == _DATE:
        literal = literal if (date := date_or_bool(literal)) is None else date
    if not isinstance(literal, takes) or (isinstance(literal, bool) and kind != "b"):
        raise InvalidArgumentError(
            f"filters must compare {field.name!r} ({field.dtype_name}) with a value of its kind, got the "
            f"{_type(literal)} {literal!r:.80}. {_WHAT_TO_GIVE[kind]}"
        )
    if kind in ("b", "bytes", "decimal"):
        return Neighbours(literal, literal, exact=True)
    if kind == "text":
        return _place_text(str(literal), field)
    if isinstance(literal, float) and math.isnan(literal):
        return None
    if kind == "f":
        return _place_float(literal, field.dtype)
    if kind in "mM":
        limit = np.iinfo(np.int64).max  # also the limit of negative values, because the smallest integer means NaT
        return _place_whole(_count(literal, field.dtype), -limit, limit)
    limits = np.iinfo(field.dtype)
    return _place_whole(literal, int(limits.min), int(limits.max))


_DATE = np.dtype("datetime64[D]")
_NUMBERS = (int, float, Decimal)
_WHAT_TO_GIVE = {
    "b": "Give True or False",
    "bytes": "Give bytes, such as b'…'",
    "text": "Give text, such as '…'",
    "decimal": "Give a Decimal or an int, such as Decimal('0.1')",
    "f": "Give a number",
    "i": "Give a number",
    "M": "Give a date, a datetime or a numpy.datetime64",
    "m": "Give a timedelta, a time or a numpy.timedelta64",
}


def _kind(field: UnischemaField) -> tuple[str, tuple[type, ...]]:
    """Return the kind of a field's values, and the types of literals to compare with.

    The kind is `"text"`, `"bytes"`, `"decimal"` or the kind character of the NumPy dtype, such as `"f"`; unsigned
    integers have the kind `"i"`.
    """
    kinds: dict[Any, tuple[str, tuple[type, ...]]] = {
        np.str_: ("text", (str,)),
        np.bytes_: ("bytes", (bytes,)),
        Decimal: ("decimal", (int, Decimal)),
    }
    if field.numpy_dtype in kinds:
        return kinds[field.numpy_dtype]
    kind = field.dtype.kind
    takes = {"b": (bool,), "M": (np.datetime64,), "m": (np.timedelta64,)}
    return ("i" if kind == "u" else kind), takes.get(kind, _NUMBERS)


def _type(literal: Literal) -> str:
    return literal.dtype.name if isinstance(literal, np.generic) else type(literal).__name__


def _place_text(literal: str, field: UnischemaField) -> Neighbours:
    try:
        encoded = literal.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            f"filters must compare text column {field.name!r} with valid text, got {literal!r:.80}, which has a lone "
            "surrogate"
        ) from None
    return Neighbours(encoded, encoded, exact=True)


def _fraction(number: Any) -> Fraction:
    """Return a finite number as an exact fraction.

    Decimals with an exponent above 1,000 or below -1,000 are clipped to 10**1000 or 10**-1000, with their sign. This
    keeps the fraction small, and does not change comparisons with values of any dtype.
    """
    if isinstance(number, Decimal) and number:
        digits = number.adjusted()
        if abs(digits) > _LARGEST_DIGITS:
            size = Fraction(10) ** (_LARGEST_DIGITS if digits > 0 else -_LARGEST_DIGITS)
            return -size if number < 0 else size
    return Fraction(number)


def _place_whole(number: Any, least: int, most: int) -> Neighbours:
    if isinstance(number, float) and math.isinf(number):
        return Neighbours(most, None, exact=False) if number > 0 else Neighbours(None, least, exact=False)
    exact = _fraction(number)
    below, above = math.floor(exact), math.ceil(exact)
    if above < least:
        return Neighbours(None, least, exact=False)
    if below > most:
        return Neighbours(most, None, exact=False)
    return Neighbours(below if below >= least else None, above if above <= most else None, exact=below == above)


def _place_float(number: Any, dtype: np.dtype[Any]) -> Neighbours:
    """Return the nearest floats below and above a number.

    Both exist, because infinities are floats.
    """
    if isinstance(number, float) and math.isinf(number):
        return Neighbours(number, number, exact=True)
    wanted = _fraction(number)
    try:
        nearest = float(wanted)
    except OverflowError:
        nearest = math.inf if wanted > 0 else -math.inf
    with np.errstate(over="ignore", under="ignore"):
        narrow = dtype.type(nearest)
    if not np.isinf(narrow) and Fraction(float(narrow)) == wanted:
        return Neighbours(float(narrow), float(narrow), exact=True)
    is_above = float(narrow) > 0 if np.isinf(narrow) else Fraction(float(narrow)) > wanted
    other = np.nextafter(narrow, dtype.type(-math.inf if is_above else math.inf), dtype=dtype)
    below, above = (other, narrow) if is_above else (narrow, other)
    return Neighbours(float(below), float(above), exact=False)


def _count(literal: Any, dtype: np.dtype[Any]) -> Fraction:
    """Return a time as an exact multiple of the unit of a column's dtype."""
    unit, step = np.datetime_data(dtype)
    seconds = int(literal.astype(np.int64)) * _SECONDS[np.datetime_data(literal.dtype)[0]]
    if unit not in _SECONDS:
        raise InvalidArgumentError(
            f"filters must name time columns with a unit of days or less, got a column of {dtype}. Use predicate= "
            "instead"
        )
    return seconds / (_SECONDS[unit] * step)


def decimal_test(test: Test, precision: int, scale: int) -> Test:
    """Return an equivalent test whose decimals have a given precision and scale.

    Example:
        >>> decimal_test(Test("price", "<", Decimal("1.255")), precision=5, scale=2)
        test('price' <= Decimal('1.25'))
        >>> decimal_test(Test("price", "<", Decimal("1e9")), precision=5, scale=2)
        test('price' constant True)
    """
    if test.operator == "in":
        places = [_place_decimal(value, precision, scale) for value in test.operand]
        return Test(test.column, "in", tuple(place.below for place in places if place.exact))
    if test.operator in ("constant", "null"):
        return test
    return _place_decimal(test.operand, precision, scale).test(test.column, test.operator)


def _place_decimal(number: Any, precision: int, scale: int) -> Neighbours:
    limit = 10**precision - 1
    place = _place_whole(_fraction(number) * Fraction(10) ** scale, -limit, limit)
    return Neighbours(_decimal(place.below, scale), _decimal(place.above, scale), exact=place.exact)


def _decimal(unscaled: int | None, scale: int) -> Decimal | None:
    if unscaled is None:
        return None
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))
