"""Spans: groups of consecutive batches that a reader assembles together. No I/O.

An epoch takes rows in turn from several sequences of row groups, the *lanes*. Looking up rows takes time for each lane,
and hardly any for each batch. The plan therefore looks up the rows of many batches at once and divides the result into
spans. Each span lists the row groups to fetch, and the row groups to release after it.

`Walk` computes the spans of a plan or a mixture. A plan has one source, which yields all of its rows in every epoch;
each source of a mixture has its own epochs. `Batches` is the interface for looking up rows: in the order of the plan's
epoch, or for a mixture source by source (`petastore.plan.mixture.mixed_batches`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.lazy import once
from petastore.plan.batches.epoch_batches import EpochBatches, Share
from petastore.plan.cursor import Cursor, MixedCursor
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.order.mix import mix
from petastore.plan.order.order import EpochOrder
from petastore.plan.order.visits import LaneVisits
from petastore.plan.request import Order, Shard
from petastore.plan.selection import Selection

if TYPE_CHECKING:
    from petastore.plan.row_group_parts import RowGroupParts

__all__ = [
    "Batches",
    "EpochOfBatches",
    "SharedBatches",
    "Source",
    "Span",
    "StepPlaces",
    "Walk",
    "each_once",
    "times_of_rows",
]

NumberedRows: TypeAlias = "tuple[NDArray[Any], NDArray[np.int64]]"
"""Source of each row, and the number of rows that the source yields before it.

The number counts from the start of the epoch. Both arrays have shape (rows,)."""

StepPlaces: TypeAlias = "tuple[NDArray[np.integer], NDArray[np.int64], NDArray[np.bool_] | None]"
"""Rows of a batch: source, place, and mask of the rows that are not repeats.

The place is the number of rows that the source yields before the row in this epoch. The mask is False for repeats of
`LastBatch.PAD`; None if there are no repeats."""

_FEW = 64
"""Maximum number of integers that Python sorts faster than NumPy does."""

# First word that is hashed; other modules hash other first words, so that the hashes are unrelated.
_TRANSFORMS = 32

_ROWS_AT_ONCE = 16_384
"""Number of rows that are looked up at once; smaller spans are looked up together.

