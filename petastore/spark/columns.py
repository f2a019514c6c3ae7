"""Columns of raw values, as Spark hands them over in Arrow → columns of stored cells. Runs in Spark's workers.

A scalar comes as Spark's value of the same meaning, a vector of Spark ML as its struct. Any tensor comes as nested
arrays, as one flat array in C order, or as the bytes of its elements in C order, little-endian. Flat and binary values
say nothing of their shape, so it must be fixed, or have one free dimension, which follows from the size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_views import byte_cells
from petastore.codecs.plain import PlainCodec
from petastore.codecs.registry import codec_of
from petastore.codecs.vector import VectorCodec
from petastore.codecs.vector_cells import vector_cells
from petastore.errors import DecodeError, EncodeError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema

__all__ = ["encode_batch", "encode_batches", "encode_cells", "list_depth"]

_IN_BYTES = "iufcmM"
_SLICE_BYTES = 16 * 1024 * 1024


def encode_batches(batches: Iterable[pa.RecordBatch], schema: Unischema) -> Iterator[pa.RecordBatch]:
    """Encode batches one after another, in slices of some megabytes; their rows are counted on.

    Raises:
        EncodeError: As `encode_batch`; by `next`.

    Example:
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> [cells.num_rows for cells in encode_batches([pa.record_batch({"id": [1, 2]})] * 2, schema)]
        [2, 2]
    """
    done = 0
    for batch in batches:
        # Cells may be larger than values and are held beside them; slices bound both.
        step = max(1, _SLICE_BYTES * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            yield encode_batch(batch.slice(start, step), schema, first_row=done + start)
        done += batch.num_rows


def encode_batch(batch: pa.RecordBatch, schema: Unischema, *, first_row: int = 0) -> pa.RecordBatch:
    """Encode the columns of a batch.

    Args:
        batch: Raw values; a nullable field may have no column.
        schema: What the rows are.
        first_row: Number of the batch's first row, for messages.

    Returns:
        Stored cells, of `petastore.schema.arrow.storage_schema(schema)`.

    Raises:
        EncodeError: A value does not fit its field; field and row are named.

    Example:
        >>> schema = Unischema("step", [UnischemaField("grid", "uint8", (2, 2), nullable=True)])
        >>> batch = pa.record_batch({"grid": [[1, 2, 3, 4], None]})
        >>> encode_batch(batch, schema).to_pydict()
        {'grid': [[[1, 2], [3, 4]], None]}
    """
    stored = storage_schema(schema)
    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        try:
            if position < 0:
                columns.append(pa.nulls(batch.num_rows, stored.field(field.name).type))
            else:
                columns.append(encode_cells(batch.column(position), field))
        except EncodeError as problem:
            problem.row = None if problem.row is None else problem.row + first_row
            raise problem.at(column=field.name) from problem.__cause__
    return pa.RecordBatch.from_arrays(columns, schema=stored)


def encode_cells(values: pa.Array, field: UnischemaField) -> pa.Array:
    """Encode one column; nulls stay where they are.

    Raises:
        EncodeError: A value does not fit, or is missing though the field is not nullable; `row` is set.
    """
    if not values.null_count:
        return _encode_present(values, field)
    known = values.is_valid()
    if not field.nullable:
        raise EncodeError("the value is null, but the field is not nullable", row=pc.index(known, False).as_py())
    try:
        cells = _encode_present(values.drop_null(), field)
    except EncodeError as problem:
        if problem.row is not None:
            problem.row = int(np.flatnonzero(known.to_numpy(zero_copy_only=False))[problem.row])
        raise
    positions = pc.subtract(pc.cumulative_sum(pc.cast(known, pa.int64())), 1)
    return cells.take(pc.if_else(known, positions, None))


def _encode_present(values: pa.Array, field: UnischemaField) -> pa.Array:
    try:
        if isinstance(field.codec, VectorCodec) and pa.types.is_struct(values.type):
            vector_cells(values, field)  # Spark made the cells already; they only have to be what is declared
            return values.cast(field.codec.storage_type(field))
        raw = _raw_values(values, field)
    except DecodeError as problem:
        text = f"the DataFrame's value does not fit: {problem.problem}"
        raise EncodeError(text, column=field.name, row=problem.row) from None
    return codec_of(field).encode_column(raw, field)


def _raw_values(values: pa.Array, field: UnischemaField) -> Any:
    """The values as the codec takes them: one array `(rows, *shape)` where the shape is fixed, else an array each."""
    depth = list_depth(values.type)
    if field.is_scalar or depth == len(field.shape):
        return _decoded(values, field)
    if depth == 1:
        return _shaped_lists(values, field)
    if depth == 0 and (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        return _shaped_bytes(values, field)
    raise EncodeError(
        f"the column is {values.type}, but the field declares shape {field.shape}: give nested arrays of "
        f"{len(field.shape)} levels, one flat array, or bytes",
        column=field.name,
    )


def list_depth(arrow_type: pa.DataType) -> int:
    """Levels of lists around the leaves of a type.

    Example:
        >>> list_depth(pa.list_(pa.list_(pa.int8()))), list_depth(pa.binary())
        (2, 0)
    """
    types = pa.types
    if types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type):
        return 1 + list_depth(arrow_type.value_type)
    return 0


def _decoded(values: pa.Array, field: UnischemaField) -> NDArray[Any]:
    plain = dataclasses.replace(field, codec=None)
    fixed = [size for size in field.shape if size is not None] if field.is_fixed else []
    out = np.empty((len(values), *fixed), field.dtype if field.is_fixed else object)
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
        raise EncodeError(f"bytes hold no array of {field.dtype_name}; give nested arrays", column=field.name)
    even = cells.even_size
    if even is not None and field.is_fixed and even == field.decoded_bytes:
        start = int(cells.starts[0])
        block = cells.data[start : start + even * len(cells)]
        return block.view(dtype).reshape(len(cells), *field.shape).astype(field.dtype, copy=False)
    arrays = []
    for row in range(len(cells)):
        if len(cells[row]) % dtype.itemsize:
            raise EncodeError(
                f"{len(cells[row]):,} bytes are no whole number of {field.dtype_name}", column=field.name, row=row
            )
        value = np.frombuffer(cells[row], dtype).astype(field.dtype, copy=False)
        arrays.append(_in_shape(value, field, row))
    return arrays


def _in_shape(value: NDArray[Any], field: UnischemaField, row: int) -> NDArray[Any]:
    """A flat value in its declared shape; the one free dimension follows from the size."""
    known = _size(field.shape)
    free = field.shape.count(None)
    fits = value.size == known if free == 0 else known > 0 and value.size % known == 0
    if not fits:
        raise EncodeError(
            f"{value.size:,} elements came, and they fill no {field.dtype_name} of shape {field.shape}",
            column=field.name,
            row=row,
        )
    return value.reshape([-1 if size is None else size for size in field.shape])


def _size(shape: Sequence[int | None]) -> int:
    return math.prod(size for size in shape if size is not None)
