"""Conversion of columns of Python, NumPy and pandas values to Arrow, without changing a value.

Arrow's own conversion of Python objects ignores the masks of arrays inside lists, makes NaN inside the lists of a
pandas column null, and cuts off nanoseconds, times of day and time zones. Here, such values get a type that holds them,
or are not converted.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrow.scalars import InexactError, exact_time, exact_times
from petastore.schema.arrow import is_list

__all__ = ["arrow_values", "conversion_problem"]

ArrowColumn: TypeAlias = pa.Array | pa.ChunkedArray

_PROBLEMS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Errors of a conversion to Arrow; `InexactError` is a `ValueError`."""

_MISSING = ("NaTType", "NAType")
"""Names of the types of missing values of pandas."""

_FINER_UNITS = {"M": {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}, "m": dict.fromkeys("WDhm", "s")}
"""Arrow's unit for each unit of `datetime64` (kind M) and `timedelta64` (kind m) that Arrow does not have."""


def arrow_values(values: Any) -> ArrowColumn | list[Any]:
    """Return values as an Arrow array, or as a list if Arrow infers no type that holds all of them exactly.

    Args:
        values: A NumPy array of shape (rows,), a pandas column, or a sequence of Python objects.

    Example:
        >>> arrow_values([np.ma.MaskedArray([7, 0], [False, True])]).to_pylist()
        [[7, None]]
        >>> arrow_values([1, "x"])
        [1, 'x']
    """
    try:
        return _inferred(values)
    except _PROBLEMS:
        objects = _with_none(values) if _uses_nan(values) else list(values)
    masked = np.ma.masked
    if any(value is masked for value in objects):
        return arrow_values([None if value is masked else value for value in objects])
    try:
        return _not_inferred(objects)
    except _PROBLEMS:
        return objects


def conversion_problem(values: Sequence[Any]) -> str:
    """Return the reason why `arrow_values` returns values as a list, for messages."""
    try:
        _inferred(values)
    except _PROBLEMS as problem:
        return f"{problem!s:.200}"
    return "Arrow has no type for them"


def _uses_nan(values: Any) -> bool:
    """Return whether NaN means a missing value.

    It does in the object columns of pandas; in numeric columns, NaN is an ordinary value.
    """
    return bool(getattr(values, "dtype", None) == np.dtype(object))


def _with_none(values: Any) -> list[Any]:
    """Return the values of an object column, with None in place of missing values."""
    return [None if _is_missing(value) else value for value in values]


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, (float, np.floating)) and value != value  # only NaN differs from itself
    return is_nan or value is np.ma.masked or type(value).__name__ in _MISSING


def _inferred(values: Any) -> ArrowColumn:
    """Return values in the type that Arrow infers, or in the same type with nanoseconds.

    Raises:
        InexactError: Arrow would change a value.
        pa.ArrowException, TypeError, ValueError, OverflowError: Arrow does not infer a type.
    """
    uses_nan = _uses_nan(values)
    if hasattr(values, "dtype") and not uses_nan:
        if isinstance(values, np.ndarray):
            values = _in_unit_of_arrow(values.astype(values.dtype.newbyteorder("="), copy=False))
        return pa.array(values, from_pandas=False)
    _refuse_mixed_times(values, nan_is_null=uses_nan)
    column = pa.array(values, from_pandas=uses_nan)
    has_nan_inside = uses_nan and pa.types.is_nested(column.type) and _has_null_numbers(column)
    if not (has_nan_inside or _may_change(column.type)):
        return column
    objects = _with_none(values) if uses_nan and column.null_count else list(values)
    if not has_nan_inside:
        return _exact(column, objects, nan_is_null=uses_nan)
    try:  # NaN inside a list or dict is not a missing value
        column = pa.array(objects)
    except _PROBLEMS:  # NaT and NA are missing values
        objects = list(map(_plain, objects))
        column = pa.array(objects)
    return _exact(column, objects)


