"""Unreliable networks and damaged cache entries: every row is read once, with correct values."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.storage.children import Child, one_epoch
from benchmarks.storage.far import Bench, Line
from benchmarks.storage.figures import Figure
from benchmarks.storage.tables import table_of

__all__ = ["damaged_entries", "faults_over_an_epoch"]

RESET, THROTTLED, TRUNCATED = 0.01, 0.01, 0.005
"""Of bodies that are cut, 0.1 % was asked for: of so few requests that would be one or two."""

LEAST_REQUESTS = 2000
DAMAGES = 500


def faults_over_an_epoch(bench: Bench) -> list[Figure]:
    """Epochs over a line that resets, refuses and cuts: as many as take so many requests."""
    workload = table_of(bench)
    epochs: list[dict[str, Any]] = []
    with (
        bench.line(reset=RESET, throttled=THROTTLED, truncated=TRUNCATED, seed=5) as line,
        Child(
            "benchmarks.storage.reading", "table", "s3://tables/table", workload.rows,
            scale=bench.scale, epochs=LEAST_REQUESTS, storage_options=line.options, seed=0,
        ) as child,
    ):  # fmt: skip
        while line.counted[0] < LEAST_REQUESTS * min(bench.scale, 1.0):
            if epochs:
                child.go_on()
            epochs.append(child.epoch())
        made = line.faults
        requests = line.counted[0]
    return [
        Figure("rows that were wrong", [epochs[-1]["wrong"]], most=0),
        Figure("rows that did not come, or twice", [sum(workload.rows - one["distinct"] for one in epochs)], most=0),
        Figure("epochs", [len(epochs)]),
        Figure("requests", [requests]),
        *(Figure(f"of them {name}", [made.get(name, 0)]) for name in ("reset", "throttled", "truncated")),
    ]


def damaged_entries(bench: Bench) -> list[Figure]:
    """Fills a cache, makes one byte of each of many entries another, and reads again; until there were enough."""
    workload, chance = table_of(bench), random.Random(3)  # noqa: S311 - which bytes
    wanted = max(round(DAMAGES * bench.scale), 20)
    wrong = missing = counted = made = 0
    with bench.line() as line, tempfile.TemporaryDirectory(dir=bench.folder) as kept:
        _epoch(bench, line, workload.rows, kept)
        while made < wanted:
            entries = sorted(path for path in Path(kept).glob("*/entries/*/*") if path.is_file())
            victims = chance.sample(entries, min(wanted - made, len(entries) // 2))
            for victim in victims:
                _damage(victim, chance)
            made += len(victims)
            told = _epoch(bench, line, workload.rows, kept)
            wrong, missing = wrong + told["wrong"], missing + workload.rows - told["distinct"]
            counted += told["diagnostics"]["cache_corrupt"]
    return [
        Figure("bytes damaged, each in another entry or later", [made]),
        Figure("of them counted", [counted], least=made, most=made),
        Figure("rows that were wrong", [wrong], most=0),
        Figure("rows that did not come, or twice", [missing], most=0),
    ]


def _damage(path: Path, chance: random.Random) -> None:
    """Makes a byte another one."""
    with path.open("r+b") as file:
        at = chance.randrange(path.stat().st_size)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ chance.randint(1, 255)]))


def _epoch(bench: Bench, line: Line, rows: int, kept: str) -> dict[str, Any]:
    cache: dict[str, Any] = {"cache_type": "local-disk", "cache_location": kept, "cache_size_limit": 1 << 30}
    return one_epoch(
        "benchmarks.storage.reading", "table", "s3://tables/table", rows,
        scale=bench.scale, num_epochs=1, seed=0, storage_options=line.options, **cache,
    )  # fmt: skip
