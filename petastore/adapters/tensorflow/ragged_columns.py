"""Columns of free shapes: what crosses of them are flat values and where lists end, and ragged tensors are made there.

A ragged tensor that is made in Python, and handed over as one, is taken apart and put together again on the way.
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

from petastore.adapters.columns import flattened
from petastore.adapters.tensorflow.arrays import aligned, plain, sizes_of, tf_dtype
from petastore.adapters.tensorflow.tensor_column import TensorColumn
from petastore.schema.field import UnischemaField

__all__ = ["column_of_free_rows", "ragged_column", "ragged_windows"]


def ragged_column(field: UnischemaField) -> TensorColumn:
    """Batches of a field of free shape: a `tf.RaggedTensor` (rows, *shape).

    Raises:
        InvalidArgumentError: TensorFlow has no such type.
    """
    outer = _to_the_last_free(field.shape)
    inner = sizes_of(field.shape[len(outer) :])
    borders = _Borders(outer)

    def convert(column: NDArray[Any]) -> list[NDArray[Any]]:
        flat, shapes = _flat(field, column)
        return [flat.reshape(len(flat) // max(math.prod(inner), 1), *inner), *borders.of(shapes)]

    specs = [tf.TensorSpec((None,), tf.int64) for size in outer if size is None]
    return TensorColumn(
        field.name,
        (tf.TensorSpec((None, *inner), tf_dtype(field)), tf.TensorSpec((len(outer),), tf.int64), *specs),
        convert,
        functools.partial(_ragged, outer),
    )


def ragged_windows(rows: UnischemaField, length: int) -> TensorColumn:
    """Windows of a field of free shape, also one by one: a `tf.RaggedTensor` (windows, length, *shape).

    Args:
        rows: What the schema says of the rows of windows.
        length: How many rows each window has, at least 1.

    Raises:
        InvalidArgumentError: TensorFlow has no such type.
    """
    column, outer = ragged_column(rows), _to_the_last_free(rows.shape)

    def join(parts: Sequence[Any]) -> Any:
        return tf.RaggedTensor.from_uniform_row_length(_ragged(outer, parts), length, validate=False)

    return dataclasses.replace(column, convert=lambda windows: column.convert(windows.reshape(-1)), join=join)


def _to_the_last_free(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    return shape[: len(shape) - tuple(reversed(shape)).index(None)]


def _ragged(sizes: tuple[int | None, ...], parts: Sequence[Any]) -> Any:
    """The ragged tensor of values, numbers of lists and borders; built from the innermost dimension outwards."""
    tensor, numbers, *borders = parts
    for axis in reversed(range(len(sizes))):
        size = sizes[axis]
        if size is None:
            tensor = tf.RaggedTensor.from_row_splits(tensor, borders.pop(), validate=False)
        else:
            tensor = tf.RaggedTensor.from_uniform_row_length(tensor, size, nrows=numbers[axis], validate=False)
    return tensor


class _Borders:
    """Where the lists of each free dimension end, of cells whose shapes are given.

    Shapes that may differ are often the same in all of a dataset, and then so are the borders of its batches: those of
    the newest batch are kept. A thread may make some while another one does.
    """

    def __init__(self, sizes: tuple[int | None, ...]) -> None:
        self._sizes = sizes
        self._newest: tuple[bytes, list[NDArray[np.int64]]] = (b"", self._made(np.empty((0, len(sizes)), np.int64)))

    def of(self, shapes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """How many lists each dimension has, and the borders of each free one; to be read only."""
        key = shapes.tobytes()
        newest = self._newest
        if newest[0] != key:
            newest = self._newest = key, self._made(shapes)
        return newest[1]

    def _made(self, shapes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        # Of each cell: how many lists of a dimension it has, one for each index into the dimensions before it.
        lists = [shapes[:, :axis].prod(axis=1) for axis in range(len(self._sizes))]
        numbers = np.array([of_cells.sum() for of_cells in lists], np.int64)
        free = [axis for axis, size in enumerate(self._sizes) if size is None]
        return [numbers, *(_ends(np.repeat(shapes[:, axis], lists[axis])) for axis in free)]


def _ends(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    ends = aligned(len(lengths) + 1, np.dtype(np.int64))
    ends[0] = 0
    np.cumsum(lengths, out=ends[1:])
    return ends


def column_of_free_rows(field: UnischemaField) -> TensorColumn:
    """Single rows of a field of free shape.

    They travel flat beside their shapes: `unbatch` takes ragged rows apart, but loses shapes.

    Raises:
        InvalidArgumentError: TensorFlow has no such type.
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
    """The values of all cells one after another, and the shape of each cell, `(rows, dimensions)`."""
    flat, shapes = flattened(field, column, np.empty if field.dtype == np.dtype(object) else aligned)
    return plain(field.name, flat), shapes
