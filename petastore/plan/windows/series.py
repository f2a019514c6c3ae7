"""Series: windows of rows with the same key, such as the id of a sensor. No I/O.

The rows of several series may be interleaved in a file. Without a key, all rows are one series.

All rows are ordered series by series, each in dataset order; this order is the *line*. Windows are consecutive rows of
this line, and never cross the end of a series. The rows of one series in one row group are a *segment*; the line is
stored as the segments of each row group. If the files already have this order (sorted by series and time), no memory
per row is needed; otherwise 4 bytes per row.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from petastore.lazy import once
from petastore.plan.selection import Selection
from petastore.plan.windows.window_starts import Line, follow_closely

__all__ = ["SeriesLine", "SeriesOfGroup", "series_of_group"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class SeriesOfGroup:
    """Rows of one row group, sorted by series, while window starts are computed.

    A *segment* is the rows of one series in this row group. Indices count the rows after sorting by segment.
    """

    keys: Sequence[Hashable]
    """Key of each segment's series, such as the id of a sensor.

    A segment is the rows of one series in the row group."""

    counts: NDArray[np.int64]
    """Number of rows of each segment, shape (segments,).

    A segment is the rows of one series in the row group."""

    order: NDArray[np.int32] | None
    """Row numbers, sorted by segment, shape (rows,); None if this is file order."""

    firsts: NDArray[Any]
    """First timestamp of each segment, shape (segments,).

    A segment is the rows of one series in the row group."""

    lasts: NDArray[Any]
    """Last timestamp of each segment, shape (segments,).

    A segment is the rows of one series in the row group."""

    breaks: NDArray[np.int64]
    """Indices of rows after a gap in time in their series, ascending.

    The timestamp exceeds that of the previous row of the series by more than the maximum difference."""

    ties: NDArray[np.int64]
    """Indices of rows whose timestamp equals that of the previous row of the series.

    The indices are in ascending order."""

    unsorted: tuple[int, int] | None
    """First two neighboring rows of a series that are not sorted by timestamp.

    None if all rows are sorted. The pair has the number of the row with the lower timestamp, then the number of the row
    before it."""


def series_of_group(
    codes: NDArray[np.int32], keys: Sequence[Hashable], timestamps: NDArray[Any], most: Any
) -> SeriesOfGroup:
    """Divide the rows of a row group into segments, one for each series.

    Also find rows after a gap in time, rows with equal timestamps, and unsorted rows in the segments.

    Args:
        codes: Series of each row, as an index into `keys`, shape (rows,).
        keys: Distinct keys of the series that have rows in this row group.
        timestamps: Timestamp of each row, from `petastore.plan.windows.window_starts.comparable`, shape (rows,); at
            least one row.
        most: Maximum difference between timestamps of neighboring rows, from `most_between`.

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
    unsorted = None
    if len(wrong):
        places = np.array([wrong[0] + 1, wrong[0]])
        unsorted = tuple((places if order is None else order[places]).tolist())
    return SeriesOfGroup(
        keys=keys,
        counts=counts,
        order=order,
        firsts=stamps[starts],
        lasts=stamps[starts + counts - 1],
        breaks=np.flatnonzero(~follow_closely(before, after, most) & goes_on) + 1,
        ties=np.flatnonzero((before == after).astype(np.bool_) & goes_on) + 1,
        unsorted=unsorted,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesLine:
    """All rows of a dataset, ordered series by series; this order is the *line*."""

    bounds: NDArray[np.int64]
    """Number of the first segment of each row group, then the number of all segments.

    A segment is the rows of one series in one row group. Shape (groups + 1,)."""

    counts: NDArray[np.int64]
    """Number of rows of each segment, shape (segments,).

    A segment is the rows of one series in one row group."""

    series: NDArray[np.int64]
    """Number of the series to which each segment belongs, shape (segments,).

    A segment is the rows of one series in one row group."""

    orders: Mapping[int, NDArray[np.int32]]
    """For each row group, its row numbers sorted by series.

    A row group has no entry if this order has all of its rows in file order."""

    @once
    def by_line(self) -> NDArray[np.int64]:
        """Numbers of all segments, sorted by series; shape (segments,).

        A segment is the rows of one series in one row group.
        """
        return np.argsort(self.series, kind="stable")

    @once
    def offsets(self) -> NDArray[np.int64]:
        """Index on the line of the first row of each segment of `by_line`.

        The line is all rows, series by series; a segment is the rows of one series in one row group. The last entry is
        the number of all rows; shape (segments + 1,).
        """
        return np.concatenate([[0], np.cumsum(self.counts[self.by_line])]).astype(np.int64)

    @once
    def line_firsts(self) -> NDArray[np.int64]:
        """Index on the line of the first row of each segment; shape (segments,).

        The line is all rows, series by series; a segment is the rows of one series in one row group.
        """
        firsts = np.empty(len(self.counts), dtype=np.int64)
        firsts[self.by_line] = self.offsets[:-1]
        return firsts

    @once
    def group_firsts(self) -> NDArray[np.int64]:
        """Index of each segment's first row among the rows of its row group.

        The rows of a row group are sorted by series here; a segment is its rows of one series. Shape (segments,).
        """
        begins = np.cumsum(self.counts) - self.counts
        return begins - np.repeat(np.append(begins, 0)[self.bounds[:-1]], np.diff(self.bounds))

    @once
    def groups(self) -> NDArray[np.int32]:
        """Row group of each segment, shape (segments,).

        A segment is the rows of one series in one row group.
        """
        return np.repeat(np.arange(len(self.bounds) - 1, dtype=np.int32), np.diff(self.bounds))

    @once
    def is_continued(self) -> NDArray[np.bool_]:
        """Whether an earlier row group has rows of a segment's series; shape (segments,).

        A segment is the rows of one series in one row group.
        """
        series = self.series[self.by_line]
        continued = np.zeros(len(series), dtype=np.bool_)
        continued[self.by_line[1:]] = series[1:] == series[:-1]
        return continued

    def segments_of(self, group: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the segment to which given rows of a row group belong; shape (n,).

        A segment is the rows of one series in one row group. `places` are the indices of the rows in the row group,
        whose rows are sorted by series.
        """
        first, stop = self.bounds[group : group + 2].tolist()
        return first + np.searchsorted(self.group_firsts[first:stop], places, side="right") - 1

    def places_of(self, group: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert row numbers in a row group to indices after sorting its rows by series.

        `rows` has row numbers, shape (n,); the result has the same shape.
        """
        order = self.orders.get(group)
        if order is None:
            return rows
        by_row = np.argsort(order, kind="stable")
        return by_row[np.searchsorted(order, rows, sorter=by_row)]

    def rows_at(self, line: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the row group and row number of the rows at given indices of the line.

        The line is all rows, series by series. Both arrays have shape (n,).
        """
        segments = self.by_line[np.searchsorted(self.offsets, line, side="right") - 1]
        groups = self.groups[segments]
        rows = self.group_firsts[segments] + line - self.line_firsts[segments]
        for group in np.unique(groups).tolist():
            if group in self.orders:
                here = groups == group
                rows[here] = self.orders[group][rows[here]]
        return groups, rows

    @classmethod
    def of(cls, num_groups: int, parts: Mapping[int, SeriesOfGroup]) -> Self:
        """Return the line of a dataset, given the sorted rows of each non-empty row group.

        The line is all rows, series by series.
        """
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
    def of_rows(cls, rows: NDArray[np.int64], selection: Selection | None) -> Self:
        """Return the line of a dataset whose rows are all one series, in dataset order.

        Args:
            rows: Rows of each row group, shape (groups,).
            selection: Selected rows; None means all.
        """
        counts = rows if selection is None else selection.counts
        return cls(
            bounds=np.concatenate([[0], np.cumsum(counts > 0)]).astype(np.int64),
            counts=counts[counts > 0],
            series=np.zeros(int((counts > 0).sum()), dtype=np.int64),
            orders={} if selection is None else _SelectedRows(selection.bitmaps),
        )

    @classmethod
    def joined(cls, lines: Sequence[SeriesLine]) -> Self:
        """Return one line for several datasets, with row groups numbered across them.

        The line is all rows, series by series; no series has rows of two datasets.
        """
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
    ) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """Yield each row group, with a mask of its rows at which windows begin.

        The mask has the rows of the row group sorted by series. A row group is yielded as soon as the masks of all its
        series are computed. If all rows are one series, row groups come in dataset order.

        Args:
            parts: Sorted rows of each row group, from which this object was built.
            most: Maximum difference between timestamps of neighboring rows, from `most_between`.
            length: Number of rows of a window.
            overlap: Whether windows may share timestamps; see `petastore.plan.windows.ngram.NGram`.
        """
        if not parts:
            return
        firsts, lasts = (
            np.concatenate([getattr(part, name) for part in parts.values()])[self.by_line]
            for name in ("firsts", "lasts")
        )
        inside = self.offsets[1:-1]
        is_continued = self.is_continued[self.by_line][1:]
        follows = follow_closely(lasts[:-1], firsts[1:], most) & is_continued
        ties = (lasts[:-1] == firsts[1:]).astype(np.bool_) & is_continued
        breaks = self._all_on_line({group: part.breaks for group, part in parts.items()})
        tied = self._all_on_line({group: part.ties for group, part in parts.items()})
        begins = np.sort(np.concatenate([[0], inside[~follows], breaks]))
        line = Line(
            self.offsets, begins, np.append(begins[1:], self.offsets[-1]), np.sort(np.concatenate([inside[ties], tied]))
        )
        of_segments: dict[int, NDArray[np.bool_]] = {}
        groups, bounds, lacking = self.groups.tolist(), self.bounds.tolist(), np.diff(self.bounds).tolist()
        for segment, flags in zip(self.by_line.tolist(), line.starts(length, overlap=overlap), strict=True):
            of_segments[segment], group = flags, groups[segment]
            lacking[group] -= 1
            if not lacking[group]:
                each = [of_segments.pop(segment) for segment in range(bounds[group], bounds[group + 1])]
                yield group, each[0] if len(each) == 1 else np.concatenate(each)

    def _all_on_line(self, places: Mapping[int, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Convert indices in each row group's order by series to indices on the line.

        The line is all rows, series by series. The result is not sorted.
        """
        starts = np.cumsum(self.counts) - self.counts
        firsts = starts[self.bounds[list(places)]].tolist()
        of_all = np.concatenate([own + first for first, own in zip(firsts, places.values(), strict=True)])
        segments = np.searchsorted(starts, of_all, side="right") - 1
        return self.line_firsts[segments] + of_all - starts[segments]


class _SelectedRows(Mapping[int, NDArray[np.int32]]):
    """Selected rows of each partly selected row group, ascending; unpacked on access."""

    def __init__(self, bitmaps: Mapping[int, NDArray[np.bool_]]) -> None:
        self._bitmaps = bitmaps
        self._rows = functools.lru_cache(maxsize=16)(lambda group: np.flatnonzero(bitmaps[group]).astype(np.int32))

    def __getitem__(self, group: int) -> NDArray[np.int32]:
        return self._rows(group)

    def __contains__(self, group: object) -> bool:
        return group in self._bitmaps

    def __iter__(self) -> Iterator[int]:
        return iter(self._bitmaps)

    def __len__(self) -> int:
        return len(self._bitmaps)
