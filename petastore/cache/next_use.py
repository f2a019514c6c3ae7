"""Eviction by next use (Belady's rule), which readers announce in files.

The cache first evicts the entry whose next use, by any reader, is furthest in the future. Belady's rule (IBM Systems
Journal, 1966) requires future uses, which the plan of a reader contains. Each reader writes a file with the order in
which it will use entries, and its progress; all processes that share the cache read this file. A position is an
index into this order; at each position, a reader uses any number of entries. The distance of an entry is the number of
positions from a reader's current position to the entry's next use; the smallest distance of all readers counts. Entries
that no reader will use are evicted first, in least recently used order.

The file has this layout:

```text
 0  8  petaftr3
 8 24  numbers of entries, uses and positions
32  8  checksum          of the 32 bytes before, and of the bytes after the header
40  8  position          number of positions that the reader has passed; updated while it reads
48  8  begun             number of positions that the reader has begun; updated while it reads
56  8  zeros
64     words, uses       the arrays `Future.words` and `Future.uses`
```

`simulate` is the simplest implementation of the rule; tests and `plan.explain()` use it to count hits.

A running reader holds the lock on its file. If a file is not locked, its reader has ended, and its uses are ignored.
"""

from __future__ import annotations

import dataclasses
import fcntl
import math
import mmap
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.cache.entry_file import SIZE, checksum

__all__ = [
    "BATCHES",
    "LATEST",
    "NEVER",
    "Future",
    "FutureFile",
    "LastRejection",
    "Policy",
    "eviction_order",
    "first_words",
    "future_bytes",
    "note_position",
    "open_futures",
    "simulate",
    "uses_within",
    "victims",
]

NEVER = 1 << 62
"""Number of positions up to the next use of an entry whose use no reader announced.

It is larger than any other number of positions.
"""

LATEST = 1 << 61
"""Time later than any use: nanoseconds since 1970, in the year 2043."""

BATCHES = 64
"""Divisor of an eviction batch: 1/64 of the limit, or of the rows, is freed."""

_POSITION = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


