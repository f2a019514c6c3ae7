"""Series: windows of rows that share a key, such as a sensor, also where rows of several series are interleaved. Pure.

All rows are laid on one line: series after series, and those of a series in the order of the dataset. Windows lie on
this line as those of one sequence lie on the dataset, except that a run ends where a series does. Of each row group,
the rows of one series are a *segment*; the rows of a row group are kept segment after segment. Where they are so in the
file, as in data that is sorted by series and time, nothing is kept of single rows, else 4 bytes each.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from petastore.once import once
from petastore.plan.windows.timestamps import follow_closely
from petastore.plan.windows.window_starts import Line
from petastore.plan.windows.windows import Following, Windows

__all__ = ["SeriesLine", "SeriesOfGroup", "SeriesWindows", "series_of_group"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class SeriesOfGroup:
    """Rows of a row group, segment after segment, kept while window starts are found."""

    keys: Sequence[Hashable]
    """The series of each segment."""

    counts: NDArray[np.int64]
    """Rows of each segment, shape (segments,)."""

    order: NDArray[np.int32] | None
    """The rows, segment after segment, shape (rows,); None where that is the order of the row group."""

    firsts: NDArray[Any]
    """The first timestamp of each segment, shape (segments,)."""

    lasts: NDArray[Any]
    """The last timestamp of each segment, shape (segments,)."""

    breaks: NDArray[np.int64]
    """Places of rows that do not follow the row before in their segment closely, ascending."""

    ties: NDArray[np.int64]
    """Places of rows with the timestamp of the row before in their segment, ascending."""

    unsorted: tuple[int, int] | None
    """The first row whose timestamp is less than that of the row before in its segment, and that row; None if all are
    sorted."""


def series_of_group(
    codes: NDArray[np.int32], keys: Sequence[Hashable], timestamps: NDArray[Any], most: Any
) -> SeriesOfGroup:
    """Return what is kept of a row group.

    Args:
        codes: The series of each row, as a place in `keys`, shape (rows,).
        keys: The series that have rows, each once.
        timestamps: From `petastore.plan.windows.timestamps.comparable`, shape (rows,), one at least.
        most: From `most_between`.

    Example:
        >>> kept = series_of_group(np.array([0, 1, 0, 1]), ["a", "b"], np.array([0, 5, 1, 9]), np.uint64(1))
        >>> kept.order.tolist(), kept.counts.tolist(), kept.breaks.tolist()
        ([0, 2, 1, 3], [2, 2], [3])
    """
    order = None if (codes[:-1] <= codes[1:]).all() else np.argsort(codes, kind="stable").astype(np.int32)
    stamps = timestamps if order is None else timestamps[order]
    counts = np.bincount(codes, minlength=len(keys)).astype(np.int64)
    starts = np.cumsum(counts) - counts
    goes_on = np.ones(len(stamps), dtype=np.bool_)
    goes_on[starts] = False
    before, after, goes_on = stamps[:-1], stamps[1:], goes_on[1:]
    wrong = np.flatnonzero(~(before <= after).astype(np.bool_) & goes_on)
    rows = np.arange(len(stamps)) if order is None else order
    return SeriesOfGroup(
        keys=keys,
        counts=counts,
        order=order,
        firsts=stamps[starts],
        lasts=stamps[starts + counts - 1],
        breaks=np.flatnonzero(~follow_closely(before, after, most) & goes_on) + 1,
        ties=np.flatnonzero((before == after).astype(np.bool_) & goes_on) + 1,
        unsorted=(int(rows[wrong[0] + 1]), int(rows[wrong[0]])) if len(wrong) else None,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesLine:
    """The rows of a dataset, series after series."""

    bounds: NDArray[np.int64]
    """The first segment of each row group, and the number of all segments, shape (groups + 1,)."""

    counts: NDArray[np.int64]
    """Rows of each segment, row group after row group, shape (segments,)."""

    series: NDArray[np.int64]
    """The number of the series of each segment, shape (segments,)."""

    orders: Mapping[int, NDArray[np.int32]]
    """Rows of each row group, segment after segment, unless these are all rows in file order."""

    @once
    def by_line(self) -> NDArray[np.int64]:
        """The segments in the order of the line, shape (segments,)."""
        return np.argsort(self.series, kind="stable")

    @once
    def offsets(self) -> NDArray[np.int64]:
        """Where each segment of `by_line` begins on the line, and where the last one ends, shape (segments + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts[self.by_line])]).astype(np.int64)

    @once
    def line_firsts(self) -> NDArray[np.int64]:
        """Where each segment begins on the line, shape (segments,)."""
        firsts = np.empty(len(self.counts), dtype=np.int64)
        firsts[self.by_line] = self.offsets[:-1]
        return firsts

    @once
    def group_firsts(self) -> NDArray[np.int64]:
        """Where each segment begins among the rows of its row group, shape (segments,)."""
        begins = np.cumsum(self.counts) - self.counts
        return begins - np.repeat(np.append(begins, 0)[self.bounds[:-1]], np.diff(self.bounds))

    @once
    def groups(self) -> NDArray[np.int32]:
        """The row group of each segment, shape (segments,)."""
        return np.repeat(np.arange(len(self.bounds) - 1, dtype=np.int32), np.diff(self.bounds))

    @once
    def is_continued(self) -> NDArray[np.bool_]:
        """Whether an earlier row group has rows of the series of each segment, shape (segments,)."""
        series = self.series[self.by_line]
        continued = np.zeros(len(series), dtype=np.bool_)
        continued[self.by_line[1:]] = series[1:] == series[:-1]
        return continued

    def segments_of(self, group: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The segments of some places among the rows of a row group."""
        first, stop = self.bounds[group : group + 2].tolist()
        return first + np.searchsorted(self.group_firsts[first:stop], places, side="right") - 1

    def on_line(self, group: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places on the line of some places among the rows of a row group."""
        segments = self.segments_of(group, places)
        return self.line_firsts[segments] + places - self.group_firsts[segments]

    def places_of(self, group: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of some rows of a row group among those of which windows are made, segment after segment."""
        order = self.orders.get(group)
        if order is None:
            return rows
        by_row = np.argsort(order, kind="stable")
        return by_row[np.searchsorted(order, rows, sorter=by_row)]

    def rows_at(self, line: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Row groups and rows inside them at some places on the line, both of shape (n,)."""
        segments = self.by_line[np.searchsorted(self.offsets, line, side="right") - 1]
        groups = self.groups[segments]
        rows = self.group_firsts[segments] + line - self.line_firsts[segments]
        for group in np.unique(groups).tolist():
            if group in self.orders:
                here = groups == group
                rows[here] = self.orders[group][rows[here]]
        return groups, rows

    def rows_of(self, group: int) -> NDArray[np.int32] | slice:
        """All rows of a row group of which windows are made, segment after segment; indexes an array of its rows."""
        return self.orders.get(group, slice(None))

    @classmethod
    def of(cls, num_groups: int, parts: Mapping[int, SeriesOfGroup]) -> Self:
        """The line of a dataset, from what was kept of each row group that has rows."""
        numbers: dict[Hashable, int] = {}
        series = [numbers.setdefault(key, len(numbers)) for part in parts.values() for key in part.keys]
        segments = np.zeros(num_groups, dtype=np.int64)
        segments[list(parts)] = [len(part.keys) for part in parts.values()]
        return cls(
            bounds=np.concatenate([[0], np.cumsum(segments)]).astype(np.int64),
            counts=np.concatenate([np.empty(0, np.int64), *(part.counts for part in parts.values())]),
            series=np.array(series, dtype=np.int64),
            orders={group: part.order for group, part in parts.items() if part.order is not None},
        )

    @classmethod
    def joined(cls, lines: Sequence[SeriesLine]) -> Self:
        """The line of several datasets, row groups numbered through all of them; no two share a series."""
        first_groups = itertools.accumulate((len(line.bounds) - 1 for line in lines), initial=0)
        first_segments = itertools.accumulate((len(line.counts) for line in lines), initial=0)
        first_series = itertools.accumulate((int(line.series.max(initial=-1)) + 1 for line in lines), initial=0)
        bounds = [line.bounds[:-1] + first for line, first in zip(lines, first_segments, strict=False)]
        return cls(
            bounds=np.append(np.concatenate(bounds), sum(len(line.counts) for line in lines)),
            counts=np.concatenate([line.counts for line in lines]),
            series=np.concatenate([line.series + first for line, first in zip(lines, first_series, strict=False)]),
            orders={
                first + group: order
                for line, first in zip(lines, first_groups, strict=False)
                for group, order in line.orders.items()
            },
        )

    def window_starts(
        self, parts: Mapping[int, SeriesOfGroup], most: Any, *, length: int, overlap: bool
    ) -> dict[int, NDArray[np.bool_]]:
        """Return for each row group whether a window begins with each row, segment after segment.

        Args:
            parts: What the line was made of.
            most: From `most_between`.
            length: Rows of a window.
            overlap: Whether windows may share timestamps; see `petastore.plan.windows.ngram.NGram`.
        """
        if not parts:
            return {}
        firsts, lasts = (
            np.concatenate([getattr(part, name) for part in parts.values()])[self.by_line]
            for name in ("firsts", "lasts")
        )
        inside = self.offsets[1:-1]
        is_continued = self.is_continued[self.by_line][1:]
        follows = follow_closely(lasts[:-1], firsts[1:], most) & is_continued
        ties = (lasts[:-1] == firsts[1:]).astype(np.bool_) & is_continued
        breaks = [self.on_line(group, part.breaks) for group, part in parts.items()]
        tied = [self.on_line(group, part.ties) for group, part in parts.items()]
        begins = np.sort(np.concatenate([[0], inside[~follows], *breaks])).astype(np.int64)
        rows = int(self.offsets[-1])
        line = Line(
            np.array([0, rows]), begins, np.append(begins[1:], rows), np.sort(np.concatenate([inside[ties], *tied]))
        )
        (flags,) = line.starts(length, overlap=overlap)
        return {group: flags[self.on_line(group, np.arange(int(part.counts.sum())))] for group, part in parts.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesWindows(Windows):
    """The windows of the series of a dataset. Thread-safe.

    Example:
        >>> from petastore.plan.selection import Selection
        >>> parts = {
        ...     group: series_of_group(np.array(codes), ["a", "b"], np.array(times), np.uint64(1))
        ...     for group, (codes, times) in enumerate([([0, 1, 0], [0, 0, 1]), ([0, 1], [2, 1])])
        ... }
        >>> line = SeriesLine.of(2, parts)
        >>> starts = Selection(np.array([3, 0]), {})
        >>> windows = SeriesWindows(np.array([3, 2]), None, starts, length=2, line=line)
        >>> windows.covered(np.array([0, 0, 0], np.int32), np.array([0, 1, 2])).tolist()
        [[0, 2], [1, 4], [2, 3]]
        >>> [(rest.group, rest.rows.tolist()) for rest in windows.following(0)]
        [(1, [0, 1])]
    """

    line: SeriesLine
    """The rows, series after series."""

    @property
    def most_following(self) -> NDArray[np.int64]:
        """Rows that each row group is extended by at most, shape (groups,)."""
        return np.diff(self.line.bounds) * (self.length - 1)

    def head(self, group: int) -> int:
        """Rows from the first one on of which windows that begin in earlier row groups may need some."""
        line, (first, stop) = self.line, self.line.bounds[group : group + 2].tolist()
        continued = np.flatnonzero(line.is_continued[first:stop]) + first
        counts = np.minimum(line.counts[continued], self.length - 1)
        places = np.repeat(line.group_firsts[continued] - (np.cumsum(counts) - counts), counts)
        places += np.arange(len(places))
        order = line.orders.get(group)
        return int((places if order is None else order[places]).max(initial=-1)) + 1

    def _following(self, group: int) -> tuple[Following, ...]:
        if self.starts.counts[group] == 0:
            return ()
        bitmap = self.starts.bitmaps.get(group)
        rows = np.arange(int(self.rows[group])) if bitmap is None else np.flatnonzero(bitmap)
        line, ends = self._on_line(group, rows)
        covered = np.unique(line[line >= ends])
        groups, rows = self.line.rows_at(covered)
        by_group = np.lexsort((rows, groups))
        groups, rows = groups[by_group], rows[by_group]
        return tuple(Following(other, rows[groups == other]) for other in np.unique(groups).tolist())

    def _on_line(self, group: int, starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places on the line of the rows of windows, shape (n, length), and where their segments end, (n, 1)."""
        places = self.line.places_of(group, starts)
        segments = self.line.segments_of(group, places)
        firsts = self.line.line_firsts[segments]
        line = firsts + places - self.line.group_firsts[segments]
        return line[:, np.newaxis] + np.arange(self.length), (firsts + self.line.counts[segments])[:, np.newaxis]

    def covered(self, groups: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of windows, as rows of the extended row groups in which they begin; see `Windows.covered`."""
        rows, most = np.empty((len(starts), self.length), dtype=np.int64), int(self.rows.max(initial=0)) + 1
        for group in np.unique(groups).tolist():
            here = groups == group
            line, ends = self._on_line(group, starts[here])
            of_groups, of_rows = self.line.rows_at(line.ravel())
            beyond = (line >= ends).ravel()
            # behind: (following,) numbers of the rows that follow, ascending
            behind = np.concatenate([line[:0, 0], *(rest.group * most + rest.rows for rest in self.following(group))])
            asked = of_groups[beyond] * most + of_rows[beyond]
            of_rows[beyond] = self.rows[group] + np.searchsorted(behind, asked)
            rows[here] = of_rows.reshape(line.shape)
        return rows

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> SeriesWindows:
        """The windows of several datasets of one length, row groups numbered through all of them."""
        of_all = Windows.joined(parts)
        line = SeriesLine.joined([part.line for part in parts])
        return cls(of_all.rows, of_all.selection, of_all.starts, of_all.length, line)
