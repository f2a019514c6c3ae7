"""Literals: values with which filters compare columns, and keys for equal values.

As in Python, `1`, `1.0`, `np.int64(1)` and `Decimal(1)` are equal. Times are equal if they are the same instant, as
`datetime`, `np.datetime64` of any unit, or pandas' `Timestamp`. A time without a time zone is in UTC. NaN and NaT are
not equal to any value. No I/O.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from petastore.errors import InvalidArgumentError
from petastore.schema.values import ATTOSECONDS, numpy_time

__all__ = ["Literal", "as_literal", "equality_key", "equality_keys", "literal_json"]

_AS_THEY_ARE = frozenset({str, int, float, bool, bytes, Decimal, type(None)})


def equality_key(value: Any) -> Hashable:
    """Return a hashable key for a value; equal values have equal keys.

    Raises:
        TypeError: The value cannot be hashed, an array for instance.

    Example:
        >>> equality_key(np.int16(3)) == equality_key(3.0)
        True
        >>> equality_key(np.datetime64("1970-01-02")) == equality_key(np.datetime64("1970-01-02T00", "ns"))
        True
    """
    if type(value) in _AS_THEY_ARE:
        return value
    try:
        literal = as_literal(value)
    except InvalidArgumentError:
        hash(value)
        return value
    if not isinstance(literal, (np.datetime64, np.timedelta64)):
        return literal
    unit, _ = np.datetime_data(literal.dtype)
    return literal.dtype.kind, int(literal.astype(np.int64)) * ATTOSECONDS[unit]


def equality_keys(values: Iterable[Any], *, name: str) -> frozenset[Hashable]:
    """Return the keys of several values, without NaN and NaT, which equal no value.

    Args:
        values: Any collection except text.
        name: The parameter, for messages.

    Raises:
        InvalidArgumentError: The values are not a collection, or a value is not hashable or comparable.

    Example:
        >>> sorted(equality_keys([2, 1.0, np.int8(1), float("nan")], name="values"))
        [1.0, 2]
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidArgumentError(
            f"{name} must be a list or another collection, got {values!r:.80}. Pass [{values!r:.80}] for one value"
        )
    try:
        keys = [equality_key(value) for value in values]
    except TypeError as problem:
        raise InvalidArgumentError(f"{name} must have hashable values, got {problem}") from None
    return frozenset(key for key in keys if _is_itself(key))


def _is_itself(key: Any) -> bool:
    return bool(key == key)  # removes NaN and NaT, the only values that differ from themselves


Literal: TypeAlias = bool | int | float | str | bytes | Decimal | np.datetime64 | np.timedelta64

_FIXED_UNITS = ("D", "s", "ms", "us", "ns", "ps", "fs", "as")
_UNITS_BY_WAY_OF = {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}


def as_literal(value: Any) -> Literal:
    """Return the canonical form of a value with which a filter compares a column.

    NumPy scalars become Python scalars, and times become `datetime64` or `timedelta64`. A `date` becomes
    `datetime64[D]`. A `datetime` becomes `datetime64[us]`, converted to UTC if it has a time zone. A `time` becomes the
    `timedelta64[us]` since midnight. A NumPy time keeps its unit if this is a day, a second or a fraction of a second;
    weeks, months and years become days, and hours and minutes become seconds.

    Raises:
        InvalidArgumentError: No column can be compared with the value; the message says what to write instead.

    Example:
        >>> import datetime as dt
        >>> as_literal(np.float32(0.5)), as_literal(dt.date(2026, 1, 31))
        (0.5, np.datetime64('2026-01-31'))
    """
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    try:
        time = numpy_time(value)  # checked before integers, because NumPy treats durations as integers
    except OverflowError:
        raise InvalidArgumentError(
            f"filters must compare with a time in the years 1 to 9999 in UTC, got {value!r}"
        ) from None
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
    raise InvalidArgumentError(f"filters must compare with a scalar, got {value!r:.80}{_advice(value)}")


def _plain(value: Any) -> Any:
    """Convert a value of a subclass, such as an enum, to its base type, and return it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    kinds: tuple[Any, ...] = (int, float, bytes)
    return next(kind(value) for kind in kinds if isinstance(value, kind))


def _decimal(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise InvalidArgumentError(f"filters must compare with a finite decimal, got {value!r}")
    return value


def _with_fixed_unit(value: np.datetime64 | np.timedelta64) -> Any:
    unit, count = np.datetime_data(value.dtype)
    if np.isnat(value):
        raise InvalidArgumentError("filters must not compare with NaT. Use .is_null() to find missing values")
    if unit in _FIXED_UNITS and count == 1:
        return value
    wanted = _UNITS_BY_WAY_OF.get(unit, unit)
    is_duration_of_months = value.dtype.kind == "m" and unit in "YM"
    if wanted not in _FIXED_UNITS or is_duration_of_months:
        raise InvalidArgumentError(
            f"filters must compare with a time whose unit is days or less, got {value!r} in {unit!r}"
        )
    try:
        converted = value.astype(f"{value.dtype.kind}8[{wanted}]")
    except OverflowError:
        converted = None
    if converted is None or converted.astype(value.dtype) != value:
        raise InvalidArgumentError(f"filters must compare with a time that the unit {wanted!r} can hold, got {value!r}")
    return converted


def _advice(value: Any) -> str:
    if value is None:
        return ": no value equals a missing value. Use col('…').is_null() or col('…').is_valid()"
    if type(value).__name__ == "Column":
        return ": it compares columns with values. Compare columns with each other in a predicate="
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        return "; use .isin([...]) for several values"
    return f", a {type(value).__name__}; give a number, text, bytes, Decimal, date or time"


def literal_json(value: Literal) -> Any:
    """Return a literal as JSON values, which differ for different literals.

    The literals 1, 1.0, True and Decimal(1) are also different.

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
