"""What is needed last goes first: the next use of each entry, among all readers that share a cache. Pure.

Belady's rule (IBM Systems Journal, 1966) asks for the future, and a plan is one. A reader announces in which order it
will use entries, and how far it has come. An entry's next use is its least distance over all readers, counted in uses.
What no reader wants goes before all that is wanted, and among itself by recency: what was used last stays longest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BATCHES",
    "LATEST",
    "NEVER",
    "Future",
    "LastRejection",
    "Moving",
    "eviction_order",
    "first_words",
    "victims",
]

NEVER = 1 << 62
"""The distance to a use that is not announced."""

LATEST = 1 << 61
"""Later than any last use: nanoseconds since 1970, in the year 2043."""

BATCHES = 64
"""Entries are evicted until a batch is free: this part of the limit, or of the rows."""

_POSITION = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


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


def eviction_order(
    words: NDArray[np.uint64], used: NDArray[np.int64], readers: Sequence[Moving], *, are_in_use: bool = False
) -> NDArray[np.int64]:
    """Return when entries are needed, counted in uses from now; the greatest is evicted first.

    Args:
        words: The entries; shape (n,).
        used: When each was last used, in nanoseconds since 1970; shape (n,).
        readers: All living readers.
        are_in_use: Whether the entries are used now: a use that was begun may be this one, and the next one counts.
    """
    distance = np.full(len(words), NEVER, np.int64)
    ascending = np.argsort(words)  # lookups in order hit memory that is in the processor's cache
    for reader in readers:
        position = reader.position
        uses = reader.future.next_use(words[ascending], max(reader.begun, position) if are_in_use else position)
        distance[ascending] = np.minimum(distance[ascending], np.where(uses == NEVER, NEVER, uses - position))
    return np.where(distance == NEVER, NEVER + LATEST - np.clip(used, 0, LATEST), distance)


def victims(
    needed: NDArray[np.int64],
    sizes: NDArray[np.int64],
    incoming: int,
    *,
    least: tuple[int, int],
    batch: tuple[int, int],
) -> NDArray[np.int64] | None:
    """Return the entries to evict; none of them is needed sooner than the incoming one.

    Args:
        needed: When each entry is needed, as `eviction_order` returns; shape (n,).
        sizes: Bytes of each; shape (n,).
        incoming: When the incoming entry is needed; less than 0 if it must be kept.
        least: Bytes and entries that must be freed.
        batch: Bytes and entries to free where `least` demands any, as far as entries are needed later.

    Returns:
        Numbers in [0, n); None where the entries that are needed later do not free enough.

    Example:
        >>> needed, sizes = np.array([5, 9, 7, 2]), np.array([10, 10, 10, 10])
        >>> victims(needed, sizes, 4, least=(5, 0), batch=(20, 0))
        array([1, 2])
        >>> victims(needed, sizes, 8, least=(15, 0), batch=(20, 0)) is None
        True
    """
    order = np.argsort(-needed, kind="stable")
    order = order[needed[order] > incoming]
    freed = np.cumsum(sizes[order])
    fewest = max(least[1], int(np.searchsorted(freed, least[0])) + 1 if least[0] > 0 else 0)
    most = max(batch[1] if least[1] > 0 else 0, int(np.searchsorted(freed, batch[0])) + 1 if least[0] > 0 else 0)
    return order[: max(fewest, most)] if fewest <= len(order) else None


class LastRejection:
    """The last entry that was needed later than all kept ones, so that the next such one is rejected at no cost.

    It holds until readers have come a 64th of the way to the latest use of a kept entry. Time is the progress of the
    readers, on average. Not thread-safe.
    """

    def __init__(self) -> None:
        self._readers: tuple[Moving, ...] = ()
        self._positions = 0
        self._latest = 0

    def note(self, readers: Sequence[Moving], latest: int) -> None:
        """Remember that all kept entries are needed sooner, the last of them after `latest` uses."""
        self._readers, self._latest = tuple(readers), latest
        self._positions = sum(reader.position for reader in readers)

    def applies(self, readers: Sequence[Moving], incoming: int) -> bool:
        """Return whether an entry that is needed after `incoming` uses is rejected, too."""
        if not readers or tuple(readers) != self._readers:
            return False
        passed = (sum(reader.position for reader in readers) - self._positions) // len(readers)
        return passed * BATCHES <= self._latest and incoming + passed >= self._latest
