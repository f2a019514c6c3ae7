"""Rows as batches take them: those of a row group side by side, and where each stands among the batches. Pure."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["GroupedRows", "inverse"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class GroupedRows:
    """Some rows in an order in which those of a row group come together; a reader copies them run by run.

    Example:
        >>> taken = GroupedRows(np.array([4, 4, 9], np.int32), np.array([0, 1, 7]), np.array([2, 0, 1]))
        >>> [array.tolist() for array in taken.in_order()]
        [[4, 9, 4], [1, 7, 0]]
    """

    groups: NDArray[np.int32]
    """Row group of each row, shape (n,)."""

    rows: NDArray[np.int64]
    """Row inside its row group of each row, shape (n,)."""

    where: NDArray[np.int64] | None
    """Where each stands in the order in which they are asked for: a permutation, shape (n,); None where that is this
    order."""

    def in_order(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Row groups and rows in the order in which they are asked for, both of shape (n,)."""
        if self.where is None:
            return self.groups, self.rows
        groups, rows = np.empty_like(self.groups), np.empty_like(self.rows)
        groups[self.where], rows[self.where] = self.groups, self.rows
        return groups, rows

    def cut(self, borders: NDArray[np.int64]) -> list[GroupedRows]:
        """The rows that are asked for first, those asked for next, and so on, each again row group by row group.

        Args:
            borders: Part i is what is asked for in [borders[i], borders[i + 1]); from 0 to all rows, shape
                (parts + 1,).
        """
        if len(borders) == 2:
            return [self]
        if self.where is None:
            return [GroupedRows(self.groups[part], self.rows[part], None) for part in _slices(borders)]
        part_of: NDArray[np.int64] = np.repeat(np.arange(len(borders) - 1), borders[1:] - borders[:-1])[self.where]
        by_part = np.argsort(part_of.astype(np.uint16), kind="stable")  # so few bits are sorted by their digits
        groups, rows = self.groups[by_part], self.rows[by_part]
        where = self.where[by_part] - borders[part_of[by_part]]
        return [GroupedRows(groups[part], rows[part], where[part]) for part in _slices(borders)]


def _slices(borders: NDArray[np.int64]) -> Iterator[slice]:
    return (slice(*pair) for pair in itertools.pairwise(borders.tolist()))


def inverse(permutation: NDArray[Any]) -> NDArray[np.int64]:
    """Which place of a permutation holds 0, which 1, and so on; shape (n,).

    Example:
        >>> inverse(np.array([2, 0, 1])).tolist()
        [1, 2, 0]
    """
    places = np.empty(len(permutation), dtype=np.int64)
    places[permutation] = np.arange(len(permutation))
    return places
