"""Reader factories: `make_reader`, `make_batch_reader` and `make_mixed_reader`.

The functions have Petastorm's parameter names. Each function opens the dataset, computes the plan (the rows of each
batch, in order), and creates a `Reader` of this plan.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Fields, OrderOptions
from petastore.readers.bad_rows import selected_rows
from petastore.readers.execution.building import build_execution
from petastore.readers.option_signatures import takes_options
from petastore.readers.options import (
    GROUPS,
    PETASTORMS_ORDER,
    DatasetOptions,
    EpochOptions,
    ReadOptions,
    RowOptions,
    RunOptions,
    Urls,
)
from petastore.readers.reader import Reader

if TYPE_CHECKING:
    from petastore.plan.mixture.mixture import Batching, Stop
    from petastore.plan.windows.ngram import NGram
    from petastore.readers.mixed_sources import SourceGiven
    from petastore.readers.options import BatchReaderKwargs, MixKwargs, ReaderKwargs

__all__ = ["make_batch_reader", "make_mixed_reader", "make_reader"]


@takes_options(*GROUPS, positional=PETASTORMS_ORDER)
def make_reader(
    dataset_url: Urls | Dataset,
    schema_fields: Fields | NGram | None = None,
    *_in_petastorms_order: Any,
    **options: Unpack[ReaderKwargs],
) -> Reader:
    """Open a reader that yields one row at a time.

    For batches, pass the reader to a loader, or call `reader.iter_batches(n)`. Parameters are in Petastorm's order;
    those after `convert_early_to_numpy` are new. A *retired* parameter is accepted and ignored, with a `RetiredWarning`
    that names its replacement.

    Args:
        dataset_url: Local path or URL of a directory or of one Parquet file, or a list of these. Datasets written by
            petastore or Petastorm and plain Parquet are supported. An open `Dataset`, such as the result of
            `open_dataset`, is accepted too.
        schema_fields: Columns to read: names, regular expressions that match whole names, or fields; None reads all. A
            `petastore.NGram` reads windows of consecutive rows.
        {options}

    Returns:
        A `Reader`: an iterator of rows, each a named tuple. Use it in a `with` block.

    Raises:
        DatasetNotFoundError: No dataset exists at the URL.
        InvalidArgumentError: An argument is invalid; the message names it.
        NoDataAvailableError: The dataset has fewer rows than ranks, with `last_batch="even"`.
        SchemaError: A file does not match the stored schema, or a column that is read has types in different files that
            cannot be unified.

    Warns:
        CacheBypassWarning: `cache_type="local-disk"` was given, but the cache directory is not usable.
        UnshardedReaderWarning: No shard was given, but this process is one of several ranks.
        UserWarning: `cur_shard` and `shard_count` differ from the rank and world size that the running framework
            reports.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"id": 1}, {"id": 2}])
        ...     with make_reader(folder + "/users") as reader:
        ...         [int(row.id) for row in reader]
        [1, 2]
    """
    return _opened(ReadOptions.of(dataset_url, **options), schema_fields)


@takes_options(*GROUPS, without={"pyarrow_serialize"}, positional=PETASTORMS_ORDER)
def make_batch_reader(
    dataset_url_or_urls: Urls | Dataset,
    schema_fields: Fields | NGram | None = None,
    *_in_petastorms_order: Any,
    **options: Unpack[BatchReaderKwargs],
) -> Reader:
    """Open a reader that yields batches of columns.

    A batch has as many rows as the largest row group, at most 65,536; `reader.iter_batches(n)` yields batches of n rows
    instead.

    Parameters are those of `make_reader`, except `pyarrow_serialize`. The function of a `transform_spec` receives and
    returns a pandas DataFrame per batch, unless `TransformSpec.takes` is set. The method `do_include` of a predicate
    receives a DataFrame and returns a boolean Series. Columns with codecs are decoded too.

    Returns:
        A `Reader`: an iterator of named tuples of NumPy arrays. Use it in a `with` block.

    Raises:
        DatasetNotFoundError: No dataset exists at the URL.
        InvalidArgumentError: An argument is invalid; the message names it.
        NoDataAvailableError: The dataset has fewer rows than ranks, with `last_batch="even"`.
        SchemaError: A file does not match the stored schema, or a column that is read has types in different files that
            cannot be unified.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(pa.table({"id": [1, 2, 3]}), folder + "/plain.parquet")
        ...     with make_batch_reader(folder) as reader:
        ...         [batch.id.tolist() for batch in reader]
        [[1, 2, 3]]
    """
    return _opened(ReadOptions.of(dataset_url_or_urls, **options), schema_fields, batched=True)


@takes_options(DatasetOptions, RowOptions, OrderOptions, EpochOptions, RunOptions)
def make_mixed_reader(
    sources: Sequence[SourceGiven],
    weights: Sequence[Any],
    schema_fields: Fields | None = None,
    *,
    stop: Stop = "first_exhausted",
    batching: Batching = "mixed",
    source_column: str | None = None,
    **options: Unpack[MixKwargs],
) -> Reader:
    """Open a reader that mixes several datasets by weight.

    Each source gets its share of the rows, exactly or rounded by at most 1 %. The order of rows is deterministic and
    resumable. A source that is exhausted before the epoch ends starts over, in another order.

    Args:
        sources: One item per dataset: a URL, a `Dataset`, or a dict with `dataset_url` and any of `filters`,
            `predicate`, `rowgroup_selector`, `filter_cache`, `decode`, `cache_type`, `cache_location`,
            `cache_size_limit`, `storage_options`, `filesystem` and `storage_timeout`. All sources must have the same
            fields (name, dtype and shape); codecs may differ.
        weights: One number above 0 per source; only their ratio matters. With the numbers of rows as weights, each row
            is read about once per epoch.
        schema_fields: As in `make_reader`; regular expressions are matched against the first source.
        stop: When an epoch ends: `"first_exhausted"` (all rows of one source were read), `"all_exhausted"` (all rows of
            every source were read), or `"cycle"` (never; needs `num_epochs=None`).
        batching: `"mixed"`: each batch has rows of all sources. `"per_source"`: in each step, the batches of all ranks
            come from one source.
        source_column: Name of an int32 column to add: index of the row's source in `sources`. None adds no column.
        **options: As in `make_reader`. The seed of each source is derived from `seed`. `shuffle_buffer_bytes` is
            divided among the sources by weight; `interleave` and `shuffle_block_rows` apply to each source.
            `cache_size_limit` is the limit of all sources together. With `batching="per_source"`, `last_batch` applies
            to each source.

    Returns:
        A `Reader`: an iterator of rows, each a named tuple. Use it in a `with` block. Pass it to a
            loader, or call `reader.iter_batches(n)`, for batches.

    Raises:
        DatasetNotFoundError: No dataset exists at a URL.
        InvalidArgumentError: An argument is invalid; the message names it.
        NoDataAvailableError: A source has no rows; or there are fewer rows than ranks, with `last_batch="even"`.
        SchemaError: Two datasets differ in a field; the message names both datasets and the field.

    Warns:
        CacheBypassWarning: `cache_type="local-disk"` was given, but the cache directory is not usable.

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
    from petastore.readers.mixed_sources import MixedReader, open_sources, plan_mixture

    asked = ReadOptions.of((), **options)
    ask = dataclasses.replace(asked.plan, columns=schema_fields)
    datasets, rows = open_sources(sources, asked.dataset, asked.rows)
    reader = MixedReader(
        datasets,
        plan_mixture(
            datasets, rows, weights, ask, asked.run, stop=stop, batching=batching, source_column=source_column
        ),
        workers=asked.run.workers,
        transforms=asked.run.transform_spec,
        source_column=source_column,
        provenance=asked.run.provenance,
    )
    return _with_progress(reader, asked.run)


