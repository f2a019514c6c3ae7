"""Huge row groups: divide them into parts within the memory budget, and load one part at a time.

Reading huge row groups in file order thus stays within the budget. A *stream* decodes some of the columns, part after
part, and has a few pages and the rows of one part in memory. The streams of a row group run in parallel, and each reads
the row group once from the start: rows before the first needed part are decoded and dropped. If an earlier part is
needed again, such as for `last_batch="wrap"`, the streams start again.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.dataset.dataset import ReadInParts
from petastore.errors import LargeRowGroupWarning, ReaderClosedError
from petastore.inventory import Inventory
from petastore.monitoring.activity import Segments
from petastore.plan.plan import Plan
from petastore.plan.row_group_parts import RowGroupParts, rows_of_part
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.row_group_reader import LoadedRowGroup, RowGroupReader, at_least, placed, wrong_row_count
from petastore.storage.row_groups.asked_columns import Part
from petastore.work import Pool
from petastore.work.futures import after, together

__all__ = [
    "STREAMED_COLUMN_BYTES",
    "PartLoads",
    "page_bytes_of",
    "parts_of",
    "request_bytes",
    "warn_of_huge_row_groups",
]

_STREAMS_A_WORKER = 2
"""Number of streams (decoders of some columns) per worker; more than one, because columns take unequal time."""

_MOST_OPEN = 2
"""Maximum number of row groups with open streams: a batch may need the rows of two row groups."""

_COPIED_PART = 4
"""Divisor of the size limit of a dictionary column: each part (row range of a huge row group) may take a quarter of it.
Several parts are in memory at the same time."""

_REQUESTS_SHARE = 4
"""Divisor of `most_bytes`: the concurrent requests for all columns of a row group take a quarter of it."""

_LEAST_REQUEST, _MOST_REQUEST = 256 * 1024, 8 * 1024 * 1024
"""Minimum and maximum bytes of a remote column chunk that one request fetches."""

_HUGE_SHARE = 4
"""Divisor of the budget: row groups that take more than a quarter of it are divided into parts."""

_PART_SHARE = 24
"""Divisor of the budget: a part (row range of a huge row group) takes a 24th of it. Two parts are decoded at a time,
and several more are in memory for the batches being assembled."""

STREAMED_COLUMN_BYTES = 2_500_000
"""Memory of a streamed column: a page of 1 MiB, as most writers make them, compressed and decoded, and a buffer."""


def parts_of(plan: Plan, footprint: Footprint, limit: int) -> RowGroupParts | None:
    """Divide row groups larger than a quarter of the budget into parts; return None if no row group is divided.

    If rows are shuffled or interleaved, row groups are not divided.

    Args:
        plan: Plan of the rows.
        footprint: Memory of its row groups.
        limit: Value of `memory_budget`.
    """
    is_huge = _are_huge(plan, footprint, limit)
    if plan.parts is not None or not is_huge.any() or not plan.reads_in_file_order:
        return None
    sizes, rows = footprint.group_bytes, plan.inventory.rows
    # Decoding in parts keeps pages of all columns in memory. With many columns, these pages may take as much memory as
    # the whole row group.
    is_huge &= sizes > 2 * len(footprint.view.fields) * STREAMED_COLUMN_BYTES
    of_parts = np.where(is_huge, rows_of_part(sizes, rows, limit // _PART_SHARE), np.maximum(rows, 1))
    return RowGroupParts.of(rows, of_parts) if (of_parts < rows).any() else None


def page_bytes_of(dataset: Dataset, plan: Plan, footprint: Footprint, limit: int) -> int:
    """Return the bytes of pages that are in memory while the largest row group is decoded; 0 for remote files."""
    if not dataset.location.is_local:
        return 0
    from petastore.storage.row_groups.page_headers import page_bytes  # imported here: only huge row groups need it

    is_huge = _are_huge(plan, footprint, limit)
    file, ordinal = plan.inventory.place_of(int(np.where(is_huge, footprint.group_bytes, 0).argmax()))
    return page_bytes(dataset.location, dataset.footers.get(dataset.location, file), ordinal, footprint.view.fields)


def _are_huge(plan: Plan, footprint: Footprint, limit: int) -> NDArray[np.bool_]:
    """Return a mask of the row groups that are read and take more than a quarter of the budget, shape (groups,)."""
    return (footprint.group_bytes > limit // _HUGE_SHARE) & (plan.rows > 0)


def warn_of_huge_row_groups(plan: Plan, footprint: Footprint, limit: int) -> None:
    """Issue a warning if a row group takes more than a quarter of the budget and cannot be divided.

    Args:
        plan: Plan of the rows, which are loaded by whole row groups.
        footprint: Memory of its row groups.
        limit: Value of `memory_budget`.
    """
    is_huge = _are_huge(plan, footprint, limit)
    if not is_huge.any() or plan.reads_in_file_order:
        return
    group = int(np.where(is_huge, footprint.group_bytes, 0).argmax())
    size = int(footprint.group_bytes[group])
    file, ordinal = plan.inventory.place_of(group)
    smaller = max(limit // _HUGE_SHARE // 2**20 // 2, 1)
    warnings.warn(
        f"row group {ordinal} of {file.path} takes {size:,} bytes of memory_budget={limit:,}, and is loaded whole "
        "because its rows are shuffled or interleaved. Read in file order (shuffle_rows=False, interleave=None), which "
        f"loads it in parts; write smaller row groups (petastore copy --row-group-size-mb {smaller}); or raise "
        "memory_budget",
        LargeRowGroupWarning,
        stacklevel=2,
    )


class PartLoads:
    """Loads the parts (row ranges) of huge row groups. Only one thread at a time may call `submit`, in plan order.

    Args:
        parts: Division of the row groups.
        inventory: Inventory with an entry for each part.
        dataset: The dataset of the row groups.
        loader: Reader that converts tables to row groups in memory.
        read: Function that reads a row group of the dataset, from `Dataset.reading`.
        pool: Pool that decodes the parts.
        log: Log of the time that decoding takes.
    """

    def __init__(
        self,
        parts: RowGroupParts,
        inventory: Inventory,
        dataset: Dataset,
        loader: RowGroupReader,
        read: ReadInParts,
        pool: Pool,
        log: Segments,
    ) -> None:
        self._log = log
        self._parts, self._inventory, self._dataset = parts, inventory, dataset
        self._loader, self._read, self._pool = loader, read, pool
        self._streams: dict[int, _Streams] = {}
        self._submit_now = functools.partial(pool.submit, priority=-1)

    def has(self, part: int) -> bool:
        """Return whether the row group of a part (row range) has several parts."""
        return bool(self._parts.is_divided[part])

    def submit(self, part: int, read_order: NDArray[np.int64] | None, *, priority: int) -> Future[LoadedRowGroup]:
        """Submit the load of a part, and return its future; lower priority numbers run first.

        Args:
            part: Number of the part.
            read_order: Selected rows of the part; None means all.
            priority: Priority of its tasks.
        """
        streams = self._streams_for(part)
        tables: list[pa.Table] = []
        submit = functools.partial(self._pool.submit, priority=priority)
        decode = functools.partial(self._decode, streams, part, tables)
        # Parts of a stream are decoded in order, because a stream only reads forward.
        streams.decoded = decoded = after([streams.decoded], functools.partial(submit, decode))
        load = functools.partial(self._load, part, read_order, tables)
        return after([decoded], functools.partial(self._submit_now, load))

    def _streams_for(self, part: int) -> _Streams:
        """Return the streams (decoders) of a part's row group; new streams if the existing ones are past the part."""
        group = int(self._parts.groups[part])
        first, stop = self._parts.starts[group : group + 2].tolist()
        streams = self._streams.pop(group, None)
        if streams is None or part < streams.next:
            streams = _Streams(first)
        streams.next = part + 1
        if streams.next < stop:
            self._streams[group] = streams
            if len(self._streams) > _MOST_OPEN:
                del self._streams[next(iter(self._streams))]
        return streams

    def _begun(self, part: int) -> list[Iterator[pa.Table]]:
        """Return new streams of a part's row group: iterators of tables that start at the row group's first row."""
        group, names = int(self._parts.groups[part]), tuple(self._loader.fields)
        first, stop = self._parts.starts[group : group + 2].tolist()
        file, ordinal = self._inventory.place_of(part)
        count = min(_STREAMS_A_WORKER * self._pool.workers, len(names)) if self._pool.workers > 1 else 1
        sets = [names]
        if count > 1:
            footer = self._dataset.footers.get(self._dataset.location, file)
            sizes = {
                name: sum(footer.chunk(ordinal, leaf).decoded_bytes for leaf in footer.leaves.get(name, ()))
                for name in names
            }
            sets = _divided(sizes, count)
        rows, most_bytes = self._parts.rows[first:stop], self._loader.most_bytes // _COPIED_PART * (stop - first)
        requested = request_bytes(self._loader.most_bytes, len(names))
        parts = [Part(each, int(rows[0]), most_bytes=most_bytes, request_bytes=requested) for each in sets]
        return [_tables(self._read(file, ordinal, [each]), rows) for each in parts]

    def _decode(self, streams: _Streams, part: int, tables: list[pa.Table]) -> Future[None]:
        """Decode a part (row range) with all streams of its row group; drop earlier parts that were not needed.

        Args:
            streams: Streams of the row group, which decode different columns in parallel.
            part: Number of the part.
            tables: List to which each stream appends its table.

        Returns:
            Future that completes when all streams have decoded the part.
        """
        if streams.running is None:
            streams.running = self._placed(part, lambda: self._begun(part))
        skipped, streams.at = part - streams.at, part + 1

        def advance(stream: Iterator[pa.Table]) -> None:
            for _ in range(skipped):
                if self._pool.closed:
                    raise ReaderClosedError("the reader was closed. Open another one")
                next(stream)
            tables.append(next(stream))

        tasks = [functools.partial(self._placed, part, functools.partial(advance, each)) for each in streams.running]
        return together(tasks, _nothing, self._submit_now)

    def _load(self, part: int, read_order: NDArray[np.int64] | None, tables: list[pa.Table]) -> LoadedRowGroup:
        rows = int(self._parts.rows[part])
        of_all = functools.reduce(_beside, tables)
        tables.clear()
        return self._placed(
            part, functools.partial(self._loader.load, rows, read_order, functools.partial(_selected, of_all))
        )

    def _placed(self, part: int, task: Callable[[], Any]) -> Any:
        return placed(task, place=self._inventory.place_of(part), log=self._log, group=part)


