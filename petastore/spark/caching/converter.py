"""`make_spark_converter`: a DataFrame, and from it a DataLoader of PyTorch or a Dataset of TensorFlow."""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, Unpack, cast, get_args

from petastore.dataset import Dataset, open_dataset
from petastore.distributed.asked import asked_shard
from petastore.errors import DatasetNotFoundError, InvalidArgumentError, ReaderClosedError, StorageError
from petastore.front import make_batch_reader
from petastore.other_words import answering_other_words
from petastore.plan.request import Shard, whole_number
from petastore.readers.reader import Reader
from petastore.spark.caching.converter_cache import Storing, keep, release
from petastore.spark.caching.ranks import warn_of_other_shard
from petastore.spark.tensor_columns import FloatDtype
from petastore.spark.urls import driver_url, spark_url
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import open_location
from petastore.storage.requests.shown import shown_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import TypeVar

    from petastore.adapters.nulls import Nulls
    from petastore.adapters.tensorflow.dataset import TfForm
    from petastore.adapters.torch import DataLoader
    from petastore.adapters.torch.ragged import TorchForm
    from petastore.readers.arguments import FurtherArguments, ReaderArguments

    Loader = TypeVar("Loader", default=DataLoader)

__all__ = ["SparkDatasetConverter", "make_spark_converter"]

_PARENT_KEYS = ("petastore.spark.caching.converter.parentCacheDirUrl", "petastorm.spark.converter.parentCacheDirUrl")
Compression: TypeAlias = Literal["uncompressed", "gzip", "lz4", "snappy", "zstd", "deflate"]
"""How Spark compresses what is stored; letters of any case are taken, too."""

_COMPRESSIONS = {
    **{name: name for name in get_args(Compression)},
    # Petastorm takes this name, which Spark's Parquet writer does not know; it is what gzip wraps.
    "deflate": "gzip",
}
_BATCH_SIZE = 32
_WORKERS = 4
_PATIENCE_SECONDS = 30.0
_answering = functools.partial(answering_other_words, further=make_batch_reader)


