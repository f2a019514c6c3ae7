"""Spans: the batches of an epoch as a reader works on them, several at a time, in order. Pure.

Rows are found for many batches at once, since what that costs is mostly paid once a lane; spans are cut of them. Which
row groups are fetched, and which are let go of, is settled span by span.

One `Walk` makes the spans of a plan and those of a mixture. A plan has one source, which gives all of its rows in every
epoch; a source of a mixture goes on through epochs of its own. How the rows of some batches are found is what differs,
and `Batches` say it: a plan's are looked up in the order of its epoch, those of a mixture source by source
(`petastore.plan.mixture.mixed_batches`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.once import once
from petastore.plan.batches.tail import EpochBatches, Share
from petastore.plan.cursor import Cursor, MixedCursor
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.order.mix import mix
from petastore.plan.order.order import EpochOrder
from petastore.plan.order.visits import LaneVisits
from petastore.plan.request import Order, Shard
from petastore.plan.selection import Selection

__all__ = ["Batches", "EpochOfBatches", "Pace", "SharedBatches", "Source", "Span", "Walk", "each_once"]

NumberedRows: TypeAlias = "tuple[NDArray[Any], NDArray[np.int64]]"
"""For each row: its source, and the number of rows that the source gave before."""

_FEW = 64
"""So few numbers are sorted faster by Python."""

# What a hash is for; `petastore.plan.order.order` and `petastore.plan.mixture.mixed_line` have others.
_TRANSFORMS = 32

_ROWS_AT_ONCE = 16_384
"""Rows that are found at once, where spans have fewer: what finding costs is mostly paid once a lane and source."""


@dataclasses.dataclass(frozen=True, eq=False)
class Span:
    """One rank's rows of some consecutive batches of one epoch: what is assembled in one go."""

    picked: GroupedRows
    """Its rows; they are asked for batch after batch."""

    offsets: NDArray[np.int64]
    """Batch i holds rows [offsets[i], offsets[i + 1]); shape (batches + 1,)."""

    valid: NDArray[np.bool_] | None
    """With `Tail.PAD`: False where a row is a repeat, shape (rows,). Else None."""

    epoch: int
    """The epoch that all rows belong to."""

    first_epoch: int
    """The epoch that the pass began with."""

    consumed: NDArray[np.int64]
    """Positions of the epoch that all ranks together have consumed after each batch, shape (batches,)."""

    ends_epoch: bool
    """Whether the last batch is the last one of its epoch."""

    needed: NDArray[np.int32]
    """The row groups of `groups`, each once, ascending."""

    fetch: tuple[int, ...]
    """Those of them that are not at hand yet: read them for this span, and keep them."""

    read_orders: tuple[NDArray[np.int64] | None, ...]
    """Of each of `fetch`: all of its rows that are meant, in the order in which this rank comes to them, those that are
    for other ranks last; None is all rows in the order of the file. Who keeps them like this finds side by side what
    the spans take."""

    release: tuple[int, ...]
    """Row groups at hand that no later span needs: let go of them once this span is assembled."""

    most_rows: int
    """Rows that other spans of its pass may have: memory with room for as many serves all of them."""

    taken: NDArray[np.int64] | None = None
    """Where each batch is of one source of a mixture: rows of each source consumed after each batch, shape
    (batches, sources)."""

    random_streams: Callable[[], NDArray[np.uint64]] = lambda: np.empty(0, dtype=np.uint64)
    """Gives a hash of the seed and the epoch of each row, shape (rows,), batch after batch. In a mixture both are those
    of its source: the random numbers of a transform follow from it and the row's place in the dataset."""

    @property
    def num_batches(self) -> int:
        """Batches in the span."""
        return len(self.consumed)

    @property
    def num_rows(self) -> int:
        """Rows in the span."""
        return self.picked.num_rows

    @property
    def groups(self) -> NDArray[np.int32]:
        """Row group of each row, shape (rows,), batch after batch."""
        return self._in_order[0]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row inside its row group of each row, shape (rows,), batch after batch."""
        return self._in_order[1]

    @once
    def _in_order(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        # Worked out by whoever asks: most columns are copied by row group, and planning is the consumer's time.
        return self.picked.in_order()

    def part(self, first: int, stop: int) -> Self:
        """The batches [first, stop) as a span of its own, made of row groups that are at hand."""
        rows = slice(*self.offsets[[first, stop]].tolist())
        return dataclasses.replace(
            self,
            picked=GroupedRows(self.groups[rows], self.rows[rows], None),
            offsets=self.offsets[first : stop + 1] - rows.start,
            valid=None if self.valid is None else self.valid[rows],
            consumed=self.consumed[first:stop],
            ends_epoch=self.ends_epoch and stop == self.num_batches,
            needed=np.unique(self.groups[rows]),
            fetch=(),
            read_orders=(),
            release=(),
            taken=None if self.taken is None else self.taken[first:stop],
            random_streams=lambda: self.random_streams()[rows],
        )

    def cursor_after(self, batch: int) -> Cursor:
        """The cursor after a batch, given by its place in the span."""
        if self.ends_epoch and batch == self.num_batches - 1:
            return Cursor(self.epoch, 0, self.first_epoch).next_epoch()
        position = int(self.consumed[batch])
        if self.taken is not None:
            return MixedCursor(self.epoch, position, self.first_epoch, tuple(self.taken[batch].tolist()))
        return Cursor(self.epoch, position, self.first_epoch)


class Pace:
    """How many batches the next spans have: one, then twice as many, up to a largest number.

    Args:
        rows_per_span: Rows that a span is to have at most.
        batch_size: Rows of a batch.

    Example:
        >>> pace = Pace(rows_per_span=6000, batch_size=1000)
        >>> [pace.next(left) for left in (100, 99, 97, 93, 87, 3)]
        [[1], [2], [4], [6], [6, 6], [3]]
    """

    def __init__(self, rows_per_span: int, batch_size: int) -> None:
        self._largest = max(rows_per_span // batch_size, 1)
        self.most_rows = self._largest * batch_size
        """Rows that a span has at most."""
        self._most = max(_ROWS_AT_ONCE // self.most_rows, 1)
        self._steps = 0

    def next(self, left: int) -> list[int]:
        """Batches of each of the next spans, whose rows are found together.

        Args:
            left: Batches that there are, at least 1.
        """
        spans = self._most if self._steps == self._largest else 1  # the first batch does not wait for others
        self._steps = min(max(2 * self._steps, 1), self._largest)
        sizes: list[int] = []
        while left and len(sizes) < spans:
            sizes.append(min(self._steps, left))
            left -= sizes[-1]
        return sizes


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Source:
    """One dataset as a walk sees it."""

    rows: NDArray[np.int64]
    """Rows of each row group that are meant, shape (groups,)."""

    num_rows: int
    """All of them: an epoch of its own."""

    asked: Order
    """What was asked of their order."""

    selection: Selection | None
    """Which rows are meant; None is all."""

    own_lanes: range
    """Its lanes that this rank's share comes from."""

    given: int
    """Rows that it gives in an epoch of the walk: `num_rows` of a plan, any number of a mixture."""

    first_group: int = 0
    """The number of its first row group among those of all sources."""

    visits: Callable[[int], LaneVisits] | None = None
    """Which of its lanes has its turn when, in each of its epochs; None goes round them."""

    def order(self, epoch: int) -> EpochOrder:
        """The order of one of its own epochs."""
        return EpochOrder(self.rows, self.asked, epoch, visits=self.visits and self.visits(epoch))

    def read_order_of(self, group: int, order: EpochOrder) -> NDArray[np.int64] | None:
        """The rows of a row group that are meant, in the order in which this rank comes to them; the others last.

        Args:
            group: Number of the row group among those of all sources.
            order: Of an epoch of this source.

        Returns:
            Rows inside the row group, each once; None is all rows in the order of the file.
        """
        own, selection = group - self.first_group, self.selection
        places = order.read_order_of(own, lanes=self.own_lanes) if self.asked.shuffle_rows else None
        if selection is None or own not in selection.bitmaps:
            return places
        places = np.arange(int(selection.counts[own]), dtype=np.int64) if places is None else places
        return selection.rows_at(np.full(len(places), own, dtype=np.int32), places)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Batches:
    """One rank's rows of some consecutive batches of an epoch."""

    find: Callable[[Walk, int, range], GroupedRows]
    """`find(walk, epoch, steps)` finds the rows of some consecutive ones of them, asked for batch after batch."""

    offsets: NDArray[np.int64]
    """Where batches begin, and the end of the last one, shape (batches + 1,)."""

    valid: NDArray[np.bool_] | None
    """Which rows are no repeats, as in `Span`."""

    consumed: NDArray[np.int64]
    """Positions consumed before the first batch, and after each, shape (batches + 1,)."""

    given: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    """Rows of each source consumed when so many positions are, shape (n,) to (n, sources)."""

    taken: NDArray[np.int64] | None = None
    """Rows of each source consumed before the first batch, and after each, where cursors have to say it, shape
    (batches + 1, sources)."""

    numbered: Callable[[], NumberedRows] | None = None
    """Gives the source of each row, and how many rows that source gave before it in this epoch, both of shape (rows,),
    batch after batch; None where the only source gives one of its own epochs."""


