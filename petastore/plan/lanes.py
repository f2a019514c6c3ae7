"""How many lanes an order has and how long their blocks are, from what exists and the memory for shuffling. Pure.

Mixing costs memory: a batch is as mixed as many live row groups feed it. The number of lanes depends on the data and on
`shuffle_buffer_bytes` alone, never on the number of ranks: that is what keeps the order the same for any number of
ranks.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from petastore.inventory import Inventory

__all__ = ["DEFAULT_SHUFFLE_BUFFER_BYTES", "in_memory", "shuffled_lanes"]

DEFAULT_SHUFFLE_BUFFER_BYTES = 256 * 1024 * 1024
"""Bytes of stored cells that all ranks together keep for shuffling rows, unless asked otherwise."""

_LANES = (1, 2, 4, 6, 12, 24, 48, 96)
"""Numbers with many divisors: where the ranks divide the lanes, each row group is read by one rank."""

_GROUPS_A_LANE = 2
"""Row groups that a lane keeps: the one that is given out, and the next one on its way."""

_PERMUTED_ROWS = 2**19
"""Rows of all blocks together that longer blocks are made of at most: the first batch waits for their permutation."""


def in_memory(inventory: Inventory, rows: NDArray[np.int64]) -> Inventory:
    """What shuffling has to deal with: the rows that are meant, and whole row groups around them in memory.

    Args:
        inventory: What exists.
        rows: Rows of each row group that are meant, shape (groups,).
    """
    return dataclasses.replace(inventory, rows=rows, decoded_bytes=np.where(rows > 0, inventory.decoded_bytes, 0))


def shuffled_lanes(
    inventory: Inventory, *, shuffle_buffer_bytes: int, lanes: int | None, block_rows: int | None
) -> tuple[int, int]:
    """Lanes and rows a block of an order that shuffles rows.

    Many lanes of short blocks mix better than few lanes of long ones that need the same memory, so memory goes to lanes
    first, and to blocks of several row groups only where there are lanes enough.

    Args:
        inventory: What exists.
        shuffle_buffer_bytes: Bytes that all ranks together may keep.
        lanes: Asked for by name, or None to choose.
        block_rows: Asked for by name, or None to choose.

    Returns:
        Lanes and rows a block, both at least 1.

    Example:
        >>> shuffled_lanes(Inventory.of_rows([1000] * 600), shuffle_buffer_bytes=10**6, lanes=None, block_rows=None)
        (48, 1604)
    """
    filled = int(np.count_nonzero(inventory.rows))
    group_rows = -(-inventory.num_rows // filled) if filled else 1
    row_bytes = max(float(inventory.decoded_bytes.sum()) / max(inventory.num_rows, 1), 1.0)
    groups_in_memory = shuffle_buffer_bytes / (group_rows * row_bytes)
    if lanes is None:
        most = min(filled, groups_in_memory / _GROUPS_A_LANE)
        lanes = max([number for number in _LANES if number <= most], default=1)
    if block_rows is None:
        rows_in_memory = min(int(groups_in_memory * group_rows), _PERMUTED_ROWS)
        block_rows = max(rows_in_memory // lanes - group_rows, 1)
    return lanes, block_rows
