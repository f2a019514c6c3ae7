"""Buffers: memory for batches and row groups that is used again when nobody can see it any more.

Fresh memory is slow: the system hands it out page by page, zeroed, at the first touch, which costs as much as decoding
what is put there. So what a reader gives back to itself is kept, and given out again.

An array from `Buffers.empty` is an ordinary array. It, its views, and tensors over its memory keep the memory alive;
only when the last of them is gone does it return here, by reference count, with no promise asked of the user.
"""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["Buffers"]

_SMALLEST = 16 * 1024
"""Bytes below which the allocator's own lists are as good."""

_STEPS = 4
"""Sizes between two powers of two: what is given is at most a quarter larger than what was asked for."""


class Buffers:
    """Gives out arrays, and takes their memory back when they are gone.

    Thread-safe: a deque's ends are moved atomically, and no lock is held, since memory may come back at any point of
    any thread, the collector's runs included.

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

    def __init__(self) -> None:
        self._shelves: dict[int, _Shelf] = {}
        self._closed = False

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array whose values are arbitrary, C-contiguous.

        Args:
            shape: Any shape.
            dtype: Any dtype without Python objects.
        """
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < _SMALLEST or self._closed:
            return np.empty(shape, dtype)
        leased = np.asarray(_Lease(self._shelf(_rounded(size))))
        return leased[:size].view(dtype).reshape(shape)

    def _shelf(self, size: int) -> _Shelf:
        shelf = self._shelves.get(size)
        return self._shelves.setdefault(size, _Shelf(size)) if shelf is None else shelf

    @property
    def kept_bytes(self) -> int:
        """Bytes that wait to be used again."""
        return sum(size * len(shelf.kept) for size, shelf in list(self._shelves.items()))

    def close(self) -> None:
        """Lets go of what is kept, and from now on of what comes back. May be called again."""
        self._closed = True
        for shelf in list(self._shelves.values()):
            shelf.is_open = False
            shelf.kept.clear()


class _Shelf:
    """Memory of one size."""

    __slots__ = ("is_open", "kept", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.kept: collections.deque[NDArray[np.uint8]] = collections.deque()
        self.is_open = True

    def take(self) -> NDArray[np.uint8]:
        try:
            return self.kept.pop()
        except IndexError:
            return np.empty(self.size, np.uint8)


class _Lease:
    """What arrays over the memory have as their base; NumPy keeps it as long as any of them lives."""

    __slots__ = ("__array_interface__", "_memory", "_shelf")

    def __init__(self, shelf: _Shelf) -> None:
        self._shelf = shelf
        self._memory = shelf.take()
        self.__array_interface__ = self._memory.__array_interface__

    def __del__(self) -> None:
        if self._shelf.is_open:
            self._shelf.kept.append(self._memory)


def _rounded(size: int) -> int:
    step = (1 << (size - 1).bit_length() - 1) // _STEPS
    return -(-size // step) * step
