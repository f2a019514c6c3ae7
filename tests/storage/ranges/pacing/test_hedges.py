"""What is late is asked for a second time: the first answer counts, and few are asked for twice."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import petastore
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.fetch import RangeFetcher
from petastore.storage.ranges.pacing.hedges import Hedges
from petastore.storage.requests.client import Answer, FileVersion
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served
from tests.storage.ranges.conftest import location_of

GROUPS, ROWS = 400, 200
STRAGGLERS = Faults(latency_s=0.005, delayed=0.02, delay_s=2.0, seed=3)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_an_epoch_waits_for_no_stragglers(served: Served, proxy: FaultProxy) -> None:
    numbers = np.random.default_rng(0).integers(0, 1 << 40, GROUPS * ROWS)
    name = f"{uuid.uuid4().hex}.parquet"
    table = pa.table({"id": numbers})
    pq.write_table(table, served.root / name, row_group_size=ROWS, compression="none", use_dictionary=False)
    with petastore.make_batch_reader(
        f"{proxy.url}/{name}", shuffle_row_groups=False, workers_count=2, storage_hedging=True
    ) as reader:
        proxy.begin(STRAGGLERS)
        read = np.concatenate([batch.id for batch in reader])
        found = reader.diagnostics
    assert np.array_equal(read, numbers)
    assert proxy.counted.faults["delayed"] >= 0.01 * GROUPS
    assert 0 < found["storage_hedged"] <= 0.05 * found["storage_requests"]
    assert found["storage_requests"] == GROUPS + found["storage_hedged"]
    assert 8 * GROUPS * ROWS <= found["storage_bytes"] <= 1.2 * 8 * GROUPS * ROWS


@given(st.lists(st.tuples(st.floats(1e-4, 10), st.floats(1e-4, 10)), max_size=200), st.integers(1, 5))
def test_at_most_one_in_twenty_is_asked_for_twice(answers: list[tuple[float, float]], tries: int) -> None:
    hedges, taken = Hedges(), 0
    for number, (expected_s, took_s) in enumerate(answers, 1):
        hedges.answered(expected_s, took_s)
        taken += sum(hedges.takes_one() for _ in range(tries))
        assert taken <= 0.05 * number
        late_s = hedges.late_after(expected_s)
        assert (late_s is None) == (number < 20)
        assert late_s is None or late_s >= 2 * expected_s


def test_late_is_what_takes_longer_than_nineteen_of_twenty() -> None:
    hedges = Hedges()
    for number in range(256):
        hedges.answered(0.01, 5.0 if number % 50 == 0 else 0.04)
    assert hedges.late_after(0.01) == pytest.approx(0.04)
    assert hedges.late_after(0.1) == pytest.approx(0.4)


VERSION = FileVersion(1000, '"a"')


class Storage:
    """Answers at once, but to the first requests for the second half of the file: to these when it is told to."""

    system = "Storage"

    def __init__(self, *late: Any) -> None:
        self.late = list(late)
        self.release = threading.Event()

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:  # noqa: ARG002
        if offset and self.late:
            found = self.late.pop(0)
            if found is None:
                self.release.wait(60)
            elif isinstance(found, Exception):
                threading.Timer(0.1, self.release.set).start()  # the late answer comes after this failure
                raise found
        return Answer(bytes(length), version, 0.001, None)

    def tail(self, path: str, length: int) -> Answer:
        raise NotImplementedError

    def version(self, path: str) -> FileVersion:  # noqa: ARG002
        return VERSION


def measured(storage: Storage) -> RangeFetcher:
    """A fetcher that knows how long answers take."""
    fetcher = RangeFetcher(dataclasses.replace(location_of("memory://bucket/frames"), hedged=True), storage)
    for _ in range(40):
        fetcher.fetch("a", VERSION, [ByteRange(0, 100)])
    return fetcher


def test_the_first_answer_counts_and_the_late_one_is_nobodys() -> None:
    storage = Storage(None)
    fetcher = measured(storage)
    try:
        assert fetcher.fetch("a", VERSION, [ByteRange(500, 100)]).read(500, 100).to_pybytes() == bytes(100)
        assert not storage.release.is_set()
        assert (fetcher.counts.requests, fetcher.counts.hedged, fetcher.counts.bytes) == (42, 1, 41 * 100)
    finally:
        storage.release.set()
        fetcher.close()


def test_a_second_request_that_fails_changes_nothing() -> None:
    storage = Storage(None, ConnectionResetError("reset"))
    fetcher = measured(storage)
    try:
        assert fetcher.fetch("a", VERSION, [ByteRange(500, 100)]).nbytes == 100
        assert storage.release.is_set()
        assert (fetcher.counts.requests, fetcher.counts.hedged, fetcher.counts.again) == (42, 1, 0)
    finally:
        storage.release.set()
        fetcher.close()


def test_who_has_not_asked_for_it_makes_no_second_requests() -> None:
    storage = Storage()
    with_none = RangeFetcher(location_of("memory://bucket/frames"), storage)
    for _ in range(40):
        with_none.fetch("a", VERSION, [ByteRange(0, 100)])
    assert with_none.counts.hedged == 0
    with_none.close()
