"""Equality: when two values are the same one, as a key that can be looked up. Pure.

`1`, `1.0`, `np.int64(1)` and `Decimal(1)` are one value, as in Python. An instant is one value however it is written:
`datetime`, `np.datetime64` of any unit, pandas' `Timestamp`; with a zone it is the instant in UTC, without one it is
taken to be in UTC. NaN and NaT are equal to nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from petastore.errors import InvalidArgumentError
from petastore.expressions.literal import as_literal
from petastore.schema.units import ATTOSECONDS

__all__ = ["equality_key", "equality_keys"]

_AS_THEY_ARE = frozenset({str, int, float, bool, bytes, Decimal, type(None)})


def equality_key(value: Any) -> Hashable:
    """What equal values share; hash and `==` of it agree with what this module says of values.

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
    """The keys of several values, without those that are equal to nothing.

    Args:
        values: Any collection but text.
        name: The parameter, for messages.

    Raises:
        InvalidArgumentError: They are no collection, or one of them cannot be looked up.

    Example:
        >>> sorted(equality_keys([2, 1.0, np.int8(1), float("nan")], name="values"))
        [1.0, 2]
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidArgumentError(
            f"{name} is a collection of values, but {values!r:.80} was given: put it into brackets"
        )
    try:
        keys = [equality_key(value) for value in values]
    except TypeError as problem:
        raise InvalidArgumentError(f"{name} holds a value that cannot be looked up: {problem}") from None
    return frozenset(key for key in keys if _is_itself(key))


def _is_itself(key: Any) -> bool:
    return bool(key == key)  # false for NaN and NaT alone
