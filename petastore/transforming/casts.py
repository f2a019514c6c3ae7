"""Find values that change when they are cast to another dtype of the same kind, because they are out of its range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["first_out_of_range"]


def first_out_of_range(values: NDArray[Any], cast: NDArray[Any]) -> tuple[int, ...] | None:
    """Return the index of the first value that is out of range of a dtype; None if the dtype can hold all values.

    An integer or time is out of range if it wraps around, and a finite number if it becomes infinite. Rounded floats
    and times are in range. Masked values are ignored.

    Args:
        values: Values before the cast.
        cast: Values after the cast, which `numpy.can_cast` allows with `"same_kind"`.

    Example:
        >>> first_out_of_range(np.array([1, 300]), np.array([1, 44], np.uint8))
        (1,)
    """
    is_changed = _is_changed(values, cast)
    if is_changed is None or not np.count_nonzero(is_changed):  # `any()` takes ten times as long for a small array
        return None
    is_changed = np.ma.getdata(is_changed) & ~np.ma.getmaskarray(values)
    if not is_changed.any():
        return None
    return tuple(map(int, np.unravel_index(int(np.argmax(is_changed)), is_changed.shape)))


def _is_changed(values: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return a mask of the values that a cast changes, other than by rounding; None if it changes no value."""
    kind = cast.dtype.kind
    is_safe = np.can_cast(values.dtype, cast.dtype, "safe")
    if kind in "mM":  # NumPy treats a cast to a finer unit as safe, although it may overflow
        is_finer = is_safe and values.dtype.kind == kind
        return (cast.astype(values.dtype) != values) & ~np.isnat(values) if is_finer else None
    if is_safe:
        return None
    if kind in "iu":
        return cast != values
    is_infinite = np.isinf(cast)
    return is_infinite & ~np.isinf(values) if np.count_nonzero(is_infinite) else None
