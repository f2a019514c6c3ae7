"""Encode one scalar as a stored cell, and decode it.

These functions define the results of the vectorized column functions. A value is first converted to the dtype that its
field declares, then to the stored type. Both steps are exact or raise: 3.0 is a valid integer and 3.7 is not, 300 does
not fit into `uint8`, and nanoseconds must be whole microseconds in a column of microseconds. There are two exceptions:
a float that is converted to a narrower float, and a decimal that is read as a float, are rounded to the nearest value.
A finite number never becomes infinite. Text is never converted to a number, nor a number to text.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import NUMBER_DTYPES
from petastore.codecs.declared import check_present
from petastore.errors import DecodeError, EncodeError
from petastore.schema.field import UnischemaField
from petastore.schema.values import numpy_time

__all__ = [
    "InexactError", "decode_scalar", "describe", "encode_scalar", "exact_number", "exact_time", "exact_times",
    "nested_values",
]  # fmt: skip

# Enough precision for every decimal that Parquet can store, so that no intermediate result is rounded.
_DECIMALS = decimal.Context(prec=100)


class InexactError(ValueError):
    """The requested type has no exactly equal value; the message has the reason.

    Codecs convert this error to `EncodeError` or `DecodeError`.
    """


def describe(value: Any) -> str:
    """Describe a value for an error message.

    An array is described by dtype and shape, another value by its type and its `repr`, shortened.
    """
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def encode_scalar(field: UnischemaField, value: Any, stored: pa.DataType) -> Any:
    """Encode one value as the Python object of a cell of type `stored`.

    Arrow and Spark accept this object.

    Raises:
        EncodeError: The value is None, has another kind of type, is out of range, or cannot be converted exactly.
    """
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    check_present(value, field)
    try:
        if isinstance(value, str) and field.numpy_dtype is np.bytes_ and pa.types.is_string(stored):
            value = _utf8(value)  # bytes that are stored as text become the same cell as the text
        return _stored(_declared(value, field), stored)
    except InexactError as problem:
        raise EncodeError(
            f"{describe(value)} cannot be written as {field.dtype_name} stored as {stored}: {problem}",
            column=field.name,
        ) from None


def decode_scalar(field: UnischemaField, cell: Any) -> Any:
    """Decode one stored cell to a NumPy scalar, `str`, `bytes` or `Decimal`.

    A NumPy scalar has the dtype `field.dtype`.

    Raises:
        DecodeError: The cell cannot be converted to the declared dtype.
    """
    try:
        return _declared_from_cell(cell, field)
    except InexactError as problem:
        raise DecodeError(
            f"the cell {describe(cell)} cannot be read as {field.dtype_name}: {problem}", column=field.name
        ) from None


def exact_number(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the NumPy scalar of `dtype` that equals a number.

    Floats and decimals may be rounded to the nearest float of `dtype`.

    Raises:
        InexactError: No scalar of `dtype` equals the value, or the value is not a number.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float, Decimal)):
        raise InexactError("the value must be a number")
    if dtype.kind == "f":
        return _exact_float(value, dtype)
    whole = _whole(value)
    if dtype.kind == "b":
        if whole not in (0, 1) or isinstance(value, (float, Decimal)):
            raise InexactError("a boolean must be True, False, 1 or 0")
        return np.bool_(whole)
    limits = np.iinfo(dtype)
    if not limits.min <= whole <= limits.max:
        raise InexactError(f"the value must be from {limits.min} to {limits.max}, the range of {dtype}")
    return dtype.type(whole)


def _whole(value: float | Decimal) -> int:
    """Return a number without a fraction as an int.

    Raises:
        InexactError: The number has a fraction, is not finite, or is very large.
    """
    is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    if not is_finite:
        raise InexactError("the value must be finite")
    if isinstance(value, Decimal) and value.adjusted() > 100:
        raise InexactError("the value is too large for an integer")
    if int(value) != value:
        raise InexactError("the value must be an integer")
    return int(value)


def _exact_float(value: float | Decimal, dtype: np.dtype[Any]) -> Any:
    try:
        wide = float(value)
    except OverflowError:
        raise InexactError(f"the value is too large for {dtype}") from None
    except ValueError:
        raise InexactError(f"{dtype} cannot hold a signaling NaN") from None
    with np.errstate(over="ignore"):
        narrow = dtype.type(wide)
    if np.isinf(narrow) and not (isinstance(value, float) and math.isinf(value)):
        raise InexactError(f"the value is too large for {dtype}")
    if isinstance(value, int) and int(narrow) != value:
        raise InexactError(f"{dtype} cannot hold this integer exactly")
    return narrow


def exact_time(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a time exactly to a dtype of `datetime64` or `timedelta64`.

    Times with a time zone are converted to UTC.

    Raises:
        InexactError: The value cannot be converted exactly, is NaT, or is not a time of this kind.
    """
    source = _numpy_time(value, dtype.kind)
    if np.isnat(source):
        raise InexactError("the time must not be NaT. Give None for a missing value")
    if np.datetime_data(source.dtype)[0] == "generic":
        raise InexactError("the time must have a unit, such as in np.datetime64(7, 'us')")
    try:
        converted = source.astype(dtype)
    except (OverflowError, TypeError):
        raise InexactError(f"{dtype} cannot hold this time exactly") from None
    if np.isnat(converted) or converted.astype(source.dtype) != source:
        raise InexactError(f"{dtype} cannot hold this time exactly")
    return converted


