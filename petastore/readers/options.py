"""Reader options: the parameters of `make_reader` and of similar functions.

Each parameter is declared once, with its type, default, check and description.

To add a parameter, add a field to one group in this module, describe it in the group's docstring, and list it in the
group's `TypedDict`. Functions that open readers take the groups that they need as `**options`, and the decorator
`takes_options` sets their signature.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

from petastore.byte_sizes import ByteSize, byte_size
from petastore.dataset import Dataset
from petastore.dataset.opening import dataset_at, located
from petastore.distributed.current import asked_shard
from petastore.errors import InvalidArgumentError
from petastore.inventory import RowPlace, check_places
from petastore.plan.request import (
    LastBatch,
    LastBatchWord,
    OrderOptions,
    PlanOptions,
    Shard,
    ShardWord,
    known_word,
)
from petastore.readers.option_signatures import names_of
from petastore.selecting.retired import Retired, tell_retired
from petastore.storage.ranges.pinned_files import cache_for
from petastore.storage.requests.retries import DEFAULT_STORAGE_TIMEOUT_S
from petastore.work.pools import DEFAULT_MAX_CELL_BYTES, PoolType, Workers

if TYPE_CHECKING:
    from typing import Required, TypedDict, Unpack

    from petastore.codecs.images.image_decode import ImageDecode
    from petastore.expressions import Expression
    from petastore.plan.request import Fields, OrderKwargs
    from petastore.plan.windows.ngram import NGram
    from petastore.schema.file_schemas import SchemaOption
    from petastore.selecting.retired import HdfsDriver
    from petastore.transforming.transform import AnyTransform

    class DatasetKwargs(TypedDict, total=False):
        """Keyword arguments of `DatasetOptions`."""

        storage_options: Mapping[str, Any] | None
        filesystem: Any
        storage_timeout: float | None
        schema: SchemaOption
        decode: Mapping[str, ImageDecode] | None
        cache_type: CacheType | None
        cache_location: str | os.PathLike[str] | None
        cache_size_limit: ByteSize | None

    class RowKwargs(TypedDict, total=False):
        """Keyword arguments of `RowOptions`."""

        filters: Filters | None
        predicate: Predicate | None
        rowgroup_selector: RowGroupSelector | None
        filter_cache: FilterCache
        exclude_rows: Sequence[RowPlace] | None
        on_error: OnError
        quarantine: str | os.PathLike[str] | None
        max_bad_rows: int | float | None

    class SourceArguments(DatasetKwargs, RowKwargs, total=False):
        """Source of `make_mixed_reader` as a dict; missing keys take the options of the mixture."""

        dataset_url: Required[Urls | Dataset]

    class ShardKwargs(OrderKwargs, total=False):
        """Keyword arguments of `OrderOptions` and of `EpochOptions`, except `num_epochs`."""

        cur_shard: int | Shard | ShardWord | None
        shard_count: int | None
        last_batch: LastBatchWord | LastBatch

    class MapKwargs(DatasetKwargs, RowKwargs, total=False):
        """Keyword arguments of a dataset with random access to rows."""

        max_cell_bytes: ByteSize | None
        transform_spec: AnyTransform | None
        provenance: bool

    class ThreadKwargs(MapKwargs, ShardKwargs, total=False):
        """Keyword arguments of torch datasets whose DataLoader workers read with threads."""

        num_epochs: int | None
        workers_count: int | None

    class MixKwargs(ThreadKwargs, total=False):
        """Keyword arguments of `make_mixed_reader`."""

        reader_pool_type: PoolType
        memory_budget: ByteSize | None
        progress: bool

    class FurtherKwargs(MapKwargs, ShardKwargs, total=False):
        """Keyword arguments of `make_batch_reader` without `num_epochs` and `workers_count`."""

        reader_pool_type: PoolType
        memory_budget: ByteSize | None
        progress: bool
        results_queue_size: int | None
        shuffle_row_drop_partitions: int
        shard_seed: int | None
        cache_row_size_estimate: int | None
        cache_extra_settings: Mapping[str, Any] | None
        hdfs_driver: HdfsDriver | None
        zmq_copy_buffers: bool
        convert_early_to_numpy: bool

    class BatchReaderKwargs(ThreadKwargs, FurtherKwargs, total=False):
        """Keyword arguments of `make_batch_reader` after the URL."""

    class ConverterKwargs(FurtherKwargs, total=False):
        """Keyword arguments of the loaders of a Spark converter."""

        schema_fields: Fields | NGram | None

    class PassedKwargs(BatchReaderKwargs, total=False):
        """Keyword arguments that a function passes on to `make_reader` or `make_batch_reader`."""

        schema_fields: Fields | NGram | None

    class ReaderKwargs(BatchReaderKwargs, total=False):
        """Keyword arguments of `make_reader` after the URL."""

        pyarrow_serialize: bool


__all__ = [
    "GROUPS",
    "LOCAL_DISK_CACHE",
    "NULL_CACHE",
    "PETASTORMS_ORDER",
    "CacheType",
    "DatasetOptions",
    "EpochOptions",
    "FilterCache",
    "Filters",
    "OnError",
    "Predicate",
    "ReadOptions",
    "RowGroupSelector",
    "RowOptions",
    "RunOptions",
    "Urls",
    "options_of_rows",
]

Urls: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""URL or path of a dataset, or a list of them."""

