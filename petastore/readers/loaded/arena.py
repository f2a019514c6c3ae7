"""The arena: one array a stack, in which the row groups at hand stand side by side.

A shuffled batch takes some rows of many row groups. With an array for each of them that is a call for each, and every
call that lets go of the interpreter lock has to get it again from the other workers; in an arena it is one call for
all.

Row groups come and go, each to the lowest place that is wide enough, so that the memory that was touched already is
used again. Memory that is never touched costs nothing: an arena is as wide as it might ever have to be.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.buffers import Buffers, untouched
from petastore.forks import made_anew_in_children
from petastore.readers.loaded.layout import Layout

__all__ = ["Arena", "Place"]


class Place:
    """Where a row group stands; free again when the last array over it is gone."""

    __slots__ = ("_arena", "first", "stop")

    def __init__(self, arena: Arena, first: int, stop: int) -> None:
        self._arena = arena
        self.first = first
        """Its first row in the arena."""
        self.stop = stop
        """The row after its last one."""

    @property
    def arena(self) -> Arena:
        """What it is a place of."""
        return self._arena

    def columns(self, number: int) -> NDArray[Any]:
        """A stack, given by its number, shape (columns, rows, *shape); of each column rows lie side by side."""
        columns: NDArray[Any] = np.asarray(_Held(self, self._arena.stacks[number][:, self.first : self.stop]))
        return columns

    def places(self) -> NDArray[np.int32]:
        """At which place of the read order each row comes, shape (rows,)."""
        return np.asarray(_Held(self, self._arena.places[self.first : self.stop]))

    def __del__(self) -> None:
        self._arena.take_back(self.first, self.stop)


class _Held:
    """What arrays over a place have as their base; NumPy keeps it as long as any of them lives."""

    __slots__ = ("__array_interface__", "_array", "_place")

    def __init__(self, place: Place, array: NDArray[Any]) -> None:
        self._place = place
        self._array = array
        self.__array_interface__ = array.__array_interface__


class Arena:
    """Arrays for the stacks of a layout, and which of their rows are taken.

    Thread-safe: places may come back at any point of any thread.

    Args:
        layout: The stacks.
        rows: How many there is room for; what has no room stands elsewhere.
        buffers: What counts the memory that is touched.

    Example:
        >>> from petastore.schema.field import UnischemaField
        >>> from petastore.schema.unischema import Unischema
        >>> layout = Layout.of(Unischema("s", [UnischemaField("x", "f4"), UnischemaField("y", "f4")]), rows=100)
        >>> arena = Arena(layout, 250, Buffers())
        >>> first, second = arena.place(100), arena.place(100)
        >>> arena.place(100), second.columns(0).shape
        (None, (2, 100))
        >>> del first; arena.place(50).first
        0
    """

    def __init__(self, layout: Layout, rows: int, buffers: Buffers) -> None:
        self._touched = self._row_bytes = 0
        self._buffers = buffers
        self.make_anew()
        self._free = [(0, rows)]
        self._returned: collections.deque[tuple[int, int]] = collections.deque()
        self.rows = rows
        """How many there is room for."""
        self.stacks = tuple(untouched((len(stack.names), rows, *stack.shape), stack.dtype) for stack in layout.stacks)
        """Of each stack of the layout: the values of all places, shape (columns, rows, *shape)."""
        self.places = untouched((rows if layout.reorders_rows else 0,), np.int32)
        """Of each row of a place: at which place of the read order it comes, shape (rows,); empty where no stack is in
        read order."""
        self._row_bytes = (sum(stack.nbytes for stack in self.stacks) + self.places.nbytes) // max(rows, 1)
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """No thread looks for a place."""
        self._lock = threading.Lock()

    def place(self, rows: int) -> Place | None:
        """The lowest place for so many rows; None where there is no room, or nothing to be placed."""
        with self._lock:
            self._free = _joined([*self._free, *self._returned_by_now()])
            wide = (number for number, (first, stop) in enumerate(self._free) if 0 < rows <= stop - first)
            number = next(wide, None)
            if number is None:
                return None
            first, stop = self._free[number]
            self._free[number] = first + rows, stop
            fresh = max(first + rows - self._touched, 0)
            self._touched += fresh
        # Not with the lock: who holds that of the buffers may be waiting to give a place back.
        self._buffers.count(fresh * self._row_bytes)
        return Place(self, first, first + rows)

    def _returned_by_now(self) -> Iterator[tuple[int, int]]:
        while self._returned:
            yield self._returned.popleft()

    def take_back(self, first: int, stop: int) -> None:
        """Makes a place free; called by who saw it last, even the collector at any point: takes no lock."""
        self._returned.append((first, stop))

    def __del__(self) -> None:
        if getattr(self, "_touched", 0):  # an interrupted constructor has not set it
            self._buffers.count(-self._touched * self._row_bytes)


def _joined(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same rows in as few parts as can be, ascending, none of them empty."""
    joined: list[tuple[int, int]] = []
    for first, stop in sorted(parts):
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], stop
        elif first < stop:
            joined.append((first, stop))
    return joined
