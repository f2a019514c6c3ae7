"""Reading pipeline: a worker pool loads row groups and assembles batches, in the order of the plan.

The pipeline yields spans: a span is a sequence of consecutive batches that are assembled together. These rules are the
specification of this module:

* **Success.** Spans arrive in the order of the plan, in whichever order workers finish. `next()` of the consumer starts
  planning and assembly of at most `ahead` spans. A worker does the planning, one worker at a time, so that the
  consumer's thread is free for training.
* **Storage is slow.** More spans are planned than assembled, and the prefetcher fetches the row groups of planned
  spans, up to its limit.
* **The memory budget is too small for a span.** The span arrives in parts (some of its batches). A part is assembled
  when the consumer needs it.
* **A stage fails** (planning, loading, assembly or the transform). The consumer first gets the earlier spans, and then,
  once, the error with its traceback. Afterwards the pipeline is closed. A `StopIteration` in a stage is converted to a
  `WorkerError`, because it would end the consumer's loop as if all rows had been read.
* **The consumer stops early.** `close()` cancels queued tasks; `join()` returns when running tasks have ended.
* **`close()` comes from another thread** while a thread waits in `next()`: the waiting thread gets `ReaderClosedError`
  at once, even if tasks still run.
* **Storage does not respond.** If a request exceeds its timeout, the consumer gets a `StorageTimeoutError`; `join()`
  abandons the thread of the request.
* **The process forks.** In the child, the pipeline is closed, because the threads exist only in the parent.
* **The interpreter exits.** It waits only briefly for running tasks, because the threads are daemons.

Ownership: a row group is referenced by the spans that need it, and by the pipeline until the plan releases it. The
consumer owns an assembled span.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from petastore.errors import ReaderClosedError, WorkerError
from petastore.forks import made_anew_in_children
from petastore.monitoring.activity import Segments, at_work
from petastore.monitoring.waits import WaitMeter
from petastore.plan.plan import Span
from petastore.readers.assembly.assemble import AssembledSpan, SpanWork
from petastore.readers.loaded.prefetch import Prefetcher
from petastore.work.futures import Pool, Task, after, together, wait_for

__all__ = ["Load", "Pipeline"]

Begin = Callable[[Span, Mapping[int, Any]], SpanWork]
"""Function that returns the tasks that assemble a span (consecutive batches), given its row groups by number."""

_SPANS_PLANNED = 64
"""Maximum spans (consecutive batches) that are planned for prefetching, besides those being assembled."""

_ROWS_PLANNED = 1 << 20
"""Number of planned rows at which planning pauses, because each planned row takes some bytes until it is read."""


Load = Callable[..., Mapping[int, Future[Any]]]
"""Function that submits tasks to load the row groups of a span (consecutive batches); see `Loads.submit`."""


class Pipeline(Iterator[AssembledSpan]):
    """Loads row groups and assembles batches in worker threads, in the order of the plan.

    Only one thread at a time may call `next()`. Any thread may call `close` and `join`.

    Args:
        spans: Iterator of spans (consecutive batches) in the plan's order; workers of the pool call `next` on it.
        load: Function that submits loads of row groups to the pool.
        begin: Function that divides the assembly of a span into tasks, given its loaded row groups.
        pool: Pool that runs loads and assembly; the pipeline closes it.
        ahead: Number of spans that are assembled at the same time, including the requested one; at least 1.
        prefetcher: Prefetcher of the row groups of planned spans; None if storage is local.
        meter: Counters of the consumer's waits; None creates new ones.
    """

    def __init__(
        self,
        spans: Iterator[Span],
        *,
        load: Load,
        begin: Begin,
        pool: Pool,
        ahead: int,
        prefetcher: Prefetcher | None = None,
        meter: WaitMeter | None = None,
    ) -> None:
        self._spans = spans
        self._load = load
        self._begin = begin
        self._pool = pool
        self._ahead = ahead
        self._prefetcher = prefetcher
        self._coming: collections.deque[Span | BaseException] = collections.deque()
        self._tables: dict[int, Future[Any]] = {}
        self._jobs: collections.deque[_SpanJob] = collections.deque()
        self._begun = 0
        self._is_planning = False
        self._exhausted = False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self._meter = WaitMeter() if meter is None else meter
        self._meter.spans_ahead = ahead
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """In a forked child process, close the pipeline and drop its batches."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closed, self._exhausted = True, False
        self._jobs, self._coming = collections.deque(), collections.deque()
        self._tables = {}

    def __next__(self) -> AssembledSpan:
        meter = self._meter
        began = meter.clock()
        try:
            with self._lock:
                ready = sum(job.is_ready for job in self._jobs)
            self._have_planned()
            with self._lock:
                wait_for(lambda: self._closed or self._is_over or self._is_next_done, self._changed, self._pool)
        except BaseException:
            self.close()
            raise
        ended = meter.clock()
        if self._is_over:
            meter.note_wait(began, ended, -1, (), rows=0, ready=0)
            self.close()
            raise StopIteration
        if self._closed:
            raise ReaderClosedError("the reader was closed. Open another one")
        job = self._jobs[0]
        try:
            assembled = job.result()
            rows = int(assembled.span.offsets[-1])
            released = () if job.has_more else job.released
            meter.note_wait(began, ended, job.number, job.groups, rows=rows, ready=ready, released=released)
        except BaseException:
            self.close()
            raise
        else:
            return assembled
        finally:
            if not job.has_more:
                self._jobs.popleft()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return how many spans (groups of consecutive batches) were begun, assembled, and yielded."""
        with self._lock:
            waiting = list(self._jobs)
            begun = self._begun
        handed = begun - len(waiting)
        return begun, handed + sum(job.is_done_now() for job in waiting), handed

    @property
    def _is_over(self) -> bool:
        # While `_is_planning` is set, a worker moves a span from one queue to the other, so both may be empty.
        return self._exhausted and not self._coming and not self._jobs and not self._is_planning

    @property
    def _is_next_done(self) -> bool:
        return bool(self._jobs) and self._jobs[0].is_done_now()

    @property
    def _has_place(self) -> bool:
        return len(self._jobs) < self._ahead

    @property
    def _wants_more_planned(self) -> bool:
        """Return whether to plan another span (consecutive batches): to assemble or to prefetch its row groups."""
        if self._exhausted or (self._has_place and not self._coming):
            return not self._exhausted
        coming, prefetcher = self._coming, self._prefetcher
        if prefetcher is None or not prefetcher.wants_more or len(coming) >= _SPANS_PLANNED:
            return False
        return sum(span.num_rows for span in coming if isinstance(span, Span)) < _ROWS_PLANNED

    def _have_planned(self) -> None:
        """Submit tasks that plan or start the next spans (consecutive batches), while the limits allow more."""
        while True:
            with self._lock:
                # Only one thread plans at a time, because planning changes the queue of spans without the lock.
                if self._is_planning or self._closed:
                    return
                if not (self._wants_more_planned or (self._has_place and self._coming)):
                    return
                self._is_planning = True
            if self._pool.submit(self._plan_at_work, priority=-1).cancelled():  # the interpreter is exiting
                self.close()

    def _plan_at_work(self) -> None:
        with at_work(self._meter.log, "assembly", self._begun):
            self._plan()

    def _plan(self) -> None:
        """Plan one span (consecutive batches), unless a planned span can start; start a span if the limit allows."""
        if not (self._coming and self._has_place):
            self._plan_one()
        job: _SpanJob | None = None
        if self._coming and self._has_place:
            span = self._coming.popleft()
            try:
                job = _FailedJob(span) if isinstance(span, BaseException) else self._job(span, self._begun)
            except BaseException as problem:  # noqa: BLE001 - raised when the consumer requests the span
                job = _FailedJob(problem)
        with self._lock:
            self._is_planning = False
            if job is not None:
                self._begun += 1
                self._jobs.append(job)
                if isinstance(job, _FailedJob):
                    self._exhausted = True
                    self._coming.clear()
            self._changed.notify_all()
        if self._pool.workers:  # without worker threads, the loop that submitted this task plans the next span
            self._have_planned()

    def _plan_one(self) -> None:
        try:
            span = next(self._spans, None)
            if span is not None and self._prefetcher is not None:
                self._prefetcher.plan(span)
        except BaseException as problem:  # noqa: BLE001 - raised when the consumer requests the span
            self._coming.append(problem)
            self._exhausted = True
            return
        if span is None:
            self._exhausted = True
        else:
            self._coming.append(span)

    def _job(self, span: Span, priority: int) -> _SpanJob:
        fetched = self._load(span, priority=priority)
        self._tables.update(fetched)
        if any(table.cancelled() for table in fetched.values()):  # the interpreter exits, or the consumer has stopped
            self.close()
        tables = {group: self._tables[group] for group in span.needed.tolist()}
        for group in span.release:
            del self._tables[group]
        submit = functools.partial(self._pool.submit, priority=priority)
        return _SpanJob(span, tables, self._begin, submit, self._notify, priority, self._meter.log)

    def _notify(self, _made: Future[Any]) -> None:
        with self._lock:
            self._changed.notify_all()
        self._have_planned()  # after a load, the prefetcher may request further row groups

    @property
    def is_closed(self) -> bool:
        """Whether the pipeline is closed, finished or failed."""
        return self._closed

    def close(self) -> None:
        """Stop starting tasks, and wake waiting threads. Does not wait; may be called again."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        self._pool.close()

    def join(self) -> None:
        """After `close`, wait until all tasks have ended. May be called again."""
        # Finished spans are not dropped here, because the consumer may still take them in another thread.
        self._pool.join()