_Comparison: TypeAlias = tuple[str, str, Any]
"""Column, operator and value."""

Filters: TypeAlias = "Expression | Sequence[_Comparison | Sequence[_Comparison]]"
"""An expression, or pyarrow's nested lists of `(column, operator, value)`."""

CacheType: TypeAlias = Literal["null", "local-disk"]
"""Values of `cache_type`: no cache, or a cache on local disk; None also means no cache."""

NULL_CACHE: Final = "null"
"""`cache_type` of a reader without a cache; Petastorm's name."""

LOCAL_DISK_CACHE: Final = "local-disk"
"""`cache_type` of a reader that caches remote files on local disk."""

FilterCache: TypeAlias = str | os.PathLike[str] | bool
"""Directory of cached filter results, or whether to cache them in the user's cache directory."""

OnError: TypeAlias = Literal["raise", "skip", "quarantine"]
"""Handling of rows that cannot be decoded or transformed."""


class _IncludesRows(Protocol):
    """Interface of predicates on rows, such as `petastore.predicates.PredicateBase`."""

    def get_fields(self) -> Any: ...

    def do_include(self, values: Any, /) -> Any: ...


class _IncludesBatches(Protocol):
    """Interface of predicates on batches."""

    def get_fields(self) -> Any: ...

    def do_include_batch(self, columns: Any, /) -> Any: ...


Predicate: TypeAlias = _IncludesRows | _IncludesBatches | Callable[[Any], Any]
"""Row predicate: an object with the fields that it needs and a method that selects rows, or a function of a row."""


