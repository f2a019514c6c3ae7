"""One pass over the data: all epochs from a cursor on. It owns the pipeline, the cursor, and their end."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any

from petastore import forks
from petastore.errors import ReaderClosedError
from petastore.plan.cursor import Cursor
from petastore.readers.assembly.assemble import AssembledSpan
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.handouts import Handout, Shared, batches_of
from petastore.readers.execution.pacing import beginning_of, pace_of
from petastore.readers.loaded.loading import Loads
from petastore.readers.pipeline import Pipeline

__all__ = ["STOPPED", "Pass"]

STOPPED = "this reader was stopped; open another one"


class Pass:
    """A pass over the data.

    Batches of one size and of another, or rows, may be taken one after the other: each goes on behind what was received
    of the one before, and ends it. One of them is taken at a time, by one thread at a time; all else may be asked or
    called by any thread.

    Args:
        execution: What is run.
        begin: Where the pass begins.
    """

    def __init__(self, execution: Execution, begin: Cursor) -> None:
        self.beginning = forks.Lock()
        """Held by who begins a loop: several threads may begin theirs at once."""
        self.is_over = False
        """Whether somebody has come to the end of the last epoch."""
        self._execution = execution
        self._received = begin
        self._handout: Handout | None = None  # the last one, whatever it gives
        self._pipeline: Pipeline | None = None
        self._loads: Loads | None = None
        self._end: _End | None = None
        self._is_stopped = False

    @property
    def cursor(self) -> Cursor:
        """After the last item that was received. Nothing is noted when items are taken: a handout knows how many."""
        handout = self._handout
        if handout is not None:
            self._received = handout.cursor or self._received
        return self._received

    @property
    def waited_s(self) -> float:
        """For how many seconds somebody has waited for rows."""
        pipeline = self._pipeline
        return 0.0 if pipeline is None else pipeline.waited_s

    @property
    def spans(self) -> dict[str, int]:
        """How many spans there are where, by Petastorm's names; see `Reader.diagnostics`."""
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
        """Whether workers may be at work."""
        pipeline = self._pipeline
        return pipeline is not None and not pipeline.is_closed

    def items(self) -> Shared[Any]:
        """What iterating the reader gives, from the cursor on; shared by the threads that iterate it."""
        handing_out = self._execution.handing_out
        return Shared(functools.partial(self.handouts, handing_out.rows, handing_out.handout))

    def batches(self, batch_size: int) -> Generator[Handout]:
        """Batches of this size, span after span, from the cursor on."""
        return self.handouts(batch_size, batches_of)

    def handouts(self, batch_size: int, hand_out: Callable[[AssembledSpan], Handout]) -> Generator[Handout]:
        """What is handed out of span after span, from the cursor on; it stands behind what was taken of the last one.

        Args:
            batch_size: Rows of a batch.
            hand_out: Makes of a span what is handed out of it.
        """
        if self._is_stopped:
            raise ReaderClosedError(STOPPED)
        self.end()
        pipeline, loads = self._begun(batch_size)
        try:
            for span in pipeline:
                self._received = self.cursor
                self._handout = hand_out(span)
                del span  # the consumer's now
                yield self._handout
            pipeline.join()
            self.is_over = True
        except GeneratorExit:  # the caller leaves
            pipeline.close()
            pipeline.join()
            raise
        finally:
            # Who is woken by `close` waits for no task that still runs; `end` does.
            pipeline.close()
            loads.close()
        self.let_go()

    def let_go(self) -> None:
        """Notes what was received, and holds no rows any more."""
        self._received, self._handout = self.cursor, None

    def _begun(self, batch_size: int) -> tuple[Pipeline, Loads]:
        """The pipeline of what follows the cursor, and what loads its row groups."""
        execution = self._execution
        plan, loading, assembly = execution.plan, execution.loading, execution.assembly
        pace = pace_of(execution, batch_size)
        pool = assembly.functions.pool()
        arena = None if loading.extended else loading.memory.arena(assembly.layout, plan.room_rows)
        # Row groups that were read together are in memory until the last of them is not needed any more.
        sizes = plan.inventory.decoded_bytes if execution.workers.memory_budget is None else None
        loads = self._loads = Loads(execution.source, plan, self.cursor, loading, arena, pool, sizes)
        pipeline = self._pipeline = Pipeline(
            plan.spans(batch_size, rows_per_span=pace.rows_per_span, after=self.cursor),
            load=loads.submit,
            begin=beginning_of(execution, batch_size),
            pool=pool,
            ahead=pace.ahead,
        )
        if self._is_stopped:  # meanwhile: `close` saw no pipeline
            pipeline.close()
        return pipeline, loads

    def close(self) -> None:
        """Gives nothing more, and wakes whoever waits, with `ReaderClosedError`. May be called again, by any thread."""
        self._is_stopped = True
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.close()

    def end(self) -> None:
        """Ends the pipeline and waits until none of its workers runs any more. May be called again."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()
            pipeline.join()
        loads, self._loads = self._loads, None
        if loads is not None:
            loads.take_back()  # also where nobody comes to the end of the pass

    def tell_end(self) -> None:
        """Tells the calling thread that the pass is over."""
        self._end = self._end or _End()
        self._end.tell()

    @property
    def end_is_news(self) -> bool:
        """Whether the pass is over and the calling thread, which meant to share it, does not know."""
        return self._end is not None and self._end.is_news


class _End:
    """The end of a pass over what threads share: who was told of it, and who still has to be.

    A loop that begins after the end begins the next pass. But a thread that ran before the end and meant to share the
    pass may begin its loop too late, when others have taken all there was: its loop is empty, rather than a second pass
    through the same rows. The thread that began the others is believed to mean another pass once they are gone, and so
    are threads of a framework's own, which hand loops from one to the other.
    """

    def __init__(self) -> None:
        self._alive = weakref.WeakSet(threading.enumerate())
        self._told: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def tell(self) -> None:
        """Tells the calling thread."""
        self._told.add(threading.current_thread())

    @property
    def is_news(self) -> bool:
        """Whether the calling thread comes late for the pass that has ended, and does not know it."""
        me = threading.current_thread()
        if me in self._told or me not in self._alive or isinstance(me, threading._DummyThread):  # noqa: SLF001
            return False
        return me is not threading.main_thread() or any(thread.is_alive() for thread in self._told)
