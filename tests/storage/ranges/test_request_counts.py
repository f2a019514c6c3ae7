"""Tests of request counters: counts from many threads are added exactly."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

from petastore.storage.ranges.request_counts import RequestCounter, RequestCounts


def test_request_counter_adds_each_count_from_many_threads() -> None:
    counter, more = RequestCounter(), RequestCounts(requests=1, bytes=10, again=2, damaged=4)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(counter.add, [more] * 400))
    assert counter.counts == RequestCounts(400, 4_000, 800, 1_600)


def test_request_counter_copy_begins_at_zero() -> None:
    counter = RequestCounter()
    counter.add(RequestCounts(requests=1))
    assert pickle.loads(pickle.dumps(counter)).counts == RequestCounts()  # noqa: S301 - our own
    assert counter.counts == RequestCounts(requests=1)
