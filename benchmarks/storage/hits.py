"""Latency of a cache hit, and the hit rate of a cache that has room for half of the data."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from benchmarks.cache_orders import seconds_of_a_hit
from benchmarks.storage.children import Child
from benchmarks.storage.far import Bench, Line
from benchmarks.storage.figures import Figure
from benchmarks.storage.tables import table_of
from petastore.cache import DiskCache, simulate

__all__ = ["cost", "half_of_the_data"]

EPOCHS = 7


def cost(bench: Bench) -> list[Figure]:
    """A hit of 1 MB beside reading the page cache, in turns."""
    taken = [seconds_of_a_hit() for _ in range(bench.rounds)]
    fresh, same = zip(*taken, strict=True)
    return [
        Figure("a hit of 1 MB", [hit * 1e6 for hit, _ in fresh], "µs"),
        Figure("pread of it from the page cache, fresh memory", [read * 1e6 for _, read in fresh], "µs"),
        Figure("hit / pread into fresh memory", [hit / read for hit, read in fresh], "×", most=1.5),
        Figure("hit / pread into memory that is in use", [hit / read for hit, read in same], "×", most=1.5),
    ]


def half_of_the_data(bench: Bench) -> list[Figure]:
    """Readers of a table, whose cache has room for half of what they read; hits after the first epoch."""
    groups = table_of(bench).rows // table_of(bench).row_group
    room, hits = _room_for_half(bench), {}
    for reshuffle in ("static", "epoch"):
        with bench.line() as line, tempfile.TemporaryDirectory(dir=bench.folder) as kept:
            hits[reshuffle] = _hits_after_the_first(bench, line, kept, room, reshuffle)
    dice = np.random.default_rng(0)
    orders = [dice.permutation(groups) for _ in range(EPOCHS)]
    recency = float(np.mean(simulate(orders, np.ones(groups, np.int64), groups // 2, "lru")[1:]))
    return [
        Figure("static order: hits", [hits["static"] * 100], "%", least=48),
        Figure("shuffled anew each epoch: hits", [hits["epoch"] * 100], "%"),
        Figure("the same by recency, simulated", [recency * 100], "%"),
        Figure("the same, times recency's", [hits["epoch"] / recency], "×", least=2),
    ]


def _room_for_half(bench: Bench) -> int:
    """A limit that half of the entries fit into, with what else the cache counts."""
    with bench.line() as line, tempfile.TemporaryDirectory(dir=bench.folder) as kept:
        with _reader(bench, line, kept, 1 << 30, "static", epochs=1) as child:
            child.epoch()
        with DiskCache(kept, limit=1 << 30) as cache:
            half = cache.info().entry_bytes // 2
    with tempfile.TemporaryDirectory(dir=bench.folder) as kept, DiskCache(kept, limit=max(half, 1 << 20)) as cache:
        ledger = cache.info().ledger_bytes
    return half + half // 63 + 2 * ledger  # futures may take a 64th, and a larger limit has a larger ledger


def _hits_after_the_first(bench: Bench, line: Line, kept: str, limit: int, reshuffle: str) -> float:
    with _reader(bench, line, kept, limit, reshuffle, epochs=EPOCHS) as child:
        first = child.epoch()["diagnostics"]
        for _ in range(EPOCHS - 1):
            child.go_on()
            last = child.epoch()["diagnostics"]
    hits, misses = (last[name] - first[name] for name in ("cache_hits", "cache_misses"))
    return float(hits / (hits + misses))


def _reader(bench: Bench, line: Line, kept: str, limit: int, reshuffle: str, *, epochs: int) -> Child:
    workload = table_of(bench)
    options: dict[str, Any] = {"storage_options": line.options, "seed": 0, "reshuffle_each_epoch": reshuffle}
    cache: dict[str, Any] = {"cache_type": "local-disk", "cache_location": kept, "cache_size_limit": limit}
    return Child(
        "benchmarks.storage.reading", "table", "s3://tables/table", workload.rows,
        scale=bench.scale, epochs=epochs, **options, **cache,
    )  # fmt: skip
