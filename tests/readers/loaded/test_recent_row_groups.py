"""Tests of the row group cache in memory: bounded bytes, LRU eviction, one read per row group, threads, fork."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.readers.random_access import RecentRowGroups
from tests.pace import LONG


def row_group(group: int, *, rows: int = 4) -> pa.Table:
    """Return a row group of 8 bytes per row."""
    return pa.table({"x": pa.array([group] * rows, pa.int64())})


@given(asked=st.lists(st.integers(0, 9), max_size=60), max_bytes=st.integers(0, 400))
def test_row_group_cache_is_bounded_in_bytes(asked: list[int], max_bytes: int) -> None:
    recent = RecentRowGroups(lambda group: row_group(group, rows=group), max_bytes)
    for group in asked:
        assert recent.get(group).num_rows == group
        info = recent.info()
        assert info.held_bytes <= max(max_bytes, 8 * group)
        assert info.held_bytes <= max_bytes or info.row_groups - (0 in asked) <= 1
    assert recent.info().hits + recent.info().reads == len(asked)


def test_row_group_cache_evicts_lru() -> None:
    recent = RecentRowGroups(row_group, max_bytes=3 * 32)
    for group in (0, 1, 2, 0, 3):  # reading 3 evicts 1
        recent.get(group)
    reads = recent.info().reads
    for group in (0, 2, 3):
        recent.get(group)
    assert recent.info().reads == reads
    recent.get(1)
    assert recent.info().reads == reads + 1


def test_row_group_cache_keeps_a_too_large_last_row_group() -> None:
    recent = RecentRowGroups(row_group, max_bytes=0)
    for group in (5, 5, 5, 6, 5):
        recent.get(group)
    assert (recent.info().reads, recent.info().row_groups) == (3, 1)


def test_row_group_cache_threads_share_one_read() -> None:
    everyone_asks = threading.Event()
    asked = threading.Semaphore(0)

    def read(group: int) -> pa.Table:
        asked.release()
        assert everyone_asks.wait(LONG)
        return row_group(group)

    recent = RecentRowGroups(read, 1000)
    with ThreadPoolExecutor(4) as threads:
        tables = [threads.submit(recent.get, 7) for _ in range(4)]
        assert asked.acquire(timeout=10)
        while recent.info().hits < 3:
            pass
        everyone_asks.set()
        assert len({id(table.result(LONG)) for table in tables}) == 1
    assert recent.info().reads == 1


def test_row_group_cache_reads_different_row_groups_concurrently() -> None:
    both_read = threading.Barrier(2)

    def read(group: int) -> pa.Table:
        both_read.wait(LONG)  # if a lock were held while reading, the second thread would not arrive
        return row_group(group)

    recent = RecentRowGroups(read, 1000)
    with ThreadPoolExecutor(2) as threads:
        assert [table.num_rows for table in threads.map(recent.get, [1, 2])] == [4, 4]


def test_row_group_cache_retries_a_failed_read() -> None:
    failures = [OSError("gone"), OSError("gone again")]

    def read(group: int) -> pa.Table:
        if failures:
            raise failures.pop(0)
        return row_group(group)

    recent = RecentRowGroups(read, 1000)
    with pytest.raises(OSError, match=r"^gone$"):
        recent.get(1)
    with pytest.raises(OSError, match=r"^gone again$"):
        recent.get(1)
    assert recent.get(1).num_rows == 4
    assert recent.info().reads == 3


def test_row_group_cache_works_in_a_child_forked_during_a_read() -> None:
    begun, goes_on = threading.Event(), threading.Event()
    parent = os.getpid()

    def read(group: int) -> pa.Table:
        if os.getpid() == parent:
            begun.set()
            goes_on.wait(60)
        return pa.table({"x": [group]})

    recent = RecentRowGroups(read, max_bytes=1000)
    thread = threading.Thread(target=recent.get, args=(3,))
    thread.start()
    begun.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a safety net that ends the child if it hangs
        os._exit(0 if recent.get(3).column("x").to_pylist() == [3] else 1)
    goes_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert recent.info().reads == 1
