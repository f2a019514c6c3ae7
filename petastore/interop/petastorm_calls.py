"""Petastorm's functions whose calls differ from ours: each hands over to what does the job here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset, open_dataset
from petastore.errors import CodecError, InvalidArgumentError
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.selecting.retired import HdfsDriver, Retired, tell_retired

__all__ = [
    "decode_row",
    "generate_datapoint",
    "get_schema",
    "get_schema_from_dataset_url",
    "make_petastorm_dataset",
    "tf_tensors",
]

_FREE_SIZE = 10
"""A dimension that differs from row to row has up to this many places in made-up values."""


def get_schema(dataset: Dataset) -> Unischema:
    """The schema of a dataset that `petastore.open_dataset` opened.

    Raises:
        InvalidArgumentError: It is something else, such as a `pyarrow.parquet.ParquetDataset`.
    """
    if not isinstance(dataset, Dataset):
        raise InvalidArgumentError(
            f"get_schema takes what petastore.open_dataset gave, but a {type(dataset).__name__} was given; "
            "get_schema_from_dataset_url takes a URL"
        )
    return dataset.schema


def get_schema_from_dataset_url(
    dataset_url_or_urls: str | Sequence[str],
    hdfs_driver: HdfsDriver | None = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Unischema:
    """The schema of the dataset at a URL: as it was declared, or as plain Parquet says.

    Raises:
        DatasetNotFoundError: There is no dataset there.

    Example:
        >>> import petastore, tempfile
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> url = tempfile.mkdtemp() + "/users"
        >>> _ = petastore.write_dataset(url, schema, [{"id": 1}])
        >>> get_schema_from_dataset_url(url) == schema
        True
    """
    tell_retired(Retired(hdfs_driver=hdfs_driver))
    return open_dataset(dataset_url_or_urls, storage_options=storage_options, filesystem=filesystem).schema


def decode_row(row: Mapping[str, Any], schema: Unischema) -> dict[str, Any]:
    """The values of one row, given its stored cells; cells that the schema does not know are left out.

    Raises:
        DecodeError: A cell is not what its field declares.

    Example:
        >>> decode_row({"id": 7, "other": 8}, Unischema("user", [UnischemaField("id", "int64")]))
        {'id': np.int64(7)}
    """
    values = {}
    for field in schema:
        if field.name not in row:
            continue
        cell = row[field.name]
        try:
            values[field.name] = None if cell is None else codec_of(field).decode(field, cell)
        except CodecError as problem:
            raise problem.at(column=field.name) from problem.__cause__
    return values


def generate_datapoint(schema: Unischema, rng: np.random.Generator | None = None) -> dict[str, Any]:
    """One made-up row, for tests of code that takes rows.

    Args:
        schema: What the row is. Nullable fields have values, too; free dimensions have 1 to 10 places.
        rng: Where the values come from; None is another row each time.

    Example:
        >>> row = generate_datapoint(Unischema("point", [UnischemaField("xy", "float32", (None, 2))]))
        >>> row["xy"].dtype, row["xy"].shape[1]
        (dtype('float32'), 2)
    """
    dice = np.random.default_rng() if rng is None else rng
    return {field.name: _made_up(field, dice) for field in schema}


def _made_up(field: UnischemaField, dice: np.random.Generator) -> Any:
    if field.is_scalar:
        return _scalar(field, dice)
    shape = tuple(int(dice.integers(1, _FREE_SIZE + 1)) if size is None else size for size in field.shape)
    if field.dtype != np.dtype(object):
        return _numbers(field.dtype, shape, dice)
    values = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        values[place] = _scalar(field, dice)
    return values if field.numpy_dtype is Decimal else values.astype(field.numpy_dtype)


def _scalar(field: UnischemaField, dice: np.random.Generator) -> Any:
    number = int(dice.integers(0, 100))
    if field.numpy_dtype is Decimal:
        return Decimal(number)
    if field.dtype == np.dtype(object):
        return f"{field.name} {number}".encode() if field.numpy_dtype is np.bytes_ else f"{field.name} {number}"
    return _numbers(field.dtype, (), dice)[()]


def _numbers(dtype: np.dtype[Any], shape: tuple[int, ...], dice: np.random.Generator) -> NDArray[Any]:
    if dtype.kind in "fc":
        return np.asarray(dice.random(shape), dtype=dtype)
    # Of a byte, so that each dtype has room; as for times, the first moments of 1970.
    return np.asarray(dice.integers(0, 2 if dtype.kind == "b" else 100, shape)).astype(dtype)


def make_petastorm_dataset(reader: Any) -> Any:
    """A `tf.data.Dataset` of named tuples of tensors: rows, or of a batched reader batches as long as its row groups.

    A reader of windows gives dicts from offset to named tuple; a batched one stacked columns, as `make_batch_reader`.
    `uint16` and `uint32` are `int32` and `int64`, as they were. It is one of TensorFlow 1, as it was
    (`make_one_shot_iterator`, `output_shapes`), and one of TensorFlow 2 as well. Structs and maps of plain Parquet are
    left out, with one warning. Lists of plain Parquet are dense in batches, and refused in one where they differ in
    length, with what to do instead.

    `petastore.adapters.tensorflow.make_tf_dataset` is what does it, and what batches of n rows are asked of: there it
    costs much less than `batch(n)` of rows here.

    Raises:
        InvalidArgumentError: A column is of a type that TensorFlow does not have.
        MissingExtraError: TensorFlow is not installed.
    """
    from petastore.adapters.tensorflow import with_signed_integers
    from petastore.adapters.tensorflow.dataset import TfForm, dataset_of_fields
    from petastore.adapters.tensorflow.petastorm import (
        as_named_tuples,
        as_v1_dataset,
        as_windows,
        fields_with_tensors,
    )

    fields = reader.schema if reader.ngram is not None else fields_with_tensors(reader.schema)
    rows = reader.rows_per_batch if reader.batched_output else None
    lists: dict[str, TfForm] = {
        field.name: "dense" for field in fields if rows is not None and _is_list_of_numbers(field)
    }
    dataset = with_signed_integers(dataset_of_fields(reader, fields, rows, ragged=lists))
    if reader.ngram is not None and not reader.batched_output:
        return as_v1_dataset(as_windows(dataset, reader.ngram, reader.row_schema))
    return as_v1_dataset(as_named_tuples(dataset, reader.schema.name if reader.schema.name.isidentifier() else "Row"))


def _is_list_of_numbers(field: UnischemaField) -> bool:
    return field.codec is None and None in field.shape and field.dtype != np.dtype(object)


def tf_tensors(
    reader: Any,
    shuffling_queue_capacity: int = 0,
    min_after_dequeue: int = 0,  # noqa: ARG001 - a name of Petastorm's
) -> Any:
    """The tensors of a graph that are the next row, each time that a session runs them: a named tuple of them.

    What they are is what `make_petastorm_dataset` gives. After the last row of the last epoch, running them raises
    `tf.errors.OutOfRangeError`. For programs with sessions; others iterate the dataset.

    Args:
        reader: What `make_reader` or `make_batch_reader` gave.
        shuffling_queue_capacity: Rows that tf.data keeps to choose from at random; 0 keeps the reader's order.
            `shuffle_rows=True` of the reader mixes better, and the same way each time.
        min_after_dequeue: Accepted, and of no effect: tf.data chooses from all rows that it keeps.

    Raises:
        InvalidArgumentError: TensorFlow runs eagerly; or batches of a batch reader would be shuffled; or a column is of
            a type that TensorFlow does not have.
        MissingExtraError: TensorFlow is not installed.
    """
    from petastore.adapters.tensorflow import tensors_of_next

    if shuffling_queue_capacity and reader.batched_output:
        raise InvalidArgumentError(
            f"shuffling_queue_capacity={shuffling_queue_capacity} is about rows, and this reader gives batches; ask "
            "make_batch_reader for shuffle_rows=True"
        )
    dataset = make_petastorm_dataset(reader)
    return tensors_of_next(dataset.shuffle(shuffling_queue_capacity) if shuffling_queue_capacity else dataset)
