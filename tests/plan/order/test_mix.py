"""Tests of the 64-bit hash function: values that must not change, and equal results for numbers and arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.plan.order.mix import hashed_permutation, mix, mix_array


def test_hash_function_equals_the_published_splitmix64_vector() -> None:
    # This is the published test vector of SplitMix64 for seed 0: its first output.
    assert mix(0) == 0xE220A8397B1DCDAF


def test_hash_values_are_unchanged_between_versions() -> None:
    assert mix(7) == 0x63CBE1E459320DD7
    assert mix(-1) == mix(2**64 - 1)  # two's complement
    assert mix(2**64) == mix(0, 1)  # least significant limb first


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_hash_of_an_array_equals_the_hashes_of_its_numbers(state: int, words: list[int]) -> None:
    whole = mix_array(mix(state), np.array(words, dtype=np.uint64))
    assert whole.tolist() == [mix(state, word) for word in words]


@given(st.integers(), st.integers(0, 3000))
def test_hashed_permutation_has_each_number_once(state: int, length: int) -> None:
    assert sorted(hashed_permutation(mix(state), length).tolist()) == list(range(length))


def test_hashed_permutation_is_unchanged_between_versions() -> None:
    assert hashed_permutation(mix(1, 2, 3), 12).tolist() == [0, 7, 5, 8, 3, 6, 9, 10, 2, 1, 11, 4]
