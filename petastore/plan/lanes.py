"""How many lanes an order has and how long their blocks are, from what exists and the memory for shuffling. Pure.

Mixing costs memory: a batch is as mixed as many live row groups feed it. The number of lanes depends on the data and on
`shuffle_memory` alone, never on the number of ranks: that is what keeps the order the same for any number of ranks.
"""

from __future__ import annotations

import numpy as np

from petastore.inventory import Inventory

__all__ = ["DEFAULT_SHUFFLE_MEMORY", "shuffled_lanes"]

DEFAULT_SHUFFLE_MEMORY = 256 * 1024 * 1024
"""Bytes of stored cells that all ranks together keep for shuffling rows, unless asked otherwise."""

_LANES = (1, 2, 4, 6, 12, 24, 48, 96, 240)
"""Numbers with many divisors: where the ranks divide the lanes, each row group is read by one rank."""

_GROUPS_A_LANE = 3
"""Row groups that a lane keeps: a block of two begins and ends inside others, and the next block overlaps it."""

_GROUPS_A_BLOCK = 2


def shuffled_lanes(
    inventory: Inventory, *, shuffle_memory: int, lanes: int | None, block_rows: int | None
) -> tuple[int, int]:
    """Lanes and rows a block of an order that shuffles rows.

    Args:
        inventory: What exists.
        shuffle_memory: Bytes that all ranks together may keep.
        lanes: Asked for by name, or None to choose.
        block_rows: Asked for by name, or None to choose.

    Returns:
        Lanes and rows a block, both at least 1.

    Example:
        >>> shuffled_lanes(Inventory.of_rows([1000] * 600), shuffle_memory=10**9, lanes=None, block_rows=None)
        (48, 2000)
    """
    filled = inventory.rows[inventory.rows > 0]
    group_rows = int(np.ceil(filled.mean())) if len(filled) else 1
    row_bytes = max(inventory.decoded_bytes.sum() / max(inventory.num_rows, 1), 1)
    groups_in_memory = shuffle_memory / (group_rows * row_bytes)
    if lanes is None:
        most = min(len(filled), groups_in_memory / _GROUPS_A_LANE)
        lanes = max([number for number in _LANES[: _LANES.index(48) + 1] if number <= most], default=1)
    if block_rows is None:
        lane_rows = -(-inventory.num_rows // lanes)
        in_memory = int(shuffle_memory / row_bytes / lanes)
        block_rows = max(min(lane_rows, in_memory, _GROUPS_A_BLOCK * group_rows), 1)
    return lanes, block_rows