def make_spark_converter(
    df: DataFrame | str | os.PathLike[str],
    parquet_row_group_size_bytes: int = 32 * 1024 * 1024,
    compression_codec: Compression | None = None,
    dtype: FloatDtype | None = "float32",
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> SparkDatasetConverter:
    """Store a DataFrame once, so that any number of trainers can read it.

    Spark writes the rows to a new directory under the one that the session's configuration names:

        spark.conf.set("petastore.spark.caching.converter.parentCacheDirUrl", "s3a://bucket/cache")

    Petastorm's key, `petastorm.spark.converter.parentCacheDirUrl`, is looked at too. All machines that train must reach
    that directory, and this process too. Works on classic and Connect sessions alike.

    ML vectors become arrays. An array column whose rows all have one length gets that shape, so that a batch of it is
    one tensor; others are ragged. Rows that were stored already by this process, from the same plan over the same files
    and with the same arguments, are not stored again. Spark cannot tell that a source without files, such as a JDBC
    table, has changed: delete the first converter then.

    Args:
        df: A DataFrame; or the URL or path of a dataset or of Parquet files, which are taken as they are: the
            arguments below mean nothing then, no session is needed, and `delete` leaves the files alone.
        parquet_row_group_size_bytes: Bytes of a row group, about.
        compression_codec: `"uncompressed"` (also None), `"snappy"`, `"gzip"` (also `"deflate"`), `"lz4"` or `"zstd"`,
            in any case of letters.
        dtype: What floats become, also inside arrays and vectors: `"float32"`, `"float64"`, or None for what they are.
        storage_options: Keyword arguments of the fsspec filesystem through which Python sees the directory.

    Returns:
        The converter; its directory lives until `delete`, or until this process ends.

    Raises:
        InvalidArgumentError: An argument cannot be, no parent directory is configured, or a column is of a type that
            has no tensor.
        DatasetNotFoundError: `df` is a path, and nothing is there.
        StorageError: The storage refused.
    """
    options = dict(storage_options or {})
    if isinstance(df, (str, os.PathLike)):
        url = driver_url(os.fspath(df))
        dataset = open_dataset(url, storage_options=options)
        return _converter(spark_url(url, dataset.location), dataset, options)
    if not all(hasattr(df, name) for name in ("sparkSession", "semanticHash", "write")):
        raise InvalidArgumentError(
            f"make_spark_converter takes a Spark DataFrame, or the URL of one's files, not {df!r:.200}"
        )
    if dtype is not None and dtype not in get_args(FloatDtype):
        raise InvalidArgumentError(f"dtype={dtype!r} cannot be: floats become 'float32' or 'float64', or stay (None)")
    size = whole_number(parquet_row_group_size_bytes, name="parquet_row_group_size_bytes", least=1)
    storing = Storing(_parent_url(df.sparkSession), size, _compression(compression_codec), dtype)
    return keep(df, storing, lambda url, dataset: _converter(url, dataset, options), storage_options=options)


class SparkDatasetConverter:
    """Rows that Spark stored, and the ways to train on them. Made by `make_spark_converter`.

    Pickles, so a function that trains takes it to other machines. One process may open any number of loaders at once.

    Args:
        cache_dir_url: The directory of the dataset.
        file_urls: Its data files; opening waits until all are seen, up to half a minute.
        dataset_size: Rows.
        storage_options: Of the fsspec filesystem of the URL.

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
    """Key of the session's configuration that names the parent of all directories."""

    def __init__(
        self,
        cache_dir_url: str,
        file_urls: Sequence[str],
        dataset_size: int,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.cache_dir_url = cache_dir_url
        """The directory of the dataset."""
        self.file_urls = list(file_urls)
        """Its data files."""
        self.dataset_size = dataset_size
        """Rows."""
        self.storage_options = dict(storage_options or {})
        """Of the fsspec filesystem of the URL."""
        self._is_deleted = False

    def __len__(self) -> int:
        """Rows."""
        return self.dataset_size

    @_answering
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
        **reader_kwargs: Unpack[FurtherArguments],
    ) -> AbstractContextManager[Loader]:
        """A DataLoader over the rows, inside a `with` block, which ends its reader.

        Args:
            batch_size: Rows of a batch on this rank.
            num_epochs: Epochs of one `for`; None is without end, so leave the loop yourself, or give a number.
            workers_count: Tasks that run at a time; None is 4.
            shuffling_queue_capacity: Above 0, rows are shuffled (`shuffle_rows=True`); `shuffle_buffer_bytes` of the
                reader says how much memory that may take.
            data_loader_fn: Makes the loader, called as `fn(reader, batch_size=…, shuffling_queue_capacity=0)`, and with
                `nulls=` and `ragged=` where these are given; None is `petastore.adapters.torch.DataLoader`.
            nulls: What tensors have in place of missing values, as in `petastore.adapters.torch.DataLoader`.
            ragged: What becomes of arrays whose shapes differ, as in `petastore.adapters.torch.DataLoader`.
            **reader_kwargs: Further arguments of `petastore.make_batch_reader`, such as `cur_shard`, `shard_count`,
                `seed`, `transform_spec` and `decode`.

        Returns:
            A context manager that yields the loader.

        Raises:
            InvalidArgumentError: Here or in the block: an argument cannot be.
            UnknownParameterError: Here: there is no such parameter.
            ReaderClosedError: The converter was deleted.
            StorageError: In the block: files are not there.
            MissingExtraError: In the block: torch is not installed.
        """
        whole_number(batch_size, name="batch_size", least=1)
        arguments = self._reader_arguments(num_epochs, workers_count, shuffling_queue_capacity, reader_kwargs)

        def adapt(reader: Reader) -> Any:
            if data_loader_fn is not None:
                asked: dict[str, Any] = {"nulls": (nulls, "error"), "ragged": (ragged, "auto")}
                given = {name: value for name, (value, default) in asked.items() if value is not default}
                return data_loader_fn(reader, batch_size=batch_size, shuffling_queue_capacity=0, **given)
            from petastore.adapters.torch import DataLoader

            return DataLoader(reader, batch_size=batch_size, nulls=nulls, ragged=ragged)

        return self._reading(arguments, adapt)

    @_answering
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
        **reader_kwargs: Unpack[FurtherArguments],
    ) -> AbstractContextManager[Any]:
        """A `tf.data.Dataset` of batches, inside a `with` block, which ends its reader.

        Each batch is a named tuple of tensors, as Petastorm's converter gives: `batch.features` and
        `batch["features"]` are both the column `features`. The dataset is one of TensorFlow 1 as well, as Petastorm's
        was (`make_one_shot_iterator`, `output_shapes`).

        Args:
            batch_size: Rows of a batch on this rank; None is 32.
            prefetch: Batches that TensorFlow keeps ready; None adds nothing, since the reader works ahead by itself.
            num_epochs: Epochs of one iteration; None is without end: give `steps_per_epoch` to `fit`.
            workers_count: Tasks that run at a time; None is 4.
            shuffling_queue_capacity: Above 0, rows are shuffled, as in `make_torch_dataloader`.
            nulls: What tensors have in place of missing values, as in `petastore.adapters.tensorflow.make_tf_dataset`.
            ragged: What becomes of arrays whose shapes differ, as in `petastore.adapters.tensorflow.make_tf_dataset`.
            **reader_kwargs: Further arguments of `petastore.make_batch_reader`.

        Returns:
            A context manager that yields the dataset.

        Raises:
            InvalidArgumentError: Here or in the block: an argument cannot be.
            UnknownParameterError: Here: there is no such parameter.
            ReaderClosedError: The converter was deleted.
            StorageError: In the block: files are not there.
            MissingExtraError: In the block: TensorFlow is not installed.
        """
        rows = _BATCH_SIZE if batch_size is None else whole_number(batch_size, name="batch_size", least=1)
        if prefetch is not None:
            whole_number(prefetch, name="prefetch", least=-1)  # -1 is TensorFlow's AUTOTUNE
        arguments = self._reader_arguments(num_epochs, workers_count, shuffling_queue_capacity or 0, reader_kwargs)

        def adapt(reader: Reader) -> Any:
            from petastore.adapters.tensorflow import make_tf_dataset
            from petastore.adapters.tensorflow.petastorm import as_named_tuples, as_v1_dataset

            named = as_named_tuples(make_tf_dataset(reader, rows, nulls=nulls, ragged=ragged), "batch")
            return as_v1_dataset(named if prefetch is None else named.prefetch(prefetch))

        return self._reading(arguments, adapt)

    def delete(self) -> None:
        """Remove the directory, unless another converter of this process uses it too; the last one removes it.

        Only what `make_spark_converter` stored is removed. Loaders that are open may fail. May be called again.

        Raises:
            StorageError: The storage refused.
        """
        self._is_deleted = True
        release(self.cache_dir_url, self, storage_options=self.storage_options)

    def __repr__(self) -> str:
        files = len(self.file_urls)
        return f"SparkDatasetConverter({shown_url(self.cache_dir_url)!r}, {files:,} files, {self.dataset_size:,} rows)"

    def _reader_arguments(
        self, num_epochs: int | None, workers_count: int | None, shuffling: int, further: FurtherArguments
    ) -> ReaderArguments:
        """Arguments of `make_batch_reader`; what cannot be is refused here, at the call."""
        if self._is_deleted:
            raise ReaderClosedError(f"{self!r} was deleted; make another converter of the DataFrame")
        cur_shard, shard_count = further.get("cur_shard"), further.get("shard_count")
        if cur_shard is not None and not isinstance(cur_shard, str):  # warned of below, not twice
            cur_shard, shard_count = Shard.parse(cur_shard, shard_count), None
        shard = asked_shard(cur_shard, shard_count)
        warn_of_other_shard(shard, stacklevel=5)
        workers = _WORKERS if workers_count is None else whole_number(workers_count, name="workers_count", least=1)
        whole_number(shuffling, name="shuffling_queue_capacity", least=0)
        arguments: ReaderArguments = {"num_epochs": num_epochs, "workers_count": workers, **further}
        arguments |= {"cur_shard": shard, "shard_count": None}  # settled and warned of at this call, not in the block
        arguments.setdefault("storage_options", self.storage_options or None)
        if shuffling:
            arguments.setdefault("shuffle_rows", True)
        return arguments

    @contextlib.contextmanager
    def _reading(self, arguments: ReaderArguments, adapt: Callable[[Reader], Any]) -> Iterator[Any]:
        self._wait_for_files()
        with make_batch_reader(self.cache_dir_url, **arguments) as reader:
            yield adapt(reader)

    def _wait_for_files(self) -> None:
        """Wait until all files are seen: some shared filesystems show other machines' files a little later."""
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
                    f"{location.url}: {len(missing):,} of {len(expected):,} files of the converter are not there, "
                    f"{min(missing)} among them, after {_PATIENCE_SECONDS:g} s. Does this machine see that directory, "
                    "and does the process that made the converter still live?"
                )
            pause.wait(0.5)


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
        "a converter needs a directory that all machines reach: set spark.conf.set("
        f'"{_PARENT_KEYS[0]}", "s3a://bucket/cache"), or a file:/// URL where one machine is all there is'
    )


def _compression(name: str | None) -> str:
    if name is None:
        return "uncompressed"
    known = _COMPRESSIONS.get(name.lower()) if isinstance(name, str) else None
    if known is None:
        bzip2 = " (Parquet has no bzip2)" if isinstance(name, str) and name.lower() == "bzip2" else ""
        raise InvalidArgumentError(
            f"compression_codec={name!r} cannot be{bzip2}: choose one of {', '.join(_COMPRESSIONS)}"
        )
    return known
