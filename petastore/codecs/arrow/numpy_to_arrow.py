"""Encode NumPy arrays and decoded columns as Arrow columns of scalars or lists.

Values that fit exactly into one NumPy dtype are converted as one array; all others are converted value by value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import NUMBER_DTYPES, arrow_numbers, null_cells
from petastore.codecs.arrow.arrow_to_numpy import put_numbers
from petastore.codecs.arrow.scalars import InexactError, describe, encode_scalar, exact_times, nested_values
from petastore.codecs.declared import array_to_write, shape_below_empty
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.arrow import storage_type
from petastore.schema.field import UnischemaField
from petastore.schema.values import each_value

__all__ = ["cells_array", "decoded_to_arrow", "encode_each", "encode_lists", "encode_scalars", "spread"]


_NUMBERS = "biuf"


def cells_array(cells: list[Any], stored: pa.DataType, field: UnischemaField) -> pa.Array:
    """Return one Arrow array of cells; None becomes null.

    Raises:
        EncodeError: The cells are too large for one array of this type.
    """
    # pyarrow does not convert datetime64[ns] to a type with a time zone, so the zone is added by `view`.
    is_zoned = pa.types.is_timestamp(stored) and stored.unit == "ns" and stored.tz is not None
    try:
        made = pa.array(cells, pa.timestamp("ns")).view(stored) if is_zoned else pa.array(cells, stored)
    except pa.ArrowCapacityError:
        made = None
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
        raise EncodeError(f"the values cannot be stored as {stored}: {problem}", column=field.name) from None
    if not isinstance(made, pa.Array):
        raise EncodeError(
            f"an encoded {stored} column must have at most 2 GiB, got more in {len(cells):,} cells. Encode fewer rows "
            "at once",
            column=field.name,
        )
    return made


def encode_each(
    values: Sequence[Any] | NDArray[Any],
    encode: Callable[[UnischemaField, Any], Any],
    stored: pa.DataType,
    field: UnischemaField,
) -> pa.Array:
    """Encode a column value by value; None becomes null.

    Args:
        values: Values of the rows.
        encode: Function that encodes one value of the field to its cell.
        stored: Arrow type of the column.
        field: Declared field.

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
    """Encode a column of scalars as the type `stored`.

    Args:
        values: An array `(rows,)`, a masked array (masked values become null), or a list of scalars (None becomes
            null).
        field: Declared field.
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
    except (DecodeError, InexactError, OverflowError, pa.ArrowInvalid):
        column = None
    if column is None:
        # Some value cannot be stored or needs exact rules, which are implemented only for single values.
        return _encode_by_value(values, field, stored)
    return column if known is None else spread(column, known)


def _present(values: Sequence[Any] | NDArray[Any]) -> tuple[Sequence[Any] | NDArray[Any], NDArray[np.bool_] | None]:
    """Return the values that are not null, and a mask of their rows.

    The mask is None if no row is null.
    """
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
    """Return scalars as one array of a dtype that represents all of them exactly.

    Return None if no dtype represents all values, or if the values are not numbers or times.
    """
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
    """Return numbers or times as an Arrow column of the type `stored`.

    Return None if the values must be converted one by one.

    Raises:
        DecodeError, InexactError, pa.ArrowInvalid: A value cannot be converted exactly.
    """
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
        if numbers.dtype.kind not in "iu":
            return None
        return arrow_numbers(numbers).cast(pa.decimal128(38, stored.scale)).cast(stored)
    if not (types.is_boolean(stored) or types.is_integer(stored) or types.is_floating(stored)):
        return None
    target = UnischemaField(field.name, NUMBER_DTYPES[stored])
    written = np.empty(numbers.shape, target.dtype)
    put_numbers(numbers, target, written)
    return pa.array(written, stored)


def _times_column(times: NDArray[Any], field: UnischemaField, stored: pa.DataType) -> pa.Array | None:
    """Return times as an Arrow column in the stored unit.

    Return None if the values must be converted one by one.

    Raises:
        InexactError: A time cannot be converted exactly to the stored unit.
    """
    if times.dtype.kind != field.dtype.kind or np.isnat(times).any():
        return None
    types, declared = pa.types, exact_times(times, field.dtype)
    if stored == pa.int64():
        return pa.array(declared.astype(np.int64))
    if not types.is_date32(stored) and not types.is_timestamp(stored):
        return None
    written = exact_times(declared, np.dtype(f"datetime64[{'D' if types.is_date32(stored) else stored.unit}]"))
    width = np.int32 if types.is_date32(stored) else np.int64
    return pa.array(written.astype(width)).view(stored) if _in_years(written) else None


def _in_years(times: NDArray[Any]) -> bool:
    """Return whether all times are in the years 1 to 9999, which Python requires.

    Spark requires these years, too.
    """
    days = times.astype("datetime64[D]")
    return bool(((days >= np.datetime64("0001-01-01")) & (days <= np.datetime64("9999-12-31"))).all())


def spread(cells: pa.Array, known: NDArray[np.bool_]) -> pa.Array:
    """Insert nulls into a column of cells.

    Args:
        cells: The cells that are not null, in row order.
        known: Mask of the rows that have a cell, shape (rows,); the other rows become null.
    """
    places = np.cumsum(known) - 1
    if not pa.types.is_struct(cells.type):
        return cells.take(pa.array(places, pa.int64(), mask=~known))
    with_null = pa.concat_arrays([null_cells(1, cells.type), cells])
    return with_null.take(arrow_numbers(np.where(known, places + 1, 0)))


def _encode_by_value(values: Sequence[Any] | NDArray[Any], field: UnischemaField, stored: pa.DataType) -> pa.Array:
    if isinstance(values, np.ndarray) and values.dtype.kind in "SU" and values.ndim == 1:
        values = values.tolist()
    if field.numpy_dtype is np.str_ and stored == pa.string() and set(map(type, values)) <= {str, type(None)}:
        try:
            return cells_array(list(values), stored, field)
        except UnicodeEncodeError:
            pass  # `encode_each` raises an error that names the row
    present = [None if value is np.ma.masked else value for value in values]
    return encode_each(present, lambda field, value: encode_scalar(field, value, stored), stored, field)


def encode_lists(values: Sequence[Any] | NDArray[Any], field: UnischemaField, stored: pa.ListType) -> pa.Array:
    """Encode a column of arrays as nested lists.

    Args:
        values: An array `(rows, *shape)` of the declared dtype, or a sequence of arrays and lists; None becomes null.
        field: With at least one dimension.
        stored: Arrow list type with as many levels as the field has dimensions.

    Raises:
        EncodeError: A value has another dtype or shape than declared, or is out of range; `row` is set.
    """
    leaf_type = stored
    for _ in field.shape:
        leaf_type = leaf_type.value_type
    scalar = dataclasses.replace(field, shape=(), codec=None)
    leaves, shapes, missing = _flat(values, field)
    sizes = shapes.prod(axis=1)
    try:
        column = encode_scalars(leaves, scalar, leaf_type)
    except EncodeError as problem:
        if problem.row is not None:
            problem.row = int(np.searchsorted(np.cumsum(sizes), problem.row, side="right"))
        raise
    return _lists_around(column, shapes, stored, missing, field)


def _flat(
    values: Sequence[Any] | NDArray[Any], field: UnischemaField
) -> tuple[Any, NDArray[np.int64], NDArray[np.bool_] | None]:
    """Return the concatenated values of all rows, the row shapes, and a null mask.

    Shapes are (rows, dimensions). The mask is True for missing rows, shape (rows,); None if no row is missing.
    """
    depth = len(field.shape)
    if (
        isinstance(values, np.ndarray)
        and values.dtype != np.dtype(object)
        and not isinstance(values, np.ma.MaskedArray)
    ):
        if len(values):
            array_to_write(field, values[0])
        return values.reshape(-1), np.tile(np.array(values.shape[1:], np.int64), (len(values), 1)), None
    parts: list[Any] = []
    shapes = np.zeros((len(values), depth), np.int64)
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            part, shapes[row] = _leaves(value, field)
        except EncodeError as problem:
            raise problem.at(row=row) from None
        parts.append(part)
    missing = np.array([value is None for value in values], np.bool_)
    return _joined(parts), shapes, missing if missing.any() else None


def _leaves(value: Any, field: UnischemaField) -> tuple[Any, tuple[int, ...]]:
    if isinstance(value, np.ndarray) and value.dtype != np.dtype(object):
        return array_to_write(field, value).reshape(-1), value.shape
    try:
        leaves, shape = nested_values(value, len(field.shape))
    except InexactError as problem:
        raise EncodeError(
            f"{describe(value)} cannot be written with shape {field.shape}: {problem}", column=field.name
        ) from None
    if any(leaf is None for leaf in leaves):
        raise EncodeError(
            "a list must not contain None, because only whole values may be missing. Declare dtype object with "
            "ArrowCodec for lists that contain None",
            column=field.name,
        )
    shape = shape_below_empty(shape, field.shape)
    if not field.fits(shape):
        raise EncodeError(f"the value must have shape {field.shape}, got {shape}", column=field.name)
    return leaves, shape


def _joined(parts: list[Any]) -> Any:
    """Concatenate the flat values of all rows.

    The result is one array if all rows have arrays of one dtype, else a list.
    """
    dtypes = {part.dtype if isinstance(part, np.ndarray) else None for part in parts}
    if len(dtypes) == 1 and None not in dtypes:
        return np.concatenate(parts)
    return [leaf for part in parts for leaf in part]


def _lists_around(
    leaves: pa.Array,
    shapes: NDArray[np.int64],
    stored: pa.ListType,
    missing: NDArray[np.bool_] | None,
    field: UnischemaField,
) -> pa.Array:
    types = [stored]
    for _ in field.shape[1:]:
        types.append(types[-1].value_type)
    column = leaves
    for depth in range(len(field.shape) - 1, -1, -1):
        # Row r has `repeats[r]` lists at this level, each as long as its size in this dimension.
        repeats = shapes[:, :depth].prod(axis=1)
        lengths = np.repeat(shapes[:, depth], repeats)
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        if starts[-1] > np.iinfo(np.int32).max:
            raise EncodeError(
                f"a list column must have at most {np.iinfo(np.int32).max:,} elements, got {starts[-1]:,}. Encode "
                "fewer rows at once",
                column=field.name,
            )
        mask = pa.array(missing) if depth == 0 and missing is not None else None
        column = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), column, type=types[depth], mask=mask)
    return column


def decoded_to_arrow(values: NDArray[Any], field: UnischemaField, leaf: pa.DataType | None = None) -> pa.Array:
    """Return one Arrow array of the values of a column; arrays become nested lists.

    Args:
        values: `(rows, *shape)`, masked where values are missing, or `(rows,)` of objects with None.
        field: Field of the values.
        leaf: Type of a value inside the lists; None means the field's type, and `decimal(38, 18)` for
            decimals inside lists.

    Raises:
        SchemaError: Arrow has no type for these values.

    Example:
        >>> pose = UnischemaField("pose", "uint8", (2,), nullable=True)
        >>> decoded_to_arrow(np.ma.MaskedArray(np.array([[1, 2], [0, 0]], "uint8"), [[0, 0], [1, 1]]), pose).to_pylist()
        [[1, 2], None]
    """
    if field.shape:
        leaf = stored = _leaf(field) if leaf is None else leaf
        for _ in field.shape:
            stored = pa.list_(pa.field("element", stored, nullable=False))
        cells = each_value(values)
        if any(_holds_nulls(cell, len(field.shape)) for cell in cells):
            stored = leaf
            for _ in field.shape:
                stored = pa.list_(pa.field("element", stored))
            return pa.array([None if cell is None else _items(cell) for cell in cells], stored)
        return encode_lists(cells, dataclasses.replace(field, codec=None), stored)
    if field.numpy_dtype is np.object_:
        cells = field.codec.encode_column(values, field) if field.codec is not None else pa.array(values.tolist())
        return cells.view(getattr(field.codec, "arrow_type", cells.type))
    if field.dtype.hasobject:
        return pa.array(values.tolist(), _leaf(field) if leaf is None else leaf)
    mask = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    return pa.array(np.ma.getdata(values), _leaf(field), mask=mask)


def _leaf(field: UnischemaField) -> pa.DataType:
    scalar = dataclasses.replace(field, shape=(), codec=None)
    if field.numpy_dtype is Decimal and not field.shape:
        return storage_type(field)
    if field.dtype.hasobject:
        return storage_type(scalar)
    try:
        return pa.from_numpy_dtype(field.dtype)
    except pa.ArrowException:
        raise SchemaError(
            f"field {field.name!r}: Arrow has no type for {field.dtype_name}. Leave the column out"
        ) from None


def _holds_nulls(cell: Any, dimensions: int) -> bool:
    """Return whether a value contains nulls, or inner lists of different lengths.

    Such a value is a masked array, or an object array with None or with inner lists.
    """
    if not isinstance(cell, np.ndarray):
        return False
    if cell.dtype != np.dtype(object):
        return isinstance(cell, np.ma.MaskedArray)
    return cell.ndim < dimensions or any(item is None for item in cell.flat)


def _items(cell: NDArray[Any]) -> list[Any]:
    """Convert an array, or an object array of inner lists, to nested Python lists.

    Nulls (masked values) become None.
    """
    items = [_items(item) if isinstance(item, np.ndarray) and item.ndim else item for item in cell]
    return [None if item is np.ma.masked else item for item in items]