Most of the cost is per lookup in a lane (one of the interleaved sequences of row groups) and source, not per row."""


@dataclasses.dataclass(frozen=True, eq=False)
class Span:
    """Span: rows of one rank in consecutive batches of an epoch, assembled together."""

    picked: GroupedRows
    """Rows of the span, sorted for fast copying, and the permutation into batch order."""

    offsets: NDArray[np.int64]
    """Batch boundaries: batch i has rows [offsets[i], offsets[i + 1]); (batches + 1,)."""

    valid: NDArray[np.bool_] | None
    """Mask that is False for repeated rows of `LastBatch.PAD`, shape (rows,).

    None for other policies."""

    epoch: int
    """Epoch to which all rows of the span belong."""

    first_epoch: int
    """First epoch of the current iteration over the reader."""

    consumed: NDArray[np.int64]
    """Number of rows of the epoch that were consumed after each batch.

    Rows are counted over all ranks; shape (batches,)."""

    ends_epoch: bool
    """Whether the last batch of the span is the last one of its epoch."""

    needed: NDArray[np.int32]
    """Distinct row groups from which the span takes rows, ascending."""

    fetch: tuple[int, ...]
    """Row groups of `needed` that are not in memory yet.

    Load them for this span, and keep them in memory until a span lists them in `release`."""

    read_orders: tuple[NDArray[np.int64] | None, ...]
    """Read order of each row group of `fetch`; None means all rows in file order.

    A read order has the selected rows of the row group in the order in which this rank reads them; rows of other ranks
    are last. If a row group is stored in memory in this order, the rows that a span takes from it are contiguous."""

    release: tuple[int, ...]
    """Row groups in memory that no later span needs.

    Release them after this span is assembled."""

    most_rows: int
    """Maximum number of rows of any span of the plan.

    A buffer of this size fits every span."""

    times: tuple[float, float] = (0.0, 0.0)
    """Progress before and after the span, in rows of all sources since epoch 0.

    A source that has yielded half of its rows of an epoch counts as half of the rows of all sources. The first number
    is that of the source that is furthest behind, the second that of the source that is furthest ahead."""

    taken: NDArray[np.int64] | None = None
    """Number of rows of each source that were consumed after each batch.

    Shape (batches, sources). None unless each batch of a mixture has rows of one source."""

    random_streams: Callable[[], NDArray[np.uint64]] = lambda: np.empty(0, dtype=np.uint64)
    """Function that returns a hash of seed and epoch for each row, in batch order.

    The hashes have shape (rows,). In a mixture, seed and epoch are those of the row's source. The random numbers of a
    transform depend only on this hash and the row's place in the dataset."""

    @property
    def num_batches(self) -> int:
        """Number of batches in the span."""
        return len(self.consumed)

    @property
    def num_rows(self) -> int:
        """Number of rows in the span."""
        return self.picked.num_rows

    @property
    def groups(self) -> NDArray[np.int32]:
        """Row group of each row in batch order, shape (rows,)."""
        return self._in_order[0]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Number of each row in its row group, in batch order, shape (rows,)."""
        return self._in_order[1]

    @once
    def _in_order(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        # Computed at first use, because planning must be fast, and most columns are copied by row group, without these
        # arrays.
        return self.picked.in_order()

    def part(self, first: int, stop: int) -> Self:
        """Return the batches [first, stop) of the span as a separate span.

        Its `fetch` and `release` are empty, because all row groups of this span are already in memory.
        """
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
        """Return the cursor after a batch, from which a run can resume.

        `batch` is the index of the batch in the span.
        """
        if self.ends_epoch and batch == self.num_batches - 1:
            return Cursor(self.epoch, 0, self.first_epoch).next_epoch()
        position = int(self.consumed[batch])
        if self.taken is not None:
            return MixedCursor(self.epoch, position, self.first_epoch, tuple(self.taken[batch].tolist()))
        return Cursor(self.epoch, position, self.first_epoch)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Source:
    """Source: one dataset of a plan or mixture, with the row order of this rank."""

    rows: NDArray[np.int64]
    """Number of selected rows of each row group, shape (groups,)."""

    num_rows: int
    """Total number of selected rows, which is the length of an epoch of this source."""

    requested: Order
    """Requested options of the row order."""

    selection: Selection | None
    """Selected rows; None means all."""

    own_lanes: range
    """Lanes from which this rank gets its rows.

    Lanes are the sequences of row groups that an epoch interleaves."""

    given: int
    """Number of rows that this source yields in an epoch of the plan or mixture.

    For a plan, this is `num_rows`; for a mixture, any number."""

    first_group: int = 0
    """Number of the source's first row group among the row groups of all sources."""

    lanes_in: Callable[[int], range] | None = None
    """Function that returns the lanes that a loader worker reads in an epoch.

    Its argument is the number of the source's epoch. The lanes (interleaved sequences of row groups) are some of
    `own_lanes`. None means that the worker reads all of `own_lanes`."""

    visits: Callable[[int], LaneVisits] | None = None
    """Function that returns the lane (sequence of row groups) of each row in an epoch.

    Its argument is the number of the source's epoch. None takes one row from each lane in turn (round-robin)."""

    parts: RowGroupParts | None = None
    """Division of the row groups into parts; None if they are not divided.

    With parts, `rows` has an entry for each part."""

    def order(self, epoch: int) -> EpochOrder:
        """Return the row order of one of the source's own epochs."""
        return EpochOrder(self.rows, self.requested, epoch, visits=self.visits and self.visits(epoch), parts=self.parts)

    def read_order_of(self, group: int, order: EpochOrder) -> NDArray[np.int64] | None:
        """Return the rows of a row group in the order in which this rank reads them.

        Rows of other ranks are last.

        Args:
            group: Number of the row group among those of all sources.
            order: Order of an epoch of this source.

        Returns:
            Distinct row numbers in the row group; None means all rows in file order.
        """
        own, selection = group - self.first_group, self.selection
        places = order.read_order_of(own, lanes=self.own_lanes) if self.requested.shuffle_rows else None
        if selection is None or own not in selection.bitmaps:
            return places
        places = np.arange(int(selection.counts[own]), dtype=np.int64) if places is None else places
        return selection.rows_at(np.full(len(places), own, dtype=np.int32), places)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Batches:
    """Consecutive batches of an epoch, for one rank."""

    find: Callable[[Walk, int, range], GroupedRows]
    """Function `find(walk, epoch, steps)` that looks up the rows of some batches.

    `walk` has the sources and their row orders, `epoch` is the number of the epoch, and `steps` is a range of the
    batches of this object, numbered from 0. The result has the rows in batch order."""

    offsets: NDArray[np.int64]
    """Start of each batch among the rows, then the number of rows; (batches + 1,)."""

    valid: NDArray[np.bool_] | None
    """Mask that is False for repeated rows, as in `Span.valid`; None without repeats."""

    consumed: NDArray[np.int64]
    """Number of consumed rows of the epoch, before the first batch and after each.

    Rows are counted over all ranks; shape (batches + 1,)."""

    given: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    """Function that returns how many of an epoch's first rows come from each source.

    Its argument has numbers of rows, from `consumed`, shape (n,). Its result has shape (n, sources)."""

    taken: NDArray[np.int64] | None = None
    """Number of consumed rows of each source, before the first batch and after each.

    Shape (batches + 1, sources). None unless each batch of a mixture has rows of one source; cursors then need these
    numbers."""

    numbered: Callable[[], NumberedRows] | None = None
    """Function that returns the source of each row, and its number in the source.

    The number counts the rows that the source yielded before the row in this epoch. Both arrays are in batch order,
    shape (rows,). None for a single source whose epoch is the epoch of the plan."""


