"""Runs of the lanes of sources: what a mixture takes of them in some consecutive batches, by arithmetic alone. Pure.

A lane of the mixture holds every L-th position of the line, and the table of the line repeats. So a lane of a source
gives a run of its turns to a run of positions, and where they stand among the batches is the same in each repetition
of the table, but for a shift. Nothing is looked up a row.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.plan.mixture.mixed_line import MixedLine
from petastore.plan.order.grouped_rows import Permutation
from petastore.plan.order.visits import LaneRuns, lane_of_visit, visit_of_lane

__all__ = ["LanesOfSources", "SourceRuns", "lanes_of_sources"]

_COUNTED = 4096
"""Positions of the table after which the turns of all lanes are written down; more where there are more lanes."""

_REMEMBERED = 2
"""Orders of one lane that are remembered: those of whole spans come again."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class SourceRuns:
    """The rows of one source among some batches of a mixture, as runs of its lanes."""

    source: int
    """Its number."""

    places: range
    """The rows of the batches on all ranks, counted by those that it gave before in this epoch of the mixture."""

    own: range
    """Its lanes that the rows are of."""

    firsts: NDArray[np.int64]
    """Of each of `own`: its turns in this epoch of the mixture before its first row, shape (own,)."""

    stops: NDArray[np.int64]
    """Of each: the same before the row after its last one, shape (own,)."""

    put_targets: Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], None]
    """`put_targets(firsts, stops, out)` writes where the rows of some of these turns, lane after lane, stand in the
    batches."""