def _told(problem: BaseException) -> BaseException:
    """Return the exception for the consumer: never `StopIteration`, which would silently end the consumer's loop."""
    if not isinstance(problem, (StopIteration, StopAsyncIteration)):
        return problem
    told = WorkerError(
        f"the function of a transform or predicate must not raise {type(problem).__name__}, got {problem!r}. It "
        "probably called next() on an exhausted iterator; otherwise please report a bug"
    )
    told.__cause__ = problem
    return told


class _SpanJob:
    """Assembly of one span (consecutive batches): begins when its row groups are loaded, ends with its last task."""

    def __init__(
        self,
        span: Span,
        tables: Mapping[int, Future[Any]],
        begin: Begin,
        submit: Callable[[Task], Future[Any]],
        notify: Callable[[Future[Any]], None],
        number: int,
        log: Segments,
    ) -> None:
        self.number, self.groups, self.released = number, frozenset(tables), span.release
        self._log = log
        self._span = span
        self._tables = tables
        self._begin = begin
        self._submit = submit
        self._notify = notify
        self._parts: collections.deque[Callable[[], SpanWork]] = collections.deque()
        # Several small row groups have one task. Wait for all tasks: if some fail, the consumer gets the error of the
        # first one in plan order.
        loads = dict.fromkeys(tables.values())
        self._made: Future[AssembledSpan | None] = after(loads, functools.partial(submit, self._divided))
        self._made.add_done_callback(notify)

    def _divided(self) -> Future[AssembledSpan] | None:
        tables, self._tables = self._tables, {}
        with at_work(self._log, "assembly", self.number):
            made = {group: table.result() for group, table in tables.items()}
            loaded = {group: one[group] if isinstance(one, dict) else one for group, one in made.items()}
            work = self._begin(self._span, loaded)
        # Row groups are dropped before the consumer gets the span, so that only the pipeline references row groups.
        del tables, made, loaded
        self._parts.extend(work.parts)
        return None if work.parts else self._together(work)

    def _made_of(self, part: Callable[[], SpanWork]) -> Future[AssembledSpan]:
        with at_work(self._log, "assembly", self.number):
            work = part()
        return self._together(work)

    def _together(self, work: SpanWork) -> Future[AssembledSpan]:
        # Tasks log their times before the future is set, so that the consumer finds the times of all tasks.
        tasks = [functools.partial(self._logged, task) for task in work.tasks]
        return together(tasks, functools.partial(self._logged, work.finish), self._submit)

    def _logged(self, task: Callable[[], Any]) -> Any:
        with at_work(self._log, "assembly", self.number):
            return task()

    @property
    def is_ready(self) -> bool:
        """Whether the batches of the span, or of its last started part, are assembled. Does not start work."""
        made = self._made
        return made.done() and not _has_nothing(made)

    def is_done_now(self) -> bool:
        """Return whether the span, or its next part (some of its batches), is assembled; start the part if needed."""
        if self._parts and _has_nothing(self._made):
            self._made = self._submit(functools.partial(self._made_of, self._parts.popleft()))
            self._made.add_done_callback(self._notify)
        return self._made.done()

    @property
    def has_more(self) -> bool:
        """Whether the span was split into parts (some batches each), and some parts are not begun."""
        return bool(self._parts)

    def result(self) -> AssembledSpan:
        """Return the assembled columns, and drop this job's reference to the columns.

        The columns can then be freed, although futures of row groups in memory still reference this job.
        """
        made, self._made = self._made, _NOTHING
        if made.cancelled():
            raise ReaderClosedError("the reader was closed before this batch was assembled. Open a new reader")
        problem = made.exception()
        if problem is not None:
            raise _told(problem)
        assembled = made.result()
        assert assembled is not None  # noqa: S101 - for a span in parts, the future of a part is set
        return assembled


class _FailedJob(_SpanJob):
    """Placeholder for a span (consecutive batches) that could not be planned or started: `result` raises the error."""

    def __init__(self, problem: BaseException) -> None:
        self.number, self.groups, self.released, self._parts = -1, frozenset(), (), collections.deque()
        self._made = Future()
        self._made.set_exception(problem)


_NOTHING: Future[AssembledSpan | None] = Future()
_NOTHING.set_result(None)
"""Completed future with the result None, which replaces the future of a job whose result was returned."""


def _has_nothing(made: Future[AssembledSpan | None]) -> bool:
    """Return whether a job's future has the result None: no batches are assembled or in progress."""
    return made.done() and not made.cancelled() and made.exception() is None and made.result() is None
