"""Windows: the rows that each window covers, also across row-group boundaries. No I/O.

If windows of a row group extend beyond its end, the following rows that they need are stored together with the row
group. This *extended* row group has its own rows first and then at most `length - 1` following rows, so each window is
inside one extended row group.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.lazy import once
from petastore.plan.selection import RowBitmaps, Selection
from petastore.plan.windows.series import SeriesLine

__all__ = ["Following", "WindowStarts", "Windows"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class WindowStarts(Selection):
    """Start rows of windows. Their fingerprint includes the window definition."""

    length: int = 1
    """Number of rows of a window."""

    among: str | None = None
    """Fingerprint of the selection from which windows are formed; None means all rows."""

    group_by: tuple[str, ...] = ()
    """Names of the columns that identify the series of a row."""

    @once
    def fingerprint(self) -> str:
        """32 hexadecimal digits, equal for equal windows."""
        identity = (super().fingerprint, self.length, self.among, *self.group_by)
        return hashlib.sha256(repr(identity).encode()).hexdigest()[:32]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Following:
    """Rows of a later row group that windows of a row group need; they are appended to that row group in memory."""

    group: int
    """Number of the later row group."""

    rows: NDArray[np.int64]
    """Row numbers in the later row group, ascending, shape (n,)."""


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
    """Rows from which windows are formed; the others are ignored. None means all."""

    starts: Selection
    """Start rows of windows, a subset of `selection`."""

    length: int
    """Number of rows of a window."""

    series: SeriesLine | None = None
    """All rows, ordered series by series (`group_by` of `NGram`); None if all rows are one series."""

    @once
    def line(self) -> SeriesLine:
        """All rows, ordered series by series: each window is a range of consecutive rows in this order."""
        return SeriesLine.of_rows(self.rows, self.selection) if self.series is None else self.series

    @once
    def _known(self) -> dict[int, tuple[Following, ...]]:
        """Cached results of `following`, by row group."""
        return {}

    def following(self, group: int) -> tuple[Following, ...]:
        """Return the rows of later row groups that windows of a row group need, in dataset order; () if none."""
        following = self._known.get(group)
        if following is None:
            following = self._known[group] = self._following(group)
        return following

    def num_following(self, group: int) -> int:
        """Return the number of rows of later row groups that are appended to a row group for its windows."""
        return sum(len(rest.rows) for rest in self.following(group))

    @property
    def most_following(self) -> NDArray[np.int64]:
        """Maximum number of rows of later row groups that are appended to each row group, shape (groups,)."""
        return np.diff(self.line.bounds) * (self.length - 1)

    def head(self, group: int) -> int:
        """Return how many leading rows of a row group must be read for the windows of all earlier row groups."""
        line, (first, stop) = self.line, self.line.bounds[group : group + 2].tolist()
        continued = np.flatnonzero(line.is_continued[first:stop]) + first
        counts = np.minimum(line.counts[continued], self.length - 1)
        places = np.repeat(line.group_firsts[continued] - (np.cumsum(counts) - counts), counts)
        places += np.arange(len(places))
        order = line.orders.get(group)
        return int((places if order is None else order[places]).max(initial=-1)) + 1

    def _following(self, group: int) -> tuple[Following, ...]:
        """Compute, without the cache, the rows of later row groups that the windows of a row group need."""
        if self.starts.counts[group] == 0:
            return ()
        bitmap = self.starts.bitmaps.get(group)
        rows = np.arange(int(self.rows[group])) if bitmap is None else np.flatnonzero(bitmap)
        firsts, ends = self._on_line(group, rows)
        goes_on = firsts + self.length > ends
        line = firsts[goes_on, np.newaxis] + np.arange(self.length)
        groups, rows = self.line.rows_at(np.unique(line[line >= ends[goes_on, np.newaxis]]))
        by_group = np.lexsort((rows, groups))
        groups, rows = groups[by_group], rows[by_group]
        return tuple(Following(other, rows[groups == other]) for other in np.unique(groups).tolist())

    def _on_line(self, group: int, starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where windows that begin in a row group start in `line`, and where their part of the row group ends.

        Args:
            group: Number of the row group.
            starts: First row of each window, as row numbers in the row group, shape (n,).

        Returns:
            Index in `line` of each window's first row; and index after the last row that the row group has of the same
            series, both of shape (n,).
        """
        places = self.line.places_of(group, starts)
        segments = self.line.segments_of(group, places)
        firsts = self.line.line_firsts[segments]
        return firsts + places - self.line.group_firsts[segments], firsts + self.line.counts[segments]

    def covered(self, groups: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of windows, as row numbers in the row groups in which the windows begin.

        Numbers beyond the end of a row group mean rows of later row groups, appended to it in memory (`following`).

        Args:
            groups: Row group in which each window begins, shape (n,).
            starts: Start row of each window in its row group, shape (n,).

        Returns:
            Shape (n, length), a new array.
        """
        within = np.arange(self.length)
        if self.series is None and not self.line.orders:
            return starts[:, np.newaxis] + within
        rows, most = np.empty((len(starts), self.length), dtype=np.int64), int(self.rows.max(initial=0)) + 1
        for group in np.unique(groups).tolist():
            here = groups == group
            firsts, ends = self._on_line(group, starts[here])
            line = firsts[:, np.newaxis] + within
            of_groups, of_rows = self.line.rows_at(line.ravel())
            beyond = (line >= ends[:, np.newaxis]).ravel()
            # behind: shape (following,), the following rows as sort keys group · most + row, ascending
            behind = np.concatenate([firsts[:0], *(rest.group * most + rest.rows for rest in self.following(group))])
            needed = of_groups[beyond] * most + of_rows[beyond]
            of_rows[beyond] = self.rows[group] + np.searchsorted(behind, needed)
            rows[here] = of_rows.reshape(line.shape)
        return rows

    def origin(self, groups: NDArray[np.int32], rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Convert row numbers in extended row groups to row groups and row numbers of the dataset.

        An extended row group has its own rows, then the following rows that its windows need. Returns two new arrays of
        shape (n,).
        """
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
        """Return the windows of several datasets, with one length and row groups numbered across all of them.

        Example:
            >>> starts = Selection(np.array([2]), {0: np.array([True, True, False])})
            >>> one = Windows(np.array([3]), None, starts, length=2)
            >>> Windows.joined([one, one]).covered(np.array([1], np.int32), np.array([1])).tolist()
            [[1, 2]]
        """
        selections = [part.selection or Selection(part.rows, {}) for part in parts]
        chosen = None if all(part.selection is None for part in parts) else _joined_selections(selections)
        rows = np.concatenate([part.rows for part in parts])
        lines = [part.series for part in parts if part.series is not None]
        series = SeriesLine.joined(lines) if lines else None
        return cls(rows, chosen, _joined_selections([part.starts for part in parts]), parts[0].length, series)


def _joined_selections(selections: Sequence[Selection]) -> Selection:
    """Return one selection of several datasets, with row groups numbered across all of them."""
    counts = [selection.counts for selection in selections]
    firsts = itertools.accumulate(map(len, counts), initial=0)
    bitmaps = (
        (first + group, bitmap)
        for first, selection in zip(firsts, selections, strict=False)
        for group, bitmap in selection.bitmaps.items()
    )
    return Selection(np.concatenate(counts), RowBitmaps.pack(bitmaps))
