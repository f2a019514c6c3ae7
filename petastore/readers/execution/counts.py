"""What was counted while the files of some datasets were read: requests, and what caches had of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from petastore.dataset import Dataset

if TYPE_CHECKING:
    from petastore.cache.metrics import CacheMetrics

__all__ = ["counts_of"]


def counts_of(datasets: Iterable[Dataset]) -> dict[str, int]:
    """All counts of some datasets, summed; those that share what they keep are counted once.

    Requests are counted of files elsewhere, chunks and footers where a cache keeps them.
    """
    kept = list({id(dataset.kept): dataset for dataset in datasets}.values())
    requests = [dataset.kept.asked.counts._asdict() for dataset in kept if not dataset.location.is_local]
    caches = {id(dataset.kept.cache): dataset.kept.cache for dataset in kept}
    of_chunks = [dataclasses.asdict(cache.metrics) for cache in caches.values() if cache is not None]
    footers = {id(dataset.kept.footers): dataset.kept.footers for dataset in kept}
    of_footers = [_of_footers(cache.metrics) for cache in footers.values() if cache is not None]
    return {**_summed("storage", requests), **_summed("cache", of_chunks), **_summed("footer", of_footers)}


def _of_footers(metrics: CacheMetrics) -> dict[str, int]:
    return {"hits": metrics.hits, "misses": metrics.misses, "damaged": metrics.damaged}


def _summed(what: str, counted: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {f"{what}_{name}": sum(one[name] for one in counted) for name in (counted[0] if counted else ())}
