"""Spans: the batches of an epoch as a reader works on them, several at a time, in order. Pure.

Rows are found for many batches at once, since what that costs is mostly paid once a lane; spans are cut of them. Which
row groups are fetched, and which are let go of, is settled span by span.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from petastore.once import once
from petastore.plan.batches.tail import EpochBatches, Share, lanes_of
from petastore.plan.cursor import Cursor
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.order.order import EpochOrder
from petastore.plan.request import Shard
from petastore.plan.selection import Selection

__all__ = ["EpochWalk", "Pace", "Span", "read_order_of"]

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
        )

    def cursor_after(self, batch: int) -> Cursor:
        """The cursor after a batch, given by its place in the span."""
        if self.ends_epoch and batch == self.num_batches - 1:
            return Cursor(self.epoch + 1, 0, self.first_epoch)
        return Cursor(self.epoch, int(self.consumed[batch]), self.first_epoch)


def read_order_of(order: EpochOrder, group: int, lanes: range, selection: Selection | None) -> NDArray[np.int64] | None:
    """The rows of a row group that are meant, in the order in which some lanes come to them; the others last.

    Returns:
        Rows inside the row group, each once; None is all rows in the order of the file.
    """
    places = order.read_order_of(group, lanes=lanes)
    if selection is None or group not in selection.bitmaps:
        return places
    places = np.arange(int(selection.counts[group]), dtype=np.int64) if places is None else places
    return selection.rows_at(np.full(len(places), group, dtype=np.int32), places)


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


class EpochWalk:
    """One rank's way through an epoch.

    Args:
        begin: The epoch, at its beginning, and the one that the pass began with.
        order: That of the epoch.
        batches: How it falls into batches.
        shard: The rank.
        selection: Which rows are meant; None is all.
    """

    def __init__(
        self, begin: Cursor, order: EpochOrder, batches: EpochBatches, shard: Shard, selection: Selection | None
    ) -> None:
        self._begin = begin
        self._order = order
        self._batches = batches
        self._shard = shard
        self._selection = selection
        self._own_lanes = lanes_of(shard, order.lanes)
        self._at_hand: dict[int, int] = {}  # row group → the last position that needs it

    def spans(self, steps: range, pace: Pace) -> Iterator[Span]:
        """The spans of some consecutive steps, of which the last one is the last one of the epoch."""
        first = steps.start
        while first < steps.stop:
            sizes = pace.next(steps.stop - first)
            borders = first + np.cumsum([0, *sizes])
            share = self._batches.share(self._shard, first, int(borders[-1]))
            found = self._order.by_lane(share.rows, read_lanes=self._own_lanes)
            if self._selection is not None:
                found = found.selected(self._selection)
            parts = found.cut(share.offsets[borders - first])
            for picked, (start, stop) in zip(parts, itertools.pairwise(borders.tolist()), strict=True):
                in_share = range(start - first, stop - first)
                ends = stop == steps.stop
                yield self._span(picked, range(start, stop), share, in_share, ends_epoch=ends, most=pace.most_rows)
            first = int(borders[-1])

    def _span(
        self, picked: GroupedRows, steps: range, share: Share, in_share: range, *, ends_epoch: bool, most: int
    ) -> Span:
        offsets = share.offsets[in_share.start : in_share.stop + 1]
        needed = picked.distinct
        fetch = [group for group in needed.tolist() if group not in self._at_hand]
        last = self._order.last_positions(np.array(fetch, dtype=np.int32), lanes=self._own_lanes)
        self._at_hand.update(zip(fetch, last.tolist(), strict=True))
        consumed = self._batches.consumed_after(steps)
        release = [group for group, last in self._at_hand.items() if ends_epoch or last < consumed[-1]]
        for group in release:
            del self._at_hand[group]
        return Span(
            picked=picked,
            offsets=offsets - offsets[0],
            valid=None if share.valid is None else share.valid[offsets[0] : offsets[-1]],
            epoch=self._begin.epoch,
            first_epoch=self._begin.first_epoch,
            consumed=consumed,
            ends_epoch=ends_epoch,
            needed=needed,
            fetch=tuple(fetch),
            read_orders=tuple(read_order_of(self._order, group, self._own_lanes, self._selection) for group in fetch),
            release=tuple(release),
            most_rows=min(most, self._order.num_rows),
        )
