"""What becomes of each column of a reader in TensorFlow: the arrays that cross, and how they are made."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from petastore.adapters.columns import flattened, padded, present, ragged_cells, stacked
from petastore.adapters.nulls import NullColumn
from petastore.adapters.ragged import Form, Padded, lengths_field
from petastore.adapters.tensorflow.arrays import plain, sizes_of, tf_dtype
from petastore.adapters.tensorflow.ragged_columns import column_of_free_rows, ragged_column, ragged_windows
from petastore.adapters.tensorflow.tensor_column import TensorColumn
from petastore.schema.field import UnischemaField

__all__ = ["columns_of_field"]


def columns_of_field(
    field: UnischemaField, *, form: Form | None, null: NullColumn | None, rows: bool, windows: bool = False
) -> list[TensorColumn]:
    """The columns that are made of a reader's column.

    Args:
        field: What the reader says of it.
        form: What becomes of a shape with None, where it is not ragged.
        null: What stands where a value is missing; None refuses.
        rows: Whether users get single rows.
        windows: Whether these are windows, whose length is the first dimension of the field.

    Raises:
        InvalidArgumentError: TensorFlow has no such type.
    """
    if form == "dense":
        columns = [_stacked(field)]
    elif form is not None:
        columns = _padded(field, form)
    else:
        columns = [_of_windows(field) if windows else _column(field, rows=rows)]
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


def _padded(field: UnischemaField, form: Form) -> list[TensorColumn]:
    value, lengths = form.value if isinstance(form, Padded) else 0, lengths_field(field)
    free = [axis for axis, size in enumerate(field.shape) if size is None]

    def lengths_of(column: NDArray[Any]) -> list[NDArray[np.int64]]:
        return [ragged_cells(field, column)[1][:, free].reshape(len(column), *sizes_of(lengths.shape))]

    return [
        TensorColumn(
            field.name,
            (tf.TensorSpec((None, *field.shape), tf_dtype(field)),),
            lambda column: [plain(field.name, padded(field, column, value)[0])],
        ),
        TensorColumn(lengths.name, (tf.TensorSpec((None, *lengths.shape), tf.int64),), lengths_of, made_of=field.name),
    ]


def _stacked(field: UnischemaField) -> TensorColumn:
    spec = tf.TensorSpec((None, *field.shape), tf_dtype(field))
    return TensorColumn(field.name, (spec,), lambda column: [plain(field.name, stacked(field, column))])


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
        return plain(field.name, column)  # nothing to look for, which would cost more than the hand-over
    if column.dtype == np.dtype(object) and field.shape:
        return plain(field.name, flattened(field, column)[0]).reshape(len(column), *sizes_of(field.shape))
    return plain(field.name, present(field.name, column))
