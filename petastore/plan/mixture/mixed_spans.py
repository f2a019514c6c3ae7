"""The spans of a mixture: its batches, the rows that they hold, and the row groups at hand. Pure.

Batches are runs of positions, with rows of all sources (`MixedBatches`), or each of one source, merged into one
sequence (`SourceBatches`). Either says of each row which source it is from and how many rows that source gave before it
in this epoch of the mixture; `Walk` finds it in the source's own epochs.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.plan.batches.spans import Span, read_order_of
from petastore.plan.batches.tail import EpochBatches
from petastore.plan.cursor import Cursor
from petastore.plan.mixture.mixed_line import BATCHES, MixedLine, SourceRows, SourceTurns, fractions_of
from petastore.plan.mixture.mixed_runs import LanesOfSources, SourceRuns
from petastore.plan.order.grouped_rows import GroupedRows, Standing, joined
from petastore.plan.order.mix import mix
from petastore.plan.order.order import EpochOrder
from petastore.plan.order.visits import LaneRuns
from petastore.plan.plan import Plan
from petastore.plan.request import Shard

__all__ = ["Ends", "MixedBatches", "MixedCursor", "MixedSpan", "Source", "SourceBatches", "Walk"]

_PutWhere: TypeAlias = Callable[[NDArray[np.int64]], None]
"""Writes where some rows stand among those of all sources."""

_OfEpoch: TypeAlias = tuple[int, GroupedRows, _PutWhere]
"""An epoch of a source, and rows of it."""

_KEYS_AT_A_TIME = 256

_COMPARED_SOURCES = 16
"""For so few sources it is faster to look for each one than to sort."""


@dataclasses.dataclass(frozen=True, slots=True)
class MixedCursor(Cursor):
    """A place in a mixture whose batches are each of one source."""

    taken: tuple[int, ...] = ()
    """Rows of each source that were consumed in this epoch; their sum is `position`."""


@dataclasses.dataclass(frozen=True, eq=False)
class MixedSpan(Span):
    """A span of a mixture; its row groups are numbered through all sources."""

    taken: NDArray[np.int64] | None = None
    """Where each batch is of one source: rows of each source consumed after each batch, shape (batches, sources)."""

    def part(self, first: int, stop: int) -> Self:
        """The batches [first, stop) as a span of its own, made of row groups that are at hand."""
        part = Span.part(self, first, stop)
        return part if self.taken is None else dataclasses.replace(part, taken=self.taken[first:stop])

    def cursor_after(self, batch: int) -> Cursor:
        """The cursor after a batch, given by its place in the span."""
        cursor = Span.cursor_after(self, batch)
        if self.taken is None or cursor.epoch != self.epoch:
            return cursor
        return MixedCursor(cursor.epoch, cursor.position, cursor.first_epoch, tuple(self.taken[batch].tolist()))


class Ends(enum.Enum):
    """What ends with a span."""

    NOTHING = enum.auto()
    EPOCH = enum.auto()
    ALL = enum.auto()


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Source:
    """One source as spans see it."""

    plan: Plan
    """Its rows and their order."""

    first_group: int
    """The number of its first row group among those of all sources."""

    rows: int
    """Rows that it gives in an epoch of the mixture."""

    turns: SourceTurns
    """Which of its lanes has its turn when."""

    own_lanes: range
    """Its lanes that this rank's share comes from."""

    def order(self, epoch: int) -> EpochOrder:
        """The order of one of its own epochs."""
        num_rows = self.plan.num_rows
        return EpochOrder(self.plan.rows, self.plan.request.order, epoch, visits=self.turns.of_epoch(epoch, num_rows))


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Batches:
    """One rank's rows of some consecutive batches."""

    parts: Callable[[range], tuple[Sequence[SourceRows | SourceRuns], Callable[[], Standing] | None]]
    """Of some consecutive ones of them: each source that these have rows of, ascending; and in what order the rows of
    all sources are asked for, if that is known without looking at each."""

    offsets: NDArray[np.int64]
    """Where batches begin, as in `Span`."""

    valid: NDArray[np.bool_] | None
    """Which rows are no repeats, as in `Span`."""

    consumed: NDArray[np.int64]
    """Positions consumed before the first batch, and after each, shape (batches + 1,)."""

    given: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    """Rows of each source consumed when so many positions are, shape (n,) to (n, sources)."""

    taken: NDArray[np.int64] | None
    """Where each batch is of one source: rows of each source consumed before the first batch, and after each, shape
    (batches + 1, sources). Cursors have to say it."""


