"""Activity of threads: the stage of reading in which each thread works, and the storage request for which it waits.

Time is measured per task and storage request, not per row: at the end of a stage, its begin and end are appended to a
log, without a lock. Outside of a task (an `at_work` block), a thread is not in any stage, and `during` does nothing.
"""

from __future__ import annotations

import collections
import resource
import threading
import time
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Literal, Self, TypeAlias

from petastore.errors import StorageTimeoutError

__all__ = [
    "STAGES",
    "Owner",
    "Request",
    "Segment",
    "Segments",
    "Stage",
    "adopted",
    "at_work",
    "during",
    "overdue",
    "reads_local_file",
    "request_by_thread",
    "requests_of",
    "running_since",
]

Stage: TypeAlias = Literal["storage", "decoding", "transform", "assembly", "copy"]
"""Stages of reading; `"copy"` is the copy of batches from host memory to a device."""

STAGES: tuple[Stage, ...] = ("storage", "decoding", "transform", "assembly", "copy")

Owner: TypeAlias = "int | tuple[int, ...]"
"""Identifier of the data of a logged time interval, used to divide waits among stages.

An int is the number of the span (consecutive batches) that was assembled. A tuple contains the numbers of the row
groups that were loaded."""

Segment: TypeAlias = tuple[float, float, Stage, Owner, int]
"""Time interval that one thread spent in one stage: `(begin, end, stage, owner, thread)`.

Begin and end are values of `time.perf_counter`. The owner is the span or the row groups on which the thread worked, and
`thread` the number of the thread."""

Segments: TypeAlias = "collections.deque[Segment]"
"""Log of time intervals (segments) of threads. Threads append to the log and pop from it without a lock."""

_SHORTEST_S = 5e-6
"""Minimum seconds of a logged time interval; shorter intervals are omitted."""

_SHORTEST_WAIT_S = 100e-6
"""Minimum seconds without CPU use; a shorter wait is not checked for disk reads."""

_THREAD = getattr(resource, "RUSAGE_THREAD", None)
"""Argument of `getrusage` for the counters of the calling thread; None if the operating system does not have them."""


class _Current(threading.local):
    work: at_work | None = None
    """Innermost `at_work` of the calling thread; None outside a task."""
    blocks: int | None = None
    """Blocks that the thread had read from disks when they were counted last; None before the first count."""

    def has_read_blocks(self) -> bool:
        """Return whether the thread has read blocks from disks since the last call; False for the first call."""
        if _THREAD is None:
            return False
        before, self.blocks = self.blocks, resource.getrusage(_THREAD).ru_inblock
        return before is not None and self.blocks > before


_current = _Current()


class at_work:  # noqa: N801 - used in `with` statements
    """Context manager: log the time that the calling thread works on batches or row groups; may be nested.

    Args:
        log: Log of one iteration over the reader; None logs nothing.
        stage: Stage of the time outside of `during` blocks.
        owner: Number of the span (consecutive batches) that is assembled, or the row groups that are loaded.

    Example:
        >>> log = collections.deque()
        >>> with at_work(log, "decoding", (7,)), during("storage"):
        ...     time.sleep(0.001)
        >>> [(stage, owner) for began, ended, stage, owner, thread in log if ended - began > 0.001]
        [('storage', (7,))]
    """

    __slots__ = ("_log", "_outer", "_owner", "_since", "_thread", "cpu_s", "stage")

    def __init__(self, log: Segments | None, stage: Stage, owner: Owner) -> None:
        self._log, self.stage, self._owner = log, stage, owner
        self.cpu_s: float | None = None

    def __enter__(self) -> None:
        outer: at_work | None = _current.work
        self._outer, self._thread, self._since = outer, threading.get_ident(), time.perf_counter()
        if outer is not None:
            outer.switch(outer.stage, at=self._since)
        _current.work = self

    def __exit__(self, *_: object) -> None:
        if self.cpu_s is not None:
            self._log_disk_wait(time.thread_time() - self.cpu_s)
        now, log = time.perf_counter(), self._log
        if log is not None and now - self._since > _SHORTEST_S:  # as in `log`, without a call
            log.append((self._since, now, self.stage, self._owner, self._thread))
        outer = _current.work = self._outer
        if outer is not None:
            outer._since = now  # noqa: SLF001 - an object of the same class

    def switch(self, stage: Stage, at: float | None = None) -> None:
        """Log the current stage and begin another stage, now or at an earlier time."""
        now = time.perf_counter() if at is None else at
        self.log(self.stage, self._since, now)
        self._since, self.stage = now, stage

    def _log_disk_wait(self, busy_s: float) -> None:
        """Log the time in the current stage so far: `busy_s` seconds as this stage, and the rest as `"storage"`.

        If the wait is short, or the thread has read no blocks since they were counted last, all time stays in the
        current stage.
        """
        stage, now = self.stage, time.perf_counter()
        if now - self._since - busy_s > _SHORTEST_WAIT_S and _current.has_read_blocks():
            self.switch("storage", at=self._since + busy_s)
            self.switch(stage, at=now)

    def log(self, stage: Stage, began: float, ended: float, *, thread: int | None = None) -> None:
        """Append a time interval of the task to the log, unless it is very short.

        Args:
            stage: Stage of the time.
            began: Start of the interval.
            ended: End of the interval.
            thread: Number of the thread; None means the thread that began the task.
        """
        if self._log is not None and ended - began > _SHORTEST_S:
            self._log.append((began, ended, stage, self._owner, self._thread if thread is None else thread))


