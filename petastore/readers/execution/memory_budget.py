"""Memory budget of a reader: its peak memory and its prefetch limit, computed before any data is read.

```text
row groups in memory     row groups that the order still needs, from loading to their last row
batches                  being assembled, ready, or held by the trainer: one span more than the reader assembles ahead
work                     pages of each worker, compressed and decoded, footers of files, and the plan of the batches
prefetched               stored bytes of row groups that arrived before a worker decodes them
```

A span is a sequence of consecutive batches that are assembled together. With a smaller budget, spans become smaller and
fewer, down to one batch at a time. The memory of row groups depends mainly on the order of rows. Prefetching may use
the rest of the budget.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from petastore.errors import InvalidArgumentError
from petastore.plan.plan import Span
from petastore.readers.assembly.assemble import Room, SpanWork, begin_in_room
from petastore.readers.execution.execution import Execution
from petastore.readers.loaded.footprint import ROUNDED, Footprint
from petastore.readers.loaded.prefetch import MOST_PREFETCHED_BYTES
from petastore.readers.loaded.row_group_reader import LoadedRowGroup

__all__ = ["FOOTERS_PART", "Budget", "Pace", "budget_of", "check_enough", "fitted", "pace_of"]

FOOTERS_PART = 8
"""Divisor of the memory budget: cached footers take at most an eighth of it; least recently used ones are evicted."""

_FREE_SHARE = 4
"""Divisor of the unused budget: prefetching gets only a quarter of it if the size of some values is unknown before
decoding. These values may need the rest."""

_STREAMED_SPANS_SHARE = 5
"""Divisor of the budget: batches in preparation get a fifth of it if huge row groups are loaded in parts."""

_PLANNED_BYTES = 16 * 1024 * 1024
"""Bytes reserved for the plan of the batches whose row groups are prefetched."""


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """Peak memory of a reader, by purpose, and how many rows it assembles in advance; print it.

    Example:
        >>> print(Budget(rows_per_span=512, ahead=3, resident_bytes=96_000_000, batch_bytes=34_000_000, work_bytes=0))
        at most 130.0 MB: 96.0 MB of row groups in memory, 34.0 MB of batches in preparation (3 spans of 512 rows
        ahead), 0.0 MB of workers, footers and plan, 0.0 MB prefetched
    """

    rows_per_span: int
    """Maximum rows of a span (consecutive batches assembled together), unless a single batch has more rows."""

    ahead: int
    """Number of spans (consecutive batches) that are assembled at a time."""

    resident_bytes: int
    """Bytes of row groups in memory."""

    batch_bytes: int
    """Bytes of batches in preparation."""

    work_bytes: int
    """Bytes that workers need while they read, plus the bytes of cached footers and of the plan of the batches."""

    prefetched_bytes: int = 0
    """Stored (compressed) bytes of row groups that are prefetched from slow storage."""

    @property
    def total_bytes(self) -> int:
        """Peak memory of the reader in bytes: the sum of all parts of the budget."""
        return self.resident_bytes + self.batch_bytes + self.work_bytes + self.prefetched_bytes

    def __str__(self) -> str:
        total, at_hand, batches, work, prefetched = (
            f"{size / 1e6:,.1f} MB"
            for size in (
                self.total_bytes, self.resident_bytes, self.batch_bytes, self.work_bytes, self.prefetched_bytes
            )
        )  # fmt: skip
        return (
            f"at most {total}: {at_hand} of row groups in memory, {batches} of batches in preparation ({self.ahead:,} "
            f"spans of {self.rows_per_span:,} rows ahead), {work} of workers, footers and plan, {prefetched} prefetched"
        )


def fitted(
    takes: Footprint,
    resident_bytes: Callable[[int], int],
    *,
    batch_size: int,
    rows_per_span: int,
    workers: int,
    limit: int | None,
    prefetched_bytes: int = 0,
) -> Budget:
    """Return the fastest settings within a memory limit.

    If even the smallest settings exceed the limit, return these; `total_bytes` is then the smallest sufficient limit.

    Args:
        takes: Memory footprint of rows.
        resident_bytes: Function that returns the maximum bytes of row groups in memory, given the number of rows of the
            spans (consecutive batches) in progress.
        batch_size: Number of rows of a batch.
        rows_per_span: Number of rows to assemble together (a span) if memory is not limited.
        workers: Number of tasks that run at the same time; 0 if the tasks run in the consumer's thread.
        limit: Limit in bytes; None means no limit.
        prefetched_bytes: Maximum bytes that are prefetched.
    """
    footers = takes.footer_bytes if limit is None else min(takes.footer_bytes, limit // FOOTERS_PART)
    rows = 2 * max(rows_per_span, batch_size)
    while rows > batch_size:
        rows = max(rows // 2, batch_size)
        for ahead in range(workers + 1, 0, -1):
            spans, permuted = (ahead + 1) * rows, max(min(workers, ahead), 1) * rows
            values = _value_bytes(takes, batch_size, rows, ahead=ahead, workers=workers)
            fixed = spans * (takes.row_bytes - takes.free_row_bytes) + permuted * takes.permuted_row_bytes
            work = footers + takes.streamed_bytes + max(workers, 1) * takes.work_bytes + spans * takes.plan_row_bytes
            budget = Budget(rows, ahead, resident_bytes(ahead * rows), int(ROUNDED * fixed) + values, work)
            left = prefetched_bytes if limit is None else limit - budget.total_bytes
            if left >= 0:
                share = (left - _PLANNED_BYTES) // (_FREE_SHARE if takes.free_row_bytes else 1)
                prefetched = left if limit is None else max(min(share, prefetched_bytes), 0)
                return dataclasses.replace(budget, prefetched_bytes=prefetched)
    # No setting fits: compute the smallest sufficient limit, of which cached footers may take a fixed share.
    least = budget.total_bytes - footers
    least = min(least + takes.footer_bytes, (least - 1) * FOOTERS_PART // (FOOTERS_PART - 1) + 1)
    return dataclasses.replace(budget, work_bytes=budget.work_bytes + least - budget.total_bytes)


def _value_bytes(takes: Footprint, batch_size: int, rows: int, *, ahead: int, workers: int) -> int:
    """Return the bytes to reserve for variable-size values, such as text and images, in all assembled batches.

    `Room` divides the memory into equal shares, and each share must hold at least one batch. The result is therefore
    the larger of two sizes: the estimated values of all spans (consecutive batches), and one batch for each share.
    """
    decoded = min(max(workers, 1), batch_size) if takes.decodes_values else 0
    least = Room.shares(ahead) * (batch_size + decoded) * takes.value_row_bytes
    return int(ROUNDED * max((ahead + 1) * rows * takes.free_row_bytes, least))


def check_enough(
    budget: Budget, limit: int | None, least: int, *, batch_size: int, workers: int, shuffles_rows: bool = False
) -> None:
    """Raise an error if the memory limit is too small even for one batch at a time.

    Args:
        budget: Settings from `fitted`.
        limit: Limit in bytes; None means no limit.
        least: Smallest limit that suffices.
        batch_size: Number of rows of a batch.
        workers: Number of tasks that run at the same time.
        shuffles_rows: Whether `shuffle_buffer_bytes` determines how many row groups are in memory; used for the error
            message.

    Raises:
        InvalidArgumentError: The limit is below `least`.
    """
    if limit is None or limit >= least:
        return
    smaller = "write row groups of fewer rows (rows_per_row_group, row_group_size_mb)"
    less = {
        budget.resident_bytes: "decrease shuffle_buffer_bytes, which keeps fewer row groups and mixes less"
        if shuffles_rows
        else smaller,
        budget.batch_bytes: "ask for smaller batches",
        budget.work_bytes: "use fewer workers (workers_count)" if workers > 1 else smaller,
    }
    raise InvalidArgumentError(
        f"memory_budget must be at least {least:,} bytes for batches of {batch_size:,} rows, got "
        f"{limit:,}: row groups take {budget.resident_bytes:,} bytes, batches {budget.batch_bytes:,}, and buffers "
        f"{budget.work_bytes:,}. Raise memory_budget; or {less[max(less)]}; or read fewer columns"
    )


_CALLED_ROWS = 4096
"""Maximum rows assembled together if a transform function is called: even at 1 µs a row, they take 4 ms."""


class Pace(NamedTuple):
    """Limits of one iteration over a reader: rows assembled together, concurrent assemblies, prefetched bytes."""

    rows_per_span: int
    """Maximum rows of a span (consecutive batches assembled together), unless a single batch has more rows."""

    ahead: int
    """Number of spans (consecutive batches) that are assembled at a time."""

    prefetched_bytes: int
    """Stored bytes of row groups that may be prefetched from slow storage."""

    begin: Callable[[Span, Mapping[int, LoadedRowGroup]], SpanWork]
    """Function that divides the assembly of a span (consecutive batches) into tasks; or into parts, if the values of
    the span exceed the memory limit."""


def pace_of(execution: Execution, batch_size: int) -> Pace:
    """Return the settings of an iteration with batches of this size.

    With a memory budget, the settings are those of `budget_of`, and the function also limits the memory of the reader's
    buffers and of cached footers.

    Raises:
        InvalidArgumentError: `memory_budget` is too small for such batches.
    """
    limit = execution.workers.memory_budget
    budget = None if limit is None else budget_of(execution, batch_size)
    whole, execution = execution, execution.in_parts
    workers, begin = execution.workers.at_a_time, execution.assembler.begin
    if limit is None or budget is None:
        return Pace(_rows_per_span(execution), workers + 1, _most_prefetched(execution), begin)
    execution.memory.buffers.limit = budget.resident_bytes + budget.batch_bytes
    for dataset in execution.source.datasets:
        dataset.footers.limit_memory(limit // FOOTERS_PART // len(execution.source.datasets))
    room = _room(whole, budget, batch_size)
    begin = functools.partial(begin_in_room, execution.assembler, room)
    return Pace(budget.rows_per_span, budget.ahead, budget.prefetched_bytes, begin)


def _room(execution: Execution, budget: Budget, batch_size: int) -> Room:
    """Return the memory for variable-size values, such as images, in batches assembled in advance and on request.

    These values get the bytes that the budget reserves for them, plus all bytes of `memory_budget` that are not used.
    """
    limit, workers = execution.workers.memory_budget, execution.workers.at_a_time
    assert limit is not None  # noqa: S101 - only called with a memory budget
    values = _value_bytes(
        execution.in_parts.footprint, batch_size, budget.rows_per_span, ahead=budget.ahead, workers=workers
    )
    return Room.of(
        limit,
        limit - budget.total_bytes + values,
        ahead=budget.ahead,
        workers=max(workers, 1),
        least=functools.partial(_least_for, execution, limit, batch_size),
    )


def _least_for(execution: Execution, limit: int, batch_size: int, size: int) -> int:
    """Return a `memory_budget` that leaves `size` bytes for the variable-size values of a batch, for error messages.

    Raising the budget by the missing bytes may not suffice, because a larger budget also allows faster settings, which
    need more memory. The budget is therefore raised until the bytes suffice.
    """
    while True:
        larger = _within(execution, limit)
        lacks = size - _room(larger, _fitted(larger, batch_size), batch_size).asked_bytes
        if lacks <= 0:
            return limit
        limit += max(lacks, limit // 64)


def _within(execution: Execution, limit: int) -> Execution:
    """Return the execution with another `memory_budget`."""
    return dataclasses.replace(execution, workers=dataclasses.replace(execution.workers, memory_budget=limit))


def budget_of(execution: Execution, batch_size: int) -> Budget:
    """Return the peak memory of reading batches of this size; see `Reader.estimate_memory`.

    Args:
        execution: Execution of a reader that loads whole row groups; the budget decides which are loaded in parts.
        batch_size: Number of rows of a batch.

    Raises:
        InvalidArgumentError: `memory_budget` is too small for such batches.
    """
    limit = execution.workers.memory_budget
    budget = _fitted(execution, batch_size)
    if limit is None or budget.total_bytes <= limit:
        return budget
    least = limit
    while budget.total_bytes > least:  # with a larger budget, the parts of huge row groups are larger, too
        least = budget.total_bytes
        budget = _fitted(_within(execution, least), batch_size)
    workers, shuffles = execution.workers.at_a_time, execution.plan.request.order.shuffle_rows
    check_enough(budget, limit, least, batch_size=batch_size, workers=workers, shuffles_rows=shuffles)
    return budget


def _fitted(execution: Execution, batch_size: int) -> Budget:
    """Return the memory settings for batches of this size; their memory may exceed `memory_budget`."""
    execution = execution.in_parts
    footprint, plan, workers = execution.footprint, execution.plan, execution.workers
    ranks = plan.request.shard.count
    return fitted(
        footprint,
        # The next `rows` rows of one rank are among the next `rows * ranks` rows of the epoch.
        lambda rows: plan.resident_bytes(footprint.group_bytes, early=rows * ranks - 1),
        batch_size=batch_size,
        rows_per_span=_rows_per_span(execution),
        workers=workers.at_a_time,
        limit=workers.memory_budget,
        prefetched_bytes=min(_most_prefetched(execution), int(plan.inventory.stored_bytes.sum())),
    )


def _rows_per_span(execution: Execution) -> int:
    """Return the maximum rows to assemble together, before `fitted` reduces this number for the memory budget."""
    workers = execution.workers
    is_bounded = workers.memory_budget is not None
    rows = execution.footprint.rows_per_span(workers.at_a_time + 1, is_bounded=is_bounded)
    if execution.plan.parts is not None and workers.memory_budget is not None:
        # Spans (consecutive batches) are small, so that one is assembled while the next row-group parts are decoded.
        most = workers.memory_budget // _STREAMED_SPANS_SHARE // (workers.at_a_time + 2)
        rows = max(min(rows, most // execution.footprint.row_bytes), 1)
    return min(rows, _CALLED_ROWS) if execution.functions.are_called else rows


def _most_prefetched(execution: Execution) -> int:
    """Return the maximum prefetched bytes if memory is not limited; 0 if all files are local.

    The result is at least the stored size of the largest row group. If the result exceeds the stored size of the
    dataset, row groups of the next epoch are requested while those of this epoch are still prefetched. Each row group
    is then fetched once for both epochs.
    """
    if not any(dataset.is_fetched for dataset in execution.source.datasets):
        return 0
    return int(max(MOST_PREFETCHED_BYTES, execution.plan.inventory.stored_bytes.max(initial=0)))
