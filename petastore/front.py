"""The front door: `make_reader`, `make_batch_reader` and `make_mixed_reader`, with names that Petastorm's users know.

Thin, and without logic of their own: they open the dataset, plan, and hand the plan to a `Reader`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from petastore.dataset import Dataset
from petastore.distributed.asked import asked_shard
from petastore.errors import InvalidArgumentError
from petastore.other_words import answering_other_words
from petastore.plan.lanes import DEFAULT_SHUFFLE_BUFFER_BYTES
from petastore.plan.request import Fields, OrderAsk, PlanAsk, Reshuffle, Shard, ShardWord, Tail, TailWord
from petastore.readers.asked import (
    CacheAsk,
    CacheType,
    DatasetAsk,
    Filters,
    Predicate,
    RowGroupSelector,
    RowsAsk,
    RunAsk,
    SelectionCache,
    Urls,
)
from petastore.readers.execution.row_execution import execution_of_rows
from petastore.readers.reader import Reader
from petastore.selecting.retired import HdfsDriver, Retired, tell_retired
from petastore.storage.requests.under_way import DEFAULT_STORAGE_TIMEOUT_S
from petastore.work.workers import DEFAULT_MAX_CELL_BYTES, PoolType, Workers

if TYPE_CHECKING:
    from petastore.codecs.images.image_hint import ImageDecode
    from petastore.plan.mixture.mixture import Batching, Stop
    from petastore.plan.windows.ngram import NGram
    from petastore.readers.mixed.mixed_sources import SourceGiven
    from petastore.transforming.transform import AnyTransform

__all__ = ["make_batch_reader", "make_mixed_reader", "make_reader"]


@answering_other_words
def make_reader(
    dataset_url: Urls | Dataset,
    schema_fields: Fields | NGram | None = None,
    reader_pool_type: PoolType = "thread",
    workers_count: int | None = None,
    pyarrow_serialize: bool = False,
    results_queue_size: int | None = None,
    seed: int | None = None,
    shuffle_rows: bool = False,
    shuffle_row_groups: bool = True,
    shuffle_row_drop_partitions: int = 1,
    predicate: Predicate | None = None,
    rowgroup_selector: RowGroupSelector | None = None,
    num_epochs: int | None = 1,
    cur_shard: int | Shard | ShardWord | None = None,
    shard_count: int | None = None,
    shard_seed: int | None = None,
    cache_type: CacheType | None = "null",
    cache_location: str | os.PathLike[str] | None = None,
    cache_size_limit: int | None = None,
    cache_row_size_estimate: int | None = None,
    cache_extra_settings: Mapping[str, Any] | None = None,
    hdfs_driver: HdfsDriver | None = None,
    transform_spec: AnyTransform | None = None,
    filters: Filters | None = None,
    storage_options: Mapping[str, Any] | None = None,
    zmq_copy_buffers: bool = True,
    filesystem: Any = None,
    convert_early_to_numpy: bool = False,
    *,
    memory_budget: int | None = None,
    max_cell_bytes: int | None = DEFAULT_MAX_CELL_BYTES,
    storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S,
    storage_hedging: bool = False,
    shuffle_buffer_bytes: int = DEFAULT_SHUFFLE_BUFFER_BYTES,
    lanes: int | None = None,
    block_rows: int | None = None,
    reshuffle: Reshuffle | None = None,
    last_batch: TailWord | Tail = "even",
    decode: Mapping[str, ImageDecode] | None = None,
    filter_cache: SelectionCache = True,
    provenance: bool = False,
) -> Reader:
    """Reads a dataset row by row; adapters and `reader.iter_batches(n)` take batches of columns from it all the same.

    Parameters stand in Petastorm's order; those after `convert_early_to_numpy` are new. What is called *retired* has no
    effect any more: it is accepted, and a `RetiredWarning` says once what to do instead.

    Args:
        dataset_url: A directory, one Parquet file, or a list of either: petastore's datasets, Petastorm's, and plain
            Parquet. Or a `Dataset` that was opened already, as by `open_dataset` or `interop.orca.open_orca`.
        schema_fields: Names, regular expressions over whole names, or fields; None is all. Or a `petastore.NGram`: then
            what is read, counted, shuffled and shared are windows of consecutive rows.
        reader_pool_type: `"thread"`; `"process"`, which runs the function of `transform_spec` in worker processes and
            all else in threads; or `"dummy"` for everything in the caller's thread. The order does not depend on it.
        workers_count: Tasks that run at a time, or worker processes; None is one for each CPU that the process may use.
        pyarrow_serialize: Retired.
        results_queue_size: Retired: `memory_budget` says in bytes how far ahead the reader may work.
        seed: Any integer; 0 is one like the others. None is a fresh seed, or, where `shard_count` is given, one fixed
            seed on which all ranks agree.
        shuffle_rows: Permute rows, anew in each epoch.
        shuffle_row_groups: Permute row groups, anew in each epoch.
        shuffle_row_drop_partitions: Retired: `shuffle_rows` mixes over row groups.
        predicate: Which of the rows that `filters` leaves: an object with `get_fields()` and `do_include(values)`, or a
            function of a row as a dict; asked once for each row.
        rowgroup_selector: One of `petastore.selectors`: only the row groups that it picks by stored indexes
            (`petastore.indexing`) are looked at.
        num_epochs: Epochs of one iteration; None is without end.
        cur_shard: This rank, from 0; give it together with `shard_count`. Or `"auto"`: what
            `petastore.distributed.current_shard` finds out; or a `petastore.distributed.Shard`. None reads all rows.
        shard_count: Ranks; None where `cur_shard` says it. Each row belongs to exactly one of them, and all get the
            same number of batches.
        shard_seed: Retired: `seed` decides the order.
        cache_type: None or `"null"` keeps nothing. `"local-disk"` keeps on the local disk what was read of files in
            object stores and on web servers, for the next epochs, readers and processes of this host. Files of the
            local file system are read where they are; a warning says where nothing is kept of others.
        cache_location: A local directory for that; None is the user's cache directory (or `PETASTORE_CACHE`).
        cache_size_limit: Bytes that it may have there, 65,536 at least, for all who share it; None is what was asked
            last, or else a quarter of the free disk.
        cache_row_size_estimate: Accepted, of no effect: bytes are counted.
        cache_extra_settings: Accepted, of no effect.
        hdfs_driver: `"libhdfs"`, which is what there is; `"libhdfs3"` is retired.
        transform_spec: A function from a row, as a dict, to a row; or a `TransformSpec`, which also says what the
            function takes and what it does to the fields.
        filters: Which rows: an expression such as `petastore.col("split") == "train"`, or pyarrow's nested lists of
            `(column, operator, value)`. Settled before the first batch, so that all counts are exact.
        storage_options: Passed to the fsspec filesystem of the URL's scheme.
        zmq_copy_buffers: Retired.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        convert_early_to_numpy: Retired: workers always make NumPy arrays.
        memory_budget: Bytes that reading may take in this process: row groups at hand, and batches on their way. Too
            little is refused when batches are asked for. `reader.estimate_memory(batch_size)` says what will be taken.
            None is as many as are useful.
        max_cell_bytes: Bytes that one cell may take once decoded; a larger one is refused before memory is taken for
            it, by what its header says. None is no limit.
        storage_timeout: Seconds that storage may take to answer a request, such as to list a directory or to read a
            column of a row group; then a `StorageTimeoutError` says what was asked. None waits without end.
        storage_hedging: Whether a request for bytes of a file is made a second time when its answer takes longer than
            95 % of those before it; the first answer counts. At most 5 % of the requests are.
        shuffle_buffer_bytes: Bytes of stored cells that all ranks together keep for `shuffle_rows`; more mixes better.
        lanes: Row groups that are read side by side; None lets `shuffle_buffer_bytes` choose.
        block_rows: Rows of a lane that are permuted together; None lets `shuffle_buffer_bytes` choose.
        reshuffle: `"epoch"` permutes row groups anew in each epoch. `"static"` lets a rank keep its row groups, most of
            them also when the number of ranks changes. None is `"static"` where column chunks are kept on the local
            disk, else `"epoch"`.
        last_batch: What becomes of rows that fill no whole batch on every rank: `"even"` (each row once, shares differ
            by at most one), `"drop"`, `"pad"` (repeats, marked in a column `valid`) or `"wrap"`.
        decode: Field name to `petastore.codecs.ImageDecode`: a part of the images of a field, another size, or gray.
            Transform and predicate see what comes of it; the order and states of readers do not depend on it.
        filter_cache: Where the answers of `filters` and `predicate` are remembered: a local directory, True for the
            user's cache directory (or `PETASTORE_CACHE`), False for nowhere.
        provenance: Whether to add columns that say where each row comes from: `source_file`, the path in the dataset;
            `source_row_group`, its number in the file; and `source_row`, the row's number in the row group.

    Returns:
        An iterator of named tuples; use it in a `with` block.

    Raises:
        DatasetNotFoundError: There is no dataset there.
        InvalidArgumentError: Something that was asked for cannot be.
        NoDataAvailableError: `last_batch="even"` with fewer rows than ranks.
        SchemaError: Files disagree with each other, or with the schema.

    Warns:
        CacheBypassWarning: `cache_type="local-disk"` keeps nothing there.
        UnshardedReaderWarning: It was told no shard, and this process is plainly one of several ranks.
        UserWarning: It was told numbers of a shard that are not this rank's, by the engine that runs here.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"id": 1}, {"id": 2}])
        ...     with make_reader(folder + "/users") as reader:
        ...         [int(row.id) for row in reader]
        [1, 2]
    """
    tell_retired(
        Retired(
            pyarrow_serialize=pyarrow_serialize,
            results_queue_size=results_queue_size,
            shuffle_row_drop_partitions=shuffle_row_drop_partitions,
            shard_seed=shard_seed,
            cache_row_size_estimate=cache_row_size_estimate,
            cache_extra_settings=cache_extra_settings,
            hdfs_driver=hdfs_driver,
            zmq_copy_buffers=zmq_copy_buffers,
            convert_early_to_numpy=convert_early_to_numpy,
        )
    )
    order = OrderAsk(seed, shuffle_row_groups, shuffle_rows, shuffle_buffer_bytes, lanes, block_rows, reshuffle)
    workers = Workers(reader_pool_type, workers_count, memory_budget, max_cell_bytes)
    cache = CacheAsk(cache_type, cache_location, cache_size_limit)
    return _opened(
        DatasetAsk(dataset_url, storage_options, filesystem, storage_timeout, decode, cache, storage_hedging),
        schema_fields,
        PlanAsk(None, order, asked_shard(cur_shard, shard_count), num_epochs, Tail.parse(last_batch)),
        RowsAsk(filters, predicate, rowgroup_selector, filter_cache),
        RunAsk(workers, transform_spec, provenance=provenance),
    )


@answering_other_words
def make_batch_reader(
    dataset_url_or_urls: Urls | Dataset,
    schema_fields: Fields | NGram | None = None,
    reader_pool_type: PoolType = "thread",
    workers_count: int | None = None,
    results_queue_size: int | None = None,
    seed: int | None = None,
    shuffle_rows: bool = False,
    shuffle_row_groups: bool = True,
    shuffle_row_drop_partitions: int = 1,
    predicate: Predicate | None = None,
    rowgroup_selector: RowGroupSelector | None = None,
    num_epochs: int | None = 1,
    cur_shard: int | Shard | ShardWord | None = None,
    shard_count: int | None = None,
    shard_seed: int | None = None,
    cache_type: CacheType | None = "null",
    cache_location: str | os.PathLike[str] | None = None,
    cache_size_limit: int | None = None,
    cache_row_size_estimate: int | None = None,
    cache_extra_settings: Mapping[str, Any] | None = None,
    hdfs_driver: HdfsDriver | None = None,
    transform_spec: AnyTransform | None = None,
    filters: Filters | None = None,
    storage_options: Mapping[str, Any] | None = None,
    zmq_copy_buffers: bool = True,
    filesystem: Any = None,
    convert_early_to_numpy: bool = False,
    *,
    memory_budget: int | None = None,
    max_cell_bytes: int | None = DEFAULT_MAX_CELL_BYTES,
    storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S,
    storage_hedging: bool = False,
    shuffle_buffer_bytes: int = DEFAULT_SHUFFLE_BUFFER_BYTES,
    lanes: int | None = None,
    block_rows: int | None = None,
    reshuffle: Reshuffle | None = None,
    last_batch: TailWord | Tail = "even",
    decode: Mapping[str, ImageDecode] | None = None,
    filter_cache: SelectionCache = True,
    provenance: bool = False,
) -> Reader:
    """Reads a dataset in batches of columns, as large as its largest row group (at most 65,536 rows).

    All parameters are those of `make_reader`, without `pyarrow_serialize`; but `transform_spec` takes and returns a
    pandas DataFrame of one batch, unless `TransformSpec.takes` says otherwise, and `do_include` of a predicate takes
    one and returns a boolean Series. Columns with codecs are decoded here too. `reader.iter_batches(n)` gives batches
    of n rows instead.

    Returns:
        An iterator of named tuples of NumPy arrays; use it in a `with` block.

    Raises:
        DatasetNotFoundError: There is no dataset there.
        InvalidArgumentError: Something that was asked for cannot be.
        NoDataAvailableError: `last_batch="even"` with fewer rows than ranks.
        SchemaError: Files disagree with each other, or with the schema.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(pa.table({"id": [1, 2, 3]}), folder + "/plain.parquet")
        ...     with make_batch_reader(folder) as reader:
        ...         [batch.id.tolist() for batch in reader]
        [[1, 2, 3]]
    """
    tell_retired(
        Retired(
            results_queue_size=results_queue_size,
            shuffle_row_drop_partitions=shuffle_row_drop_partitions,
            shard_seed=shard_seed,
            cache_row_size_estimate=cache_row_size_estimate,
            cache_extra_settings=cache_extra_settings,
            hdfs_driver=hdfs_driver,
            zmq_copy_buffers=zmq_copy_buffers,
            convert_early_to_numpy=convert_early_to_numpy,
        )
    )
    order = OrderAsk(seed, shuffle_row_groups, shuffle_rows, shuffle_buffer_bytes, lanes, block_rows, reshuffle)
    workers = Workers(reader_pool_type, workers_count, memory_budget, max_cell_bytes)
    cache = CacheAsk(cache_type, cache_location, cache_size_limit)
    return _opened(
        DatasetAsk(dataset_url_or_urls, storage_options, filesystem, storage_timeout, decode, cache, storage_hedging),
        schema_fields,
        PlanAsk(None, order, asked_shard(cur_shard, shard_count), num_epochs, Tail.parse(last_batch)),
        RowsAsk(filters, predicate, rowgroup_selector, filter_cache),
        RunAsk(workers, transform_spec, batched=True, provenance=provenance),
    )


@answering_other_words
def make_mixed_reader(
    sources: Sequence[SourceGiven],
    weights: Sequence[Any],
    schema_fields: Fields | None = None,
    reader_pool_type: PoolType = "thread",
    workers_count: int | None = None,
    memory_budget: int | None = None,
    *,
    max_cell_bytes: int | None = DEFAULT_MAX_CELL_BYTES,
    storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S,
    storage_hedging: bool = False,
    stop: Stop = "first_exhausted",
    batching: Batching = "mixed",
    source_column: str | None = None,
    seed: int | None = None,
    shuffle_rows: bool = False,
    shuffle_row_groups: bool = True,
    shuffle_buffer_bytes: int = DEFAULT_SHUFFLE_BUFFER_BYTES,
    lanes: int | None = None,
    block_rows: int | None = None,
    reshuffle: Reshuffle | None = None,
    num_epochs: int | None = 1,
    cur_shard: int | Shard | ShardWord | None = None,
    shard_count: int | None = None,
    last_batch: TailWord | Tail = "even",
    decode: Mapping[str, ImageDecode] | None = None,
    transform_spec: AnyTransform | None = None,
    filters: Filters | None = None,
    predicate: Predicate | None = None,
    rowgroup_selector: RowGroupSelector | None = None,
    filter_cache: SelectionCache = True,
    cache_type: CacheType | None = "null",
    cache_location: str | os.PathLike[str] | None = None,
    cache_size_limit: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Reader:
    """Reads several datasets by weight as if they were one: deterministic, in exact proportions, resumable.

    A source that was read to its end starts over in another order, until the epoch ends.

    Args:
        sources: For each a URL, a `Dataset`, or a dict with `dataset_url` and its own `filters`, `predicate`,
            `rowgroup_selector`, `filter_cache`, `decode`, `cache_type`, `cache_location`, `cache_size_limit`,
            `storage_options`, `filesystem`, `storage_timeout` or `storage_hedging`. Fields must agree in name, dtype
            and shape; codecs may differ.
        weights: One number above 0 for each source; only their proportion counts. The number of rows of each source
            lets an epoch have each row about once.
        schema_fields: As for `make_reader`; expressions are looked up in the first source.
        reader_pool_type: As for `make_reader`.
        workers_count: As for `make_reader`.
        memory_budget: As for `make_reader`.
        max_cell_bytes: As for `make_reader`.
        storage_timeout: As for `make_reader`.
        storage_hedging: As for `make_reader`.
        stop: When an epoch ends: when the first source has given all its rows (`"first_exhausted"`), when all have
            (`"all_exhausted"`), or never (`"cycle"`, which needs `num_epochs=None`).
        batching: `"mixed"` has rows of all sources in each batch; with `"per_source"` the batches of a step are, on all
            ranks, of one source.
        source_column: The name of an int32 column that is added and says which source a row is of, from 0.
        seed: As for `make_reader`; sources get seeds of their own, made of it.
        shuffle_rows: As for `make_reader`.
        shuffle_row_groups: As for `make_reader`.
        shuffle_buffer_bytes: As for `make_reader`; sources share it by weight.
        lanes: Of each source, as for `make_reader`.
        block_rows: Of each source, as for `make_reader`.
        reshuffle: As for `make_reader`.
        num_epochs: Epochs of the mixture in one iteration; None is without end.
        cur_shard: As for `make_reader`.
        shard_count: As for `make_reader`.
        last_batch: As for `make_reader`; with `"per_source"` each source has a last batch.
        decode: Of each source that has none of its own, as for `make_reader`.
        transform_spec: A function from a row of any source, as a dict, to a row; or a `TransformSpec`.
        filters: Of each source that has none of its own, as for `make_reader`.
        predicate: Of each source that has none of its own, as for `make_reader`.
        rowgroup_selector: Of each source that has none of its own, as for `make_reader`.
        filter_cache: As for `make_reader`.
        cache_type: Of each source that has none of its own, as for `make_reader`.
        cache_location: As for `make_reader`.
        cache_size_limit: As for `make_reader`: of all sources together.
        storage_options: Of each source that has none of its own, as for `make_reader`.
        filesystem: Of each source that has none of its own, as for `make_reader`.

    Returns:
        An iterator of named tuples; use it in a `with` block. Adapters and `reader.iter_batches(n)` take batches from
        it.

    Raises:
        DatasetNotFoundError: There is no dataset there.
        InvalidArgumentError: Something that was asked for cannot be.
        NoDataAvailableError: A source has no rows, or `last_batch="even"` with fewer rows than ranks.
        SchemaError: Two datasets differ in a field; both and the field are named.

    Warns:
        CacheBypassWarning: `cache_type="local-disk"` keeps nothing of a source.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("number", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name, first in (("/a", 0), ("/b", 100)):
        ...         _ = petastore.write_dataset(folder + name, schema, [{"id": first + n} for n in range(6)])
        ...     with make_mixed_reader([folder + "/a", folder + "/b"], [2, 1], seed=0, stop="all_exhausted") as reader:
        ...         [batch["id"].tolist() for batch in reader.iter_batches(6)]
        [[0, 100, 1, 101, 2, 3], [102, 4, 5, 0, 103, 1], [2, 104, 3, 4, 5, 105]]
    """
    from petastore.readers.mixed.mixed_reader import MixedReader
    from petastore.readers.mixed.mixed_sources import open_sources, plan_mixture

    order = OrderAsk(seed, shuffle_row_groups, shuffle_rows, shuffle_buffer_bytes, lanes, block_rows, reshuffle)
    ask = PlanAsk(schema_fields, order, asked_shard(cur_shard, shard_count), num_epochs, Tail.parse(last_batch))
    workers = Workers(reader_pool_type, workers_count, memory_budget, max_cell_bytes)
    cache = CacheAsk(cache_type, cache_location, cache_size_limit)
    opened = open_sources(
        sources,
        DatasetAsk((), storage_options, filesystem, storage_timeout, decode, cache, storage_hedging),
        RowsAsk(filters, predicate, rowgroup_selector, filter_cache),
    )
    return MixedReader(
        [source.dataset for source in opened],
        plan_mixture(opened, weights, ask, stop=stop, batching=batching, workers=workers),
        workers=workers,
        transforms=transform_spec,
        source_column=source_column,
    )


def _opened(at: DatasetAsk, fields: Fields | NGram | None, ask: PlanAsk, rows: RowsAsk, run: RunAsk) -> Reader:
    """The reader of rows or of windows; what cannot be is refused before a filter reads anything."""
    dataset = at.opened_alone()
    # Imported when asked for: a first batch comes 20 ms sooner.
    if fields is not None and not isinstance(fields, (list, tuple)):
        from petastore.plan.windows.ngram import NGram

        if isinstance(fields, NGram):
            if run.provenance:
                raise InvalidArgumentError(
                    "provenance must be False where an NGram is read: a window has rows of several places"
                )
            from petastore.readers.windows.window_reader import open_window_reader

            return open_window_reader(dataset, fields, ask, rows, run)
    ask = dataclasses.replace(ask, columns=fields)
    plan = dataset.planned(ask)
    selection = rows.selected(dataset, workers=run.workers, batched=run.batched)
    if selection is not None:
        plan = dataset.planned(ask, selection)
    build = functools.partial(execution_of_rows, provenance=run.provenance) if run.provenance else execution_of_rows
    return Reader(dataset, plan, workers=run.workers, transform=run.transform, batched=run.batched, build=build)
