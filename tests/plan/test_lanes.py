"""Tests of the number of lanes and the block size: chosen from shuffle buffer and dataset, not from ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from petastore.inventory import Inventory
from petastore.plan.request import in_memory, shuffled_lanes
from tests.laws.plan_laws import inventories

KNOWN = [1, 2, 4, 6, 12, 24, 48, 96]


def chosen(inventory: Inventory, memory: int) -> tuple[int, int]:
    return shuffled_lanes(inventory, shuffle_buffer_bytes=memory, lanes=None, block_rows=None)


@given(inventories(), st.integers(1, 10**6))
def test_default_number_of_lanes_has_many_divisors(inventory: Inventory, memory: int) -> None:
    lanes, block_rows = chosen(inventory, memory)
    assert lanes in KNOWN
    assert lanes <= max(int(np.count_nonzero(inventory.rows)), 1)
    assert block_rows >= 1


@given(inventories(), st.integers(1, 10**6), st.integers(1, 10**6))
def test_larger_shuffle_buffer_never_gives_fewer_lanes(inventory: Inventory, memory: int, more: int) -> None:
    assert chosen(inventory, memory)[0] <= chosen(inventory, memory + more)[0]


@given(st.integers(2, 500), st.integers(1, 200), st.integers(1, 10**8))
def test_lanes_and_blocks_fit_in_the_shuffle_buffer(groups: int, rows: int, memory: int) -> None:
    inventory = Inventory.of_rows([rows] * groups, bytes_per_row=8)
    lanes, block_rows = chosen(inventory, memory)
    if lanes > 1:
        assert lanes * 2 * rows * 8 <= memory
    if block_rows > 1:
        assert lanes * (block_rows + rows) * 8 <= memory


def test_shuffle_buffer_is_spent_on_lanes_before_block_rows() -> None:
    inventory = Inventory.of_rows([1000] * 600, bytes_per_row=8)
    assert [chosen(inventory, memory)[0] for memory in (1, 10**5, 10**6, 10**7)] == [1, 6, 48, 96]
    assert chosen(inventory, 10**12) == (96, 2**19 // 96 - 1000)


def test_explicit_lane_options_are_used() -> None:
    inventory = Inventory.of_rows([1000] * 600)
    assert shuffled_lanes(inventory, shuffle_buffer_bytes=1, lanes=7, block_rows=13) == (7, 13)
    assert shuffled_lanes(inventory, shuffle_buffer_bytes=10**6, lanes=12, block_rows=None)[0] == 12
    assert shuffled_lanes(inventory, shuffle_buffer_bytes=10**6, lanes=None, block_rows=13) == (48, 13)


def test_plan_without_rows_has_one_lane() -> None:
    for rows in ([], [0], [0, 0]):
        assert chosen(Inventory.of_rows(rows), 10**6)[0] == 1


def test_row_groups_without_selected_rows_do_not_count_for_memory() -> None:
    inventory = Inventory.of_rows([10, 20, 30], bytes_per_row=8)
    meant = in_memory(inventory, np.array([0, 1, 30]))
    assert meant.num_rows == 31
    # The second row group has one selected row, but is kept in memory as a whole.
    assert meant.decoded_bytes.tolist() == [0, *inventory.decoded_bytes[1:].tolist()]
