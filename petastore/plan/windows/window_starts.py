"""Window starts: from the timestamps of sorted rows, the rows with which windows begin. Pure.

Of each row group little is kept, so that it does not matter how many there are: its first and its last timestamp, and
the places at which a row does not follow the row before it closely enough. Rows between two such places are a *run*; a
window is `length` consecutive rows of one run. Runs go on across the borders of row groups.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.plan.windows.timestamps import follow_closely

__all__ = ["Line", "Stretch", "first_unsorted", "stretch_of", "window_starts"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Stretch:
    """What is kept of the timestamps of some consecutive rows, one at least."""

    rows: int
    """How many."""

    ends: NDArray[Any]
    """The first timestamp and the last, shape (2,)."""

    breaks: NDArray[np.int64]
    """Rows that do not follow the row before closely, ascending; never row 0."""

    ties: NDArray[np.int64]
    """Rows with the timestamp of the row before, ascending; never row 0."""


def first_unsorted(timestamps: NDArray[Any]) -> int | None:
    """The first row whose timestamp is less than that of the row before; None where all are sorted.

    Example:
        >>> first_unsorted(np.array([1, 1, 3, 2, 0])), first_unsorted(np.array([1, 1]))
        (3, None)
    """
    descents = np.flatnonzero(~(timestamps[:-1] <= timestamps[1:]).astype(np.bool_))
    return int(descents[0]) + 1 if len(descents) else None


def stretch_of(timestamps: NDArray[Any], most: Any) -> Stretch:
    """What is kept of the timestamps of sorted rows.

    Args:
        timestamps: From `petastore.plan.windows.timestamps.comparable`, shape (rows,), one at least.
        most: From `most_between`.
    """
    before, after = timestamps[:-1], timestamps[1:]
    return Stretch(
        rows=len(timestamps),
        ends=timestamps[[0, -1]],
        breaks=np.flatnonzero(~follow_closely(before, after, most)) + 1,
        ties=np.flatnonzero((before == after).astype(np.bool_)) + 1,
    )


def window_starts(
    stretches: Sequence[Stretch], most: Any, *, length: int, overlap: bool
) -> Iterator[NDArray[np.bool_]]:
    """Of each row of consecutive stretches: whether a window begins with it.

    Args:
        stretches: In the order of the dataset.
        most: As for `stretch_of`.
        length: Rows of a window.
        overlap: Whether windows may share timestamps; see `petastore.plan.windows.ngram.NGram`.

    Returns:
        Of each stretch an array of shape (rows,), one after the other: together they are as long as the dataset.

    Example:
        >>> parts = [np.array([0, 1, 2]), np.array([3, 9]), np.array([10, 11])]
        >>> stretches = [stretch_of(part, np.uint64(1)) for part in parts]
        >>> [starts.tolist() for starts in window_starts(stretches, np.uint64(1), length=2, overlap=True)]
        [[True, True, True], [False, True], [True, False]]
        >>> [starts.tolist() for starts in window_starts(stretches, np.uint64(1), length=2, overlap=False)]
        [[True, False, True], [False, True], [False, False]]
    """
    if not stretches:
        return iter(())
    return Line.of(stretches, most).starts(length, overlap=overlap)


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """All stretches end to end."""

    offsets: NDArray[np.int64]
    """Where each stretch begins, and where the last one ends, shape (stretches + 1,)."""

    begins: NDArray[np.int64]
    """Where each run begins, shape (runs,)."""

    ends: NDArray[np.int64]
    """Where each run ends, half-open, shape (runs,)."""

    ties: NDArray[np.int64]
    """Rows with the timestamp of the row before in their run, ascending."""

    @classmethod
    def of(cls, stretches: Sequence[Stretch], most: Any) -> Line:
        """The line of stretches in the order of the dataset."""
        offsets = np.concatenate([[0], np.cumsum([stretch.rows for stretch in stretches])]).astype(np.int64)
        borders = offsets[1:-1]
        ends = np.stack([stretch.ends for stretch in stretches])
        lasts, firsts = ends[:-1, 1].copy(), ends[1:, 0].copy()
        inside = [stretch.breaks + offset for stretch, offset in zip(stretches, offsets[:-1], strict=True)]
        begins = np.sort(np.concatenate([[0], borders[~follow_closely(lasts, firsts, most)], *inside]))
        tied = [stretch.ties + offset for stretch, offset in zip(stretches, offsets[:-1], strict=True)]
        ties = np.sort(np.concatenate([borders[(lasts == firsts).astype(np.bool_)], *tied]))
        return cls(offsets, begins.astype(np.int64), np.append(begins[1:], offsets[-1]).astype(np.int64), ties)

    def starts(self, length: int, *, overlap: bool) -> Iterator[NDArray[np.bool_]]:
        """Return, for each stretch, whether a window starts at each row; see `window_starts`."""
        if overlap:
            firsts, stops = self.begins, self.ends - (length - 1)
            long_enough = stops > firsts
            return _cut_ranges(firsts[long_enough], stops[long_enough], self.offsets)
        return _cut_places(self.greedy(length), self.offsets)

    def greedy(self, length: int) -> NDArray[np.int64]:
        """Places of windows that share no timestamp, ascending."""
        first_tie, stop_tie = np.searchsorted(self.ties, self.begins, "right"), np.searchsorted(self.ties, self.ends)
        tied = np.flatnonzero(first_tie < stop_tie)
        plain = first_tie >= stop_tie
        begins, counts = self.begins[plain], (self.ends - self.begins)[plain] // length
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = [np.repeat(begins, counts) + length * within]
        for run in tied.tolist():
            ties = self.ties[first_tie[run] : stop_tie[run]]
            starts.append(_greedy_run(int(self.begins[run]), int(self.ends[run]), ties, length))
        return np.sort(np.concatenate(starts))


def _greedy_run(begin: int, end: int, ties: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Places of windows of one run in which some neighbours have one timestamp."""
    is_new = np.ones(end - begin + 1, dtype=np.bool_)
    is_new[ties - begin] = False
    places = np.arange(end - begin + 1)
    # Of each place: the first one from there on that has another timestamp than the place before it.
    new_from = np.minimum.accumulate(np.where(is_new, places, end - begin)[::-1])[::-1].tolist()
    starts = []
    place = 0
    while place + length <= end - begin:
        starts.append(place)
        place = new_from[place + length]
    return np.array(starts, dtype=np.int64) + begin


