"""Tests of `exclude_rows`: it removes only the given rows from a selection."""

from __future__ import annotations

import dataclasses

import numpy as np

from petastore.inventory import Inventory
from petastore.plan.selection import Selection
from petastore.selecting.selected_groups import exclude_rows

INVENTORY = Inventory.of_rows([3, 5])


def test_exclude_rows_removes_only_the_given_rows_from_a_selection() -> None:
    before = Selection(np.array([3, 2]), {1: np.array([True, False, False, False, True])})
    left = exclude_rows(before, INVENTORY, [("part-00000.parquet", 1, 4), ("part-00000.parquet", 1, 2)])
    assert left == Selection(np.array([3, 1]), {1: np.array([True, False, False, False, False])})


def test_exclude_rows_removes_a_row_from_each_occurrence_of_its_file() -> None:
    twice = dataclasses.replace(
        INVENTORY, files=INVENTORY.files * 2, file=np.array([0, 1], np.int32), ordinal=np.array([0, 0], np.int32)
    )
    left = exclude_rows(None, twice, [("part-00000.parquet", 0, 0)])
    assert left is not None
    assert left.counts.tolist() == [2, 4]
