"""Batches of a mixture: the rows that each batch takes from each source.

The *line* of a mixture assigns each position (index of a row) to a source (`petastore.plan.mixture.mixed_line`). The
line repeats a table, which has the sources of the first positions. A *lane* is one of the interleaved sequences of rows
of a mixture or of a source; a mixture with L lanes takes every L-th position from the same lane. Consecutive positions
take consecutive rows from each lane of a source. In the next repetition of the table, only a constant is added to the
indices of these rows in the batch. Neither a replay of earlier batches nor a lookup for each row is needed.

A batch either is a range of positions with rows of all sources (`mixed_batches`), or has rows of one source
(`SourceBatches`). In both cases, each row is described by its source and the number of rows that the source yielded
before it in this epoch of the mixture. The row is then looked up in the source's own epochs.
`petastore.plan.batches.spans.Walk` computes the spans, as for a plan. No I/O.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.plan.batches.epoch_batches import EpochBatches, Share
from petastore.plan.batches.spans import Batches, SharedBatches, StepPlaces, Walk
from petastore.plan.mixture.batch_keys import BatchKeys
from petastore.plan.mixture.mixed_line import MixedLine, SourceTurns
from petastore.plan.order.grouped_rows import GroupedRows, Permutation, joined, places_by_key
from petastore.plan.order.visits import LaneRuns, lane_of_visit
from petastore.plan.request import Shard

__all__ = ["LanesOfSources", "SourceBatches", "SourceRuns", "lanes_of_sources", "mixed_batches"]


_COUNTED = 4096
"""Minimum distance between positions of a mixture at which row counts are stored.

The counts are the numbers of earlier rows of each lane. If there are more lanes than this, the distance is the number
of lanes."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class SourceRuns:
    """Rows of one source in some batches of a mixture: a range of rows of each lane.

    A lane is one of the sequences of row groups that the source interleaves.
    """

    source: int
    """Number of the source."""

    places: range
    """Range of the source's rows in these batches, on all ranks together.

    Rows are numbered from the start of this epoch of the mixture."""

    own: range
    """Lanes of the source that contain the rows of this rank."""

    firsts: NDArray[np.int64]
    """Index of the first row in each lane of `own`, shape (own,).

    Rows of a lane are counted from the start of this epoch of the mixture."""

    stops: NDArray[np.int64]
    """Index after the last row in each lane of `own`, shape (own,)."""

    put_targets: Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], None]
    """Function `put_targets(firsts, stops, out)` that writes row indices into `out`.

    The index is that of a row among the rows of the batches. The rows are [firsts[i], stops[i]) of each lane i of
    `own`, lane after lane."""


