"""Load row groups: several workers share a large row group, and one worker loads several small row groups."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.monitoring.activity import at_work
from petastore.monitoring.waits import WaitMeter
from petastore.plan.batches.spans import Span
from petastore.plan.rank_plan import RankPlan
from petastore.readers.loaded.arena import Arena
from petastore.readers.loaded.prefetch import CacheOrder, Prefetcher, ReadDataset
from petastore.readers.loaded.row_group_reader import LoadedRowGroup, Read, RowGroupReader, placed
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.work import Pool
from petastore.work.futures import after, settle, together

if TYPE_CHECKING:
    from petastore.readers.loaded.part_loads import PartLoads

__all__ = ["Extended", "Loaded", "Loads", "runs"]

_Asked: TypeAlias = tuple[float, int, NDArray[np.int64] | None]
"""Row group to load: time at which it is needed, number, and row numbers in read order (None means file order).

The time is the number of rows of all datasets since epoch 0."""

Loaded: TypeAlias = LoadedRowGroup | dict[int, LoadedRowGroup]
"""Result of a task: a row group, or a dict by number of several row groups."""

Extended: TypeAlias = Callable[[int, int, Read], tuple[int, Read]]
"""Function `extended(group, rows, read)`, which appends to a row group the following rows that its windows need.

