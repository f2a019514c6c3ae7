"""Windows: the rows that each window covers, also across row groups. No I/O.

If windows of a row group extend beyond its end, the following rows that they need are stored together with the row
group. This *extended* row group has its own rows first and then the following rows, at most `length - 1` for each
series. Each window is therefore inside one extended row group.
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
    """Start rows of windows, as a selection of rows.

    The fingerprint depends also on `length`, `among` and `group_by`.
    """

    length: int = 1
    """Number of rows of a window."""

    among: str | None = None
    """Fingerprint of the selection of rows from which windows are formed.

    None means all rows."""

    group_by: tuple[str, ...] = ()
    """Names of the columns that identify the series of a row; () for a single series."""

    @once
    def fingerprint(self) -> str:
        """Fingerprint: 32 hexadecimal digits, equal for equal windows."""
        identity = (super().fingerprint, self.length, self.among, *self.group_by)
        return hashlib.sha256(repr(identity).encode()).hexdigest()[:32]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Following:
    """Rows of a later row group that windows of an earlier row group need.

    In memory, these rows are appended to the earlier row group.
    """

    group: int
    """Number of the later row group."""

    rows: NDArray[np.int64]
    """Row numbers in the later row group, ascending, shape (n,)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Windows:
    """Windows of a dataset, and the rows that they contain. Thread-safe.

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
    """Rows from which windows are formed; other rows are ignored. None means all rows."""

    starts: Selection
    """Start rows of the windows, a subset of `selection`."""

    length: int
    """Number of rows of a window."""

    series: SeriesLine | None = None
    """All rows, ordered series by series; None if all rows are one series.

    See `group_by` of `NGram`."""

    @once
    def line(self) -> SeriesLine:
        """All rows, ordered series by series.

        Each window is a range of consecutive rows in this order.
        """
        return SeriesLine.of_rows(self.rows, self.selection) if self.series is None else self.series

    @once
    def _known(self) -> dict[int, tuple[Following, ...]]:
        """Cached results of `following`, by row group."""
        return {}

    def following(self, group: int) -> tuple[Following, ...]:
        """Return the rows of later row groups that the windows of a row group need.

        They are in dataset order; () if there are none.
        """
        following = self._known.get(group)
        if following is None:
            following = self._known[group] = self._following(group)
        return following

    def num_following(self, group: int) -> int:
        """Return how many rows of later row groups are appended to a row group.

        The windows of the row group need these rows.
        """
        return sum(len(rest.rows) for rest in self.following(group))

    @property
    def most_following(self) -> NDArray[np.int64]:
        """Maximum number of later rows that may be appended to each row group, (groups,).

        Windows of a row group need these rows. For the exact number, see `num_following`.
        """
        return np.diff(self.line.bounds) * (self.length - 1)

    def head(self, group: int) -> int:
        """Return how many first rows of a row group cover the windows of earlier row groups.

        Windows that begin in an earlier row group may extend into these rows, but not beyond them.
        """
        line, (first, stop) = self.line, self.line.bounds[group : group + 2].tolist()
        continued = np.flatnonzero(line.is_continued[first:stop]) + first
        counts = np.minimum(line.counts[continued], self.length - 1)
        places = np.repeat(line.group_firsts[continued] - (np.cumsum(counts) - counts), counts)
        places += np.arange(len(places))
        order = line.orders.get(group)
        return int((places if order is None else order[places]).max(initial=-1)) + 1

    def _following(self, group: int) -> tuple[Following, ...]:
        """Compute `following` without the cache.

        The result has the rows of later row groups that the windows of a row group need.
        """
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
        """Return where windows begin, and where the row group's rows of their series end.

        Both are indices in `line`, the order of all rows by series.

        Args:
            group: Number of the row group.
            starts: First row of each window, as row numbers in the row group, shape (n,).

        Returns:
            Index of each window's first row, and index after the row group's last row of the same series; both of shape
            (n,).
        """
        places = self.line.places_of(group, starts)
        segments = self.line.segments_of(group, places)
        firsts = self.line.line_firsts[segments]
        return firsts + places - self.line.group_firsts[segments], firsts + self.line.counts[segments]

    def covered(self, groups: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of windows, as row numbers in the extended row groups.

        A window's row group is the one in which it begins. Numbers beyond the end of a row group mean rows of later row
        groups, which are appended to it in memory (`following`).

        Args:
            groups: Row group in which each window begins, shape (n,).
            starts: Start row of each window in its row group, shape (n,).

        Returns:
            Row numbers, a new array of shape (n, length).
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
            # behind: shape (following,), sort keys of the following rows, ascending; a key is group · most + row
            behind = np.concatenate([firsts[:0], *(rest.group * most + rest.rows for rest in self.following(group))])
            needed = of_groups[beyond] * most + of_rows[beyond]
            of_rows[beyond] = self.rows[group] + np.searchsorted(behind, needed)
            rows[here] = of_rows.reshape(line.shape)
        return rows

    def origin(self, groups: NDArray[np.int32], rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Convert row numbers in extended row groups to row groups and rows of the data.

        An extended row group has its own rows, then the following rows that its windows need. Return the row groups and
        the row numbers as two new arrays of shape (n,).
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
        """Return the windows of several datasets as one object.

        Row groups are numbered across all datasets. All datasets have windows of the same length.

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
    """Return one selection for several datasets.

    Row groups are numbered across all datasets.
    """
    counts = [selection.counts for selection in selections]
    firsts = itertools.accumulate(map(len, counts), initial=0)
    bitmaps = (
        (first + group, bitmap)
        for first, selection in zip(firsts, selections, strict=False)
        for group, bitmap in selection.bitmaps.items()
    )
    return Selection(np.concatenate(counts), RowBitmaps.pack(bitmaps))