class EpochOfBatches(Protocol):
    """The batches of an epoch, which are taken in turn."""

    @property
    def steps(self) -> int:
        """Batches that each rank gets."""

    def take(self, count: int) -> Batches:
        """The next batches."""


class SharedBatches:
    """The batches of an epoch that are runs of its positions, as ranks share them.

    Args:
        batches: How the epoch falls into batches.
        shard: The rank.
        first: The first batch that is taken.
        finder: Says how the rows of a share are found, given also the positions consumed before its first batch and
            after each; a plan's are those of its order.
        given: As in `Batches`; a plan's only source gives every position.
        numbered: What `Batches.numbered` gives for the rows at some positions; None as there.
    """

    def __init__(
        self,
        batches: EpochBatches,
        shard: Shard,
        *,
        first: int = 0,
        finder: Callable[[Share, NDArray[np.int64]], Callable[[Walk, int, range], GroupedRows]] | None = None,
        given: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None,
        numbered: Callable[[NDArray[np.int64]], NumberedRows] | None = None,
    ) -> None:
        self._batches = batches
        self._shard = shard
        self._next = first
        self._finder = finder or _finder
        self._given = given or _all_of_one
        self._numbered = numbered
        self.steps = batches.steps - first
        """Batches that each rank gets."""

    def take(self, count: int) -> Batches:
        """The next batches."""
        first, self._next = self._next, self._next + count
        share = self._batches.share(self._shard, first, self._next)
        consumed = self._batches.consumed_after(range(first - 1, self._next))
        of_positions = self._numbered
        numbered = None if of_positions is None else functools.cache(lambda: of_positions(share.positions))
        find = self._finder(share, consumed)
        return Batches(find, share.offsets, share.valid, consumed, self._given, numbered=numbered)