def first_words(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return the first eight bytes of each digest as integers; shape (n,).

    These words identify entries in announcements.
    """
    return np.frombuffer(b"".join(digests), np.dtype("<u8"))[::2]


@dataclasses.dataclass(frozen=True)
class Future:
    """Announced order in which a reader will use cache entries.

    Example:
        >>> future = Future.of(np.array([70, 80, 90], np.uint64), np.array([2, 0, 2, 1]))
        >>> future.next_use(np.array([70, 90], np.uint64), position=1).tolist()
        [1, 2]
    """

    words: NDArray[np.uint64]
    """Words (64-bit hashes) of the entries, ascending; shape (entries,)."""

    uses: NDArray[np.uint64]
    """Uses of entries, ascending; shape (uses,).

    The upper 32 bits have the entry's index in `words`, the lower 32 bits the position in the order.
    """

    length: int
    """Number of positions in the order; each has any number of uses."""

    @classmethod
    def of(cls, words: NDArray[np.uint64], order: NDArray[np.int64]) -> Self:
        """Return a future from entries and the order of their use.

        Args:
            words: Words (64-bit hashes) of entries, shape (n,); or (n, k) for k entries that are used together.
            order: Index into `words` of the entry used at each position, or -1 for no entry; shape (positions,), fewer
                than 2³².

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
        """Return the position of each entry's first use that is not before `position`.

        The result has shape (n,), as `words`; it is `NEVER` for an entry without such a use.

        Args:
            words: Words (64-bit hashes) of the entries.
            position: First position to consider.
        """
        if not len(self.uses):
            return np.full(len(words), NEVER, np.int64)
        numbers = np.minimum(np.searchsorted(self.words, words), len(self.words) - 1)
        wanted = (numbers.astype(np.uint64) << _POSITION) | np.uint64(position)
        uses = self.uses[np.minimum(np.searchsorted(self.uses, wanted), len(self.uses) - 1)]
        is_used = (self.words[numbers] == words) & (uses >= wanted) & (uses >> _POSITION == wanted >> _POSITION)
        return np.where(is_used, (uses & _LOW).astype(np.int64), NEVER)


class Moving(Protocol):
    """Interface of a reader's announced order of cache entries, with its progress."""

    @property
    def future(self) -> Future:
        """Order in which the reader will use entries."""

    @property
    def position(self) -> int:
        """Number of positions of the order that are finished."""

    @property
    def begun(self) -> int:
        """Number of positions that have begun, including finished ones.

        For an entry that is in use now, the next use is the first use among the positions that have not begun.
        """


def eviction_order(
    words: NDArray[np.uint64], used: NDArray[np.int64], readers: Sequence[Moving], *, are_in_use: bool = False
) -> NDArray[np.int64]:
    """Return the number of positions until each entry is used next; shape (n,).

    A position is an index into the order that a reader has announced. The smallest number of all readers counts. The
    entry with the largest number is evicted first. If no reader will use an entry, its number is at least `NEVER`, and
    larger the longer ago the entry was last used.

    Args:
        words: Words (64-bit hashes) of the entries; shape (n,).
        used: Time of each entry's last use, in nanoseconds since 1970; shape (n,).
        readers: All living readers.
        are_in_use: Whether the entries are in use now, so that the use after the current use counts.
    """
    distance = np.full(len(words), NEVER, np.int64)
    ascending = np.argsort(words)  # lookups in ascending order are faster, because they hit the CPU cache
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
    """Return the entries to evict, all of which are needed later than the new entry.

    Args:
        needed: When each stored entry is needed, as `eviction_order` returns; shape (n,).
        sizes: Bytes of each stored entry; shape (n,).
        incoming: When the new entry is needed, as `eviction_order` returns; less than 0 if it must be stored.
        least: (bytes, number of entries) that must be freed.
        batch: (bytes, number of entries) to free if anything must be freed. Less is freed if too few entries are needed
            later than the new entry.

    Returns:
        Indices of the entries to evict, the latest needed first. None if evicting all entries that are needed later
        than the new entry would not free `least`.

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
    """Last rejection of a new entry, remembered to save searches.

    Entries that are needed even later are rejected without another search. The rejection is valid until readers have
    made, on average, 1/64 of the progress to the latest use of a stored entry. Not thread-safe.
    """

    def __init__(self) -> None:
        self._readers: tuple[Moving, ...] = ()
        self._positions = 0
        self._latest = 0

    def note(self, readers: Sequence[Moving], latest: int) -> None:
        """Record that an entry was rejected.

        Args:
            readers: All living readers.
            latest: Largest number that `eviction_order` returns for the stored entries.
        """
        self._readers, self._latest = tuple(readers), latest
        self._positions = sum(reader.position for reader in readers)

    def applies(self, readers: Sequence[Moving], incoming: int) -> bool:
        """Return whether another new entry is rejected, too, because of the recorded rejection.

        Args:
            readers: All living readers.
            incoming: When the new entry is needed, as `eviction_order` returns.
        """
        if not readers or tuple(readers) != self._readers:
            return False
        passed = (sum(reader.position for reader in readers) - self._positions) // len(readers)
        return passed * BATCHES <= self._latest and incoming + passed >= self._latest


_HEAD = struct.Struct("<8sQQQ")
_MAGIC = b"petaftr3"
_POSITION_AT = 40
_POSITIONS = struct.Struct("<QQ")
_HEADER = 64


def future_bytes(future: Future) -> memoryview:
    """Return the content of the announcement file of a reader that has not started.

    Example:
        >>> len(future_bytes(Future.of(np.array([5, 6], np.uint64), np.array([0, 1, 0]))))
        104
    """
    head = _HEAD.pack(_MAGIC, len(future.words), len(future.uses), future.length)
    body = memoryview(future.words.astype("<u8").tobytes() + future.uses.astype("<u8").tobytes())
    return memoryview((head + checksum(head, body)).ljust(_HEADER, b"\0") + body)


def uses_within(size: int) -> int:
    """Return how many uses of cache entries a file of `size` bytes can announce.

    Each use is assumed to be of a different entry. A reader announces in such a file the order in which it will use
    cache entries.

    Example:
        >>> uses_within(1 << 20)
        65532
    """
    return max(size - _HEADER, 0) // 16


def note_position(fd: int, position: int, begun: int) -> None:
    """Write the numbers of finished and of begun positions to an announcement file."""
    os.pwrite(fd, _POSITIONS.pack(position, begun), _POSITION_AT)


class FutureFile:
    """Announcement file of a reader in this or another process.

    Args:
        path: Path of the file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        size = os.fstat(self._fd).st_size
        header = os.pread(self._fd, _HEADER, 0)
        if len(header) != _HEADER:
            raise ValueError(f"the announcement file {path} has no header")
        magic, entries, uses, length = _HEAD.unpack(header[: _HEAD.size])
        if magic != _MAGIC or size != _HEADER + 8 * (entries + uses):
            raise ValueError(f"the header of the announcement file {path} has another format")
        self._mapped = mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        body = memoryview(self._mapped)[_HEADER:]
        if checksum(header[: _HEAD.size], body) != header[_HEAD.size : _HEAD.size + SIZE]:
            raise ValueError(f"the checksum of the announcement file {path} does not match its content")
        words = np.frombuffer(body, np.dtype("<u8"))
        self.future = Future(words[:entries], words[entries:], length)
        self._position = np.frombuffer(self._mapped, np.dtype("<u8"), 2, _POSITION_AT)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            os.close(fd)

    @property
    def position(self) -> int:
        """Number of finished positions."""
        return min(int(self._position[0]), self.future.length)

    @property
    def begun(self) -> int:
        """Number of positions that the reader has begun."""
        return min(int(self._position[1]), self.future.length)

    @property
    def is_living(self) -> bool:
        """Whether the reader still runs, that is, holds the lock on the file."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False


def open_futures(folder: Path, names: Iterable[str]) -> list[FutureFile]:
    """Open the announcement files of these names; skip missing and damaged ones."""
    found = []
    for name in names:
        try:
            found.append(FutureFile(folder / name))
        except (OSError, ValueError):
            continue
    return found


Policy: TypeAlias = Literal["belady", "lru"]
"""Eviction rule: by next use in this epoch and the next, or least recently used."""


def simulate(
    orders: Sequence[NDArray[np.int64]], sizes: NDArray[np.int64], limit: int, policy: Policy
) -> list[NDArray[np.bool_]]:
    """Simulate a cache that is empty at first, and return which uses are hits.

    Args:
        orders: For each epoch the numbers of entries in the order of their use.
        sizes: Bytes of each entry; shape (entries,).
        limit: Maximum total bytes of entries.
        policy: Eviction rule.

    Returns:
        For each epoch, whether each use is a hit; shaped as its order.

    Example:
        >>> order, sizes = np.arange(4), np.ones(4, np.int64)
        >>> [hits.sum() for hits in simulate([order] * 3, sizes, 2, "belady")]
        [np.int64(0), np.int64(2), np.int64(2)]
        >>> [hits.sum() for hits in simulate([order] * 3, sizes, 2, "lru")]
        [np.int64(0), np.int64(0), np.int64(0)]
    """
    last_use = np.zeros(len(sizes), np.int64)
    is_kept = np.zeros(len(sizes), bool)
    hits, clock = [], 0
    for epoch, order in enumerate(orders):
        announced = np.concatenate([order, *orders[epoch + 1 : epoch + 2]])
        next_use = np.full(len(sizes), NEVER)
        next_use[announced[::-1]] = np.arange(len(announced))[::-1]
        following = _following(announced)
        of_epoch = np.zeros(len(order), bool)
        # rejected: last position whose new entry was not stored, because all stored entries had an earlier next use
        # latest: at this position, the latest of the next uses of the stored entries
        rejected, latest = -NEVER, 0
        for place, entry in enumerate(order.tolist()):
            clock += 1
            next_use[entry] = following[place]
            of_epoch[place] = is_kept[entry]
            last_use[entry] = clock
            if is_kept[entry] or sizes[entry] > limit:
                continue
            has_room = sizes[is_kept].sum() + sizes[entry] <= limit
            is_remembered = (place - rejected) * BATCHES < latest - rejected
            if not has_room and is_remembered and following[place] >= latest:
                continue
            goes_last = next_use if policy == "belady" else np.full(len(sizes), NEVER)
            stays = np.lexsort((-last_use, goes_last))
            if _take_in(entry, is_kept, sizes, limit, stays):
                continue
            sooner = goes_last[is_kept]
            if len(sooner) and sooner.max() < following[place]:
                rejected, latest = place, int(sooner.max())
        hits.append(of_epoch)
    return hits


def _following(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each use the position of the next use of the same entry, or `NEVER`."""
    following = np.full(len(order), NEVER)
    by_entry = np.argsort(order, kind="stable")
    is_same = order[by_entry[1:]] == order[by_entry[:-1]]
    following[by_entry[:-1][is_same]] = by_entry[1:][is_same]
    return following


def _take_in(
    entry: int, is_kept: NDArray[np.bool_], sizes: NDArray[np.int64], limit: int, stays: NDArray[np.int64]
) -> bool:
    """Store an entry in the simulated cache, after evicting others; return whether it is stored.

    It is not stored if evicting all entries that come after it in `stays` would not free enough space.

    Args:
        entry: Number of the entry.
        is_kept: Whether each entry is in the cache, shape (entries,); updated in place.
        sizes: Bytes of each entry, shape (entries,).
        limit: Maximum total bytes of entries in the cache.
        stays: Numbers of all entries; the last entry is evicted first.
    """
    need = sizes[is_kept].sum() + sizes[entry] - limit
    batch = max(need, limit // BATCHES) if need > 0 else 0
    goes, freed = [], 0
    for other in stays[::-1].tolist():
        if freed >= batch or other == entry:
            break
        if is_kept[other]:
            goes.append(other)
            freed += sizes[other]
    if freed < need:
        return False
    is_kept[goes] = False
    is_kept[entry] = True
    return True
