"""Tests of prefetched byte ranges: used once; the reader fetches those that have not started."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from petastore.storage.ranges.fetch import ByteRange, FetchedRanges
from petastore.storage.row_groups.fetched_ahead import Fetch, FetchedAhead
from petastore.storage.stores.interface import FileVersion
from tests.forked import forked

PLACE = (0, "a.parquet", 0)
RANGE = ByteRange(4, 3)
AT_A_TIME = 8


@pytest.fixture
def ahead() -> Iterator[FetchedAhead]:
    made = FetchedAhead()
    yield made
    made.close()


def giving(data: bytes, begun: threading.Event | None = None, go_on: threading.Event | None = None) -> Fetch:
    def fetch() -> tuple[frozenset[ByteRange], FetchedRanges]:
        if begun is not None and go_on is not None:
            begun.set()
            assert go_on.wait(60)
        return frozenset({RANGE}), FetchedRanges(9, FileVersion(9), [(4, pa.py_buffer(data))])

    return fetch


def test_reader_waits_for_a_prefetch_in_flight(ahead: FetchedAhead) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ahead.begin(PLACE, giving(b"abc", begun, go_on))
    assert begun.wait(60)
    threading.Timer(0.01, go_on.set).start()
    found = ahead.of(PLACE, [RANGE])
    assert found is not None
    assert found.read(*RANGE).to_pybytes() == b"abc"
    assert ahead.of(PLACE, [RANGE]) is found  # another task of the same row group
    assert ahead.of(PLACE, [RANGE, ByteRange(1, 2)]) is None
    ahead.drop(PLACE)
    assert ahead.of(PLACE, [RANGE]) is None


def test_reader_does_not_wait_for_a_prefetch_that_has_not_started(ahead: FetchedAhead) -> None:
    begun, go_on = [threading.Event() for _ in range(AT_A_TIME)], threading.Event()
    for number, event in enumerate(begun):
        ahead.begin((0, "b.parquet", number), giving(b"abc", event, go_on))
        assert event.wait(60)
    late = threading.Event()
    ahead.begin(PLACE, giving(b"old", late, go_on))
    assert ahead.of(PLACE, [RANGE]) is None
    ahead.drop(PLACE)
    ahead.begin(PLACE, giving(b"new"))
    go_on.set()
    for number in range(AT_A_TIME):
        assert ahead.of((0, "b.parquet", number), [RANGE]) is not None
    found = ahead.of(PLACE, [RANGE])
    assert found is None or found.read(*RANGE).to_pybytes() == b"new"
    assert not late.is_set()


def test_reader_ignores_a_failed_prefetch(ahead: FetchedAhead) -> None:
    begun = threading.Event()

    def fail() -> tuple[frozenset[ByteRange], FetchedRanges]:
        begun.set()
        raise OSError("gone")

    ahead.begin(PLACE, fail)
    assert begun.wait(60)
    assert ahead.of(PLACE, [RANGE]) is None


def test_closed_prefetcher_has_no_data_and_starts_nothing(ahead: FetchedAhead) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ahead.begin(PLACE, giving(b"abc", begun, go_on))
    assert begun.wait(60)
    ahead.close()
    go_on.set()
    ahead.begin(PLACE, giving(b"abc"))
    assert ahead.of(PLACE, [RANGE]) is None


def test_forked_child_has_no_prefetched_data(ahead: FetchedAhead) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ahead.begin(PLACE, giving(b"abc", begun, go_on))
    assert begun.wait(60)

    def in_child() -> None:
        assert ahead.of(PLACE, [RANGE]) is None
        go_on.set()
        started = threading.Event()
        ahead.begin(PLACE, giving(b"new", started, go_on))
        assert started.wait(60)
        found = ahead.of(PLACE, [RANGE])
        assert found is not None
        assert found.read(*RANGE).to_pybytes() == b"new"

    child = forked(in_child)
    go_on.set()
    assert ahead.of(PLACE, [RANGE]) is not None
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
