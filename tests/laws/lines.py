"""Compute the expected rows of each training step from the row order of a single rank with batches of one row."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from petastore.plan.cursor import Cursor, MixedCursor
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.plan import Plan
from petastore.plan.request import LastBatch, Shard
from petastore.testing.training import StepsAndRows, Training, numbers_of

__all__ = ["Lines", "SourceLines", "assert_same_steps", "lines_of"]

_LINE_ROWS = 2**16


def lines_of(plan: Plan | Mixture, *, most: int | None = None) -> Lines | SourceLines:
    """Return the expected row order of a plan, which does not depend on ranks and batch size.

    Args:
        plan: The plan of any rank.
        most: Largest number of rows to compute, if an epoch never ends (a mixture with stop="cycle").
    """
    alone = plan.for_shard(Shard())
    endless = plan.request.epochs is None
    parts: list[list[NDArray[np.int64]]] = [[np.empty(0, np.int64)] for _ in range(plan.request.epochs or 1)]
    for span in alone.spans(1, rows_per_span=_LINE_ROWS):
        if span.epoch >= len(parts):
            break
        parts[span.epoch].append(numbers_of(plan, span))
        if endless and most is not None and sum(map(len, parts[span.epoch])) >= most:
            break
    lines = [np.concatenate(of_epoch) for of_epoch in parts]
    if not isinstance(plan, Mixture) or plan.batching == "mixed":
        return Lines(lines, plan.request.last_batch)
    first_rows = np.append(np.cumsum(plan.inventory.rows) - plan.inventory.rows, plan.inventory.num_rows)
    borders = first_rows[plan.first_groups]
    sources = [np.searchsorted(borders, line, side="right") - 1 for line in lines]
    by_source = [
        [line[of_line == source] for source in range(len(plan.sources))]
        for line, of_line in zip(lines, sources, strict=True)
    ]
    return SourceLines(by_source, plan.request.last_batch, borders)


@dataclasses.dataclass(frozen=True, eq=False)
class Lines:
    """Row order of each epoch; every global batch is the next contiguous slice of it."""

    lines: list[NDArray[np.int64]]
    """Row numbers of each epoch, in order."""

    last_batch: LastBatch
    """Policy for the last rows of an epoch."""

    def due(self, training: Training, begin: Cursor, batch_size: int) -> StepsAndRows:
        """Return the expected rows of each step of a training run.

        Args:
            training: The rows that the ranks got; its cursors say where each step ends.
            begin: Position at which the training run started or resumed.
            batch_size: Batch size of one rank.

        Raises:
            AssertionError: A step other than the last one is not a full global batch.
        """
        due = [np.empty(0, np.int64)]
        before = begin
        for step, after in enumerate(training.cursors):
            epoch = int(training.epochs[step])
            assert before.epoch == epoch or self.last_batch is LastBatch.DROP, f"step {step} skips the rest of an epoch"
            start = before.position if before.epoch == epoch else 0
            stop = after.position if after.epoch == epoch else None
            what = f"step {step} of {training.num_ranks} ranks with batches of {batch_size}"
            due.append(_run(self.lines[epoch], start, stop, training.num_ranks, batch_size, self.last_batch, what))
            before = after
        return np.repeat(np.arange(len(due)) - 1, [len(rows) for rows in due]), np.concatenate(due)


@dataclasses.dataclass(frozen=True, eq=False)
class SourceLines:
    """Row order of each source of a mixture with batching="per_source"; each global batch is a slice of one."""

    lines: list[list[NDArray[np.int64]]]
    """Row numbers by epoch and source, in order."""

    last_batch: LastBatch
    """Policy for the last rows of each source."""

    first_rows: NDArray[np.int64]
    """The number of each source's first row, and of all rows; shape (sources + 1,)."""

    def due(self, training: Training, begin: Cursor, batch_size: int) -> StepsAndRows:
        """Return the expected rows of each step, like `Lines.due`.

        Raises:
            AssertionError: A step has rows of several sources, or is not a full global batch.
        """
        sources = np.searchsorted(self.first_rows, training.rows, side="right") - 1
        of_step = np.zeros(training.num_steps, dtype=np.int64)
        of_step[training.steps] = sources
        mixed = training.steps[of_step[training.steps] != sources]
        assert len(mixed) == 0, f"step {mixed[:1].tolist()} has rows of several sources"
        due = [np.empty(0, np.int64)]
        before = begin
        for step, after in enumerate(training.cursors):
            epoch, source = int(training.epochs[step]), int(of_step[step])
            starts, stops = self._taken(before, epoch), self._taken(after, epoch)
            line = self.lines[epoch][source]
            stop = stops[source] if after.epoch == epoch and stops[source] < len(line) else None
            what = f"step {step} of {training.num_ranks} ranks with batches of {batch_size}"
            due.append(_run(line, starts[source], stop, training.num_ranks, batch_size, self.last_batch, what))
            others = [place for place in range(len(starts)) if place != source and after.epoch == epoch]
            assert all(starts[place] == stops[place] for place in others), f"step {step} takes of other sources too"
            before = after
        return np.repeat(np.arange(len(due)) - 1, [len(rows) for rows in due]), np.concatenate(due)

    def _taken(self, cursor: Cursor, epoch: int) -> tuple[int, ...]:
        none = (0,) * (len(self.first_rows) - 1)
        return cursor.taken if isinstance(cursor, MixedCursor) and cursor.epoch == epoch else none


def _run(
    line: NDArray[np.int64], start: int, stop: int | None, ranks: int, batch_size: int, last_batch: LastBatch, what: str
) -> NDArray[np.int64]:
    """Return the rows of a slice of a row order that a step must have; `stop` is None for the last step."""
    global_batch = ranks * batch_size
    if stop is not None or last_batch is LastBatch.DROP:
        stop = start + global_batch if stop is None else stop
        assert stop - start == global_batch, f"{what} goes from {start} to {stop}, which is no global batch"
        assert stop <= len(line), f"{what} goes beyond the {len(line)} rows of its line"
        return line[start:stop]
    left = len(line) - start
    # with `even`, the last batch also has the remaining rows if they are fewer than the ranks
    most = global_batch + ranks - 1 if last_batch is LastBatch.EVEN else global_batch
    assert 0 < left <= most, f"{what} is the last one, but {left} rows are left"
    return line[(start + np.arange(global_batch)) % len(line)] if last_batch is LastBatch.WRAP else line[start:]


def assert_same_steps(found: StepsAndRows, wanted: StepsAndRows, what: str) -> None:
    """Raise unless two training runs have the same rows in each step, in any order; name the first difference.

    Args:
        found: Step and row numbers, two arrays of equal length.
        wanted: The expected step and row numbers.
        what: Description for the error message.
    """
    one, other = (np.stack(pair)[:, np.lexsort(pair[::-1])] for pair in (found, wanted))
    if np.array_equal(one, other):
        return
    shared = min(one.shape[1], other.shape[1])
    differ = np.flatnonzero((one[:, :shared] != other[:, :shared]).any(axis=0))
    place = int(differ[0]) if len(differ) else shared
    step = min(int(pair[0, place]) for pair in (one, other) if place < pair.shape[1])
    rows, due = (pair[1, pair[0] == step] for pair in (one, other))
    extra, missing = np.setdiff1d(rows, due)[:5].tolist(), np.setdiff1d(due, rows)[:5].tolist()
    raise AssertionError(
        f"{what}: step {step} has {len(rows):,} rows where {len(due):,} are due; "
        f"not due are {extra}, missing are {missing} (the first few)"
    )
