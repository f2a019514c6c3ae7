"""A bounded pool of daemon threads that make requests: concurrent, retried with jitter, and with a deadline.

A caller waits for one batch of requests, and leaves when all are answered, one has failed for good, the deadline has
passed, the pool is closed, or at Ctrl-C. Requests that hang then no longer count against the bound.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Sequence

from petastore.errors import ReaderClosedError
from petastore.forks import made_anew_in_children
from petastore.storage.ranges.request_counts import RequestCounts
from petastore.storage.requests.client import Answer
from petastore.storage.requests.failure_kinds import kind_of
from petastore.storage.requests.retries import tried
from petastore.threads import Threads, working

__all__ = ["AdaptiveConcurrency", "RequestBatch", "RequestPool"]

_THROTTLED_TOGETHER_S = 0.25
"""Requests that are throttled within this time count as one."""


class AdaptiveConcurrency:
    """A concurrency limit by AIMD: halved when a request is throttled, one more for each full round of answers.

    Not thread-safe.

    Args:
        most: The limit at first, and its upper bound; at least 1.
        clock: Returns seconds.

    Example:
        >>> limit = AdaptiveConcurrency(16)
        >>> limit.throttled(), limit.throttled(), limit.now
        (None, None, 8)
        >>> for _ in range(9):
        ...     limit.answered()
        >>> limit.now
        9
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._limit, self._clock = most, float(most), clock
        self._halved_at = float("-inf")

    @property
    def now(self) -> int:
        """Requests that may run now; at least 1."""
        return int(self._limit)

    def throttled(self) -> None:
        """Halve the limit: the storage answered a request by 429 or 503."""
        if self._clock() - self._halved_at >= _THROTTLED_TOGETHER_S:
            self._halved_at = self._clock()
            self._limit = max(self._limit / 2, 1.0)

    def answered(self) -> None:
        """Raise the limit by its share of an answer."""
        if self._limit < self._most:
            self._limit = min(self._limit + 1 / self._limit, float(self._most))


class RequestBatch:
    """Requests that one caller waits for, and their answers.

    Args:
        requests: Each makes one request and returns its answer.
        deadline: No attempt begins after it, by `time.monotonic`.
    """

    def __init__(self, requests: Sequence[Callable[[], Answer]], deadline: float) -> None:
        self.requests = requests
        self.deadline = deadline
        self.answers: list[Answer | None] = [None] * len(requests)
        """One for each request, in order; None until it is answered."""
        self.problem: BaseException | None = None
        """Raised by the first request that failed for good."""
        self.over = threading.Event()
        """Set when no answer is waited for: all have arrived, one request has failed, or the caller leaves."""
        self.unanswered = len(requests)
        """Requests without an answer; the lock of the pool guards this and all below."""
        self.running = 0
        self.is_left = False
        self.made = self.retries = self.bytes = 0

    @property
    def counts(self) -> RequestCounts:
        """The requests made, and the bytes of their answers."""
        return RequestCounts(self.made, self.bytes, self.retries)


class RequestPool:
    """Makes the requests of batches in daemon threads. Thread-safe; in a forked child nothing is running.

    Args:
        concurrency: Requests that run at a time; fewer while the storage throttles.
    """

    def __init__(self, concurrency: int) -> None:
        self._limit = AdaptiveConcurrency(concurrency)
        self._threads = Threads("petastore-ranges")
        self._closed = False
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Reset after a fork: a free lock, an empty queue."""
        self._lock = threading.Lock()
        self._queue: collections.deque[tuple[RequestBatch, int]] = collections.deque()
        self._batches: set[RequestBatch] = set()
        self._running = 0

    def run(self, batch: RequestBatch) -> None:
        """Make the requests of a batch and wait: for all answers, the first failure, or the deadline.

        Raises:
            ReaderClosedError: The pool was closed, or the interpreter is ending.
        """
        try:
            with self._lock:
                self._check_open()
                self._batches.add(batch)
                self._queue.extend((batch, number) for number in range(len(batch.requests)))
                new = self._take_slots()
            if not self._start(new):
                raise ReaderClosedError("files are not read any more: the interpreter ends")
            if batch.requests:
                batch.over.wait(max(batch.deadline - time.monotonic(), 0.0))
        finally:
            self._leave(batch)
        if batch.unanswered and batch.problem is None:
            self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise ReaderClosedError("what fetches ranges of files was closed; make a new reader")

    def _leave(self, batch: RequestBatch) -> None:
        """Free the slots of requests that still run, as nobody waits for them."""
        batch.over.set()
        with self._lock:
            self._batches.discard(batch)
            batch.is_left = True
            self._running -= batch.running
            new = self._take_slots()
        self._start(new)

    def _take_slots(self) -> int:
        """Return how many more threads may run now, and count them as running; the caller holds the lock."""
        new = max(min(len(self._queue), self._limit.now - self._running), 0)
        self._running += new
        return new

    def _start(self, threads: int) -> bool:
        return all(self._threads.run(self._work) for _ in range(threads))

    def _work(self) -> None:
        """Make queued requests, one after the other; the lock is taken once for each."""
        batch: RequestBatch | None = None
        number, answer, problem, is_over = 0, None, None, False
        while True:
            with self._lock:
                if batch is not None:
                    if batch.is_left:
                        return  # the caller has left, and this thread's slot is another's
                    is_over = self._record(batch, number, answer, problem)
                task = self._next()
                new = self._take_slots()  # the limit may have grown
            if batch is not None and is_over:
                batch.over.set()
            batch = answer = problem = None  # or this thread would keep the answers of a batch in memory
            self._start(new)
            if task is None:
                return
            batch, number = task
            task = None
            try:
                answer = self._answer(batch, number)
            except BaseException as raised:  # noqa: BLE001 - it belongs to the caller
                problem = raised

    def _next(self) -> tuple[RequestBatch, int] | None:
        """Take a request from the queue, or give the thread's slot back; the caller holds the lock."""
        while self._queue and self._running <= self._limit.now:
            batch, number = self._queue.popleft()
            if not batch.over.is_set():
                batch.running += 1
                batch.made += 1
                return batch, number
        self._running -= 1
        return None

    def _record(self, batch: RequestBatch, number: int, answer: Answer | None, problem: BaseException | None) -> bool:
        """Note the outcome of a request; return whether it ends the batch. The caller holds the lock."""
        batch.running -= 1
        if answer is None:
            if batch.problem is None and not batch.over.is_set():
                batch.problem = problem
            return True
        self._limit.answered()
        batch.answers[number] = answer
        batch.bytes += memoryview(answer.data).nbytes
        batch.unanswered -= 1
        return batch.unanswered == 0

    def _answer(self, batch: RequestBatch, number: int) -> Answer:
        """Make a request, with retries."""
        attempts = 0

        def attempt() -> Answer:
            nonlocal attempts
            attempts += 1
            if attempts > 1:
                with self._lock:
                    batch.made += 1
                    batch.retries += 1
            try:
                with working():
                    return batch.requests[number]()
            except Exception as problem:
                if kind_of(problem)[0] == "busy":
                    with self._lock:
                        self._limit.throttled()
                raise

        return tried(attempt, over=batch.over, deadline=batch.deadline)

    def close(self) -> None:
        """End all batches; their callers raise ReaderClosedError. May be called again."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            batches = list(self._batches)
        for batch in batches:
            batch.over.set()
        self._threads.end()