def _cut_ranges(
    firsts: NDArray[np.int64], stops: NDArray[np.int64], offsets: NDArray[np.int64]
) -> Iterator[NDArray[np.bool_]]:
    """Of each stretch: which of its rows lie in one of the ranges, which are sorted and do not overlap."""
    begin = np.searchsorted(stops, offsets[:-1], "right")
    end = np.searchsorted(firsts, offsets[1:], "left")
    for (offset, stop), first_range, stop_range in zip(itertools.pairwise(offsets.tolist()), begin, end, strict=True):
        steps = np.zeros(stop - offset + 1, dtype=np.int8)
        if stop_range > first_range:
            steps[np.maximum(firsts[first_range:stop_range], offset) - offset] += 1
            steps[np.minimum(stops[first_range:stop_range], stop) - offset] -= 1
        yield np.cumsum(steps[:-1], dtype=np.int8).astype(np.bool_)


def _cut_places(places: NDArray[np.int64], offsets: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    """Of each stretch: which of its rows are among some places, which are sorted."""
    borders = np.searchsorted(places, offsets).tolist()
    for (offset, stop), (first, last) in zip(
        itertools.pairwise(offsets.tolist()), itertools.pairwise(borders), strict=True
    ):
        flags = np.zeros(stop - offset, dtype=np.bool_)
        flags[places[first:last] - offset] = True
        yield flags