class EpochOfBatches(Protocol):
    """Interface: the batches of an epoch, or of its rest, from the first one on.

    `take` returns the batches of one rank in order. The other methods look up rows of any rank in any step. The *place*
    of a row is the number of rows that its source yields before this row in this epoch of the plan.
    """

    @property
    def steps(self) -> int:
        """Number of batches that each rank gets."""

    def take(self, count: int) -> Batches:
        """Return the next `count` batches, and advance to the batches after them."""

    def places_at(self, step: int, shards: Sequence[Shard]) -> list[StepPlaces]:
        """Return the rows of a step in batch order, one `StepPlaces` for each given rank.

        A `StepPlaces` has the source of each row, the number of rows that the source yields before it in this epoch,
        and a mask that is False for repeated rows (None without repeats).
        """

    def steps_of(
        self, source: int, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the step and rank of each read of given rows of a source.

        A row may be read once, several times or not at all.

        Args:
            source: Number of the source.
            places: Number of rows that the source yields before each row in this epoch, shape (n,).

        Returns:
            Three arrays of shape (reads,): index into `places`, step and rank.
        """

    def places_before(self, step: int) -> NDArray[np.int64]:
        """Return the number of rows that each source yields in this epoch before a step.

        Shape (sources,).
        """


class SourceLine(Protocol):
    """Interface: the source of the row at each position of a mixture."""

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Return the source at each position, and the row's number in this source.

        The number counts the rows that the source yields before the row in this epoch. Both arrays have shape (n,).
        """

    def positions(self, source: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the mixture of rows of a source, shape (n,).

        `places` are the indices of the rows in the order of the source.
        """

    def counts_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many rows each source yields before given positions.

        Shape (positions, sources).
        """


class SharedBatches:
    """Batches of an epoch, each a range of positions that is divided among the ranks.

    A position is the index of a row in the epoch. For the interface, see `EpochOfBatches`.

    Args:
        batches: Division of the epoch into batches.
        shard: Shard of the rank.
        first: Number of the first batch that `take` returns.
        line: Source of the row at each position of a mixture. None for a single source whose epoch is the epoch of the
            plan.
        finder: Function that returns the row lookup (`Batches.find`) of some batches. Its arguments are this rank's
            rows in the batches, and the numbers of consumed rows (`Batches.consumed`). None means the lookup of a plan
            with one source.

    Example:
        >>> from petastore.plan.request import LastBatch
        >>> epoch = EpochBatches(11, batch_size=2, ranks=2, lanes=1, last_batch=LastBatch.WRAP)
        >>> batches = SharedBatches(epoch, Shard(0, 2))
        >>> [places.tolist() for _, places, _ in batches.places_at(2, [Shard(0, 2), Shard(1, 2)])]
        [[8, 9], [10, 0]]
        >>> [array.tolist() for array in batches.steps_of(0, np.array([0, 9]))]
        [[0, 1, 0], [0, 2, 2], [0, 0, 1]]
    """

    def __init__(
        self,
        batches: EpochBatches,
        shard: Shard,
        *,
        first: int = 0,
        line: SourceLine | None = None,
        finder: Callable[[Share, NDArray[np.int64]], Callable[[Walk, int, range], GroupedRows]] | None = None,
    ) -> None:
        self._batches = batches
        self._shard = shard
        self._next = first
        self._line = line
        self._finder = finder or _finder
        self.steps = batches.steps - first
        """Number of remaining batches that each rank gets."""

    def take(self, count: int) -> Batches:
        """Return the next `count` batches, and advance to the batches after them."""
        first, self._next = self._next, self._next + count
        share = self._batches.share(self._shard, first, self._next)
        consumed = self._batches.consumed_after(range(first - 1, self._next))
        find, line = self._finder(share, consumed), self._line
        if line is None:
            return Batches(find, share.offsets, share.valid, consumed, _all_of_one)
        numbered = functools.cache(lambda: line.at(share.positions))
        return Batches(find, share.offsets, share.valid, consumed, line.counts_at, numbered=numbered)

    def places_at(self, step: int, shards: Sequence[Shard]) -> list[StepPlaces]:
        """Return the rows of a step in batch order, as `EpochOfBatches.places_at`."""
        shares = [self._batches.share(shard, step, step + 1) for shard in shards]
        if self._line is None:
            return [(np.zeros_like(share.positions), share.positions, share.valid) for share in shares]
        return [(*self._line.at(share.positions), share.valid) for share in shares]

    def steps_of(
        self, source: int, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the step and rank of each read of given rows of a source, as `EpochOfBatches.steps_of`."""
        return self._batches.steps_of(places if self._line is None else self._line.positions(source, places))

    def places_before(self, step: int) -> NDArray[np.int64]:
        """Return the number of rows that each source yields in this epoch before a step, shape (sources,)."""
        positions = np.array([self._batches.start + step * self._batches.global_batch])
        return positions if self._line is None else self._line.counts_at(positions)[0]


def _finder(share: Share, _: NDArray[np.int64]) -> Callable[[Walk, int, range], GroupedRows]:
    """Return the row lookup (`Batches.find`) of a plan with one source."""
    return functools.partial(_of_plan, share)


def _of_plan(share: Share, walk: Walk, epoch: int, _: range) -> GroupedRows:
    """Return the rows that a rank gets in some batches, for a plan with one source.

    The source restarts with each epoch of the plan, so all rows are in one epoch of the source. The lookup of a mixture
    would also be correct, but takes 25 % more time.
    """
    rows = walk.order(0, epoch).by_lane(share.rows, read_lanes=walk.sources[0].own_lanes)
    return walk.noted(0, epoch, rows)


def _all_of_one(consumed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the consumed rows of a plan's only source: all consumed rows; (n, 1)."""
    return consumed[:, None]


@dataclasses.dataclass(slots=True)
class _Use:
    """Row group in memory: the epochs of its source that read it, and its release."""

    source: int
    """Number of the source to which the row group belongs."""

    first_epoch: int
    """First epoch of the source that reads the row group."""

    last_epoch: int
    """Last epoch of the source, among those planned so far, that reads the row group."""

    until: int
    """Number of rows after which the row group can be released.

    It counts the rows that the source has yielded since its epoch 0."""


def each_once(picked: GroupedRows) -> NDArray[np.int32]:
    """Return the distinct row groups of some rows, ascending, shape (row groups,).

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


def times_of_rows(sources: Sequence[Source]) -> NDArray[np.float64]:
    """Return, for each source, the rows of all sources in an epoch divided by its own rows.

    The progress of a source, multiplied by this ratio, can be compared with that of other sources. Shape (sources,).
    """
    given = np.array([source.given for source in sources], dtype=np.float64)
    return given.sum() / np.maximum(given, 1)


class Walk:
    """Iteration over the batches of a plan or mixture on one rank, in spans.

    A span consists of consecutive batches that are assembled together: one batch first, then twice as many each time,
    up to a maximum. Each span lists the row groups to fetch before it and to release after it.

    Args:
        sources: Sources that are read.
        batch_size: Number of rows of a batch.
        rows_per_span: Maximum rows of a span, unless a single batch has more.
        num_rows: Number of rows of an epoch; no span has more.
    """

    def __init__(self, sources: Sequence[Source], batch_size: int, rows_per_span: int, num_rows: int) -> None:
        self.sources = sources
        """Sources that are read."""
        # In a span: _largest, number of batches; _most_rows, number of rows. In a lookup: _most_spans, number of spans.
        self._largest = max(rows_per_span // batch_size, 1)
        self._most_rows = min(self._largest * batch_size, num_rows)
        self._most_spans = max(_ROWS_AT_ONCE // (self._largest * batch_size), 1)
        self._steps = 0  # number of batches of the latest span
        self._orders = [functools.lru_cache(maxsize=2)(source.order) for source in sources]
        # _num_rows: (sources,) number of rows of each source in one of its own epochs
        # _given: (sources,) number of rows of each source in one epoch of the plan or mixture
        self._num_rows = np.array([source.num_rows for source in sources])
        self._given = np.array([source.given for source in sources])
        self._times = times_of_rows(sources)
        self._at_hand: dict[int, _Use] = {}
        self._uses: dict[int, _Use] = {}  # `_at_hand` (row groups in memory), and the row groups of the current lookup

    def order(self, source: int, epoch: int) -> EpochOrder:
        """Return the row order of a source in one of its epochs, cached."""
        return self._orders[source](epoch)

    def epochs(
        self, batches_of: Callable[[Cursor], EpochOfBatches], *, after: Cursor, epochs: int | None
    ) -> Iterator[Span]:
        """Yield the spans of all epochs after a cursor, in order.

        A span consists of consecutive batches that are assembled together.

        Args:
            batches_of: Function from a cursor to the remaining batches of its epoch.
            after: Cursor from which to continue.
            epochs: Number of epochs of an iteration over the reader; None means endless.
        """
        begin = after
        while not begin.is_at_end(epochs):
            batches, then = batches_of(begin), begin.next_epoch()
            here = Cursor(begin.epoch, 0, begin.first_epoch)
            yield from self.spans(batches, here, is_last=then.is_at_end(epochs))
            if batches.steps == 0 and begin.position == 0:
                return  # otherwise, the loop might not end: if a whole epoch has no batches, no later epoch has any
            begin = then

    def spans(self, batches: EpochOfBatches, at: Cursor, *, is_last: bool) -> Iterator[Span]:
        """Yield the spans of an epoch, or of the rest of it.

        A span consists of consecutive batches that are assembled together.

        Args:
            batches: Remaining batches of the epoch; the method takes all of them.
            at: Cursor with the number of the epoch, and the first epoch of this iteration over the reader.
            is_last: Whether this is the last epoch.
        """
        if not self._at_hand:  # then no row group needs the cached orders of earlier epochs, which may take megabytes
            for order in self._orders:
                order.cache_clear()
            self._uses = {}
        left = batches.steps
        while left:
            sizes = self._next_sizes(left)
            left -= sum(sizes)
            taken = batches.take(sum(sizes))
            steps = [range(*pair) for pair in itertools.pairwise(itertools.accumulate(sizes, initial=0))]
            for together in self._stretches(taken, steps, at.epoch):
                for some, picked in zip(together, self._found(taken, at.epoch, together), strict=True):
                    ends_epoch = not left and some is steps[-1]
                    yield self._span(taken, some, picked, at, ends_epoch=ends_epoch, is_over=ends_epoch and is_last)

    def _next_sizes(self, left: int) -> list[int]:
        """Return the number of batches of each of the next spans, which are looked up together.

        Args:
            left: Number of remaining batches, at least 1.
        """
        # Return only one span until spans have their maximum size: the first batches then do not wait for later spans.
        spans = self._most_spans if self._steps == self._largest else 1
        self._steps = min(max(2 * self._steps, 1), self._largest)
        sizes: list[int] = []
        while left and len(sizes) < spans:
            sizes.append(min(self._steps, left))
            left -= sizes[-1]
        return sizes

    def _stretches(self, batches: Batches, steps: list[range], epoch: int) -> Iterator[list[range]]:
        """Yield lists of consecutive spans whose rows are looked up together.

        A span is given as a range of steps. A list ends where a source starts a new epoch, so that row groups are not
        kept in memory for the next epoch.
        """
        borders = np.array([0, *(some.stop for some in steps)])
        given = batches.given(batches.consumed[borders]) + epoch * self._given
        # of_first, of_last: (spans, sources) source epochs of the first and last row of each span
        of_first = given[:-1] // self._num_rows
        of_last = np.maximum(given[1:] - 1, given[:-1]) // self._num_rows
        first = 0
        for number in range(1, len(steps)):
            if (of_first[first] != of_last[number]).any():
                yield steps[first:number]
                first = number
        yield steps[first:]

    def _found(self, batches: Batches, epoch: int, steps: Sequence[range]) -> list[GroupedRows]:
        """Look up the rows of several consecutive spans together, and divide the result.

        A span is given as a range of steps; the result has one item for each span.
        """
        self._uses = dict(self._at_hand)
        borders = batches.offsets[[steps[0].start, *(some.stop for some in steps)]]
        return batches.find(self, epoch, range(steps[0].start, steps[-1].stop)).cut(borders - borders[0])

    def noted(self, source: int, epoch: int, picked: GroupedRows) -> GroupedRows:
        """Record until when the row groups of some rows are needed, and return the rows.

        In the result, row groups are numbered across all sources, and row numbers count all rows of a row group, not
        only the selected ones.

        Args:
            source: Number of the source.
            epoch: Number of the source's epoch.
            picked: Rows as returned by the order of this epoch.
        """
        own = self.sources[source]
        if own.selection is not None:
            picked = picked.selected(own.selection)
        if own.first_group:
            picked = picked.numbered_from(own.first_group)
        groups = each_once(picked).tolist()
        self._note(source, epoch, groups)
        # A row group that stays in memory from an earlier epoch is stored in the reading order of that epoch, so the
        # rows of a run are not contiguous in memory in this epoch.
        is_in_read_order = picked.runs is not None and own.requested.shuffle_rows
        if is_in_read_order and any(self._uses[group].first_epoch != epoch for group in groups):
            return picked.without_runs()
        return picked

    def _note(self, source: int, epoch: int, groups: Sequence[int]) -> None:
        """Record after which row of a source's epoch each row group can be released."""
        uses = self._uses
        new = [group for group in groups if (use := uses.get(group)) is None or use.last_epoch != epoch]
        if not new:
            return
        own = self.sources[source]
        own_groups = np.array(new, dtype=np.int32) - np.int32(own.first_group)
        last = self.order(source, epoch).last_positions(own_groups, lanes=own.own_lanes)
        for group, until in zip(new, (epoch * own.num_rows + last + 1).tolist(), strict=True):
            use = uses.get(group)
            if use is None:
                uses[group] = _Use(source, epoch, epoch, until)
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
        # given: (2, sources) number of rows taken from each source up to the start of the span, and up to its end
        given = np.array(batches.given(batches.consumed[[steps.start, steps.stop]]))
        if ends_epoch:  # the next epoch begins after all rows of this one, also after those that `"drop"` leaves out
            given[1] = self._given
        given += at.epoch * self._given
        times, until = given * self._times, given[1].tolist()
        release = [group for group, use in self._at_hand.items() if is_over or use.until <= until[use.source]]
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
            times=(float(times[0].min()), float(times[1].max())),
            taken=None if batches.taken is None else batches.taken[after],
            random_streams=functools.partial(
                self._random_streams, batches.numbered, at.epoch, slice(*offsets[[0, -1]].tolist())
            ),
        )

    def _random_streams(
        self, numbered: Callable[[], NumberedRows] | None, epoch: int, rows: slice
    ) -> NDArray[np.uint64]:
        """Return the hash of seed and epoch of each row; see `Span.random_streams`."""
        if numbered is None:
            return np.full(rows.stop - rows.start, self._random_stream(0, epoch), dtype=np.uint64)
        sources, places = (of_rows[rows] for of_rows in numbered())
        epochs = (places + epoch * self._given[sources]) // self._num_rows[sources]
        pairs, which = np.unique(np.stack([sources, epochs]), axis=1, return_inverse=True)
        streams = [self._random_stream(source, of_source) for source, of_source in pairs.T.tolist()]
        return np.array(streams, dtype=np.uint64)[which.reshape(-1)]

    def _random_stream(self, source: int, epoch: int) -> int:
        """Return the hash of a source's seed and the number of one of its epochs."""
        return mix(_TRANSFORMS, self.sources[source].requested.seed, epoch)

    def _read_order(self, group: int) -> NDArray[np.int64] | None:
        """Return the rows of a row group in the order in which this rank reads them.

        The order is that of the source's epoch for which the row group is fetched. Rows of other ranks are last. None
        means all rows in file order.
        """
        use = self._uses[group]
        return self.sources[use.source].read_order_of(group, self.order(use.source, use.first_epoch))
