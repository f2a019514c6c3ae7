"""What is needed last goes first: the next use of each entry, among all readers that share a cache. Pure.

Belady's rule (IBM Systems Journal, 1966) asks for the future, and a plan is one. A reader announces in which order it
will use entries, and how far it has come. An entry's next use is its least distance over all readers, counted in uses.
What no reader wants goes before all that is wanted, and among itself by recency: what was used last stays longest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["LATEST", "NEVER", "Future", "Moving", "Priorities", "first_words"]

NEVER = 1 << 62
"""The distance to a use that is not announced."""

LATEST = 1 << 61
"""Later than any last use: nanoseconds since 1970, in the year 2043."""

_POSITION = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)
_MANY = 1024
_ONE_BY_ONE = 8


def first_words(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    """The first eight bytes of each digest, by which futures know entries; shape (n,)."""
    return np.frombuffer(b"".join(digests), np.dtype("<u8"))[::2]


@dataclasses.dataclass(frozen=True)
class Future:
    """The order in which a reader will use entries.

    Example:
        >>> future = Future.of(np.array([70, 80, 90], np.uint64), np.array([2, 0, 2, 1]))
        >>> future.next_use(np.array([70, 90], np.uint64), position=1).tolist()
        [1, 2]
    """

    words: NDArray[np.uint64]
    """The entries, each by a word, ascending; shape (entries,)."""

    uses: NDArray[np.uint64]
    """A use each, ascending: the number of the entry in the upper half, the position in the lower; shape (uses,)."""

    length: int
    """Positions of the order; there may be none, one or several uses at each."""

    @classmethod
    def of(cls, words: NDArray[np.uint64], order: NDArray[np.int64]) -> Self:
        """A future from entries and the order of their use.

        Args:
            words: Shape (n,); or (n, k), of k entries that are used together.
            order: Numbers in [0, n), fewer than 2³² of them, or -1 where none of the entries is used; shape
                (positions,).

        Example:
            >>> future = Future.of(np.array([[70, 71], [80, 81]], np.uint64), np.array([1, -1, 0]))
            >>> future.next_use(np.array([81, 71], np.uint64), position=0).tolist(), future.length
            ([0, 2], 3)
        """
        ascending, inverse = np.unique(words, return_inverse=True)
        numbers = inverse.astype(np.uint64).reshape(len(words), math.prod(words.shape[1:]))
        positions = np.flatnonzero(order >= 0)
        uses = (numbers[order[positions]] << _POSITION) | positions.astype(np.uint64)[:, None]
        return cls(ascending, np.sort(uses.ravel()), len(order))

    def next_use(self, words: NDArray[np.uint64], position: int) -> NDArray[np.int64]:
        """The first position of each entry that is not before one, or `NEVER`; shape (n,), as `words`."""
        if not len(self.uses):
            return np.full(len(words), NEVER, np.int64)
        numbers = np.minimum(np.searchsorted(self.words, words), len(self.words) - 1)
        wanted = (numbers.astype(np.uint64) << _POSITION) | np.uint64(position)
        uses = self.uses[np.minimum(np.searchsorted(self.uses, wanted), len(self.uses) - 1)]
        is_used = (self.words[numbers] == words) & (uses >= wanted) & (uses >> _POSITION == wanted >> _POSITION)
        return np.where(is_used, (uses & _LOW).astype(np.int64), NEVER)


class Moving(Protocol):
    """A future, and how far its reader has come."""

    @property
    def future(self) -> Future:
        """What was announced."""

    @property
    def position(self) -> int:
        """Uses that are over."""

    @property
    def begun(self) -> int:
        """Uses that were begun, these included: what is used now has another use only behind them."""


class Priorities:
    """Which rows of a table go first. Not thread-safe.

    Remembered from call to call is when each row is needed, and worked out anew only for those that were used, written
    or removed since, and for those whose use has passed. Time is the progress of the readers, on average: with one
    reader it is exact; with several, which do not move alike, all is worked out anew now and then.

    Args:
        slots: Rows of the table; 24 bytes are taken for each row that was ever in use.
    """

    def __init__(self, slots: int) -> None:
        self._when = np.full(slots, -1, np.int64)
        self._used = np.zeros(slots, np.int64)
        self._state = np.zeros(slots, np.int64)
        self._readers: tuple[Moving, ...] = ()
        self._began: list[int] = []
        self._worked_out = 0

    def refresh(
        self,
        words: NDArray[np.uint64],
        used: NDArray[np.int64],
        state: NDArray[np.int64],
        kept: int,
        readers: Sequence[Moving],
    ) -> None:
        """Takes in what has changed. Rows that change meanwhile are taken in the next time.

        Args:
            words: The entry of each row; shape (rows,), as of the next two.
            used: When it was last used.
            state: What it is.
            kept: The state of rows that may go.
            readers: Those who live.
        """
        rows = len(words)
        stale = (used != self._used[:rows]) | (state != self._state[:rows])
        if tuple(readers) != self._readers or (len(readers) > 1 and self._worked_out > max(rows, _MANY)):
            self._readers, self._began = tuple(readers), [reader.position for reader in readers]
            self._worked_out = -rows
            stale[:] = True
        elif readers:
            when = self._when[:rows]
            stale |= (when >= 0) & (when < self._now)
        slots = np.flatnonzero(stale)
        if len(slots) > _MANY and readers:
            slots = slots[np.argsort(words[slots])]  # what is looked up in order is found in memory that is near
        self._worked_out += len(slots)
        self._used[slots] = used[slots]
        self._state[slots] = state[slots]
        self._when[slots] = np.where(state[slots] == kept, self.when(words[slots], used[slots]), -1)

    @property
    def _now(self) -> int:
        passed = sum(reader.position - began for reader, began in zip(self._readers, self._began, strict=True))
        return passed // max(len(self._readers), 1)

    def when(
        self, words: NDArray[np.uint64], used: NDArray[np.int64], *, are_in_use: bool = False
    ) -> NDArray[np.int64]:
        """When entries are needed; the greatest goes first. Shape (n,), as of the arguments.

        Args:
            words: The entries.
            used: When they were last used.
            are_in_use: They are used now: a use that was begun may be this one, and another one counts.
        """
        distance = np.full(len(words), NEVER, np.int64)
        for reader in self._readers:
            position = reader.position
            uses = reader.future.next_use(words, max(reader.begun, position) if are_in_use else position)
            np.minimum(distance, np.where(uses == NEVER, NEVER, uses - position), out=distance)
        return np.where(distance == NEVER, NEVER + LATEST - np.clip(used, 0, LATEST), distance + self._now)

    def victims(self, sizes: NDArray[np.int64], need: int, rows: int, incoming: int) -> list[int] | None:
        """The rows that go, so that there is room; none of them is needed sooner than what comes in.

        Args:
            sizes: Bytes of each row.
            need: Bytes that have to become free at least.
            rows: Rows that have to become free at least.
            incoming: When what comes in is needed, as `when` says; less than 0 for what has to come in.

        Returns:
            None where what comes in is needed last, or all that may go is not enough.
        """
        when = self._when[: len(sizes)]
        found: list[int] = []
        for slot in _descending(when):
            if (need <= 0 and len(found) >= rows) or when[slot] <= incoming:
                break
            found.append(slot)
            need -= int(sizes[slot])
        return found if need <= 0 and len(found) >= rows else None


def _descending(values: NDArray[np.int64]) -> Iterator[int]:
    """The places of values ≥ 0, the greatest value first: some one by one, as few are asked for, then all others."""
    left = values
    for _ in range(min(_ONE_BY_ONE, len(values))):
        place = int(left.argmax())
        if left[place] < 0:
            return
        yield place
        left = left if left is not values else values.copy()
        left[place] = -1
    places = np.flatnonzero(left >= 0)
    yield from places[np.argsort(-left[places], kind="stable")].tolist()
