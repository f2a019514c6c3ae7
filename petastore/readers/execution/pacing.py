"""Pacing: how many rows are assembled in one go and how far ahead, and what that takes in memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from petastore.plan.batches.budget import Budget, fitted
from petastore.plan.batches.kept import Kept
from petastore.plan.plan import Plan, Span
from petastore.readers.assembly.assemble import SpanWork
from petastore.readers.assembly.room import Room, begin_in_room
from petastore.readers.execution.execution import Execution
from petastore.readers.loaded.row_group import LoadedRowGroup

__all__ = ["Pace", "beginning_of", "budget_of", "pace_of"]

_CALLED_ROWS = 4096
"""Rows that are assembled in one go where Python runs for each of them: enough, even at a microsecond or two a row."""


class Pace(NamedTuple):
    """How a pass goes."""

    rows_per_span: int
    """Rows that are assembled in one go."""

    ahead: int
    """Spans that are worked on at a time."""


def pace_of(execution: Execution, batch_size: int) -> Pace:
    """How batches of this size are read.

    Raises:
        InvalidArgumentError: `memory_budget` is less than they need.
    """
    workers = execution.workers
    if workers.memory_budget is None:
        return Pace(_rows_per_span(execution), workers.at_a_time + 1)
    budget = budget_of(execution, batch_size)
    execution.loading.memory.buffers.limit = budget.at_hand_bytes + budget.batch_bytes
    return Pace(budget.rows_per_span, budget.ahead)


def budget_of(execution: Execution, batch_size: int) -> Budget:
    """What reading batches of this size takes at most; see `Reader.estimate_memory`.

    Raises:
        InvalidArgumentError: `memory_budget` is less than they need.
    """
    footprint, plan, workers = execution.assembly.footprint, execution.plan, execution.workers
    ranks = plan.request.shard.count
    return fitted(
        footprint.needs,
        lambda early: plan.at_hand_bytes(footprint.group_bytes, early=early * ranks),
        batch_size=batch_size,
        rows_per_span=max(_rows_per_span(execution), batch_size),
        workers=workers.at_a_time,
        limit=workers.memory_budget,
        kept=_kept(execution),
    )


def beginning_of(execution: Execution, batch_size: int) -> Callable[[Span, Mapping[int, LoadedRowGroup]], SpanWork]:
    """What divides the assembly of a span into tasks, or into parts where memory is bounded."""
    assembler, workers = execution.assembly.assembler, execution.workers
    if workers.memory_budget is None:
        return assembler.begin
    free, budget = execution.assembly.footprint.free_row_bytes, budget_of(execution, batch_size)
    room = Room.of(budget, limit=workers.memory_budget, free_row_bytes=free, workers=workers.at_a_time)
    return functools.partial(begin_in_room, assembler, room)


def _rows_per_span(execution: Execution) -> int:
    """Rows that are best assembled in one go, where no budget says otherwise."""
    workers, assembly = execution.workers, execution.assembly
    is_bounded = workers.memory_budget is not None
    rows = assembly.footprint.rows_per_span(workers.at_a_time + 1, is_bounded=is_bounded)
    return min(rows, _CALLED_ROWS) if assembly.functions.are_called else rows


def _kept(execution: Execution) -> Kept:
    """Why row groups are at hand."""
    plan = execution.plan
    sources = (plan,) if isinstance(plan, Plan) else plan.sources
    orders = [source.request.order for source in sources]
    return Kept(
        largest_group_bytes=int(execution.assembly.footprint.group_bytes.max(initial=0)),
        shuffles_rows=any(order.shuffle_rows for order in orders),
        lanes=max(-(-order.lanes // plan.request.shard.count) for order in orders),
        sources=len(sources),
        is_of_windows=execution.windows is not None,
    )
