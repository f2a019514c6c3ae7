"""Eight processes that share one cache: bytes fetched by all of them, and bytes on disk."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.storage.children import Child
from benchmarks.storage.far import Bench, Line
from benchmarks.storage.figures import Figure
from benchmarks.storage.tables import table_of
from tests.laws.cache_laws import bytes_at_one_moment

__all__ = ["cold_start", "under_the_limit"]

PROCESSES = 8
EPOCHS = 3
SAMPLE_S = 0.01


def cold_start(bench: Bench) -> list[Figure]:
    """All read all of a table at once with an empty cache: some in the same order, some in others."""
    workload = table_of(bench)
    with bench.line() as line, tempfile.TemporaryDirectory(dir=bench.folder) as kept:
        shares: list[dict[str, Any]] = [{"seed": number % 4} for number in range(PROCESSES)]
        with _readers(bench, line, kept, 1 << 30, shares, workload.rows) as readers:
            told = [reader.epoch() for reader in readers]
        requests, read = line.counted
    assert all(one["distinct"] == workload.rows and not one["wrong"] for one in told)
    fetched = sum(one["diagnostics"]["cache_misses"] for one in told)
    kept_entries = fetched + sum(one["diagnostics"]["cache_hits"] for one in told)
    stored = workload.rows * 8 * len(workload.columns)
    return [
        Figure("entries fetched, times those there are", [fetched * PROCESSES / kept_entries], "×", most=1.05),
        Figure("bytes of all, opening included, times those of the data", [read / stored], "×"),
        Figure("requests of all", [requests]),
    ]


def under_the_limit(bench: Bench) -> list[Figure]:
    """Each reads an eighth of a table that has twice as many bytes as the limit, and another one in each epoch.

    A sample each ten milliseconds.
    """
    workload = table_of(bench)
    limit, samples = workload.rows * 8 * len(workload.columns) // 2, []
    share = workload.rows // PROCESSES
    with bench.line() as line, tempfile.TemporaryDirectory(dir=bench.folder) as kept:
        shares: list[dict[str, Any]] = [
            {
                "cur_shard": number,
                "shard_count": PROCESSES,
                "seed": 0,
                "reshuffle_each_epoch": True,
                "num_epochs": EPOCHS,
            }
            for number in range(PROCESSES)
        ]
        with _readers(bench, line, kept, limit, shares, EPOCHS * share) as readers:
            while any(reader.is_alive for reader in readers):
                began = time.monotonic()
                samples.append(bytes_at_one_moment(Path(kept)))
                time.sleep(max(SAMPLE_S - (time.monotonic() - began), 0))
            told = [reader.epoch() for reader in readers]
    assert all(one["rows"] == EPOCHS * share and not one["wrong"] for one in told)
    written, evicted = (
        sum(one["diagnostics"][name] for one in told) for name in ("cache_bytes_written", "cache_bytes_evicted")
    )
    return [
        Figure("most bytes on disk, times the limit", [max(samples) / limit], "×", most=1.0),
        Figure("bytes written, times the limit", [written / limit], "×"),
        Figure("bytes evicted, times the limit", [evicted / limit], "×"),
        Figure("samples", [len(samples)]),
    ]


@contextlib.contextmanager
def _readers(
    bench: Bench, line: Line, kept: str, limit: int, shares: list[dict[str, Any]], rows: int
) -> Iterator[list[Child]]:
    cache: dict[str, Any] = {"cache_type": "local-disk", "cache_location": kept, "cache_size_limit": limit}
    with contextlib.ExitStack() as all_of_them:
        yield [
            all_of_them.enter_context(
                Child(
                    "benchmarks.storage.reading",
                    "table",
                    "s3://tables/table",
                    rows,
                    scale=bench.scale,
                    storage_options=line.options,
                    **cache,
                    **{"num_epochs": 1, **share},
                )
            )
            for share in shares
        ]