class RowGroupSelector(Protocol):
    """Interface of selectors, such as `petastore.selectors.RowGroupSelectorBase`, which select row groups."""

    def get_index_names(self) -> Any:
        """Return the names of the indexes that the selector needs."""

    def select_row_groups(self, index_dict: Any, /) -> Any:
        """Return the numbers of the selected row groups."""


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetOptions:
    """Options of a dataset: its storage, the decoding of its images, and the local disk cache.

    Args: Storage
        storage_options: Keyword arguments for the fsspec filesystem that the URL selects, such as S3 credentials.
        filesystem: A pyarrow or fsspec filesystem, used instead of the one that the URL selects.
        storage_timeout: Timeout in seconds for each storage request, such as to list a directory or to read a column of
            a row group. A timeout raises `StorageTimeoutError`, which names the request. None means no timeout.

    Args: Data
        schema: How to read files whose schemas differ. `"union"` has all columns that any file has, null where a file
            lacks the column, in the narrowest types that hold all values exactly. `"common"` has the columns that all
            files have. `"first"` has columns and types of the first file. A `Unischema` declares fields and types.
        decode: Dict from field name to `petastore.codecs.ImageDecode`: crop, resize or convert images to gray while
            decoding. Transforms and predicates receive the result. The row order and saved states do not depend on it.

    Args: Cache
        cache_type: `"local-disk"` caches data of remote files (object stores, web servers) on local disk, for later
            epochs, readers and processes on this host. Local files are not cached. None and `"null"` disable the cache.
        cache_location: Local directory of the cache; None means the environment variable `PETASTORE_CACHE`, or else the
            user's cache directory.
        cache_size_limit: Maximum size of the cache, in bytes or as text such as `"200GB"`; at least 65,536 bytes. All
            processes that use the directory share the limit. None keeps the limit that was set last, or else means a
            quarter of the free disk space.
    """

    url: Urls | Dataset = dataclasses.field(repr=False)  # URL and options may contain secrets
    """A URL, a path or a list of either; or the open dataset."""

    _: dataclasses.KW_ONLY
    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    filesystem: Any = dataclasses.field(default=None, repr=False)
    storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S
    schema: SchemaOption = "union"
    decode: Mapping[str, ImageDecode] | None = None
    cache_type: CacheType | None = "null"
    cache_location: str | os.PathLike[str] | None = None
    cache_size_limit: ByteSize | None = None

    def __post_init__(self) -> None:
        known_word(self.cache_type, CacheType, name="cache_type", or_none=True)
        if self.storage_options is not None and not isinstance(self.storage_options, Mapping):
            # The message names only the type, because the value may contain a secret.
            raise InvalidArgumentError(f"storage_options must be a dict, got {type(self.storage_options).__name__}")
        if self.caches:
            from petastore.cache.folder import cache_location, verified_limit

            cache_location(self.cache_location)
            verified_limit(self.cache_size_limit)

    @property
    def caches(self) -> bool:
        """Whether a local disk cache is used."""
        return self.cache_type == LOCAL_DISK_CACHE

    def opened_alone(self) -> Dataset:
        """Open the dataset, for a function that reads a single dataset.

        Raises:
            DatasetNotFoundError: The directory or file does not exist.
            InvalidArgumentError: Options of `open_dataset` were passed with an open dataset, or an option is invalid.
        """
        given = (self.storage_options, self.filesystem, self.storage_timeout, self.schema)
        if isinstance(self.url, Dataset) and given != (None, None, DEFAULT_STORAGE_TIMEOUT_S, "union"):
            raise InvalidArgumentError(
                "storage_options, filesystem, storage_timeout and schema must be left out with an open Dataset. Pass "
                "them to open_dataset"
            )
        return self.opened()

    def opened(self) -> Dataset:
        """Return the dataset; if a URL was passed, open it.

        Raises:
            DatasetNotFoundError: The directory or file does not exist.
            InvalidArgumentError: An option is invalid; the message names it.

        Warns:
            CacheBypassWarning: The cache is not writable.
        """
        at, limit = self.cache_location, self.cache_size_limit
        if isinstance(self.url, Dataset):
            return (self.url.with_cache(at, limit=limit) if self.caches else self.url).with_decode(self.decode)
        location = located(
            self.url,
            storage_options=self.storage_options,
            filesystem=self.filesystem,
            storage_timeout=self.storage_timeout,
        )
        cache = cache_for(location, at, limit) if self.caches else None
        return dataset_at(location, cache, schema=self.schema).with_decode(self.decode)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Options that select rows.

    Args: Filtering
        filters: Row filter: an expression such as `petastore.col("split") == "train"`, or pyarrow's nested lists of
            `(column, operator, value)`. It is evaluated when the reader is opened, so the number of batches is exact.
        predicate: Row filter in Python, called once for each row that `filters` selects: an object with `get_fields()`
            and `do_include(values)`, or a function that takes a row as a dict and returns a bool.
        rowgroup_selector: Row-group filter that looks values up in stored indexes (`petastore.indexing`): an object
            from `petastore.selectors`.
        filter_cache: Cache of the rows that `filters` and `predicate` select: a local directory; True for the directory
            in `PETASTORE_CACHE`, or else the user's cache directory; False for no cache.
        exclude_rows: Rows to leave out: a list of tuples `(file, row group, row)`. `file` is the path relative to the
            dataset, with or without the dataset's URL before it, `row group` the number in the file and `row` the
            number in the row group, both from 0. In a mixture, the URL is required if several datasets have the row.
            Errors, quarantined rows and the columns of `provenance=True` contain these three values.

    Args: Bad rows
        on_error: Handling of bad rows: rows with a cell that cannot be decoded, or for which `transform_spec` raises.
            `"raise"` raises the error when the row is read. `"skip"` leaves bad rows out; `"quarantine"` also writes
            them to `quarantine`. To find bad rows, `"skip"` and `"quarantine"` decode and transform all selected rows
            once, when the reader is opened. The number of batches is therefore exact, and equal on all ranks. The
            result is cached in `filter_cache`, unless the transform function has no method `cache_key()`.
        quarantine: Directory or URL of the Parquet files to which `on_error="quarantine"` writes bad rows, with their
            location and the error. It must be outside the dataset.
        max_bad_rows: Maximum number of bad rows to skip, or their share of the selected rows as a float below 1;
            more raise an error. None means no limit, but at least one row must be good.

    Example:
        >>> RowOptions().is_for_all, RowOptions(filters=[("id", ">", 7)]).is_for_all
        (True, False)
    """

    filters: Filters | None = None
    predicate: Predicate | None = None
    rowgroup_selector: RowGroupSelector | None = None
    filter_cache: FilterCache = True
    exclude_rows: Sequence[RowPlace] | None = None
    on_error: OnError = "raise"
    quarantine: str | os.PathLike[str] | None = None
    max_bad_rows: int | float | None = None

    def __post_init__(self) -> None:
        known_word(self.on_error, OnError, name="on_error")
        if (self.quarantine is not None) != (self.on_error == "quarantine"):
            raise InvalidArgumentError(
                f"quarantine must be a directory or URL with on_error='quarantine', and None otherwise, got "
                f"{self.quarantine!r:.100} with on_error={self.on_error!r}"
            )
        most, is_skipping = self.max_bad_rows, self.on_error != "raise"
        is_number = isinstance(most, (int, float)) and not isinstance(most, bool)
        if most is not None and not (
            is_skipping and is_number and (0 <= most < 1 or (isinstance(most, int) and most >= 0))
        ):
            raise InvalidArgumentError(
                "max_bad_rows must be an int of at least 0 or a float below 1, with on_error='skip' or 'quarantine', "
                f"got {most!r:.100} with on_error={self.on_error!r}"
            )
        if self.exclude_rows is not None:
            object.__setattr__(self, "exclude_rows", check_places(self.exclude_rows, name="exclude_rows"))
        if not isinstance(self.filter_cache, bool):
            # Imported here, because few readers select rows.
            from petastore.selecting.remembered import selection_directory

            selection_directory(self.filter_cache)

    @property
    def is_for_all(self) -> bool:
        """Whether all rows are read."""
        return not self.has_filter and not self.exclude_rows and self.on_error == "raise"

    @property
    def has_filter(self) -> bool:
        """Whether a filter, a predicate or a row-group selector is given."""
        return self.filters is not None or self.predicate is not None or self.rowgroup_selector is not None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EpochOptions:
    """Options of epochs and sharding: number of epochs, shard of this rank, last batch.

    Args: Epochs and sharding
        num_epochs: Number of epochs in one iteration over the reader; None repeats endlessly.
        cur_shard: Rank of this process, from 0 (with `shard_count`); `"auto"`, which detects rank and world size
            (`petastore.distributed.current_shard`); or a `petastore.distributed.Shard`. None reads all rows.
        shard_count: Number of ranks (world size); None if `cur_shard` includes it. All ranks get the same number of
            batches, and no row is read by two ranks, except repeats of `last_batch="pad"` and `"wrap"`.
        last_batch: Policy for the rows at the end of an epoch that do not fill a batch on every rank. `"even"` divides
            them among the ranks: each row is read once, and batch sizes of the ranks differ by at most one row.
            `"drop"` leaves them out. `"pad"` fills the batches with repeated rows and adds a bool column `valid`, False
            for repeats. `"wrap"` fills them with rows from the start of the epoch.
    """

    num_epochs: int | None = 1
    cur_shard: int | Shard | ShardWord | None = None
    shard_count: int | None = None
    last_batch: LastBatchWord | LastBatch = "even"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of execution: workers, memory limits and the transform.

    Args: Workers and memory
        reader_pool_type: Kind of workers: `"thread"`; `"process"`, which runs the function of `transform_spec` in
            worker processes and everything else in threads; or `"dummy"`, which runs everything in the calling thread.
            The row order is the same with all three.
        workers_count: Number of concurrent tasks, or of worker processes; None means one per CPU that the process may
            use.
        memory_budget: Maximum memory for reading in this process, in bytes or as text such as `"2GB"`: row groups in
            memory, shuffle buffer and prefetched batches. If it is too small, the first request for a batch raises
            `InvalidArgumentError`. `reader.estimate_memory(batch_size)` returns the required size. None means no limit.
        max_cell_bytes: Maximum decoded size of one cell, in bytes or as text such as `"1GB"`; a larger cell raises
            `DecodeError`. petastore's codecs compute the size before memory is allocated, for example from an image's
            header; with other codecs, the size is checked after decoding. None means no limit.

    Args: Data
        transform_spec: Function applied to each decoded row: takes and returns a dict. Or a `TransformSpec`, which also
            declares the type of the function's argument and the fields that it changes.
        provenance: Whether to add columns with the origin of each row: `source_file` (path relative to the dataset;
            with several datasets, URL and path), `source_row_group` (number in the file, from 0) and `source_row`
            (number in the row group, from 0).

    Args: Monitoring
        progress: Whether rank 0 shows rows per second, the share of stalls and the remaining time on standard error. On
            a terminal it is a bar, if rich is installed (extra `cli`); otherwise a line every 10 seconds.
    """

    reader_pool_type: PoolType = "thread"
    workers_count: int | None = None
    memory_budget: ByteSize | None = None
    max_cell_bytes: ByteSize | None = DEFAULT_MAX_CELL_BYTES
    transform_spec: AnyTransform | None = None
    provenance: bool = False
    progress: bool = False

    def __post_init__(self) -> None:
        known_word(self.provenance, Literal[True, False], name="provenance")
        known_word(self.progress, Literal[True, False], name="progress")
        _ = self.workers  # this property checks the other options

    @property
    def workers(self) -> Workers:
        """Number and kind of workers, and memory limits."""
        budget, most = self.memory_budget, self.max_cell_bytes
        return Workers(
            self.reader_pool_type,
            self.workers_count,
            None if budget is None else byte_size(budget, name="memory_budget"),
            None if most is None else byte_size(most, name="max_cell_bytes"),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ReadOptions:
    """All parameters of a reader, validated, in four groups.

    Example:
        >>> options = ReadOptions.of("/data/clicks", shuffle_rows=True, memory_budget="1GB", last_batch="drop")
        >>> options.plan.order.shuffle_rows, options.run.workers.memory_budget, options.plan.last_batch
        (True, 1000000000, <LastBatch.DROP: 'drop'>)
    """

    dataset: DatasetOptions
    """Dataset, storage and cache."""

    rows: RowOptions
    """Selected rows."""

    plan: PlanOptions
    """Order, shard and epochs."""

    run: RunOptions
    """Workers and memory."""

    @classmethod
    def of(cls, url: Urls | Dataset, **given: Unpack[ReaderKwargs]) -> Self:
        """Return validated options from keyword arguments; warn of Petastorm options without effect.

        Raises:
            InvalidArgumentError: An option is invalid; the message names it.

        Warns:
            RetiredWarning: A Petastorm option without effect was given.
            UnshardedReaderWarning: No shard was given, and this process is one of several ranks.
            UserWarning: The shard differs from the rank that the running framework reports.
        """
        if retired := _of_group(Retired, given):
            tell_retired(Retired(**retired))
        order, run = OrderOptions(**_of_group(OrderOptions, given)), RunOptions(**_of_group(RunOptions, given))
        dataset = DatasetOptions(url, **_of_group(DatasetOptions, given))
        epochs = EpochOptions(**_of_group(EpochOptions, given))
        shard = asked_shard(epochs.cur_shard, epochs.shard_count)
        plan = PlanOptions(None, order, shard, epochs.num_epochs, LastBatch.parse(epochs.last_batch))
        return cls(dataset, RowOptions(**_of_group(RowOptions, given)), plan, run)


def options_of_rows(url: Urls | Dataset, **given: Unpack[MapKwargs]) -> tuple[DatasetOptions, RowOptions, RunOptions]:
    """Return the dataset, row and run options of a dataset with random access, which has no order and no shard.

    Raises:
        InvalidArgumentError: An option is invalid; the message names it.
    """
    dataset = DatasetOptions(url, **_of_group(DatasetOptions, given))
    return dataset, RowOptions(**_of_group(RowOptions, given)), RunOptions(**_of_group(RunOptions, given))


def _of_group(group: type, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in names_of(group) if name in given}


GROUPS: Final = (DatasetOptions, RowOptions, OrderOptions, EpochOptions, RunOptions, Retired)
"""All groups of parameters of `make_reader`."""

PETASTORMS_ORDER: Final = (
    "reader_pool_type",
    "workers_count",
    "pyarrow_serialize",
    "results_queue_size",
    "seed",
    "shuffle_rows",
    "shuffle_row_groups",
    "shuffle_row_drop_partitions",
    "predicate",
    "rowgroup_selector",
    "num_epochs",
    "cur_shard",
    "shard_count",
    "shard_seed",
    "cache_type",
    "cache_location",
    "cache_size_limit",
    "cache_row_size_estimate",
    "cache_extra_settings",
    "hdfs_driver",
    "transform_spec",
    "filters",
    "storage_options",
    "zmq_copy_buffers",
    "filesystem",
    "convert_early_to_numpy",
)
"""Positional parameters in Petastorm's order, after URL and fields."""
