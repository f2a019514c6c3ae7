"""Tests of the contract in the docstring of `petastore/readers/pipeline.py`, case by case."""

from __future__ import annotations

import collections
import dataclasses
import functools
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore.errors import ReaderClosedError, WorkerError
from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest, Span
from petastore.readers.assembly.assemble import AssembledSpan, SpanWork
from petastore.readers.batch import Columns
from petastore.readers.pipeline import Load, Pipeline
from petastore.work import InlinePool, Pool, ThreadPool
from petastore.work.futures import after
from tests.pace import LONG

POOLS: list[Callable[[], Pool]] = [InlinePool, lambda: ThreadPool(1), lambda: ThreadPool(4)]
every_pool = pytest.mark.parametrize("make_pool", POOLS, ids=["inline", "one thread", "four threads"])


def spans(groups: int = 20) -> Iterator[Span]:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    plan = Plan(Inventory.of_rows([4] * groups), ReadRequest(("id",), order))
    return plan.spans(3, rows_per_span=3)


def one_by_one(pool: Pool, fetch: Callable[[int], Any]) -> Load:
    """Return a load function that submits one task per row group."""

    def load(span: Span, /, *, priority: int) -> dict[int, Future[Any]]:
        return {group: pool.submit(functools.partial(fetch, group), priority=priority) for group in span.fetch}

    return load


def at_hand(span: Span, /, *, priority: int) -> dict[int, Future[Any]]:
    """Return row groups that are available immediately."""
    return {group: after([], functools.partial(int, group)) for group in span.fetch}


def pipeline(pool: Pool, *, fetch: Callable[[int], Any] = lambda group: group, ahead: int = 5) -> Pipeline:
    return Pipeline(spans(), load=one_by_one(pool, fetch), begin=without_tasks, pool=pool, ahead=ahead)


def without_tasks(span: Span, _: object) -> SpanWork:
    return SpanWork([], lambda: AssembledSpan(span, Columns({})))


def first_rows(assembled: list[AssembledSpan]) -> list[tuple[int, int]]:
    return [(int(one.span.groups[0]), int(one.span.rows[0])) for one in assembled]


@every_pool
def test_pipeline_yields_rows_in_plan_order(make_pool: Callable[[], Pool]) -> None:
    line = pipeline(make_pool())
    assert first_rows(list(line)) == [(int(span.groups[0]), int(span.rows[0])) for span in spans()]
    assert line.is_closed
    line.join()


def test_pipeline_queue_is_not_read_while_planning_changes_it() -> None:
    """Planning changes the queue of planned spans without a lock, so no other thread may iterate over it meanwhile."""
    is_planning, looked, seen = threading.Event(), threading.Event(), []

    class _Watched(Span):
        @property
        def num_rows(self) -> int:
            seen.append(is_planning.is_set())
            looked.set()
            return super().num_rows

    class _Insatiable:
        wants_more = True

        def plan(self, span: Span) -> None: ...

    def watched() -> Iterator[Span]:
        for number, span in enumerate(spans()):
            if number == 6:  # other spans wait in the queue
                looked.clear()
                is_planning.set()
                looked.wait(0.3)  # row groups are loaded during the wait
                is_planning.clear()
            yield _Watched(**{field.name: getattr(span, field.name) for field in dataclasses.fields(span)})

    pool = ThreadPool(4)
    load = one_by_one(pool, lambda _: time.sleep(0.05))  # slower than planning, so spans wait in the queue
    prefetcher: Any = _Insatiable()
    line = Pipeline(watched(), load=load, begin=without_tasks, pool=pool, ahead=2, prefetcher=prefetcher)
    assert len(list(line)) == len(list(spans()))
    assert seen
    assert not any(seen)
    line.join()


@every_pool
def test_pipeline_raises_a_fetch_error_after_the_rows_before_it(make_pool: Callable[[], Pool]) -> None:
    def fetch(group: int) -> int:
        if group == 3:
            raise ZeroDivisionError("row group 3")
        return group

    line = pipeline(make_pool(), fetch=fetch)
    before = [next(line) for _ in range(4)]  # rows 0 to 11: row groups 0 to 2
    assert len(before) == 4
    with pytest.raises(ZeroDivisionError, match="row group 3") as caught:
        next(line)
    assert caught.traceback[-1].name == "fetch"
    assert line.is_closed
    with pytest.raises(ReaderClosedError):
        next(line)
    line.join()


