"""Tests of random generators per row: determined by their keys, and continued on a second access."""

from __future__ import annotations

import numpy as np
import pytest

from petastore.transforming.random_generators import RowGenerators, generator_of

KEYS = np.array([[7, 0], [7, 1], [8, 0]], np.uint64)


def test_row_random_generators_are_deterministic() -> None:
    drawn = [of_row.integers(2**60) for of_row in RowGenerators(KEYS)]
    assert drawn == [generator_of(key).integers(2**60) for key in KEYS]
    assert len(set(drawn)) == 3


def test_row_random_generator_continues_on_second_access() -> None:
    rng = RowGenerators(KEYS)
    first = rng[0].random(3)
    assert rng[0].random() not in first
    assert rng[0] is rng[-3] is rng[:2][0]
    assert len(rng) == len(list(rng)) == 3
    with pytest.raises(IndexError):
        rng[3]
