"""Tests of wait times: each wait is attributed to the stages of the span that was waited for."""

from __future__ import annotations

import numpy as np
import pytest

from petastore.monitoring.activity import Segment
from petastore.monitoring.waits import WaitMeter, attributed


class Groups:
    """Four row groups of three files."""

    class _File:
        def __init__(self, path: str) -> None:
            self.path = path

    files = (_File("a.parquet"), _File("b.parquet"), _File("c.parquet"))
    file = np.array([0, 0, 1, 2])
    rows = np.array([10, 20, 30, 40])


class Clock:
    """Wait meter that receives spans at given times."""

    def __init__(self, *, counts_start: bool = False) -> None:
        self.meter = WaitMeter(Groups(), counts_start=counts_start)

    def span(
        self, began: float, ended: float, number: int, *segments: Segment, rows: int = 10, groups: tuple[int, ...] = ()
    ) -> None:
        for segment in segments:
            self.meter.log.append(segment)
        self.meter.note_wait(began, ended, number, groups, rows=rows, ready=1)


def test_waiting_time_is_attributed_to_the_work_that_was_waited_for() -> None:
    segments: list[Segment] = [(0, 10, "storage", (1,), 1), (0, 10, "transform", 7, 2), (0, 10, "decoding", 8, 3)]
    assert attributed(segments, 0, 10, 7, {2}) == {"transform": 10.0}
    assert attributed(segments, 0, 10, 7, {1}) == {"storage": 5.0, "transform": 5.0}
    assert attributed(segments, 2, 6, 9, set()) == pytest.approx(
        {"storage": 4 / 3, "transform": 4 / 3, "decoding": 4 / 3}
    )


def test_waiting_time_without_running_work_is_not_attributed() -> None:
    segments: list[Segment] = [(0, 1, "storage", (1,), 1), (3, 4, "assembly", 7, 1)]
    assert attributed(segments, 0, 5, 7, {1}) == {"storage": 1.0, "assembly": 1.0}
    assert attributed(segments, 1, 3, 7, {1}) == attributed([], 0, 5, 7, {1}) == {}


def test_waiting_time_is_divided_among_stages_by_their_threads() -> None:
    segments: list[Segment] = [(0, 4, "decoding", 7, thread) for thread in range(3)]
    segments.append((0, 4, "storage", (1,), 9))
    assert attributed(segments, 0, 4, 7, {1}) == {"storage": 1.0, "decoding": 3.0}


def test_wait_meter_counts_time_before_the_first_data_as_startup() -> None:
    clock = Clock()
    clock.span(0, 5, 0, (0, 5, "storage", (0,), 1), groups=(0,))
    clock.meter.add("copy", 1.0)
    clock.span(8, 10, 1, (8, 10, "decoding", (1,), 1), groups=(1,))
    clock.span(12, 12, -1, rows=0)
    found = clock.meter.counters()
    assert (found.elapsed_seconds, found.wait_seconds, found.startup_seconds) == (7, 3, 5)
    assert (found.wait_decoding_seconds, found.wait_copy_seconds, found.wait_storage_seconds) == (2, 1, 0)
    assert (found.rows, found.spans, found.ready_spans_mean, clock.meter.is_over) == (20, 2, 1.0, True)
    assert clock.meter.waited_s == 7


def test_wait_meter_counts_startup_as_waiting_if_there_is_only_one_span() -> None:
    for counts_start in (False, True):
        clock = Clock(counts_start=counts_start)
        clock.span(0, 5, 0, (0, 5, "storage", (0,), 1), groups=(0,))
        clock.span(6, 6, -1, rows=0)
        found = clock.meter.counters()
        assert (found.elapsed_seconds, found.wait_seconds, found.startup_seconds) == (6, 5, 0)
        assert found.wait_storage_seconds == 5


def test_wait_meter_names_the_slowest_file() -> None:
    clock = Clock()
    for group in range(4):
        clock.meter.note_loads([group])
    loads: list[Segment] = [(0, 2, "storage", (0, 1), 1), (0, 9, "decoding", (2,), 2), (0, 2, "decoding", (3,), 2)]
    clock.span(0, 9, 0, *loads, groups=(0,))
    found = clock.meter.counters()
    assert (found.slowest_file, found.slowest_file_seconds, found.median_file_seconds) == ("b.parquet", 9.0, 2.0)
    assert found.row_groups_loaded == 4
    assert clock.meter.file_of(3) == "c.parquet"
    assert WaitMeter().file_of(3) is None


def test_wait_meter_calls_its_listeners_for_each_wait() -> None:
    clock, seen = Clock(), []
    clock.meter.listeners.append(
        lambda meter, segments, began, ended: seen.append((meter.rows, segments, began, ended))
    )
    clock.span(0, 5, 0, (0, 5, "storage", (0,), 1))
    assert seen == [(10, [(0, 5, "storage", (0,), 1)], 0, 5)]


def test_wait_meter_samples_short_waits_and_attributes_every_long_wait() -> None:
    clock = Clock(counts_start=True)
    for span in range(1_000):  # 1 ms and 100 segments per span, so that attributing all waits takes a tenth of the time
        began = span * 1e-3
        segments: list[Segment] = [(began, began + 1e-3, "decoding", span, 1)] * 100
        clock.span(began, began + 1e-3, span, *segments)
    seen = clock.meter.counters()
    assert seen.wait_seconds == seen.wait_decoding_seconds == pytest.approx(1.0)
    clock.span(1.0, 11.0, 1_000, (1.0, 11.0, "storage", 1_000, 1))
    seen = clock.meter.counters()
    assert seen.wait_storage_seconds > 10
