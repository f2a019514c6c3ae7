"""Tests of the cache simulation: next-use (Belady) and LRU policies."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.cache import simulate

ONES = np.ones(20, np.int64)


def test_simulated_cache_of_half_the_data_hits_half_where_lru_hits_none() -> None:
    order = np.arange(20)
    assert [hits.sum() for hits in simulate([order] * 4, ONES, 10, "belady")] == [0, 10, 10, 10]
    assert [hits.sum() for hits in simulate([order] * 4, ONES, 10, "lru")] == [0, 0, 0, 0]
    assert [hits.sum() for hits in simulate([order] * 2, ONES, 20, "lru")] == [0, 20]


def most_hits(uses: tuple[int, ...], room: int) -> int:
    """Return the largest number of hits that any policy can have, by exhaustive search."""
    reached: dict[frozenset[int], int] = {frozenset(): 0}
    for use in uses:
        following: dict[frozenset[int], int] = {}
        for kept, hits in reached.items():
            choices = [kept] if use in kept else [kept, *map(frozenset, itertools.combinations(kept | {use}, room))]
            choices += [] if use in kept or len(kept) >= room else [kept | {use}]
            for choice in choices:
                now = frozenset(choice)
                following[now] = max(following.get(now, 0), hits + (use in kept))
        reached = following
    return max(reached.values())


@given(st.permutations(range(5)), st.permutations(range(5)), st.integers(1, 4))
def test_simulated_next_use_policy_has_the_most_hits_possible(first: list[int], second: list[int], room: int) -> None:
    hits = simulate([np.array(first), np.array(second)], ONES, room, "belady")
    assert sum(of_epoch.sum() for of_epoch in hits) == most_hits((*first, *second), room)


def test_simulated_entry_over_the_limit_evicts_nothing() -> None:
    sizes = np.array([1, 1, 5])
    for policy in ("belady", "lru"):
        hits = simulate([np.array([0, 1, 2, 0, 1])], sizes, 3, policy)
        assert hits[0].tolist() == [False, False, False, True, True]
