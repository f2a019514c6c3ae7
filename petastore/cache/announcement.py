"""What a reader announces of its future, so that the cache keeps what is needed next."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from petastore.cache.entry_file import digest_of, write_all
from petastore.cache.folder import Folder
from petastore.cache.ledger import Ledger
from petastore.cache.locks import LockedFile
from petastore.cache.table import FUTURE
from petastore.cache.uses.futures import future_bytes, note_position, uses_within
from petastore.cache.uses.next_use import Future, first_words
from petastore.cache.writing import Writing
from petastore.forks import Lock

__all__ = ["Announcement", "announced"]

_SHARE = 64
_MOST_USES = 1 << 22


class Announcement:
    """The future of a reader as others see it, until it is closed or its process ends.

    Thread-safe. In a forked child it is nobody's, and does nothing.

    Example:
        >>> nobody_knows = Announcement()
        >>> nobody_knows.move_to(1)
        >>> nobody_knows.close()
    """

    def __init__(self, ledger: Ledger | None = None, file: LockedFile | None = None, uses: int = 0) -> None:
        self._ledger = ledger
        self._file = file
        self._lock = Lock()
        self.uses = uses
        """How many positions of the order others know of: the disk sets a bound."""

    def move_to(self, position: int, begun: int | None = None) -> None:
        """Says how far the reader has come.

        Args:
            position: How many positions of the order are over, or are asked for now by the only thread that asks.
            begun: How many were begun, these included, where several are asked for at a time: those that are not over
                yet are still needed. None is no more.
        """
        begun = position if begun is None else begun
        with self._lock:  # once it is closed, its number may be that of somebody else's file
            if self._file is not None and self._file.fd >= 0:
                note_position(self._file.fd, *(min(max(each, 0), self.uses) for each in (position, begun)))

    def close(self) -> None:
        """Takes it back; again does nothing."""
        with self._lock:
            file, self._file = self._file, None
        if file is None or file.fd < 0 or self._ledger is None:
            return
        try:
            with contextlib.suppress(OSError):  # what cannot be removed now is removed when the cache is next opened
                file.path.unlink()
                self._ledger.release(bytes.fromhex(file.path.name))
        finally:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def announced(
    folder: Folder, ledger: Ledger, keys: Sequence[str] | NDArray[np.uint64], order: NDArray[np.int64]
) -> Announcement:
    """Writes a future down for all processes that share a cache.

    Args:
        folder: Of the cache.
        ledger: Of the same.
        keys: Of entries; or words of keys, shape (n,) or (n, k).
        order: The numbers of the keys in the order of their use, or -1; shape (positions,). What takes more than a
            64th of the cache is left out from the end, as is what is beyond four million uses: a cache has at most a
            million entries.

    Raises:
        OSError: It cannot be written.
    """
    together = 1 if isinstance(keys, Sequence) or keys.ndim == 1 else max(keys.shape[1], 1)
    uses = np.cumsum(order >= 0)
    most = min(uses_within(ledger.most // _SHARE), _MOST_USES) // together
    order = order[: int(np.searchsorted(uses, most, side="right"))]
    is_used = np.zeros(len(keys), np.bool_)
    is_used[order[order >= 0]] = True
    used = np.flatnonzero(is_used)
    if isinstance(keys, Sequence):
        words = first_words([digest_of(keys[number]) for number in used.tolist()])
    else:
        words = keys[used]
    numbers = np.where(order >= 0, np.searchsorted(used, order), -1)
    data = future_bytes(Future.of(words, numbers))
    digest = secrets.token_bytes(16)
    begun = Writing.begun(folder, ledger, digest, patience=0)
    if begun is None:
        return Announcement()  # by chance somebody has the same name
    with begun as writing:
        if not writing.write(len(data), lambda fd, _: write_all(fd, data, 0), has_to=True):
            return Announcement()
        return Announcement(ledger, writing.place(folder.futures / digest.hex(), FUTURE), len(order))