def _refuse_mixed_times(values: Iterable[Any], *, nan_is_null: bool) -> None:
    """Raise an error for times of NumPy that other values of NumPy follow, with which pyarrow 26 crashes.

    Values inside dicts are not checked.

    Raises:
        TypeError: The values are mixed.
    """
    first = next((leaf for leaf in _leaves(values) if not _is_missing(leaf)), None)
    if isinstance(first, (np.datetime64, np.ndarray)) and first.dtype.kind == "M":
        for leaf in _leaves(values):
            is_null = nan_is_null and isinstance(leaf, float) and leaf != leaf  # Arrow knows only NaN of float64
            if isinstance(leaf, (np.generic, np.ndarray)) and leaf.dtype.kind != "M" and not is_null:
                raise TypeError(f"{first.dtype} and {leaf.dtype} are mixed")


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values inside lists, at any depth, except None."""
    for value in values:
        if value is None:
            continue
        if _has_objects(value):
            yield from _leaves(value)
        else:
            yield value


def _not_inferred(values: list[Any]) -> pa.Array:
    """Return times of NumPy, maps, or large unsigned integers, for which Arrow does not infer a type.

    Raises:
        pa.ArrowException, TypeError, ValueError, OverflowError: The values have another type.
    """
    present = [value for value in values if value is not None]
    for kind in (np.datetime64, np.timedelta64):
        if all(isinstance(value, kind) for value in present):
            return pa.array(_numpy_times(values, {value.dtype for value in present}))
    if all(isinstance(value, int) for value in present):
        return pa.array(values, pa.uint64())
    if not all(isinstance(value, list) for value in present):
        raise TypeError("Arrow has no type for them")
    pairs = list(itertools.chain.from_iterable(present))
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise TypeError("Arrow has no type for them")
    kind = pa.map_(*(_inferred(list(side)).type for side in zip(*pairs, strict=True)))
    return _exact(pa.array(values, kind), values)


def _has_null_numbers(column: ArrowColumn) -> bool:
    """Return whether numbers inside lists and structs are null."""
    types, kind = pa.types, column.type
    if isinstance(column, pa.ChunkedArray):
        return any(map(_has_null_numbers, column.chunks))
    if types.is_struct(kind):
        return any(map(_has_null_numbers, column.drop_null().flatten()))
    if is_list(kind):
        return _has_null_numbers(column.flatten())
    is_number = types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind)
    return bool(column.null_count and is_number and not types.is_temporal(kind))


def _in_unit_of_arrow(times: NDArray[Any]) -> NDArray[Any]:
    """Convert times to a unit that Arrow has; return other arrays unchanged.

    Raises:
        InexactError: A time is too large for the unit, or Arrow has no unit for it.
    """
    if times.dtype.kind not in "mM":
        return times
    if isinstance(times, np.ma.MaskedArray):
        times = times.filled(times.dtype.type("NaT"))
    unit, _ = np.datetime_data(times.dtype)
    unit = _FINER_UNITS[times.dtype.kind].get(unit, unit)
    times = exact_times(times, np.dtype(f"{times.dtype.kind}8[{unit}]"))
    if unit == "D":  # Arrow stores days in 32 bits, and does not check them
        days = times[~np.isnat(times)].astype(np.int64)
        if len(days) and not -(2**31) <= days.min() <= days.max() < 2**31:
            raise InexactError("Arrow stores days in 32 bits")
    return times


def _numpy_times(values: list[Any], dtypes: set[np.dtype[Any]]) -> NDArray[Any]:
    """Return scalars of `datetime64` or `timedelta64` as one array, with NaT for None.

    Raises:
        InexactError: The finest unit does not hold all times.
    """
    finest = np.result_type(*dtypes)
    if len(dtypes) > 1:  # NumPy would not notice times that are too large for the finest unit
        values = [value if value is None or np.isnat(value) else exact_time(value, finest) for value in values]
    return _in_unit_of_arrow(np.array(["NaT" if value is None else value for value in values], finest))


def _exact(column: ArrowColumn, values: list[Any], *, nan_is_null: bool = False) -> ArrowColumn:
    """Return a column that was converted from `values`, converted again if Arrow changed a value.

    Raises:
        InexactError: Arrow has no type that holds all values.
    """
    try:
        kind = _exact_type(column.type, values)
    except _MaskedItemsError:
        values = list(map(_plain, values))
        return pa.array(values, _exact_type(column.type, values), from_pandas=nan_is_null)
    return column if kind == column.type else pa.array(values, kind, from_pandas=nan_is_null)


class _MaskedItemsError(Exception):
    """A list is a masked array, whose mask Arrow ignores."""


def _may_change(kind: pa.DataType) -> bool:
    """Return whether Arrow may change a value when it converts Python objects to a type."""
    if pa.types.is_struct(kind):
        return any(_may_change(member.type) for member in kind)
    return bool(pa.types.is_nested(kind) or pa.types.is_temporal(kind))


def _exact_type(kind: pa.DataType, values: Iterable[Any]) -> pa.DataType:
    """Return the type that Arrow infers, with nanoseconds where the values have some.

    Args:
        kind: Type that Arrow infers.
        values: The values, which are not iterated if Arrow does not change values of this type.

    Raises:
        InexactError: Arrow has no type that holds all values.
        _MaskedItemsError: A list is a masked array, at any depth.
    """
    if not _may_change(kind):
        return kind
    values, types = list(values), pa.types
    if types.is_temporal(kind):
        return _exact_time_type(kind, values)
    if types.is_struct(kind):
        dicts = [value for value in values if isinstance(value, dict)]
        members = ((member, (value.get(member.name) for value in dicts)) for member in kind)
        return pa.struct([member.with_type(_exact_type(member.type, inside)) for member, inside in members])
    if types.is_map(kind):
        pairs = list(_items(values))
        keys, items = (key for key, _ in pairs), (item for _, item in pairs)
        return pa.map_(_exact_type(kind.key_type, keys), _exact_type(kind.item_type, items))
    if any(issubclass(one, np.ma.MaskedArray) for one in set(map(type, values))):
        raise _MaskedItemsError
    return pa.list_(kind.value_field.with_type(_exact_type(kind.value_type, _items(values))))


def _items(values: list[Any]) -> Iterator[Any]:
    """Yield the items of all lists, without those of arrays of numbers or times."""
    return itertools.chain.from_iterable(filter(_has_objects, values))


def _has_objects(value: Any) -> bool:
    is_list = isinstance(value, (list, tuple, set))
    return is_list or (isinstance(value, np.ndarray) and value.ndim > 0 and value.dtype == np.dtype(object))


def _exact_time_type(kind: pa.DataType, values: list[Any]) -> pa.DataType:
    types, classes = pa.types, set(map(type, values))
    if types.is_date(kind) and any(issubclass(one, dt.datetime) for one in classes):
        raise InexactError("dates and times are mixed")
    if types.is_time(kind) and any(getattr(value, "tzinfo", None) is not None for value in values):
        raise InexactError("Arrow has no type for times of day with a time zone")
    if types.is_timestamp(kind):
        has_zone = {value.tzinfo is not None for value in values if isinstance(value, dt.datetime) and value == value}
        if len(has_zone) > 1:
            raise InexactError("times with and without a time zone are mixed")
    nanoseconds = "nanosecond" if types.is_timestamp(kind) else "nanoseconds"  # attributes of pandas types
    is_pandas = any(hasattr(one, nanoseconds) for one in classes)
    if not is_pandas or not any(getattr(value, nanoseconds, 0) > 0 for value in values):
        return kind
    return pa.timestamp("ns", kind.tz) if types.is_timestamp(kind) else pa.duration("ns")


def _plain(value: Any) -> Any:
    """Return a value with a list in place of each masked array, and None in place of masked items, NaT and NA."""
    if isinstance(value, np.ma.MaskedArray) and not value.dtype.hasobject:
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if _has_objects(value):
        return list(map(_plain, value))
    return None if type(value).__name__ in _MISSING else value
