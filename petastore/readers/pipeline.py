"""The pipeline: row groups are fetched and spans assembled by a pool, and handed over in plan order.

Where the code disagrees with this, the code is wrong:

* **All succeeds.** Spans arrive in the order of the plan, whatever the order in which workers finish. The consumer
  pulls: `next()` has work planned and done, never more than `ahead` spans of it. Planning is work like other work, done
  by one worker at a time: the consumer's thread is the trainer's.
* **There is no room.** A span whose values take more memory than there is for it arrives in parts, each of which is
  begun when it is asked for.
* **A stage fails.** The error arrives at the consumer in the place of the span that it belongs to, once, with its own
  traceback; the spans before it arrive first. Afterwards the pipeline is closed. `StopIteration` is an error here, and
  arrives as a `WorkerError`: it would end the consumer's loop as if all had been read.
* **The consumer leaves early.** `close()` starts no further task and forgets what is waiting; `join()` returns when the
  tasks that ran have ended.
* **`close()` comes from another thread** while one waits in `next()`: that one wakes at once, with `ReaderClosedError`,
  whatever tasks still run.
* **Storage does not answer.** A request that takes longer than it may arrives at the consumer as `StorageTimeoutError`,
  wherever it waits; `join()` leaves the thread behind that made the request.
* **The process forks.** In the child the pipeline is closed: its threads are the parent's, and so are its spans.
* **The interpreter exits.** It waits for nobody: threads are daemons, and tasks that run are given a moment.

Who owns what: a fetched row group belongs to the spans that need it and, until the plan releases it, to the pipeline;
an assembled span belongs to the consumer.
"""

from __future__ import annotations

import collections
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import ReaderClosedError, WorkerError
from petastore.forks import made_anew_in_children
from petastore.plan.plan import Span
from petastore.readers.assembly.assemble import AssembledSpan, SpanWork
from petastore.readers.loaded.small_groups import FetchTogether, Run, runs
from petastore.work.pool import Pool
from petastore.work.together import flat
from petastore.work.waiting import wait_for

__all__ = ["Pipeline"]

Fetch = Callable[[int, Any], Any]
Begin = Callable[[Span, Mapping[int, Any]], SpanWork]


