"""How each column of a reader becomes what TensorFlow takes: its spec, and the conversion of many rows at a time."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from petastore.adapters.columns import flattened, nanoseconds, padded, present, ragged_cells
from petastore.adapters.nulls import NullColumn
from petastore.adapters.ragged import Form, Padded, lengths_field
from petastore.adapters.runs import Run
from petastore.errors import RequestError
from petastore.schema.field import UnischemaField

__all__ = ["TensorColumn", "columns_of_field"]


@dataclasses.dataclass(frozen=True)
class TensorColumn:
    """How a column travels from NumPy into TensorFlow."""

    name: str
    spec: Any
    """What `convert` gives for a whole batch, as a nest of `tf.TypeSpec`."""
    convert: Callable[[NDArray[Any]], Any]
    """A column `(rows, ...)` as what `spec` says."""
    finish_row: Callable[[Any], Any] | None = None
    """For rows: one row of what `spec` says as the tensor that users get, in graph code; None where it is that."""
    made_of: str | None = None
    """The reader's column; None is the one of this name."""
    is_dense: bool = False
    """Whether it is one tensor whose first dimension is rows, each independent of the others."""
    is_as_it_is: bool = False
    """Whether it is the reader's array itself, once nothing is missing."""

    def of(self, run: Run) -> Any:
        """What `spec` says, of all rows of a run."""
        return self.convert(run.column(self.made_of or self.name))


def columns_of_field(
    field: UnischemaField, *, form: Form | None, null: NullColumn | None, rows: bool
) -> list[TensorColumn]:
    """The columns that are made of a reader's column.

    Args:
        field: What the reader says of it.
        form: What becomes of a shape with None, where it is not ragged.
        null: What stands where a value is missing; None refuses.
        rows: Whether users get single rows.

    Raises:
        RequestError: TensorFlow has no such type.
    """
    columns = [_column(field, rows=rows)] if form is None else _padded(field, form)
    return columns if null is None else _filled(columns, null)


def _filled(columns: list[TensorColumn], null: NullColumn) -> list[TensorColumn]:
    filled = [
        dataclasses.replace(column, convert=functools.partial(_convert_filled, null, column.convert), is_as_it_is=False)
        for column in columns
    ]
    if null.mask is None:
        return filled
    length = columns[0].spec.shape[1:2] if null.is_windows else ()
    spec = tf.TensorSpec((None, *length), tf.bool)
    return [*filled, TensorColumn(null.mask, spec, null.valid, made_of=null.field.name, is_dense=True)]


def _convert_filled(null: NullColumn, convert: Callable[[NDArray[Any]], Any], column: NDArray[Any]) -> Any:
    return convert(null.filled(column))


def _padded(field: UnischemaField, form: Form) -> list[TensorColumn]:
    value, lengths = form.value if isinstance(form, Padded) else 0, lengths_field(field)
    free = [axis for axis, size in enumerate(field.shape) if size is None]

    def lengths_of(column: NDArray[Any]) -> NDArray[np.int64]:
        return ragged_cells(field, column)[1][:, free].reshape(len(column), *_sizes(lengths.shape))

    return [
        TensorColumn(
            field.name,
            tf.TensorSpec((None, *field.shape), _tf_dtype(field)),
            lambda column: _plain(field.name, padded(field, column, value)[0]),
        ),
        TensorColumn(lengths.name, tf.TensorSpec((None, *lengths.shape), tf.int64), lengths_of, made_of=field.name),
    ]


def _column(field: UnischemaField, *, rows: bool) -> TensorColumn:
    name, shape, dtype = field.name, field.shape, _tf_dtype(field)
    if None in shape and rows:
        return _free_rows(field, dtype)
    if None in shape:
        ragged_rank = len(shape) - tuple(reversed(shape)).index(None)
        spec = tf.RaggedTensorSpec((None, *shape), dtype, ragged_rank=ragged_rank)
        return TensorColumn(name, spec, lambda column: _ragged(field, column, ragged_rank))
    spec = tf.TensorSpec((None, *shape), dtype)
    as_it_is = field.dtype.kind in "biuf" and field.dtype.isnative
    return TensorColumn(name, spec, lambda column: _dense(field, column), is_dense=True, is_as_it_is=as_it_is)


def _free_rows(field: UnischemaField, dtype: Any) -> TensorColumn:
    """Values of free shapes travel flat beside their shapes: `unbatch` takes ragged rows apart, but loses shapes."""
    shape = field.shape
    spec = (tf.RaggedTensorSpec((None, None), dtype, ragged_rank=1), tf.TensorSpec((None, len(shape)), tf.int64))

    def convert(column: NDArray[Any]) -> Any:
        flat, shapes = _flattened(field, column)
        return tf.RaggedTensor.from_row_lengths(flat, shapes.prod(axis=1), validate=False), shapes

    def finish_row(parts: Any) -> Any:
        return tf.ensure_shape(tf.reshape(parts[0], parts[1]), shape)

    return TensorColumn(field.name, spec, convert, finish_row)


def _dense(field: UnischemaField, column: NDArray[Any]) -> NDArray[Any]:
    if type(column) is np.ndarray and column.dtype == field.dtype and field.dtype.kind in "biuf":
        return _plain(field.name, column)  # nothing to look for, which would cost more than the hand-over
    if column.dtype == np.dtype(object) and field.shape:
        return _flattened(field, column)[0].reshape(len(column), *_sizes(field.shape))
    return _plain(field.name, present(field.name, column))


def _ragged(field: UnischemaField, column: NDArray[Any], ragged_rank: int) -> Any:
    """The ragged tensor (rows, *shape) of a column of arrays, built from the innermost dimension outwards."""
    flat, shapes = _flattened(field, column)
    inner = _sizes(field.shape[ragged_rank:])
    tensor = tf.convert_to_tensor(flat.reshape(len(flat) // max(math.prod(inner), 1), *inner))
    for axis in reversed(range(ragged_rank)):
        size = field.shape[axis]
        # Of each cell: how many lists of this dimension it has, one for each index into the dimensions before it.
        lists = shapes[:, :axis].prod(axis=1)
        if size is None:
            tensor = tf.RaggedTensor.from_row_lengths(tensor, np.repeat(shapes[:, axis], lists), validate=False)
        else:
            tensor = tf.RaggedTensor.from_uniform_row_length(tensor, size, nrows=int(lists.sum()), validate=False)
    return tensor


def _flattened(field: UnischemaField, column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values of all cells one after another, and the shape of each cell, `(rows, dimensions)`."""
    flat, shapes = flattened(field, column)
    return _plain(field.name, flat), shapes


def _sizes(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size is not None)


def _plain(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Values in a dtype and byte order that TensorFlow takes."""
    if values.dtype.kind in "mM":
        return nanoseconds(name, values)
    if values.dtype.kind in "OSU":
        return _texts(values)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    texts = values.astype(object, copy=False)
    first = next(iter(texts.flat), None)
    if not isinstance(first, Decimal):
        return texts
    return np.array([str(value.normalize()) for value in texts.flat], dtype=object).reshape(texts.shape)


def _tf_dtype(field: UnischemaField) -> Any:
    if field.numpy_dtype in (np.str_, np.bytes_, Decimal):
        return tf.string
    if field.dtype.kind in "mM":
        return tf.int64
    try:
        if field.dtype != np.dtype(object):
            return tf.as_dtype(field.dtype)
    except TypeError:
        pass
    raise RequestError(
        f"column {field.name!r} is {field.dtype_name}, and TensorFlow has no such type; leave it out with "
        "schema_fields, or convert it in a transform_spec"
    )
