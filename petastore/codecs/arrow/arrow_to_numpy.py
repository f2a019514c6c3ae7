"""Decode an Arrow column of scalars to one NumPy array.

Decoding is vectorized where the type allows. Each function returns the same values as
`petastore.codecs.arrow.scalars.decode_scalar`, which decodes one value. Numbers are checked as a zero-copy view of
Arrow's buffer and copied once. If the check fails, the error names the first bad row.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow import flags_of, numbers_of
from petastore.codecs.arrow.scalars import InexactError, decode_scalar, exact_time, exact_times
from petastore.errors import DecodeError
from petastore.schema.arrow import is_bytes, is_text
from petastore.schema.field import UnischemaField

__all__ = ["decode_scalars", "plain_layout", "put_numbers", "put_objects", "refuse_nulls", "times_of"]

_TIME_UNITS_OF_DATES = {pa.date32(): "D", pa.date64(): "ms"}


def refuse_nulls(cells: pa.Array, field: UnischemaField, *, inside: bool = False) -> None:
    """Raise an error if a column has missing cells.

    Callers must remove missing cells before decoding.

    Args:
        cells: The column.
        field: Declared field.
        inside: Whether the cells are values inside a column of lists.

    Raises:
        DecodeError: A cell is missing; the message names the first.
    """
    if not cells.null_count:
        return
    problem = "the cell must not be null, because a codec decodes only values that exist. Remove nulls before decoding"
    if inside:
        problem = "a value inside the cell is null, which an array cannot store. Leave the column out with "
        problem += "schema_fields, or write the file again without it"
    raise DecodeError(problem, column=field.name, row=pc.index(cells.is_null(), True).as_py())


def plain_layout(cells: pa.Array) -> pa.Array:
    """Remove extension types and run-end encoding from a column; dictionaries stay."""
    if isinstance(cells, pa.ExtensionArray):
        return plain_layout(cells.storage)
    if isinstance(cells, pa.RunEndEncodedArray):
        return plain_layout(pc.run_end_decode(cells))
    return cells


def decode_scalars(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    """Decode a scalar column into `out` of shape `(rows,)` and dtype `field.dtype`.

    Raises:
        DecodeError: A value is null, out of range or cannot be converted exactly, or the column has another kind of
            type; `row` is set.
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
    # Each distinct value is decoded once. If decoding fails, the column is decoded without its dictionary: a bad value
    # that no row uses must not raise an error, and a used one must be reported with its row.
    distinct = np.empty(len(cells.dictionary), field.dtype)
    try:
        decode_scalars(cells.dictionary, field, distinct)
    except DecodeError:
        decode_scalars(cells.dictionary_decode(), field, out)
    else:
        np.take(distinct, numbers_of(cells.indices), out=out)


def put_objects(values: list[Any], out: NDArray[Any]) -> None:
    """Write Python objects to an object array, one per row, even if they are lists."""
    out[:] = np.fromiter(values, np.object_, count=len(values))


def _decode_each(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    """Decode a column value by value, into `out`.

    Used for types that become Python objects, and to find the row of an invalid value.
    """
    for row, cell in enumerate(cells):
        try:
            out[row] = decode_scalar(field, cell.as_py())
        except (DecodeError, UnicodeDecodeError) as problem:
            text = problem.problem if isinstance(problem, DecodeError) else "the cell is not UTF-8"
            raise DecodeError(text, column=field.name, row=row) from None


def _wrong_kind(cells: pa.Array, field: UnischemaField) -> DecodeError:
    return DecodeError(
        f"the column is stored as {cells.type}, which cannot be read as {field.dtype_name}. Declare a dtype that fits "
        f"{cells.type}",
        column=field.name,
    )


def _decode_text(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    wanted_text = field.numpy_dtype is np.str_
    if is_text(cells.type) == wanted_text and (is_text(cells.type) or is_bytes(cells.type)):
        try:
            put_objects(cells.to_pylist(), out)
        except (UnicodeDecodeError, pa.ArrowException):
            _decode_each(cells, field, out)
    elif is_text(cells.type) or is_bytes(cells.type):
        _decode_each(cells, field, out)
    else:
        raise _wrong_kind(cells, field)


def _decode_decimals(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    types = pa.types
    if types.is_decimal(cells.type):
        put_objects(cells.to_pylist(), out)
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
    try:
        np.copyto(out, exact_times(source, out.dtype))
        is_exact = source.dtype == out.dtype or not np.isnat(source).any()
    except InexactError:
        is_exact = False
    if not is_exact:
        _refuse_where(np.array([not _fits_unit(time, out.dtype) for time in source]), source, field)


def _fits_unit(time: Any, dtype: np.dtype[Any]) -> bool:
    try:
        exact_time(time, dtype)
    except InexactError:
        return False
    return True


def times_of(cells: pa.Array) -> NDArray[Any]:
    """Return a column of dates, timestamps, times of day or durations as NumPy times.

    The result is `datetime64` or `timedelta64` in the stored unit; values are arbitrary where the column has nulls.

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
    """Write numbers to an array of another dtype, with an exact conversion.

    Only floats may be rounded, to narrower floats.

    Raises:
        DecodeError: A number cannot be converted exactly; `row` is its index.
    """
    # NumPy treats a cast from int64 to float64 as safe, although it rounds above 2**53.
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
    """Return a mask of the floats that are whole and fit an integer dtype.

    For a boolean dtype, the mask is all False.
    """
    if dtype.kind == "b":
        return np.zeros(source.shape, np.bool_)
    limits = np.iinfo(dtype)
    source = source.astype(np.float64, copy=False)
    # Compare with `<` and the maximum plus 1: a float can be exactly 2**63, but not the maximum of int64.
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
            f"the cell must be a value that {field.dtype_name} can hold without loss, got {source[row]}. Declare a "
            "wider dtype",
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
        whole = pc.cast(cells, pa.uint64() if field.dtype == np.uint64 else pa.int64())
    except pa.ArrowInvalid:  # a number has a fraction or is out of range
        _decode_each(cells, field, out)
    else:
        put_numbers(numbers_of(whole), field, out)


def _decode_floats_in_decimals(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    """Decode decimals to the nearest floats, into `out`.

    A decimal of up to 15 digits is computed as the quotient of two exact floats, which is the nearest float. Decimals
    with more digits are converted in Python, as in `decode_scalar`.
    """
    if pa.types.is_decimal128(cells.type) and cells.type.precision <= 15 and 0 <= cells.type.scale <= 22:
        # Only the low half of each 128-bit number is read, because it holds all of up to 15 digits.
        unscaled = np.frombuffer(cells.buffers()[1], np.int64, count=2 * len(cells), offset=16 * cells.offset)[::2]
        put_numbers(unscaled / 10.0**cells.type.scale, field, out)
    else:
        put_numbers(np.array([float(number) for number in cells.to_pylist()], np.float64), field, out)
