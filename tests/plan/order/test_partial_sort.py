"""Tests of partially computed permutations: entries equal those of the whole permutation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.plan.order.mix import hashed_permutation, mix
from petastore.plan.order.partial_sort import PartialSort
from tests.tier import examples

states = st.integers(0, 2**64 - 1)
lengths = st.integers(1, 40) | st.integers(1, 6000) | st.sampled_from([1, 2, 4096, 4097, 140_000])


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), permutations=st.lists(st.tuples(states, lengths), min_size=1, max_size=6))
def test_entries_of_a_permutation_computed_partially_equal_the_whole_one(
    data: st.DataObject, permutations: list[tuple[int, int]]
) -> None:
    which, places, expected = [], [], []
    for number, (state, length) in enumerate(permutations):
        whole = hashed_permutation(state, length)
        first = data.draw(st.integers(0, length - 1))
        scattered = data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=5))
        following = range(first, min(first + data.draw(st.integers(1, 50)), length))
        for place in data.draw(st.sampled_from([scattered, following, range(length)])):
            which.append(number)
            places.append(place)
            expected.append(int(whole[place]))
    of_states = np.array([state for state, _ in permutations], dtype=np.uint64)
    of_lengths = np.array([length for _, length in permutations])
    found = PartialSort().numbers_at(of_states, of_lengths, np.array(which), np.array(places))
    assert found.tolist() == expected
    assert PartialSort().places_of(of_states, of_lengths, np.array(which), found).tolist() == places


@pytest.mark.parametrize("length", [1, 7, 1000, 5361])
def test_each_entry_of_a_permutation_can_be_computed_alone_and_inverted(length: int) -> None:
    """Many entries are further from their quantile than the margin, which must then grow."""
    of_states = np.array([mix(length)], dtype=np.uint64)
    whole, of_lengths = hashed_permutation(mix(length), length), np.array([length])
    for place in range(length):
        found = PartialSort().numbers_at(of_states, of_lengths, np.zeros(1, np.int64), np.array([place]))
        assert found[0] == whole[place]
        assert PartialSort().places_of(of_states, of_lengths, np.zeros(1, np.int64), found)[0] == place


def test_computing_no_entries_of_a_permutation_returns_an_empty_array() -> None:
    nothing = np.empty(0, np.int64)
    for look_up in (PartialSort().numbers_at, PartialSort().places_of):
        assert look_up(nothing.astype(np.uint64), nothing, nothing, nothing).tolist() == []
