"""Windows: which rows each of them covers, also across the borders of row groups. Pure.

A row group whose windows reach beyond its end is kept together with the rows that they need of those that follow: the
*extended* row group has its own rows first and then these, at most a window's length less one. So each window lies in
one extended row group, and whoever has it at hand needs no other.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.once import once
from petastore.plan.selection import Selection

__all__ = ["Following", "WindowStarts", "Windows"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class WindowStarts(Selection):
    """The rows with which windows begin. Their fingerprint also says what the windows are."""

    length: int = 1
    """Rows of a window."""

    among: str | None = None
    """Fingerprint of the selection of rows that windows are made of; None is all."""

    group_by: tuple[str, ...] = ()
    """Names of the columns that say which series a row is of."""

    @once
    def fingerprint(self) -> str:
        """32 hexadecimal digits that equal windows share."""
        said = (super().fingerprint, self.length, self.among, *self.group_by)
        return hashlib.sha256(repr(said).encode()).hexdigest()[:32]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Following:
    """Rows that an extended row group has of one that follows it."""

    group: int
    """Number of the row group that follows."""

    rows: NDArray[np.int64]
    """Its rows, ascending, shape (n,)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Windows:
    """The windows of a dataset. Thread-safe.

    Example:
        >>> starts = Selection(np.array([2, 0, 0]), {0: np.array([False, True, True])})
        >>> windows = Windows(np.array([3, 1, 4]), None, starts, length=4)
        >>> [(rest.group, rest.rows.tolist()) for rest in windows.following(0)]
        [(1, [0]), (2, [0, 1])]
        >>> windows.covered(np.array([0, 0], np.int32), np.array([1, 2])).tolist()
        [[1, 2, 3, 4], [2, 3, 4, 5]]
        >>> [array.tolist() for array in windows.origin(np.array([0, 0, 0], np.int32), np.array([2, 3, 5]))]
        [[0, 1, 2], [2, 0, 1]]
    """

    rows: NDArray[np.int64]
    """Rows of each row group of the dataset, shape (groups,)."""

    selection: Selection | None
    """Which of them windows are made of; the others are as if they were not there. None is all."""

    starts: Selection
    """With which rows windows begin; each is among those of `selection`."""

    length: int
    """Rows of a window."""

    @once
    def _counts(self) -> NDArray[np.int64]:
        return self.rows if self.selection is None else self.selection.counts

    @once
    def _known(self) -> dict[int, tuple[Following, ...]]:
        return {}

    def following(self, group: int) -> tuple[Following, ...]:
        """The rows that a row group is extended by, in the order of the dataset; () where its windows end with it."""
        following = self._known.get(group)
        if following is None:
            following = self._known[group] = self._following(group)
        return following

    def num_following(self, group: int) -> int:
        """How many rows a row group is extended by."""
        return sum(len(rest.rows) for rest in self.following(group))

    @property
    def most_following(self) -> int | NDArray[np.int64]:
        """Rows that a row group is extended by at most; of each one, shape (groups,), where they differ."""
        return self.length - 1

    def head(self, group: int) -> int:
        """Rows from the first one on of which windows that begin in earlier row groups may need some."""
        count = min(self.length - 1, int(self._counts[group]))
        return int(self._chosen(group, count)[-1]) + 1 if count else 0

    def _following(self, group: int) -> tuple[Following, ...]:
        if self.starts.counts[group] == 0:
            return ()
        bitmap = self.starts.bitmaps.get(group)
        last_row = int(self.rows[group]) - 1 if bitmap is None else int(np.flatnonzero(bitmap)[-1])
        last_place = int(self._places(group, np.array([last_row]))[0])
        lacking = last_place + self.length - int(self._counts[group])
        following = []
        while lacking > 0:
            group += 1
            taken = min(lacking, int(self._counts[group]))
            if taken:
                following.append(Following(group, self._chosen(group, taken)))
                lacking -= taken
        return tuple(following)

    def _chosen(self, group: int, first: int) -> NDArray[np.int64]:
        """The first rows of a row group of which windows are made."""
        places = np.arange(first)
        if self.selection is None:
            return places
        return self.selection.rows_at(np.full(first, group, dtype=np.int32), places)

    def _places(self, group: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of rows of a row group among those of which windows are made."""
        if self.selection is None or group not in self.selection.bitmaps:
            return rows
        return np.searchsorted(self._chosen(group, int(self._counts[group])), rows)

    def covered(self, groups: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of windows, as rows of the extended row groups in which they begin.

        Args:
            groups: Of each window the row group in which it begins, shape (n,).
            starts: The row there with which it begins, shape (n,).

        Returns:
            Shape (n, length), a new array.
        """
        within = np.arange(self.length)
        if self.selection is None or not self.selection.bitmaps:
            return starts[:, np.newaxis] + within
        rows = np.empty((len(starts), self.length), dtype=np.int64)
        for group in np.unique(groups).tolist():
            here = groups == group
            own = int(self._counts[group])
            places = self._places(group, starts[here])[:, np.newaxis] + within
            chosen = self._chosen(group, own)
            extended = np.concatenate([chosen, self.rows[group] + np.arange(self.num_following(group))])
            rows[here] = extended[places]
        return rows

    def origin(self, groups: NDArray[np.int32], rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Where rows of extended row groups come from: row group and row there, both of shape (n,), new arrays."""
        found_groups, found_rows = groups.copy(), rows.copy()
        beyond = np.flatnonzero(rows >= self.rows[groups])
        for group in np.unique(groups[beyond]).tolist():
            here = beyond[groups[beyond] == group]
            places = rows[here] - self.rows[group]
            rests = self.following(group)
            found_groups[here] = np.repeat([rest.group for rest in rests], [len(rest.rows) for rest in rests])[places]
            found_rows[here] = np.concatenate([rest.rows for rest in rests])[places]
        return found_groups, found_rows

    @classmethod
    def joined(cls, parts: Sequence[Windows]) -> Windows:
        """The windows of several datasets of one length, row groups numbered through all of them.

        Example:
            >>> starts = Selection(np.array([2]), {0: np.array([True, True, False])})
            >>> one = Windows(np.array([3]), None, starts, length=2)
            >>> Windows.joined([one, one]).covered(np.array([1], np.int32), np.array([1])).tolist()
            [[1, 2]]
        """
        selections = [part.selection or Selection(part.rows, {}) for part in parts]
        chosen = None if all(part.selection is None for part in parts) else _joined(selections)
        rows = np.concatenate([part.rows for part in parts])
        return cls(rows, chosen, _joined([part.starts for part in parts]), parts[0].length)


def _joined(selections: Sequence[Selection]) -> Selection:
    bitmaps: dict[int, NDArray[np.bool_]] = {}
    first = 0
    for selection in selections:
        bitmaps |= {first + group: bitmap for group, bitmap in selection.bitmaps.items()}
        first += len(selection.counts)
    return Selection(np.concatenate([selection.counts for selection in selections]), bitmaps)
