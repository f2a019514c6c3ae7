"""The spans of a mixture: its batches, the rows that they hold, and the row groups at hand. Pure.

Batches are runs of positions, with rows of all sources (`MixedBatches`), or each of one source, merged into one
sequence (`SourceBatches`). Either says of each row which source it is from and how many rows that source gave before it
in this epoch of the mixture; `Walk` finds it in the source's own epochs.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.plan.cursor import Cursor
from petastore.plan.mix import mix
from petastore.plan.mixed_line import BATCHES, MixedLine, SourceTurns, fractions_of
from petastore.plan.order import EpochOrder
from petastore.plan.plan import Plan
from petastore.plan.request import Shard
from petastore.plan.spans import Span, distinct, turns_of
from petastore.plan.tail import EpochBatches

__all__ = ["MixedBatches", "MixedCursor", "MixedSpan", "Source", "SourceBatches", "Walk"]

_KEYS_AT_A_TIME = 256

_COMPARED_SOURCES = 16
"""For so few sources it is faster to look for each one than to sort."""


@dataclasses.dataclass(frozen=True, slots=True)
class MixedCursor(Cursor):
    """A place in a mixture whose batches are each of one source."""

    taken: tuple[int, ...] = ()
    """Rows of each source that were consumed in this epoch; their sum is `position`."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class MixedSpan(Span):
    """A span of a mixture; its row groups are numbered through all sources."""

    taken: NDArray[np.int64] | None = None
    """Where each batch is of one source: rows of each source consumed after each batch, shape (batches, sources)."""

    def cursor_after(self, batch: int) -> Cursor:
        """The cursor after a batch, given by its place in the span."""
        cursor = Span.cursor_after(self, batch)
        if self.taken is None or cursor.epoch != self.epoch:
            return cursor
        return MixedCursor(cursor.epoch, cursor.position, cursor.first_epoch, tuple(self.taken[batch].tolist()))


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

    sources: NDArray[np.int16]
    """Of each row: its source, shape (rows,)."""

    places: NDArray[np.int64]
    """Of each row: how many rows its source gives before it in this epoch of the mixture, shape (rows,)."""

    offsets: NDArray[np.int64]
    """Where batches begin, as in `Span`."""

    valid: NDArray[np.bool_] | None
    """Which rows are no repeats, as in `Span`."""

    consumed: NDArray[np.int64]
    """Positions consumed after each batch, as in `Span`."""

    given: Sequence[int]
    """Rows of each source consumed after the last batch."""

    taken: NDArray[np.int64] | None
    """As in `MixedSpan`."""


