"""Foresight: what is told of a pass, from its plan: which row groups will be loaded, and how far it has come.

Caches are told, to keep what is needed next, and who fetches ahead. The plan is asked for the order; nobody notes what
was read. It is told for the rest of an epoch and the next, and anew when that one begins.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from petastore.dataset import Dataset
from petastore.forks import Lock
from petastore.plan.batches.load_order import LoadOrder
from petastore.plan.cursor import Cursor

if TYPE_CHECKING:
    from petastore.cache import Announcement

__all__ = ["Follower", "Foresight", "Ordered", "Progress", "ReadSource"]


class Ordered(Protocol):
    """What is asked for the order: a plan or a mixture."""

    def load_order(self, after: Cursor) -> LoadOrder:
        """Which row groups are loaded from a cursor on."""


class Progress(Protocol):
    """Is told how far the loads of an order have come. Thread-safe."""

    def move_to(self, position: int, begun: int, /) -> None:
        """All loads at places before `position` are over, and those before `begun` have begun."""

    def close(self) -> None:
        """The order is not followed any more."""


class Follower(Protocol):
    """Wants to know what is going to be loaded."""

    def announced(self, order: LoadOrder) -> Progress | None:
        """Is told an order, and says who is told how far it has come; None is nobody."""


class ReadSource:
    """One dataset of a pass, whose cache wants to know.

    Args:
        dataset: Where its row groups are.
        first_group: The number of the first of them.
        columns: Columns that are read from its files.
    """

    def __init__(self, dataset: Dataset, first_group: int, columns: Sequence[str]) -> None:
        self._dataset, self._first, self._columns = dataset, first_group, tuple(columns)

    def announced(self, order: LoadOrder) -> Announcement | None:
        """Tells its cache the order, in which row groups of other datasets have their places."""
        inventory = self._dataset.inventory
        groups = order.groups - self._first
        is_own = (groups >= 0) & (groups < inventory.num_row_groups)
        return self._dataset.kept.announce(
            self._dataset.location, inventory, self._columns, np.where(is_own, groups, -1)
        )


class Foresight:
    """Tells the followers of a pass what is going to be loaded.

    `plans` is called by one thread at a time, in the order of the plan; all else by any.

    Args:
        plan: Is asked for the order.
        followers: Who wants to know.
        begin: Where the pass begins.
    """

    def __init__(self, plan: Ordered, followers: Sequence[Follower], begin: Cursor) -> None:
        self._plan = plan
        self._followers = followers
        self._lock = Lock()
        self._told = _Told(followers, plan.load_order(begin), None)
        self._begun = self._told
        self._planned: dict[int, collections.deque[tuple[_Told, int]]] = {}  # by row group; none is empty
        self._is_closed = False

    def plans(self, groups: Sequence[int]) -> list[int]:
        """Notes that row groups, each once, are about to be loaded together.

        Returns:
            Numbers from 0: of the one that is best loaded first, and so on.
        """
        places = [self._told.next_place(group) for group in groups]
        if any(place is not None and place >= self._told.order.first for place in places):
            self._told = _Told(self._followers, self._plan.load_order(self._told.order.then), self._told)
            places = [self._told.next_place(group) for group in groups]
        known = {group: place for group, place in zip(groups, places, strict=True) if place is not None}
        with self._lock:
            for group, place in known.items():
                self._planned.setdefault(group, collections.deque()).append((self._told, place))
        for place in known.values():
            self._told.plans(place)
        return sorted(range(len(groups)), key=lambda number: known.get(groups[number], -1))

    def begins(self, group: int) -> Callable[[object], None] | None:
        """Says that a row group is loaded from now on; None where nobody knew.

        Returns:
            What says that it is loaded, whatever it is given.
        """
        with self._lock:
            places = self._planned.get(group)
            if places is None:
                return None
            told, place = places.popleft()
            if not places:  # an empty deque takes 800 bytes, and there are a million row groups
                del self._planned[group]
            is_first = told.claimed() and not self._is_closed
            if is_first:
                self._begun = told
        told.begins(place)
        if is_first:
            told.announce()
            with self._lock:
                is_over = self._is_closed
            if is_over:
                told.close()
        return functools.partial(told.ends, place)

    def close(self) -> None:
        """Takes back what was told. May be called again."""
        with self._lock:
            self._is_closed, begun = True, self._begun
        begun.close()


class _Told:
    """An order that was told, or will be: how far a pass has come in it."""

    def __init__(self, followers: Sequence[Follower], order: LoadOrder, before: _Told | None) -> None:
        self.order = order
        self._before = before
        self._followers = followers
        self._announcements: list[Progress] = []
        self._is_claimed = False
        self._lock = Lock()
        self._begun = 0
        # Planned, and not over. Workers may begin them in another order: one that has not begun is not over for that.
        self._open: set[int] = set()
        # Of a million row groups a dict would take seconds, and a gigabyte, before the first of them is loaded.
        self._places = np.argsort(order.groups, kind="stable")
        self._sorted = order.groups[self._places]
        # How often the row group at a place of `_sorted` has come, written at its first place there.
        self._come = np.zeros(len(self._sorted), np.int32)

    def next_place(self, group: int) -> int | None:
        """The next place of a row group in the order; None where it has none left."""
        first = int(np.searchsorted(self._sorted, group))
        if first == len(self._sorted):
            return None
        at = first + int(self._come[first])
        if at >= len(self._sorted) or self._sorted[at] != group:
            return None
        self._come[first] += 1
        return int(self._places[at])

    def claimed(self) -> bool:
        """Whether the caller is the first, who has to announce it."""
        is_claimed, self._is_claimed = self._is_claimed, True
        return not is_claimed

    def announce(self) -> None:
        """Tells all followers, in the place of what was told before."""
        told = [follower.announced(self.order) for follower in self._followers]
        self._announcements = [announcement for announcement in told if announcement is not None]
        self._tell_position()
        before, self._before = self._before, None
        if before is not None:
            before.close()

    def plans(self, place: int) -> None:
        """Says that the load at a place of the order is about to begin."""
        with self._lock:
            self._open.add(place)
        before = self._before
        if before is not None:  # its end is the begin of this one
            before.plans(before.order.first + place)

    def begins(self, place: int) -> None:
        """Says that the load at a place of the order begins."""
        with self._lock:
            self._begun = max(self._begun, place + 1)
        before = self._before
        if before is not None:  # its end is the begin of this one, and it is what caches know until that is told
            before.begins(before.order.first + place)
        self._tell_position()

    def ends(self, place: int, _: object) -> None:
        """Says that the load at a place of the order is over."""
        with self._lock:
            self._open.discard(place)
        self._tell_position()

    def _tell_position(self) -> None:
        with self._lock:
            begun = self._begun
            position = min(self._open, default=begun)
        for announcement in self._announcements:
            announcement.move_to(min(position, begun), begun)

    def close(self) -> None:
        """Takes it back."""
        before, self._before = self._before, None
        for announcement in self._announcements:
            announcement.close()
        if before is not None:
            before.close()