class MixedBatches:
    """The batches of an epoch that have rows of all sources: positions, shared by the lanes of the mixture."""

    def __init__(self, line: MixedLine, lanes: LanesOfSources, batches: EpochBatches, shard: Shard) -> None:
        self._line = line
        self._lanes = lanes
        self._batches = batches
        self._shard = shard
        self._done = 0
        self.steps = batches.steps
        """Batches that each rank gets."""

    def take(self, count: int) -> Batches:
        """The next batches."""
        steps = range(self._done, self._done + count)
        self._done = steps.stop
        share = self._batches.share(self._shard, steps.start, steps.stop)
        before = self._batches.start + steps.start * self._batches.global_batch
        consumed = np.concatenate([[before], self._batches.consumed_after(steps)])
        parts: Callable[[range], tuple[Sequence[SourceRows | SourceRuns], Callable[[], Standing] | None]]
        if isinstance(share.rows, LaneRuns) and self._lanes.own_of(share.rows.own) is not None:
            parts = functools.partial(self._runs, share.rows, consumed)
        else:
            parts = functools.partial(_cut, _by_source(*self._line.at(share.positions)), share.offsets)
        return Batches(parts, share.offsets, share.valid, consumed, self._line.counts_at, None)

    def _runs(
        self, runs: LaneRuns, consumed: NDArray[np.int64], steps: range
    ) -> tuple[list[SourceRuns], Callable[[], Standing] | None]:
        borders = consumed[steps.start : steps.stop + 1]
        if len(borders) < len(consumed):
            runs, _ = LaneRuns.between(borders, lanes=runs.lanes, own=runs.own)
        return self._lanes.between(runs, int(borders[0]), int(borders[-1])), self._lanes.standing(runs)


class SourceBatches:
    """The batches of an epoch that are each of one source, as each source for itself cuts them.

    Args:
        batches: Those of each source.
        weights: Their proportions.
        shard: The rank.
        hashed_for: What the order of their turns depends on.
    """

    def __init__(
        self, batches: Sequence[EpochBatches], weights: Sequence[int], shard: Shard, *, hashed_for: tuple[int, int]
    ) -> None:
        self._batches = batches
        self._shard = shard
        self._next = [0] * len(batches)
        self._taken = np.array([part.start for part in batches], dtype=np.int64)
        states = [mix(BATCHES, *hashed_for, source) for source in range(len(batches))]
        keys = [self._keys(source, weight, states[source]) for source, weight in enumerate(weights)]
        self._order = heapq.merge(*keys)
        self.steps = sum(part.steps for part in batches)
        """Batches that each rank gets."""

    def _keys(self, source: int, weight: int, state: int) -> Iterator[tuple[float, int]]:
        """When the batches of a source have their turns, on a clock that all sources share."""
        part = self._batches[source]
        for first in range(0, part.steps, _KEYS_AT_A_TIME):
            given = part.start + np.arange(first, min(first + _KEYS_AT_A_TIME, part.steps)) * part.global_batch
            keys = (given + part.global_batch * fractions_of(state, given)) / weight
            yield from zip(keys.tolist(), itertools.repeat(source), strict=False)

    def take(self, count: int) -> Batches:
        """The next batches."""
        order = [source for _, source in itertools.islice(self._order, count)]
        shares = {source: iter(self._shares(source, order.count(source))) for source in set(order)}
        pieces = []
        taken = np.empty((count + 1, len(self._batches)), dtype=np.int64)
        taken[0] = self._taken
        for batch, source in enumerate(order):
            positions, valid, consumed = next(shares[source])
            self._taken[source] = consumed
            taken[batch + 1] = self._taken
            pieces.append((positions, valid))
        sizes = [len(positions) for positions, _ in pieces]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        parts = _by_source(
            np.repeat(np.array(order, dtype=np.int16), sizes), np.concatenate([positions for positions, _ in pieces])
        )
        return Batches(
            parts=functools.partial(_cut, parts, offsets),
            offsets=offsets,
            valid=None if pieces[0][1] is None else np.concatenate([valid for _, valid in pieces]),
            consumed=taken.sum(axis=1),
            given=lambda consumed: taken[np.searchsorted(taken.sum(axis=1), consumed)],
            taken=taken,
        )

    def _shares(self, source: int, count: int) -> list[tuple[Any, Any, int]]:
        """Of the next batches of a source: rows, which are no repeats, and rows consumed after it."""
        part, steps = self._batches[source], range(self._next[source], self._next[source] + count)
        self._next[source] = steps.stop
        share = part.share(self._shard, steps.start, steps.stop)
        borders = share.offsets[1:-1]
        positions = np.split(share.positions, borders)
        valid = [None] * count if share.valid is None else np.split(share.valid, borders)
        return list(zip(positions, valid, part.consumed_after(steps).tolist(), strict=True))


