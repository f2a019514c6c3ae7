"""Read datasets in Spark; Spark's workers decode the cells.

The result is an RDD of named tuples, or a DataFrame of plain columns.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs import ScalarCodec
from petastore.codecs.arrow.numpy_to_arrow import spread
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset, open_dataset
from petastore.errors import EncodeError, InvalidArgumentError, SchemaError
from petastore.readers.random_access import RandomAccess
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.schema.values import each_value, mask_of
from petastore.spark.session import rdd_of_numbers

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DecodedRowGroups", "dataset_as_dataframe", "dataset_as_rdd", "plain_batch", "plain_batches", "plain_schema"]

_PART_BYTES = 16 * 1024 * 1024
# Assumed bytes of a value of unknown size.
_FREE_BYTES = 16 * 1024
_MOST_PARTITIONS = 2000


class DecodedRowGroups:
    """Decoded row groups of a dataset, read in parts of a few megabytes.

    A part is some consecutive rows of a row group. A pickle of this object has no cached data.

    Args:
        dataset: The dataset.
        columns: Names, regular expressions over whole names, or fields; None means all.
        part_bytes: Approximate decoded bytes of a part.

    Raises:
        InvalidArgumentError: A name or expression matches no column.

    Example:
        >>> import petastore, tempfile
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> url = tempfile.mkdtemp() + "/users"
        >>> _ = petastore.write_dataset(url, schema, [{"id": n} for n in range(5)], rows_per_row_group=3)
        >>> groups = DecodedRowGroups(petastore.open_dataset(url))
        >>> [[part["id"].tolist() for part in groups.parts(group)] for group in range(len(groups))]
        [[[0, 1, 2]], [[3, 4]]]
    """

    def __init__(
        self,
        dataset: Dataset,
        columns: Iterable[str | UnischemaField] | None = None,
        *,
        part_bytes: int = _PART_BYTES,
    ) -> None:
        self._part_bytes = part_bytes
        self._rows = RandomAccess(dataset, columns, cache_bytes=0)
        counts = dataset.inventory.rows
        self._stops = np.cumsum(counts)
        self._starts = self._stops - counts

    @property
    def schema(self) -> Unischema:
        """Schema of a row."""
        return self._rows.schema

    def __len__(self) -> int:
        """Return the number of row groups."""
        return len(self._stops)

    @property
    def partitions(self) -> int:
        """Number of Spark partitions over which the row groups are distributed."""
        return max(1, min(len(self), _MOST_PARTITIONS))

    def parts(self, group: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the rows of a row group in parts of consecutive rows.

        A part is a dict from column name to array, as in `reader.iter_batches`.

        Raises:
            DecodeError: A cell does not match its field; the message names column, file, row group and row.
            DatasetChangedError: The file differs from the inventory.
            StorageError: The file cannot be read.
        """
        row_bytes = sum(_FREE_BYTES if (size := field.decoded_bytes) is None else size for field in self.schema)
        step = max(1, self._part_bytes // max(1, row_bytes))
        start, stop = int(self._starts[group]), int(self._stops[group])
        for first in range(start, stop, step):
            yield self._rows.take(np.arange(first, min(first + step, stop)))


def plain_schema(schema: Unischema) -> Unischema:
    """Return the schema of decoded columns, for a DataFrame.

    Scalars have their stored types, and tensors are nested arrays.

    Raises:
        SchemaError: Spark has no type for a field.

    Example:
        >>> from petastore.codecs import NdarrayCodec
        >>> schema = Unischema("user", [UnischemaField("pose", "float32", (2, 2), NdarrayCodec())])
        >>> plain_schema(schema)["pose"]
        UnischemaField('pose', float32, (2, 2))
    """
    fields = [
        field if isinstance(field.codec, ScalarCodec) else dataclasses.replace(field, codec=None) for field in schema
    ]
    for field in fields:
        try:
            storage_schema([field])
        except SchemaError:
            raise SchemaError(
                f"field {field.name!r} must have a type that a DataFrame can hold, got {field.dtype_name}. Leave the "
                "field out with schema_fields"
            ) from None
    return Unischema(schema.name, fields)


def plain_batch(columns: dict[str, NDArray[Any]], schema: Unischema) -> pa.RecordBatch:
    """Convert decoded columns to an Arrow batch for a DataFrame.

    The batch has the Arrow schema `petastore.schema.arrow.storage_schema(schema)`.

    Args:
        columns: Column name to array; masked, or with None, where values are missing.
        schema: Result of `plain_schema`.

    Raises:
        EncodeError: A value is out of range of the field's Spark type.

    Example:
        >>> schema = Unischema("user", [UnischemaField("pose", "uint8", (2,), nullable=True)])
        >>> poses = np.ma.MaskedArray(np.array([[1, 2], [0, 0]], "uint8"), [[False, False], [True, True]])
        >>> plain_batch({"pose": poses}, schema).to_pydict()
        {'pose': [[1, 2], None]}
    """
    cells = []
    for field in schema:
        try:
            cells.append(_cells(columns[field.name], field))
        except EncodeError as problem:
            raise problem.at(column=field.name) from problem.__cause__
    return pa.RecordBatch.from_arrays(cells, schema=storage_schema(schema))


def plain_batches(groups: DecodedRowGroups, schema: Unischema, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yield the decoded rows of row groups as Arrow batches, in a Spark task.

    Args:
        groups: Row groups of the dataset.
        schema: Result of `plain_schema`.
        numbers: Indices of the row groups to read, from 0.
    """
    for number in numbers:
        for columns in groups.parts(number):
            yield plain_batch(columns, schema)


def _cells(values: NDArray[Any], field: UnischemaField) -> pa.Array:
    if values.dtype == np.dtype(object):
        missing = np.array([value is None for value in values], np.bool_)
    else:
        missing = mask_of(values)
    if missing.ndim > 1:
        raise EncodeError(
            "values must not hold nulls, because the DataFrame's arrays cannot store them. Leave the column out "
            "with schema_fields",
            column=field.name,
            row=int(np.argmax([of_row.any() and not of_row.all() for of_row in missing])),
        )
    if not missing.any():
        return _encoded(np.ma.getdata(values), field)
    return spread(_encoded(np.ma.getdata(values)[~missing], field), ~missing)


def _encoded(values: NDArray[Any], field: UnischemaField) -> pa.Array:
    return codec_of(field).encode_column(values if field.is_fixed else list(values), field)


def dataset_as_rdd(
    dataset_url: str | os.PathLike[str],
    spark_session: SparkSession,
    schema_fields: Iterable[str | UnischemaField] | None = None,
    hdfs_driver: str | None = None,  # noqa: ARG001 - a parameter of Petastorm; fsspec finds the driver
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> RDD[Any]:
    """Read a dataset as an RDD of decoded rows: named tuples, as in `make_reader`.

    Spark's workers read and decode, so they need petastore and access to the storage.

    Args:
        dataset_url: A dataset of petastore or Petastorm, or plain Parquet.
        spark_session: A classic session; Spark Connect has no RDDs.
        schema_fields: Names, regular expressions over whole names, or fields; None means all.
        hdfs_driver: No effect.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Raises:
        InvalidArgumentError: The session is a Connect session, or a name or expression matches no column.
        DatasetNotFoundError: No dataset exists at the URL.
    """
    if not hasattr(spark_session, "createDataFrame"):
        raise InvalidArgumentError(
            f"spark_session must be a Spark session, got {spark_session!r}. Call dataset_as_rdd(dataset_url, "
            "spark_session)"
        )
    if ".connect." in type(spark_session).__module__:
        raise InvalidArgumentError(
            "spark_session must be a classic session, because Spark Connect has no RDDs. "
            "petastore.spark.dataset_as_dataframe(spark, dataset_url) gives the same rows as a DataFrame"
        )
    dataset = open_dataset(dataset_url, storage_options=storage_options, filesystem=filesystem)
    groups = DecodedRowGroups(dataset, schema_fields)
    numbers = rdd_of_numbers(spark_session, len(groups), groups.partitions)
    return numbers.flatMap(functools.partial(_rows, groups))


def dataset_as_dataframe(
    spark: SparkSession,
    dataset_url: str | os.PathLike[str],
    schema_fields: Iterable[str | UnischemaField] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> DataFrame:
    """Read a dataset as a Spark DataFrame of decoded rows.

    Works on classic and Connect sessions.

    Scalars have their stored Spark type. Tensors, with any codec, are nested arrays: a `uint8` image is
    `array<array<array<smallint>>>`, because Spark has no unsigned types.

    Args:
        spark: A classic or Connect session; its workers need petastore and access to the storage.
        dataset_url: A dataset of petastore or Petastorm, or plain Parquet.
        schema_fields: Names, regular expressions over whole names, or fields; None means all.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Returns:
        A lazy DataFrame. A cell that cannot be decoded fails the Spark job; the message contains a `DecodeError`.

    Raises:
        InvalidArgumentError: A name or expression matches no column.
        SchemaError: Spark has no type for a column; leave the column out.
        DatasetNotFoundError: No dataset exists at the URL.
        MissingExtraError: pyspark is not installed.
    """
    if not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(
            f"spark must be a Spark session, got {spark!r}. Call dataset_as_dataframe(spark, dataset_url)"
        )
    dataset = open_dataset(dataset_url, storage_options=storage_options, filesystem=filesystem)
    groups = DecodedRowGroups(dataset, schema_fields)
    plain = plain_schema(groups.schema)
    numbers = spark.range(0, len(groups), 1, groups.partitions)
    return numbers.mapInArrow(functools.partial(_batches, groups, plain), plain.as_spark_schema())


def _rows(groups: DecodedRowGroups, group: int) -> Iterator[Any]:
    make = groups.schema.row_type._make
    for columns in groups.parts(group):
        yield from map(make, zip(*map(each_value, columns.values()), strict=True))


def _batches(groups: DecodedRowGroups, plain: Unischema, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        yield from plain_batches(groups, plain, batch.column(0).to_pylist())
