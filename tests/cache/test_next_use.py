"""Tests of next-use (Belady) eviction: vectorized results equal one-by-one eviction."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.cache.next_use import LATEST, NEVER, Future, LastRejection, eviction_order, victims

ORDERS = st.lists(st.integers(0, 9), max_size=40)


@dataclasses.dataclass(eq=False)
class Reader:
    future: Future
    position: int = 0

    @property
    def begun(self) -> int:
        return self.position


def words(numbers: Any) -> NDArray[np.uint64]:
    return (np.asarray(numbers, np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)


def reader(order: list[int], position: int = 0) -> Reader:
    return Reader(Future.of(words(range(10)), np.array(order, np.int64)), position)


def next_use(order: list[int], entry: int, position: int) -> int:
    return next((place for place in range(position, len(order)) if order[place] == entry), NEVER)


@given(ORDERS, st.integers(0, 45))
def test_next_use_of_an_entry_is_its_first_use_after_the_reader_position(order: list[int], position: int) -> None:
    found = reader(order).future.next_use(words(range(12)), position)
    assert found.tolist() == [next_use(order, entry, position) for entry in range(12)]


def by_hand(entries: list[int], used: list[int], readers: list[tuple[list[int], int]]) -> list[int]:
    """Return the rows in eviction order, computed one by one (reference implementation)."""

    def distance(entry: int) -> int:
        uses = [(next_use(order, entry, position), position) for order, position in readers]
        return min((use - position for use, position in uses if use != NEVER), default=NEVER)

    return sorted(range(len(entries)), key=lambda row: (-distance(entries[row]), used[row], row))


def evicted(needed: NDArray[np.int64], sizes: NDArray[np.int64], need: int, incoming: int = -1) -> list[int] | None:
    """Return the rows that are evicted for `need` bytes, without batching; None if the new entry is rejected."""
    found = victims(needed, sizes, incoming, least=(need, 0), batch=(0, 0))
    return None if found is None else found.tolist()


@given(st.lists(st.tuples(ORDERS, st.integers(0, 40)), max_size=3), st.data())
def test_evicting_several_entries_at_once_equals_evicting_them_one_by_one(
    readers: list[tuple[list[int], int]], draw: st.DataObject
) -> None:
    entries = draw.draw(st.permutations(range(10)))
    used = draw.draw(st.lists(st.integers(1, 1000), min_size=10, max_size=10, unique=True))
    living = [reader(order, position) for order, position in readers]
    needed = eviction_order(words(entries), np.array(used), living)
    need = draw.draw(st.integers(1, 10))
    found = evicted(needed, np.ones(10, np.int64), need)
    expected = by_hand(entries, used, readers)
    assert found is not None
    assert needed[found].tolist() == needed[expected[:need]].tolist()  # ties are in any order


def test_new_entry_is_not_cached_if_its_next_use_is_the_latest() -> None:
    moving, used, sizes = reader([0, 1, 2, 3]), np.ones(3, np.int64), np.full(3, 10)

    def rows(incoming: int, need: int) -> list[int] | None:
        when = int(eviction_order(words([incoming]), np.array([LATEST]), [moving])[0])
        return evicted(eviction_order(words([0, 1, 2]), used, [moving]), sizes, need, when)

    assert rows(3, 5) is None  # its next use is the latest
    moving.position = 1
    assert rows(3, 5) == [0]  # entry 0 is not used again
    assert rows(3, 15) is None
    assert rows(1, 15) == [0, 2]


def test_entry_last_used_in_the_future_can_be_evicted() -> None:
    needed = eviction_order(words([0]), np.array([10**18]), [])
    incoming = int(eviction_order(words([1]), np.array([LATEST]), [])[0])
    assert evicted(needed, np.ones(1, np.int64), 1, incoming) == [0]


def test_eviction_of_many_entries_removes_the_least_recently_used_ones() -> None:
    rows = 1000
    used = np.random.default_rng(0).permutation(rows) + 1
    needed = eviction_order(words(range(rows)), used, [])
    assert evicted(needed, np.ones(rows, np.int64), 300) == np.argsort(used)[:300].tolist()


@pytest.mark.parametrize(
    ("least", "batch", "incoming", "freed"),
    [
        ((1, 0), (5, 0), -1, 5),  # a batch of bytes is evicted
        ((7, 0), (5, 0), -1, 7),  # more is needed than a batch
        ((1, 0), (5, 9), -1, 5),  # enough rows are free
        ((0, 1), (5, 4), -1, 4),  # only rows are needed
        ((2, 3), (1, 1), -1, 3),
        ((1, 0), (5, 0), 6, 3),  # only three entries are used later than the new one
        ((4, 0), (5, 0), 6, None),
        ((0, 4), (5, 9), 6, None),
        ((1, 0), (99, 0), -1, 10),
    ],
)
def test_eviction_removes_the_entries_with_the_latest_next_use(
    least: tuple[int, int], batch: tuple[int, int], incoming: int, freed: int | None
) -> None:
    found = victims(np.arange(10), np.ones(10, np.int64), incoming, least=least, batch=batch)
    assert (None if found is None else found.tolist()) == (None if freed is None else list(range(9, 9 - freed, -1)))


def test_cache_repeats_a_rejection_until_readers_have_progressed() -> None:
    moving, other = reader([0, 1, 2, 3]), reader([0])
    rejection = LastRejection()
    assert not rejection.applies([moving], NEVER)
    rejection.note([moving], 640)
    assert rejection.applies([moving], 640)
    assert not rejection.applies([moving], 639)
    assert not rejection.applies([other], 640)
    assert not rejection.applies([], 640)
    moving.position = 10
    assert rejection.applies([moving], 630)
    assert not rejection.applies([moving], 629)
    moving.position = 11
    assert not rejection.applies([moving], 640)