@dataclasses.dataclass(slots=True)
class _Use:
    """Until when a row group is needed."""

    source: int
    """Whose it is."""

    first_epoch: int
    """The epoch of its source that comes to it first."""

    last_epoch: int
    """The last one that is known to come to it."""

    order: EpochOrder | None
    """That of the first one, while rows are found: where epochs are short, more come at once than are remembered."""

    until: int
    """How many rows the source will have given when no row of it is needed any more by then."""


class Walk:
    """Turns batches into spans, one after the other: finds their rows, and keeps track of the row groups at hand.

    Args:
        sources: What is mixed.
        most_rows: Rows that a span has at most.
    """

    def __init__(self, sources: Sequence[Source], most_rows: int) -> None:
        self._sources = sources
        self._most_rows = most_rows
        self._order = functools.lru_cache(maxsize=2 * len(sources) + 2)(
            lambda source, epoch: sources[source].order(epoch)
        )
        self._uses: dict[int, _Use] = {}  # of row groups that are at hand, or will be
        self._at_hand: set[int] = set()

    def spans(self, batches: Batches, sizes: Sequence[int], at: Cursor, *, ends: Ends) -> Iterator[MixedSpan]:
        """The spans of some batches.

        Args:
            batches: Those that follow the ones of the spans before.
            sizes: How many of them each span has.
            at: The epoch of the mixture, and that with which the pass began.
            ends: What ends with the last of them.
        """
        steps = [range(*pair) for pair in itertools.pairwise(itertools.accumulate(sizes, initial=0))]
        for together in self._stretches(batches, steps, at.epoch):
            picked = self._picked(batches, at.epoch, together)
            for some, rows in zip(together, picked, strict=True):
                yield self._span(batches, some, rows, at, ends if some is steps[-1] else Ends.NOTHING)

    def _stretches(self, batches: Batches, steps: Sequence[range], epoch: int) -> Iterator[list[range]]:
        """Consecutive steps whose rows are found all at once.

        No source starts over within several of them: row groups would be kept from one of its epochs to the next.
        """
        num_rows = np.array([source.plan.num_rows for source in self._sources])
        borders = np.array([steps[0].start, *(some.stop for some in steps)])
        given = batches.given(batches.consumed[borders]) + epoch * np.array([source.rows for source in self._sources])
        # of_first, of_last: (steps, sources) the epochs of each source that the first and last row of a step are of
        of_first = given[:-1] // num_rows
        of_last = np.maximum(given[1:] - 1, given[:-1]) // num_rows
        together: list[int] = []
        for number in range(len(steps)):
            if together and (of_first[together[0]] != of_last[number]).any():
                yield [steps[each] for each in together]
                together = []
            together.append(number)
        yield [steps[each] for each in together]

    def _picked(self, batches: Batches, epoch: int, steps: Sequence[range]) -> list[GroupedRows]:
        """The rows of some consecutive steps."""
        self._uses = {group: self._uses[group] for group in self._at_hand}
        for use in self._uses.values():
            use.order = None
        found = []
        parts, standing = batches.parts(range(steps[0].start, steps[-1].stop))
        for part in parts:
            of_epochs = self._of_runs(part, epoch) if isinstance(part, SourceRuns) else self._of_rows(part, epoch)
            for of_source, rows, put_where in of_epochs:
                found.append((self._numbered(part.source, of_source, rows), put_where))
        borders = batches.offsets[[steps[0].start, *(some.stop for some in steps)]]
        picked = joined([rows for rows, _ in found], standing or functools.partial(_where, found))
        return picked.cut(borders - borders[0])

    def _span(self, batches: Batches, steps: range, picked: GroupedRows, at: Cursor, ends: Ends) -> MixedSpan:
        cut = slice(steps.start, steps.stop)
        offsets = batches.offsets[steps.start : steps.stop + 1]
        needed = picked.distinct
        fetch = [group for group in needed.tolist() if group not in self._at_hand]
        self._at_hand.update(fetch)
        return MixedSpan(
            picked=picked,
            offsets=offsets - offsets[0],
            valid=None if batches.valid is None else batches.valid[offsets[0] : offsets[-1]],
            epoch=at.epoch,
            first_epoch=at.first_epoch,
            consumed=batches.consumed[1:][cut],
            ends_epoch=ends is not Ends.NOTHING,
            needed=needed,
            fetch=tuple(fetch),
            read_orders=tuple(map(self._read_order, fetch)),
            release=self._let_go(self._given(batches, steps.stop, at.epoch, ends), ends),
            most_rows=self._most_rows,
            taken=None if batches.taken is None else batches.taken[1:][cut],
        )

    def _of_rows(self, part: SourceRows, epoch: int) -> Iterator[_OfEpoch]:
        """Rows of a source, epoch by epoch of its own; they are given for an epoch of the mixture."""
        source, num_rows = self._sources[part.source], self._sources[part.source].plan.num_rows
        given = part.places + epoch * source.rows
        epochs = given // num_rows
        for number in range(int(epochs.min()), int(epochs.max()) + 1):
            here = epochs == number
            if here.any():
                found = self._order(part.source, number).by_lane(given[here] - number * num_rows)
                yield number, found, functools.partial(_put, part.where[here], found.where)

    def _of_runs(self, part: SourceRuns, epoch: int) -> Iterator[_OfEpoch]:
        """The same of runs of its lanes."""
        source, num_rows = self._sources[part.source], self._sources[part.source].plan.num_rows
        own = slice(part.own.start, part.own.stop)
        given = range(epoch * source.rows + part.places.start, epoch * source.rows + part.places.stop)
        # firsts, stops: (own,) turns of the lanes since the first epoch of the mixture
        earlier = epoch * source.turns.in_epoch[own]
        firsts, stops = part.firsts + earlier, part.stops + earlier
        numbers = range(given.start // num_rows, (given.stop - 1) // num_rows + 1)
        for number in numbers:
            begins = source.turns.before(number * num_rows)[own]
            first = firsts if number == numbers[0] else begins
            stop = stops if number == numbers[-1] else source.turns.before((number + 1) * num_rows)[own]
            runs = LaneRuns(source.turns.lanes, part.own, first - begins, stop - begins)
            found = self._order(part.source, number).by_lane(runs, read_lanes=source.own_lanes)
            if found.num_rows:
                yield number, found, functools.partial(part.put_where, first - earlier, stop - earlier)

    def _numbered(self, source: int, epoch: int, found: GroupedRows) -> GroupedRows:
        """Some rows of one epoch of a source, where row groups are numbered through all sources; noted as needed."""
        own = self._sources[source]
        if own.plan.selection is not None:
            found = found.selected(own.plan.selection)
        found = found.numbered_from(own.first_group)
        groups = found.distinct.tolist()
        self._note(source, epoch, groups)
        # Row groups that were kept from the epoch before lie in the turns of that one.
        is_in_turns = found.runs is not None and own.plan.request.order.shuffle_rows
        if is_in_turns and any(self._uses[group].first_epoch != epoch for group in groups):
            return found.without_runs()
        return found

    def _note(self, source: int, epoch: int, groups: Sequence[int]) -> None:
        """Notes until when an epoch of a source needs some row groups."""
        uses = [(group, self._uses.get(group)) for group in groups]
        new = [group for group, use in uses if use is None or use.last_epoch != epoch]
        if not new:
            return
        own = self._sources[source]
        numbers = np.array(new, dtype=np.int32) - np.int32(own.first_group)
        order = self._order(source, epoch)
        last = order.last_positions(numbers, lanes=own.own_lanes)
        for group, until in zip(new, (epoch * own.plan.num_rows + last + 1).tolist(), strict=True):
            use = self._uses.setdefault(group, _Use(source, epoch, epoch, order, until))
            use.last_epoch, use.until = epoch, max(use.until, until)

    def _read_order(self, group: int) -> NDArray[np.int64] | None:
        """In what order the rows of a row group, which was just found to be needed, are come to."""
        use = self._uses[group]
        own = self._sources[use.source]
        order = use.order or self._order(use.source, use.first_epoch)
        return read_order_of(order, group - own.first_group, own.own_lanes, own.plan.selection)

    def _given(self, batches: Batches, stop: int, epoch: int, ends: Ends) -> list[int]:
        """Rows that each source has given since the first epoch; `tail="drop"` leaves some out at the end of one."""
        rows = [source.rows for source in self._sources]
        in_epoch = batches.given(batches.consumed[stop : stop + 1])[0].tolist() if ends is Ends.NOTHING else rows
        return [epoch * of_epoch + now for of_epoch, now in zip(rows, in_epoch, strict=True)]

    def _let_go(self, given: Sequence[int], ends: Ends) -> tuple[int, ...]:
        """Forgets row groups that no later span needs."""
        release = [
            group
            for group in self._at_hand
            if ends is Ends.ALL or self._uses[group].until <= given[self._uses[group].source]
        ]
        for group in release:
            self._at_hand.remove(group)
        return tuple(release)


def _by_source(sources: NDArray[np.int16], places: NDArray[np.int64]) -> list[SourceRows]:
    """Rows by their sources, given the source of each and its place there."""
    count = int(sources.max(initial=-1)) + 1
    if count <= _COMPARED_SOURCES:
        each = [np.flatnonzero(sources == source) for source in range(count)]
    else:
        each = np.split(np.argsort(sources, kind="stable"), np.cumsum(np.bincount(sources, minlength=count))[:-1])
    return [SourceRows(source, where, places[where]) for source, where in enumerate(each) if len(where)]


def _cut(parts: Sequence[SourceRows], offsets: NDArray[np.int64], steps: range) -> tuple[list[SourceRows], None]:
    """The rows of some consecutive batches, which begin at these offsets."""
    begin, end = offsets[[steps.start, steps.stop]].tolist()
    found = []
    for part in parts:
        low, high = np.searchsorted(part.where, [begin, end]).tolist()
        if low < high:
            found.append(SourceRows(part.source, part.where[low:high] - begin, part.places[low:high]))
    return found, None


def _put(where: NDArray[np.int64], in_order: NDArray[np.int64] | None, out: NDArray[np.int64]) -> None:
    if in_order is None:
        out[:] = where
    else:
        np.take(where, in_order, out=out, mode="clip")


def _where(found: Sequence[tuple[GroupedRows, _PutWhere]]) -> NDArray[np.int64]:
    """Where the rows of all sources stand."""
    where = np.empty(sum(rows.num_rows for rows, _ in found), dtype=np.int64)
    begin = 0
    for rows, put in found:
        put(where[begin : begin + rows.num_rows])
        begin += rows.num_rows
    return where
