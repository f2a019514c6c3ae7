"""Byte sizes such as `memory_budget="2GB"`: numbers of bytes, or text with a unit."""

from __future__ import annotations

import numbers
import re
from typing import Any, Final, TypeAlias

from petastore.errors import InvalidArgumentError

__all__ = ["ByteSize", "byte_size"]

ByteSize: TypeAlias = int | str
"""A number of bytes, or text: `"512MB"` is 512 · 10⁶ bytes, `"2 GiB"` is 2 · 2³⁰ bytes."""

_UNITS: Final = {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate(("", "k", "m", "g", "t", "p"))
    for suffix, base in (("b", 1000), ("ib", 1024), ("", 1000))
    if prefix or suffix != "ib"
}
_WRITTEN: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def byte_size(value: Any, *, name: str, least: int = 1) -> int:
    """Convert a byte size such as `"2GB"` to a whole number of bytes.

    Args:
        value: A whole number; or a decimal number with a unit: B, kB, MB, GB, TB, PB (powers of 1,000) or KiB, MiB,
            GiB, TiB, PiB (powers of 1,024). Upper and lower case are equal; the B of kB, MB, … may be missing.
        name: Name of the parameter, for the error message.
        least: Minimum size in bytes.

    Raises:
        InvalidArgumentError: `value` has another form, or is smaller than `least`.

    Example:
        >>> byte_size("2GB", name="memory_budget"), byte_size("1.5 KiB", name="memory_budget")
        (2000000000, 1536)
        >>> byte_size("2 gigs", name="memory_budget")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: memory_budget must be a number of bytes or text such as '2GB', got
        '2 gigs'
    """
    size = value
    if isinstance(value, str) and (written := _WRITTEN.fullmatch(value)) and written[2].lower() in _UNITS:
        size = int(float(written[1]) * _UNITS[written[2].lower()])
    if isinstance(size, bool) or not isinstance(size, numbers.Integral):
        raise InvalidArgumentError(f"{name} must be a number of bytes or text such as '2GB', got {value!r}")
    if size < least:
        raise InvalidArgumentError(f"{name} must be at least {least:,} bytes, got {value!r}")
    return int(size)