def _finder(share: Share, _: NDArray[np.int64]) -> Callable[[Walk, int, range], GroupedRows]:
    return functools.partial(_of_plan, share)


def _of_plan(share: Share, walk: Walk, epoch: int, _: range) -> GroupedRows:
    """The rows of a plan; all of its share, since its source starts over with the epoch.

    A plan could be found as a mixture of it alone is: by a table of whose turn it is at which position. But all turns
    are its own, and looking that up would cost a fourth more than finding its rows does.
    """
    rows = walk.order(0, epoch).by_lane(share.rows, read_lanes=walk.sources[0].own_lanes)
    return walk.noted(0, epoch, rows)


def _all_of_one(consumed: NDArray[np.int64]) -> NDArray[np.int64]:
    return consumed[:, None]


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


def each_once(picked: GroupedRows) -> NDArray[np.int32]:
    """The row groups of some rows, each once, ascending, shape (row groups,).

    Example:
        >>> each_once(GroupedRows(np.array([7, 2, 7], np.int32), np.array([0, 5, 1]), None)).tolist()
        [2, 7]
    """
    groups = picked.groups if picked.runs is None else picked.runs.groups
    if len(groups) < _FEW:
        return np.array(sorted(set(groups.tolist())), dtype=np.int32)
    first = int(groups.min())
    present = np.zeros(int(groups.max()) - first + 1, dtype=np.bool_)
    present[groups - np.int32(first)] = True
    return np.flatnonzero(present).astype(np.int32) + np.int32(first)


