"""Tests of the log of stages: time per stage and thread, only inside logged tasks."""

from __future__ import annotations

import collections
import itertools
import resource
import threading
from types import SimpleNamespace

import pytest

from petastore.monitoring import activity
from petastore.monitoring.activity import Segments, adopted, at_work, during, reads_local_file, running_since


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clock by one that advances one second at each read."""
    clock = itertools.count()
    monkeypatch.setattr(activity, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))


def found(log: Segments) -> list[tuple[float, str, object]]:
    return [(ended - began, stage, owner) for began, ended, stage, owner, _ in log]


@pytest.mark.usefixtures("ticks")
def test_stages_of_nested_tasks_do_not_overlap() -> None:
    log: Segments = collections.deque()
    with at_work(log, "assembly", 1):
        with at_work(log, "decoding", (5,)), during("storage"):
            pass
        with during("transform"):
            pass
    assert found(log) == [
        (1, "assembly", 1),
        (1, "decoding", (5,)),
        (1, "storage", (5,)),
        (1, "decoding", (5,)),
        (1, "assembly", 1),
        (1, "transform", 1),
        (1, "assembly", 1),
    ]


def test_stage_outside_of_a_logged_task_is_not_logged() -> None:
    log: Segments = collections.deque()
    with during("storage"):
        reads_local_file()
    with at_work(None, "decoding", 1), during("storage"):
        pass
    assert not log


def test_logged_stage_ends_when_an_exception_is_raised() -> None:
    log: Segments = collections.deque()
    with pytest.raises(ZeroDivisionError), at_work(log, "assembly", 1), during("storage"):
        raise ZeroDivisionError
    logged = len(log)
    with during("storage"):
        pass
    assert len(log) == logged


@pytest.mark.usefixtures("ticks")
def test_stage_in_another_thread_is_logged_for_the_task_that_started_it() -> None:
    log: Segments = collections.deque()

    def call() -> None:
        with during("storage"):
            pass

    with at_work(log, "decoding", (3,)):
        thread = threading.Thread(target=adopted(call))
        thread.start()
        thread.join()
    assert (1, "storage", (3,)) in found(log)


@pytest.mark.usefixtures("ticks")
def test_work_of_another_process_is_logged_as_one_stage() -> None:
    log: Segments = collections.deque()
    with at_work(log, "assembly", 4):
        ended = running_since("transform")
    log.clear()
    ended(None)
    assert [stage for _, stage, _ in found(log)] == ["transform"]


@pytest.mark.parametrize(("blocks", "storage_s"), [(8, 0.7), (0, 0.0)])
def test_local_read_wait_counts_as_storage_only_if_disk_blocks_were_read(
    monkeypatch: pytest.MonkeyPatch, blocks: int, storage_s: float
) -> None:
    now, busy, read = [10.0], [1.0], [4]
    clocks = SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: busy[0])
    monkeypatch.setattr(activity, "time", clocks)
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_inblock=read[0]))
    seconds = {"storage": 0.0, "decoding": 0.0}

    def load_twice() -> None:
        for _ in range(2):
            log: Segments = collections.deque()
            with at_work(log, "decoding", (1,)):
                reads_local_file()
                now[0], busy[0], read[0] = now[0] + 1.0, busy[0] + 0.3, read[0] + blocks
            for took, stage, _ in found(log):
                seconds[stage] += took

    thread = threading.Thread(target=load_twice)  # a new thread has not counted its blocks before
    thread.start()
    thread.join()
    assert seconds == pytest.approx({"storage": 2 * storage_s, "decoding": 2 - 2 * storage_s})
