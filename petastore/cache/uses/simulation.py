"""What a cache would hit: the rule that the cache follows, written down as simply as it can be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.cache.uses.next_use import BATCHES, NEVER

__all__ = ["Policy", "simulate"]

Policy: TypeAlias = Literal["belady", "lru"]
"""What goes first: what is needed last in this epoch and the next, or what was used longest ago."""


def simulate(
    orders: Sequence[NDArray[np.int64]], sizes: NDArray[np.int64], limit: int, policy: Policy
) -> list[NDArray[np.bool_]]:
    """Which uses find their entry in a cache that is empty at first.

    Args:
        orders: For each epoch the numbers of entries in the order of their use.
        sizes: Bytes of each entry; shape (entries,).
        limit: Bytes that entries may have together.
        policy: What goes first.

    Returns:
        For each epoch, whether each use is a hit; shaped as its order.

    Example:
        >>> order, sizes = np.arange(4), np.ones(4, np.int64)
        >>> [hits.sum() for hits in simulate([order] * 3, sizes, 2, "belady")]
        [np.int64(0), np.int64(2), np.int64(2)]
        >>> [hits.sum() for hits in simulate([order] * 3, sizes, 2, "lru")]
        [np.int64(0), np.int64(0), np.int64(0)]
    """
    last_use = np.zeros(len(sizes), np.int64)
    is_kept = np.zeros(len(sizes), bool)
    hits, clock = [], 0
    for epoch, order in enumerate(orders):
        announced = np.concatenate([order, *orders[epoch + 1 : epoch + 2]])
        next_use = np.full(len(sizes), NEVER)
        next_use[announced[::-1]] = np.arange(len(announced))[::-1]
        following = _following(announced)
        of_epoch = np.zeros(len(order), bool)
        # Place and latest next use of the last time that all kept entries were needed sooner.
        rejected, latest = -NEVER, 0
        for place, entry in enumerate(order.tolist()):
            clock += 1
            next_use[entry] = following[place]
            of_epoch[place] = is_kept[entry]
            last_use[entry] = clock
            if is_kept[entry] or sizes[entry] > limit:
                continue
            has_room = sizes[is_kept].sum() + sizes[entry] <= limit
            is_remembered = (place - rejected) * BATCHES < latest - rejected
            if not has_room and is_remembered and following[place] >= latest:
                continue
            goes_last = next_use if policy == "belady" else np.full(len(sizes), NEVER)
            stays = np.lexsort((-last_use, goes_last))
            if _take_in(entry, is_kept, sizes, limit, stays):
                continue
            sooner = goes_last[is_kept]
            if len(sooner) and sooner.max() < following[place]:
                rejected, latest = place, int(sooner.max())
        hits.append(of_epoch)
    return hits


def _following(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each use, the place of the next one of the same entry."""
    following = np.full(len(order), NEVER)
    by_entry = np.argsort(order, kind="stable")
    is_same = order[by_entry[1:]] == order[by_entry[:-1]]
    following[by_entry[:-1][is_same]] = by_entry[1:][is_same]
    return following


def _take_in(
    entry: int, is_kept: NDArray[np.bool_], sizes: NDArray[np.int64], limit: int, stays: NDArray[np.int64]
) -> bool:
    """Keep an entry if a batch of those that stay less long makes room for it; `stays` has the longest first."""
    need = sizes[is_kept].sum() + sizes[entry] - limit
    batch = max(need, limit // BATCHES) if need > 0 else 0
    goes, freed = [], 0
    for other in stays[::-1].tolist():
        if freed >= batch or other == entry:
            break
        if is_kept[other]:
            goes.append(other)
            freed += sizes[other]
    if freed < need:
        return False
    is_kept[goes] = False
    is_kept[entry] = True
    return True
