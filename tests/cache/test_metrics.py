"""What a cache does is counted once, by however many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from petastore.cache.metrics import CacheMetrics, Counts


def test_nothing_was_done_at_first() -> None:
    assert Counts().told() == CacheMetrics()


def test_threads_that_count_at_once_lose_nothing() -> None:
    counts = Counts()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda size: counts.add(hits=1, bytes_read=size), range(1000)))
    assert counts.told() == CacheMetrics(hits=1000, bytes_read=499_500)


def test_what_was_told_stays_as_it_was() -> None:
    counts = Counts()
    before = counts.told()
    counts.add(damaged=1)
    assert (before.damaged, counts.told().damaged) == (0, 1)


def test_only_what_has_a_name_is_counted() -> None:
    with pytest.raises(KeyError):
        Counts().add(fun=1)
