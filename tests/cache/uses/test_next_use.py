"""What is needed last goes first, found in vectors as one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.cache.uses.next_use import LATEST, NEVER, Future, Priorities

KEPT = 1
ORDERS = st.lists(st.integers(0, 9), max_size=40)


@dataclasses.dataclass
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
def test_the_next_use_is_the_first_that_has_not_passed(order: list[int], position: int) -> None:
    found = reader(order).future.next_use(words(range(12)), position)
    assert found.tolist() == [next_use(order, entry, position) for entry in range(12)]


def by_hand(entries: list[int], used: list[int], readers: list[tuple[list[int], int]]) -> list[int]:
    """Rows from who goes first."""

    def distance(entry: int) -> int:
        uses = [(next_use(order, entry, position), position) for order, position in readers]
        return min((use - position for use, position in uses if use != NEVER), default=NEVER)

    return sorted(range(len(entries)), key=lambda row: (-distance(entries[row]), used[row], row))


@given(st.lists(st.tuples(ORDERS, st.integers(0, 40)), max_size=3), st.data())
def test_rows_go_as_they_do_one_by_one(readers: list[tuple[list[int], int]], draw: st.DataObject) -> None:
    entries = draw.draw(st.permutations(range(10)))
    used = draw.draw(st.lists(st.integers(1, 1000), min_size=10, max_size=10, unique=True))
    priorities = Priorities(10)
    living = [reader(order, position) for order, position in readers]
    priorities.refresh(words(entries), np.array(used), np.full(10, KEPT), KEPT, living)
    sizes = np.ones(10, np.int64)
    need = draw.draw(st.integers(1, 10))
    found = priorities.victims(sizes, need, 0, -1)
    whens = priorities.when(words(entries), np.array(used))
    expected = by_hand(entries, used, readers)
    assert found is not None
    assert whens[found].tolist() == whens[expected[:need]].tolist()  # ties may go in any order


@given(ORDERS.filter(len), st.data())
def test_with_one_reader_what_is_remembered_is_what_is_worked_out_anew(order: list[int], draw: st.DataObject) -> None:
    entries, used, state = words(range(10)), np.arange(1, 11), np.full(10, KEPT)
    moving, remembering = reader(order), Priorities(10)
    for clock in range(20, 30):
        remembering.refresh(entries, used, state, KEPT, [moving])
        anew = Priorities(10)
        anew.refresh(entries, used, state, KEPT, [moving])
        sizes = np.ones(10, np.int64)
        assert remembering.victims(sizes, 3, 0, -1) == anew.victims(sizes, 3, 0, -1)
        moving.position = draw.draw(st.integers(moving.position, len(order)))
        used[draw.draw(st.integers(0, 9))] = clock
        state[draw.draw(st.integers(0, 9))] = draw.draw(st.sampled_from([0, KEPT]))


def test_what_comes_in_takes_part() -> None:
    priorities = Priorities(3)
    moving = reader([0, 1, 2, 3])
    priorities.refresh(words([0, 1, 2]), np.ones(3, np.int64), np.full(3, KEPT), KEPT, [moving])
    sizes = np.full(3, 10)

    def victims(incoming: int, need: int) -> list[int] | None:
        when = int(priorities.when(words([incoming]), np.array([LATEST]))[0])
        return priorities.victims(sizes, need, 0, when)

    assert victims(3, 5) is None  # needed last
    moving.position = 1
    priorities.refresh(words([0, 1, 2]), np.ones(3, np.int64), np.full(3, KEPT), KEPT, [moving])
    assert victims(3, 5) == [0]  # nobody wants it any more
    assert victims(3, 15) is None
    assert victims(1, 15) == [0, 2]


def test_a_clock_that_was_set_back_keeps_nothing_out() -> None:
    priorities = Priorities(1)
    priorities.refresh(words([0]), np.array([10**18]), np.full(1, KEPT), KEPT, [])
    incoming = int(priorities.when(words([1]), np.array([LATEST]))[0])
    assert priorities.victims(np.ones(1, np.int64), 1, 0, incoming) == [0]


def test_what_may_not_go_does_not() -> None:
    priorities = Priorities(2)
    priorities.refresh(words([0, 1]), np.ones(2, np.int64), np.array([2, -5]), KEPT, [])
    assert priorities.victims(np.ones(2, np.int64), 1, 0, -1) is None
    assert priorities.victims(np.ones(2, np.int64), 0, 0, -1) == []


def test_with_several_readers_not_all_is_worked_out_anew_each_time() -> None:
    rows, looked_up = 2000, []

    class Counting(Future):
        def next_use(self, words: NDArray[np.uint64], position: int) -> NDArray[np.int64]:
            looked_up.append(len(words))
            return super().next_use(words, position)

    random, entries = np.random.default_rng(0), words(range(rows))
    readers = [Reader(Counting.of(entries, random.permutation(rows))) for _ in range(3)]
    priorities, used = Priorities(rows), np.ones(rows, np.int64)
    for clock in range(2, 300):
        used[clock] = clock
        for moving in readers:
            moving.position += 1
        priorities.refresh(entries, used, np.full(rows, KEPT), KEPT, readers)
    assert looked_up[:3] == [rows] * 3
    assert sum(looked_up[3:]) < 300 * 3 * 20


def test_many_go_at_once() -> None:
    rows = 1000
    used = np.random.default_rng(0).permutation(rows) + 1
    priorities = Priorities(rows)
    priorities.refresh(words(range(rows)), used, np.full(rows, KEPT), KEPT, [])
    assert priorities.victims(np.ones(rows, np.int64), 300, 0, -1) == np.argsort(used)[:300].tolist()
