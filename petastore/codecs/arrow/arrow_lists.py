"""A whole Arrow column of lists into arrays: the leaves are decoded once, as one flat array, and then cut by row.

A value must be a rectangle: all lists of one level inside a row have one length. A fixed-shape tensor column is a list
of its flat values; the type knows their shape, and in which order its axes are stored.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers, numbers_of
from petastore.codecs.arrow.arrow_to_numpy import decode_scalars, plain_layout, refuse_nulls
from petastore.errors import DecodeError
from petastore.schema.arrow import axes_in_storage, tensor_shape
from petastore.schema.field import UnischemaField

__all__ = ["are_arrays", "decode_lists"]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rectangles:
    """Where the values of a column of lists lie in its flat leaves."""

    leaves: pa.Array
    starts: NDArray[np.int64]
    """Row r has the leaves `[starts[r], starts[r + 1])`; of shape (rows + 1,)."""
    shapes: NDArray[np.int64]
    """Shape of each value, (rows, dimensions)."""


def decode_lists(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    """A column of lists into `out`.

    Args:
        cells: Lists of any layout, as many levels as the field has dimensions; no nulls at any level.
        field: With at least one dimension.
        out: `(rows, *shape)` of `field.dtype` where `field.is_fixed`; else `(rows,)` of objects, each an array of its
            own shape that is a part of one array for the whole column.

    Raises:
        DecodeError: A list is no rectangle or not of the declared shape, a value is null, or as `decode_scalars`.
    """
    refuse_nulls(cells, field)
    found = _rectangles(cells, field, len(field.shape))
    _check_shapes(found, field)
    scalar = dataclasses.replace(field, shape=(), codec=None)
    flat = _flat_target(field, out)
    try:
        refuse_nulls(found.leaves, field, inside=True)
        decoded = np.empty(len(found.leaves), field.dtype) if flat is None else flat
        decode_scalars(found.leaves, scalar, decoded)
    except DecodeError as problem:
        if problem.row is not None:
            problem.row = int(np.searchsorted(found.starts, problem.row, side="right")) - 1
        raise
    if flat is None:
        _cut(decoded, found, field, out)


def are_arrays(cells: pa.Array | pa.ChunkedArray, field: UnischemaField) -> bool:
    """Whether every list of a column is an array: no value inside is missing, and all inner lists have one length.

    Example:
        >>> field = UnischemaField("x", "int64", (None, None))
        >>> are_arrays(pa.array([[[1, 2], [3, 4]], None]), field), are_arrays(pa.array([[[1, 2], [3]]]), field)
        (True, False)
    """
    try:
        for chunk in cells.chunks if isinstance(cells, pa.ChunkedArray) else [cells]:
            found = _rectangles(chunk.drop_null(), field, len(field.shape))
            refuse_nulls(found.leaves, field, inside=True)
    except DecodeError:
        return False
    return True


def _flat_target(field: UnischemaField, out: NDArray[Any]) -> NDArray[Any] | None:
    """All of `out` as one flat view, where values are laid side by side in it."""
    return out.reshape(-1) if field.is_fixed and out.flags.c_contiguous else None


def _cut(decoded: NDArray[Any], found: _Rectangles, field: UnischemaField, out: NDArray[Any]) -> None:
    if field.is_fixed:
        out[:] = decoded.reshape(out.shape)
        return
    bounds = found.starts.tolist()
    for row, shape in enumerate(found.shapes.tolist()):
        out[row] = decoded[bounds[row] : bounds[row + 1]].reshape(shape)


def _rectangles(cells: pa.Array, field: UnischemaField, depth: int) -> _Rectangles:
    if isinstance(cells, pa.ExtensionArray) and isinstance(cells.type, pa.FixedShapeTensorType):
        return _tensors(cells, field, depth)
    cells = plain_layout(cells)
    if isinstance(cells, pa.DictionaryArray):
        cells = cells.dictionary_decode()
    starts = _list_starts(cells, field, depth)
    leaves = cells.flatten()
    if depth == 1:
        return _Rectangles(leaves, starts, np.diff(starts)[:, None])
    try:
        refuse_nulls(leaves, field, inside=True)
        inner = _rectangles(leaves, field, depth - 1)
    except DecodeError as problem:
        if problem.row is not None:
            problem.row = int(np.searchsorted(starts, problem.row, side="right")) - 1
        raise
    _refuse_ragged(starts, inner.shapes, field)
    rows = len(cells)
    shapes = np.zeros((rows, depth), np.int64)
    shapes[:, 0] = np.diff(starts)
    filled = shapes[:, 0] > 0
    shapes[filled, 1:] = inner.shapes[starts[:-1][filled]]
    # Below an empty list nothing says the sizes: a declared one is taken.
    below = [size or 0 for size in field.shape[len(field.shape) - depth + 1 :]]
    shapes[~filled, 1:] = below
    return _Rectangles(inner.leaves, inner.starts[starts], shapes)


def _tensors(cells: pa.ExtensionArray, field: UnischemaField, depth: int) -> _Rectangles:
    shape, axes = tensor_shape(cells.type), axes_in_storage(cells.type)
    if len(shape) != depth:
        raise DecodeError(
            f"the column holds tensors of shape {shape}, but {field.shape} is declared", column=field.name
        )
    rows, size = len(cells), math.prod(shape)
    leaves = cells.storage.flatten()
    if axes != tuple(range(depth)):
        stored = np.arange(rows * size, dtype=np.int64).reshape(rows, *cells.type.shape)
        leaves = leaves.take(arrow_numbers(stored.transpose(0, *(axis + 1 for axis in axes)).reshape(-1)))
    return _Rectangles(
        leaves, np.arange(rows + 1, dtype=np.int64) * size, np.tile(np.array(shape, np.int64), (rows, 1))
    )


def _list_starts(cells: pa.Array, field: UnischemaField, depth: int) -> NDArray[np.int64]:
    """Where each list begins among the flattened values; (rows + 1,)."""
    if isinstance(cells, pa.FixedSizeListArray):
        return np.arange(len(cells) + 1, dtype=np.int64) * cells.type.list_size
    if not isinstance(cells, (pa.ListArray, pa.LargeListArray, pa.ListViewArray, pa.LargeListViewArray)):
        raise DecodeError(
            f"the column is stored as {cells.type}, but the field declares shape {field.shape}: {depth} more levels of "
            "lists are needed",
            column=field.name,
        )
    starts = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(numbers_of(cells.value_lengths()), out=starts[1:])
    return starts


def _refuse_ragged(starts: NDArray[np.int64], inner: NDArray[np.int64], field: UnischemaField) -> None:
    """Refuse a row whose inner values differ in shape."""
    if len(inner) < 2:
        return
    changes = np.zeros(len(inner), np.int64)
    np.cumsum((inner[1:] != inner[:-1]).any(axis=1), out=changes[1:])
    first, last = starts[:-1], starts[1:] - 1
    filled = last >= first
    bad = np.zeros(len(first), np.bool_)
    bad[filled] = changes[last[filled]] != changes[first[filled]]
    if bad.any():
        raise DecodeError(
            "the lists inside the cell have different lengths, and an array is a rectangle; leave the column out with "
            "schema_fields, or write the file again with lists of one length",
            column=field.name,
            row=int(np.argmax(bad)),
        )


def _check_shapes(found: _Rectangles, field: UnischemaField) -> None:
    declared = np.array([-1 if size is None else size for size in field.shape], np.int64)
    bad = ((found.shapes != declared) & (declared >= 0)).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        shape = tuple(found.shapes[row].tolist())
        raise DecodeError(f"the cell has shape {shape}, but {field.shape} is declared", column=field.name, row=row)
