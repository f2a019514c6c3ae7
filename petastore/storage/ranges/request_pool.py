"""Storage request pool: concurrent requests in daemon threads, or in the calling thread.

Failed requests are retried, after random pauses (jitter), until a deadline. A caller waits for one batch of requests.
The wait ends when all requests have responses, a request has failed after all retries, the deadline has passed, the
pool is closed, or at Ctrl-C. Requests that still hang then no longer count towards the limit of concurrent requests.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Sequence

from petastore.errors import ReaderClosedError
from petastore.forks import made_anew_in_children
from petastore.storage.ranges.request_counts import RequestCounts
from petastore.storage.requests.failure_kinds import kind_of
from petastore.storage.requests.retries import tried
from petastore.storage.stores.interface import Answer
from petastore.threads import Threads, working

__all__ = ["AdaptiveConcurrency", "RequestBatch", "RequestPool"]


_THROTTLED_TOGETHER_S = 0.25
"""Seconds within which several throttled requests count as one."""


class AdaptiveConcurrency:
    """Adaptive limit of concurrent requests (AIMD). Not thread-safe.

    The limit is halved when a request is throttled, and slowly increased by successful requests.

    Args:
        most: Initial and maximum limit, at least 1.
        clock: Function that returns seconds.

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
        """Number of requests that may run now, at least 1."""
        return int(self._limit)

    def throttled(self) -> None:
        """Halve the limit, after the storage answered a request with 429 or 503."""
        if self._clock() - self._halved_at >= _THROTTLED_TOGETHER_S:
            self._halved_at = self._clock()
            self._limit = max(self._limit / 2, 1.0)

    def answered(self) -> None:
        """Increase the limit slightly, after a successful request."""
        if self._limit < self._most:
            self._limit = min(self._limit + 1 / self._limit, float(self._most))


class RequestBatch:
    """Requests of one caller, and their results.

    Args:
        requests: Functions, each of which makes one request and returns its result.
        deadline: Time by `time.monotonic` after which no request is retried.
        over: Event that ends pauses between retries, for a request in the calling thread; None creates one.
    """

    def __init__(
        self, requests: Sequence[Callable[[], Answer]], deadline: float, over: threading.Event | None = None
    ) -> None:
        self.requests = requests
        self.deadline = deadline
        self.answers: list[Answer | None] = [None] * len(requests)
        """Result of each request, in order; None until it arrives."""
        self.problem: BaseException | None = None
        """Exception of the first request that failed finally."""
        self.over = over or threading.Event()
        """Event that is set when the wait ends.

        The wait ends when all results have arrived, one request has failed, or the caller stops waiting.
        """
        self.unanswered = len(requests)
        """Number of requests without a result.

        The pool's lock guards this attribute and the attributes below.
        """
        self.running = 0
        self.is_left = False
        self.made = self.retries = self.bytes = 0

    @property
    def counts(self) -> RequestCounts:
        """Numbers of requests and retries so far, and the bytes of the results."""
        return RequestCounts(self.made, self.bytes, self.retries)


