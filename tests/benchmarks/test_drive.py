"""Tests of the measurement loop: rates of whole epochs after the first one, and counts of distinct rows."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from benchmarks.bench.drive import Pace, check, measure
from benchmarks.bench.workloads import WORKLOADS, Workload


class Clock:
    """Simulated clock that advances only when a batch is read."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("benchmarks.bench.drive.time", made)
    return made


@pytest.fixture
def workload() -> Workload:
    return WORKLOADS["images"].scaled(0.0)  # two batches of 64 rows


def counted(clock: Clock, seconds: Any) -> Generator[int, None, None]:
    for passing in seconds:
        clock.now += passing
        yield 64


def test_benchmark_measures_the_rate_after_the_first_epoch(clock: Clock, workload: Workload) -> None:
    seconds = itertools.chain([5.0, 1.0], itertools.cycle([0.5, 1.5]))
    found = measure(lambda: counted(clock, seconds), workload, Pace(seconds=3.0, patience=100.0))
    assert (found["first_batch"], found["first_epoch"]) == (5.0, 6.0)
    assert found["rate"] == 128 / 2.0


def test_benchmark_measures_whole_epochs(clock: Clock, workload: Workload) -> None:
    read: list[int] = []

    def batches() -> Generator[int, None, None]:
        for rows in counted(clock, itertools.repeat(1.0)):
            read.append(rows)
            yield rows

    measure(batches, workload, Pace(seconds=3.0, patience=100.0))
    assert len(read) == 2 + 4  # the 3 s end in the second measured epoch of two batches


def test_benchmark_measures_a_part_of_an_epoch_that_is_too_long(clock: Clock, workload: Workload) -> None:
    found = measure(lambda: counted(clock, itertools.repeat(10.0)), workload, Pace(seconds=3.0, patience=8.0))
    assert found["first_epoch"] is None
    assert found["rate"] == pytest.approx(6.4)


def test_benchmark_closes_the_loader_after_measuring(clock: Clock, workload: Workload) -> None:
    closed = []

    def batches() -> Generator[int, None, None]:
        try:
            yield from counted(clock, itertools.repeat(1.0))
        finally:
            closed.append(True)

    measure(batches, workload, Pace(1.0, 100.0))
    assert closed == [True]


def test_benchmark_check_counts_distinct_rows_and_detects_shuffling(workload: Workload) -> None:
    def epoch(keys: Any) -> list[dict[str, Any]]:
        return [{"label": part, "image": np.zeros((64, 2), np.uint8)} for part in np.split(np.asarray(keys), 2)]

    in_order = check(workload, iter(epoch(range(128))), 9.0)
    assert (in_order["distinct"], in_order["followers"], in_order["ascending"]) == (1.0, 1.0, True)
    assert in_order["kinds"]["image"] == "numpy.ndarray uint8 (64, 2)"
    shuffled = check(workload, iter(epoch(np.random.RandomState(0).permutation(128))), 9.0)
    assert shuffled["distinct"] == 1.0
    assert shuffled["followers"] < 0.05
    assert not shuffled["ascending"]
    assert check(workload, iter(epoch([7] * 128)), 9.0)["distinct"] == 1 / 128
