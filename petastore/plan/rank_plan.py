"""Base class of the read plans of a rank: `Plan` (one dataset) and `Mixture`.

A plan consists of a list of sources and a rule that divides the rows of an epoch into batches. From these, the base
class computes steps, spans (consecutive batches that a reader assembles together) and memory, and checks that ranks
agree. No I/O.
"""

from __future__ import annotations

import abc
import bisect
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from petastore.inventory import ReadUnit
from petastore.lazy import once
from petastore.plan.batches.epoch_batches import EpochBatches
from petastore.plan.batches.residency import NextUses, buffer_rows, next_uses, resident_bytes
from petastore.plan.batches.spans import EpochOfBatches, Source, Span, Walk
from petastore.plan.cursor import Cursor
from petastore.plan.request import AllGather, ReadRequest, Shard, assert_agreed, whole_number

if TYPE_CHECKING:
    from petastore.inventory import Inventory, RowPlace
    from petastore.plan.report.explanation import Explanation, MixtureExplanation
    from petastore.plan.report.feeds import Feeds
    from petastore.plan.report.step_rows import RowPlaces, RowSteps, StepLookup, StepRows
    from petastore.plan.row_group_parts import RowGroupParts
    from petastore.plan.selection import Selection

__all__ = ["RankPlan"]


