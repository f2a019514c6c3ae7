"""Loading: how the row groups of a pass are read, by one worker or by several, or several small ones together."""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.errors import DecodeError
from petastore.inventory import DataFile, Inventory
from petastore.plan.cursor import Cursor
from petastore.readers.loaded.arena import Arena
from petastore.readers.loaded.fetch_ahead import MOST_BYTES_AHEAD, FetchAhead
from petastore.readers.loaded.foresight import Follower, Foresight, Ordered, ReadSource
from petastore.readers.loaded.loader import Read, RowGroupLoader
from petastore.readers.loaded.memory import Memory
from petastore.readers.loaded.row_group import LoadedRowGroup
from petastore.schema.unischema import Unischema
from petastore.storage.row_groups.fetched_ahead import KeptIn
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.verified import Verified
from petastore.work import Pool
from petastore.work.futures import settle, together

if TYPE_CHECKING:
    from petastore.cache import DiskCache

__all__ = ["Asked", "Loading", "Loads", "Readable", "runs"]

Asked: TypeAlias = tuple[int, NDArray[np.int64] | None]
"""A row group, by its number, and its rows in the order in which they will be wanted; None is that of the file."""

_MOST_BYTES = 512 * 1024
"""Bytes of the row groups that one task reads, if they are several."""

_TASKS_A_WORKER = 4
"""Into so many tasks for each worker the row groups of a span are divided at least."""


_MOST_TIMES = 2
"""So many times the bytes that are stored may be those that a cache keeps, as some are kept decoded."""


class Readable(Protocol):
    """What a reader needs of a dataset: a `Dataset`, or several behind one."""

    @property
    def url(self) -> str:
        """Where it lies, for people."""

    @property
    def schema(self) -> Unischema:
        """What a row is."""

    @property
    def inventory(self) -> Inventory:
        """What exists; row groups are numbered as the plan numbers them."""

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """What its row groups are of, in their order."""

    def partition_values(self, columns: Sequence[str]) -> Mapping[str, Any]:
        """Of each partition column among some columns: its cell for each row group, as one `pyarrow.Array`."""


class Planned(Ordered, Protocol):
    """What a pass runs: a plan or a mixture."""

    @property
    def inventory(self) -> Inventory:
        """What it is of."""


@dataclasses.dataclass(frozen=True, eq=False)
class Loading:
    """How row groups are loaded."""

    loaders: tuple[RowGroupLoader, ...]
    """What takes in row groups, one for each dataset."""

    first_groups: tuple[int, ...]
    """The number of the first row group of each dataset."""

    memory: Memory
    """Where they are kept."""

    files_of_pass: Callable[[], OpenFiles]
    """Makes what keeps files open during a pass."""

    extended: Callable[[int, int, Read], tuple[int, Read]] | None = None
    """Of a row group, its rows, and what reads it: the same with the rows of others that are loaded behind it. Rows lie
    as in the files then. None where row groups are loaded as they are."""

    ahead_bytes: int = MOST_BYTES_AHEAD
    """So many are fetched from storage before workers come to them; they take memory beside that of `memory`."""

    @classmethod
    def of(
        cls,
        loaders: Sequence[RowGroupLoader],
        memory: Memory,
        *,
        first_groups: Sequence[int] = (0,),
        most_idle: int | None = None,
        ahead_bytes: int = MOST_BYTES_AHEAD,
    ) -> Loading:
        """Loading that remembers from pass to pass which files were found right.

        Args:
            loaders: What takes in row groups, one for each dataset.
            memory: Where they are kept.
            first_groups: The number of the first row group of each dataset.
            most_idle: Files that stay open while nobody reads them; None is as many as usual.
            ahead_bytes: How much is fetched from storage before workers come to it.
        """
        idle = {} if most_idle is None else {"most_idle": most_idle}
        files_of_pass = functools.partial(OpenFiles, verified=Verified(), **idle)
        return cls(tuple(loaders), tuple(first_groups), memory, files_of_pass, ahead_bytes=ahead_bytes)

    def foresight(self, source: Readable, plan: Ordered, begin: Cursor, files: OpenFiles) -> Foresight | None:
        """What tells a pass from a cursor on; None where nobody wants to know.

        Args:
            source: Where row groups are.
            plan: In which order they are loaded.
            begin: Where the pass begins.
            files: What they are read through.
        """
        followers: list[Follower] = []
        stored = sum(int(dataset.inventory.stored_bytes.sum()) for dataset in source.datasets)
        for dataset, first, loader in zip(source.datasets, self.first_groups, self.loaders, strict=True):
            cache = dataset.kept.cache
            if cache is not None:
                followers.append(ReadSource(dataset, first, tuple(loader.fields)))
            if self.ahead_bytes and dataset.is_fetched:
                asked, kept_in = (dataset, first, tuple(loader.fields), files), _kept_in(cache, stored)
                followers.append(FetchAhead(*asked, most_bytes=self.ahead_bytes, kept_in=kept_in))
        return Foresight(plan, followers, begin) if followers else None

    def source_of(self, group: int) -> int:
        """Which of the datasets a row group is of, given its number."""
        return bisect.bisect_right(self.first_groups, group) - 1


def _kept_in(cache: DiskCache | None, stored: int) -> KeptIn:
    """Where what is fetched ahead is kept, given how many bytes are stored of all that is read.

    It is asked for sooner than it is used: of a cache that has room for all, nothing goes.
    """
    if cache is None:
        return KeptIn.MEMORY
    return KeptIn.CACHE if cache.room >= _MOST_TIMES * stored else KeptIn.CACHE_WHEN_READ