class MixedBatches:
    """The batches of an epoch that have rows of all sources: positions, shared by the lanes of the mixture."""

    def __init__(self, line: MixedLine, batches: EpochBatches, shard: Shard) -> None:
        self._line = line
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
        sources, places = self._line.at(share.positions)
        consumed = self._batches.consumed_after(steps)
        given = self._line.counts(int(consumed[-1]))
        return Batches(sources, places, share.offsets, share.valid, consumed, given, None)


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
        taken = np.empty((count, len(self._batches)), dtype=np.int64)
        for batch, source in enumerate(order):
            positions, valid, consumed = next(shares[source])
            self._taken[source] = consumed
            taken[batch] = self._taken
            pieces.append((positions, valid))
        sizes = [len(positions) for positions, _ in pieces]
        return Batches(
            sources=np.repeat(np.array(order, dtype=np.int16), sizes),
            places=np.concatenate([positions for positions, _ in pieces]),
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            valid=None if pieces[0][1] is None else np.concatenate([valid for _, valid in pieces]),
            consumed=taken.sum(axis=1),
            given=self._taken.tolist(),
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


class Walk:
    """Turns batches into spans, one after the other: finds their rows, and keeps track of the row groups at hand."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._order = functools.lru_cache(maxsize=2 * len(sources) + 2)(
            lambda source, epoch: sources[source].order(epoch)
        )
        # row group → its source, the epoch of its source that needs it, and how many rows the source will have given
        # when no row of it is needed any more
        self._at_hand: dict[int, tuple[int, int, int]] = {}

    def span(self, batches: Batches, at: Cursor, *, ends_epoch: bool, ends_all: bool) -> MixedSpan:
        """The span of some batches.

        Args:
            batches: Those that follow the ones of the span before.
            at: The epoch of the mixture, and that with which the pass began.
            ends_epoch: Whether the last of them is the last one of its epoch.
            ends_all: Whether it is the last one of the last epoch.
        """
        groups = np.empty(len(batches.sources), dtype=np.int32)
        rows = np.empty(len(batches.sources), dtype=np.int64)
        needed: list[NDArray[np.int32]] = []
        fetch: list[int] = []
        for source, where in _by_source(batches.sources, len(self._sources)):
            given = at.epoch * self._sources[source].rows + batches.places[where]
            for epoch, here in self._by_epoch(source, given):
                own_groups, rows[where[here]] = self._rows_at(source, epoch, given[here])
                groups[where[here]] = own_groups
                needed.append(distinct(own_groups))
                fetch += self._keep(source, epoch, needed[-1])
        return MixedSpan(
            groups=groups,
            rows=rows,
            by_lane=None,
            offsets=batches.offsets,
            valid=batches.valid,
            epoch=at.epoch,
            first_epoch=at.first_epoch,
            consumed=batches.consumed,
            ends_epoch=ends_epoch,
            needed=np.unique(np.concatenate(needed)) if needed else np.empty(0, dtype=np.int32),
            fetch=tuple(fetch),
            turns=tuple(map(self._turns, fetch)),
            release=self._let_go(self._given(batches, at.epoch, ends_epoch=ends_epoch), ends_all=ends_all),
            taken=batches.taken,
        )

    def _by_epoch(self, source: int, given: NDArray[np.int64]) -> Iterator[tuple[int, Any]]:
        """Epochs of a source, and which of its rows are of each."""
        num_rows = self._sources[source].plan.num_rows
        first, last = int(given.min()) // num_rows, int(given.max()) // num_rows
        if first == last:
            yield first, slice(None)
            return
        epochs = given // num_rows
        for epoch in range(first, last + 1):
            here = np.flatnonzero(epochs == epoch)
            if len(here):
                yield epoch, here

    def _rows_at(self, source: int, epoch: int, given: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Row groups, numbered through all sources, and rows inside them, of rows of one epoch of a source."""
        plan = self._sources[source].plan
        groups, rows = self._order(source, epoch).rows_at(given - epoch * plan.num_rows)
        if plan.selection is not None:
            rows = plan.selection.rows_at(groups, rows)
        return groups + np.int32(self._sources[source].first_group), rows

    def _keep(self, source: int, epoch: int, groups: NDArray[np.int32]) -> list[int]:
        """Notes until when an epoch of a source needs some row groups; gives those that were not at hand."""
        new = [group for group in groups.tolist() if self._at_hand.get(group, (source, -1, 0))[1] != epoch]
        if not new:
            return []
        fetch = [group for group in new if group not in self._at_hand]
        own, numbers = self._sources[source], np.array(new, dtype=np.int32)
        last = self._order(source, epoch).last_positions(numbers - np.int32(own.first_group), lanes=own.own_lanes)
        for group, until in zip(new, (epoch * own.plan.num_rows + last + 1).tolist(), strict=True):
            self._at_hand[group] = (source, epoch, max(self._at_hand.get(group, (source, epoch, 0))[2], until))
        return fetch

    def _turns(self, group: int) -> NDArray[np.int64] | None:
        """In what order the rows of a row group, which was just found to be needed, are come to."""
        source, epoch, _ = self._at_hand[group]
        own = self._sources[source]
        return turns_of(self._order(source, epoch), group - own.first_group, own.own_lanes, own.plan.selection)

    def _given(self, batches: Batches, epoch: int, *, ends_epoch: bool) -> list[int]:
        """Rows that each source has given since the first epoch; `tail="drop"` leaves some out at the end of one."""
        if ends_epoch:
            return [(epoch + 1) * source.rows for source in self._sources]
        return [epoch * source.rows + given for source, given in zip(self._sources, batches.given, strict=True)]

    def _let_go(self, given: Sequence[int], *, ends_all: bool) -> tuple[int, ...]:
        """Forgets row groups that no later span needs."""
        release = [group for group, (source, _, until) in self._at_hand.items() if ends_all or until <= given[source]]
        for group in release:
            del self._at_hand[group]
        return tuple(release)


def _by_source(sources: NDArray[np.int16], count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each source that there are rows of, ascending, with the places where they stand, ascending too."""
    if count <= _COMPARED_SOURCES:
        each = [np.flatnonzero(sources == source) for source in range(count)]
    else:
        each = np.split(np.argsort(sources, kind="stable"), np.cumsum(np.bincount(sources, minlength=count))[:-1])
    for source, where in enumerate(each):
        if len(where):
            yield source, where
