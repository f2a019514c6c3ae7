"""Look up the rows of a training step, or the training steps of a row. No I/O.

Both are computed from a plan, without a log of the training run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory, RowPlace
from petastore.plan.batches.spans import EpochOfBatches, Source
from petastore.plan.cursor import Cursor
from petastore.plan.order.order import EpochOrder
from petastore.plan.report.explanation import counted
from petastore.plan.request import ReadRequest, Shard, whole_number

__all__ = ["RowSteps", "StepLookup", "StepRows"]

RowPlaces: TypeAlias = "ArrayLike | Iterable[RowPlace]"
"""Rows: `(file, row group, row)` of each row, or row numbers of the dataset."""


class TracedPlan(Protocol):
    """Interface: the members of `RankPlan` that this module needs."""

    @property
    def inventory(self) -> Inventory: ...

    @property
    def named_inventory(self) -> Inventory: ...

    @property
    def request(self) -> ReadRequest: ...

    @property
    def sources(self) -> Sequence[Any]: ...

    @property
    def first_groups(self) -> NDArray[np.int64]: ...

    @property
    def num_rows(self) -> int: ...

    @property
    def _walked_rows(self) -> int: ...

    def find_rows(
        self, places: Iterable[RowPlace], *, name: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...

    def steps_per_epoch(self, batch_size: int) -> int: ...

    def _epoch_batches(self, batch_size: int, begin: Cursor) -> EpochOfBatches: ...

    def _sources_in(self, epoch: int) -> Sequence[Source]: ...


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StepRows:
    """Rows of one training step: parallel NumPy arrays with one entry per row.

    Rows are sorted by rank, and in batch order for each rank.

    Example:
        >>> from petastore.plan import Order, Plan, ReadRequest
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
        >>> rows = Plan(Inventory.of_rows([3, 4]), ReadRequest(("id",), order)).rows_of_step(1, batch_size=2)
        >>> rows
        StepRows(step 1: epoch 0, its step 1; 2 rows in 2 row groups of 1 file, from ('part-00000.parquet', 0, 2))
        >>> rows.places()
        (('part-00000.parquet', 0, 2), ('part-00000.parquet', 1, 0))
    """

    step: int
    """Number of the step, as passed to `rows_of_step`."""

    epoch: int
    """Epoch to which the step belongs, from 0."""

    step_of_epoch: int
    """Number of the step in its epoch, from 0.

    In the epoch of `after`, steps count from that position."""

    inventory: Inventory
    """Files and row groups of the plan.

    In a mixture, those of all sources; the path of a file then begins with the URL of its dataset."""

    ranks: NDArray[np.int64]
    """Rank of each row, ascending."""

    groups: NDArray[np.int32]
    """Row group of each row, numbered across the dataset.

    In a mixture, row groups are numbered across all sources."""

    rows: NDArray[np.int64]
    """Row number in the row group, from 0; for a window (`NGram`), its first row."""

    valid: NDArray[np.bool_]
    """Mask that is False for repeated rows of `last_batch="pad"`."""

    sources: NDArray[np.int64]
    """Number of each row's source in a mixture; 0 without a mixture."""

    window_length: int = 1
    """Number of rows of the window (`NGram`) that begins at each row.

    1 without windows."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @property
    def files(self) -> NDArray[np.object_]:
        """Path of each row's file, relative to the dataset (`DataFile.path`)."""
        return self.inventory.places_of(self.groups)[0]

    @property
    def row_groups(self) -> NDArray[np.int32]:
        """Number of each row's row group in its file, from 0."""
        return self.inventory.places_of(self.groups)[1]

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Row number of each row in the dataset, from 0.

        Files are in the order of their paths; in a mixture, rows are numbered across all sources.
        """
        return self.inventory.first_rows[self.groups] + self.rows

    def places(self) -> tuple[tuple[str, int, int], ...]:
        """Return `(file, row group, row)` of each row.

        Readers accept these tuples as `exclude_rows`. In a mixture, the path of a file begins with the URL of its
        dataset.
        """
        files, ordinals = self.inventory.places_of(self.groups)
        return tuple(zip(files.tolist(), ordinals.tolist(), self.rows.tolist(), strict=True))

    def of_rank(self, rank: int) -> StepRows:
        """Return the rows of the step that one rank reads."""
        here = self.ranks == rank
        names = ("ranks", "groups", "rows", "valid", "sources")
        return dataclasses.replace(self, **{name: getattr(self, name)[here] for name in names})

    def __repr__(self) -> str:
        groups = np.unique(self.groups)
        of_ranks = len(np.unique(self.ranks))
        files = len(np.unique(self.inventory.file[groups]))
        windows = f"windows of {self.window_length:,} rows" if self.window_length > 1 else counted(len(self), "row")
        return (
            f"StepRows(step {self.step:,}: epoch {self.epoch:,}, its step {self.step_of_epoch:,}; "
            f"{f'{len(self):,} ' if self.window_length > 1 else ''}{windows}"
            f"{f' on {of_ranks:,} ranks' if of_ranks > 1 else ''} in {counted(len(groups), 'row group')} of "
            f"{counted(files, 'file')}{f', from {self._first}' if len(self) else ''})"
        )

    @property
    def _first(self) -> tuple[str, int, int]:
        file, ordinal = self.inventory.place_of(int(self.groups[0]))
        return file.path, ordinal, int(self.rows[0])

    def _repr_html_(self) -> str:
        from petastore.notebook import html_table

        places = zip(self.ranks.tolist(), *zip(*self.places(), strict=True), strict=True) if len(self) else ()
        return html_table(repr(self), ["rank", "file", "row group", "row"], places, count=len(self))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RowSteps:
    """Training steps that read given rows, as parallel NumPy arrays, sorted by step.

    There is one entry for each read of a row. A row that the plan does not read has no entry, and a row that is read
    twice has two entries. Repeated rows of `last_batch="pad"` have no entry.

    Example:
        >>> from petastore.plan import Order, Plan, ReadRequest
        >>> order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
        >>> plan = Plan(Inventory.of_rows([3, 4]), ReadRequest(("id",), order))
        >>> steps = plan.steps_of_rows([("part-00000.parquet", 1, 3), ("part-00000.parquet", 0, 0)], batch_size=2)
        >>> steps.rows.tolist(), steps.steps.tolist(), steps.ranks.tolist()
        ([1, 0], [0, 3], [0, 0])
        >>> steps
        RowSteps(2 rows in 2 steps of epoch 0, from step 0)
    """

    epoch: int
    """Epoch in which the rows were looked up."""

    rows: NDArray[np.int64]
    """Index of the row that is read, among the rows that were looked up."""

    steps: NDArray[np.int64]
    """Number of the step that reads the row, as in `rows_of_step`; ascending."""

    ranks: NDArray[np.int64]
    """Rank that reads the row in this step."""

    def __len__(self) -> int:
        """Return the number of entries (reads of rows)."""
        return len(self.rows)

    def __repr__(self) -> str:
        rows, steps = len(np.unique(self.rows)), len(np.unique(self.steps))
        begin = f", from step {int(self.steps[0]):,}" if steps else ""
        return f"RowSteps({counted(rows, 'row')} in {counted(steps, 'step')} of epoch {self.epoch:,}{begin})"


class StepLookup:
    """Lookup of the rows of a training step, and of the training steps of a row.

    Thread-safe; orders of recent epochs are cached.

    Args:
        plan: Plan of any rank.
    """

    def __init__(self, plan: TracedPlan) -> None:
        self._plan = plan
        self._order = functools.lru_cache(maxsize=2 * len(plan.sources))(self._make_order)

    def _make_order(self, epoch: int, source: int, own_epoch: int) -> EpochOrder:
        return self._plan._sources_in(epoch)[source].order(own_epoch)  # noqa: SLF001 - a part of the plan's class

    def rows_of_step(self, step: int, batch_size: int, rank: int | None, after: Cursor) -> StepRows:
        """Return the rows of a step, as `RankPlan.rows_of_step` describes."""
        step, count = whole_number(step, name="step", least=0), self._plan.request.shard.count
        if rank is not None and not 0 <= whole_number(rank, name="rank", least=0) < count:
            raise InvalidArgumentError(f"rank must be below {count}, the number of ranks of the plan, got {rank}")
        begin, in_epoch = self._place_of(step, batch_size, after)
        ranks = range(count) if rank is None else [rank]
        parts = self._steps(batch_size, begin).places_at(in_epoch, [Shard(number, count) for number in ranks])
        sizes = [len(places) for _, places, _ in parts]
        sources = np.concatenate([source for source, _, _ in parts]).astype(np.int64)
        groups, rows = self._rows_at(begin.epoch, sources, np.concatenate([places for _, places, _ in parts]))
        valid = [
            np.ones(size, np.bool_) if part[2] is None else part[2] for part, size in zip(parts, sizes, strict=True)
        ]
        return StepRows(
            step=step,
            epoch=begin.epoch,
            step_of_epoch=in_epoch,
            inventory=self._plan.named_inventory,
            ranks=np.repeat(np.array(ranks, dtype=np.int64), sizes),
            groups=groups,
            rows=rows,
            valid=np.concatenate(valid),
            sources=sources,
            window_length=getattr(self._plan.sources[0].selection, "length", 1),
        )

    def steps_of_rows(self, rows: RowPlaces, batch_size: int, epoch: int, after: Cursor) -> RowSteps:
        """Return the steps that read given rows, as `RankPlan.steps_of_rows` describes."""
        epoch, plan = whole_number(epoch, name="epoch", least=0), self._plan
        if epoch < after.epoch:
            raise InvalidArgumentError(
                f"epoch must be at least {after.epoch}, the epoch of the argument `after`, got {epoch}"
            )
        begin, before, steps = self._epoch_at(epoch, batch_size, after)
        layout = self._steps(batch_size, begin)
        which, groups, numbers = _given_rows(plan, rows)
        sources = np.searchsorted(plan.first_groups, groups, side="right") - 1
        found = [(which[:0], which[:0], which[:0])]
        for source in np.unique(sources).tolist():
            here = np.flatnonzero(sources == source)
            index, places = self._places_of(begin.epoch, source, groups[here], numbers[here], layout, steps)
            again, at, ranks = layout.steps_of(source, places)
            in_time = (at >= steps.start) & (at < steps.stop)
            found.append((which[here[index[again[in_time]]]], at[in_time], ranks[in_time]))
        index, at, ranks = (np.concatenate(columns) for columns in zip(*found, strict=True))
        order = np.lexsort((index, ranks, at))
        return RowSteps(epoch, index[order], at[order] + before, ranks[order])

    def _steps(self, batch_size: int, begin: Cursor) -> EpochOfBatches:
        return self._plan._epoch_batches(batch_size, begin)  # noqa: SLF001 - a part of the plan's class

    def _place_of(self, step: int, batch_size: int, after: Cursor) -> tuple[Cursor, int]:
        """Return the start of a step's epoch, and the step's number in this epoch.

        If `after` is in the same epoch, return `after` and the step's number from there.
        """
        begin, left = after, step
        while left >= (steps := self._steps(batch_size, begin).steps):
            if begin.position == 0 and steps == 0:
                raise InvalidArgumentError(
                    f"step must be a step of the plan, got {step:,}, but the plan has no steps with "
                    f"batch_size={batch_size:,}, because it has only "
                    f"{counted(self._plan.num_rows, 'row')}. Use a smaller batch_size or another last_batch"
                )
            begin, left = begin.next_epoch(), left - steps
            if begin.epoch > self._last_unequal_epoch:
                epochs, left = divmod(left, self._plan.steps_per_epoch(batch_size))
                begin = dataclasses.replace(begin, epoch=begin.epoch + epochs)
        return begin, left

    @property
    def _last_unequal_epoch(self) -> int:
        """Last epoch whose row order or number of rows differs from that of later epochs.

        It differs if the number of ranks or the excluded rows changed after this epoch began. -1 if no epoch differs.
        """
        rests = [source.request.under_way for source in self._plan.sources]
        return max((rest.epoch for rest in rests if rest is not None), default=-1)

    def _epoch_at(self, epoch: int, batch_size: int, after: Cursor) -> tuple[Cursor, int, range]:
        """Return the start of an epoch, the number of steps before it, and its steps.

        The start is `after` if that position is in the epoch. Steps before the epoch are counted from `after`. The
        steps of the epoch are a range that counts from the start. If the mixture's only epoch is endless, `epoch` is
        the number of a part with `steps_per_epoch` steps, and start and range count from `after`.
        """
        if self._plan._walked_rows > self._plan.num_rows:  # noqa: SLF001 - "cycle": the only epoch is endless
            ordinary = self._plan.steps_per_epoch(batch_size)
            return after, 0, range((epoch - after.epoch) * ordinary, (epoch - after.epoch + 1) * ordinary)
        begin, before = after, 0
        while begin.epoch < epoch:
            before += self._steps(batch_size, begin).steps
            begin = begin.next_epoch()
            if begin.epoch > self._last_unequal_epoch:
                before += (epoch - begin.epoch) * self._plan.steps_per_epoch(batch_size)
                begin = dataclasses.replace(begin, epoch=epoch)
        return begin, before, range(self._steps(batch_size, begin).steps)

    def _rows_at(
        self, epoch: int, sources: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the row group and the row number of each row, both of shape (n,).

        Args:
            epoch: Epoch of the plan.
            sources: Source of each row, shape (n,).
            places: Number of rows that the source yields before each row in this epoch, shape (n,).
        """
        groups, rows = np.empty(len(places), dtype=np.int32), np.empty(len(places), dtype=np.int64)
        all_sources = self._plan._sources_in(epoch)  # noqa: SLF001 - a part of the plan's class
        for number in np.unique(sources).tolist():
            source = all_sources[number]
            here = np.flatnonzero(sources == number)
            epochs, positions = np.divmod(places[here] + epoch * source.given, source.num_rows)
            for own_epoch in np.unique(epochs).tolist():
                chosen = epochs == own_epoch
                own_groups, own_rows = self._order(epoch, number, own_epoch).rows_at(positions[chosen])
                if source.selection is not None:
                    own_rows = source.selection.rows_at(own_groups, own_rows)
                groups[here[chosen]] = own_groups + source.first_group
                rows[here[chosen]] = own_rows
        return groups, rows

    def _places_of(
        self,
        epoch: int,
        number: int,
        groups: NDArray[np.int64],
        rows: NDArray[np.int64],
        layout: EpochOfBatches,
        steps: range,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the reads of a source's rows in given steps of an epoch.

        Args:
            epoch: Epoch of the plan.
            number: Number of the source.
            groups: Row group of each row, numbered across all sources, shape (n,).
            rows: Row number in the row group, shape (n,).
            layout: Steps of the epoch.
            steps: Steps to search.

        Returns:
            Two arrays with an entry for each read of a row: the index of the row in `rows`, and the number of rows that
            the source yields before it in the epoch.
        """
        source = self._plan._sources_in(epoch)[number]  # noqa: SLF001 - a part of the plan's class
        groups = groups - source.first_group
        within = rows if source.selection is None else source.selection.places_of(groups, rows)
        selected = np.flatnonzero((within >= 0) & (source.rows[groups] > 0))
        first, stop = 0, source.given
        if steps.stop < layout.steps:
            first, stop = (int(layout.places_before(step)[number]) for step in (steps.start, steps.stop))
        begin = epoch * source.given
        found = [(selected[:0], within[:0])]
        for own_epoch in range((begin + first) // source.num_rows, -(-(begin + stop) // source.num_rows)):
            positions = self._order(epoch, number, own_epoch).positions_of(groups[selected], within[selected])
            places = own_epoch * source.num_rows + positions - begin
            in_time = (places >= first) & (places < stop)
            found.append((selected[in_time], places[in_time]))
        index, places = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return index, places


def _given_rows(plan: TracedPlan, rows: RowPlaces) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the row group and row number of rows that the user passed.

    The result has three arrays of equal length: index into `rows`, row group and row number. The index is needed
    because a mixture may have the same path in several sources.
    """
    listed: Any = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, np.ndarray) else rows
    if isinstance(listed, list) and (not listed or isinstance(listed[0], (tuple, list))):
        return plan.find_rows(listed, name="rows")
    try:
        numbers = np.asarray(listed)
    except ValueError:  # numbers and lists are mixed
        numbers = np.empty((), dtype=object)
    inventory, total = plan.inventory, plan.inventory.num_rows
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers >= total)).any():
        raise InvalidArgumentError(
            f"rows must be a list of (file, row group, row), or of row numbers from 0 to {total - 1:,}, got "
            f"{listed!r:.100}"
        )
    numbers = numbers.astype(np.int64)
    groups = np.searchsorted(inventory.first_rows, numbers, side="right") - 1
    return np.arange(len(numbers)), groups, numbers - inventory.first_rows[groups]
