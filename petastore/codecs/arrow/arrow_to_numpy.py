"""A whole Arrow column of scalars into one NumPy array, without a Python object a row where the type allows it.

Each function equals `petastore.codecs.arrow.scalars.decode_scalar` value by value. Numbers are viewed in Arrow's own
buffer, checked as a whole, and copied once. Where the check fails, the first bad row is named.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow.memory import flags_of, numbers_of
from petastore.codecs.arrow.scalars import InexactError, decode_scalar, exact_time
from petastore.errors import DecodeError
from petastore.schema.arrow import is_bytes, is_text
from petastore.schema.field import UnischemaField

__all__ = ["decode_scalars", "plain_layout", "put_numbers", "refuse_nulls", "times_of"]

_TIME_UNITS_OF_DATES = {pa.date32(): "D", pa.date64(): "ms"}


def refuse_nulls(cells: pa.Array, field: UnischemaField, *, inside: bool = False) -> None:
    """Refuse a column with missing cells: they are taken out before a codec sees them.

    Args:
        cells: The column.
        field: What was declared.
        inside: Whether they are values inside the cells of a column of lists.

    Raises:
        DecodeError: There is one; names the first.
    """
    if not cells.null_count:
        return
    problem = "the cell is null, and nulls have no value to decode"
    if inside:
        problem = "a value inside the cell is null, and an array has no place for that; leave the column out with "
        problem += "schema_fields, or write the file again without it"
    raise DecodeError(problem, column=field.name, row=pc.index(cells.is_null(), True).as_py())


def plain_layout(cells: pa.Array) -> pa.Array:
    """The same values without extension type or run-end encoding; dictionaries stay."""
    if isinstance(cells, pa.ExtensionArray):
        return plain_layout(cells.storage)
    if isinstance(cells, pa.RunEndEncodedArray):
        return plain_layout(pc.run_end_decode(cells))
    return cells


def decode_scalars(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    """A column without dimensions into `out` of shape `(rows,)` and dtype `field.dtype`.

    Raises:
        DecodeError: A value is null, out of range, inexact, or the column is of another kind; `row` is set.
    """
    refuse_nulls(cells, field)
    cells = plain_layout(cells)
    if len(cells) == 0:
        return
    if isinstance(cells, pa.DictionaryArray):
        _decode_dictionary(cells, field, out)
    elif field.numpy_dtype in (np.str_, np.bytes_):
        _decode_text(cells, field, out)
    elif field.numpy_dtype is Decimal:
        _decode_decimals(cells, field, out)
    elif field.dtype.kind in "mM":
        _decode_times(cells, field, out)
    else:
        _decode_numbers(cells, field, out)


def _decode_dictionary(cells: pa.DictionaryArray, field: UnischemaField, out: NDArray[Any]) -> None:
    # Each distinct value is decoded once. A bad value that no row uses must not matter, and a bad one that is used must
    # be named by its row: both are settled on the plain column.
    distinct = np.empty(len(cells.dictionary), field.dtype)
    try:
        decode_scalars(cells.dictionary, field, distinct)
    except DecodeError:
        decode_scalars(cells.dictionary_decode(), field, out)
    else:
        np.take(distinct, numbers_of(cells.indices), out=out)


def _put_objects(values: list[Any], out: NDArray[Any]) -> None:
    out[:] = np.fromiter(values, np.object_, count=len(values))


def _decode_each(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    """Value by value: for kinds that are Python objects anyway, and to find the row that is bad."""
    for row, cell in enumerate(cells):
        try:
            out[row] = decode_scalar(field, cell.as_py())
        except (DecodeError, UnicodeDecodeError) as problem:
            text = problem.problem if isinstance(problem, DecodeError) else "the cell is not UTF-8"
            raise DecodeError(text, column=field.name, row=row) from None


def _wrong_kind(cells: pa.Array, field: UnischemaField) -> DecodeError:
    return DecodeError(
        f"the column is stored as {cells.type}, which cannot be read as {field.dtype_name}; declare a dtype that fits",
        column=field.name,
    )


def _decode_text(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    wanted_text = field.numpy_dtype is np.str_
    if is_text(cells.type) == wanted_text and (is_text(cells.type) or is_bytes(cells.type)):
        try:
            _put_objects(cells.to_pylist(), out)
        except (UnicodeDecodeError, pa.ArrowException):
            _decode_each(cells, field, out)
    elif is_text(cells.type) or is_bytes(cells.type):
        _decode_each(cells, field, out)
    else:
        raise _wrong_kind(cells, field)


def _decode_decimals(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    types = pa.types
    if types.is_decimal(cells.type):
        _put_objects(cells.to_pylist(), out)
    elif types.is_integer(cells.type) or is_text(cells.type):
        _decode_each(cells, field, out)
    else:
        raise _wrong_kind(cells, field)


def _decode_times(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    if field.dtype.kind == "m" and cells.type == pa.int64():
        source: NDArray[Any] = numbers_of(cells).view(field.dtype)
    elif pa.types.is_temporal(cells.type) and not pa.types.is_interval(cells.type):
        source = times_of(cells)
    else:
        raise _wrong_kind(cells, field)
    if source.dtype.kind != field.dtype.kind:
        raise _wrong_kind(cells, field)
    if source.dtype == out.dtype:
        np.copyto(out, source)
        return
    try:
        out[:] = source.astype(out.dtype)
    except OverflowError:
        _refuse_where(np.array([not _fits_unit(time, out.dtype) for time in source]), source, field)
    _refuse_where(out.astype(source.dtype) != source, source, field)


def _fits_unit(time: Any, dtype: np.dtype[Any]) -> bool:
    try:
        exact_time(time, dtype)
    except InexactError:
        return False
    return True


def times_of(cells: pa.Array) -> NDArray[Any]:
    """Dates, time stamps, times of day and durations as `datetime64` or `timedelta64` of the stored unit.

    Values under nulls are arbitrary.

    Example:
        >>> times_of(pa.array([0, 1], pa.timestamp("ms", "UTC")))[1], times_of(pa.array([5], pa.time32("s")))[0]
        (np.datetime64('1970-01-01T00:00:00.001'), np.timedelta64(5,'s'))
    """
    types, stored = pa.types, cells.type
    width = pa.int32() if stored.bit_width == 32 else pa.int64()
    integers = numbers_of(cells.view(width)).astype(np.int64, copy=False)
    if types.is_date(stored):
        return integers.view(f"datetime64[{_TIME_UNITS_OF_DATES[stored]}]")
    return integers.view(f"{'datetime' if types.is_timestamp(stored) else 'timedelta'}64[{stored.unit}]")


def _decode_numbers(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    types = pa.types
    if types.is_boolean(cells.type) or types.is_integer(cells.type) or types.is_floating(cells.type):
        put_numbers(flags_of(cells) if types.is_boolean(cells.type) else numbers_of(cells), field, out)
    elif types.is_decimal(cells.type):
        _decode_numbers_in_decimals(cells, field, out)
    else:
        raise _wrong_kind(cells, field)


def put_numbers(source: NDArray[Any], field: UnischemaField, out: NDArray[Any]) -> None:
    """Numbers of one dtype into an array of another, exactly; only floats are rounded to narrower floats.

    Raises:
        DecodeError: A number has no exact equal; names its position as the row.
    """
    # NumPy calls int64 to float64 safe, although it rounds above 2**53.
    rounds = out.dtype.kind == "f" and source.dtype.kind in "iu" and source.dtype.itemsize == 8
    if np.can_cast(source.dtype, out.dtype, "safe") and not rounds:
        np.copyto(out, source)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(out, source, casting="unsafe")
    if source.dtype.kind == "f" and out.dtype.kind == "f":
        _refuse_where(np.isinf(out) & ~np.isinf(source), source, field)
    elif source.dtype.kind == "f":
        _refuse_where(~_holds_floats(source, out.dtype), source, field)
    elif out.dtype.kind == "f":
        _refuse_where(~_keeps_integers(source, out), source, field)
    elif out.dtype.kind == "b":
        _refuse_where((source != 0) & (source != 1), source, field)
    else:
        _refuse_out_of_range(source, field, out.dtype)


def _holds_floats(source: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """Which floats are whole and within an integer dtype; a boolean is never taken from a float."""
    if dtype.kind == "b":
        return np.zeros(source.shape, np.bool_)
    limits = np.iinfo(dtype)
    source = source.astype(np.float64, copy=False)
    # 2**63 is a float and int64's maximum is not: compare with the first number above.
    within = (source >= float(limits.min)) & (source < float(limits.max + 1))
    return within & (np.trunc(source) == source)


def _keeps_integers(source: NDArray[Any], converted: NDArray[Any]) -> NDArray[np.bool_]:
    limits = np.iinfo(source.dtype)
    converted = converted.astype(np.float64, copy=False)
    within = np.isfinite(converted) & (converted < float(limits.max + 1))
    back = np.where(within, converted, 0).astype(source.dtype)
    return within & (back == source)


def _refuse_out_of_range(source: NDArray[Any], field: UnischemaField, dtype: np.dtype[Any]) -> None:
    limits = np.iinfo(dtype)
    if source.size and not limits.min <= int(source.min()) <= int(source.max()) <= limits.max:
        _refuse_where((source < limits.min) | (source > limits.max), source, field)


def _refuse_where(bad: NDArray[np.bool_], source: Any, field: UnischemaField) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise DecodeError(
            f"the cell {source[row]} cannot be read as {field.dtype_name} without losing something",
            column=field.name,
            row=row,
        )


def _decode_numbers_in_decimals(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    if field.dtype.kind == "b":
        raise _wrong_kind(cells, field)
    if field.dtype.kind == "f":
        _decode_floats_in_decimals(cells, field, out)
        return
    try:
        # Fails where a fraction would be lost; both Arrow's and our numbers are then whole.
        whole = pc.cast(cells, pa.decimal128(38, 0))
    except pa.ArrowInvalid:
        _decode_each(cells, field, out)
        return
    low, high = _decimal_words(whole)
    unsigned = field.dtype == np.dtype(np.uint64)
    within = high == 0 if unsigned else high == low.view(np.int64) >> 63
    if within.all():
        put_numbers(low if unsigned else low.view(np.int64), field, out)
    else:
        _decode_each(cells, field, out)


def _decimal_words(cells: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Low and high 64 bits of 128-bit decimals, as strided views of Arrow's buffer."""
    words = np.frombuffer(cells.buffers()[1], np.uint64, count=2 * len(cells), offset=16 * cells.offset)
    return words[0::2], words[1::2].view(np.int64)


def _decode_floats_in_decimals(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    """Decimals as the nearest floats.

    A quotient of two exact floats is the nearest float to the quotient, and up to 15 digits and 10**22 are exact; more
    digits go through Python, as the cell face does.
    """
    if pa.types.is_decimal128(cells.type) and cells.type.precision <= 15 and 0 <= cells.type.scale <= 22:
        unscaled = _decimal_words(cells)[0].view(np.int64)
        put_numbers(unscaled / 10.0**cells.type.scale, field, out)
    else:
        put_numbers(np.array([float(number) for number in cells.to_pylist()], np.float64), field, out)
