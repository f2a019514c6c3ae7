"""The plan: what is read, by whom and in what order, answered without touching storage. Pure.

A plan is made of an inventory and a request. It can be walked twice with the same result, has never heard of a
filesystem, and answers for any batch size: batches are a way to walk it, not a part of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from petastore.inventory import Inventory
from petastore.once import once
from petastore.plan.agreement import AllGather, assert_agreed, facts_of
from petastore.plan.batches.load_order import LoadOrder, Stretch, load_order
from petastore.plan.batches.residency import at_hand_bytes, room_rows
from petastore.plan.batches.spans import Pace, SharedBatches, Source, Span, Walk
from petastore.plan.batches.tail import EpochBatches, lanes_of
from petastore.plan.cursor import Cursor
from petastore.plan.order.order import EpochOrder
from petastore.plan.request import Order, ReadRequest, Shard, UnderWay, whole_number
from petastore.plan.selection import Selection
from petastore.plan.unit import ReadUnit

if TYPE_CHECKING:
    from petastore.plan.report.cost import StorageAsk
    from petastore.plan.report.explanation import Explanation
    from petastore.plan.report.feeds import Feeds

__all__ = ["Plan", "Span"]


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """Everything that decides which rows a rank gets and when.

    Example:
        >>> from petastore.plan.request import Order, Shard
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
        >>> plan = Plan(Inventory.of_rows([3, 4]), ReadRequest(("id",), order, Shard(1, 2)))
        >>> plan.num_rows, plan.steps_per_epoch(2), plan.rows_per_epoch(2)
        (7, 2, 4)
        >>> [(span.groups.tolist(), span.rows.tolist()) for span in plan.spans(2, rows_per_span=100)]
        [([0, 1], [2, 0]), ([1, 1], [2, 3])]
    """

    inventory: Inventory
    """What exists."""

    request: ReadRequest
    """What was asked."""

    selection: Selection | None = None
    """Which rows a filter keeps; None is all of them."""

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of each row group that are meant, shape (groups,)."""
        return self.inventory.rows if self.selection is None else self.selection.counts

    @once
    def num_rows(self) -> int:
        """Rows of an epoch over all ranks."""
        return int(self.rows.sum())

    @once
    def data_fingerprint(self) -> str:
        """32 hexadecimal digits that stand for the rows that are meant: this version of the dataset, and the filter."""
        if self.selection is None:
            return self.inventory.fingerprint
        both = self.inventory.fingerprint + self.selection.fingerprint
        return hashlib.sha256(both.encode()).hexdigest()[:32]

    @once
    def fingerprint(self) -> str:
        """32 hexadecimal digits over rows, columns, order, epochs and `last_batch`; equal on all ranks."""
        request = self.request
        asked = (request.columns, request.order, request.epochs, request.last_batch.value, request.shard.count)
        dealt = () if request.order.dealt_to is None else (request.order.dealt_to, request.under_way)
        return hashlib.sha256(repr((self.data_fingerprint, asked, *dealt)).encode()).hexdigest()[:32]

    def __repr__(self) -> str:
        request, groups = self.request, self.inventory.num_row_groups
        return (
            f"{type(self).__name__}({self.num_rows:,} of {self.inventory.num_rows:,} rows in {groups:,} row "
            f"group{'' if groups == 1 else 's'}, columns {len(request.columns):,}; shard {request.shard.index} of "
            f"{request.shard.count}, {request.epochs_in_words}, last_batch {request.last_batch.value!r}, "
            f"{request.order})"
        )

    def _repr_html_(self) -> str:
        from petastore.notebook import html_table

        request, shard = self.request, self.request.shard
        facts = [
            ("rows", f"{self.num_rows:,} of {self.inventory.num_rows:,}"),
            ("row groups", f"{np.count_nonzero(self.rows):,} of {self.inventory.num_row_groups:,}"),
            ("columns", ", ".join(request.columns)),
            ("shard", f"{shard.index:,} of {shard.count:,}"),
            ("epochs", "endless" if request.epochs is None else f"{request.epochs:,}"),
            ("last_batch", request.last_batch.value),
            *((name.replace("_", " "), value) for name, value in request.order.as_dict().items()),
        ]
        return html_table(type(self).__name__, [], facts, count=len(facts))

    def steps_per_epoch(self, batch_size: int) -> int:
        """Batches of an epoch, the same on every rank.

        Raises:
            NoDataAvailableError: `last_batch="even"` with fewer rows than ranks.
        """
        return self._whole(batch_size).steps

    def rows_per_epoch(self, batch_size: int) -> int:
        """Rows that this rank gets in an epoch, repeats of `pad` and `wrap` included."""
        return self._whole(batch_size).rows_of(self.request.shard)

    def steps_left(self, batch_size: int, after: Cursor) -> int | None:
        """Batches from a cursor to the end of its pass, the same on every rank; None where a pass has no end."""
        if self.request.epochs is None:
            return None
        if after.is_at_end(self.request.epochs):
            return 0
        whole = after.pass_ends(self.request.epochs).epoch - after.next_epoch().epoch
        rest = self._batches(batch_size, after.position, self.order_in(after.epoch)).steps
        return rest + whole * self.steps_per_epoch(batch_size)

    def for_shard(self, shard: Shard) -> Plan:
        """The same plan as another rank sees it."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, shard=shard))

    def going_on(self, order: Order, epoch: int, under_way: Order | None = None) -> Self:
        """The same plan in another order, from an epoch on.

        Args:
            order: Of the epochs after it, and of itself unless it is under way.
            epoch: The epoch, from 0.
            under_way: In which order it is finished; None where nothing of it was given.
        """
        rest = None if under_way is None or under_way == order else UnderWay(epoch, under_way)
        return dataclasses.replace(self, request=dataclasses.replace(self.request, order=order, under_way=rest))

    def order_in(self, epoch: int) -> Order:
        """The order of an epoch."""
        rest = self.request.under_way
        return self.request.order if rest is None or rest.epoch != epoch else rest.order

    def explain(
        self, batch_size: int, *, column_bytes: NDArray[np.int64] | None = None, storage: StorageAsk | None = None
    ) -> Explanation:
        """What the first epoch reads, keeps and mixes; print it, or take `as_dict()`.

        Args:
            batch_size: Rows of a full batch of one rank.
            column_bytes: Stored bytes of the columns that are read, of each row group, shape (groups,). None where they
                are not known: whole row groups are counted then, and the explanation says so.
            storage: Says what row groups take to be fetched, what a cache has room for, and what requests and bytes
                cost: then the explanation says what this rank will ask for, epoch by epoch. None says nothing of that.

        Raises:
            NoDataAvailableError: `last_batch="even"` with fewer rows than ranks.
            InvalidArgumentError: `column_bytes` or `storage` does not fit the row groups.

        Example:
            >>> from petastore.plan.request import Order
            >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=48, block_rows=2000)
            >>> plan = Plan(Inventory.of_rows([1000] * 1000), ReadRequest(("id",), order, Shard(0, 2)))
            >>> print(plan.explain(batch_size=128))
            row groups  1,000 of 1,000
            rows        1,000,000 of 1,000,000
            batches     2 ranks × 3,907 batches of 128 rows, 500,000 rows a rank
            last batch  even
            order       48 lanes, blocks of 2,000 rows, seed 7
            reads       each row group 1.00 times over all ranks
            fetched     7.6 MiB an epoch, 3.8 MiB by rank 0; of whole row groups, since sizes of columns are not known
            at hand     at most 54,000 rows on rank 0, 421.9 KiB
            mixing      0.38 (a uniform shuffle 0.25, no shuffle 0.99)
        """
        # Reports are imported by who asks for one: a first batch needs none.
        from petastore.plan.report.cost import cost_of
        from petastore.plan.report.explain import explain_plan

        batches = self._whole(batch_size)
        explanation = explain_plan(self.inventory, self.request, self.selection, batches, column_bytes=column_bytes)
        if storage is None:
            return explanation
        epochs = min(storage.epochs, self.request.epochs or storage.epochs)
        cost = cost_of([self.row_groups(epoch) for epoch in range(epochs)], storage)
        return dataclasses.replace(explanation, cost=cost)

    def feeds(self, batch_size: int, *, epoch: int = 0) -> Feeds:
        """Which row groups feed which batches of an epoch, on every rank; of a long epoch, some of its batches.

        Raises:
            NoDataAvailableError: `last_batch="even"` with fewer rows than ranks.
        """
        from petastore.plan.report.feeds import feeds_of_order

        asked = self.order_in(epoch)
        batches = self._batches(whole_number(batch_size, name="batch_size", least=1), order=asked)
        order = EpochOrder(self.rows, asked, epoch)
        return feeds_of_order(order, batches, row_groups=self.inventory.num_row_groups)

    def plot(self, batch_size: int, *, epoch: int = 0) -> Any:
        """The same as a new `matplotlib.figure.Figure`: batches to the right, row groups as stored up, ranks coloured.

        Raises:
            NoDataAvailableError: `last_batch="even"` with fewer rows than ranks.
            MissingExtraError: matplotlib is not installed.
        """
        from petastore.drawing import draw

        return draw(self.feeds(batch_size, epoch=epoch))

    def facts(self) -> dict[str, Any]:
        """What ranks must agree on, by name; see `petastore.plan.agreement.facts_of`."""
        groups = self.inventory.num_row_groups
        return facts_of(self.request, dataset=self.data_fingerprint, rows=self.num_rows, row_groups=groups)

    def assert_agreed(self, all_gather: AllGather) -> None:
        """Refuses ranks that planned different data; every rank calls it, and every rank raises alike.

        Args:
            all_gather: Gives what every rank passed to it, in the order of ranks; `petastore.distributed.all_gather`
                does, by whatever engine is initialised.

        Raises:
            InvalidArgumentError: Ranks planned different data, or two of them the same shard; both sides' facts are
                named.
        """
        assert_agreed(self.facts(), all_gather)

    def row_groups(self, epoch: int) -> NDArray[np.int64]:
        """The row groups that this rank reads in an epoch, in the order in which it needs them, shape (row groups,).

        Those of full batches; the last batch of an epoch may have rows of a few more.

        Example:
            >>> from petastore.plan.request import Order
            >>> order = Order(7, True, False, lanes=2, block_rows=1)
            >>> Plan(Inventory.of_rows([4] * 6), ReadRequest(("id",), order, Shard(1, 2))).row_groups(0).tolist()
            [0, 2, 4]
        """
        whole = Stretch(epoch * self.num_rows, (epoch + 1) * self.num_rows, 0)
        return load_order([self._source(self.order_in(epoch))], [whole], Cursor(epoch + 1)).groups

    def unit(self, group: int) -> ReadUnit:
        """The work item that reads a row group, given by its number in the dataset."""
        return ReadUnit.whole(self.inventory, group, self.request.columns)

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        """This rank's batches from a cursor on, several at a time, through all epochs.

        Args:
            batch_size: Rows of a full batch of this rank.
            rows_per_span: Rows that a span holds at most, unless a single batch has more. Spans begin with one batch
                and double, so that the first batch does not wait for the rows of others.
            after: Where to go on; None begins at the beginning.

        Raises:
            NoDataAvailableError: `last_batch="even"` with fewer rows than ranks.
        """
        size = whole_number(batch_size, name="batch_size", least=1)
        pace, begin, rest = Pace(rows_per_span, size), after or Cursor(), self.request.under_way
        if rest is None or begin.epoch != rest.epoch:
            return self._epochs_after(begin, pace, size)
        return self._spans_of_two_orders(rest.order, begin, pace, size)

    def _spans_of_two_orders(self, first: Order, begin: Cursor, pace: Pace, size: int) -> Iterator[Span]:
        """The spans of the epoch that is under way, and those of the epochs after it, in their order."""
        batches = SharedBatches(self._batches(size, begin.position, first), self.request.shard)
        here = Cursor(begin.epoch, 0, begin.first_epoch)
        # Nothing stays at hand beyond it, as if it were the last one.
        yield from self._walk(pace, first).spans(batches, pace, here, is_last=True)
        yield from self._epochs_after(begin.next_epoch(), pace, size)

    def _epochs_after(self, after: Cursor, pace: Pace, size: int) -> Iterator[Span]:
        return self._walk(pace).epochs(
            lambda begin: SharedBatches(self._batches(size, begin.position), self.request.shard),
            pace,
            after=after,
            epochs=self.request.epochs,
        )

    def _walk(self, pace: Pace, order: Order | None = None) -> Walk:
        return Walk([self._source(order or self.request.order)], min(pace.most_rows, self.num_rows))

    def _source(self, order: Order) -> Source:
        own_lanes = lanes_of(self.request.shard, self._lanes_in(order))
        return Source(self.rows, self.num_rows, order, self.selection, own_lanes, given=self.num_rows)

    def load_order(self, after: Cursor) -> LoadOrder:
        """Which row groups this rank loads from a cursor on, in order: in the rest of its epoch and in the next.

        The next one is told after the last one, too: who reads again goes on with it.
        """
        rows, order = self.num_rows, self.order_in(after.epoch)
        begin, end = after.epoch * rows + after.position, (after.epoch + 1) * rows
        sources, stretches = [self._source(order)], [Stretch(begin, end, rows)]
        if order != self.order_in(after.epoch + 1):
            sources.append(self._source(self.order_in(after.epoch + 1)))
            stretches = [Stretch(begin, end, 0), Stretch(end, end, rows)]
        return load_order(sources, stretches, after.next_epoch(), epochs=self.request.epochs)

    def at_hand_bytes(self, group_bytes: NDArray[np.int64], *, early: int) -> int:
        """Most bytes of row groups that this rank keeps at a time in the first epoch.

        Args:
            group_bytes: Of each row group, shape (groups,).
            early: Positions before they are needed at which row groups are fetched.
        """
        return max(
            at_hand_bytes(order, lanes_of(self.request.shard, order.lanes), group_bytes, early)
            for order in (EpochOrder(self.rows, asked, 0) for asked in self._orders)
        )

    @once
    def room_rows(self) -> int:
        """Rows for which there has to be room where the row groups at hand stand side by side.

        0 where that is of no use: rows that are not shuffled come from one row group after the other.
        """
        return max(self._room_rows(order) for order in self._orders)

    def _room_rows(self, order: Order) -> int:
        lanes = len(lanes_of(self.request.shard, self._lanes_in(order))) if order.shuffle_rows else 0
        return room_rows(self.inventory.rows, self.num_rows, lanes=lanes, block_rows=order.block_rows)

    def _whole(self, batch_size: int) -> EpochBatches:
        """The batches of a whole epoch; `batch_size` is what a user gave."""
        return self._batches(whole_number(batch_size, name="batch_size", least=1))

    def _batches(self, batch_size: int, start: int = 0, order: Order | None = None) -> EpochBatches:
        return EpochBatches(
            num_rows=self.num_rows,
            batch_size=batch_size,
            ranks=self.request.shard.count,
            lanes=self._lanes_in(order or self.request.order),
            last_batch=self.request.last_batch,
            start=start,
        )

    @property
    def _orders(self) -> list[Order]:
        """Those of all epochs."""
        rest = self.request.under_way
        return [self.request.order] if rest is None else [self.request.order, rest.order]

    def _lanes_in(self, order: Order) -> int:
        return min(order.lanes, max(self.num_rows, 1))
