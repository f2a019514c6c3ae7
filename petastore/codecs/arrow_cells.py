"""Encode Arrow columns of raw values as columns of cells.

A raw scalar is the equivalent Arrow value, a Spark ML vector is its struct, and an image is the bytes of its file. A
tensor may be nested arrays, one flat array in C order, or the little-endian bytes of its elements in C order. Flat
arrays and bytes do not contain their shape, so at most one dimension may be variable; its length is computed from the
size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.codecs.arrow.arrow_lists import decode_lists
from petastore.codecs.arrow.arrow_views import byte_cells
from petastore.codecs.plain import PlainCodec
from petastore.codecs.registry import codec_of
from petastore.errors import DecodeError, EncodeError
from petastore.schema.arrow import is_bytes, is_list
from petastore.schema.field import ArrowCellsCodec, UnischemaField

__all__ = ["encode_cells"]

_IN_BYTES = "iufcmM"
_READING_ADVICE = ". Leave the column out"
"""Beginning of the advice in errors for readers; errors for writers omit the text from here on."""

_LIST_ADVICE = ". A field of dtype object with ArrowCodec keeps lists that are not arrays"


def encode_cells(values: pa.Array, field: UnischemaField) -> pa.Array:
    """Encode one column; nulls stay nulls.

    Raises:
        EncodeError: A value does not fit the field, or is missing and the field is not nullable; `row` is set.

    Example:
        >>> field = UnischemaField("grid", "uint8", (2, 2), nullable=True)
        >>> encode_cells(pa.array([[1, 2, 3, 4], None]), field).to_pylist()
        [[[1, 2], [3, 4]], None]
    """
    if not values.null_count:
        return _encode_present(values, field)
    known = values.is_valid()
    if field.nullable and values.null_count == len(values):
        return pa.nulls(len(values), codec_of(field).storage_type(field))
    if not field.nullable:
        raise EncodeError(
            "the value must not be null, because the field is not nullable. Declare nullable=True",
            row=pc.index(known, False).as_py(),
        )
    try:
        cells = _encode_present(values.drop_null(), field)
    except EncodeError as problem:
        if problem.row is not None:
            problem.row = int(np.flatnonzero(known.to_numpy(zero_copy_only=False))[problem.row])
        raise
    positions = pc.subtract(pc.cumulative_sum(pc.cast(known, pa.int64())), 1)
    return cells.take(pc.if_else(known, positions, None))


def _encode_present(values: pa.Array, field: UnischemaField) -> pa.Array:
    if isinstance(values, pa.ExtensionArray) and not isinstance(values.type, pa.FixedShapeTensorType):
        return _encode_present(values.storage, field)
    codec = codec_of(field)
    cells = cast("ArrowCellsCodec", codec).encode_arrow(values, field) if hasattr(codec, "encode_arrow") else None
    if cells is not None:
        return cells
    try:
        raw = _raw_values(values, field)
    except DecodeError as problem:
        what = problem.problem.partition(_READING_ADVICE)[0]
        advice = _LIST_ADVICE if what != problem.problem else ""
        text = f"the value does not fit: {what}{advice}"
        raise EncodeError(text, column=field.name, row=problem.row) from None
    return codec.encode_column(raw, field)


def _raw_values(values: pa.Array, field: UnischemaField) -> Any:
    """Convert raw values for the codec: one array `(rows, *shape)` for a fixed shape, otherwise one array per row."""
    depth = _list_depth(values.type)
    if field.is_scalar or depth == len(field.shape):
        return _decoded(values, field)
    if depth == 1:
        return _shaped_lists(values, field)
    if is_bytes(values.type):
        return _shaped_bytes(values, field)
    raise EncodeError(
        f"the column must have arrays nested {len(field.shape)} levels deep, flat arrays or bytes for shape "
        f"{field.shape}, which the field declares, got {values.type}",
        column=field.name,
    )


def _list_depth(arrow_type: pa.DataType) -> int:
    """Return the number of list levels around the leaves of a type."""
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        return len(arrow_type.shape) + _list_depth(arrow_type.value_type)
    return 1 + _list_depth(arrow_type.value_type) if is_list(arrow_type) else 0


def _decoded(values: pa.Array, field: UnischemaField) -> NDArray[Any]:
    plain = dataclasses.replace(field, codec=None)
    fixed = [size for size in field.shape if size is not None] if field.is_fixed else []
    out = np.empty((len(values), *fixed), field.dtype if field.is_fixed else object)
    if field.shape:
        decode_lists(values, plain, out, only_arrays=True)
    else:
        PlainCodec().decode_column(values, plain, out)
    return out


def _shaped_lists(values: pa.Array, field: UnischemaField) -> Any:
    if field.is_fixed:
        flat = dataclasses.replace(field, shape=(_size(field.shape),), codec=None)
        return _decoded(values, flat).reshape(len(values), *field.shape)
    lists = _decoded(values, dataclasses.replace(field, shape=(None,), codec=None))
    return [_in_shape(value, field, row) for row, value in enumerate(lists)]


def _shaped_bytes(values: pa.Array, field: UnischemaField) -> Any:
    cells = byte_cells(values, field)
    dtype = field.dtype.newbyteorder("<")
    if dtype.kind not in _IN_BYTES:
        raise EncodeError(f"values must be nested arrays for dtype {field.dtype_name}, got bytes", column=field.name)
    even = cells.even_size
    if even is not None and field.is_fixed and even == field.decoded_bytes:
        start = int(cells.starts[0])
        block = cells.data[start : start + even * len(cells)]
        return block.view(dtype).reshape(len(cells), *field.shape).astype(field.dtype, copy=False)
    arrays = []
    for row in range(len(cells)):
        if len(cells[row]) % dtype.itemsize:
            raise EncodeError(
                f"a cell must have a multiple of {dtype.itemsize} bytes, the size of {field.dtype_name}, "
                f"got {len(cells[row]):,} bytes",
                column=field.name,
                row=row,
            )
        value = np.frombuffer(cells[row], dtype).astype(field.dtype, copy=False)
        arrays.append(_in_shape(value, field, row))
    return arrays


def _in_shape(value: NDArray[Any], field: UnischemaField, row: int) -> NDArray[Any]:
    """Reshape a flat value to its declared shape; the size of a variable dimension is computed."""
    known = _size(field.shape)
    free = field.shape.count(None)
    if free > 1:
        raise EncodeError(
            f"values must be nested arrays for shape {field.shape}, because flat ones do not determine two or more "
            "variable dimensions, got a flat array. For images, the bytes of a file are also possible",
            column=field.name,
            row=row,
        )
    fits = value.size == known if free == 0 else known > 0 and value.size % known == 0
    if not fits:
        raise EncodeError(
            f"the value must have as many elements as an array of shape {field.shape}, got {value.size:,} elements",
            column=field.name,
            row=row,
        )
    return value.reshape([-1 if size is None else size for size in field.shape])


def _size(shape: Sequence[int | None]) -> int:
    return math.prod(size for size in shape if size is not None)
