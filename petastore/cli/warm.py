"""Warming: the column chunks that a plan will need come into the local disk cache before somebody trains on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from petastore.cache import DiskCache
    from petastore.dataset import Dataset
    from petastore.plan.plan import Plan

__all__ = ["Warmed", "warm"]

_FUTURES = 64
"""What readers announce takes so small a part of the limit at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Warmed:
    """What warming a cache did. Sizes are bytes."""

    row_groups: int
    """Row groups whose chunks are in the cache now."""
    row_groups_without_room: int
    """Row groups that were not fetched, since the cache has no room for them; those that are needed last."""
    entries_fetched: int
    entries_there: int
    """Entries that were in the cache already."""
    entries_not_kept: int
    """Entries that were fetched, and that the cache did not take."""
    requests: int
    """Requests to storage for chunks, those that failed too."""
    bytes_fetched: int
    """Bytes of their answers."""


def warm(dataset: Dataset, plan: Plan, *, progress: Callable[[int, int], None]) -> Warmed:
    """Fetches what a plan reads in its first epoch into the cache of a dataset, what is needed first before the rest.

    What would not fit is not fetched. Of columns that the cache keeps decoded, chunks are decoded once.

    Args:
        dataset: With a cache.
        plan: Of the dataset.
        progress: Called with the row groups that are done, and all of them.

    Raises:
        InvalidArgumentError: Nothing of the dataset is kept in a cache.
        DatasetChangedError: A file is not the one that the inventory describes.
        StorageError: It cannot be read, or there is no cache that can be used.
    """
    from petastore.readers.fetches import fetches_of
    from petastore.storage.requests.at_once import at_once
    from petastore.storage.row_groups.open_files import OpenFiles
    from petastore.storage.row_groups.planned_chunks import planned_chunks

    cache = dataset.kept.cache
    if cache is None:
        raise InvalidArgumentError(
            f"nothing of {dataset.url} is kept in a cache: it is on the local disk already, or is not read by ranges"
        )
    columns = tuple(name for name in plan.request.columns if name not in dataset.partition_names)
    wanted = plan.row_groups(0)
    fitting = wanted[: _that_fit(fetches_of(dataset, columns).kept_bytes[wanted], cache)]
    files = OpenFiles()
    before = cache.metrics
    pinned = files.pinned(dataset.location, dataset.kept)
    if pinned is None:
        raise InvalidArgumentError(f"{dataset.url} is not read by ranges, so nothing of it is kept in a cache")

    def fetch(group: int) -> None:
        file, ordinal = plan.inventory.place_of(group)
        footer = dataset.footers.get(dataset.location, file)
        chunks = planned_chunks(footer, ordinal, (columns,), dataset.kept)
        pinned.fetch(footer.file, footer.encoded, chunks.columns, chunks, footer.version)

    try:
        progress(0, len(fitting))
        for done, _ in enumerate(at_once(fetch, fitting.tolist()), 1):
            progress(done, len(fitting))
        counts = pinned.fetcher.counts
    finally:
        files.close()
    now = cache.metrics
    return Warmed(
        row_groups=len(fitting),
        row_groups_without_room=len(wanted) - len(fitting),
        entries_fetched=now.misses - before.misses,
        entries_there=now.hits - before.hits,
        entries_not_kept=now.bypassed - before.bypassed,
        requests=counts.requests,
        bytes_fetched=counts.bytes,
    )


def _that_fit(sizes: NDArray[np.int64], cache: DiskCache) -> int:
    """How many row groups have room, the first of them first."""
    found = cache.info()
    room = found.limit - found.limit // _FUTURES - found.ledger_bytes
    return int(np.searchsorted(np.cumsum(sizes), room, side="right"))
