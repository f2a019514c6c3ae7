"""Buffers: memory for batches and row groups that is used again when nobody can see it any more.

Fresh memory is slow: the system hands it out page by page, zeroed, at the first touch, which costs as much as decoding
what is put there. So what a reader gives back to itself is kept, and given out again.

An array from `Buffers.empty` is an ordinary array. It, its views, and tensors over its memory keep the memory alive;
only when the last of them is gone does it return here, by reference count, with no promise asked of the user.
"""

from __future__ import annotations

import collections
import math
import mmap
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from petastore.forks import made_anew_in_children

__all__ = ["Buffers", "untouched"]

_SMALLEST = 16 * 1024
"""Bytes below which the allocator's own lists are as good."""

_OWN_PAGES = 64 * 1024
"""Bytes from which memory is asked for from the system itself, past an allocator that might keep it. No huge pages are
asked for: used again they are no faster here, and a machine that is a guest of another one waits long for the first."""

_STEPS = 4
"""Sizes between two powers of two: what is given is at most a quarter larger than what was asked for."""


class Buffers:
    """Gives out arrays, and takes their memory back when they are gone.

    Thread-safe: memory may come back at any point of any thread, the collector's runs included.

    Args:
        limit: Bytes that arrays and what is kept may have together; what is kept goes first. None is no limit. What is
            asked for is given in any case.

    Example:
        >>> buffers = Buffers()
        >>> array = buffers.empty((1000, 64), np.float32)
        >>> buffers.kept_bytes
        0
        >>> row = array[0]; del array; buffers.kept_bytes
        0
        >>> del row; buffers.kept_bytes
        262144
    """

    def __init__(self, *, limit: int | None = None) -> None:
        self.make_anew()
        self._kept: dict[int, list[NDArray[np.uint8]]] = collections.defaultdict(list)
        self.limit = limit
        """Bytes that arrays and what is kept may have together."""
        self._closed = False
        self.kept_bytes = 0
        """Bytes that wait to be used again."""
        self.given_bytes = 0
        """Bytes of arrays that are alive."""
        self.most_bytes = 0
        """Most bytes of both that there were at a time."""
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """No thread is at it."""
        # Reentrant: the collector may run inside, and give back what it finds.
        self._lock = threading.RLock()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike, *, room: int = 0) -> NDArray[Any]:
        """An array whose values are arbitrary, C-contiguous.

        Args:
            shape: Any shape.
            dtype: Any dtype without Python objects.
            room: Bytes that its memory has at least, so that a larger array can have it later; what is not written to
                takes no memory.
        """
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if max(size, room) < _SMALLEST:
            return np.empty(shape, dtype)
        leased = np.asarray(_Lease(self._take(_rounded(max(size, room))), self))
        return leased[:size].view(dtype).reshape(shape)

    def _take(self, size: int) -> NDArray[np.uint8]:
        with self._lock:
            fits = self._kept[size]
            memory = fits.pop() if fits else None
            self.given_bytes += size
            if memory is not None:
                self.kept_bytes -= size
            elif self.limit is not None:
                self._let_go(self.given_bytes + self.kept_bytes - self.limit)
            self.most_bytes = max(self.most_bytes, self.given_bytes + self.kept_bytes)
        return _fresh(size) if memory is None else memory

    def _let_go(self, size: int) -> None:
        """Frees so many bytes of what is kept, or all of it."""
        for kept_size, kept in self._kept.items():
            while kept and size > 0:
                kept.pop()
                self.kept_bytes -= kept_size
                size -= kept_size

    def count(self, size: int) -> None:
        """Reckons with so many bytes more, or less, that are alive elsewhere."""
        with self._lock:
            self.given_bytes += size
            if self.limit is not None:
                self._let_go(self.given_bytes + self.kept_bytes - self.limit)
            self.most_bytes = max(self.most_bytes, self.given_bytes + self.kept_bytes)

    def take_back(self, memory: NDArray[np.uint8]) -> None:
        """Keeps memory that nobody sees any more; called by whoever saw it last."""
        with self._lock:
            self.given_bytes -= len(memory)
            if not self._closed:
                self._kept[len(memory)].append(memory)
                self.kept_bytes += len(memory)

    def close(self) -> None:
        """Lets go of what is kept, and from now on of what comes back. May be called again."""
        with self._lock:
            self._closed = True
            self._kept.clear()
            self.kept_bytes = 0


def _fresh(size: int) -> NDArray[np.uint8]:
    """New memory, of which the system is given all back when it is let go of."""
    if size < _OWN_PAGES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(size, np.uint8)
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def untouched(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros, C-contiguous, that takes memory only where it is written to; given back when it is gone.

    Raises:
        OSError: The system does not give so many addresses.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < _OWN_PAGES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(shape, dtype)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0))
    return np.frombuffer(pages, dtype).reshape(shape)


class _Lease:
    """What arrays over the memory have as their base; NumPy keeps it as long as any of them lives."""

    __slots__ = ("__array_interface__", "_home", "_memory")

    def __init__(self, memory: NDArray[np.uint8], home: Buffers) -> None:
        self._memory = memory
        self._home = home
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._home.take_back(self._memory)


def _rounded(size: int) -> int:
    step = (1 << (size - 1).bit_length() - 1) // _STEPS
    return -(-size // step) * step