class during:  # noqa: N801 - used in `with` statements
    """Context manager: count the time of the block in another stage of the thread's task; no effect without a task."""

    __slots__ = ("_before", "_stage", "_work")

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __enter__(self) -> None:
        work = self._work = _current.work
        if work is not None:
            self._before = work.stage
            work.switch(self._stage)

    def __exit__(self, *_: object) -> None:
        if self._work is not None:
            self._work.switch(self._before)


def reads_local_file() -> None:
    """Note that the thread's task reads a local file. Does nothing outside a task.

    Arrow reads and decodes pages in one call, so the two stages are separated by CPU time. If the thread reads the disk
    between this call and the end of the task, the time without CPU use counts as `"storage"`. If the page cache has all
    blocks, the thread does not wait for the disk, and all time stays in the task's stage. The same applies if the
    operating system does not count the blocks that a thread reads. Blocks are counted only after a wait, because
    counting them takes longer than all other counters of a task.
    """
    work = _current.work
    if work is not None and work.cpu_s is None:
        if _current.blocks is None:
            _current.has_read_blocks()
        work.cpu_s = time.thread_time()


def running_since(stage: Stage) -> Callable[[object], None]:
    """Return a callback that logs the time from now until it is called, as time in a stage.

    The time counts for the current task of the calling thread, as work that another process does. Without a task,
    nothing is logged. The callback ignores its argument, so it can be passed to `Future.add_done_callback`.
    """
    work = _current.work
    began = time.perf_counter()

    def ended(_: object) -> None:
        if work is not None:
            work.log(stage, began, time.perf_counter(), thread=0)

    return ended


def adopted(call: Callable[[], None]) -> Callable[[], None]:
    """Wrap a function that another thread will call, so that its time counts for the task of the current thread."""
    work = _current.work

    def adopting() -> None:
        own, _current.work = _current.work, work
        try:
            call()
        finally:
            _current.work = own

    return adopting


class Request:
    """Storage request for which the calling thread waits in a `with` block.

    Entering a block takes about a microsecond. A nested block replaces the outer request until the nested block ends.

    Args:
        url: URL of the dataset, for messages.
        what: Requested file or operation.
        limit_s: Timeout in seconds; None means no timeout.
        began: Start time, by `clock`; None means now.
        clock: Function that returns seconds.

    Example:
        >>> with Request("file:///data/frames", "read part-0.parquet", 60):
        ...     request_by_thread[threading.get_ident()].what
        'read part-0.parquet'
        >>> threading.get_ident() in request_by_thread
        False
    """

    __slots__ = ("_before", "_thread", "began", "clock", "limit_s", "url", "what")

    def __init__(
        self,
        url: str,
        what: str,
        limit_s: float | None,
        began: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url, self.what, self.limit_s, self.clock = url, what, limit_s, clock
        self.began = clock() if began is None else began

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        self._before = request_by_thread.get(self._thread)
        request_by_thread[self._thread] = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            request_by_thread.pop(self._thread, None)
        else:
            request_by_thread[self._thread] = self._before

    @property
    def seconds(self) -> float:
        """Duration of the request so far, in seconds."""
        return self.clock() - self.began

    def __str__(self) -> str:
        return f"{self.url}, asked to {self.what} {self.seconds:.1f} s ago"


request_by_thread: dict[int, Request] = {}
"""Request of each thread that waits for storage; each thread writes only its own entry."""


def requests_of(threads: Iterable[Thread]) -> list[Request]:
    """Return the requests that some threads wait for."""
    requests = (request_by_thread.get(thread.ident or 0) for thread in threads)
    return [request for request in requests if request is not None]


def overdue(requests: Iterable[Request]) -> StorageTimeoutError | None:
    """Return the exception for a request that exceeded its timeout; None if all are within their timeouts."""
    for request in requests:
        if request.limit_s is not None and request.seconds >= request.limit_s:
            return StorageTimeoutError(
                f"{request.url}: storage did not respond within {request.limit_s:g} s to the request to "
                f"{request.what}. Check that the storage can be reached, or increase storage_timeout="
            )
    return None
