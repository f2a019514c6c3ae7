"""The batches of a mixture, and how their rows are found. Pure.

Batches are runs of positions, with rows of all sources (`mixed_batches`), or each of one source, merged into one
sequence (`SourceBatches`). Either says of each row which source it is from and how many rows that source gave before it
in this epoch of the mixture; it is found in the source's own epochs. Spans are made of them by the same
`petastore.plan.batches.spans.Walk` that makes those of a plan.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.plan.batches.spans import Batches, SharedBatches, Walk
from petastore.plan.batches.tail import EpochBatches, Share
from petastore.plan.mixture.mixed_line import BATCHES, MixedLine, SourceRows, SourceTurns, fractions_of
from petastore.plan.mixture.mixed_runs import LanesOfSources, SourceRuns
from petastore.plan.order.grouped_rows import GroupedRows, Permutation, joined
from petastore.plan.order.mix import mix
from petastore.plan.order.visits import LaneRuns
from petastore.plan.request import Shard

__all__ = ["SourceBatches", "mixed_batches"]

_PutTargets: TypeAlias = Callable[[NDArray[np.int64]], None]
"""Writes where some rows stand among those of all sources."""

_OfEpoch: TypeAlias = tuple[int, GroupedRows, _PutTargets]
"""An epoch of a source, and rows of it."""

_Find: TypeAlias = Callable[[Walk, int, range], GroupedRows]
"""Finds the rows of some consecutive batches; see `Batches.find`."""

_KEYS_AT_A_TIME = 256

_COMPARED_SOURCES = 16
"""For so few sources it is faster to look for each one than to sort."""


def mixed_batches(
    line: MixedLine, lanes: LanesOfSources, turns: Sequence[SourceTurns], batches: EpochBatches, shard: Shard
) -> SharedBatches:
    """The batches of an epoch that have rows of all sources: positions, shared by the lanes of the mixture.

    Args:
        line: Which source stands at which position.
        lanes: The lanes of all sources along it.
        turns: Which lane of each source has its turn when.
        batches: How the epoch falls into batches.
        shard: The rank.
    """

    def finder(share: Share, consumed: NDArray[np.int64]) -> _Find:
        if isinstance(share.rows, LaneRuns) and lanes.own_of(share.rows.own) is not None:
            return functools.partial(_of_runs, lanes, turns, share.rows, consumed)
        return functools.partial(_of_rows, _by_source(*line.at(share.positions)), share.offsets)

    return SharedBatches(batches, shard, finder=finder, given=line.counts_at, numbered=line.at)


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
        sources, places = np.repeat(np.array(order), sizes), np.concatenate([positions for positions, _ in pieces])
        parts = _by_source(sources.astype(np.int16), places)
        return Batches(
            find=functools.partial(_of_rows, parts, offsets),
            offsets=offsets,
            valid=None if pieces[0][1] is None else np.concatenate([valid for _, valid in pieces]),
            consumed=taken.sum(axis=1),
            given=lambda consumed: taken[np.searchsorted(taken.sum(axis=1), consumed)],
            taken=taken,
            numbered=lambda: (sources, places),
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


def _by_source(sources: NDArray[np.int16], places: NDArray[np.int64]) -> list[SourceRows]:
    """Rows by their sources, given the source of each and its place there."""
    count = int(sources.max(initial=-1)) + 1
    if count <= _COMPARED_SOURCES:
        each = [np.flatnonzero(sources == source) for source in range(count)]
    else:
        each = np.split(np.argsort(sources, kind="stable"), np.cumsum(np.bincount(sources, minlength=count))[:-1])
    return [SourceRows(source, where, places[where]) for source, where in enumerate(each) if len(where)]


def _of_rows(
    parts: Sequence[SourceRows], offsets: NDArray[np.int64], walk: Walk, epoch: int, steps: range
) -> GroupedRows:
    """The rows of some consecutive batches, which begin at these offsets: looked up row by row."""
    begin, end = offsets[[steps.start, steps.stop]].tolist()
    of_all = []
    for part in parts:
        low, high = np.searchsorted(part.targets, [begin, end]).tolist()
        if low < high:
            some = SourceRows(part.source, part.targets[low:high] - begin, part.places[low:high])
            of_all += _noted(walk, part.source, _epochs_of_rows(some, walk, epoch))
    return _joined(of_all)


def _epochs_of_rows(part: SourceRows, walk: Walk, epoch: int) -> Iterator[_OfEpoch]:
    """Rows of a source, epoch by epoch of its own; they are given for an epoch of the mixture."""
    source = walk.sources[part.source]
    given = part.places + epoch * source.given
    epochs = given // source.num_rows
    for number in range(int(epochs.min()), int(epochs.max()) + 1):
        here = epochs == number
        if here.any():
            rows = walk.order(part.source, number).by_lane(given[here] - number * source.num_rows)
            put_at = None if rows.permutation is None else rows.permutation.targets
            yield number, rows, functools.partial(_put, part.targets[here], put_at)


def _of_runs(
    lanes: LanesOfSources,
    turns: Sequence[SourceTurns],
    runs: LaneRuns,
    consumed: NDArray[np.int64],
    walk: Walk,
    epoch: int,
    steps: range,
) -> GroupedRows:
    """The same as runs of the lanes of sources."""
    borders = consumed[steps.start : steps.stop + 1]
    if len(borders) < len(consumed):
        runs, _ = LaneRuns.between(borders, lanes=runs.lanes, own=runs.own)
    of_all = []
    for part in lanes.between(runs, int(borders[0]), int(borders[-1])):
        of_all += _noted(walk, part.source, _epochs_of_runs(part, turns[part.source], walk, epoch))
    return _joined(of_all, lanes.permutation(runs))


def _epochs_of_runs(part: SourceRuns, turns: SourceTurns, walk: Walk, epoch: int) -> Iterator[_OfEpoch]:
    source = walk.sources[part.source]
    num_rows, own = source.num_rows, slice(part.own.start, part.own.stop)
    given = range(epoch * source.given + part.places.start, epoch * source.given + part.places.stop)
    # firsts, stops: (own,) turns of the lanes since the first epoch of the mixture
    earlier = epoch * turns.in_epoch[own]
    firsts, stops = part.firsts + earlier, part.stops + earlier
    numbers = range(given.start // num_rows, (given.stop - 1) // num_rows + 1)
    for number in numbers:
        begins = turns.before(number * num_rows)[own]
        first = firsts if number == numbers[0] else begins
        stop = stops if number == numbers[-1] else turns.before((number + 1) * num_rows)[own]
        runs = LaneRuns(turns.lanes, part.own, first - begins, stop - begins)
        rows = walk.order(part.source, number).by_lane(runs, read_lanes=source.own_lanes)
        if rows.num_rows:
            yield number, rows, functools.partial(part.put_targets, first - earlier, stop - earlier)


def _noted(walk: Walk, source: int, of_epochs: Iterator[_OfEpoch]) -> list[tuple[GroupedRows, _PutTargets]]:
    return [(walk.noted(source, number, rows), put_targets) for number, rows, put_targets in of_epochs]


def _joined(of_all: Sequence[tuple[GroupedRows, _PutTargets]], permutation: Permutation | None = None) -> GroupedRows:
    """The rows of all sources; where they stand is put together of what each says, unless it is known of all."""
    return joined([rows for rows, _ in of_all], permutation or Permutation(functools.partial(_targets, of_all)))


def _put(targets: NDArray[np.int64], in_order: NDArray[np.int64] | None, out: NDArray[np.int64]) -> None:
    if in_order is None:
        out[:] = targets
    else:
        np.take(targets, in_order, out=out, mode="clip")


def _targets(of_all: Sequence[tuple[GroupedRows, _PutTargets]]) -> NDArray[np.int64]:
    """Where the rows of all sources stand."""
    targets = np.empty(sum(rows.num_rows for rows, _ in of_all), dtype=np.int64)
    begin = 0
    for rows, put in of_all:
        put(targets[begin : begin + rows.num_rows])
        begin += rows.num_rows
    return targets
