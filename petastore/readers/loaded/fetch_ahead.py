"""Fetching ahead: what a pass loads next is fetched from storage while workers decode what is there.

Not through a cache: it decides what to keep by when each entry is used next, and has to be asked in the order of use.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.forks import Lock
from petastore.inventory import DataFile
from petastore.plan.batches.load_order import LoadOrder
from petastore.storage.row_groups.fetched_ahead import place_of
from petastore.storage.row_groups.open_files import OpenFiles

__all__ = ["MOST_BYTES_AHEAD", "FetchAhead"]

MOST_BYTES_AHEAD = 256 * 1024 * 1024
"""What is fetched before somebody reads it, as it is stored; and the one row group with which it becomes more."""

_MOST_AHEAD = 256
"""Row groups, however small they are."""


class FetchAhead:
    """Has row groups of one dataset fetched, in the order in which a pass loads them. Thread-safe.

    Args:
        dataset: Where they are.
        first_group: The number of the first of them.
        columns: Columns that are read from its files.
        files: Keep what is fetched.
        most_bytes: So many bytes of row groups are fetched or under way before they are loaded.
    """

    def __init__(
        self,
        dataset: Dataset,
        first_group: int,
        columns: Sequence[str],
        files: OpenFiles,
        *,
        most_bytes: int,
    ) -> None:
        self._dataset, self._first, self._columns, self._files = dataset, first_group, tuple(columns), files
        self._bytes = dataset.inventory.stored_bytes
        self._most_bytes = most_bytes
        self._wanted: collections.Counter[int] = collections.Counter()  # row groups, by as many orders as are followed
        self._lock = Lock()

    def announced(self, order: LoadOrder) -> _Followed:
        """Follows an order, in which row groups of other datasets have their places."""
        groups = order.groups[: order.sure] - self._first
        is_own = (groups >= 0) & (groups < len(self._bytes))
        return _Followed(self, np.where(is_own, groups, -1).tolist())

    def follow(self, followed: _Followed, position: int, begun: int) -> None:
        """Fetches what comes next in an order, and drops what is over."""
        with self._lock:
            for group in followed.dropped(position):
                self._drop(group)
            for group in followed.taken(begun, self._bytes, self._most_bytes):
                self._wanted[group] += 1
                if self._wanted[group] == 1:
                    self._dataset.fetch_ahead(*self._place_of(group), self._columns, self._files)

    def leave(self, followed: _Followed) -> None:
        """Follows an order no longer."""
        with self._lock:
            for group in followed.dropped(len(followed.groups)):
                self._drop(group)

    def _drop(self, group: int) -> None:
        self._wanted[group] -= 1
        if not self._wanted[group]:
            del self._wanted[group]
            self._files.ahead.drop(place_of(self._dataset.location, *self._place_of(group)))

    def _place_of(self, group: int) -> tuple[DataFile, int]:
        inventory = self._dataset.inventory
        return inventory.files[inventory.file[group]], int(inventory.ordinal[group])


class _Followed:
    """An order, and which part of it is fetched: from the oldest load that is not over to as far as bytes allow."""

    def __init__(self, ahead: FetchAhead, groups: Sequence[int]) -> None:
        self._ahead = ahead
        self.groups = groups
        """Row groups by their places in the order; -1 for one of another dataset."""
        self._held: collections.deque[tuple[int, int, int]] = collections.deque()  # places, row groups, and their bytes
        self._held_bytes = 0
        self._next = 0  # the first place that was not looked at

    def dropped(self, position: int) -> Iterator[int]:
        """Row groups that were taken, of loads before a place: they are over."""
        while self._held and self._held[0][0] < position:
            _, group, size = self._held.popleft()
            self._held_bytes -= size
            yield group

    def taken(self, begun: int, sizes: NDArray[np.int64], most_bytes: int) -> Iterator[int]:
        """Row groups that are to be fetched now, none of those before a place: their loads have begun."""
        self._next = max(self._next, begun)
        while self._next < len(self.groups) and self._held_bytes < most_bytes and len(self._held) < _MOST_AHEAD:
            place, group = self._next, self.groups[self._next]
            self._next += 1
            if group >= 0:
                size = int(sizes[group])
                self._held.append((place, group, size))
                self._held_bytes += size
                yield group

    def move_to(self, position: int, begun: int) -> None:
        """Says how far the loads have come.

        Args:
            position: All loads at places before this are over.
            begun: Loads at places before this have begun.
        """
        if self._held or self._next < len(self.groups):
            self._ahead.follow(self, position, begun)

    def close(self) -> None:
        """Is followed no longer."""
        self._ahead.leave(self)