class RequestPool:
    """Pool of daemon threads that make the requests of batches. Thread-safe.

    A forked child starts without threads.

    Args:
        concurrency: Maximum concurrent requests; fewer while the storage throttles.
    """

    def __init__(self, concurrency: int) -> None:
        self._limit = AdaptiveConcurrency(concurrency)
        self._threads = Threads("petastore-ranges")
        self._closed = False
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Reset lock and queue in a forked child process."""
        self._lock = threading.Lock()
        self._queue: collections.deque[tuple[RequestBatch, int]] = collections.deque()
        self._batches: set[RequestBatch] = set()
        self._running = 0
        self._closing = threading.Event()

    def run(self, batch: RequestBatch) -> None:
        """Make the requests of a batch, and wait until the batch ends.

        It ends when all results have arrived, after the first failure, or at the deadline.

        Args:
            batch: Requests to make.

        Raises:
            ReaderClosedError: The pool was closed, or the interpreter is ending.
        """
        try:
            with self._lock:
                self._check_open()
                self._batches.add(batch)
                self._queue.extend((batch, number) for number in range(len(batch.requests)))
                new = self._take_slots()
            if new and not self._start(new):
                raise ReaderClosedError("files cannot be read, because the interpreter is exiting")
            if batch.requests:
                batch.over.wait(max(batch.deadline - time.monotonic(), 0.0))
        finally:
            self._leave(batch)
        if batch.unanswered and batch.problem is None:
            self._check_open()

    def run_here(self, request: Callable[[], Answer], deadline: float) -> RequestBatch | None:
        """Make a request in the calling thread, and return it as a batch that has ended.

        A request of 64 KB takes two thirds of the CPU time that it takes in a thread of the pool. The caller cannot
        stop waiting, so the client must end requests that hang.

        Args:
            request: Function that makes the request.
            deadline: Time by `time.monotonic` after which the request is not retried.

        Returns:
            The batch; None if the request may not start now, because the limit of concurrent requests is reached.

        Raises:
            ReaderClosedError: The pool was closed.
        """
        with self._lock:
            self._check_open()
            if self._queue or self._running >= self._limit.now:
                return None
            self._running += 1
        batch = RequestBatch([request], deadline, self._closing)
        batch.running = batch.made = 1
        answer, problem = None, None
        try:
            answer = self._answer(batch, 0)
        except BaseException as raised:  # noqa: BLE001 - as for requests in threads of the pool
            problem = raised
        with self._lock:
            self._running -= 1
            self._record(batch, 0, answer, problem)
            new = self._take_slots()
        del problem  # avoids a reference cycle between the exception and this frame
        if new:
            self._start(new)
        if batch.unanswered and batch.problem is None:
            self._check_open()
        return batch

    def _check_open(self) -> None:
        if self._closed:
            raise ReaderClosedError("the reader was closed. Open a new reader")

    def _leave(self, batch: RequestBatch) -> None:
        """End a batch whose caller no longer waits.

        Running requests of the batch no longer count towards the limit, so that requests of other batches may start.
        """
        batch.over.set()
        with self._lock:
            self._batches.discard(batch)
            batch.is_left = True
            self._running -= batch.running
            new = self._take_slots()
        self._start(new)

    def _take_slots(self) -> int:
        """Return the number of threads to start now, and count them as running.

        The caller must hold the lock.
        """
        if not self._queue:
            return 0
        new = max(min(len(self._queue), self._limit.now - self._running), 0)
        self._running += new
        return new

    def _start(self, threads: int) -> bool:
        return all(self._threads.run(self._work) for _ in range(threads))

    def _work(self) -> None:
        """Make queued requests one by one, until none may start."""
        batch: RequestBatch | None = None
        number, answer, problem, is_over = 0, None, None, False
        while True:
            with self._lock:
                if batch is not None:
                    if batch.is_left:
                        return  # the caller no longer waits, and this thread's slot was reassigned
                    is_over = self._record(batch, number, answer, problem)
                task = self._next()
                new = self._take_slots()  # the limit may have become larger
            if batch is not None and is_over:
                batch.over.set()
            batch = answer = problem = None  # drop references, or this thread would keep a batch's results in memory
            self._start(new)
            if task is None:
                return
            batch, number = task
            task = None
            try:
                answer = self._answer(batch, number)
            except BaseException as raised:  # noqa: BLE001 - raised in the waiting caller
                problem = raised

    def _next(self) -> tuple[RequestBatch, int] | None:
        """Take the next request from the queue; return its batch and its index in the batch.

        If no request may start, return None, and stop counting this thread as running. The caller must hold the lock.
        """
        while self._queue and self._running <= self._limit.now:
            batch, number = self._queue.popleft()
            if not batch.over.is_set():
                batch.running += 1
                batch.made += 1
                return batch, number
        self._running -= 1
        return None

    def _record(self, batch: RequestBatch, number: int, answer: Answer | None, problem: BaseException | None) -> bool:
        """Record the result of a request, and return whether the batch has ended.

        The caller must hold the lock.
        """
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
        """Make a request with retries, and return its result."""
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
        """Cancel all batches; waiting callers get ReaderClosedError. May be called again."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            batches = list(self._batches)
        for over in (self._closing, *(batch.over for batch in batches)):
            over.set()
        self._threads.end()
