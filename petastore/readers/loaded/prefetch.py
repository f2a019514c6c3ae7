"""Prefetch row groups from slow storage, and tell disk caches the order in which row groups will be read."""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.errors import PetastoreError
from petastore.forks import Lock
from petastore.plan.batches.spans import Span
from petastore.plan.rank_plan import RankPlan
from petastore.storage.row_groups.fetched_ahead import place_of
from petastore.storage.row_groups.open_files import OpenFiles

if TYPE_CHECKING:
    from petastore.cache import Announcement
    from petastore.plan.row_group_parts import RowGroupParts

__all__ = ["MOST_PREFETCHED_BYTES", "CacheOrder", "Prefetcher", "ReadDataset"]


class ReadDataset(NamedTuple):
    """Dataset, and the columns that one iteration reads from it."""

    dataset: Dataset
    """Dataset of the row groups."""

    first_group: int
    """Number of the dataset's first row group, among the row groups of all datasets."""

    columns: tuple[str, ...]
    """Names of columns that are read from the dataset's files."""

    fits_cache: bool = False
    """Whether the cache can hold all data that is read, so that the order does not matter for eviction."""

    def own(self, groups: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the numbers of given row groups in this dataset; -1 for row groups of other datasets."""
        own = groups.astype(np.int64) - self.first_group
        return np.where((own >= 0) & (own < self.dataset.inventory.num_row_groups), own, -1)


class CacheOrder:
    """Publishes to disk caches in which order row groups will be used, and how far the reader has come.

    Only one thread at a time may call `plan`, in the order of the plan. Any thread may call the other methods.

    Args:
        plan: Plan from which the next uses (loads) of row groups are computed.
        datasets: Datasets with a cache.
    """

    def __init__(self, plan: RankPlan, datasets: Sequence[ReadDataset]) -> None:
        self._plan = plan
        self._datasets = datasets
        self._parts = plan.parts
        self._lock = Lock()
        self._groups = np.empty(0, np.int32)
        self._times = np.empty(0)
        self._until = 0.0
        self._begun = -1.0
        self._open: list[float] = []  # times of planned loads that have not ended, ascending
        self._announcements: list[Announcement] = []
        self._is_closed = False

    def plan(self, span: Span) -> list[float]:
        """Record that the row groups of a span (consecutive batches) will be loaded next.

        Returns:
            Time at which each row group in `span.fetch` is needed, as a number of rows of all datasets since epoch 0.
        """
        before, _ = span.times
        if before >= self._until:
            self._announce(before)
        first, stop = np.searchsorted(self._times, span.times).tolist()
        # The uses are reversed, so that the first use counts if a span uses a row group several times.
        uses = zip(self._groups[first:stop][::-1].tolist(), self._times[first:stop][::-1].tolist(), strict=True)
        known = dict(uses)
        times = [known.get(group, before) for group in span.fetch]
        with self._lock:
            for time in times:
                bisect.insort(self._open, time)
        return times

    def _announce(self, now: float) -> None:
        """Publish to the caches in which order row groups will be used, from the earliest load in progress on.

        Args:
            now: Current time, as a number of rows of all datasets since epoch 0.
        """
        with self._lock:
            begin = self._open[0] if self._open else now
        uses = self._plan.next_uses(begin, now)
        groups = uses.groups if self._parts is None else self._parts.groups[uses.groups]
        announced = [
            one.dataset.kept.announce(one.dataset.location, one.dataset.inventory, one.columns, one.own(groups))
            for one in self._datasets
        ]
        # Only the uses in the current period (an epoch) are stored: with a million row groups, the uses in the next
        # period would double the memory.
        period = slice(int(np.searchsorted(uses.times, uses.until)))
        with self._lock:
            self._groups, self._times, self._until = uses.groups[period].copy(), uses.times[period].copy(), uses.until
            new = [one for one in announced if one is not None]
            old, self._announcements = (new, []) if self._is_closed else (self._announcements, new)
        self._report()
        for announcement in old:
            announcement.close()

    def begin(self, time: float) -> None:
        """Record that the load of a planned row group starts.

        Args:
            time: Time at which the row group is needed, as `plan` returned it.
        """
        with self._lock:
            self._begun = max(self._begun, time)
        self._report()

    def end(self, time: float) -> None:
        """Record that the load of a planned row group has ended.

        Args:
            time: Time at which the row group is needed, as `plan` returned it.
        """
        with self._lock:
            del self._open[bisect.bisect_left(self._open, time)]
        self._report()

    def _report(self) -> None:
        """Report to the caches how many uses in the published order have ended, and how many have begun."""
        with self._lock:
            begun = int(self._times.searchsorted(self._begun, side="right"))
            over = int(self._times.searchsorted(self._open[0])) if self._open else begun
            announcements = self._announcements
        for announcement in announcements:
            announcement.move_to(min(over, begun), begun)

    def close(self) -> None:
        """Delete the published order from the caches. May be called again."""
        with self._lock:
            self._is_closed = True
            announcements, self._announcements = self._announcements, []
        for announcement in announcements:
            announcement.close()


MOST_PREFETCHED_BYTES = 256 * 1024 * 1024
"""Maximum stored bytes of row groups that are prefetched and not yet loaded."""

_MOST_PREFETCHED = 256
"""Maximum number of prefetched row groups."""


class Prefetcher:
    """Prefetches row groups from remote storage in the order in which they will be loaded. Thread-safe.

    If a row group is planned again before its first load has ended, both loads share one request.

    Args:
        datasets: All datasets that are read; only remote ones are prefetched.
        files: Open files, which store prefetched data until it is loaded.
        most_bytes: Maximum stored bytes of row groups that are requested or fetched, but not yet loaded.
        parts: Division of row groups into parts, if they are loaded in parts. Divided row groups are not prefetched.
    """

    def __init__(
        self, datasets: Sequence[ReadDataset], files: OpenFiles, most_bytes: int, parts: RowGroupParts | None = None
    ) -> None:
        self._datasets = datasets
        self._parts = parts
        self._first_groups = [one.first_group for one in datasets]
        self._files = files
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._planned: collections.deque[int] = collections.deque()
        self._requested: dict[int, _Request] = {}
        self._bytes = 0
        self._is_open = False

    @property
    def wants_more(self) -> bool:
        """Whether the limit allows prefetching row groups of further batches.

        Prefetching starts when the first load has ended, because this load determines the version of each file.
        """
        return self._is_open and not self._planned and self._bytes < self._most_bytes and self._has_place

    @property
    def _has_place(self) -> bool:
        return len(self._requested) < _MOST_PREFETCHED

    def plan(self, span: Span) -> None:
        """Add the row groups of the next span (consecutive batches) to the queue; request as many as limits allow."""
        with self._lock:
            self._planned.extend(
                group
                for group in span.fetch
                if self._of(group).dataset.is_fetched and (self._parts is None or not self._parts.is_divided[group])
            )
            self._request()

    def begin(self, group: int) -> bool:
        """Record the start of a load, and return whether its row group was prefetched; pass the result to `end`."""
        with self._lock:
            request = self._requested.get(group)
            if request is not None and request.begun < request.loads:
                request.begun += 1
                return True
            with contextlib.suppress(ValueError):
                self._planned.remove(group)
            return False

    def end(self, group: int, *, was_requested: bool) -> None:
        """Record the end of a load, free the prefetched data after its last load, and request further row groups.

        Args:
            group: Number of the row group.
            was_requested: Result of `begin` for this load.
        """
        with self._lock:
            self._is_open = True
            if was_requested:
                request = self._requested[group]
                request.loads, request.begun = request.loads - 1, request.begun - 1
                if not request.loads:
                    del self._requested[group]
                    self._bytes -= request.size
                    one = self._of(group)
                    place = one.dataset.inventory.place_of(self._own(one, group))
                    self._files.ahead.drop(place_of(one.dataset.location, *place))
            self._request()

    def _request(self) -> None:
        """Request planned row groups until a limit is reached. The caller holds the lock."""
        while self._is_open and self._planned:
            group = self._planned[0]
            one = self._of(group)
            request = self._requested.get(group)
            if request is None:
                size = int(one.dataset.inventory.stored_bytes[self._own(one, group)])
                if self._bytes + size > self._most_bytes or not self._has_place:
                    return
                self._bytes += size
                request = self._requested[group] = _Request(size)
                place = one.dataset.inventory.place_of(self._own(one, group))
                # If the request fails, the load of the row group raises the error; here, it would only be logged.
                with contextlib.suppress(PetastoreError):
                    one.dataset.fetch_ahead(*place, one.columns, self._files, by_cache=one.fits_cache)
            request.loads += 1
            self._planned.popleft()

    def _of(self, group: int) -> ReadDataset:
        """Return the dataset that has a row group."""
        return self._datasets[bisect.bisect_right(self._first_groups, group) - 1]

    def _own(self, one: ReadDataset, group: int) -> int:
        """Return the number of a row group in its dataset; for a part, the number of the part's row group."""
        return group - one.first_group if self._parts is None else int(self._parts.groups[group])


@dataclasses.dataclass(slots=True)
class _Request:
    """Prefetch request for a row group, in flight or completed."""

    size: int
    """Stored bytes of the row group."""

    loads: int = 0
    """Number of planned loads that share the request and have not ended."""

    begun: int = 0
    """Number of the loads counted by `loads` that have begun."""