def exact_times(times: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return times exactly converted to another unit; NaT stays NaT.

    Raises:
        InexactError: A time cannot be converted exactly, or the times have no unit.
    """
    if times.dtype == dtype:
        return times
    if np.datetime_data(times.dtype)[0] == "generic":
        raise InexactError("the times must have a unit, such as datetime64[us]")
    try:
        converted = times.astype(dtype)
        is_exact = bool(((converted.astype(times.dtype) == times) | np.isnat(times)).all())
    except OverflowError:
        is_exact = False
    if not is_exact:
        raise InexactError(f"{dtype} cannot hold all times of {times.dtype} exactly")
    return converted


def _numpy_time(value: Any, kind: str) -> Any:
    """Convert a time to a NumPy scalar.

    Kind `M` means a timestamp or date, and kind `m` a duration or time of day.
    """
    try:
        found = numpy_time(value)
    except OverflowError:
        raise InexactError("the time must be in the years 1 to 9999 in UTC") from None
    if found is None or found.dtype.kind != kind:
        raise InexactError(f"the value must be a {'date or time' if kind == 'M' else 'duration or time of day'}")
    return found


def _declared(value: Any, field: UnischemaField) -> Any:
    """Convert a value to the dtype that its field declares, before it is written."""
    kind = field.numpy_dtype
    if kind is np.str_:
        if not isinstance(value, str):
            raise InexactError("the value must be text")
        return str(value)
    if kind is np.bytes_:
        if isinstance(value, uuid.UUID):
            return value.bytes
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise InexactError("the value must be bytes")
        return bytes(value)
    if kind is Decimal:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Decimal, int, np.integer)):
            raise InexactError("the value must be a Decimal, such as Decimal(str(value))")
        return _finite(Decimal(int(value)) if isinstance(value, np.integer) else Decimal(value))
    if field.dtype.kind in "mM":
        return exact_time(value, field.dtype)
    if field.dtype.kind in "biuf":
        return exact_number(value, field.dtype)
    raise InexactError(f"Arrow has no type for {field.dtype_name}. Give the field a codec")


def _finite(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise InexactError("a decimal must be finite")
    return value


def _declared_from_cell(cell: Any, field: UnischemaField) -> Any:
    """Convert a stored cell to the dtype of its field.

    Text may be stored as bytes, and decimals as text.
    """
    kind = field.numpy_dtype
    if kind is np.object_:
        return cell
    if kind is np.str_ and isinstance(cell, bytes):
        return _text(cell)
    if kind is np.bytes_ and isinstance(cell, str):
        return _utf8(cell)
    if kind is Decimal and isinstance(cell, str):
        try:
            return _finite(Decimal(cell))
        except decimal.InvalidOperation:
            raise InexactError("the text must be a decimal number") from None
    if field.dtype.kind == "m" and isinstance(cell, int) and not isinstance(cell, bool):
        return np.int64(cell).astype(field.dtype)
    return _declared(cell, field)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InexactError("the bytes must be valid UTF-8") from None


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InexactError("the text must be valid Unicode, without lone surrogates") from None


def _stored(value: Any, stored: pa.DataType) -> Any:
    """Convert a value of the declared dtype to the Python object of a stored cell."""
    types = pa.types
    if types.is_string(stored):
        return _text(value) if isinstance(value, bytes) else _checked_text(value)
    if types.is_binary(stored):
        return _utf8(value) if isinstance(value, str) else value
    if types.is_decimal(stored):
        return _stored_decimal(value, stored)
    if types.is_date(stored) or types.is_timestamp(stored):
        return _stored_time(value, stored)
    if isinstance(value, np.timedelta64):
        return int(value.astype(np.int64))
    dtype = NUMBER_DTYPES[stored]
    return exact_number(value, dtype).item()


def _checked_text(value: Any) -> str:
    text = str(value)
    _utf8(text)
    return text


def _stored_decimal(value: Any, stored: pa.DataType) -> Decimal:
    if isinstance(value, (np.bool_, np.integer)):
        number = Decimal(int(value))
    elif isinstance(value, np.floating):
        # `str` returns the shortest text that reads back as this float, so that 3.7 is stored as 3.7.
        number = _finite(Decimal(str(value)))
    else:
        number = value
    try:
        scaled = number.quantize(Decimal(1).scaleb(-stored.scale), context=_DECIMALS)
    except decimal.InvalidOperation:
        raise InexactError(f"{stored} has only {stored.precision} digits") from None
    if scaled != number:
        raise InexactError(f"{stored} has only {stored.scale} digits after the decimal point")
    if scaled.adjusted() >= stored.precision - stored.scale and scaled != 0:
        raise InexactError(f"{stored} has only {stored.precision - stored.scale} digits before the decimal point")
    return scaled


def _stored_time(value: Any, stored: pa.DataType) -> Any:
    unit = "D" if pa.types.is_date(stored) else stored.unit
    time = exact_time(value, np.dtype(f"datetime64[{unit}]"))
    if unit == "ns":
        return time
    item = time.item()
    if not isinstance(item, dt.date):
        raise InexactError("dates and timestamps must be in the years 1 to 9999")
    if isinstance(item, dt.datetime) and stored.tz is not None:
        return item.replace(tzinfo=dt.UTC)
    return item


def nested_values(value: Any, depth: int) -> tuple[list[Any], tuple[int, ...]]:
    """Return the values inside nested lists (or an array), and the shape of the lists.

    Args:
        value: Lists, tuples or arrays with `depth` levels.
        depth: At least 1.

    Returns:
        Values in row-major order, and shape; sizes of dimensions below an empty list are 0.

    Raises:
        InexactError: The value is not a list, or lists of one level differ in length.
    """
    level, shape = [value], []
    for _ in range(depth):
        if not all(isinstance(item, (list, tuple, np.ndarray)) for item in level):
            raise InexactError(f"the value must be lists nested {depth} levels deep")
        sizes = {len(item) for item in level}
        if len(sizes) > 1:
            raise InexactError(f"the lists of one level must have equal lengths, got {min(sizes)} to {max(sizes)}")
        shape.append(sizes.pop() if sizes else 0)
        level = [leaf for item in level for leaf in item]
    return level, tuple(shape)
