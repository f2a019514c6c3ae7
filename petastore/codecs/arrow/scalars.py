"""One scalar ⇄ one stored cell, without a codec of bytes: the definition that the column functions must equal.

A value is first taken as the dtype that its field declares, then as the stored type. Both steps are exact or refused:
3.0 is an integer and 3.7 is none, 300 is no `uint8`, a time stamp of nanoseconds is no whole number of microseconds.
Two roundings are meant, and kept: a float that goes into a narrower float, and a decimal that is read as a float, go to
the nearest; a finite number never becomes infinite. Text is never taken for a number, nor a number for text.
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

from petastore.arrow.memory import NUMBER_DTYPES
from petastore.errors import DecodeError, EncodeError
from petastore.schema.field import UnischemaField
from petastore.schema.times import numpy_time

__all__ = ["InexactError", "decode_scalar", "describe", "encode_scalar", "exact_number", "exact_time", "nested_values"]

# Wide enough for every decimal that Parquet can hold, so that nothing is rounded on the way.
_DECIMALS = decimal.Context(prec=100)


class InexactError(ValueError):
    """The value has no exact equal of the wanted type; the message says why. Never leaves the codecs."""


def describe(value: Any) -> str:
    """What came, for a message: type, dtype, shape, and the value itself where it is short."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def encode_scalar(field: UnischemaField, value: Any, stored: pa.DataType) -> Any:
    """One value to the Python object that Arrow and Spark take for a cell of type `stored`.

    Raises:
        EncodeError: The value is None, of another kind, out of range, or would lose something.
    """
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if value is None:
        raise EncodeError("None was given to encode; a null is written by leaving the cell out", column=field.name)
    try:
        if isinstance(value, str) and field.numpy_dtype is np.bytes_ and pa.types.is_string(stored):
            value = _utf8(value)  # bytes that are stored as text: either is what the cell says
        return _stored(_declared(value, field), stored)
    except InexactError as problem:
        raise EncodeError(
            f"{describe(value)} cannot be written as {field.dtype_name} stored as {stored}: {problem}",
            column=field.name,
        ) from None


def decode_scalar(field: UnischemaField, cell: Any) -> Any:
    """One stored cell to one value: a NumPy scalar of `field.dtype`, or `str`, `bytes`, `Decimal`.

    Raises:
        DecodeError: The cell is no value of the declared dtype.
    """
    try:
        return _declared_from_cell(cell, field)
    except InexactError as problem:
        raise DecodeError(
            f"the cell {describe(cell)} cannot be read as {field.dtype_name}: {problem}", column=field.name
        ) from None


