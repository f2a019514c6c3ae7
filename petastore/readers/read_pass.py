"""Read pass: one iteration over a reader, from a position to the end of its last epoch, with its own pipeline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any

from petastore import forks
from petastore.errors import ReaderClosedError
from petastore.monitoring.waits import WaitMeter
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.readers.assembly.assemble import AssembledSpan
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.handouts import Handout, Shared, batches_of
from petastore.readers.execution.memory_budget import pace_of
from petastore.readers.execution.position import LastRows, Position, position_of
from petastore.readers.loaded.loading import Loads
from petastore.readers.pipeline import Pipeline

__all__ = ["STOPPED", "Pass", "Position"]

STOPPED = "this reader was stopped. Open another one"

_REPLACED = (
    "this iterator has ended, because another loop over its reader was started. Start a new loop, which continues at "
    "the reader's position"
)
"""Error message of an iterator that another iterator of the same reader has replaced."""


def _no_one() -> Shared[Any] | None:
    """Return None, as a weak reference to a deleted iterator does."""
    return None


class Pass:
    """Pass: one iteration over a reader, up to the end of the last epoch, with its own pipeline.

    Users may iterate over rows, then over batches of some size, and so on: each new iteration continues after the last
    received item, and ends the previous iteration. Only one thread at a time may start an iteration; any thread may
    call the other methods.

    Args:
        execution: Execution of the reader.
        begin: Cursor (position in the plan) at which the pass begins.
        before: Counters of the reader's previous pass; None for its first pass, whose startup time is counted
            separately.
    """

    def __init__(self, execution: Execution, begin: Cursor, before: WaitMeter | None = None) -> None:
        self.beginning = forks.Lock()
        """Lock held while a loop starts the next pass: several threads may begin a loop at the same time."""
        self.is_over = False
        """Whether a thread has reached the end of the last epoch."""
        is_first, listeners = before is None or before.is_unused, None if before is None else before.listeners
        self.meter = WaitMeter(execution.in_parts.plan.inventory, counts_start=not is_first, listeners=listeners)
        """Counters of the waits of the consuming thread."""
        self._execution = execution
        self._last: tuple[Cursor, LastRows | None] = begin, None  # of the last item that was received earlier
        self._handout: Handout | None = None  # items of the current span (consecutive batches)
        self._batch_size = execution.rows_per_item
        self._pipeline: Pipeline | None = None
        self._loads: Loads | None = None
        self._iterator = _no_one  # weak reference to the running iterator, so that dropping it ends the iteration
        self._closed: str | None = None  # error message after `close`

    @property
    def last(self) -> tuple[Cursor, LastRows | None]:
        """Cursor (position in the plan) after the last received item, and its rows; None before the first item."""
        handout = self._handout
        if handout is not None:
            self._last = handout.last or self._last
        return self._last

    @property
    def cursor(self) -> Cursor:
        """Cursor (position in the plan) after the last received item."""
        return self.last[0]

    def position(self, batch_size: int | None = None) -> Position:
        """Return the next step and the last rows; see `Reader.position`."""
        execution, size = self._execution, self._batch_size if batch_size is None else batch_size
        cursor, rows = self.last
        return position_of(execution.plan, execution.source.inventory, cursor, size, rows)

    @property
    def spans(self) -> dict[str, int]:
        """Numbers of spans (groups of batches) by state, with Petastorm's names; see `Reader.diagnostics`."""
        pipeline = self._pipeline
        planned, produced, consumed = (0, 0, 0) if pipeline is None else pipeline.counts
        return {
            "output_queue_size": produced - consumed,
            "items_produced": produced,
            "items_consumed": consumed,
            "items_inprocess": planned - produced,
        }

    @property
    def is_running(self) -> bool:
        """Whether workers may be running."""
        pipeline = self._pipeline
        return pipeline is not None and not pipeline.is_closed

    def items(self) -> Shared[Any]:
        """Return an iterator of the rows, batches or windows after the cursor, shared by all iterating threads."""
        execution = self._execution
        return Shared(functools.partial(self.handouts, execution.rows_per_item, execution.hand_out))

    def batches(self, batch_size: int, iterator: Callable[[], Shared[Any] | None] = _no_one) -> Generator[Handout]:
        """Yield the batches after the cursor (current position): one iterable for each span (consecutive batches)."""
        return self.handouts(batch_size, batches_of, iterator)

    def handouts(
        self,
        batch_size: int,
        hand_out: Callable[[AssembledSpan], Handout],
        iterator: Callable[[], Shared[Any] | None] = _no_one,
    ) -> Generator[Handout]:
        """Yield the items after the cursor (current position): one iterable for each span (consecutive batches).

        Taking an item moves the cursor. The previous iterator ends, even if it still has items of its current span.

        Args:
            batch_size: Number of rows of a batch.
            hand_out: Function that returns the rows, batches or windows of a span, as an iterable.
            iterator: Weak reference to the iterator that takes the items from this generator, if there is one.
        """
        previous, self._iterator = self._iterator(), iterator
        if previous is not None and not self.is_over:
            previous.end(_REPLACED)
        if self._closed is not None:  # checked after the assignment, because `close` reads them in the other order
            raise ReaderClosedError(self._closed)
        self.end()
        self._batch_size = batch_size
        pipeline, loads = self._begun(batch_size)
        try:
            for span in pipeline:
                self._last = self.last
                self._handout = hand_out(span)
                del span  # so that memory is freed as soon as the consumer drops the batches
                yield self._handout
            pipeline.join()
            self.is_over = True
        except GeneratorExit:  # the consumer stopped iterating
            pipeline.close()
            pipeline.join()
            raise
        finally:
            # Close without waiting for running tasks, so that threads that `close` wakes return at once; `end` waits.
            pipeline.close()
            loads.close()
        self.let_go()

    def let_go(self) -> None:
        """Save the position after the last received item, and free the batches in memory."""
        self._last, self._handout = self.last, None

    def _begun(self, batch_size: int) -> tuple[Pipeline, Loads]:
        """Start reading at the current position; return a new pipeline, and the loader of the pipeline's row groups."""
        pace = pace_of(self._execution, batch_size)
        execution = self._execution.in_parts
        plan, extended = execution.plan, execution.extended
        limit = execution.workers.memory_budget
        if limit is not None and isinstance(plan, Plan) and plan.parts is None:
            from petastore.readers.loaded.part_loads import warn_of_huge_row_groups  # few readers need it

            warn_of_huge_row_groups(plan, execution.footprint, limit)
        pool = execution.functions.pool()
        # Windows use no arena (arrays that row groups share), because `buffer_rows`, the arena's size in rows, does not
        # include the rows that windows append to row groups.
        arena = None if extended else execution.memory.arena(execution.layout, plan.buffer_rows)
        # Small row groups that are loaded together are also freed together, later than the memory budget assumes. With
        # a budget, each row group is therefore loaded separately.
        sizes = plan.inventory.decoded_bytes if execution.workers.memory_budget is None else None
        loads = self._loads = Loads(
            execution.source.datasets,
            plan,
            execution.loaders,
            execution.files_of_pass(),
            arena,
            pool,
            sizes=sizes,
            prefetched_bytes=pace.prefetched_bytes,
            extended=extended,
            meter=self.meter,
        )
        pipeline = self._pipeline = Pipeline(
            plan.spans(batch_size, rows_per_span=pace.rows_per_span, after=self.cursor),
            load=loads.submit,
            begin=pace.begin,
            pool=pool,
            ahead=pace.ahead,
            prefetcher=loads.prefetcher,
            meter=self.meter,
        )
        if self._closed is not None:  # `close` was called before the pipeline existed, so it did not close the pipeline
            pipeline.close()
        return pipeline, loads

    def close(self, why: str = STOPPED) -> None:
        """Stop yielding, and wake waiting threads with `ReaderClosedError`. May be called again, by any thread.

        Args:
            why: Message of the error.
        """
        self._closed = why
        iterator = self._iterator()
        if iterator is not None:
            iterator.end(why)
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.close()

    def end(self) -> None:
        """Close the pipeline and wait until its workers have ended. May be called again."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()
            pipeline.join()
        loads, self._loads = self._loads, None
        if loads is not None:
            loads.take_back()  # the iteration may have stopped early, before the generator closed the loader