class Walk:
    """One rank's way through a plan or a mixture: finds the rows of batches, and keeps track of row groups at hand.

    Args:
        sources: What is read.
        most_rows: Rows that a span has at most.
    """

    def __init__(self, sources: Sequence[Source], most_rows: int) -> None:
        self.sources = sources
        """What is read."""
        self._most_rows = most_rows
        self.order = functools.lru_cache(maxsize=2 * len(sources))(self._order)
        """The order of an epoch of a source, given by their numbers."""
        # num_rows, given: (sources,) rows of its own epochs, and of those of the walk
        self._num_rows = np.array([source.num_rows for source in sources])
        self._given = np.array([source.given for source in sources])
        self._at_hand: dict[int, _Use] = {}
        self._uses: dict[int, _Use] = {}  # of row groups that are at hand, or will be

    def _order(self, source: int, epoch: int) -> EpochOrder:
        return self.sources[source].order(epoch)

    def epochs(
        self, batches_of: Callable[[Cursor], EpochOfBatches], pace: Pace, *, after: Cursor, epochs: int | None
    ) -> Iterator[Span]:
        """The spans of all epochs from a cursor on.

        Args:
            batches_of: Says how the epoch that begins, or goes on, at a cursor falls into batches.
            pace: How large spans are.
            after: Where to go on.
            epochs: How many a pass has; None is no end of them.
        """
        begin = after
        while not begin.is_at_end(epochs):
            batches, then = batches_of(begin), begin.next_epoch()
            here = Cursor(begin.epoch, 0, begin.first_epoch)
            yield from self.spans(batches, pace, here, is_last=then.is_at_end(epochs))
            if batches.steps == 0 and begin.position == 0:
                return  # an epoch without batches is followed by others like it
            begin = then

    def spans(self, batches: EpochOfBatches, pace: Pace, at: Cursor, *, is_last: bool) -> Iterator[Span]:
        """The spans of an epoch, or of what is left of it.

        Args:
            batches: What is left; all of it is taken.
            pace: How large spans are.
            at: The epoch, and that with which the pass began.
            is_last: Whether nothing follows the epoch.
        """
        left = batches.steps
        while left:
            sizes = pace.next(left)
            left -= sum(sizes)
            taken = batches.take(sum(sizes))
            steps = [range(*pair) for pair in itertools.pairwise(itertools.accumulate(sizes, initial=0))]
            for together in self._stretches(taken, steps, at.epoch):
                for some, picked in zip(together, self._found(taken, at.epoch, together), strict=True):
                    ends_epoch = not left and some is steps[-1]
                    yield self._span(taken, some, picked, at, ends_epoch=ends_epoch, is_over=ends_epoch and is_last)

    def _stretches(self, batches: Batches, steps: list[range], epoch: int) -> Iterator[list[range]]:
        """Consecutive steps whose rows are found all at once.

        No source starts over within several of them: row groups would be kept from one of its epochs to the next.
        """
        borders = np.array([0, *(some.stop for some in steps)])
        given = batches.given(batches.consumed[borders]) + epoch * self._given
        # of_first, of_last: (steps, sources) the epochs of each source that the first and last row of a step are of
        of_first = given[:-1] // self._num_rows
        of_last = np.maximum(given[1:] - 1, given[:-1]) // self._num_rows
        first = 0
        for number in range(1, len(steps)):
            if (of_first[first] != of_last[number]).any():
                yield steps[first:number]
                first = number
        yield steps[first:]

    def _found(self, batches: Batches, epoch: int, steps: Sequence[range]) -> list[GroupedRows]:
        """The rows of some consecutive steps."""
        self._uses = dict(self._at_hand)
        for use in self._uses.values():
            use.order = None
        borders = batches.offsets[[steps[0].start, *(some.stop for some in steps)]]
        return batches.find(self, epoch, range(steps[0].start, steps[-1].stop)).cut(borders - borders[0])

    def noted(self, source: int, epoch: int, picked: GroupedRows) -> GroupedRows:
        """Some rows of one epoch of a source, where row groups are numbered through all sources; noted as needed."""
        own = self.sources[source]
        if own.selection is not None:
            picked = picked.selected(own.selection)
        if own.first_group:
            picked = picked.numbered_from(own.first_group)
        groups = each_once(picked).tolist()
        self._note(source, epoch, groups)
        # Row groups that were kept from the epoch before lie in the read order of that one.
        is_in_read_order = picked.runs is not None and own.asked.shuffle_rows
        if is_in_read_order and any(self._uses[group].first_epoch != epoch for group in groups):
            return picked.without_runs()
        return picked

    def _note(self, source: int, epoch: int, groups: Sequence[int]) -> None:
        """Notes until when an epoch of a source needs some row groups."""
        uses = self._uses
        new = [group for group in groups if (use := uses.get(group)) is None or use.last_epoch != epoch]
        if not new:
            return
        own, order = self.sources[source], self.order(source, epoch)
        last = order.last_positions(np.array(new, dtype=np.int32) - np.int32(own.first_group), lanes=own.own_lanes)
        for group, until in zip(new, (epoch * own.num_rows + last + 1).tolist(), strict=True):
            use = uses.get(group)
            if use is None:
                uses[group] = _Use(source, epoch, epoch, order, until)
            else:
                use.last_epoch, use.until = epoch, max(use.until, until)

    def _span(
        self, batches: Batches, steps: range, picked: GroupedRows, at: Cursor, *, ends_epoch: bool, is_over: bool
    ) -> Span:
        offsets = batches.offsets[steps.start : steps.stop + 1]
        after = slice(steps.start + 1, steps.stop + 1)
        needed = each_once(picked)
        fetch = [group for group in needed.tolist() if group not in self._at_hand]
        self._at_hand.update((group, self._uses[group]) for group in fetch)
        # `last_batch="drop"` leaves out some of what sources give in an epoch
        in_epoch = self._given if ends_epoch else batches.given(batches.consumed[steps.stop :][:1])[0]
        given = (at.epoch * self._given + in_epoch).tolist()
        release = [group for group, use in self._at_hand.items() if is_over or use.until <= given[use.source]]
        read_orders = tuple(map(self._read_order, fetch))
        for group in release:
            del self._at_hand[group]
        return Span(
            picked=picked,
            offsets=offsets - offsets[0],
            valid=None if batches.valid is None else batches.valid[offsets[0] : offsets[-1]],
            epoch=at.epoch,
            first_epoch=at.first_epoch,
            consumed=batches.consumed[after],
            ends_epoch=ends_epoch,
            needed=needed,
            fetch=tuple(fetch),
            read_orders=read_orders,
            release=tuple(release),
            most_rows=self._most_rows,
            taken=None if batches.taken is None else batches.taken[after],
            random_streams=functools.partial(
                self._random_streams, batches.numbered, at.epoch, slice(*offsets[[0, -1]].tolist())
            ),
        )

    def _random_streams(
        self, numbered: Callable[[], NumberedRows] | None, epoch: int, rows: slice
    ) -> NDArray[np.uint64]:
        """The hash of the seed and the epoch of each row; see `Span.random_streams`."""
        if numbered is None:
            return np.full(rows.stop - rows.start, self._random_stream(0, epoch), dtype=np.uint64)
        sources, places = (of_rows[rows] for of_rows in numbered())
        epochs = (places + epoch * self._given[sources]) // self._num_rows[sources]
        pairs, which = np.unique(np.stack([sources, epochs]), axis=1, return_inverse=True)
        streams = [self._random_stream(source, of_source) for source, of_source in pairs.T.tolist()]
        return np.array(streams, dtype=np.uint64)[which.reshape(-1)]

    def _random_stream(self, source: int, epoch: int) -> int:
        return mix(_TRANSFORMS, self.sources[source].asked.seed, epoch)

    def _read_order(self, group: int) -> NDArray[np.int64] | None:
        """In what order the rows of a row group, which was just found to be needed, are come to."""
        use = self._uses[group]
        order = use.order or self.order(use.source, use.first_epoch)
        return self.sources[use.source].read_order_of(group, order)
