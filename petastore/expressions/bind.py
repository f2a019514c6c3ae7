"""Bind: an expression meets the fields of a schema, and becomes tests on the values that the columns really have. Pure.

Comparisons are exact. A literal that the column cannot hold is never rounded towards a match: over integers `x < 2.5`
becomes `x <= 2` and `x == 2.5` is never true; `x < 300` over `uint8` is always true, and nothing overflows. What is
bound is therefore in the column's own *domain*, and can be tested by plain comparisons:

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

__all__ = ["Neighbours", "Test", "bind", "decimal_test"]

_SECONDS: dict[str, Fraction] = {
    "D": Fraction(86400),
    **{unit: Fraction(1, 1000**power) for power, unit in enumerate(("s", "ms", "us", "ns", "ps", "fs", "as"))},
}
_LARGEST_DIGITS = 1000
_SCALAR_CODEC = "scalar"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Test(Expression):
    """One test of one column, in the column's domain. Null where the value is missing, but for `null`."""

    __test__ = False  # pytest: no test class

    column: str
    """Name of the column."""

    operator: str
    """`==`, `<`, `<=`, `>`, `>=`; `in`; `constant`: the same for every value; `null`: whether the value is missing."""

    operand: Any
    """A value of the domain; for `in` a sorted tuple of them; for `constant` the answer; for `null` None."""

    def describe(self) -> list[Any]:
        """`["test", column, operator, operand]`, for people."""
        return ["test", self.column, self.operator, repr(self.operand)]

    def __repr__(self) -> str:
        return f"test({self.column!r} {self.operator} {self.operand!r})"


@dataclasses.dataclass(frozen=True, slots=True)
class Neighbours:
    """Where a number stands among the values of a domain; both are the number where the domain has it."""

    below: Any
    """The largest value that is not above the number; None where all are."""

    above: Any
    """The smallest value that is not below the number; None where all are."""

    exact: bool
    """Whether the domain has the number itself."""

    def test(self, column: str, operator: str) -> Test:
        """The test on values of the domain that means the comparison with the number."""
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
    """The expression with `Test` in place of each comparison.

    Args:
        expression: What was asked.
        fields: The fields that there are, by name.
        among: What has these fields, for messages.

    Raises:
        InvalidArgumentError: There is no such column, its values cannot be compared, or a literal is of another kind.

    Example:
        >>> from petastore.expressions import col
        >>> age = UnischemaField("age", "uint8")
        >>> bind((col("age") > 17.5) & (col("age") < 300), {"age": age}, among="the dataset")
        (test('age' >= 18)) & (test('age' constant True))
    """
    return fold(expression, lambda leaf: _bound(leaf, _field(leaf.column, fields, among)))


def _field(name: str, fields: Mapping[str, UnischemaField], among: str) -> UnischemaField:
    if name not in fields:
        raise InvalidArgumentError(
            f"the filter names the column {name!r}, but {among} has {', '.join(map(repr, fields))}"
        )
    field = fields[name]
    if field.codec is not None and field.codec.codec_id != _SCALAR_CODEC:
        raise InvalidArgumentError(f"filters= compares stored values, but {field!r} is encoded; use predicate= for it")
    if field.shape:
        raise InvalidArgumentError(f"filters= compares scalars, but {field!r} has a shape; use predicate= for it")
    if field.numpy_dtype not in (np.str_, np.bytes_, Decimal) and field.dtype.kind not in "biufmM":
        raise InvalidArgumentError(f"filters= has no order for {field.dtype_name} of {field!r}; use predicate= for it")
    return field


def _bound(leaf: Expression, field: UnischemaField) -> Expression:
    if isinstance(leaf, NullTest):
        return Test(leaf.column, "null", None)
    if isinstance(leaf, Membership):
        places = [_place(literal, field) for literal in leaf.literals]
        return Test(leaf.column, "in", tuple(sorted({place.below for place in places if place and place.exact})))
    if not isinstance(leaf, Comparison):
        raise InvalidArgumentError(f"{leaf!r} is no comparison")
    place = _place(leaf.literal, field)
    # IEEE: every comparison with NaN is false, and so != is true.
    operator = "==" if leaf.operator == "!=" else leaf.operator
    test = Test(leaf.column, "constant", False) if place is None else place.test(leaf.column, operator)
    return Not(test) if leaf.operator == "!=" else test


def _place(literal: Literal, field: UnischemaField) -> Neighbours | None:
    """Where a literal stands among the values of a field; None for NaN.

    Raises:
        InvalidArgumentError: They are of different kinds.
    """
    kind, takes = _kind(field)
    if not isinstance(literal, takes) or (isinstance(literal, bool) and kind != "b"):
        raise InvalidArgumentError(
            f"column {field.name!r} is {field.dtype_name}, and the filter compares it with the {_type(literal)} "
            f"{literal!r:.80}; {_WHAT_TO_GIVE[kind]}"
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
        limit = np.iinfo(np.int64).max  # the smallest integer is NaT
        return _place_whole(_count(literal, field.dtype), -limit, limit)
    limits = np.iinfo(field.dtype)
    return _place_whole(literal, int(limits.min), int(limits.max))


_NUMBERS = (int, float, Decimal)
_WHAT_TO_GIVE = {
    "b": "give True or False",
    "bytes": "give bytes, such as b'…'",
    "text": "give text, such as '…'",
    "decimal": "give a Decimal or an int: Decimal('0.1') where that is what you mean",
    "f": "give a number",
    "i": "give a number",
    "M": "give a date, a datetime or a numpy.datetime64",
    "m": "give a timedelta, a time or a numpy.timedelta64",
}


def _kind(field: UnischemaField) -> tuple[str, tuple[type, ...]]:
    """The kind of a field's values, and the literals that it takes."""
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
            f"column {field.name!r} is text, and {literal!r:.80} is none: it has a lone surrogate"
        ) from None
    return Neighbours(encoded, encoded, exact=True)


def _fraction(number: Any) -> Fraction:
    """A finite number, exactly; decimals beyond all domains are cut to what is still beyond them."""
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
    """Infinities are values of a float, so it has neighbours for every number."""
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
    """A time as a number of units of a dtype."""
    unit, step = np.datetime_data(dtype)
    seconds = int(literal.astype(np.int64)) * _SECONDS[np.datetime_data(literal.dtype)[0]]
    if unit not in _SECONDS:
        raise InvalidArgumentError(f"a filter cannot compare with columns of {dtype}: its unit has no fixed length")
    return seconds / (_SECONDS[unit] * step)


def decimal_test(test: Test, precision: int, scale: int) -> Test:
    """A test on decimals as a test on decimals of one precision and scale, with an operand that is one of them.

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