class LanesOfSources:
    """Lookup of the source lane from which the row at each position of a mixture comes.

    A lane is one of the sequences of row groups that a source interleaves. Thread-safe and immutable.

    Args:
        line: Source of the row at each position.
        lanes: Number of lanes of each source, shape (sources,).

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
        # turns: (table,) source lane at each position of the table; lanes are numbered across all sources
        self._turns = np.empty(line.table_size, dtype=np.int32)
        for source, of_source in enumerate(lanes):
            self._turns[line.places(source)] = self._first_lanes[source] + line.turns(source, of_source)
        self._in_table = np.bincount(self._turns, minlength=self._first_lanes[-1])
        self._starts: list[int] = np.cumsum([0, *self._in_table.tolist()]).tolist()
        # The positions of the table, sorted by source lane, are described by two arrays of shape (table,):
        # _rounds: round of each position, where each round takes one row from each lane of the mixture
        # _shared: lane of the mixture at each position
        small = self._turns.astype(np.uint16) if len(self._in_table) <= 2**16 else self._turns
        positions = np.argsort(small, kind="stable")  # with 16 bits, NumPy uses a fast radix sort
        self._rounds = (positions // line.lanes).astype(np.int32)
        self._shared = lane_of_visit(line.lanes)[positions % line.lanes].astype(np.int32)
        self._repeat = line.table_size // line.lanes
        self._every = max(_COUNTED, len(self._in_table))
        self._counted = self._counts(self._every)

    def _counts(self, every: int) -> NDArray[np.int64]:
        """Return how many rows each lane has before the positions 0, every, 2 · every, …

        The positions end where the order of sources repeats. The lanes are those of all sources, source after source.
        Shape (positions, lanes).
        """
        parts, lanes = -(-len(self._turns) // every), len(self._in_table)
        keys = np.arange(len(self._turns)) // every * lanes + self._turns
        in_parts = np.bincount(keys, minlength=parts * lanes).reshape(parts, lanes)
        return np.cumsum(np.concatenate([np.zeros((1, lanes), dtype=np.int64), in_parts]), axis=0)

    def _before(self, position: int) -> NDArray[np.int64]:
        """Return how many rows each lane of all sources has before a position of an epoch.

        Shape (lanes,).
        """
        repeats, inside = divmod(position, len(self._turns))
        counted = inside // self._every
        turns = np.bincount(self._turns[counted * self._every : inside], minlength=len(self._in_table))
        turns += self._counted[counted]
        turns += repeats * self._in_table
        return turns

    def own_of(self, shared: range) -> tuple[range, ...] | None:
        """Return, for each source, the range of its lanes whose rows all come from `shared`.

        `shared` is a range of lanes of the mixture. Return None if a lane of a source also has rows of other lanes of
        the mixture.
        """
        return _own_of(self._of_sources, self._shared_lanes, shared)

    def between(self, runs: LaneRuns, first: int, stop: int) -> list[SourceRuns]:
        """Return one rank's rows of each source in consecutive batches.

        A source is omitted if it has no rows in these batches on any rank.

        Args:
            runs: The rank's rows in the batches, as ranges of rows of mixture lanes. For these lanes, `own_of` must not
                return None.
            first: First position of the batches in the epoch.
            stop: Position after the last one of the batches.
        """
        firsts, stops = self._before(first), self._before(stop)
        counts = runs.stops - runs.firsts
        # shifts: shape (lanes,). A round takes one row from each lane of the mixture. If the rows of the batches are
        # sorted by mixture lane, the row of a lane in round r has the index shifts[lane] + r.
        shifts = np.zeros(runs.lanes, dtype=np.int64)
        shifts[runs.own.start : runs.own.stop] = np.cumsum(counts) - counts - runs.firsts
        given = [np.add.reduceat(turns, self._first_lanes[:-1]).tolist() for turns in (firsts, stops)]
        of_each = []
        for source, own in enumerate(self.own_of(runs.own) or ()):
            places = range(*(of_sources[source] for of_sources in given))
            start = self._first_lanes[source] + own.start
            here = slice(start, start + len(own))
            if places:
                put_targets = functools.partial(self._put_targets, runs, shifts, start)
                of_each.append(SourceRuns(source, places, own, firsts[here], stops[here], put_targets))
        return of_each

    def _put_targets(
        self,
        runs: LaneRuns,
        shifts: NDArray[np.int64],
        lane: int,
        firsts: NDArray[np.int64],
        stops: NDArray[np.int64],
        out: NDArray[np.int64],
    ) -> None:
        """Write the index in the batches of each row of a source; see `SourceRuns.put_targets`.

        Args:
            runs: The rank's rows, as for `between`.
            shifts: As in `_numbers`.
            lane: First lane of the source that has rows of the rank, numbered across all sources.
            firsts: First row in each of these lanes.
            stops: Row after the last one in each of these lanes.
            out: Array of the indices.
        """
        begin = 0
        for number, (first, stop) in enumerate(zip(firsts.tolist(), stops.tolist(), strict=True), start=lane):
            if first < stop:
                of_lane = out[begin : begin + stop - first]
                numbers = self._numbers(number, first, stop, shifts)
                if runs.targets is None:
                    of_lane[:] = numbers
                else:
                    np.take(runs.targets, numbers, out=of_lane, mode="clip")
                begin += stop - first

    def _numbers(self, lane: int, first: int, stop: int, shifts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index in the batches of each row [first, stop) of a source's lane.

        The indices count the rows of the batches after they are sorted by lane of the mixture.

        Args:
            lane: Lane of a source, numbered across all sources.
            first: First row, counted along the lane from the start of the epoch.
            stop: Row after the last one.
            shifts: Index minus round of the rows of each mixture lane, shape (lanes,). A round takes one row from each
                lane of the mixture.

        Returns:
            Indices, shape (stop - first,).
        """
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
        """Return the indices of rows of a source's lane before the order of sources repeats.

        The indices count the rows of the batches after they are sorted by lane of the mixture.

        Args:
            turns: Slice of the positions before the order of sources repeats; positions are sorted by source lane.
            shifts: As in `_numbers`.
        """
        return shifts.take(self._shared[turns]) + self._rounds[turns]


