"""Dataset functions for programs written for Petastorm or for TensorFlow 1.

They support graphs and sessions, named tuples, windows, and Petastorm's dtypes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from petastore.errors import InvalidArgumentError
from petastore.plan.windows.ngram import NGram
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema, row_type

__all__ = [
    "as_named_tuples",
    "as_v1_dataset",
    "as_windows",
    "fields_with_tensors",
    "tensors_of_next",
    "with_signed_integers",
]


def tensors_of_next(dataset: Any) -> Any:
    """Return graph tensors for the next element of a dataset.

    For programs with TensorFlow 1 sessions: each `session.run` gets the next element, and all its tensors belong to the
    same element. After the last element, `session.run` raises `tf.errors.OutOfRangeError`.

    Raises:
        InvalidArgumentError: TensorFlow executes eagerly; iterate over the dataset instead.

    Example:
        >>> with tf.Graph().as_default():
        ...     number = tensors_of_next(tf.data.Dataset.range(3))
        ...     with tf.compat.v1.Session() as session:
        ...         [int(session.run(number)) for _ in range(3)]
        [0, 1, 2]
    """
    if tf.executing_eagerly():
        raise InvalidArgumentError(
            "tensors of the next element need a graph and a session, but TensorFlow runs eagerly. Iterate over the "
            "dataset (`for row in make_tf_dataset(reader)`), or build a graph (`with tf.Graph().as_default():`)"
        )
    return tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()


def as_named_tuples(dataset: Any, name: str) -> Any:
    """Return the dataset with named tuples, of a type called `name`, instead of dicts.

    Example:
        >>> as_named_tuples(tf.data.Dataset.from_tensors({"x": 1}), "row").element_spec
        row(x=TensorSpec(shape=(), dtype=tf.int32, name=None))
    """
    names = tuple(dataset.element_spec)
    row = row_type(name, names)
    return dataset.map(lambda columns: row(*(columns[name] for name in names)))


def as_windows(dataset: Any, ngram: NGram, rows: Unischema) -> Any:
    """Return a dataset of windows: dicts from offset to the named tuple of a row.

    An offset without fields (a gap in the window) has an empty named tuple, as in windows of readers.

    Args:
        dataset: Dataset of columns; the second axis of a column has the offsets that include the column.
        ngram: Definition of a window.
        rows: Schema with the fields of all offsets.
    """
    at_offsets = {offset: ngram.get_schema_at_timestep(rows, offset) for offset in ngram.offsets}

    def window(columns: dict[str, Any]) -> dict[int, Any]:
        return {
            offset: fields.row_type(
                *(_in_shape(columns[field.name][ngram.offsets_of(field.name).index(offset)], field) for field in fields)
            )
            for offset, fields in at_offsets.items()
        }

    return dataset.map(window)


def _in_shape(value: Any, field: UnischemaField) -> Any:
    """Return a row's value as a dense tensor with the shape of its field.

    In ragged windows, a value with two variable dimensions is ragged before this conversion.
    """
    return tf.ensure_shape(value.to_tensor() if isinstance(value, tf.RaggedTensor) else value, field.shape)


def with_signed_integers(dataset: Any) -> Any:
    """Return the dataset with unsigned integers cast to signed ones, as in Petastorm.

    `uint16` becomes `int32`, and `uint32` becomes `int64`.

    Example:
        >>> with_signed_integers(tf.data.Dataset.from_tensors({"x": tf.constant(1, tf.uint16)})).element_spec["x"].dtype
        tf.int32
    """
    signed = {tf.uint16: tf.int32, tf.uint32: tf.int64}
    if not any(spec.dtype in signed for spec in tf.nest.flatten(dataset.element_spec)):
        return dataset

    def cast(tensor: Any) -> Any:
        return tf.cast(tensor, signed[tensor.dtype]) if tensor.dtype in signed else tensor

    return dataset.map(lambda element: tf.nest.map_structure(cast, element))


def fields_with_tensors(fields: Iterable[UnischemaField]) -> list[UnischemaField]:
    """Return the fields that TensorFlow has types for, as in Petastorm.

    These are all fields except structs, maps, and other fields of dtype `object`. If no field remains, all fields are
    returned, without a warning.

    Warns:
        UserWarning: Columns are omitted; one warning names all of them.

    Example:
        >>> fields_with_tensors([UnischemaField("id", "int64")])
        [UnischemaField('id', int64)]
    """
    known = list(fields)
    kept = [field for field in known if not _is_without_tensors(field)]
    gone = [repr(field.name) for field in known if _is_without_tensors(field)]
    if gone and kept:
        verb = "is" if len(gone) == 1 else "are"
        warnings.warn(
            f"TensorFlow has no tensors for structs and maps: {', '.join(gone)} {verb} left out, as in Petastorm, but "
            "still read. Select the other columns with schema_fields of the reader",
            stacklevel=3,
        )
    return kept or known


def _is_without_tensors(field: UnischemaField) -> bool:
    return field.numpy_dtype is np.object_


def as_v1_dataset(dataset: Any) -> Any:
    """Return the dataset as a `tf.compat.v1.data.Dataset`.

    It has the attributes of TensorFlow 1, such as `make_one_shot_iterator` and `output_shapes`.

    Example:
        >>> as_v1_dataset(tf.data.Dataset.from_tensors(7)).make_one_shot_iterator().get_next().numpy()
        np.int32(7)
    """
    # `zip` of one dataset yields its elements unchanged, and is also public in TensorFlow 1.
    return tf.compat.v1.data.Dataset.zip(dataset)