@every_pool
@pytest.mark.parametrize("stage", ["fetch", "begin", "task", "finish"])
def test_pipeline_raises_worker_error_when_a_stage_raises_stop_iteration(
    make_pool: Callable[[], Pool], stage: str
) -> None:
    def at(here: str, number: int) -> None:
        if here == stage and number == 3:
            raise StopIteration("of somebody's next()")

    def fetch(group: int) -> int:
        at("fetch", group)
        return group

    def begin(span: Span, _: object) -> SpanWork:
        number = int(span.groups[0])
        at("begin", number)

        def finish() -> AssembledSpan:
            at("finish", number)
            return AssembledSpan(span, Columns({}))

        return SpanWork([lambda: at("task", number)], finish)

    pool = make_pool()
    line = Pipeline(spans(), load=one_by_one(pool, fetch), begin=begin, pool=pool, ahead=5)
    with pytest.raises(
        WorkerError, match=r"must not raise StopIteration, got StopIteration.*called next\(\)"
    ) as caught:
        collections.deque(line, maxlen=0)
    assert isinstance(caught.value.__cause__, StopIteration)
    assert line.is_closed
    line.join()


@every_pool
def test_pipeline_span_is_finished_after_all_its_tasks(make_pool: Callable[[], Pool]) -> None:
    done: dict[int, set[int]] = collections.defaultdict(set)

    def begin(span: Span, _: object) -> SpanWork:
        mine = done[id(span)]

        def finish() -> AssembledSpan:
            assert mine == {0, 1, 2, 3}
            return AssembledSpan(span, Columns({}))

        return SpanWork([functools.partial(mine.add, number) for number in range(4)], finish)

    line = Pipeline(spans(), load=at_hand, begin=begin, pool=make_pool(), ahead=5)
    assert first_rows(list(line)) == [(int(span.groups[0]), int(span.rows[0])) for span in spans()]
    line.join()


@every_pool
def test_pipeline_frees_spans_after_delivery(make_pool: Callable[[], Pool]) -> None:
    """A span is freed although the row group that it waited for stays in memory for many more spans."""
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    plan = Plan(Inventory.of_rows([400]), ReadRequest(("id",), order))
    go_on = threading.Event()
    pool = make_pool()

    def fetch(group: int) -> int:
        if pool.workers:
            go_on.wait(LONG)
        return group

    def waiting_for_it() -> Iterator[Span]:
        for number, span in enumerate(plan.spans(3, rows_per_span=3)):
            if number == 4:
                go_on.set()  # four spans wait for the row group now
            yield span

    line = Pipeline(waiting_for_it(), load=one_by_one(pool, fetch), begin=without_tasks, pool=pool, ahead=5)
    handed_over = [weakref.ref(next(line).columns) for _ in range(20)]
    assert [columns() for columns in handed_over[:-1]] == [None] * 19
    line.close()
    line.join()


@every_pool
def test_pipeline_raises_the_error_of_the_first_failed_task(make_pool: Callable[[], Pool]) -> None:
    def fails(number: int) -> None:
        raise ZeroDivisionError(f"task {number}")

    def begin(span: Span, _: object) -> SpanWork:
        return SpanWork(
            [functools.partial(fails, number) for number in range(6)], lambda: AssembledSpan(span, Columns({}))
        )

    line = Pipeline(spans(), load=at_hand, begin=begin, pool=make_pool(), ahead=1)
    with pytest.raises(ZeroDivisionError, match="task 0"):
        next(line)
    line.join()


@every_pool
def test_pipeline_raises_the_error_of_an_assembly(make_pool: Callable[[], Pool]) -> None:
    def finish() -> AssembledSpan:
        raise ZeroDivisionError("finish")

    pool = make_pool()
    line = Pipeline(spans(), load=at_hand, begin=lambda _, __: SpanWork([], finish), pool=pool, ahead=2)
    with pytest.raises(ZeroDivisionError, match="finish"):
        next(line)
    line.join()


@every_pool
def test_pipeline_prefetches_at_most_the_given_number_of_spans(make_pool: Callable[[], Pool]) -> None:
    fetched: list[int] = []
    line = pipeline(make_pool(), fetch=fetched.append, ahead=4)
    next(line)
    assert set(fetched) <= {0, 1, 2}  # four spans of three rows are rows 0 to 11
    line.close()
    line.join()