@functools.lru_cache(maxsize=8)
def lanes_of_sources(line: MixedLine, lanes: tuple[int, ...]) -> LanesOfSources:
    """Return `LanesOfSources(line, lanes)` from a cache.

    All ranks in one process share the object.
    """
    return LanesOfSources(line, lanes)


@functools.lru_cache(maxsize=64)
def _own_of(of_sources: tuple[int, ...], lanes: int, shared: range) -> tuple[range, ...] | None:
    """Return, for each source, the range of its lanes whose rows all come from the mixture lanes `shared`.

    Return None if a lane of a source also has rows of other mixture lanes.

    Args:
        of_sources: Number of lanes of each source.
        lanes: Number of lanes of the mixture.
        shared: Range of mixture lanes.
    """
    of_each = []
    for count in of_sources:
        own = range(shared.start * count // lanes, (shared.stop - 1) * count // lanes + 1)
        if (-(-own.start * lanes // count), -(-own.stop * lanes // count)) != (shared.start, shared.stop):
            return None
        of_each.append(own)
    return tuple(of_each)


_PutTargets: TypeAlias = Callable[[NDArray[np.int64]], None]
"""Function that writes the index of each row in the batches into an array (rows,)."""

_OfEpoch: TypeAlias = tuple[GroupedRows, _PutTargets]
"""Rows of one epoch of a source, and the function that writes their indices in the batches.

Row groups are numbered across all sources."""

_Find: TypeAlias = Callable[[Walk, int, range], GroupedRows]
"""Function that looks up the rows of consecutive batches; see `Batches.find`."""


def mixed_batches(
    line: MixedLine, lanes: LanesOfSources, turns: Sequence[SourceTurns], batches: EpochBatches, shard: Shard
) -> SharedBatches:
    """Return one rank's batches of an epoch of a mixture with `batching="mixed"`.

    A batch may have rows of all sources. A batch is a range of positions (indices of rows in the epoch). Its rows are
    sorted by lane (one of the row sequences that the epoch interleaves) and cut into one slice for each rank.

    Args:
        line: Source of the row at each position.
        lanes: Lane of its source from which the row at each position comes.
        turns: For each source, the lane from which each of its rows comes.
        batches: Division of the epoch into batches.
        shard: Shard of the rank.
    """

    def finder(share: Share, consumed: NDArray[np.int64]) -> _Find:
        if isinstance(share.rows, LaneRuns) and lanes.own_of(share.rows.own) is not None:
            return functools.partial(_of_runs, lanes, turns, share.rows, consumed)
        return functools.partial(_of_rows, *line.at(share.positions), share.offsets)

    return SharedBatches(batches, shard, line=line, finder=finder)


class SourceBatches:
    """Batches of an epoch in which each batch has rows of one source.

    Each batch is also a batch of the plan of its source. For the interface, see `EpochOfBatches`.

    Args:
        batches: Batches of each source.
        weights: Proportions of the sources.
        shard: Shard of the rank.
        hashed_for: Integers, such as seed and epoch, from which the order of the sources is hashed.
    """

    def __init__(
        self, batches: Sequence[EpochBatches], weights: Sequence[int], shard: Shard, *, hashed_for: tuple[int, int]
    ) -> None:
        self._batches = batches
        self._shard = shard
        self._next = [0] * len(batches)
        self._taken = np.array([part.start for part in batches], dtype=np.int64)
        self._keys = BatchKeys(batches, weights, hashed_for=hashed_for)
        self._order = self._keys.merged()
        self.steps = sum(part.steps for part in batches)
        """Number of batches that each rank gets."""

    def take(self, count: int) -> Batches:
        """Return the next `count` batches, and advance to the batches after them."""
        order = list(itertools.islice(self._order, count))
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
        return Batches(
            find=functools.partial(_of_rows, sources, places, offsets),
            offsets=offsets,
            valid=None if pieces[0][1] is None else np.concatenate([valid for _, valid in pieces]),
            consumed=taken.sum(axis=1),
            given=lambda consumed: taken[np.searchsorted(taken.sum(axis=1), consumed)],
            taken=taken,
            numbered=lambda: (sources, places),
        )

    def _shares(self, source: int, count: int) -> list[tuple[Any, Any, int]]:
        """Take the next `count` batches of a source.

        Return (positions, `valid`, consumed rows) for each of them. Positions are those of this rank's rows in the
        source's epoch; `valid` is as in `Share`. Consumed rows are counted over all ranks, from the start of the epoch
        to the end of the batch.
        """
        part, steps = self._batches[source], range(self._next[source], self._next[source] + count)
        self._next[source] = steps.stop
        share = part.share(self._shard, steps.start, steps.stop)
        borders = share.offsets[1:-1]
        positions = np.split(share.positions, borders)
        valid = [None] * count if share.valid is None else np.split(share.valid, borders)
        return list(zip(positions, valid, part.consumed_after(steps).tolist(), strict=True))

    def places_at(self, step: int, shards: Sequence[Shard]) -> list[StepPlaces]:
        """Return the rows of a step in batch order, as `EpochOfBatches.places_at`."""
        source, number = self._keys.at(step)
        shares = [self._batches[source].share(shard, number, number + 1) for shard in shards]
        return [(np.full(len(share.positions), source), share.positions, share.valid) for share in shares]

    def steps_of(
        self, source: int, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the step and rank of each read of given rows of a source, as `EpochOfBatches.steps_of`."""
        which, numbers, ranks = self._batches[source].steps_of(places)
        return which, self._keys.steps_of(source, numbers), ranks

    def places_before(self, step: int) -> NDArray[np.int64]:
        """Return the number of rows that each source yields in this epoch before a step, shape (sources,)."""
        counts = self._keys.counts_before(step)
        before = [
            int(part.consumed_after(range(count - 1, count))[0]) if count else part.start
            for part, count in zip(self._batches, counts, strict=True)
        ]
        return np.array(before, dtype=np.int64)


def _of_rows(
    sources: NDArray[Any], places: NDArray[np.int64], offsets: NDArray[np.int64], walk: Walk, epoch: int, steps: range
) -> GroupedRows:
    """Look up the rows of consecutive batches row by row.

    Args:
        sources: Source of each row in the batches of a `Batches` object, shape (rows,).
        places: Number of rows that the source yields before each of these rows in this epoch of the mixture.
        offsets: Start of each of these batches among the rows.
        walk: Cache of row orders.
        epoch: Epoch of the mixture.
        steps: Range of these batches whose rows to return.
    """
    chosen = slice(*offsets[[steps.start, steps.stop]].tolist())
    places = places[chosen]
    by_source = places_by_key(sources[chosen])
    return _joined_sources(
        [
            of_epoch
            for source, targets in by_source
            for of_epoch in _epochs_of_rows(source, targets, places[targets], walk, epoch)
        ]
    )


def _epochs_of_rows(
    source: int, targets: NDArray[np.int64], places: NDArray[np.int64], walk: Walk, epoch: int
) -> Iterator[_OfEpoch]:
    """Look up the rows of one source; yield them, one item for each source epoch.

    Args:
        source: Number of the source.
        targets: Index of each row in the batches, ascending.
        places: Number of rows that the source yields before each row in this epoch of the mixture.
        walk: Cache of row orders.
        epoch: Epoch of the mixture, which may contain several epochs of the source.
    """
    own = walk.sources[source]
    given = places + epoch * own.given
    epochs = given // own.num_rows
    for number in range(int(epochs.min()), int(epochs.max()) + 1):
        here = epochs == number
        if here.any():
            rows = walk.order(source, number).by_lane(given[here] - number * own.num_rows)
            put_at = None if rows.permutation is None else rows.permutation.targets
            yield walk.noted(source, number, rows), functools.partial(_put, targets[here], put_at)


def _of_runs(
    lanes: LanesOfSources,
    turns: Sequence[SourceTurns],
    runs: LaneRuns,
    consumed: NDArray[np.int64],
    walk: Walk,
    epoch: int,
    steps: range,
) -> GroupedRows:
    """Look up the rows of consecutive batches as ranges of rows of source lanes.

    Args:
        lanes: Lanes of the sources at each position.
        turns: For each source, the lane from which each of its rows comes.
        runs: Rows that all batches of a `Batches` object take from the rank's lanes of the mixture.
        consumed: Number of rows of the epoch before the first of these batches, and after each.
        walk: Cache of row orders.
        epoch: Epoch of the mixture.
        steps: Range of these batches whose rows to return.
    """
    borders = consumed[steps.start : steps.stop + 1]
    if len(borders) < len(consumed):
        runs, _ = LaneRuns.between(borders, lanes=runs.lanes, own=runs.own)
    parts = lanes.between(runs, int(borders[0]), int(borders[-1]))
    return _joined_sources(
        [of_epoch for part in parts for of_epoch in _epochs_of_runs(part, turns[part.source], walk, epoch)]
    )


def _epochs_of_runs(part: SourceRuns, turns: SourceTurns, walk: Walk, epoch: int) -> Iterator[_OfEpoch]:
    """Look up the rows of one source (`part`); yield them, one item for each source epoch.

    `epoch` is the number of the mixture's epoch, which may contain several epochs of the source.
    """
    source = walk.sources[part.source]
    num_rows, own = source.num_rows, slice(part.own.start, part.own.stop)
    given = range(epoch * source.given + part.places.start, epoch * source.given + part.places.stop)
    # firsts, stops: shape (own,), range of rows of each lane, counted since the first epoch of the mixture
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
            put_targets = functools.partial(part.put_targets, first - earlier, stop - earlier)
            yield walk.noted(part.source, number, rows), put_targets


def _joined_sources(of_all: Sequence[_OfEpoch]) -> GroupedRows:
    """Concatenate the rows of all sources; their batch order is computed when it is needed."""
    return joined([rows for rows, _ in of_all], Permutation(functools.partial(_targets, of_all)))


def _put(targets: NDArray[np.int64], in_order: NDArray[np.int64] | None, out: NDArray[np.int64]) -> None:
    """Write `targets` into `out`, reordered by the indices `in_order` if given."""
    if in_order is None:
        out[:] = targets
    else:
        np.take(targets, in_order, out=out, mode="clip")


def _targets(of_all: Sequence[_OfEpoch]) -> NDArray[np.int64]:
    """Return the index in the batches of each row of all sources, shape (rows,)."""
    targets = np.empty(sum(rows.num_rows for rows, _ in of_all), dtype=np.int64)
    begin = 0
    for rows, put in of_all:
        put(targets[begin : begin + rows.num_rows])
        begin += rows.num_rows
    return targets
