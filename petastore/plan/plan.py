"""Plan: the rows of one dataset that each rank reads, and their order. No I/O.

A plan is built from an inventory (files and row groups) and a request (options). Every iteration over a plan gives the
same result and does not use the filesystem. The batch size is not part of the plan: pass any batch size to its methods.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from petastore.inventory import Inventory
from petastore.lazy import once
from petastore.plan.batches.epoch_batches import EpochBatches, lanes_of
from petastore.plan.batches.residency import needed_from_to
from petastore.plan.batches.spans import SharedBatches, Source, Span
from petastore.plan.cursor import Cursor
from petastore.plan.order.order import EpochOrder
from petastore.plan.rank_plan import RankPlan
from petastore.plan.request import Order, ReadRequest, Shard, UnderWay, whole_number
from petastore.plan.selection import Selection

if TYPE_CHECKING:
    from petastore.plan.report.explanation import CostModel, Explanation
    from petastore.plan.report.feeds import Feeds
    from petastore.plan.row_group_parts import RowGroupParts

__all__ = ["Plan", "Span"]


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(RankPlan):
    """Read plan of one rank: the rows that it reads, their order, and the batches.

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
    """Files and row groups of the dataset."""

    request: ReadRequest
    """Options of the plan."""

    selection: Selection | None = None
    """Rows that filters select; None means all rows."""

    parts: RowGroupParts | None = dataclasses.field(default=None, kw_only=True)
    """Division of huge row groups into parts that are loaded one after the other.

    None if row groups are loaded whole."""

    @property
    def sources(self) -> tuple[Plan]:
        """This plan, as its own only source; a mixture has several sources."""
        return (self,)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Number of selected rows of each row group, shape (groups,)."""
        return self.inventory.rows if self.selection is None else self.selection.counts

    @once
    def num_rows(self) -> int:
        """Number of rows per epoch, over all ranks."""
        return int(self.rows.sum())

    @once
    def data_fingerprint(self) -> str:
        """Fingerprint: 32 hexadecimal digits for the selected rows (dataset and filter)."""
        if self.selection is None:
            return self.inventory.fingerprint
        both = self.inventory.fingerprint + self.selection.fingerprint
        return hashlib.sha256(both.encode()).hexdigest()[:32]

    @once
    def fingerprint(self) -> str:
        """Fingerprint: 32 hexadecimal digits, equal on all ranks.

        They identify the rows, columns, order, epochs, `last_batch` and the number of ranks.
        """
        request = self.request
        planned = (request.columns, request.order, request.epochs, request.last_batch.value, request.shard.count)
        dealt = () if request.order.dealt_to is None else (request.order.dealt_to, request.under_way)
        return hashlib.sha256(repr((self.data_fingerprint, planned, *dealt)).encode()).hexdigest()[:32]

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

    def for_shard(self, shard: Shard) -> Self:
        """Return the plan of the same data for another rank."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, shard=shard))

    def with_order(self, order: Order, epoch: int, under_way: Order | None = None) -> Self:
        """Return this plan with another row order from an epoch on.

        Args:
            order: Order of the later epochs, and of `epoch` itself unless it has begun.
            epoch: Number of the epoch, from 0.
            under_way: Order of the rest of `epoch`, if it has begun; None if it has not.
        """
        rest = None if under_way is None or under_way == order else UnderWay(epoch, under_way)
        if self._rest_in(epoch) is not None:
            rest = self.request.under_way
        return dataclasses.replace(self, request=dataclasses.replace(self.request, order=order, under_way=rest))

    def is_begun(self, cursor: Cursor) -> bool:
        """Return whether rows of the cursor's epoch were already consumed.

        If rows were excluded in the middle of this epoch, the result is True even at position 0, because the position
        then counts only rows that were consumed since the exclusion.
        """
        return cursor.position > 0 or self._rest_in(cursor.epoch) is not None

    def restarted(self, epoch: int) -> Self:
        """Return the plan with which to read an epoch again from its first row.

        If rows were excluded in the middle of this epoch, this plan has only the remaining rows of the epoch. The
        result has all rows of the epoch that are not excluded.

        Example:
            >>> from petastore.plan.request import Order
            >>> plan = Plan(Inventory.of_rows([5]), ReadRequest(("id",), Order(7, True, False, lanes=1, block_rows=1)))
            >>> plan.restarted(0) is plan
            True
        """
        under_way = self.request.under_way
        if under_way is None or self._rest_in(epoch) is None:
            return self
        order = None if under_way.order == self.request.order else UnderWay(epoch, under_way.order)
        return dataclasses.replace(self, request=dataclasses.replace(self.request, under_way=order))

    @property
    def reads_in_file_order(self) -> bool:
        """Whether this rank reads the rows in file order, one row group after another."""
        return all(
            not source.requested.shuffle_rows and len(source.own_lanes) <= 1
            for sources in self._possible_sources
            for source in sources
        )

    def in_parts(self, parts: RowGroupParts) -> Self:
        """Return a plan of the same rows in the same order that loads row groups in parts.

        Args:
            parts: Division of the row groups. If a row group has several parts, `reads_in_file_order` must be True.
        """
        request, under_way = self.request, self.request.under_way
        if under_way is not None and under_way.rest is not None:
            left = parts.selection(under_way.rest.selection)
            assert left is not None  # noqa: S101 - None is returned only for None
            rest = dataclasses.replace(under_way.rest, selection=left)
            request = dataclasses.replace(request, under_way=dataclasses.replace(under_way, rest=rest))
        selection = parts.selection(self.selection)
        inventory = parts.inventory(self.inventory)
        return dataclasses.replace(self, inventory=inventory, request=request, selection=selection, parts=parts)

    def order_in(self, epoch: int) -> Order:
        """Return the options of the row order in an epoch."""
        rest = self.request.under_way
        return self.request.order if rest is None or rest.epoch != epoch else rest.order

    def rows_in(self, epoch: int) -> int:
        """Return the number of rows of an epoch over all ranks.

        If rows were excluded in the middle of this epoch, count only the rows that remained then.
        """
        rest = self._rest_in(epoch)
        return self.num_rows if rest is None else int(rest.counts.sum())

    def _rest_in(self, epoch: int) -> Selection | None:
        """Return the remaining rows of an epoch, if rows were excluded after it began.

        Return None for any other epoch.
        """
        rest = self.request.under_way
        return None if rest is None or rest.epoch != epoch or rest.rest is None else rest.rest.selection

    def explain(
        self, batch_size: int, *, column_bytes: NDArray[np.int64] | None = None, storage: CostModel | None = None
    ) -> Explanation:
        """Return figures about the first epoch: bytes to read, memory, mixing quality.

        Print the result, or call its `as_dict()`.

        Args:
            batch_size: Rows per full batch on one rank.
            column_bytes: Stored bytes of the selected columns per row group, shape (groups,), from
                `petastore.readers.fetches`. None counts all columns of each row group (an upper bound).
            storage: Requests per row group, cache size and prices, to estimate this rank's requests and cost per epoch.
                None makes no estimate.

        Raises:
            NoDataAvailableError: There are fewer rows than ranks, with `last_batch="even"`.
            InvalidArgumentError: `column_bytes` or `storage` does not match the row groups.

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
            in memory   at most 54,000 rows on rank 0, 421.9 KiB
            mixing      0.38 (a uniform shuffle 0.25, no shuffle 0.99)
        """
        # Imported here, because the first batch does not need reports.
        from petastore.plan.report.explain import explain_plan
        from petastore.plan.report.explanation import cost_of

        batches = self._whole(batch_size)
        explanation = explain_plan(self.inventory, self.request, self.selection, batches, column_bytes=column_bytes)
        if storage is None:
            return explanation
        epochs = min(storage.epochs, self.request.epochs or storage.epochs)
        cost = cost_of([self.row_groups(epoch) for epoch in range(epochs)], storage)
        return dataclasses.replace(explanation, cost=cost)

    def feeds(self, batch_size: int, *, epoch: int = 0) -> Feeds:
        """Return the row groups from which each batch of an epoch gets rows.

        The result has the batches of every rank; for a long epoch, only a sample of them.

        Raises:
            NoDataAvailableError: There are fewer rows than ranks, with `last_batch="even"`.
        """
        from petastore.plan.report.feeds import feeds_of_order

        requested = self.order_in(epoch)
        batches = self._batches(whole_number(batch_size, name="batch_size", least=1), order=requested)
        order = EpochOrder(self.rows, requested, epoch)
        return feeds_of_order(order, batches, row_groups=self.inventory.num_row_groups)

    def row_groups(self, epoch: int) -> NDArray[np.int64]:
        """Return the row groups that this rank reads in an epoch, in reading order.

        The numbers have shape (n,). They contain the row groups of all full batches; the last batch of an epoch may
        need a few other row groups.

        Example:
            >>> from petastore.plan.request import Order
            >>> order = Order(7, True, False, lanes=2, block_rows=1)
            >>> Plan(Inventory.of_rows([4] * 6), ReadRequest(("id",), order, Shard(1, 2))).row_groups(0).tolist()
            [0, 2, 4]
        """
        (source,) = self._sources_in(epoch)
        groups, first, _ = needed_from_to(source.order(epoch).pieces().of_lanes(source.own_lanes))
        return groups[np.argsort(first, kind="stable")]

    def _spans(self, batch_size: int, rows_per_span: int, after: Cursor) -> Iterator[Span]:
        rest = self.request.under_way
        if rest is None or after.epoch != rest.epoch:
            return super()._spans(batch_size, rows_per_span, after)
        return self._spans_of_two_orders(batch_size, rows_per_span, after)

    def _spans_of_two_orders(self, batch_size: int, rows_per_span: int, after: Cursor) -> Iterator[Span]:
        """Yield the spans after a cursor, if its epoch has another order than later epochs.

        A span consists of consecutive batches that are assembled together.
        """
        here = Cursor(after.epoch, 0, after.first_epoch)
        walk = self._walk(batch_size, rows_per_span, after.epoch)
        # `is_last=True` releases all row groups after this epoch, because the later epochs have another order.
        yield from walk.spans(self._epoch_batches(batch_size, after), here, is_last=True)
        yield from super()._spans(batch_size, rows_per_span, after.next_epoch())

    def _epoch_batches(self, batch_size: int, begin: Cursor) -> SharedBatches:
        return SharedBatches(self._batches_after(batch_size, begin), self.request.shard)

    def _batches_after(self, batch_size: int, begin: Cursor) -> EpochBatches:
        return self._batches(batch_size, begin.position, self.order_in(begin.epoch), self._rest_in(begin.epoch))

    def _sources_in(self, epoch: int) -> list[Source]:
        return [self._source(self.order_in(epoch), self._rest_in(epoch))]

    @property
    def _possible_sources(self) -> list[list[Source]]:
        rest = self.request.under_way
        later = self._source(self.request.order)
        return [[later]] if rest is None else [[later], self._sources_in(rest.epoch)]

    def _source(self, order: Order, rest: Selection | None = None) -> Source:
        """Return the only source of this plan, with a given row order.

        Args:
            order: Options of the row order.
            rest: Remaining rows of an epoch, if rows were excluded after it began; None for any other epoch.
        """
        rows, selection = (self.rows, self.selection) if rest is None else (rest.counts, rest)
        num_rows = self.num_rows if rest is None else int(rows.sum())
        own_lanes = lanes_of(self.request.shard, self._lanes_in(order, num_rows))
        return Source(rows, num_rows, order, selection, own_lanes, given=num_rows, parts=self.parts)

    def _lengths(self, batch_size: int) -> list[EpochBatches]:
        return [self._whole(batch_size)]

    def _whole(self, batch_size: int) -> EpochBatches:
        """Check the `batch_size` of the user, and return the batches of a whole epoch."""
        return self._batches(whole_number(batch_size, name="batch_size", least=1))

    def _batches(
        self, batch_size: int, start: int = 0, order: Order | None = None, rest: Selection | None = None
    ) -> EpochBatches:
        num_rows = self.num_rows if rest is None else int(rest.counts.sum())
        return EpochBatches(
            num_rows=num_rows,
            batch_size=batch_size,
            ranks=self.request.shard.count,
            lanes=self._lanes_in(order or self.request.order, num_rows),
            last_batch=self.request.last_batch,
            start=start,
            is_rest=rest is not None,
        )

    def _lanes_in(self, order: Order, num_rows: int | None = None) -> int:
        """Return the number of lanes of an order, at most the number of rows.

        A lane is one of the sequences of row groups that an epoch interleaves. `num_rows` None means all selected rows.
        """
        return min(order.lanes, max(self.num_rows if num_rows is None else num_rows, 1))