def test_pipeline_starts_no_task_after_close() -> None:
    started, go_on, fetched = threading.Event(), threading.Event(), []

    def fetch(group: int) -> int:
        fetched.append(group)
        started.set()
        go_on.wait(LONG)
        return group

    def consume() -> None:
        with pytest.raises(ReaderClosedError):
            next(line)

    line = pipeline(ThreadPool(1), fetch=fetch)
    waiter = threading.Thread(target=consume)
    waiter.start()
    assert started.wait(LONG)
    line.close()
    go_on.set()
    line.join()
    waiter.join(LONG)
    assert fetched == [0]


def test_pipeline_close_wakes_the_consumer() -> None:
    started, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def fetch(group: int) -> int:
        started.set()
        go_on.wait(LONG)
        return group

    def consume() -> None:
        try:
            next(line)
        except ReaderClosedError as problem:
            raised.append(problem)

    line = pipeline(ThreadPool(2), fetch=fetch)
    consumer = threading.Thread(target=consume)
    consumer.start()
    assert started.wait(LONG)
    line.close()
    consumer.join(LONG)  # the task is still running
    assert [type(problem) for problem in raised] == [ReaderClosedError]
    go_on.set()
    line.join()


def test_interpreter_exits_with_a_running_pipeline() -> None:
    program = (
        "from petastore.inventory import Inventory\n"
        "from petastore.plan import Order, Plan, ReadRequest\n"
        "from petastore.readers.assembly.assemble import AssembledSpan, SpanWork\n"
        "from petastore.readers.batch import Columns\n"
        "from petastore.readers.pipeline import Pipeline\n"
        "from petastore.work import ThreadPool\n"
        "from petastore.work.futures import after\n"
        "order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)\n"
        "plan = Plan(Inventory.of_rows([4] * 1000), ReadRequest(('id',), order, epochs=None))\n"
        "line = Pipeline(plan.spans(3, rows_per_span=3),\n"
        "                load=lambda span, priority: {group: after([], int) for group in span.fetch},\n"
        "                begin=lambda span, tables: SpanWork([], lambda: AssembledSpan(span, Columns({}))),\n"
        "                pool=ThreadPool(4), ahead=5)\n"
        "next(line)\n"
        "print('half way')\n"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=LONG)
    assert (said.stdout, said.stderr) == ("half way\n", "")


def ends(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=LONG)


@pytest.mark.parametrize("pool", ["thread", "process", "dummy"])
@pytest.mark.parametrize("make", ["make_reader", "make_batch_reader"])
def test_interpreter_exits_with_a_daemon_thread_reading(tmp_path: Path, pool: str, make: str) -> None:
    schema = petastore.Unischema("number", [petastore.UnischemaField("id", np.int64)])
    petastore.write_dataset(str(tmp_path / "n"), schema, ({"id": i} for i in range(500)), rows_per_row_group=7)
    program = (
        "import sys, threading, petastore\n"
        "some = threading.Event()\n"
        "def consume():\n"
        f"    spec = petastore.TransformSpec(dict) if {pool == 'process' and make == 'make_reader'} else None\n"
        f"    reader = petastore.{make}(sys.argv[1], reader_pool_type={pool!r}, num_epochs=None, transform_spec=spec)\n"
        "    for _ in reader:\n"
        "        some.set()\n"
        "threading.Thread(target=consume, daemon=True).start()\n"
        "some.wait()\n"
        "print('enough')\n"
    )
    said = ends(program, str(tmp_path / "n"))
    assert (said.returncode, said.stdout, said.stderr) == (0, "enough\n", "")


@every_pool
def test_pipeline_raises_the_error_of_the_first_failed_row_group(make_pool: Callable[[], Pool]) -> None:
    pool = make_pool()
    second_failed = threading.Event()

    def fetch(group: int) -> int:
        if group == 0:
            assert pool.workers < 2 or second_failed.wait(LONG)
            raise ZeroDivisionError("row group 0")
        second_failed.set()
        raise ZeroDivisionError(f"row group {group}")

    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    plan = Plan(Inventory.of_rows([2] * 4), ReadRequest(("id",), order))
    line = Pipeline(
        plan.spans(8, rows_per_span=8), load=one_by_one(pool, fetch), begin=without_tasks, pool=pool, ahead=2
    )
    with pytest.raises(ZeroDivisionError, match="row group 0"):
        next(line)
    line.join()
