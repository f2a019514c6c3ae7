"""Tests of the fuzz targets: they read their seeds, and seeds with a changed byte or truncated."""

from __future__ import annotations

import numpy as np
import pytest

from petastore.errors import PetastoreError
from tests.fuzz.targets import TARGETS, outcome


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_target_reads_seeds_and_damaged_seeds(name: str) -> None:
    target, chance = TARGETS[name](), np.random.default_rng(7)
    assert any(not isinstance(outcome(target, seed), PetastoreError) for seed in target.seeds)
    for seed in target.seeds:
        for _ in range(10):
            place = int(chance.integers(len(seed)))
            outcome(target, seed[:place])
            outcome(target, seed[:place] + bytes([seed[place] ^ 1 << int(chance.integers(8))]) + seed[place + 1 :])
