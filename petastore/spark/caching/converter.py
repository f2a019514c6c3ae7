"""`make_spark_converter`: cache a DataFrame as Parquet, to train on it.

A converter opens a PyTorch DataLoader or a `tf.data.Dataset` over the cached rows.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import posixpath
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, Unpack, cast, get_args

from petastore.dataset import Dataset, open_dataset
from petastore.distributed.current import asked_shard, warn_of_other_shard
from petastore.errors import DatasetNotFoundError, InvalidArgumentError, ReaderClosedError, StorageError
from petastore.front import make_batch_reader
from petastore.plan.request import Shard, whole_number
from petastore.readers.option_signatures import refuse_other_words
from petastore.readers.reader import Reader
from petastore.spark.caching.converter_cache import Storing, keep, release
from petastore.spark.prepared import FloatDtype
from petastore.spark.settings import driver_url, spark_url
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import open_location
from petastore.storage.requests.failures import shown_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import TypeVar

    from petastore.adapters.nulls import Nulls
    from petastore.adapters.tensorflow.tf_dataset import TfForm
    from petastore.adapters.torch import DataLoader
    from petastore.adapters.torch.tensors import TorchForm
    from petastore.readers.options import ConverterKwargs, PassedKwargs

    Loader = TypeVar("Loader", default=DataLoader)

__all__ = ["SparkDatasetConverter", "make_spark_converter"]

_PARENT_KEYS = ("petastore.spark.caching.converter.parentCacheDirUrl", "petastorm.spark.converter.parentCacheDirUrl")
Compression: TypeAlias = Literal["uncompressed", "gzip", "lz4", "snappy", "zstd", "deflate"]
"""Compression codecs of Spark for the cached files, in lower or upper case."""

_COMPRESSIONS = {
    **{name: name for name in get_args(Compression)},
    # Petastorm accepts this name, which Spark's Parquet writer does not know; it means gzip.
    "deflate": "gzip",
}
_BATCH_SIZE = 32
_WORKERS = 4
_PATIENCE_SECONDS = 30.0


def make_spark_converter(
    df: DataFrame | str | os.PathLike[str],
    parquet_row_group_size_bytes: int = 32 * 1024 * 1024,
    compression_codec: Compression | None = None,
    dtype: FloatDtype | None = "float32",
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> SparkDatasetConverter:
    """Store a Spark DataFrame as Parquet, and return a converter.

    The converter opens PyTorch and TensorFlow loaders over the stored rows.

    Spark writes the rows to a new directory under the parent directory that the session's configuration names:

        spark.conf.set("petastore.spark.caching.converter.parentCacheDirUrl", "s3a://bucket/cache")

    Petastorm's key, `petastorm.spark.converter.parentCacheDirUrl`, works too. This process and all training machines
    need access to this directory. Works on classic and Connect sessions.

    Spark ML vectors become arrays. An array column becomes one tensor per batch if all rows have the same length;
    otherwise it is ragged. A second call in the same process reuses the stored rows if query plan, input files and
    arguments are the same. Changes of a source without files, such as a JDBC table, are not detected: delete the old
    converter first.

    Args:
        df: A DataFrame; or the URL or path of a dataset or of Parquet files, which are read in place. With a path, no
            session is needed, `delete` deletes nothing, and the other arguments are ignored, except `storage_options`.
        parquet_row_group_size_bytes: Approximate bytes per row group.
        compression_codec: `"uncompressed"` (also None), `"snappy"`, `"gzip"` (also `"deflate"`), `"lz4"` or `"zstd"`;
            case is ignored.
        dtype: Dtype to which floats are cast, including arrays and vectors: `"float32"`, `"float64"`, or None for no
            cast.
        storage_options: Keyword arguments of the fsspec filesystem with which Python reads the directory.

    Returns:
        The converter. Its directory is deleted by `delete`, or when this process ends.

    Raises:
        InvalidArgumentError: An argument is invalid, the parent directory is not configured, or the type of a column
            cannot be converted to a tensor.
        DatasetNotFoundError: `df` is a path, and nothing exists there.
        StorageError: A storage operation failed.
    """
    options = dict(storage_options or {})
    if isinstance(df, (str, os.PathLike)):
        url = driver_url(os.fspath(df))
        dataset = open_dataset(url, storage_options=options)
        return _converter(spark_url(url, dataset.location), dataset, options)
    if not all(hasattr(df, name) for name in ("sparkSession", "semanticHash", "write")):
        raise InvalidArgumentError(f"df must be a Spark DataFrame, or a URL of files, got {df!r:.200}")
    if dtype is not None and dtype not in get_args(FloatDtype):
        raise InvalidArgumentError(f"dtype must be 'float32', 'float64' or None, got {dtype!r}")
    size = whole_number(parquet_row_group_size_bytes, name="parquet_row_group_size_bytes", least=1)
    storing = Storing(_parent_url(df.sparkSession), size, _compression(compression_codec), dtype)
    return keep(df, storing, lambda url, dataset: _converter(url, dataset, options), storage_options=options)


class SparkDatasetConverter:
    """A DataFrame stored as Parquet, with methods to open loaders over it.

    The loaders are for PyTorch and TensorFlow. `make_spark_converter` returns the converter. A converter is picklable,
    so that a training function can send it to other machines. A process may open several loaders at the same time.

    Args:
        cache_dir_url: Directory of the dataset.
        file_urls: URLs of its data files. Opening a loader waits up to 30 seconds until all files are visible.
        dataset_size: Number of rows.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("xy", "float32", (2,))])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"xy": [n, n]} for n in range(5)])
        >>> converter = make_spark_converter(url)
        >>> with converter.make_torch_dataloader(batch_size=2, num_epochs=1) as loader:
        ...     len(converter), [batch["xy"].shape for batch in loader]
        (5, [torch.Size([2, 2]), torch.Size([2, 2]), torch.Size([1, 2])])
    """

    PARENT_CACHE_DIR_URL_CONF: ClassVar[str] = _PARENT_KEYS[0]
    """Name of the Spark option with the parent directory of all converters."""

    def __init__(
        self,
        cache_dir_url: str,
        file_urls: Sequence[str],
        dataset_size: int,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.cache_dir_url = cache_dir_url
        """Directory of the dataset."""
        self.file_urls = list(file_urls)
        """URLs of the data files in the directory."""
        self.dataset_size = dataset_size
        """Number of rows."""
        self.storage_options = dict(storage_options or {})
        """Keyword arguments of the fsspec filesystem of the URL."""
        self._is_deleted = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.dataset_size

    def make_torch_dataloader(
        self,
        batch_size: int = _BATCH_SIZE,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int = 0,
        data_loader_fn: Callable[..., Loader] | None = None,
        *,
        nulls: Nulls = "error",
        ragged: TorchForm | Mapping[str, TorchForm] = "auto",
        **reader_kwargs: Unpack[ConverterKwargs],
    ) -> AbstractContextManager[Loader]:
        """Return a context manager with a torch DataLoader over the rows.

        Leaving the context closes the reader.

        Args:
            batch_size: Rows per batch on this rank.
            num_epochs: Number of epochs of one `for` loop; None means endless.
            workers_count: Number of concurrent tasks; None means 4.
            shuffling_queue_capacity: Any number above 0 shuffles rows (`shuffle_rows=True`); `shuffle_buffer_bytes`
                limits the memory.
            data_loader_fn: Function that returns the loader, called as `fn(reader, batch_size=…,
                shuffling_queue_capacity=0)`, with `nulls=` and `ragged=` if they were given. None means
                `petastore.adapters.torch.DataLoader`.
            nulls: Treatment of missing values, as in `petastore.adapters.torch.DataLoader`.
            ragged: Type of ragged columns in a batch, as in `petastore.adapters.torch.DataLoader`.
            **reader_kwargs: Further arguments of `petastore.make_batch_reader`, such as `cur_shard`, `shard_count`,
                `seed`, `transform_spec` and `decode`.

        Returns:
            A context manager that yields the loader.

        Raises:
            InvalidArgumentError: Here or on entering: an argument is invalid.
            UnknownParameterError: Here: a parameter is unknown.
            ReaderClosedError: The converter was deleted.
            StorageError: On entering: files are missing.
            MissingExtraError: On entering: torch is not installed.
        """
        whole_number(batch_size, name="batch_size", least=1)
        _refuse_unknown(self.make_torch_dataloader, reader_kwargs)
        arguments = self._reader_arguments(num_epochs, workers_count, shuffling_queue_capacity, reader_kwargs)

        def adapt(reader: Reader) -> Any:
            if data_loader_fn is not None:
                asked: dict[str, Any] = {"nulls": (nulls, "error"), "ragged": (ragged, "auto")}
                given = {name: value for name, (value, default) in asked.items() if value is not default}
                return data_loader_fn(reader, batch_size=batch_size, shuffling_queue_capacity=0, **given)
            from petastore.adapters.torch import DataLoader

            return DataLoader(reader, batch_size=batch_size, nulls=nulls, ragged=ragged)

        return self._reading(arguments, adapt)

    def make_tf_dataset(
        self,
        batch_size: int | None = None,
        prefetch: int | None = None,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int | None = None,
        *,
        nulls: Nulls = "error",
        ragged: TfForm | Mapping[str, TfForm] = "ragged",
        **reader_kwargs: Unpack[ConverterKwargs],
    ) -> AbstractContextManager[Any]:
        """Return a context manager with a `tf.data.Dataset` of batches.

        Leaving the context closes the reader. Each batch is a named tuple of tensors, as in Petastorm: `batch.features`
        and `batch["features"]` return the column `features`. The dataset also has the TensorFlow 1 methods of
        Petastorm's (`make_one_shot_iterator`, `output_shapes`).

        Args:
            batch_size: Rows per batch on this rank; None means 32.
            prefetch: Batches that TensorFlow prefetches; None adds no prefetch, because the reader prefetches.
            num_epochs: Number of epochs of one iteration; None means endless, so pass `steps_per_epoch` to `fit`.
            workers_count: Number of concurrent tasks; None means 4.
            shuffling_queue_capacity: Any number above 0 shuffles rows, as in `make_torch_dataloader`.
            nulls: Treatment of missing values, as in `petastore.adapters.tensorflow.make_tf_dataset`.
            ragged: Type of ragged columns in a batch, as in `petastore.adapters.tensorflow.make_tf_dataset`.
            **reader_kwargs: Further arguments of `petastore.make_batch_reader`.

        Returns:
            A context manager that yields the dataset.

        Raises:
            InvalidArgumentError: Here or on entering: an argument is invalid.
            UnknownParameterError: Here: a parameter is unknown.
            ReaderClosedError: The converter was deleted.
            StorageError: On entering: files are missing.
            MissingExtraError: On entering: TensorFlow is not installed.
        """
        rows = _BATCH_SIZE if batch_size is None else whole_number(batch_size, name="batch_size", least=1)
        if prefetch is not None:
            whole_number(prefetch, name="prefetch", least=-1)  # -1 is TensorFlow's AUTOTUNE
        _refuse_unknown(self.make_tf_dataset, reader_kwargs)
        arguments = self._reader_arguments(num_epochs, workers_count, shuffling_queue_capacity or 0, reader_kwargs)

        def adapt(reader: Reader) -> Any:
            from petastore.adapters.tensorflow import make_tf_dataset
            from petastore.adapters.tensorflow.petastorm_functions import as_named_tuples, as_v1_dataset

            named = as_named_tuples(make_tf_dataset(reader, rows, nulls=nulls, ragged=ragged), "batch")
            return as_v1_dataset(named if prefetch is None else named.prefetch(prefetch))

        return self._reading(arguments, adapt)

    def delete(self) -> None:
        """End the converter, and delete its directory if no other converter uses it.

        If other converters of this process use the directory, the last of them deletes it. Only files that
        `make_spark_converter` wrote are deleted. Loaders that are still open may fail. May be called repeatedly.

        Raises:
            StorageError: A storage operation failed.
        """
        self._is_deleted = True
        release(self.cache_dir_url, self, storage_options=self.storage_options)

    def __repr__(self) -> str:
        files = len(self.file_urls)
        return f"SparkDatasetConverter({shown_url(self.cache_dir_url)!r}, {files:,} files, {self.dataset_size:,} rows)"

    def _reader_arguments(
        self, num_epochs: int | None, workers_count: int | None, shuffling: int, further: ConverterKwargs
    ) -> PassedKwargs:
        """Check the arguments of a loader; return the arguments of `make_batch_reader`.

        Invalid arguments thus raise an error at the user's call, before files are opened.

        Args:
            num_epochs: As in `make_torch_dataloader`.
            workers_count: As in `make_torch_dataloader`.
            shuffling: Value of `shuffling_queue_capacity`; a number above 0 sets `shuffle_rows=True`.
            further: Other arguments of the user (`**reader_kwargs`).
        """
        if self._is_deleted:
            raise ReaderClosedError(f"{self!r} was deleted. Make another converter of the DataFrame")
        cur_shard, shard_count = further.get("cur_shard"), further.get("shard_count")
        # `asked_shard` does not check a `Shard`; `warn_of_other_shard` below warns instead.
        if cur_shard is not None and not isinstance(cur_shard, str):
            cur_shard, shard_count = Shard.parse(cur_shard, shard_count), None
        shard = asked_shard(cur_shard, shard_count)
        warn_of_other_shard(shard, stacklevel=4)
        workers = _WORKERS if workers_count is None else whole_number(workers_count, name="workers_count", least=1)
        whole_number(shuffling, name="shuffling_queue_capacity", least=0)
        arguments: PassedKwargs = {"num_epochs": num_epochs, "workers_count": workers, **further}
        arguments |= {"cur_shard": shard, "shard_count": None}  # resolved above, where warnings name the user's line
        arguments.setdefault("storage_options", self.storage_options or None)
        if shuffling:
            arguments.setdefault("shuffle_rows", True)
        return arguments

    @contextlib.contextmanager
    def _reading(self, arguments: PassedKwargs, adapt: Callable[[Reader], Any]) -> Iterator[Any]:
        self._wait_for_files()
        with make_batch_reader(self.cache_dir_url, **arguments) as reader:
            yield adapt(reader)

    def _wait_for_files(self) -> None:
        """Wait until all files are visible.

        Some shared filesystems show files of other machines late.
        """
        location = open_location(self.cache_dir_url, storage_options=self.storage_options or None)
        expected = {posixpath.basename(url) for url in self.file_urls}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pause = threading.Event()
        while True:
            try:
                missing = expected - {posixpath.basename(path) for path in list_data_files(location)}
            except DatasetNotFoundError:
                missing = expected
            if not missing:
                return
            if time.monotonic() > deadline:
                raise StorageError(
                    f"{location.url}: {len(missing):,} of {len(expected):,} files of the converter are missing after "
                    f"{_PATIENCE_SECONDS:g} s, such as {min(missing)}. Check that this machine sees the directory, "
                    "and that the process that made the converter is running"
                )
            pause.wait(0.5)


def _refuse_unknown(function: Callable[..., object], further: Iterable[str]) -> None:
    """Raise an error for a keyword argument that the user misspelled.

    Args:
        function: Function that the user called. Its last parameter is `**reader_kwargs`.
        further: Names of the arguments in `**reader_kwargs`.

    Raises:
        UnknownParameterError: Neither `function` nor `make_batch_reader` has a parameter of this name.
    """
    own, of_reader = list(inspect.signature(function).parameters)[:-1], inspect.signature(make_batch_reader).parameters
    refuse_other_words(function.__name__, further, own=own, known={*own, *list(of_reader)[1:]})


def _converter(url: str, dataset: Dataset, storage_options: Mapping[str, Any]) -> SparkDatasetConverter:
    whole = dataset.location.paths is None
    files = [f"{url.rstrip('/')}/{file.path}" for file in dataset.inventory.files] if whole else [url]
    return SparkDatasetConverter(url, files, dataset.inventory.num_rows, storage_options=storage_options)


def _parent_url(session: SparkSession) -> str:
    for key in _PARENT_KEYS:
        found = session.conf.get(key, None)
        if found:
            return cast("str", found).rstrip("/")
    raise InvalidArgumentError(
        "the parent directory of converters must be configured, and all machines must reach it. Write "
        f'spark.conf.set("{_PARENT_KEYS[0]}", "s3a://bucket/cache"), or a file:/// URL on a single machine'
    )


def _compression(name: str | None) -> str:
    if name is None:
        return "uncompressed"
    known = _COMPRESSIONS.get(name.lower()) if isinstance(name, str) else None
    if known is None:
        bzip2 = " (Parquet has no bzip2)" if isinstance(name, str) and name.lower() == "bzip2" else ""
        raise InvalidArgumentError(f"compression_codec must be one of {', '.join(_COMPRESSIONS)}, got {name!r}{bzip2}")
    return known
