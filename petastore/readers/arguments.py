"""Dicts of arguments that users write, with one key for a parameter: of readers that others open, and of sources.

For type checkers, which see each parameter in them; the tables take time to make, and readers do without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Required, TypedDict

from petastore.codecs.images.image_hint import ImageDecode
from petastore.dataset import Dataset
from petastore.plan.request import Fields, Reshuffle, Shard, ShardWord, Tail, TailWord
from petastore.plan.windows.ngram import NGram
from petastore.readers.asked import CacheType, Filters, Predicate, RowGroupSelector, SelectionCache, Urls
from petastore.selecting.retired import HdfsDriver
from petastore.transforming.transform import AnyTransform
from petastore.work.workers import PoolType

__all__ = ["FurtherArguments", "ReaderArguments", "SourceArguments"]


class DatasetArguments(TypedDict, total=False):
    """What is asked of a dataset and of its rows: the one table of that."""

    filters: Filters | None
    predicate: Predicate | None
    rowgroup_selector: RowGroupSelector | None
    filter_cache: SelectionCache
    storage_options: Mapping[str, Any] | None
    filesystem: Any
    decode: Mapping[str, ImageDecode] | None
    storage_timeout: float | None
    storage_hedging: bool
    cache_type: CacheType | None
    cache_location: str | os.PathLike[str] | None
    cache_size_limit: int | None


class SourceArguments(DatasetArguments, total=False):
    """A source of `make_mixed_reader` as a dict: what it does not say is as for all sources."""

    dataset_url: Required[Urls | Dataset]


class FurtherArguments(DatasetArguments, total=False):
    """Arguments of `make_batch_reader` behind the URL, each by its name: the one table of them.

    Without those that who takes further arguments of a reader has by itself: they are in `ReaderArguments`.
    """

    schema_fields: Fields | NGram | None
    reader_pool_type: PoolType
    results_queue_size: int | None
    seed: int | None
    shuffle_rows: bool
    shuffle_row_groups: bool
    shuffle_row_drop_partitions: int
    cur_shard: int | Shard | ShardWord | None
    shard_count: int | None
    shard_seed: int | None
    cache_row_size_estimate: int | None
    cache_extra_settings: Mapping[str, Any] | None
    hdfs_driver: HdfsDriver | None
    transform_spec: AnyTransform | None
    zmq_copy_buffers: bool
    convert_early_to_numpy: bool
    memory_budget: int | None
    max_cell_bytes: int | None
    shuffle_buffer_bytes: int
    lanes: int | None
    block_rows: int | None
    reshuffle: Reshuffle | None
    last_batch: TailWord | Tail
    provenance: bool


class ReaderArguments(FurtherArguments, total=False):
    """All arguments of `make_batch_reader` behind the URL; `make_reader` has them too, and `pyarrow_serialize`."""

    workers_count: int | None
    num_epochs: int | None
