"""Fetching ahead: what a pass loads next is fetched from storage while workers decode what is there.

Through a cache only where it has room for all. Else it decides what to keep by when each entry is used next, and has to
be asked in the order of use: what it does not have waits in memory until it is loaded, and is given to the cache then.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.errors import PetastoreError
from petastore.forks import Lock
from petastore.plan.batches.load_order import LoadOrder
from petastore.storage.row_groups.fetched_ahead import KeptIn, place_of
from petastore.storage.row_groups.open_files import OpenFiles

__all__ = ["MOST_BYTES_AHEAD", "FetchAhead"]

MOST_BYTES_AHEAD = 256 * 1024 * 1024
"""What is fetched before somebody reads it, as it is stored; and the one row group with which it becomes more."""

_MOST_AHEAD = 256
"""Row groups, however small they are."""


class FetchAhead:
    """Has row groups of one dataset fetched, in the order in which a pass loads them. Thread-safe.

    Of one that is there for a load, nothing is kept for its next one, unless a cache keeps it: then once is enough.

    Args:
        dataset: Where they are.
        first_group: The number of the first of them.
        columns: Columns that are read from its files.
        files: Keep what is fetched.
        most_bytes: So many bytes of row groups are fetched or under way before they are loaded.
        kept_in: Where what is fetched is kept until it is loaded.
    """

    def __init__(
        self,
        dataset: Dataset,
        first_group: int,
        columns: Sequence[str],
        files: OpenFiles,
        *,
        most_bytes: int,
        kept_in: KeptIn = KeptIn.MEMORY,
    ) -> None:
        self._dataset, self._first, self._columns, self._files = dataset, first_group, tuple(columns), files
        self._bytes = dataset.inventory.stored_bytes
        self._most_bytes = most_bytes
        self._loads = 0  # those of all orders but the last one
        self._of_last = 0  # those of the last one before another is asked for
        self._there: dict[int, _There] = {}  # by row group
        self._kept_in = kept_in
        self._cached: set[int] = set()  # row groups that a cache has been given
        self._lock = Lock()

    def announced(self, order: LoadOrder) -> _Followed:
        """Follows an order, in which row groups of other datasets have their places."""
        groups = order.groups[: order.sure] - self._first
        is_own = (groups >= 0) & (groups < len(self._bytes))
        self._loads, self._of_last = self._loads + self._of_last, order.first
        return _Followed(self, np.where(is_own, groups, -1), self._loads)

    def follow(self, followed: _Followed, position: int, begun: int) -> None:
        """Fetches what comes next in an order, and drops what is over.

        Nothing before the first load of all is over: it finds out in which version files are read.
        """
        if not followed.loads + position:
            return
        with self._lock:
            # Who tells may have been overtaken: a load that has begun meanwhile fetches for itself.
            begun = followed.begun = max(followed.begun, begun)
            self._drop(followed.dropped(position))
            while followed.has_room(self._most_bytes):
                load, group = followed.following()
                there = self._there.get(group)
                # What is there in a cache, the load finds by itself.
                has_begun = followed.place < begun or group in self._cached
                is_for_other = there is not None and there.load != load
                if is_for_other and not has_begun:
                    return  # until that load is over
                # What has begun fetches for itself, unless it is there since the order before this one.
                is_taken = group >= 0 and not is_for_other and (there is not None or not has_begun)
                followed.go_on(int(self._bytes[group]) if is_taken else None)
                if is_taken:
                    self._take(load, group)

    def _take(self, load: int, group: int) -> None:
        there = self._there.setdefault(group, _There(load))
        there.orders += 1
        if there.orders == 1:
            if self._kept_in is KeptIn.CACHE:
                self._cached.add(group)
            place = self._dataset.inventory.place_of(group)
            # Loading the row group raises the error; here a callback would only log it, even after the reader ended.
            with contextlib.suppress(PetastoreError):
                self._dataset.fetch_ahead(*place, self._columns, self._files, self._kept_in)

    def leave(self, followed: _Followed) -> None:
        """Follows an order no longer."""
        with self._lock:
            self._drop(followed.dropped(len(followed.groups)))
            followed.groups = followed.groups[:0]  # loads of it that end later take nothing any more

    def _drop(self, groups: Iterable[int]) -> None:
        for group in groups:
            there = self._there[group]
            there.orders -= 1
            if not there.orders:
                del self._there[group]
                self._files.ahead.drop(place_of(self._dataset.location, *self._dataset.inventory.place_of(group)))


@dataclasses.dataclass(slots=True)
class _There:
    """A row group that is fetched, or on its way."""

    load: int
    """For which load, counted through all orders."""

    orders: int = 0
    """How many orders that are followed have it: the end of one is the begin of the next."""


class _Followed:
    """An order, and which part of it is fetched: from the oldest load that is not over to as far as bytes allow."""

    def __init__(self, ahead: FetchAhead, groups: NDArray[np.int64], loads: int) -> None:
        self._ahead = ahead
        self.groups = groups
        """Row groups by their places in the order, shape (loads,); -1 for one of another dataset."""
        self.loads = loads
        """How many were before the first one of this order."""
        self._held: collections.deque[tuple[int, int, int]] = collections.deque()  # places, row groups, and their bytes
        self._held_bytes = 0
        self.place = 0
        """The first one that was not looked at."""
        self.begun = 0
        """Loads at places before this have begun, as far as anybody has told."""

    def dropped(self, position: int) -> Iterator[int]:
        """Row groups that were taken, of loads before a place: they are over."""
        while self._held and self._held[0][0] < position:
            _, group, size = self._held.popleft()
            self._held_bytes -= size
            yield group

    def has_room(self, most_bytes: int) -> bool:
        """Whether more is to be taken, and there is more."""
        return self.place < len(self.groups) and self._held_bytes < most_bytes and len(self._held) < _MOST_AHEAD

    def following(self) -> tuple[int, int]:
        """The next load, counted through all orders, and its row group."""
        return self.loads + self.place, int(self.groups[self.place])

    def go_on(self, size: int | None) -> None:
        """To the next place; the row group at this one is taken, if it has a size."""
        if size is not None:
            self._held.append((self.place, int(self.groups[self.place]), size))
            self._held_bytes += size
        self.place += 1

    def move_to(self, position: int, begun: int) -> None:
        """Says how far the loads have come.

        Args:
            position: All loads at places before this are over.
            begun: Loads at places before this have begun.
        """
        if self._held or self.place < len(self.groups):
            self._ahead.follow(self, position, begun)

    def close(self) -> None:
        """Is followed no longer."""
        self._ahead.leave(self)