class Loads:
    """Loads the row groups of one pass. Thread-safe.

    Tasks hold this and not the reader: a worker must never be the last one to hold it, and so end it.

    Args:
        source: Where row groups are.
        plan: What is loaded; its inventory gives row groups the numbers that they are asked for by.
        begin: Where the pass begins.
        loading: How they are loaded.
        arena: Where they stand together; None where they are arrays of their own.
        pool: Whose workers load them.
        sizes: Of each row group: its bytes. One task loads several small ones; None is none but one.
    """

    def __init__(
        self,
        source: Readable,
        plan: Planned,
        begin: Cursor,
        loading: Loading,
        arena: Arena | None,
        pool: Pool,
        sizes: NDArray[np.int64] | None,
    ) -> None:
        self._datasets, self._inventory, self._loading, self._arena = source.datasets, plan.inventory, loading, arena
        self._pool, self._sizes = pool, sizes
        self._files = loading.files_of_pass()
        self._foresight = loading.foresight(source, plan, begin, self._files)
        self._reading = [dataset.reading(self._files) for dataset in self._datasets]
        # Before what waits: somebody is waiting for the rest of a row group that was begun.
        self._submit = functools.partial(pool.submit, priority=-1)

    def submit(self, asked: Sequence[Asked], *, priority: int) -> dict[int, Future[LoadedRowGroup]]:
        """Has the pool load row groups, tasks of lower priority number first.

        Returns:
            Of each row group, by its number: a future of it; cancelled when the pool is closed before.
        """
        loaded: dict[int, Future[LoadedRowGroup]] = {}
        workers = self._pool.workers
        if self._foresight is not None:
            asked = [asked[number] for number in self._foresight.plans([group for group, _ in asked])]
        for run in runs([group for group, _ in asked], self._sizes, workers):
            if run.stop - run.start == 1:
                group, read_order = asked[run.start]
                loaded[group] = self._pool.submit(functools.partial(self.load, group, read_order), priority=priority)
                continue
            futures: list[Future[LoadedRowGroup]] = [Future() for _ in asked[run]]
            several = self._pool.submit(functools.partial(self._load_several, asked[run], futures), priority=priority)
            several.add_done_callback(functools.partial(_cancel_with, futures))
            loaded.update(zip((group for group, _ in asked[run]), futures, strict=True))
        return loaded

    def load(self, group: int, read_order: NDArray[np.int64] | None) -> Future[LoadedRowGroup]:
        """A row group; a future, for other workers may still be at it."""
        ended = None if self._foresight is None else self._foresight.begins(group)
        loaded = self._load(group, read_order)
        if ended is not None:
            loaded.add_done_callback(ended)
        return loaded

    def _load(self, group: int, read_order: NDArray[np.int64] | None) -> Future[LoadedRowGroup]:
        file, ordinal = self._inventory.place_of(group)
        source, rows = self._loading.source_of(group), int(self._inventory.rows[group])
        read: Read = functools.partial(self._reading[source], file, ordinal)
        if self._loading.extended is not None:
            rows, read = self._loading.extended(group, rows, read)
            read_order = None
        loader = self._loading.loaders[source]
        tasks, finish = loader.loading(rows, read_order, read, self._arena, most=self._pool.workers)
        return together([functools.partial(_placed, task, file, ordinal) for task in tasks], finish, self._submit)

    def _load_several(self, asked: Sequence[Asked], futures: Sequence[Future[LoadedRowGroup]]) -> None:
        """Several small row groups: together, if they can be, and else one by one."""
        for (group, _), future in zip(asked, futures, strict=True):
            ended = None if self._foresight is None else self._foresight.begins(group)
            if ended is not None:
                future.add_done_callback(ended)
        made = self._load_together(asked)
        for place, (group, read_order) in enumerate(asked):
            if made is not None:
                futures[place].set_result(made[place])
            elif self._pool.closed:
                futures[place].cancel()
            else:
                settle(futures[place], functools.partial(self._load, group, read_order))

    def _load_together(self, asked: Sequence[Asked]) -> list[LoadedRowGroup] | None:
        sources = {self._loading.source_of(group) for group, _ in asked}
        is_plain = self._arena is None and self._loading.extended is None and len(sources) == 1
        if not is_plain or self._pool.closed or any(read_order is not None for _, read_order in asked):
            return None
        (source,) = sources
        groups = [group for group, _ in asked]
        places = [self._inventory.place_of(group) for group in groups]
        read = functools.partial(self._datasets[source].read_together, places, files=self._files)
        try:
            return self._loading.loaders[source].load_together(self._inventory.rows[groups].tolist(), read)
        except Exception:  # noqa: BLE001 - it is raised again by the one that it belongs to, if it stays
            return None

    def close(self) -> None:
        """Closes files, as soon as nobody reads them, and takes back what caches were told."""
        self._files.close()
        self.take_back()

    def take_back(self) -> None:
        """Takes back what caches were told. Touches no file: in a forked child a thread of the parent may hold it."""
        if self._foresight is not None:
            self._foresight.close()


def runs(groups: Sequence[int], sizes: NDArray[np.int64] | None, workers: int) -> list[slice]:
    """How some row groups are divided among tasks: which of them each one reads.

    To hand a small one to a worker would take longer than to read it.

    Args:
        groups: Numbers of the row groups.
        sizes: Of each row group of the dataset: its bytes. None is one task for each.
        workers: How many there are.

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


def _cancel_with(futures: Sequence[Future[LoadedRowGroup]], task: Future[None]) -> None:
    """Cancels what a task was to make, where it was cancelled itself."""
    if task.cancelled():
        for future in futures:
            future.cancel()


def _placed(task: Callable[[], None], file: DataFile, ordinal: int) -> None:
    """Runs a task that reads a row group; what it raises says of which file."""
    try:
        task()
    except DecodeError as problem:
        raise problem.at(file=file.path, row_group=ordinal) from problem.__cause__
