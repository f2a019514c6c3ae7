"""Petastorm functions whose signatures differ from petastore's functions.

Each calls the equivalent petastore function.
"""

from __future__ import annotations

import argparse
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import ParseResult, urlparse

import numpy as np
from numpy.typing import NDArray
from pyarrow import fs

from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset, open_dataset
from petastore.errors import CodecError, InvalidArgumentError
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.selecting.retired import HdfsDriver, Retired, tell_retired
from petastore.storage.files.file_systems import filesystem_and_path

__all__ = [
    "FilesystemResolver",
    "ReadMethod",
    "WorkerPoolType",
    "add_configure_spark_arguments",
    "configure_spark",
    "decode_row",
    "generate_datapoint",
    "get_filesystem_and_path_or_paths",
    "get_schema",
    "get_schema_from_dataset_url",
    "make_petastorm_dataset",
    "tf_tensors",
]


class FilesystemResolver:
    """The fsspec filesystem of a URL, with Petastorm's interface.

    The filesystem has the methods of Petastorm's filesystems, such as `exists`, `open` and `ls`.

    Args:
        dataset_url: A URL or a local path, or a result of `urlparse`.
        hadoop_configuration: Ignored: Hadoop's own configuration files are read.
        connector: Ignored, because pyarrow's HDFS filesystem finds the name nodes.
        hdfs_driver: Ignored.
        user: HDFS user; None means the current user.
        storage_options: Keyword arguments of the fsspec filesystem.

    Raises:
        InvalidArgumentError: The URL cannot be understood.
        StorageError: The storage cannot be reached.
        MissingExtraError: The scheme needs a package that is not installed.

    Example:
        >>> import tempfile
        >>> resolver = FilesystemResolver(f"file://{tempfile.mkdtemp()}")
        >>> resolver.filesystem().exists(resolver.get_dataset_path())
        True
    """

    def __init__(
        self,
        dataset_url: str | ParseResult,
        hadoop_configuration: Any = None,  # noqa: ARG002 - parameters of Petastorm
        connector: Any = None,  # noqa: ARG002
        hdfs_driver: HdfsDriver | None = None,
        user: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        tell_retired(Retired(hdfs_driver=hdfs_driver))
        self._url = dataset_url if isinstance(dataset_url, str) else dataset_url.geturl()
        self._options = {**({} if user is None else {"user": user}), **(storage_options or {})}
        self._opened, self._path = filesystem_and_path(self._url, self._options, None)

    def filesystem(self) -> Any:
        """Return the fsspec filesystem."""
        return _fsspec_of(self._opened)

    def filesystem_factory(self) -> Callable[[], Any]:
        """Return a picklable function that recreates the filesystem.

        It uses the given storage options.
        """
        return functools.partial(_filesystem_of, self._url, self._options)

    def get_dataset_path(self) -> str:
        """Return the path of the URL in the filesystem; in object stores, with the bucket."""
        return self._path

    def parsed_dataset_url(self) -> ParseResult:
        """Return the result of `urlparse` for the URL."""
        return urlparse(self._url)


def get_filesystem_and_path_or_paths(
    url_or_urls: str | Sequence[str],
    hdfs_driver: HdfsDriver | None = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> tuple[Any, str | list[str]]:
    """Return the fsspec filesystem of a URL, and the path in it.

    For a list of URLs, return a list of paths.

    Args:
        url_or_urls: One URL, or several with the same scheme and host.
        hdfs_driver: Ignored.
        storage_options: Keyword arguments of the fsspec filesystem.
        filesystem: Filesystem that is returned unchanged.

    Raises:
        InvalidArgumentError: The URLs are of several schemes or hosts.

    Example:
        >>> get_filesystem_and_path_or_paths("memory://bucket/frames")[1]
        '/bucket/frames'
    """
    tell_retired(Retired(hdfs_driver=hdfs_driver))
    urls = [url_or_urls] if isinstance(url_or_urls, str) else list(url_or_urls)
    places = {(parsed.scheme or "file", parsed.netloc) for parsed in map(urlparse, urls)}
    if len(places) != 1:
        schemes = ", ".join(sorted(f"{scheme}://" for scheme, _ in places)) or "none"
        raise InvalidArgumentError(
            f"url_or_urls must be URLs of the same scheme and host, got {schemes}. Call once for each filesystem"
        )
    found = [filesystem_and_path(url, storage_options, filesystem) for url in urls]
    paths = [path for _, path in found]
    return filesystem or _fsspec_of(found[0][0]), paths[0] if isinstance(url_or_urls, str) else paths


def _filesystem_of(url: str, options: Mapping[str, Any]) -> Any:
    return _fsspec_of(filesystem_and_path(url, options, None)[0])


def _fsspec_of(opened: Any) -> Any:
    """Convert a filesystem to an fsspec filesystem.

    Petastorm programs call methods that Arrow's filesystems do not have.
    """
    from fsspec.implementations.arrow import ArrowFSWrapper
    from fsspec.implementations.local import LocalFileSystem

    if isinstance(opened, fs.LocalFileSystem):
        return LocalFileSystem()
    store = getattr(getattr(opened, "handler", opened), "fs", None)
    return ArrowFSWrapper(opened) if store is None else store


_FREE_SIZE = 10
"""Maximum size of a variable dimension in generated values."""


def get_schema(dataset: Dataset) -> Unischema:
    """Return the schema of a dataset that `petastore.open_dataset` returned.

    Raises:
        InvalidArgumentError: The argument is another object, such as a `pyarrow.parquet.ParquetDataset`.
    """
    if not isinstance(dataset, Dataset):
        raise InvalidArgumentError(
            f"dataset must come from petastore.open_dataset, got {type(dataset).__name__}. "
            "get_schema_from_dataset_url takes a URL"
        )
    return dataset.schema


def get_schema_from_dataset_url(
    dataset_url_or_urls: str | Sequence[str],
    hdfs_driver: HdfsDriver | None = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Unischema:
    """Return the schema of a dataset: declared, or inferred from plain Parquet.

    Raises:
        DatasetNotFoundError: The dataset does not exist.

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
    """Decode the stored cells of one row.

    Cells that are not in the schema are left out.

    Raises:
        DecodeError: A cell does not match its field.

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
    """Return a random row, for tests of code that processes rows.

    Args:
        schema: Schema of the row. Nullable fields also get values; variable dimensions get sizes from 1 to 10.
        rng: Random generator of the values; None uses a new one, so that each call returns a different row.

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
    # Values below 100 fit every dtype; as times, they are shortly after 1970-01-01.
    return np.asarray(dice.integers(0, 2 if dtype.kind == "b" else 100, shape)).astype(dtype)


def make_petastorm_dataset(reader: Any) -> Any:
    """Return a `tf.data.Dataset` of rows; for a batch reader, of batches.

    Elements are named tuples of tensors. The batches of a batch reader have row-group size. For a reader of windows,
    elements are dicts from offset to named tuple; for a batch reader of windows, stacked columns. As in Petastorm,
    `uint16` and `uint32` become `int32` and `int64`, and the dataset has the methods of TensorFlow 1
    (`make_one_shot_iterator`, `output_shapes`) and TensorFlow 2. Structs and maps of plain Parquet are omitted, with
    one warning. Lists of plain Parquet are dense in batches; a batch with lists of different lengths raises an error
    that names the alternative.

    For batches of n rows, use `petastore.adapters.tensorflow.make_tf_dataset`, which is much faster than `batch(n)` of
    rows.

    Raises:
        InvalidArgumentError: TensorFlow does not have the type of a column.
        MissingExtraError: TensorFlow is not installed.
    """
    from petastore.adapters.tensorflow import with_signed_integers
    from petastore.adapters.tensorflow.petastorm_functions import (
        as_named_tuples,
        as_v1_dataset,
        as_windows,
        fields_with_tensors,
    )
    from petastore.adapters.tensorflow.tf_dataset import TfForm, dataset_of_fields

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
    min_after_dequeue: int = 0,  # noqa: ARG001 - a parameter of Petastorm
) -> Any:
    """Return a named tuple of graph tensors that yield rows.

    Each run by a session yields the next row. The tensors have the types of `make_petastorm_dataset`. After the last
    row of the last epoch, running them raises `tf.errors.OutOfRangeError`. Use it only in programs with sessions;
    otherwise iterate over the dataset.

    Args:
        reader: Reader from `make_reader` or `make_batch_reader`.
        shuffling_queue_capacity: Number of rows in the shuffle buffer of tf.data; 0 keeps the reader's order.
            `shuffle_rows=True` of the reader mixes better and is reproducible.
        min_after_dequeue: No effect, because tf.data chooses from all rows in its buffer.

    Raises:
        InvalidArgumentError: TensorFlow runs eagerly, batches of a batch reader would be shuffled, or TensorFlow does
            not have the type of a column.
        MissingExtraError: TensorFlow is not installed.
    """
    from petastore.adapters.tensorflow import tensors_of_next

    if shuffling_queue_capacity and reader.batched_output:
        raise InvalidArgumentError(
            f"shuffling_queue_capacity must be 0 for a batch reader, got {shuffling_queue_capacity}. Pass "
            "make_batch_reader shuffle_rows=True"
        )
    dataset = make_petastorm_dataset(reader)
    return tensors_of_next(dataset.shuffle(shuffling_queue_capacity) if shuffling_queue_capacity else dataset)


class WorkerPoolType(enum.StrEnum):
    """Pool types of Petastorm; each is a `reader_pool_type` of `make_reader`.

    Example:
        >>> print(WorkerPoolType.NONE)
        dummy
    """

    THREAD = "thread"
    PROCESS = "process"
    NONE = "dummy"


class ReadMethod(enum.StrEnum):
    """Read method of `reader_throughput`: only Python is supported."""

    TF = "tf"
    PYTHON = "python"


def add_configure_spark_arguments(argparser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments that `configure_spark` reads.

    They are `--master URL` and `--spark-session-config KEY=VALUE …`.
    """
    argparser.add_argument("--master", metavar="URL", help="Spark's master, such as local[4]; Spark's own by default")
    argparser.add_argument(
        "--spark-session-config",
        metavar="KEY=VALUE",
        nargs="+",
        help="configuration of the session, such as spark.executor.memory=10g",
    )


def configure_spark(spark_session_builder: Any, args: argparse.Namespace) -> Any:
    """Apply parsed command-line arguments to a `SparkSession.builder`.

    Returns:
        The builder that was given.

    Raises:
        InvalidArgumentError: A configuration is not `KEY=VALUE`, or the arguments are of another parser.

    Example:
        >>> class Builder(dict):
        ...     def config(self, key, value):
        ...         self[key] = value
        >>> parser = argparse.ArgumentParser()
        >>> add_configure_spark_arguments(parser)
        >>> configure_spark(Builder(), parser.parse_args(["--spark-session-config", "spark.sql.ansi.enabled=true"]))
        {'spark.sql.ansi.enabled': 'true'}
    """
    if "master" not in args or "spark_session_config" not in args:
        raise InvalidArgumentError(
            "args must have master and spark_session_config. Call add_configure_spark_arguments(parser) before parsing"
        )
    for pair in args.spark_session_config or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InvalidArgumentError(f"--spark-session-config must be key=value pairs, got {pair!r}")
        spark_session_builder.config(key, value)
    if args.master:
        spark_session_builder.master(args.master)
    return spark_session_builder