class LanesOfSources:
    """The lanes of all sources along the line of a mixture. Thread-safe and immutable.

    Args:
        line: Which source stands at which position.
        lanes: How many lanes each source has, shape (sources,).

    Example:
        >>> from petastore.plan.mixture.mixed_line import mixed_line
        >>> line = mixed_line((2, 1), 1, seed=0)
        >>> line.at(np.arange(6))[0].tolist()
        [0, 1, 0, 1, 0, 0]
        >>> runs, _ = LaneRuns.between(np.array([1, 6]), lanes=1, own=range(1))
        >>> for part in LanesOfSources(line, [1, 1]).between(runs, 1, 6):
        ...     targets = np.empty(int((part.stops - part.firsts).sum()), dtype=np.int64)
        ...     part.put_targets(part.firsts, part.stops, targets)
        ...     print(part.source, part.firsts.tolist(), part.stops.tolist(), targets.tolist())
        0 [1] [4] [1, 3, 4]
        1 [0] [2] [0, 2]
    """

    def __init__(self, line: MixedLine, lanes: Sequence[int]) -> None:
        self._shared_lanes = line.lanes
        self._of_sources = tuple(lanes)
        self._first_lanes = [*itertools.accumulate(lanes, initial=0)]
        # turns: (table,) the lane, of those of all sources, that has its turn at each position of the table
        self._turns = np.empty(line.table_size, dtype=np.int32)
        for source, of_source in enumerate(lanes):
            self._turns[line.places(source)] = self._first_lanes[source] + line.turns(source, of_source)
        self._in_table = np.bincount(self._turns, minlength=self._first_lanes[-1])
        self._starts: list[int] = np.cumsum([0, *self._in_table.tolist()]).tolist()
        # Lane after lane its positions in the table: which round of the mixture's lanes each is in, and on which lane.
        small = self._turns.astype(np.uint16) if len(self._in_table) <= 2**16 else self._turns
        positions = np.argsort(small, kind="stable")  # so few bits are sorted by their digits
        self._rounds = (positions // line.lanes).astype(np.int32)
        self._shared = lane_of_visit(line.lanes)[positions % line.lanes].astype(np.int32)
        self._repeat = line.table_size // line.lanes
        self._along = functools.lru_cache(maxsize=4)(self._make_along)
        self._interleaved = functools.lru_cache(maxsize=_REMEMBERED)(self._make_interleaved)
        self._every = max(_COUNTED, len(self._in_table))
        self._counted = self._counts(self._every)

    def _counts(self, every: int) -> NDArray[np.int64]:
        """Turns of each lane before the positions 0, every, 2 · every, … of the table."""
        parts, lanes = -(-len(self._turns) // every), len(self._in_table)
        keys = np.arange(len(self._turns)) // every * lanes + self._turns
        in_parts = np.bincount(keys, minlength=parts * lanes).reshape(parts, lanes)
        return np.cumsum(np.concatenate([np.zeros((1, lanes), dtype=np.int64), in_parts]), axis=0)

    def _before(self, position: int) -> NDArray[np.int64]:
        """Turns that each lane has before a position of an epoch."""
        repeats, inside = divmod(position, len(self._turns))
        counted = inside // self._every
        turns = np.bincount(self._turns[counted * self._every : inside], minlength=len(self._in_table))
        turns += self._counted[counted]
        turns += repeats * self._in_table
        return turns

    def own_of(self, shared: range) -> tuple[range, ...] | None:
        """The lanes of each source that belong to some lanes of the mixture; None where these have parts of one."""
        return _own_of(self._of_sources, self._shared_lanes, shared)

    def between(self, runs: LaneRuns, first: int, stop: int) -> list[SourceRuns]:
        """What each source gives to some batches, on all ranks, if it gives anything.

        Args:
            runs: What the batches take of the lanes of the mixture, for which `own_of` has an answer.
            first: Their first position.
            stop: The position after their last one.
        """
        firsts, stops = self._before(first), self._before(stop)
        targets = _Targets(runs)
        given = [np.add.reduceat(turns, self._first_lanes[:-1]).tolist() for turns in (firsts, stops)]
        of_each = []
        for source, own in enumerate(self.own_of(runs.own) or ()):
            places = range(*(of_sources[source] for of_sources in given))
            start = self._first_lanes[source] + own.start
            here = slice(start, start + len(own))
            if places:
                put_targets = functools.partial(self._put_targets, targets, start)
                of_each.append(SourceRuns(source, places, own, firsts[here], stops[here], put_targets))
        return of_each

    def permutation(self, runs: LaneRuns) -> Permutation | None:
        """In what order the rows of `between`, source after source, are asked for; None where that is said of runs.

        Where a rank has one lane of the mixture, the order is the same wherever the table is entered at one place.
        """
        if len(runs.own) > 1:
            return None
        first, stop = int(runs.firsts[0]), int(runs.stops[0])
        return self._interleaved(runs.own.start, first % self._repeat, stop - first)

    def _make_interleaved(self, lane: int, first: int, count: int) -> Permutation:
        return Permutation(order=functools.partial(self._order_along, lane, first, count))

    def _order_along(self, lane: int, first: int, count: int) -> NDArray[np.int64]:
        sources, before, in_table = self._along(lane)
        rounds = -(-(first + count) // self._repeat)
        # starts: (sources,) how far the rows of each lie from those that it has in the table from its beginning on
        skipped, stop = (
            turns // self._repeat * in_table + np.bincount(sources[: turns % self._repeat], minlength=len(in_table))
            for turns in (first, first + count)
        )
        starts = np.cumsum(stop - skipped) - stop
        order = np.arange(rounds)[:, None] * in_table.take(sources) + (starts.take(sources) + before)
        return order.reshape(-1)[first : first + count]

    def _make_along(self, lane: int) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        """The source of each turn that a lane of the mixture has in the table, and how many turns before are of it.

        Returns:
            Both of shape (turns,), and how many turns each source has, shape (sources,).
        """
        visit = int(visit_of_lane(self._shared_lanes)[lane])
        firsts = np.array(self._first_lanes[1:])
        sources = np.searchsorted(firsts, self._turns[visit :: self._shared_lanes], side="right")
        in_table = np.bincount(sources, minlength=len(firsts)).astype(np.int64)
        by_source = np.argsort(sources, kind="stable")
        before = np.empty(len(sources), dtype=np.int64)
        before[by_source] = np.arange(len(sources)) - np.repeat(np.cumsum(in_table) - in_table, in_table)
        return sources, before, in_table

    def _put_targets(
        self,
        targets: _Targets,
        lane: int,
        firsts: NDArray[np.int64],
        stops: NDArray[np.int64],
        out: NDArray[np.int64],
    ) -> None:
        begin = 0
        for number, (first, stop) in enumerate(zip(firsts.tolist(), stops.tolist(), strict=True), start=lane):
            if first < stop:
                targets.put(self._numbers(number, first, stop, targets.shifts), out[begin : begin + stop - first])
                begin += stop - first

    def _numbers(self, lane: int, first: int, stop: int, shifts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which rows of the batches, laid lane after lane of the mixture, some turns of a lane are."""
        start, count = self._starts[lane], int(self._in_table[lane])
        first_repeat, stop_repeat = first // count, -(-stop // count)
        if stop_repeat - first_repeat > 2:
            table = self._in_one_repeat(slice(start, start + count), shifts)
            repeats = np.arange(first_repeat, stop_repeat) * self._repeat
            skipped = first - first_repeat * count
            return (repeats[:, None] + table).reshape(-1)[skipped : skipped + stop - first]
        parts = []
        for number in range(first_repeat, stop_repeat):
            low, high = max(first - number * count, 0), min(stop - number * count, count)
            parts.append(self._in_one_repeat(slice(start + low, start + high), shifts) + number * self._repeat)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _in_one_repeat(self, turns: slice, shifts: NDArray[np.int64]) -> NDArray[np.int64]:
        return shifts.take(self._shared[turns]) + self._rounds[turns]


@functools.lru_cache(maxsize=8)
def lanes_of_sources(line: MixedLine, lanes: tuple[int, ...]) -> LanesOfSources:
    """The lanes of all sources along a line; the last ones are remembered, as all ranks of a process share them."""
    return LanesOfSources(line, lanes)


class _Targets:
    """Where the rows of some batches stand, if they are laid lane after lane of the mixture."""

    def __init__(self, runs: LaneRuns) -> None:
        counts = runs.stops - runs.firsts
        # shifts: (lanes,) of each lane of the mixture, how far its row of round 0 lies before the first of all rows
        self.shifts = np.zeros(runs.lanes, dtype=np.int64)
        self.shifts[runs.own.start : runs.own.stop] = np.cumsum(counts) - counts - runs.firsts
        self._runs = runs

    def put(self, numbers: NDArray[np.int64], out: NDArray[np.int64]) -> None:
        """Writes where some of these rows stand in the batches."""
        if self._runs.targets is None:
            out[:] = numbers
        else:
            np.take(self._runs.targets, numbers, out=out, mode="clip")


@functools.lru_cache(maxsize=64)
def _own_of(of_sources: tuple[int, ...], lanes: int, shared: range) -> tuple[range, ...] | None:
    of_each = []
    for count in of_sources:
        own = range(shared.start * count // lanes, (shared.stop - 1) * count // lanes + 1)
        if (-(-own.start * lanes // count), -(-own.stop * lanes // count)) != (shared.start, shared.stop):
            return None
        of_each.append(own)
    return tuple(of_each)
