"""What reading a plan will ask of a storage elsewhere, what a cache will save of that, and what it costs. Pure.

Who knows the footers says what each row group takes (`petastore.readers.fetches`); here is what comes of it, epoch
after epoch, by the rule that the cache follows (`petastore.cache.simulate`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError

__all__ = ["Cost", "EpochCost", "Fetches", "StorageAsk", "cost_of"]

GB = 10**9
"""Storages bill 1,000,000,000 bytes as a gigabyte."""

_SIMULATED = 4096
"""So many row groups are simulated one by one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fetches:
    """What row groups take to be fetched, and their files to be begun with, when nothing is kept of them yet."""

    requests: NDArray[np.int64]
    """Requests for the chunks of each row group, shape (row groups,)."""

    bytes: NDArray[np.int64]
    """Bytes of their answers, holes included that are fetched along, shape (row groups,)."""

    entries: NDArray[np.int64]
    """Entries that a cache keeps of each row group, which are column chunks or several of them, shape (row groups,)."""

    kept_bytes: NDArray[np.int64]
    """Bytes of disk that these take in a cache, shape (row groups,)."""

    file: NDArray[np.int32]
    """The file of each row group, shape (row groups,)."""

    file_requests: NDArray[np.int64]
    """Requests for each file before its first row group, shape (files,)."""

    file_bytes: NDArray[np.int64]
    """Bytes of their answers, shape (files,)."""


@dataclasses.dataclass(frozen=True)
class StorageAsk:
    """Of what storage the cost is asked.

    Raises:
        InvalidArgumentError: A price is below 0, or the room or the number of epochs is none.
    """

    fetches: Fetches
    """What row groups take."""

    cache_bytes: int | None = None
    """Bytes that this rank has for entries in an empty cache of its own; None is no cache."""

    price_per_request: float = 0.0
    """Money for a request, in any currency."""

    price_per_gb: float = 0.0
    """Money for 1,000,000,000 bytes that come."""

    epochs: int = 2
    """How many epochs are looked at, from the first one on, at least 1."""

    def __post_init__(self) -> None:
        least = {"price_per_request": 0, "price_per_gb": 0, "cache_bytes": 0, "epochs": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise InvalidArgumentError(f"{name}={value!r}, but it must be at least {bound}")


@dataclasses.dataclass(frozen=True)
class EpochCost:
    """One epoch of one rank."""

    requests: int
    """Requests for column chunks and for what stands before them."""

    bytes: int
    """Bytes of their answers."""

    entries: int
    """Entries of a cache that are read: column chunks, or several that are kept together."""

    hits: int
    """Those of them that a cache has."""

    money: float
    """What the requests and bytes cost."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a rank will ask of a storage, and what that costs."""

    epochs: tuple[EpochCost, ...]
    """Each epoch from the first one on."""

    @property
    def money(self) -> float:
        """What all of them cost."""
        return sum(epoch.money for epoch in self.epochs)


def cost_of(orders: Sequence[NDArray[np.int64]], asked: StorageAsk) -> Cost:
    """What some epochs cost, of a dataset that is open.

    A row group that a cache has is not asked for. What a cache will have is worked out by the rule that it follows;
    with more than 4,096 row groups in an epoch, and room for some of them, as if those that came first stayed.

    Args:
        orders: Row groups of each epoch, in the order in which they are needed; each is fetched once in it.
        asked: What they take, and what that costs.

    Raises:
        InvalidArgumentError: `fetches` is of other row groups.

    Example:
        >>> one = np.ones(4, np.int64)
        >>> fetches = Fetches(2 * one, 100 * one, 3 * one, 8192 * one, np.zeros(4, np.int32), one[:1], 50 * one[:1])
        >>> order = np.array([2, 0, 1, 3])
        >>> half = StorageAsk(fetches, cache_bytes=16_384, price_per_request=0.25)
        >>> [(epoch.requests, epoch.bytes, epoch.hits, epoch.money) for epoch in cost_of([order] * 2, half).epochs]
        [(9, 450, 0, 2.25), (4, 200, 6, 1.0)]
    """
    fetches = asked.fetches
    if any(len(order) and order.max() >= len(fetches.requests) for order in orders):
        raise InvalidArgumentError(f"fetches are of {len(fetches.requests):,} row groups, and the plan reads others")
    begun = np.zeros(len(fetches.file_requests), dtype=np.bool_)
    epochs = []
    for order, is_kept in zip(orders, _hits(orders, asked), strict=True):
        missing = order[~is_kept]
        new = np.unique(fetches.file[missing])
        new = new[~begun[new]]
        begun[new] = True
        requests = int(fetches.requests[missing].sum() + fetches.file_requests[new].sum())
        size = int(fetches.bytes[missing].sum() + fetches.file_bytes[new].sum())
        money = requests * asked.price_per_request + size / GB * asked.price_per_gb
        entries, hits = int(fetches.entries[order].sum()), int(fetches.entries[order[is_kept]].sum())
        epochs.append(EpochCost(requests, size, entries, hits, money))
    return Cost(tuple(epochs))


def _hits(orders: Sequence[NDArray[np.int64]], asked: StorageAsk) -> list[NDArray[np.bool_]]:
    """Of each epoch, which of its row groups a cache has."""
    sizes, room = asked.fetches.kept_bytes, asked.cache_bytes
    if room is None:
        return [np.zeros(len(order), dtype=np.bool_) for order in orders]
    ever = np.unique(np.concatenate(orders))
    if int(sizes[ever].sum()) > room and len(ever) <= _SIMULATED:
        from petastore.cache.uses.simulation import simulate  # 20 ms that only who asks for it waits

        return simulate(orders, sizes, room, "belady")
    kept = np.zeros(len(sizes), dtype=np.bool_)
    are_kept, taken = [], 0
    for order in orders:
        are_kept.append(kept[order])
        new = order[~kept[order]]
        after = taken + np.cumsum(sizes[new])
        stays = new[: int(np.searchsorted(after, room, side="right"))]
        kept[stays] = True
        taken += int(sizes[stays].sum())
    return are_kept
