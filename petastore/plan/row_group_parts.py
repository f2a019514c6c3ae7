"""Parts of huge row groups: row ranges that are loaded one after the other.

A plan of parts treats each part as a row group. The parts of a row group follow each other in file order. The plan
therefore has the same rows, order and positions as the plan of whole row groups. No I/O.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from petastore.inventory import Inventory
from petastore.lazy import once
from petastore.plan.selection import Selection

__all__ = ["RowGroupParts", "rows_of_part"]


def rows_of_part(sizes: ArrayLike, rows: ArrayLike, most_bytes: int) -> NDArray[np.int64]:
    """Return how many rows of average size fit into `most_bytes`, at least 1.

    The result is an integer, or an array with one entry for each row group.

    Args:
        sizes: Bytes of a row group, or of each of several row groups.
        rows: Number of rows of the row group, or of each.
        most_bytes: Maximum bytes of a part; a part with a single row may have more.

    Example:
        >>> rows_of_part([1000, 40, 10**6], [10, 10, 2], 300).tolist()
        [3, 75, 1]
    """
    of_row = np.asarray(sizes, np.int64) // np.maximum(rows, 1)
    return np.asarray(np.maximum(most_bytes // np.maximum(of_row, 1), 1), np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class RowGroupParts:
    """Division of row groups into parts; most row groups have one part. Immutable.

    Example:
        >>> parts = RowGroupParts.of(np.array([4, 10, 0]), np.array([4, 4, 1]))
        >>> parts.groups.tolist(), parts.firsts.tolist(), parts.rows.tolist()
        ([0, 1, 1, 1, 2], [0, 0, 4, 8, 0], [4, 4, 4, 2, 0])
        >>> parts.is_divided.tolist(), parts.in_row_groups(np.array([1, 3]), np.array([3, 0]))[1].tolist()
        ([False, True, True, True, False], [3, 8])
    """

    groups: NDArray[np.int32]
    """Row group of each part, ascending, shape (parts,)."""

    firsts: NDArray[np.int64]
    """First row of each part in its row group, shape (parts,)."""

    rows: NDArray[np.int64]
    """Number of rows of each part, shape (parts,)."""

    @classmethod
    def of(cls, rows: NDArray[np.int64], rows_of_part: NDArray[np.int64]) -> RowGroupParts:
        """Return the division of each row group into parts with a given maximum of rows.

        Args:
            rows: Rows of each row group, shape (groups,).
            rows_of_part: Maximum rows of a part in each row group, at least 1, shape (groups,). Only the last part of a
                row group may have fewer rows.
        """
        counts = np.maximum(-(-rows // rows_of_part), 1)
        groups = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
        numbers = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
        firsts = numbers * rows_of_part[groups]
        return cls(groups, firsts, np.minimum(rows[groups] - firsts, rows_of_part[groups]))

    @once
    def starts(self) -> NDArray[np.int64]:
        """Number of the first part of each row group, then the number of all parts.

        Shape (groups + 1,).
        """
        counts = np.bincount(self.groups)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @once
    def is_divided(self) -> NDArray[np.bool_]:
        """Mask of the parts whose row group has several parts, shape (parts,)."""
        return np.diff(self.starts)[self.groups] > 1

    def in_row_groups(
        self, parts: NDArray[np.int32], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Convert row numbers in parts to row numbers in row groups.

        Args:
            parts: Part of each row, shape (n,).
            rows: Row number in the part, shape (n,).

        Returns:
            Row group of each row, and row number in the row group, both of shape (n,).
        """
        return self.groups[parts], self.firsts[parts] + rows

    def of_line(self, groups: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the parts of given row groups, shape (parts,).

        All parts of the first row group come first, in file order, then those of the next one.

        Example:
            >>> RowGroupParts.of(np.array([4, 10]), np.array([4, 4])).of_line(np.array([1, 0], np.int32)).tolist()
            [1, 2, 3, 0]
        """
        counts = np.diff(self.starts)[groups]
        numbers = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return (np.repeat(self.starts[groups], counts) + numbers).astype(np.int32)

    def of_groups(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of `values` over the parts of each row group, shape (groups,).

        Args:
            values: A value for each part, shape (parts,).
        """
        return np.add.reduceat(values, self.starts[:-1]) if len(values) else values

    def inventory(self, inventory: Inventory) -> Inventory:
        """Return an inventory with an entry for each part instead of each row group.

        The bytes of a row group are divided among its parts in proportion to rows.

        Example:
            >>> parts = RowGroupParts.of(np.array([4, 10]), np.array([4, 4]))
            >>> divided = parts.inventory(Inventory.of_rows([4, 10]))
            >>> divided.ordinal.tolist(), divided.decoded_bytes.tolist()
            ([0, 1, 1, 1], [32, 32, 32, 16])
        """
        groups = self.groups
        share = self.rows / np.maximum(inventory.rows[groups], 1)
        return Inventory(
            files=inventory.files,
            file=inventory.file[groups],
            ordinal=inventory.ordinal[groups],
            rows=self.rows,
            stored_bytes=np.ceil(inventory.stored_bytes[groups] * share).astype(np.int64),
            decoded_bytes=np.ceil(inventory.decoded_bytes[groups] * share).astype(np.int64),
        )

    def selection(self, selection: Selection | None) -> Selection | None:
        """Convert a selection of rows from row groups to parts.

        None, for all rows, is returned unchanged.

        Example:
            >>> parts = RowGroupParts.of(np.array([4, 10]), np.array([4, 4]))
            >>> flags = np.arange(10) % 5 == 4
            >>> parts.selection(Selection(np.array([0, 2]), {1: flags})).counts.tolist()
            [0, 0, 1, 1]
        """
        if selection is None:
            return None
        bitmaps = selection.packed
        flags = (
            (part, of_group[self.firsts[part] :][: self.rows[part]])
            for group, of_group in bitmaps.items()
            for part in range(*self.starts[group : group + 2].tolist())
        )
        return Selection.of_flags(flags, self.rows, whole=(selection.counts > 0)[self.groups])
