"""Tests of the request pool: answers in order or the first failure, retries, AIMD concurrency, callers that leave."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import ReaderClosedError
from petastore.storage.ranges.request_counts import RequestCounts
from petastore.storage.ranges.request_pool import AdaptiveConcurrency, RequestBatch, RequestPool
from petastore.storage.requests.retries import GaveUpError
from petastore.storage.stores.interface import Answer
from tests.forked import forked
from tests.pace import LONG


@pytest.fixture
def pool() -> Iterator[RequestPool]:
    pool = RequestPool(3)
    yield pool
    pool.close()


def batch_of(requests: Sequence[Callable[[], Answer]], seconds: float = LONG) -> RequestBatch:
    return RequestBatch(requests, time.monotonic() + seconds)


def answer(number: int) -> Answer:
    return Answer(bytes([number]), None)


def numbers(batch: RequestBatch) -> list[int | None]:
    return [None if one is None else one.data[0] for one in batch.answers]


def test_request_pool_returns_answers_in_request_order(pool: RequestPool) -> None:
    batch = batch_of([functools.partial(answer, number) for number in range(20)])
    pool.run(batch)
    assert numbers(batch) == list(range(20))
    assert batch.counts == RequestCounts(requests=20, bytes=20)


def test_request_pool_returns_at_once_without_requests(pool: RequestPool) -> None:
    batch = batch_of([])
    pool.run(batch)
    assert (batch.answers, batch.problem, batch.counts) == ([], None, RequestCounts())


def test_request_pool_retries_transient_errors(pool: RequestPool) -> None:
    problems = [TimeoutError("slow"), ConnectionResetError("reset")]

    def request() -> Answer:
        if problems:
            raise problems.pop()
        return answer(7)

    batch = batch_of([request])
    pool.run(batch)
    assert numbers(batch) == [7]
    assert batch.counts == RequestCounts(requests=3, bytes=1, again=2)


def test_request_pool_ends_a_batch_at_its_first_permanent_failure(pool: RequestPool) -> None:
    release = threading.Event()

    def waits() -> Answer:
        release.wait(LONG)
        return answer(0)

    def fails() -> Answer:
        raise PermissionError("not yours")

    batch = batch_of([waits, fails, waits, *[waits] * 50])
    pool.run(batch)
    release.set()
    assert isinstance(batch.problem, GaveUpError)
    assert str(batch.problem.problem) == "not yours"
    assert set(batch.answers) == {None}  # late answers are not recorded
    assert batch.counts.requests <= 4  # queued requests of the batch never begin


def test_request_pool_runs_no_more_requests_than_its_limit(pool: RequestPool) -> None:
    running, most = threading.Semaphore(3), []

    def request() -> Answer:
        most.append(running.acquire(blocking=False))
        time.sleep(0.001)
        running.release()
        return answer(0)

    batches = [batch_of([request] * 20) for _ in range(4)]
    callers = [threading.Thread(target=pool.run, args=(batch,)) for batch in batches]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(LONG)
    assert most == [True] * 80
    assert [batch.counts.requests for batch in batches] == [20] * 4


def test_request_pool_returns_at_the_deadline_and_frees_its_slots(pool: RequestPool) -> None:
    release = threading.Event()

    def hangs() -> Answer:
        release.wait(LONG)
        return answer(0)

    try:
        hung = batch_of([hangs] * 5, seconds=0.05)
        pool.run(hung)
        assert (hung.unanswered, hung.problem, hung.counts.requests) == (5, None, 3)
        batch = batch_of([functools.partial(answer, number) for number in range(5)])
        pool.run(batch)
        assert numbers(batch) == list(range(5))
    finally:
        release.set()


def test_request_pool_close_wakes_callers_and_rejects_new_batches(pool: RequestPool) -> None:
    began, release, raised = threading.Event(), threading.Event(), list[ReaderClosedError]()

    def hangs() -> Answer:
        began.set()
        release.wait(LONG)
        return answer(0)

    def run() -> None:
        try:
            pool.run(batch_of([hangs]))
        except ReaderClosedError as problem:
            raised.append(problem)

    caller = threading.Thread(target=run)
    caller.start()
    assert began.wait(LONG)
    pool.close()
    caller.join(LONG)
    release.set()
    assert len(raised) == 1
    with pytest.raises(ReaderClosedError):
        pool.run(batch_of([functools.partial(answer, 1)]))


def test_request_pool_works_in_a_forked_child_while_a_request_hangs(pool: RequestPool) -> None:
    import os

    began, release = threading.Event(), threading.Event()

    def hangs() -> Answer:
        began.set()
        release.wait(LONG)
        return answer(0)

    caller = threading.Thread(target=pool.run, args=(batch_of([hangs] * 8),))
    caller.start()
    assert began.wait(LONG)

    def child() -> None:
        batch = batch_of([functools.partial(answer, number) for number in range(8)])
        pool.run(batch)
        assert numbers(batch) == list(range(8))

    status = os.waitpid(forked(child), 0)[1]
    release.set()
    caller.join(LONG)
    assert os.waitstatus_to_exitcode(status) == 0


@given(st.integers(1, 64), st.lists(st.sampled_from(["throttled", "answered", "time"]), max_size=300))
def test_adaptive_concurrency_stays_between_one_and_its_bound(most: int, events: list[str]) -> None:
    now = [0.0]
    limit = AdaptiveConcurrency(most, clock=lambda: now[0])
    for event in events:
        if event == "time":
            now[0] += 1
        else:
            getattr(limit, event)()
        assert 1 <= limit.now <= most


def test_adaptive_concurrency_halves_once_for_requests_throttled_together() -> None:
    now = [0.0]
    limit = AdaptiveConcurrency(16, clock=lambda: now[0])
    limits = []
    for now[0] in (0, 0.1, 0.2, 0.3, 1, 2, 3, 4):
        limit.throttled()
        limits.append(limit.now)
    assert limits == [8, 8, 8, 4, 2, 1, 1, 1]


def test_adaptive_concurrency_grows_by_one_for_each_round_of_answers() -> None:
    limit = AdaptiveConcurrency(16)
    limit.throttled()
    rounds = 0
    while limit.now < 16:
        for _ in range(limit.now + 1):
            limit.answered()
        rounds += 1
    assert 7 <= rounds <= 8


def here(pool: RequestPool, request: Callable[[], Answer], seconds: float = LONG) -> RequestBatch | None:
    return pool.run_here(request, time.monotonic() + seconds)


def test_request_pool_makes_requests_in_the_calling_thread_if_asked(pool: RequestPool) -> None:
    makers = []

    def request() -> Answer:
        makers.append(threading.get_ident())
        return answer(len(makers))

    batch = here(pool, request)
    assert batch is not None
    assert (numbers(batch), batch.problem, batch.counts) == ([1], None, RequestCounts(requests=1, bytes=1))
    pool.run(batch_of([request]))
    assert makers[0] == threading.get_ident() != makers[1]


def test_request_in_the_calling_thread_is_retried_and_raises_nothing(pool: RequestPool) -> None:
    problems: list[Exception] = [PermissionError("no"), ConnectionResetError("reset")]

    def request() -> Answer:
        raise problems.pop()

    batch = here(pool, request)
    assert batch is not None
    assert isinstance(batch.problem, GaveUpError)
    assert isinstance(batch.problem.problem, PermissionError)
    assert (numbers(batch), batch.counts) == ([None], RequestCounts(requests=2, again=1))


def test_requests_in_calling_threads_count_towards_the_concurrency_limit(pool: RequestPool) -> None:
    began, release = threading.Semaphore(0), threading.Event()

    def hangs() -> Answer:
        began.release()
        release.wait(LONG)
        return answer(0)

    callers = [threading.Thread(target=here, args=(pool, hangs)) for _ in range(3)]
    for caller in callers:
        caller.start()
    assert all(began.acquire(timeout=LONG) for _ in callers)
    assert here(pool, functools.partial(answer, 1)) is None
    batch = batch_of([functools.partial(answer, 1)])
    waiting = threading.Thread(target=pool.run, args=(batch,))
    waiting.start()
    release.set()
    for thread in (*callers, waiting):
        thread.join(LONG)
    assert numbers(batch) == [1]


def test_queued_requests_start_when_a_calling_thread_has_its_answer() -> None:
    pool, began, release = RequestPool(1), threading.Event(), threading.Event()

    def hangs() -> Answer:
        began.set()
        release.wait(LONG)
        return answer(0)

    caller = threading.Thread(target=here, args=(pool, hangs))
    caller.start()
    assert began.wait(LONG)
    batch = batch_of([functools.partial(answer, number) for number in range(9)])
    waiting = threading.Thread(target=pool.run, args=(batch,))
    waiting.start()
    release.set()
    waiting.join(LONG)
    caller.join(LONG)
    assert numbers(batch) == list(range(9))
    pool.close()


def test_closing_the_pool_ends_the_pause_of_a_request_in_the_calling_thread(pool: RequestPool) -> None:
    failed, raised = threading.Event(), []

    def request() -> Answer:
        failed.set()
        raise TimeoutError("slow")

    def run() -> None:
        with pytest.raises(ReaderClosedError) as problem:
            here(pool, request)
        raised.append(problem.value)

    caller = threading.Thread(target=run)
    caller.start()
    assert failed.wait(LONG)
    pool.close()
    caller.join(LONG)
    assert len(raised) == 1
    with pytest.raises(ReaderClosedError, match="was closed"):
        here(pool, request)