`rows` is the number of rows of the row group, and `read` the function that reads it. The result is the number of rows
of the extended row group, and the function that reads the extended row group."""

_MOST_BYTES = 512 * 1024
"""Maximum bytes of several small row groups that one task reads."""

_TINY_BYTES = 64 * 1024
"""Maximum bytes of a row group that is loaded together with others even if rows are shuffled."""

_MOST_CACHED = 1.25
"""Maximum cache bytes per stored byte: entries are whole blocks of 4 KiB."""

_TASKS_A_WORKER = 4
"""Minimum number of tasks per worker into which loading the row groups of a span (consecutive batches) is divided."""


class Loads:
    """Loads row groups for one iteration over a reader. Thread-safe.

    Tasks reference this object instead of the reader. Otherwise a worker could hold the last reference to the reader,
    and close it.

    Args:
        datasets: The datasets of the row groups, in order.
        plan: Plan of the iteration; the plan's inventory numbers the row groups.
        loaders: Readers of row groups, one for each dataset.
        files: Open files of the datasets.
        arena: Arrays shared by the row groups; None if each row group has separate arrays.
        pool: Pool that loads the row groups.
        sizes: Bytes of each row group, so that one task loads several small ones; None means one task each.
        prefetched_bytes: Stored bytes of row groups that may be prefetched from slow storage.
        extended: For windows, function that appends to a row group the following rows that its windows need; rows are
            then in file order. None without windows.
        meter: Counters of the iteration; None counts nothing.
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        plan: RankPlan,
        loaders: Sequence[RowGroupReader],
        files: OpenFiles,
        arena: Arena | None,
        pool: Pool,
        *,
        sizes: NDArray[np.int64] | None = None,
        prefetched_bytes: int = 0,
        extended: Extended | None = None,
        meter: WaitMeter | None = None,
    ) -> None:
        self._datasets, self._inventory, self._source_of = datasets, plan.inventory, plan.source_of
        self._loaders, self._arena, self._extended = loaders, arena, extended
        self._pool, self._sizes, self._files = pool, sizes, files
        self._meter = WaitMeter() if meter is None else meter
        datasets_read = _read_datasets(datasets, plan, loaders)
        cached = [one for one in datasets_read if one.dataset.kept.cache is not None]
        self._cache_order = CacheOrder(plan, cached) if cached else None
        is_slow = prefetched_bytes > 0 and any(one.dataset.is_fetched for one in datasets_read)
        self.prefetcher = Prefetcher(datasets_read, self._files, prefetched_bytes, plan.parts) if is_slow else None
        """Prefetcher of planned row groups; None if storage is local."""
        self._reading = [dataset.reading(self._files) for dataset in self._datasets]
        # Tasks of a started row group run first, because the row group is usable only after all of them.
        self._submit = functools.partial(pool.submit, priority=-1)
        self._part_loads: PartLoads | None = None
        if plan.parts is not None:
            from petastore.readers.loaded.part_loads import PartLoads  # imported here: only huge row groups need it

            self._part_loads = PartLoads(
                plan.parts, plan.inventory, datasets[0], loaders[0], self._reading[0], pool, self._meter.log
            )

    def submit(self, span: Span, *, priority: int) -> dict[int, Future[Loaded]]:
        """Submit tasks that load the row groups of a span (consecutive batches); lower priority numbers run first.

        Returns:
            A dict from row group number to the future of its task, which is cancelled if the pool is closed. Several
            small row groups have one task.
        """
        loaded: dict[int, Future[Loaded]] = {}
        times = [0.0] * len(span.fetch) if self._cache_order is None else self._cache_order.plan(span)
        if span.fetch:
            self._meter.note_loads(span.fetch)
        asked = sorted(zip(times, span.fetch, span.read_orders, strict=True), key=lambda one: one[0])
        for run in runs([group for _, group, _ in asked], self._sizes, self._pool.workers):
            if run.stop - run.start == 1:
                time, group, read_order = one = asked[run.start]
                if self._part_loads is not None and self._part_loads.has(group):
                    in_parts: Future[Any] = self._part_loads.submit(group, read_order, priority=priority)
                    in_parts.add_done_callback(self._begin(time, group))
                    loaded[group] = in_parts
                    continue
                loaded[group] = self._pool.submit(functools.partial(self._load_one, one), priority=priority)
                continue
            several = self._pool.submit(functools.partial(self._load_several, asked[run]), priority=priority)
            loaded.update(dict.fromkeys((group for _, group, _ in asked[run]), several))
        return loaded

    def _begin(self, time: float, group: int) -> Callable[[object], None]:
        """Record that the load of a row group starts; return a callback that records its end.

        Args:
            time: Time at which the row group is needed, as a number of rows of all datasets since epoch 0.
            group: Number of the row group.

        Returns:
            Callback for the future of the row group; it ignores its argument.
        """
        cache_order, prefetcher = self._cache_order, self.prefetcher
        was_requested = prefetcher is not None and prefetcher.begin(group)
        if cache_order is not None:
            cache_order.begin(time)

        def end(_: object) -> None:
            if cache_order is not None:
                cache_order.end(time)
            if prefetcher is not None:
                prefetcher.end(group, was_requested=was_requested)

        return end

    def _load_one(self, asked: _Asked) -> Future[LoadedRowGroup]:
        """Load a row group in the calling worker; return its future, which is pending while other workers help."""
        time, group, read_order = asked
        end = self._begin(time, group)
        loaded = self._load(group, read_order)
        loaded.add_done_callback(end)
        return loaded

    def _load(self, group: int, read_order: NDArray[np.int64] | None) -> Future[LoadedRowGroup]:
        """Load a row group in the calling worker, with the help of other workers if it is large; return its future."""
        # Inlined `Inventory.place_of`: `tests/test_crossed_files.py` limits the source files whose code runs for each
        # batch, and the call would add `inventory.py`.
        inventory = self._inventory
        place = inventory.files[inventory.file[group]], int(inventory.ordinal[group])
        source, rows = self._source_of(group), int(inventory.rows[group])
        read: Read = functools.partial(self._reading[source], *place)
        if self._extended is not None:
            rows, read = self._extended(group, rows, read)
            read_order = None
        loader = self._loaders[source]
        tasks, finish = loader.loading(rows, read_order, read, self._arena, most=self._pool.workers)
        run = functools.partial(placed, place=place, log=self._meter.log, group=group)
        return together([functools.partial(run, task) for task in tasks], functools.partial(run, finish), self._submit)

    def _load_several(self, asked: Sequence[_Asked]) -> Loaded | Future[Loaded]:
        """Load several small row groups: together if possible, otherwise one by one."""
        groups = [group for _, group, _ in asked]
        ends = [self._begin(time, group) for time, group, _ in asked]
        made = self._load_together(groups)
        if made is not None:
            for end in ends:
                end(made)
            return dict.fromkeys(groups, made)
        futures: list[Future[LoadedRowGroup]] = [Future() for _ in asked]
        for future, end, (_, group, read_order) in zip(futures, ends, asked, strict=True):
            future.add_done_callback(end)
            if self._pool.closed:
                future.cancel()
            else:
                settle(future, functools.partial(self._load, group, read_order))
        return after(futures, lambda: {group: one.result() for group, one in zip(groups, futures, strict=True)})

    def _load_together(self, groups: Sequence[int]) -> LoadedRowGroup | None:
        """Load several small row groups as one, with rows in file order; return None if that is impossible."""
        sources = set(map(self._source_of, groups))
        if self._extended is not None or len(sources) > 1 or self._pool.closed:
            return None
        # Larger row groups are loaded separately, into an arena (shared arrays) in the order in which they are read:
        # batches then copy contiguous rows, which is faster.
        if self._arena is not None and self._sizes is not None and self._sizes[groups].max() > _TINY_BYTES:
            return None
        (source,) = sources
        rows = self._inventory.rows[groups].tolist()
        places = [self._inventory.place_of(group) for group in groups]
        read = functools.partial(self._datasets[source].read_together, places, files=self._files)
        try:
            with at_work(self._meter.log, "decoding", tuple(groups)):
                loaded = self._loaders[source].load(sum(rows), None, read)
        except Exception:  # noqa: BLE001 - then each row group is loaded separately, which raises a permanent error again
            return None
        firsts = itertools.accumulate(rows[:-1], initial=0)
        return dataclasses.replace(loaded, members=dict(zip(groups, firsts, strict=True)))

    def close(self) -> None:
        """Close files when they are no longer read, and delete the published reading order from caches."""
        self._files.close()
        self.take_back()

    def take_back(self) -> None:
        """Delete from the disk caches the published order in which row groups will be read.

        Does not close files: after a fork, threads of the parent process may still use them.
        """
        if self._cache_order is not None:
            self._cache_order.close()