class _Streams:
    """Streams of one row group: decoders of its columns, which decode one part of the row group at a time.

    Args:
        first: Number of the first part of the row group.
    """

    def __init__(self, first: int) -> None:
        self.running: list[Iterator[pa.Table]] | None = None
        """Iterators of the tables of each stream, one table for each part; None before the first part is decoded."""
        self.at = self.next = first
        """Number of the next part to decode (`at`), and of the next part to submit (`next`)."""
        self.decoded: Future[Any] = Future()
        """Future that is done when the last submitted part is decoded."""
        self.decoded.set_result(None)


def request_bytes(most_bytes: int, columns: int) -> int:
    """Return the number of bytes of a remote column chunk to fetch in one request.

    Args:
        most_bytes: A quarter of the memory budget.
        columns: Number of columns, which are fetched at the same time.
    """
    return min(max(most_bytes // _REQUESTS_SHARE // max(columns, 1), _LEAST_REQUEST), _MOST_REQUEST)


def _nothing() -> None:
    return None


def _beside(table: pa.Table, more: pa.Table) -> pa.Table:
    """Return a table with the columns of both tables."""
    return pa.Table.from_arrays([*table.columns, *more.columns], names=[*table.column_names, *more.column_names])


def _selected(table: pa.Table, parts: Sequence[Part]) -> Iterator[pa.Table]:
    return (table.select(list(part.columns)) for part in parts)


def _divided(sizes: Mapping[str, int], most: int) -> list[tuple[str, ...]]:
    """Divide columns into `most` sets with about equal numbers of bytes.

    Example:
        >>> _divided({"a": 10, "b": 10, "c": 15}, 2)
        [('c',), ('a', 'b')]
    """
    sets: list[list[str]] = [[] for _ in range(most)]
    totals = [0] * most
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        smallest = totals.index(min(totals))
        sets[smallest].append(name)
        totals[smallest] += sizes[name] + 1
    return list(map(tuple, sets))


def _tables(read_tables: Iterator[pa.Table], rows: NDArray[np.int64]) -> Iterator[pa.Table]:
    """Yield one table for each part, with the part's number of rows, from tables with any number of rows.

    Raises:
        DecodeError: The row group has fewer or more rows.
    """
    tables, left = at_least(read_tables, int(rows.sum())), None
    for number, count in enumerate(rows.tolist()):
        table, left = next(tables) if left is None else left, None
        while table.num_rows < count:  # Arrow returns several tables if 32-bit offsets cannot hold all bytes
            table = pa.concat_tables([table, next(tables)])
        if table.num_rows > count:  # small files are decoded whole
            table, left = table.slice(0, count), table.slice(count)
        # Request a table after the last one, so that the reader counts and checks all rows.
        if number == len(rows) - 1 and (left is not None or next(read_tables, None) is not None):
            raise wrong_row_count(int(rows.sum()), "more")
        yield table
        del table
