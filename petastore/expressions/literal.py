"""Literals: the values that a filter compares columns with, in one spelling each. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from petastore.errors import InvalidArgumentError
from petastore.schema.times import numpy_time

__all__ = ["Literal", "as_literal", "literal_json"]

Literal: TypeAlias = bool | int | float | str | bytes | Decimal | np.datetime64 | np.timedelta64

_FIXED_UNITS = ("D", "s", "ms", "us", "ns", "ps", "fs", "as")
_UNITS_BY_WAY_OF = {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}


def as_literal(value: Any) -> Literal:
    """A value in its one spelling: NumPy's scalars as Python's, times as `datetime64` or `timedelta64`.

    A `date` is a `datetime64[D]`. A `datetime` is a `datetime64[us]`, taken to UTC where it has a zone. A `time` is the
    `timedelta64[us]` since midnight. A NumPy time keeps its unit.

    Raises:
        InvalidArgumentError: No column can be compared with it; the message says what to write instead.

    Example:
        >>> import datetime as dt
        >>> as_literal(np.float32(0.5)), as_literal(dt.date(2026, 1, 31))
        (0.5, np.datetime64('2026-01-31'))
    """
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    try:
        time = numpy_time(value)  # before integers: NumPy counts durations among them
    except OverflowError:
        raise InvalidArgumentError(f"a filter cannot compare with {value!r}: it is out of range in UTC") from None
    if time is not None:
        return _with_fixed_unit(time)
    if isinstance(value, (np.bool_, np.integer, np.floating, np.str_, np.bytes_)):
        value = value.item()
    if isinstance(value, (bool, int, float, str, bytes)):
        return _plain(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    raise InvalidArgumentError(f"a filter cannot compare with {value!r:.80}{_advice(value)}")


def _plain(value: Any) -> Any:
    """The value without the subclass that it may have, such as an enum's."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    kinds: tuple[Any, ...] = (int, float, bytes)
    return next(kind(value) for kind in kinds if isinstance(value, kind))


def _decimal(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise InvalidArgumentError(f"a filter cannot compare with {value!r}: decimals are finite")
    return value


def _with_fixed_unit(value: np.datetime64 | np.timedelta64) -> Any:
    unit, count = np.datetime_data(value.dtype)
    if np.isnat(value):
        raise InvalidArgumentError("a filter cannot compare with NaT; ask for missing values with .is_null()")
    if unit in _FIXED_UNITS and count == 1:
        return value
    wanted = _UNITS_BY_WAY_OF.get(unit, unit)
    is_duration_of_months = value.dtype.kind == "m" and unit in "YM"
    if wanted not in _FIXED_UNITS or is_duration_of_months:
        raise InvalidArgumentError(f"a filter cannot compare with {value!r}: the unit {unit!r} has no fixed length")
    try:
        converted = value.astype(f"{value.dtype.kind}8[{wanted}]")
    except OverflowError:
        converted = None
    if converted is None or converted.astype(value.dtype) != value:
        raise InvalidArgumentError(f"a filter cannot compare with {value!r}: it is out of range in the unit {wanted!r}")
    return converted


def _advice(value: Any) -> str:
    if value is None:
        return ": nothing is equal to a missing value. Ask for it with .is_null() or .is_valid()"
    if type(value).__name__ == "Column":
        return ": it compares columns with values. Compare columns with each other in a predicate="
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        return "; ask for one of several values with .isin([...])"
    return f", a {type(value).__name__}; give a number, text, bytes, Decimal, date or time"


def literal_json(value: Literal) -> Any:
    """A literal as JSON, other literals as other JSON: 1, 1.0, True and Decimal(1) all differ.

    Example:
        >>> literal_json("x"), literal_json(1), literal_json(1.0), literal_json(np.datetime64("2026-01-31"))
        ('x', 1, {'float': '1.0'}, {'datetime64[D]': '2026-01-31'})
    """
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, np.datetime64):
        return {value.dtype.name: str(value)}
    return {value.dtype.name: int(value.astype(np.int64))}
