"""Divide rows into ranges that are decoded together, so that memory stays within a limit."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

__all__ = ["row_ranges"]


def row_ranges(sizes: NDArray[np.int64], most_bytes: int, most_rows: int) -> list[tuple[int, int]]:
    """Divide rows into half-open ranges of bounded size.

    Args:
        sizes: Decoded bytes of each row, shape (rows,).
        most_bytes: Maximum bytes of a range; a single row may be larger.
        most_rows: Maximum rows of a range.

    Example:
        >>> row_ranges(np.array([5, 5, 1, 30, 1, 1]), 10, 3)
        [(0, 1), (1, 3), (3, 6)]
        >>> row_ranges(np.zeros(5, np.int64), 10, 2)
        [(0, 2), (2, 4), (4, 5)]
    """
    by_bytes = np.diff(np.cumsum(sizes) // most_bytes) > 0
    borders: list[int] = [0]
    for stop in [*(np.flatnonzero(by_bytes) + 1).tolist(), len(sizes)]:
        borders += [*range(borders[-1] + most_rows, stop, most_rows), stop]
    return [(first, stop) for first, stop in itertools.pairwise(borders) if first < stop]
