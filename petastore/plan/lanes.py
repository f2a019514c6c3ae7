"""Choose the number of lanes and the length of their blocks from the row groups and the memory for shuffling. No I/O.

A lane is a sequence of row groups; a batch has rows of all lanes. More lanes mix rows better, but need more memory. The
number of lanes depends only on the data and on `shuffle_buffer_bytes`, so that the order is the same for any number of
ranks.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from petastore.inventory import Inventory

__all__ = ["DEFAULT_SHUFFLE_BUFFER_BYTES", "in_memory", "shuffled_lanes"]

DEFAULT_SHUFFLE_BUFFER_BYTES = 256 * 1024 * 1024
"""Default shuffle buffer over all ranks, in bytes of stored cells."""

_LANES = (1, 2, 4, 6, 12, 24, 48, 96)
"""Numbers of lanes to choose from: if divisible by the number of ranks, each row group is read by one rank."""

_GROUPS_A_LANE = 2
"""Row groups in memory per lane: the current one, and the prefetched next one."""

_PERMUTED_ROWS = 2**19
"""Maximum rows of all blocks together for enlarged blocks: the first batch waits until all are shuffled."""


def in_memory(inventory: Inventory, rows: NDArray[np.int64]) -> Inventory:
    """Return the inventory with the number of selected rows, and no bytes for row groups without selected rows.

    The bytes of other row groups do not change, because shuffling keeps whole row groups in memory.

    Args:
        inventory: Inventory of the dataset.
        rows: Selected rows of each row group, shape (groups,).
    """
    return dataclasses.replace(inventory, rows=rows, decoded_bytes=np.where(rows > 0, inventory.decoded_bytes, 0))


def shuffled_lanes(
    inventory: Inventory, *, shuffle_buffer_bytes: int, lanes: int | None, block_rows: int | None
) -> tuple[int, int]:
    """Return the number of lanes, and the number of rows per block, for an order that shuffles rows.

    With the same memory, many lanes of short blocks mix better than few lanes of long blocks. Memory is therefore used
    for lanes first, and for blocks of several row groups only if there are enough lanes.

    Args:
        inventory: Inventory of the dataset.
        shuffle_buffer_bytes: Maximum bytes over all ranks.
        lanes: Requested number of lanes; None to choose it.
        block_rows: Requested rows per block; None to choose them.

    Returns:
        Number of lanes, and rows per block, both at least 1.

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
