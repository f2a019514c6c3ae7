"""A selection: which rows of each row group a filter keeps, as counts and bitmaps. Pure.

The plan runs on the counts, so epochs under a filter are as even, elastic and resumable as without one. A selection
also says what left the other rows out; that is for people, and selections of the same rows are equal whatever they say.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.once import once

__all__ = ["PRUNED_BY", "Pruned", "PrunedBy", "Selection"]

PrunedBy: TypeAlias = Literal[
    "row-group index", "partition values", "statistics", "filter", "predicate", "windows", "selection"
]
"""What can leave rows out, in words; see `PRUNED_BY`."""

PRUNED_BY: tuple[PrunedBy, ...] = get_args(PrunedBy)
"""What can leave rows out, in the order in which it is asked: a selector that asks an index, directory names, then the
statistics of row groups, then the filter and the predicate, which are asked about each row that is left. Where windows
are read, rows with which none begins are left out by `"windows"`. By `"selection"` is what nobody kept account of:
somebody made the selection by hand."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pruned:
    """What one step of a search left out.

    Example:
        >>> Pruned("statistics", row_groups=3, rows=3000)
        Pruned(by='statistics', row_groups=3, rows=3000)
    """

    by: PrunedBy
    """One of `PRUNED_BY`."""

    row_groups: int
    """Row groups of which it left out all rows that were there until then; those without rows are not counted."""

    rows: int
    """Rows that it left out, those of whole row groups included."""

    def __post_init__(self) -> None:
        if self.by not in PRUNED_BY or self.row_groups < 0 or self.rows < self.row_groups:
            raise InvalidArgumentError(
                f"{self} cannot be: it is by one of {PRUNED_BY}, and each row group has a row or more"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """Which rows are meant, row group by row group.

    Two selections are equal when their fingerprints are.

    Example:
        >>> selection = Selection(np.array([5, 2, 0]), {1: np.array([False, True, False, True])})
        >>> selection.rows_at(np.array([0, 1, 1], np.int32), np.array([3, 0, 1])).tolist()
        [3, 1, 3]
        >>> selection
        Selection(7 rows in 2 of 3 row groups)
    """

    counts: NDArray[np.int64]
    """Rows of each row group that are meant, shape (groups,)."""

    bitmaps: Mapping[int, NDArray[np.bool_]]
    """Of each row group of which some rows are meant and others are not: True where one is, shape (rows,)."""

    pruned: tuple[Pruned, ...] = ()
    """What left out the other rows, step by step; where nobody kept account, less than all of them. No part of the
    fingerprint."""

    def __post_init__(self) -> None:
        counts = np.array(self.counts, dtype=np.int64)
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)
        for group, bitmap in self.bitmaps.items():
            if not 0 <= group < len(counts) or int(bitmap.sum()) != counts[group]:
                raise InvalidArgumentError(
                    f"the bitmap of row group {group} does not hold the rows that are counted for it"
                )

    @once
    def fingerprint(self) -> str:
        """32 hexadecimal digits that equal selections share."""
        digest = hashlib.sha256(self.counts.astype("<i8").tobytes())
        for group in sorted(self.bitmaps):
            digest.update(group.to_bytes(8, "little") + np.packbits(self.bitmaps[group]).tobytes())
        return digest.hexdigest()[:32]

    def rows_at(self, groups: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows inside their row groups, given by their places among those that are meant.

        Args:
            groups: Row group of each, shape (n,).
            places: Place among the rows of its row group that are meant, from 0; shape (n,).

        Returns:
            Shape (n,), a new array.
        """
        rows = places.copy()
        for group in np.unique(groups).tolist():
            if group in self.bitmaps:
                here = groups == group
                rows[here] = self._chosen_rows(group)[places[here]]
        return rows

    @once
    def _rows_of_groups(self) -> dict[int, NDArray[np.int64]]:
        return {}

    def _chosen_rows(self, group: int) -> NDArray[np.int64]:
        # Worked out when a row group is first met, and kept: 8 bytes for each row that is meant in it.
        rows = self._rows_of_groups.get(group)
        if rows is None:
            rows = self._rows_of_groups[group] = np.flatnonzero(self.bitmaps[group])
        return rows

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, Selection) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        kept = int((self.counts > 0).sum())
        return f"{type(self).__name__}({int(self.counts.sum()):,} rows in {kept:,} of {len(self.counts):,} row groups)"