class RankPlan(abc.ABC):
    """Read plan of one rank: the rows that it reads from its sources, and the batches."""

    parts: RowGroupParts | None = None
    """Division of huge row groups into parts that are loaded one after the other.

    None if row groups are loaded whole."""

    if TYPE_CHECKING:  # for type checkers only, because `Plan` stores these values and `Mixture` computes them

        @property
        def inventory(self) -> Inventory:
            """Files and row groups of all sources."""

        @property
        def request(self) -> ReadRequest:
            """Options of the plan."""

        @property
        def selection(self) -> Selection | None:
            """Rows that filters select; None means all rows.

            In a mixture, each source has its own selection.
            """

        @property
        def sources(self) -> Sequence[RankPlan]:
            """Plans of the sources; a plan of one dataset is its own and only source."""

        @property
        def num_rows(self) -> int:
            """Number of rows per epoch, over all ranks."""

        @property
        def data_fingerprint(self) -> str:
            """Fingerprint: 32 hexadecimal digits for the selected rows of all sources."""

        @property
        def fingerprint(self) -> str:
            """Fingerprint: 32 hexadecimal digits, equal on all ranks.

            They identify the rows, columns, order, epochs, `last_batch` and the number of ranks.
            """

    @property
    def named_inventory(self) -> Inventory:
        """Inventory with the paths by which readers name the files: in a mixture, after the URL of the dataset."""
        return self.inventory

    def find_rows(
        self, places: Iterable[RowPlace], *, name: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Find rows by `(file, row group, row)`, as `Inventory.find_rows`.

        In a mixture, the path of a file may begin with the URL of its dataset. Without a URL, the result contains the
        row of each source that has it.
        """
        return self.inventory.find_rows(places, name=name)

    @once
    def first_groups(self) -> NDArray[np.int64]:
        """Number of each source's first row group, then the total number of row groups.

        Shape (sources + 1,).
        """
        counts = [source.inventory.num_row_groups for source in self.sources]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @once
    def source_of(self) -> Callable[[int], int]:
        """Function that returns the number of the source to which a row group belongs.

        Its argument is the number of the row group among those of all sources.
        """
        return functools.partial(bisect.bisect_right, self.first_groups[1:].tolist())

    @abc.abstractmethod
    def for_shard(self, shard: Shard) -> Self:
        """Return the plan of the same data for another rank."""

    def is_begun(self, cursor: Cursor) -> bool:
        """Return whether rows of the cursor's epoch were already consumed."""
        return cursor.position > 0

    def next_pass(self, cursor: Cursor) -> Cursor:
        """Return the cursor at which the next iteration over the reader begins.

        This is the start of the next epoch, or of the current epoch if none of its rows was consumed.
        """
        return Cursor.of_epoch(cursor.epoch + self.is_begun(cursor))

    def restarted(self, epoch: int) -> Self:  # noqa: ARG002 - used by `Plan`
        """Return this plan for reading an epoch again from its first row."""
        return self

    def unit(self, group: int) -> ReadUnit:
        """Return the rows and columns that a worker reads from a row group.

        `group` is the number of the row group among those of all sources.
        """
        return ReadUnit.whole(self.inventory, group, self.sources[self.source_of(group)].request.columns)

    @abc.abstractmethod
    def explain(
        self, batch_size: int, *, column_bytes: NDArray[np.int64] | None = None
    ) -> Explanation | MixtureExplanation:
        """Return figures about the first epoch: bytes to read, memory, mixing quality.

        Print the result, or call its `as_dict()`.
        """

    @abc.abstractmethod
    def feeds(self, batch_size: int, *, epoch: int = 0) -> Feeds:
        """Return the row groups from which each batch of an epoch gets rows.

        The result has the batches of every rank.
        """

    @abc.abstractmethod
    def _lengths(self, batch_size: int) -> Sequence[EpochBatches]:
        """Check `batch_size`, and return the batches of a whole epoch.

        The list has one item; with `batching="per_source"` in a mixture, one item for each source.
        """

    @abc.abstractmethod
    def _epoch_batches(self, batch_size: int, begin: Cursor) -> EpochOfBatches:
        """Return the batches after a cursor in its epoch."""

    @abc.abstractmethod
    def _sources_in(self, epoch: int) -> Sequence[Source]:
        """Return the sources of an epoch, in the order of their row groups."""

    @property
    def _possible_sources(self) -> Sequence[Sequence[Source]]:
        """Sources in each possible row order: one list, or two lists.

        There are two if the order changes after the current epoch.
        """
        return [self._sources_in(0)]

    @property
    def _walked_rows(self) -> int:
        """Number of rows of an epoch from which batches are built.

        More than `num_rows` if the epoch is endless (`stop="cycle"` of a mixture).
        """
        return self.num_rows

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of batches per epoch, the same on every rank.

        Raises:
            NoDataAvailableError: There are fewer rows than ranks, with `last_batch="even"`; with
                `batching="per_source"`, in any source.
        """
        return sum(batches.steps for batches in self._lengths(batch_size))

    def rows_per_epoch(self, batch_size: int) -> int:
        """Return the number of rows per epoch on this rank.

        Repeated rows are included (`"pad"` and `"wrap"` of `last_batch`).
        """
        return sum(batches.rows_of(self.request.shard) for batches in self._lengths(batch_size))

    def steps_left(self, batch_size: int, after: Cursor) -> int | None:
        """Return the number of batches after a cursor, through all epochs.

        The number is the same on every rank; None if epochs are endless.
        """
        epochs = self.request.epochs
        if epochs is None:
            return None
        if after.is_at_end(epochs):
            return 0
        whole = after.pass_ends(epochs).epoch - after.next_epoch().epoch
        return self._epoch_batches(batch_size, after).steps + whole * self.steps_per_epoch(batch_size)

    def steps_of_epoch_after(self, batch_size: int, after: Cursor) -> int:
        """Return the number of batches after a cursor in its epoch.

        The number is the same on every rank.
        """
        return self._epoch_batches(batch_size, after).steps

    def rows_of_step(
        self, step: int, *, batch_size: int, rank: int | None = None, after: Cursor | None = None
    ) -> StepRows:
        """Return the rows of a training step, without reading data and without a log.

        Step 0 is the first batch of epoch 0. Steps are counted through all epochs, also if several iterations over a
        reader read them. With S steps per epoch, step s is step s % S of epoch s // S.

        Args:
            step: Number of the step, from 0.
            batch_size: Rows per full batch on one rank.
            rank: Rank whose rows to return; None means all ranks.
            after: Position from which steps count. `Cursor.of_epoch(e)` counts from the start of epoch e, as
                `reader.position()` does. None counts from the start of epoch 0.

        Raises:
            InvalidArgumentError: A number is negative, or an epoch has no batch.

        Example:
            >>> from petastore.inventory import Inventory
            >>> from petastore.plan import Order, Plan, ReadRequest, Shard
            >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=4)
            >>> plan = Plan(Inventory.of_rows([4, 4]), ReadRequest(("id",), order, Shard(0, 2), epochs=2))
            >>> rows = plan.rows_of_step(3, batch_size=2)
            >>> rows.epoch, rows.step_of_epoch, rows.ranks.tolist(), rows.row_groups.tolist(), rows.rows.tolist()
            (1, 1, [0, 0, 1, 1], [1, 1, 0, 0], [2, 3, 2, 3])
        """
        size = whole_number(batch_size, name="batch_size", least=1)
        return self._lookup.rows_of_step(step, size, rank, after or Cursor())

    def steps_of_rows(
        self, rows: RowPlaces, *, batch_size: int, epoch: int = 0, after: Cursor | None = None
    ) -> RowSteps:
        """Return the training steps and ranks that read given rows in an epoch.

        No data is read. A window (`NGram`) is given by its first row. In a mixture, a path with the URL of its dataset
        names the file of this dataset, a path without URL names the file in each source that has it, and row numbers
        count across all sources. An epoch of `stop="cycle"` never ends; it is divided into parts of `steps_per_epoch`
        steps, and `epoch` is the number of such a part.

        Args:
            rows: `(file, row group, row)` of each row, as `StepRows.places()`, `reader.position()` and `provenance`
                name them; or row numbers of the dataset, from 0.
            batch_size: Rows per full batch on one rank.
            epoch: Number of the epoch, from 0.
            after: Position from which steps count, as in `rows_of_step`.

        Raises:
            InvalidArgumentError: The dataset does not have a row, or a number is negative.

        Example:
            >>> from petastore.inventory import Inventory
            >>> from petastore.plan import Order, Plan, ReadRequest, Shard
            >>> order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=2, block_rows=4)
            >>> plan = Plan(Inventory.of_rows([4, 4]), ReadRequest(("id",), order, Shard(0, 2), epochs=2))
            >>> steps = plan.steps_of_rows([("part-00000.parquet", 1, 2)], batch_size=2, epoch=1)
            >>> steps.steps.tolist(), steps.ranks.tolist()
            ([3], [0])
        """
        size = whole_number(batch_size, name="batch_size", least=1)
        return self._lookup.steps_of_rows(rows, size, epoch, after or Cursor())

    @once
    def _lookup(self) -> StepLookup:
        # Imported here, because the first batch does not need lookups.
        from petastore.plan.report.step_rows import StepLookup

        return StepLookup(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle, without the cached orders of `_lookup`.

        These orders take megabytes.
        """
        return {name: value for name, value in vars(self).items() if name != "_lookup"}

    def plot(self, batch_size: int, *, epoch: int = 0) -> Any:
        """Plot the row groups from which each batch gets rows, as returned by `feeds()`.

        Return a new `matplotlib.figure.Figure`: batches on the x axis, row groups on the y axis, ranks as colors. Lines
        separate the sources of a mixture.

        Raises:
            NoDataAvailableError: There are fewer rows than ranks, with `last_batch="even"`.
            MissingExtraError: matplotlib is not installed.
        """
        # Imported here, because the first batch does not need reports.
        from petastore.plan.report.feeds import draw

        return draw(self.feeds(batch_size, epoch=epoch))

    def facts(self) -> dict[str, Any]:
        """Return the values that must be equal on all ranks, and this rank's shard.

        The result is a new dict of JSON values, by name. Columns are not included, because ranks may read different
        columns.
        """
        request = self.request
        return {
            "dataset": self.data_fingerprint,
            "rows": self.num_rows,
            "row groups": self.inventory.num_row_groups,
            **request.order.as_dict(),
            "num_epochs": request.epochs,
            "last_batch": request.last_batch.value,
            "shard_count": request.shard.count,
            "cur_shard": request.shard.index,
        }

    def assert_agreed(self, all_gather: AllGather) -> None:
        """Check that all ranks have the same plan. Call it on every rank.

        If plans differ, every rank raises the same error.

        Args:
            all_gather: Function that gathers a value from all ranks, in the order of ranks, such as
                `petastore.distributed.all_gather`.

        Raises:
            InvalidArgumentError: Two ranks have different plans, or the same shard; the message shows both.
        """
        assert_agreed(self.facts(), all_gather)

    def spans(self, batch_size: int, *, rows_per_span: int, after: Cursor | None = None) -> Iterator[Span]:
        """Yield this rank's batches after a cursor, through all epochs, in spans.

        A span consists of consecutive batches that are assembled together.

        Args:
            batch_size: Rows per full batch on this rank.
            rows_per_span: Maximum rows per span, unless a single batch has more. The first span has one batch, and each
                later span twice as many as the previous one, so that the first batch arrives early.
            after: Cursor to resume from; None begins at the start.

        Raises:
            NoDataAvailableError: There are fewer rows than ranks, with `last_batch="even"`.
        """
        size = whole_number(batch_size, name="batch_size", least=1)
        return self._spans(size, rows_per_span, after or Cursor())

    def _spans(self, batch_size: int, rows_per_span: int, after: Cursor) -> Iterator[Span]:
        """Yield the batches after a cursor, through all epochs, in spans; see `spans`."""
        batches_of = functools.partial(self._epoch_batches, batch_size)
        walk = self._walk(batch_size, rows_per_span, after.epoch)
        return walk.epochs(batches_of, after=after, epochs=self.request.epochs)

    def _walk(self, batch_size: int, rows_per_span: int, epoch: int) -> Walk:
        return Walk(self._sources_in(epoch), batch_size, rows_per_span, self._walked_rows)

    def next_uses(self, begin: float, now: float) -> NextUses:
        """Return when this rank uses row groups, from `begin` to the end of the next period.

        For periods, see `NextUses`. A row group may occur several times. A time is the number of rows of all sources
        that are read since epoch 0.

        Args:
            begin: Time from which uses are returned.
            now: Current time, at least `begin`, in the current period.
        """
        return next_uses(self._sources_in(int(now) // self.num_rows), begin, now)

    def resident_bytes(self, group_bytes: NDArray[np.int64], *, early: int) -> int:
        """Return the peak bytes of the row groups in this rank's memory, over all sources.

        Args:
            group_bytes: Bytes per row group, source after source, shape (groups,).
            early: How long before its first use a row group is prefetched, in rows of the epoch.
        """
        return max(
            sum(
                resident_bytes(source.order(0), source.own_lanes, of_source, early)
                for source, of_source in zip(sources, _split(group_bytes, sources), strict=True)
            )
            for sources in self._possible_sources
        )

    @once
    def buffer_rows(self) -> int:
        """Capacity of the shuffle buffers of all sources, in rows.

        0 for unshuffled rows of one source, because they are read from one row group after another.
        """
        return max(self._buffer_rows(sources) for sources in self._possible_sources)

    def _buffer_rows(self, sources: Sequence[Source]) -> int:
        """Return the capacity of the shuffle buffers of some sources, in rows.

        For details, see `buffer_rows`.
        """
        rows = 0
        for source, of_source in zip(sources, _split(self.inventory.rows, sources), strict=True):
            is_shuffled = source.requested.shuffle_rows
            lanes = len(source.own_lanes) if is_shuffled or len(sources) > 1 else 0
            block_rows = source.requested.block_rows if is_shuffled else 1
            rows += buffer_rows(of_source, source.num_rows, lanes=lanes, block_rows=block_rows)
        return rows


def _split(of_groups: NDArray[np.int64], sources: Sequence[Source]) -> list[NDArray[np.int64]]:
    """Split an array with one entry per row group into one array for each source."""
    return np.split(of_groups, [source.first_group for source in sources[1:]])