class Pipeline(Iterator[AssembledSpan]):
    """Runs the spans of a plan.

    `next()` belongs to one thread at a time; `close` and `join` may be called from any.

    Args:
        spans: The plan's spans; advanced by the pool, one after the other.
        fetch: Reads a row group, given by its number in the dataset, and in what order its rows will be wanted; gives a
            future where other workers are still at it.
        begin: Divides the assembly of a span into tasks, given the row groups that it needs.
        pool: Runs both; it is the pipeline's own from now on.
        ahead: Spans that are planned and worked on at a time, the one asked for included; at least 1.
        sizes: Of each row group of the dataset: its bytes. One task fetches several small ones.
        fetch_together: Fetches several of them at once, if they can be.
    """

    def __init__(
        self,
        spans: Iterator[Span],
        *,
        fetch: Fetch,
        begin: Begin,
        pool: Pool,
        ahead: int,
        sizes: NDArray[np.int64] | None = None,
        fetch_together: FetchTogether | None = None,
    ) -> None:
        self._spans = spans
        self._fetch = fetch
        self._begin = begin
        self._pool = pool
        self._ahead = ahead
        self._sizes = sizes
        self._fetch_together = fetch_together
        self._tables: dict[int, Future[Any]] = {}
        self._jobs: collections.deque[_SpanJob | _Failed] = collections.deque()
        self._planned = 0
        self._is_planning = False
        self._exhausted = False
        self._changed = threading.Condition()
        self._closed = False
        self.waited_s = 0.0
        """Seconds that the consumer has waited for spans; near 0 means that reading is ahead of training."""
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Is closed, and knows no spans."""
        self._changed = threading.Condition()
        self._closed, self._exhausted = True, False
        self._jobs = collections.deque()
        self._tables = {}

    def __next__(self) -> AssembledSpan:
        self._have_planned()
        began = time.perf_counter()
        try:
            with self._changed:
                wait_for(lambda: self._closed or self._is_over or self._is_next_done, self._changed, self._pool)
        except BaseException:
            self.close()
            raise
        self.waited_s += time.perf_counter() - began
        if self._is_over:
            self.close()
            raise StopIteration
        if self._closed:
            raise ReaderClosedError("the reader was stopped; open another one")
        job = self._jobs[0]
        try:
            return job.result()
        except BaseException:
            self.close()
            raise
        finally:
            if not job.has_more:
                self._jobs.popleft()

    @property
    def _is_over(self) -> bool:
        return self._exhausted and not self._jobs

    @property
    def _is_next_done(self) -> bool:
        return bool(self._jobs) and self._jobs[0].is_done_now()

    def _have_planned(self) -> None:
        """Sees to it that somebody plans, if there is room for another span."""
        with self._changed:
            if self._is_planning or self._exhausted or self._closed or len(self._jobs) >= self._ahead:
                return
            self._is_planning = True
        if self._pool.submit(self._plan, priority=-1).cancelled():  # the interpreter ends
            self.close()

    def _plan(self) -> None:
        """Plans one span, and has the next one planned."""
        job: _SpanJob | _Failed | None
        try:
            span = next(self._spans, None)
            job = None if span is None else self._job(span)
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the span
            job = _Failed(problem)
        with self._changed:
            self._is_planning = False
            self._exhausted = job is None or isinstance(job, _Failed)
            if job is not None:
                self._jobs.append(job)
            self._changed.notify_all()
        self._have_planned()

    def _job(self, span: Span) -> _SpanJob:
        asked = list(zip(span.fetch, span.read_orders, strict=True))
        for run in _one_by_one(asked) if self._sizes is None else runs(span.fetch, self._sizes, self._pool.workers):
            self._submit_run(asked[run])
        tables = {group: self._tables[group] for group in span.needed.tolist()}
        for group in span.release:
            del self._tables[group]
        self._planned += 1
        return _SpanJob(span, tables, self._begin, self._pool, self._planned - 1, self._notify)

    def _submit_run(self, asked: Sequence[tuple[int, Any]]) -> None:
        if len(asked) == 1:
            futures = [flat(self._pool.submit(functools.partial(self._fetch, *asked[0]), priority=self._planned))]
        else:
            run = Run(self._fetch, self._fetch_together, asked, lambda: self._closed)
            futures = run.futures
            self._pool.submit(run, priority=self._planned).add_done_callback(run.settled)
        self._tables.update(zip((group for group, _ in asked), futures, strict=True))
        if futures[0].cancelled():  # the interpreter ends, or the consumer left
            self.close()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, or everything was handed over, or a stage failed."""
        return self._closed

    def close(self) -> None:
        """Starts no further task and wakes whoever waits. Does not wait itself; may be called again."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._pool.close()

    def join(self) -> None:
        """Waits until no task runs, after `close`. May be called again."""
        # What waits to be handed over is the consumer's: a thread that joins must not take it away under its hands.
        self._pool.join()


def _told(problem: BaseException) -> BaseException:
    """What the consumer is told of a failure: never `StopIteration`, which would end its loop as if all were read."""
    if not isinstance(problem, (StopIteration, StopAsyncIteration)):
        return problem
    told = WorkerError(
        f"a task ended with {problem!r}, so rows are lacking that were planned; a function of yours that calls next() "
        "on something that ended does that, and what petastore itself does not catch is a defect to report"
    )
    told.__cause__ = problem
    return told


def _one_by_one(asked: Sequence[Any]) -> list[slice]:
    return [slice(number, number + 1) for number in range(len(asked))]


class _Failed:
    """A span that could not be planned."""

    has_more = False

    def __init__(self, problem: BaseException) -> None:
        self._problem = _told(problem)

    def is_done_now(self) -> bool:
        return True

    def result(self) -> AssembledSpan:
        raise self._problem


class _SpanJob:
    """One span on its way: begun as soon as the last row group that it needs is there, done with its last task."""

    def __init__(
        self,
        span: Span,
        tables: Mapping[int, Future[Any]],
        begin: Begin,
        pool: Pool,
        priority: int,
        notify: Callable[[], None],
    ) -> None:
        self._span = span
        self._tables: Mapping[int, Future[Any]] | None = tables
        self._begin = begin
        self._pool = pool
        self._priority = priority
        self._notify = notify
        self._lock = threading.Lock()
        self._lacking = len(tables)
        self._left = 0
        self._work: SpanWork | None = None
        self._parts: collections.deque[Callable[[], SpanWork]] = collections.deque()
        self._is_making = True
        self._assembled: AssembledSpan | None = None
        self._failed: tuple[int, BaseException] | None = None
        for number, future in enumerate(tables.values()):
            future.add_done_callback(functools.partial(self._fetched, number - len(tables)))
        if not tables:  # a rank without rows in these batches
            self._submit(self._divide)

    def _submit(self, task: Callable[[], None]) -> None:
        self._pool.submit(task, priority=self._priority)

    def _fetched(self, number: int, table: Future[Any]) -> None:
        """One more row group is there, or failed; of several that fail the first is told, and so all are waited for."""
        if table.cancelled():
            return
        problem = table.exception()
        if problem is not None:
            self._fail(number, problem)
        with self._lock:
            self._lacking -= 1
            complete = self._lacking == 0
        if complete and self._failed is None:
            self._submit(self._divide)
        elif complete:
            self._notify()

    def _divide(self) -> None:
        tables, self._tables = self._tables or {}, None
        try:
            work = self._begin(self._span, {group: table.result() for group, table in tables.items()})
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the span
            self._fail(-1, problem)
            self._notify()
            return
        # The span lets go of its row groups before it is handed over: they are the pipeline's to keep, or nobody's.
        del tables
        if work.parts:
            self._parts.extend(work.parts)
            self._is_making = False
            self._notify()
        else:
            self._carry_out(work)

    def is_done_now(self) -> bool:
        """Whether there is something to hand over; what is made in parts goes on now that it is asked for."""
        if self._parts and not self._is_making and self._failed is None:
            self._is_making = True
            self._submit(functools.partial(self._make, self._parts.popleft()))
        return self.is_done

    def _make(self, part: Callable[[], SpanWork]) -> None:
        try:
            work = part()
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the span
            self._fail(-1, problem)
            self._notify()
        else:
            self._carry_out(work)

    def _carry_out(self, work: SpanWork) -> None:
        self._work = work
        self._left = len(work.tasks)
        if not work.tasks:
            self._finish()
            return
        for number in range(1, len(work.tasks)):
            self._submit(functools.partial(self._run, number))
        self._run(0)

    def _run(self, number: int) -> None:
        work = self._work
        assert work is not None  # noqa: S101 - tasks are begun by _divide, which sets it
        try:
            if self._failed is None or number < self._failed[0]:
                work.tasks[number]()
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the span
            self._fail(number, problem)
        del work
        with self._lock:
            self._left -= 1
            complete = self._left == 0
        if complete:
            self._finish()

    def _finish(self) -> None:
        work, self._work = self._work, None
        try:
            if self._failed is None and work is not None:
                work.tasks.clear()
                assembled = work.finish()
                if isinstance(assembled, Future):
                    assembled.add_done_callback(self._assembled_elsewhere)
                    return
                self._assembled = assembled
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever asks for the span
            self._fail(-1, problem)
        self._notify()

    def _assembled_elsewhere(self, assembled: Future[AssembledSpan]) -> None:
        if assembled.cancelled():  # the pipeline was closed, and nobody waits any more
            return
        problem = assembled.exception()
        if problem is None:
            self._assembled = assembled.result()
        else:
            self._fail(-1, problem)
        self._notify()

    def _fail(self, number: int, problem: BaseException) -> None:
        """Of several problems the one that comes first in the order of tasks is told, whoever was first to meet one."""
        with self._lock:
            if self._failed is None or number < self._failed[0]:
                self._failed = number, _told(problem)

    @property
    def has_more(self) -> bool:
        """Whether parts of the span are left to be made."""
        return bool(self._parts)

    @property
    def is_done(self) -> bool:
        return self._assembled is not None or (self._failed is not None and self._left == 0 == self._lacking)

    def result(self) -> AssembledSpan:
        """What was assembled, once: row groups that stay at hand know the jobs that waited for them."""
        if self._failed is not None:
            raise self._failed[1]
        if self._assembled is None:
            raise ReaderClosedError("the reader was stopped before this batch was assembled")
        assembled, self._assembled = self._assembled, None
        self._is_making = False
        return assembled
