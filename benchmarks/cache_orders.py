"""Hit rate and latency of the local disk cache: `python -m benchmarks.cache_orders`. Creates its own entries.

Hit rates are simulated for a cache that has room for half of the data, in the epochs after the first: for a fixed order
and for an order that is reshuffled in each epoch, with eviction by next use and by LRU. Then a hit of 1 MB is timed, in
turns with `os.pread` of the same bytes from the page cache into a fresh buffer, and the selection of entries to evict
among 100,000 entries. Exits with 1 if a bound is exceeded.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from petastore.cache import DiskCache, simulate
from petastore.cache.next_use import BATCHES, LATEST, Future, Policy, eviction_order, victims

ENTRIES = 1_000
EPOCHS = 8
STATIC = 0.48
"""At least so many uses of a static order are hits."""

TIMES_LRU = 2.0
"""At least so many times the hits of recency, with a new order each epoch."""

MEGABYTE = 1 << 20
ROUNDS = 300
TIMES_PREAD = 1.5
"""A hit takes at most so many times as long as reading the page cache."""

MANY = 100_000
VICTIM_S = 1e-3
"""Making room takes at most so long with many entries."""


def hit_rate(orders: Sequence[NDArray[np.int64]], policy: Policy) -> float:
    """Hits among the uses after the first epoch, with room for half of the data."""
    hits = simulate(orders, np.ones(ENTRIES, np.int64), ENTRIES // 2, policy)
    return float(np.mean(hits[1:]))


def hit_rates() -> bool:
    """Prints them; whether the bounds are kept."""
    random = np.random.default_rng(0)
    static = [random.permutation(ENTRIES)] * EPOCHS
    shuffled = [random.permutation(ENTRIES) for _ in range(EPOCHS)]
    print(f"hits with room for half of {ENTRIES:,} entries   by next use   by recency")
    rates = {}
    for name, orders in (("static order", static), ("shuffled anew each epoch", shuffled)):
        rates[name] = by_use, by_recency = hit_rate(orders, "belady"), hit_rate(orders, "lru")
        print(f"  {name:<42} {by_use:>10.1%} {by_recency:>12.1%}")
    by_use, by_recency = rates["shuffled anew each epoch"]
    return rates["static order"][0] >= STATIC and by_use >= TIMES_LRU * by_recency


def seconds_in_turns(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The median of each call; they take turns."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, of_call in zip(calls, taken, strict=True):
            began = time.perf_counter()
            call()
            of_call.append(time.perf_counter() - began)
    return [statistics.median(of_call) for of_call in taken]


def seconds_of_a_hit(rounds: int = ROUNDS) -> tuple[tuple[float, float], tuple[float, float]]:
    """Of a hit of 1 MB, beside reading it from the page cache: into fresh memory, and into memory that is in use."""
    data = os.urandom(MEGABYTE)
    with tempfile.TemporaryDirectory() as folder, DiskCache(folder, limit=64 * MEGABYTE) as cache:
        plain = Path(folder, "plain")
        plain.write_bytes(data)
        fd = os.open(plain, os.O_RDONLY)

        def hit() -> None:
            with cache.entry("key", lambda: data):
                pass

        def into_fresh_memory() -> None:
            read.append(os.pread(fd, MEGABYTE, 0))

        def into_the_same_memory() -> None:
            os.pread(fd, MEGABYTE, 0)

        read: list[bytes] = []
        hit()
        of_hit, fresh = seconds_in_turns([hit, into_fresh_memory], rounds)
        read.clear()
        hit_again, same = seconds_in_turns([hit, into_the_same_memory], rounds)
        os.close(fd)
    return (of_hit, fresh), (hit_again, same)


def cost_of_a_hit() -> bool:
    """Prints it beside that of reading the page cache; whether the bound is kept."""
    (of_hit, fresh), (hit_again, same) = seconds_of_a_hit()
    print("a hit of 1 MB, all things counted, beside pread of it from the page cache, in turns")
    print(f"  into a fresh buffer:             {of_hit * 1e6:.0f} µs, {fresh * 1e6:.0f} µs, {of_hit / fresh:.2f} ×")
    print(f"  into memory that is in use anew: {hit_again * 1e6:.0f} µs, {same * 1e6:.0f} µs, {hit_again / same:.2f} ×")
    return of_hit / fresh <= TIMES_PREAD


def cost_of_room() -> bool:
    """Prints how long finding what goes takes, among many entries of a reader that moves on; whether it is soon."""
    random = np.random.default_rng(0)
    words = random.integers(0, 1 << 63, MANY).astype(np.uint64)
    used, sizes = np.arange(1, MANY + 1), np.ones(MANY, np.int64)

    class Reader:
        future = Future.of(words, np.concatenate([random.permutation(MANY), random.permutation(MANY)]))
        position = begun = 0

    reader, taken, batch = Reader(), [], MANY // BATCHES
    for _ in range(ROUNDS // 10):
        reader.position += batch
        began = time.perf_counter()
        incoming = int(eviction_order(words[:1], np.array([LATEST]), [reader])[0])
        victims(eviction_order(words, used, [reader]), sizes, incoming, least=(1, 0), batch=(batch, 0))
        taken.append((time.perf_counter() - began) / batch)
    median = statistics.median(taken)
    print(f"finding what goes among {MANY:,} entries: {median * 1e6:.1f} µs an entry, {batch:,} at a time")
    return median <= VICTIM_S


def main() -> int:
    """Prints all; 1 where a bound is not kept."""
    return 0 if all([hit_rates(), cost_of_a_hit(), cost_of_room()]) else 1


if __name__ == "__main__":
    sys.exit(main())