def _opened(options: ReadOptions, fields: Fields | NGram | None, *, batched: bool = False) -> Reader:
    """Open a reader of rows, batches or windows.

    Invalid arguments raise an error before a filter reads data.
    """
    dataset, run = options.dataset.opened_alone(), options.run
    # Modules of windows are imported only for an NGram, so that the first batch of other readers arrives 20 ms sooner.
    if fields is not None and not isinstance(fields, (list, tuple)):
        from petastore.plan.windows.ngram import NGram

        if isinstance(fields, NGram):
            if run.provenance:
                raise InvalidArgumentError(
                    "provenance must be False with an NGram, because a window has several rows, got True. Remove "
                    "provenance="
                )
            from petastore.readers.window_reader import open_window_reader

            return _with_progress(open_window_reader(dataset, fields, options, batched=batched), run)
    ask = dataclasses.replace(options.plan, columns=fields)
    plan = dataset.planned(ask)
    selection = selected_rows(dataset, plan.request.columns, options.rows, run, batched=batched)
    if selection is not None:
        plan = dataset.planned(ask, selection)
    build = functools.partial(build_execution, provenance=run.provenance) if run.provenance else build_execution
    reader = Reader(dataset, plan, workers=run.workers, transform=run.transform_spec, batched=batched, build=build)
    return _with_progress(reader, run)


def _with_progress(reader: Reader, run: RunOptions) -> Reader:
    if run.progress:
        reader.show_progress()
    return reader
