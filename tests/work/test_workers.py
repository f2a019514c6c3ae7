"""Tests of `Workers`: option checks, number of concurrent tasks, and memory for dictionaries."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.storage.row_groups.asked_columns import MOST_BYTES
from petastore.work import InlinePool, ThreadPool
from petastore.work.pools import Workers, available_cpus


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "threads"}, "reader_pool_type must be one of .*, got 'threads'"),
        ({"kind": None}, "reader_pool_type must be one of .*, got None"),
        ({"count": 0}, "workers_count"),
        ({"count": 2.5}, "workers_count"),
        ({"count": True}, "workers_count"),
        ({"memory_budget": 0}, "memory_budget"),
        ({"memory_budget": "1GB"}, "memory_budget"),
        ({"max_cell_bytes": -1}, "max_cell_bytes"),
    ],
    ids=str,
)
def test_invalid_worker_options_raise_with_their_public_names(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        Workers(**given)


@pytest.mark.parametrize(
    ("workers", "at_a_time"),
    [
        (Workers("dummy"), 0),
        (Workers("dummy", 3), 0),
        (Workers("thread", 3), 3),
        (Workers("process", 3), 3),
        (Workers(), available_cpus()),
    ],
    ids=str,
)
def test_workers_count_is_the_number_of_concurrent_tasks(workers: Workers, at_a_time: int) -> None:
    assert workers.at_a_time == at_a_time
    pool = workers.pool()
    assert isinstance(pool, InlinePool if workers.kind == "dummy" else ThreadPool)
    assert pool.workers == at_a_time
    pool.close()
    pool.join()


def test_dictionaries_may_use_a_quarter_of_the_memory_budget() -> None:
    assert Workers().most_copied_bytes == MOST_BYTES
    for budget in (1000, 2**40):
        assert Workers(memory_budget=budget).most_copied_bytes == budget // 4
