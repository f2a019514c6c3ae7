"""Conversion of a reader's columns to dense and ragged tensors of TensorFlow.

The module defines the arrays that are passed to `tf.data`, and the graph functions that build tensors from them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from petastore.adapters.column_plans import ColumnPlan
from petastore.adapters.nulls import NullColumn, present
from petastore.adapters.ragged import Padded, lengths_field
from petastore.adapters.ragged_arrays import boxed, flattened, lists_inside, ragged_cells
from petastore.adapters.tensorflow.crossing import TensorColumn, aligned, plain, sizes_of, tf_dtype
from petastore.schema.field import UnischemaField

__all__ = ["columns_of_field"]


def columns_of_field(plan: ColumnPlan, *, rows: bool, windows: bool = False) -> list[TensorColumn]:
    """Return the conversion of a reader's column to one or more columns of tensors.

    A padded column, for example, becomes a column of values and a column of lengths.

    Args:
        plan: Conversion of the column; without a form, a column whose shape has None is ragged.
        rows: Whether elements of the dataset are single rows.
        windows: Whether rows are windows, whose length is the first dimension of the field.

    Raises:
        InvalidArgumentError: TensorFlow has no dtype for the field.
    """
    field, null = plan.field, plan.null
    if plan.form is not None:
        columns = _formed(plan)
    elif windows:
        columns = [_of_windows(field)]
    else:
        columns = [_column(field, rows=rows)]
    return columns if null is None else _filled(columns, null, field.shape[:1] if windows else ())


def _filled(columns: list[TensorColumn], null: NullColumn, length: tuple[int | None, ...]) -> list[TensorColumn]:
    filled = [_without_missing(column, null) for column in columns]
    if null.mask is None:
        return filled
    spec = tf.TensorSpec((None, *length), tf.bool)
    mask = TensorColumn(null.mask, (spec,), lambda column: [null.valid(column)], made_of=null.field.name, is_dense=True)
    return [*filled, mask]


def _without_missing(column: TensorColumn, null: NullColumn) -> TensorColumn:
    return dataclasses.replace(column, convert=lambda values: column.convert(null.filled(values)), is_as_it_is=False)


def _formed(plan: ColumnPlan) -> list[TensorColumn]:
    """Return the conversion to one dense tensor, stacked or padded.

    A padded column also gets a column of lengths.
    """
    field = plan.field

    def values_of(column: NDArray[Any]) -> list[NDArray[Any]]:
        return [plain(field.name, plan.shaped(column)[field.name])]

    made = [TensorColumn(field.name, (tf.TensorSpec((None, *field.shape), tf_dtype(field)),), values_of)]
    if not isinstance(plan.form, Padded):
        return made
    lengths = lengths_field(field)
    free = [axis for axis, size in enumerate(field.shape) if size is None]

    def lengths_of(column: NDArray[Any]) -> list[NDArray[np.int64]]:
        shapes = ragged_cells(field, boxed(field, column, 0))[1]
        return [shapes[:, free].reshape(len(column), *sizes_of(lengths.shape))]

    spec = tf.TensorSpec((None, *lengths.shape), tf.int64)
    return [*made, TensorColumn(lengths.name, (spec,), lengths_of, made_of=field.name)]


def _column(field: UnischemaField, *, rows: bool) -> TensorColumn:
    if None in field.shape:
        return column_of_free_rows(field) if rows else ragged_column(field)
    spec = tf.TensorSpec((None, *field.shape), tf_dtype(field))
    as_it_is = field.dtype.kind in "biuf" and field.dtype.isnative
    return TensorColumn(
        field.name, (spec,), lambda column: [_dense(field, column)], is_dense=True, is_as_it_is=as_it_is
    )


def _of_windows(field: UnischemaField) -> TensorColumn:
    (length,), rows = field.shape[:1], dataclasses.replace(field, shape=field.shape[1:], codec=None)
    if length is not None and None in rows.shape:
        return ragged_windows(rows, length)
    column = _column(field, rows=False)
    if field.dtype != np.dtype(object):
        return column
    sizes = sizes_of(field.shape)
    return dataclasses.replace(column, convert=lambda windows: [_dense(rows, windows.reshape(-1)).reshape(-1, *sizes)])


def _dense(field: UnischemaField, column: NDArray[Any]) -> NDArray[Any]:
    if type(column) is np.ndarray and column.dtype == field.dtype and field.dtype.kind in "biuf":
        # Numbers of the declared dtype have no missing values and one shape; checking this would take longer than the
        # transfer.
        return plain(field.name, column)
    if column.dtype == np.dtype(object) and field.shape:
        return plain(field.name, flattened(field, column)[0]).reshape(len(column), *sizes_of(field.shape))
    return plain(field.name, present(field.name, column))


def ragged_column(field: UnischemaField) -> TensorColumn:
    """Return the conversion of a variable-shape field to a `tf.RaggedTensor`.

    The tensor has the shape (rows, *shape).

    Raises:
        InvalidArgumentError: TensorFlow has no dtype for the field.
    """
    outer = _to_the_last_free(field.shape)
    inner = sizes_of(field.shape[len(outer) :])

    def convert(column: NDArray[Any]) -> list[NDArray[Any]]:
        uneven = lists_inside(field, column)
        if uneven is None:
            flat, shapes = _flat(field, column)
            lengths = _lengths_in(shapes, len(outer))
        else:
            flat, lengths = plain(field.name, uneven[0]), uneven[1][: len(outer)]
        return [flat.reshape(len(flat) // max(math.prod(inner), 1), *inner), *_borders(outer, lengths)]

    specs = [tf.TensorSpec((None,), tf.int64) for size in outer if size is None]
    return TensorColumn(
        field.name,
        (tf.TensorSpec((None, *inner), tf_dtype(field)), tf.TensorSpec((len(outer),), tf.int64), *specs),
        convert,
        functools.partial(_ragged, outer),
    )


def ragged_windows(rows: UnischemaField, length: int) -> TensorColumn:
    """Return the conversion of windows of a variable-shape field to a ragged tensor.

    The `tf.RaggedTensor` has the shape (windows, length, *shape).

    Args:
        rows: Field of the rows of windows.
        length: Number of rows of a window, at least 1.

    Raises:
        InvalidArgumentError: TensorFlow has no dtype for the field.
    """
    column, outer = ragged_column(rows), _to_the_last_free(rows.shape)

    def join(parts: Sequence[Any]) -> Any:
        return tf.RaggedTensor.from_uniform_row_length(_ragged(outer, parts), length, validate=False)

    return dataclasses.replace(column, convert=lambda windows: column.convert(windows.reshape(-1)), join=join)


def _to_the_last_free(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    return shape[: len(shape) - tuple(reversed(shape)).index(None)]


def _ragged(sizes: tuple[int | None, ...], parts: Sequence[Any]) -> Any:
    """Build a ragged tensor, from the innermost dimension outwards.

    Args:
        sizes: Size of each dimension up to the last variable one; None means variable.
        parts: The values, the number of lists in each dimension, and the row splits of each variable dimension.
    """
    tensor, numbers, *borders = parts
    for axis in reversed(range(len(sizes))):
        size = sizes[axis]
        if size is None:
            tensor = tf.RaggedTensor.from_row_splits(tensor, borders.pop(), validate=False)
        else:
            tensor = tf.RaggedTensor.from_uniform_row_length(tensor, size, nrows=numbers[axis], validate=False)
    return tensor


def _lengths_in(shapes: NDArray[np.int64], dimensions: int) -> list[NDArray[np.int64]]:
    """Return the lengths of the lists in each of the outer dimensions of cells.

    Args:
        shapes: Shapes of the cells, (rows, dimensions).
        dimensions: Number of outer dimensions.
    """
    # A cell has as many lists in a dimension as the product of the sizes of its outer dimensions.
    return [np.repeat(shapes[:, axis], shapes[:, :axis].prod(axis=1)) for axis in range(dimensions)]


def _borders(sizes: tuple[int | None, ...], lengths: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Return the number of lists in each dimension, then the row splits of each variable dimension.

    Args:
        sizes: Declared sizes of the dimensions up to the last variable one.
        lengths: Lengths of the lists in each dimension.
    """
    numbers = np.array([len(of_lists) for of_lists in lengths], np.int64)
    return [numbers, *(_ends(of_lists) for size, of_lists in zip(sizes, lengths, strict=True) if size is None)]