def exact_number(value: Any, dtype: np.dtype[Any]) -> Any:
    """The NumPy scalar of `dtype` that equals a number; floats may be rounded to a narrower float.

    Raises:
        InexactError: There is none, or the value is no number.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float, Decimal)):
        raise InexactError("it is no number")
    if dtype.kind == "f":
        return _exact_float(value, dtype)
    whole = _whole(value)
    if dtype.kind == "b":
        if whole not in (0, 1) or isinstance(value, (float, Decimal)):
            raise InexactError("a boolean is True, False, 1 or 0")
        return np.bool_(whole)
    limits = np.iinfo(dtype)
    if not limits.min <= whole <= limits.max:
        raise InexactError(f"{dtype} holds {limits.min} to {limits.max}")
    return dtype.type(whole)


def _whole(value: float | Decimal) -> int:
    """The integer that a number is; `value` may be a Decimal or a float without a fraction."""
    is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    if not is_finite:
        raise InexactError("it is not finite")
    if isinstance(value, Decimal) and value.adjusted() > 100:
        raise InexactError("it is too large")
    if int(value) != value:
        raise InexactError("it is no whole number")
    return int(value)


def _exact_float(value: float | Decimal, dtype: np.dtype[Any]) -> Any:
    try:
        wide = float(value)
    except OverflowError:
        raise InexactError("it is too large") from None
    except ValueError:
        raise InexactError("it is a signaling NaN, which no float is") from None
    with np.errstate(over="ignore"):
        narrow = dtype.type(wide)
    if np.isinf(narrow) and not (isinstance(value, float) and math.isinf(value)):
        raise InexactError(f"it is too large for {dtype}")
    if isinstance(value, int) and int(narrow) != value:
        raise InexactError(f"{dtype} cannot hold this integer exactly")
    return narrow


def exact_time(value: Any, dtype: np.dtype[Any]) -> Any:
    """The `datetime64` or `timedelta64` of `dtype` that equals a time; times with a zone are taken in UTC.

    Raises:
        InexactError: The unit cannot hold it, it is NaT, or the value is no time of this kind.
    """
    source = _numpy_time(value, dtype.kind)
    if np.isnat(source):
        raise InexactError("it is NaT; give None for a missing value")
    if np.datetime_data(source.dtype)[0] == "generic":
        raise InexactError("it has no unit")
    try:
        converted = source.astype(dtype)
    except (OverflowError, TypeError):
        raise InexactError(f"{dtype} cannot hold it exactly") from None
    if np.isnat(converted) or converted.astype(source.dtype) != source:
        raise InexactError(f"{dtype} cannot hold it exactly")
    return converted


def _numpy_time(value: Any, kind: str) -> Any:
    """Any spelling of an instant (kind `M`) or of a duration or time of day (kind `m`) as a NumPy scalar."""
    try:
        found = numpy_time(value)
    except OverflowError:
        raise InexactError("it is out of range in UTC") from None
    if found is None or found.dtype.kind != kind:
        raise InexactError("it is no date or time" if kind == "M" else "it is no duration or time of day")
    return found


def _declared(value: Any, field: UnischemaField) -> Any:
    """The value as its field declares it, when it is to be written."""
    kind = field.numpy_dtype
    if kind is np.str_:
        if not isinstance(value, str):
            raise InexactError("text was declared")
        return str(value)
    if kind is np.bytes_:
        if isinstance(value, uuid.UUID):
            return value.bytes
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise InexactError("bytes were declared")
        return bytes(value)
    if kind is Decimal:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Decimal, int, np.integer)):
            raise InexactError("a Decimal was declared; give Decimal(str(value)) where that is what you mean")
        return _finite(Decimal(int(value)) if isinstance(value, np.integer) else Decimal(value))
    if field.dtype.kind in "mM":
        return exact_time(value, field.dtype)
    if field.dtype.kind in "biuf":
        return exact_number(value, field.dtype)
    raise InexactError("values of this dtype have no cell of their own; give the field a codec")


def _finite(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise InexactError("a decimal must be finite")
    return value


def _declared_from_cell(cell: Any, field: UnischemaField) -> Any:
    """The stored cell as its field declares it; storage may hold text as bytes, and decimals as text."""
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
            raise InexactError("it is no decimal number") from None
    if field.dtype.kind == "m" and isinstance(cell, int) and not isinstance(cell, bool):
        return np.int64(cell).astype(field.dtype)
    return _declared(cell, field)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InexactError("it is not UTF-8") from None


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InexactError("it is no valid Unicode text (a lone surrogate)") from None


def _stored(value: Any, stored: pa.DataType) -> Any:
    """A value of its declared dtype as the Python object of a stored cell."""
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
        # The shortest text that reads back as this float: 3.7 is stored as 3.7.
        number = _finite(Decimal(str(value)))
    else:
        number = value
    try:
        scaled = number.quantize(Decimal(1).scaleb(-stored.scale), context=_DECIMALS)
    except decimal.InvalidOperation:
        raise InexactError(f"{stored} has {stored.precision} digits") from None
    if scaled != number:
        raise InexactError(f"{stored} keeps {stored.scale} digits after the point")
    if scaled.adjusted() >= stored.precision - stored.scale and scaled != 0:
        raise InexactError(f"{stored} keeps {stored.precision - stored.scale} digits before the point")
    return scaled


def _stored_time(value: Any, stored: pa.DataType) -> Any:
    unit = "D" if pa.types.is_date(stored) else stored.unit
    time = exact_time(value, np.dtype(f"datetime64[{unit}]"))
    if unit == "ns":
        return time
    item = time.item()
    if not isinstance(item, dt.date):
        raise InexactError("dates and time stamps are of the years 1 to 9999")
    if isinstance(item, dt.datetime) and stored.tz is not None:
        return item.replace(tzinfo=dt.UTC)
    return item


def nested_values(value: Any, depth: int) -> tuple[list[Any], tuple[int, ...]]:
    """The leaves of lists inside lists (or of an array), in row-major order, and their shape.

    Args:
        value: `depth` levels of lists, tuples or arrays.
        depth: At least 1.

    Returns:
        Leaves and shape; the sizes below an empty list are 0.

    Raises:
        InexactError: It is no list, or lists of one level differ in length.
    """
    level, shape = [value], []
    for _ in range(depth):
        if not all(isinstance(item, (list, tuple, np.ndarray)) for item in level):
            raise InexactError(f"{depth} levels of lists were declared")
        sizes = {len(item) for item in level}
        if len(sizes) > 1:
            raise InexactError(f"its lists have different lengths ({min(sizes)} to {max(sizes)})")
        shape.append(sizes.pop() if sizes else 0)
        level = [leaf for item in level for leaf in item]
    return level, tuple(shape)
