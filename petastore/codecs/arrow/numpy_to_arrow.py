"""Many scalars to one Arrow column at once, equal to `petastore.codecs.arrow.scalars.encode_scalar` value by value.

Values that share a type which NumPy can take exactly go through one array; a list of anything else goes value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow.memory import NUMBER_DTYPES
from petastore.codecs.arrow.arrow_to_numpy import put_numbers
from petastore.codecs.arrow.scalars import encode_scalar
from petastore.errors import DecodeError, EncodeError
from petastore.schema.field import UnischemaField

__all__ = ["cells_array", "encode_each", "encode_scalars"]

_WHOLE_NUMBERS = "biu"
_NUMBERS = "biuf"


def cells_array(cells: list[Any], stored: pa.DataType, field: UnischemaField) -> pa.Array:
    """One Arrow array of cells; None becomes null.

    Raises:
        EncodeError: The cells are too large for one array of this type.
    """
    try:
        made = pa.array(cells, stored)
    except pa.ArrowCapacityError:
        made = None
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
        raise EncodeError(f"the values cannot be stored as {stored}: {problem}", column=field.name) from None
    if not isinstance(made, pa.Array):
        raise EncodeError(
            f"{len(cells):,} cells are more than the 2 GiB of one {stored} column; encode fewer rows at once",
            column=field.name,
        )
    return made


def encode_each(
    values: Sequence[Any] | NDArray[Any],
    encode: Callable[[UnischemaField, Any], Any],
    stored: pa.DataType,
    field: UnischemaField,
) -> pa.Array:
    """A column of values that are encoded one by one; None becomes null.

    Raises:
        EncodeError: As `encode`, with `row` set; or as `cells_array`.
    """
    cells: list[Any] = []
    for row, value in enumerate(values):
        try:
            cells.append(None if value is None else encode(field, value))
        except EncodeError as problem:
            raise problem.at(row=row) from None
    return cells_array(cells, stored, field)


def encode_scalars(values: Sequence[Any] | NDArray[Any], field: UnischemaField, stored: pa.DataType) -> pa.Array:
    """A column of scalars as `stored`.

    Args:
        values: An array `(rows,)`, a masked one (masked becomes null), or a list of scalars (None becomes null).
        field: What was declared.
        stored: Type of the column.

    Raises:
        EncodeError: As `encode_scalar`, with `row` set.
    """
    present, known = _present(values)
    numbers = _as_numbers(present, field)
    if numbers is None:
        return _encode_by_value(values, field, stored)
    try:
        column = _numbers_column(numbers, field, stored)
    except (DecodeError, EncodeError, OverflowError):
        column = None
    if column is None:
        # Something cannot be stored, or needs the exact rules: they are written down once, for one value.
        return _encode_by_value(values, field, stored)
    return column if known is None else _spread(column, known)


def _present(values: Sequence[Any] | NDArray[Any]) -> tuple[Sequence[Any] | NDArray[Any], NDArray[np.bool_] | None]:
    """The values that are there, and which are (None: all)."""
    if isinstance(values, np.ma.MaskedArray):
        known = ~np.ma.getmaskarray(values)
        return values.data[known], known
    if isinstance(values, np.ndarray) and values.dtype != np.dtype(object):
        return values, None
    if not any(value is None for value in values):
        return values, None
    known = np.array([value is not None for value in values], np.bool_)
    return [value for value in values if value is not None], known


def _as_numbers(values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> NDArray[Any] | None:
    """The values as one array of a NumPy dtype that holds each of them exactly, or None if there is no such dtype."""
    if isinstance(values, np.ndarray) and values.dtype != np.dtype(object):
        return values if values.ndim == 1 and values.dtype.kind in _NUMBERS + "mM" else None
    kinds = set(map(type, values))
    if field.dtype.kind in "mM" or len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind in (int, float, bool):
        try:
            return np.array(values, {int: np.int64, float: np.float64, bool: np.bool_}[kind])
        except OverflowError:
            return None
    if issubclass(kind, np.generic) and np.dtype(kind).kind in _NUMBERS:
        return np.array(values, kind)
    return None


def _numbers_column(numbers: NDArray[Any], field: UnischemaField, stored: pa.DataType) -> pa.Array | None:
    """The column of exact numbers or times; None where it must be made value by value."""
    if numbers.dtype.kind in "mM":
        return _times_column(numbers, field, stored)
    if field.dtype.kind not in _NUMBERS or numbers.dtype.kind not in _NUMBERS:
        return None
    if numbers.dtype != field.dtype:
        declared = np.empty(numbers.shape, field.dtype)
        put_numbers(numbers, field, declared)
        numbers = declared
    types = pa.types
    if types.is_decimal128(stored):
        return _decimals_column(numbers, stored)
    if not (types.is_boolean(stored) or types.is_integer(stored) or types.is_floating(stored)):
        return None
    target = UnischemaField(field.name, NUMBER_DTYPES[stored])
    written = np.empty(numbers.shape, target.dtype)
    put_numbers(numbers, target, written)
    return pa.array(written, stored)


def _decimals_column(numbers: NDArray[Any], stored: pa.Decimal128Type) -> pa.Array | None:
    """Whole numbers as 128-bit decimals without a fraction, written as pairs of 64-bit words."""
    if numbers.dtype.kind not in _WHOLE_NUMBERS or stored.scale != 0:
        return None
    if stored.precision < 20 and numbers.size and (np.abs(numbers.astype(np.float64)) >= 10.0**stored.precision).any():
        return None
    words = np.zeros((len(numbers), 2), np.uint64)
    words[:, 0] = numbers.astype(np.int64).view(np.uint64) if numbers.dtype.kind != "u" else numbers
    if numbers.dtype.kind == "i":
        words[:, 1] = (numbers.astype(np.int64) >> 63).view(np.uint64)
    return pa.Array.from_buffers(stored, len(numbers), [None, pa.py_buffer(words)])


def _times_column(times: NDArray[Any], field: UnischemaField, stored: pa.DataType) -> pa.Array | None:
    """Times whose unit is converted exactly; None where one cannot be."""
    if times.dtype.kind != field.dtype.kind or np.datetime_data(times.dtype)[0] == "generic" or np.isnat(times).any():
        return None
    declared = _exact_unit(times, field.dtype)
    types = pa.types
    if declared is None:
        return None
    if types.is_date32(stored):
        days = _exact_unit(declared, np.dtype("datetime64[D]"))
        return None if days is None or not _in_years(days) else pa.array(days.astype(np.int32), pa.int32()).view(stored)
    if types.is_timestamp(stored):
        written = _exact_unit(declared, np.dtype(f"datetime64[{stored.unit}]"))
        return None if written is None or not _in_years(written) else pa.array(written.astype(np.int64)).view(stored)
    return pa.array(declared.astype(np.int64)) if stored == pa.int64() else None


def _exact_unit(times: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    if times.dtype == dtype:
        return times
    converted = times.astype(dtype)
    return converted if bool((converted.astype(times.dtype) == times).all()) else None


def _in_years(times: NDArray[Any]) -> bool:
    """Whether all are of the years 1 to 9999, which Python and Spark can hold."""
    days = times.astype("datetime64[D]")
    return bool(((days >= np.datetime64("0001-01-01")) & (days <= np.datetime64("9999-12-31"))).all())


def _spread(column: pa.Array, known: NDArray[np.bool_]) -> pa.Array:
    """The column with nulls put in between."""
    positions = np.cumsum(known) - 1
    return pc.take(column, pa.array(positions, pa.int64(), mask=~known))


def _encode_by_value(values: Sequence[Any] | NDArray[Any], field: UnischemaField, stored: pa.DataType) -> pa.Array:
    if isinstance(values, np.ndarray) and values.dtype.kind in "SU" and values.ndim == 1:
        values = values.tolist()
    if field.numpy_dtype is np.str_ and stored == pa.string() and set(map(type, values)) <= {str, type(None)}:
        try:
            return cells_array(list(values), stored, field)
        except UnicodeEncodeError:
            pass  # the loop names the row
    present = [None if value is np.ma.masked else value for value in values]
    return encode_each(present, lambda field, value: encode_scalar(field, value, stored), stored, field)