def _ends(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    ends = aligned(len(lengths) + 1, np.dtype(np.int64))
    ends[0] = 0
    np.cumsum(lengths, out=ends[1:])
    return ends


def column_of_free_rows(field: UnischemaField) -> TensorColumn:
    """Return the conversion of a variable-shape field to tensors of single rows.

    Values are passed flat, together with their shapes, because `unbatch` of ragged tensors loses the shapes.

    Raises:
        InvalidArgumentError: TensorFlow has no dtype for the field.
    """
    shape = field.shape

    def convert(column: NDArray[Any]) -> list[NDArray[Any]]:
        flat, shapes = _flat(field, column)
        return [flat, _ends(shapes.prod(axis=1)), shapes]

    def join(parts: Sequence[Any]) -> Any:
        return tf.RaggedTensor.from_row_splits(parts[0], parts[1], validate=False), parts[2]

    def finish_row(parts: Any) -> Any:
        return tf.ensure_shape(tf.reshape(parts[0], parts[1]), shape)

    specs = (
        tf.TensorSpec((None,), tf_dtype(field)),
        tf.TensorSpec((None,), tf.int64),
        tf.TensorSpec((None, len(shape)), tf.int64),
    )
    return TensorColumn(field.name, specs, convert, join, finish_row)


def _flat(field: UnischemaField, column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the concatenated values of all cells, and the shape of each cell.

    The shapes are an array `(rows, dimensions)`.
    """
    flat, shapes = flattened(field, column, np.empty if field.dtype == np.dtype(object) else aligned)
    return plain(field.name, flat), shapes
