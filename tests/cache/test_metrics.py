"""Tests of cache metrics: exact counts from concurrent threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from petastore.cache.entries import CacheMetrics, Counts


def test_new_cache_metrics_are_zero() -> None:
    assert Counts().told() == CacheMetrics()


def test_cache_metrics_count_correctly_from_concurrent_threads() -> None:
    counts = Counts()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda size: counts.add(hits=1, bytes_read=size), range(1000)))
    assert counts.told() == CacheMetrics(hits=1000, bytes_read=499_500)


def test_reported_cache_metrics_are_a_snapshot() -> None:
    counts = Counts()
    before = counts.told()
    counts.add(damaged=1)
    assert (before.damaged, counts.told().damaged) == (0, 1)


def test_counting_an_unknown_cache_metric_raises() -> None:
    with pytest.raises(KeyError):
        Counts().add(fun=1)