def _read_datasets(datasets: Sequence[Dataset], plan: RankPlan, loaders: Sequence[RowGroupReader]) -> list[ReadDataset]:
    """Return the datasets, with the columns that are read from each, and whether they fit in the cache."""
    stored = sum(int(dataset.inventory.stored_bytes.sum()) for dataset in datasets)
    return [
        ReadDataset(
            dataset,
            first,
            tuple(loader.fields),
            fits_cache=dataset.kept.cache is not None and dataset.kept.cache.room >= _MOST_CACHED * stored,
        )
        for dataset, first, loader in zip(datasets, plan.first_groups[:-1].tolist(), loaders, strict=True)
    ]


def runs(groups: Sequence[int], sizes: NDArray[np.int64] | None, workers: int) -> list[slice]:
    """Divide row groups among tasks; return the slice of `groups` that each task loads.

    One task loads several small row groups, because starting a task takes longer than reading a small row group.

    Args:
        groups: Numbers of the row groups.
        sizes: Bytes of each row group of the dataset; None means one task for each.
        workers: Number of workers.

    Example:
        >>> [(run.start, run.stop) for run in runs(range(20), np.full(20, 100), 2)]
        [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14), (14, 16), (16, 18), (18, 20)]
        >>> len(runs(range(20), np.full(20, 10**6), 2)), len(runs(range(3), np.full(3, 100), 2))
        (20, 3)
    """
    most = max(len(groups) // (_TASKS_A_WORKER * max(workers, 1)), 1)
    if most == 1 or sizes is None:
        return [slice(number, number + 1) for number in range(len(groups))]
    slices: list[slice] = []
    first = held = 0
    for number, size in enumerate(sizes[np.asarray(groups)].tolist()):
        if number > first and (number - first == most or held + size > _MOST_BYTES):
            slices.append(slice(first, number))
            first, held = number, 0
        held += size
    return [*slices, slice(first, len(groups))]
