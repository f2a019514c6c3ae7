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
from typing import Any, Protocol

from petastore.errors import ReaderClosedError, WorkerError
from petastore.forks import made_anew_in_children
from petastore.plan.plan import Span
from petastore.readers.assembly.assemble import AssembledSpan, SpanWork
from petastore.readers.loaded.loading import Asked
from petastore.work.futures import after, together, wait_for
from petastore.work.pool import Pool, Task

__all__ = ["Load", "Pipeline"]

Begin = Callable[[Span, Mapping[int, Any]], SpanWork]


class Load(Protocol):
    """What has the pool load row groups, tasks of lower priority number first; see `Loads.submit`."""

    def __call__(self, asked: Sequence[Asked], /, *, priority: int) -> Mapping[int, Future[Any]]:
        """Of each row group, by its number: a future of it."""


class Pipeline(Iterator[AssembledSpan]):
    """Runs the spans of a plan.

    `next()` belongs to one thread at a time; `close` and `join` may be called from any.

    Args:
        spans: The plan's spans; advanced by the pool, one after the other.
        load: Has the pool load row groups.
        begin: Divides the assembly of a span into tasks, given the row groups that it needs.
        pool: Runs both; it is the pipeline's own from now on.
        ahead: Spans that are planned and worked on at a time, the one asked for included; at least 1.
    """

    def __init__(
        self,
        spans: Iterator[Span],
        *,
        load: Load,
        begin: Begin,
        pool: Pool,
        ahead: int,
    ) -> None:
        self._spans = spans
        self._load = load
        self._begin = begin
        self._pool = pool
        self._ahead = ahead
        self._tables: dict[int, Future[Any]] = {}
        self._jobs: collections.deque[_SpanJob | _Failed] = collections.deque()
        self._planned = 0
        self._is_planning = False
        self._exhausted = False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self.waited_s = 0.0
        """Seconds that the consumer has waited for spans; near 0 means that reading is ahead of training."""
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Is closed, and knows no spans."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closed, self._exhausted = True, False
        self._jobs = collections.deque()
        self._tables = {}

    def __next__(self) -> AssembledSpan:
        began = time.perf_counter()
        try:
            self._have_planned()
            with self._lock:
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
    def counts(self) -> tuple[int, int, int]:
        """Spans that were planned, those of them that are assembled, and those that were handed over."""
        with self._lock:
            waiting = list(self._jobs)
            planned = self._planned
        handed = planned - len(waiting)
        return planned, handed + sum(job.is_done_now() for job in waiting), handed

    @property
    def _is_over(self) -> bool:
        return self._exhausted and not self._jobs

    @property
    def _is_next_done(self) -> bool:
        return bool(self._jobs) and self._jobs[0].is_done_now()

    def _have_planned(self) -> None:
        """Sees to it that somebody plans, if there is room for another span."""
        with self._lock:
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
        with self._lock:
            self._is_planning = False
            self._exhausted = job is None or isinstance(job, _Failed)
            if job is not None:
                self._jobs.append(job)
            self._changed.notify_all()
        self._have_planned()

    def _job(self, span: Span) -> _SpanJob:
        priority, self._planned = self._planned, self._planned + 1
        fetched = self._load(list(zip(span.fetch, span.read_orders, strict=True)), priority=priority)
        self._tables.update(fetched)
        if any(table.cancelled() for table in fetched.values()):  # the interpreter ends, or the consumer left
            self.close()
        tables = {group: self._tables[group] for group in span.needed.tolist()}
        for group in span.release:
            del self._tables[group]
        submit = functools.partial(self._pool.submit, priority=priority)
        return _SpanJob(span, tables, self._begin, submit, self._notify)

    def _notify(self, _made: Future[Any]) -> None:
        with self._lock:
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, or everything was handed over, or a stage failed."""
        return self._closed

    def close(self) -> None:
        """Starts no further task and wakes whoever waits. Does not wait itself; may be called again."""
        with self._lock:
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
        submit: Callable[[Task], Future[Any]],
        notify: Callable[[Future[Any]], None],
    ) -> None:
        self._span = span
        self._tables = tables
        self._begin = begin
        self._submit = submit
        self._notify = notify
        self._parts: collections.deque[Callable[[], SpanWork]] = collections.deque()
        # Of several row groups or tasks that fail the first is told, and so all are waited for.
        self._made: Future[AssembledSpan | None] = after(tables.values(), functools.partial(submit, self._divided))
        self._made.add_done_callback(notify)

    def _divided(self) -> Future[AssembledSpan] | None:
        tables, self._tables = self._tables, {}
        work = self._begin(self._span, {group: table.result() for group, table in tables.items()})
        # The span lets go of its row groups before it is handed over: they are the pipeline's to keep, or nobody's.
        del tables
        self._parts.extend(work.parts)
        return None if work.parts else together(work.tasks, work.finish, self._submit)

    def _made_of(self, part: Callable[[], SpanWork]) -> Future[AssembledSpan]:
        work = part()
        return together(work.tasks, work.finish, self._submit)

    def is_done_now(self) -> bool:
        """Whether there is something to hand over; what is made in parts goes on now that it is asked for."""
        if self._parts and _has_nothing(self._made):
            self._made = self._submit(functools.partial(self._made_of, self._parts.popleft()))
            self._made.add_done_callback(self._notify)
        return self._made.done()

    @property
    def has_more(self) -> bool:
        """Whether parts of the span are left to be made."""
        return bool(self._parts)

    def result(self) -> AssembledSpan:
        """What was assembled, once: row groups that stay at hand know the jobs that waited for them."""
        made, self._made = self._made, _NOTHING
        if made.cancelled():
            raise ReaderClosedError("the reader was stopped before this batch was assembled")
        problem = made.exception()
        if problem is not None:
            raise _told(problem)
        assembled = made.result()
        assert assembled is not None  # noqa: S101 - what is made in parts is asked for again
        return assembled


_NOTHING: Future[AssembledSpan | None] = Future()
_NOTHING.set_result(None)


def _has_nothing(made: Future[AssembledSpan | None]) -> bool:
    return made.done() and not made.cancelled() and made.exception() is None and made.result() is None
