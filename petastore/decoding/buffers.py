"""Buffers: memory for batches and row groups, reused once nothing references it.

New memory is slow: at the first access, the operating system provides it page by page and zeroes it. This takes as long
as decoding the data. Memory that a reader no longer needs is therefore kept and reused.

An array from `Buffers.empty` is an ordinary array. The array, its views, and tensors over its memory keep the memory
alive. When the last of them is deleted, reference counting returns the memory to the buffers; the user need not release
anything.
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
"""Minimum bytes of an array whose memory is reused.

For smaller arrays, NumPy's allocator is as fast.
"""

_OWN_PAGES = 64 * 1024
"""Minimum bytes that are allocated with `mmap` instead of `malloc`.

`malloc` might not return such memory to the system. Huge pages are not requested: reused memory is not faster with
them, and a virtual machine waits long for the first one.
"""

_STEPS = 4
"""Number of size classes per power of two.

An allocation is at most a quarter larger than the requested size.
"""


class Buffers:
    """Allocator of arrays that reuses their memory once they are garbage.

    Thread-safe. Memory may be returned at any time in any thread, also by the garbage collector.

    Args:
        limit: Maximum bytes of arrays and of kept memory together; kept memory is freed first. None means no limit. A
            requested array is returned even above the limit.

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
        """Maximum bytes of arrays and of kept memory together; None means no limit."""
        self._closed = False
        self.kept_bytes = 0
        """Bytes of kept memory, which no array uses now and which can be reused."""
        self.given_bytes = 0
        """Bytes of arrays that are still referenced, and of memory added by `count`."""
        self.most_bytes = 0
        """Peak of `kept_bytes` and `given_bytes` together."""
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Reset the lock in a forked child."""
        # Reentrant: garbage collection may run inside, and return memory.
        self._lock = threading.RLock()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike, *, room: int = 0) -> NDArray[Any]:
        """Return a C-contiguous array with arbitrary values.

        Args:
            shape: Any shape.
            dtype: Any dtype without Python objects.
            room: Minimum bytes of its memory, so that a larger array can reuse it later; bytes that are not written
                take no memory.
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
        """Free this many bytes of kept memory, or all of it."""
        for kept_size, kept in self._kept.items():
            while kept and size > 0:
                kept.pop()
                self.kept_bytes -= kept_size
                size -= kept_size

    def count(self, size: int) -> None:
        """Count memory that was allocated elsewhere towards the limit.

        It counts like an array that is still referenced (`given_bytes`), so that less memory is kept for reuse.
        """
        with self._lock:
            self.given_bytes += size
            if self.limit is not None:
                self._let_go(self.given_bytes + self.kept_bytes - self.limit)
            self.most_bytes = max(self.most_bytes, self.given_bytes + self.kept_bytes)

    def take_back(self, memory: NDArray[np.uint8]) -> None:
        """Take back memory that no array references any more, and keep it for reuse."""
        with self._lock:
            self.given_bytes -= len(memory)
            if not self._closed:
                self._kept[len(memory)].append(memory)
                self.kept_bytes += len(memory)

    def close(self) -> None:
        """Free kept memory now, and free returned memory later. May be called again."""
        with self._lock:
            self._closed = True
            self._kept.clear()
            self.kept_bytes = 0


def _fresh(size: int) -> NDArray[np.uint8]:
    """Allocate memory that is returned to the system as a whole when freed."""
    if size < _OWN_PAGES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(size, np.uint8)
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def untouched(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Allocate an array of zeros that uses memory only when it is written to.

    The array is C-contiguous, and its memory is not reused.

    Raises:
        OSError: The address space is exhausted.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < _OWN_PAGES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(shape, dtype)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0))
    return np.frombuffer(pages, dtype).reshape(shape)


class _Lease:
    """Owner of an array's memory.

    NumPy deletes this object with the last view of the array; this returns the memory to the buffers.
    """

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
