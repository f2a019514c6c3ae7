"""Cost of writing: `python -m benchmarks.writing`, or `make bench-writing`.

Each way is a process of its own that stays: Spark is started before the clock is. It writes once unmeasured, then once
a round, in turns with the others. Ratios are taken within a round; figures are medians, with least and most. Ways of
rows, of arrays, of bytes and of pictures come one after the other, each with Petastorm's: not all have room in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.bench.machine import facts
from benchmarks.bench.process import ROOT, environment_of
from benchmarks.bench.venvs import python_of
from benchmarks.writing.data import FIELDS, raw_data
from benchmarks.writing.page import page_of
from benchmarks.writing.ways import IN_TURNS, PICTURES, WAYS
from petastore.spark.java import use_java

PAGE = ROOT / "benchmarks" / "writing" / "report.md"
PETASTORM = "Petastorm, rows"
ENCODER = "the encoder alone"
LEAST = {
    "rows": (PETASTORM, 2.0),
    "write_rows": (PETASTORM, 2.0),
    "encode_dataframe, arrays": (PETASTORM, 5.0),
    "encode_dataframe, bytes": (PETASTORM, 5.0),
    "data source, arrays": (PETASTORM, 5.0),
    "write_columns, arrays": (PETASTORM, 5.0),
    "write_files, arrays": (PETASTORM, 5.0),
    "data source, bytes": (PETASTORM, 5.0),
    "write_columns, bytes": (PETASTORM, 5.0),
    "write_files, bytes": (PETASTORM, 5.0),
    "write_dataset, rows": (PETASTORM, 15.0),
    "write_dataset, columns": (PETASTORM, 15.0),
    "write_dataset, pictures": (ENCODER, 0.9),
}
"""Of each way: whose rate it is compared with, and how many times it has to be."""

LIKE = {
    "encode_dataframe, arrays": "Petastorm, DataFrame of arrays",
    "data source, arrays": "Petastorm, DataFrame of arrays",
    "write_columns, arrays": "Petastorm, DataFrame of arrays",
    "write_files, arrays": "Petastorm, DataFrame of arrays",
    "encode_dataframe, bytes": "Petastorm, DataFrame of bytes",
    "data source, bytes": "Petastorm, DataFrame of bytes",
    "write_columns, bytes": "Petastorm, DataFrame of bytes",
    "write_files, bytes": "Petastorm, DataFrame of bytes",
    "rows of pictures": "Petastorm, rows of pictures",
    "write_rows, pictures": "Petastorm, rows of pictures",
    "encode_dataframe, pictures": "Petastorm, DataFrame of pictures",
    "data source, pictures": "Petastorm, DataFrame of pictures",
    "write_files, pictures": "Petastorm, DataFrame of pictures",
}
"""Of each way: the one of Petastorm's that begins with the same."""


class Way:
    """A process that writes in one way, whenever it is told to."""

    def __init__(self, name: str, raw: Path, target: Path, rows: int, venvs: Path) -> None:
        self.name, self.rows = name, rows
        python = python_of("petastorm" if name.startswith("Petastorm") else "own", venvs)
        environment = environment_of(ROOT) | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
        use_java(environment)
        command = [str(python), "-m", "benchmarks.writing.writer", name, str(raw), str(target), str(rows)]
        began = time.perf_counter()
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._answer()
        self.ready_s = time.perf_counter() - began
        """Seconds from its start until it could write."""

    def write(self) -> dict[str, float]:
        """Seconds by the clock, processor seconds of it and its children, and bytes that were stored."""
        before = self._cpu_seconds()
        self._stream(self._process.stdin).write("write\n")
        self._stream(self._process.stdin).flush()
        found = self._answer()
        return {**found, "cpu": self._cpu_seconds() - before}

    def end(self) -> None:
        """Ends it, and Java with it."""
        with contextlib.suppress(BrokenPipeError):
            self._stream(self._process.stdin).close()
        self._process.wait(60)

    def _answer(self) -> Any:
        for line in self._stream(self._process.stdout):
            with contextlib.suppress(ValueError):
                return json.loads(line)
        raise RuntimeError(f"{self.name} ended with {self._process.wait()}")

    def _cpu_seconds(self) -> float:
        """Of the processes that live: Spark's workers are used again, and so are counted before and after."""
        own = psutil.Process(self._process.pid)
        total = 0.0
        for process in [own, *own.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:2])
        return total

    @staticmethod
    def _stream(stream: Any) -> Any:
        assert stream is not None
        return stream


def rows_of(name: str, rows: int) -> int:
    """How many rows a way writes: of pictures fewer, and of those that Spark writes fewer still."""
    if name not in PICTURES:
        return rows
    return rows // 8 if name in ("write_dataset, pictures", ENCODER) else rows // 32


@contextlib.contextmanager
def all_ways(names: list[str], folder: Path, rows: int, venvs: Path) -> Iterator[list[Way]]:
    """The processes, ended in any case."""
    ways: list[Way] = []
    try:
        for name in names:
            ways.append(Way(name, folder / "raw", folder / f"out-{len(ways)}", rows_of(name, rows), venvs))
        yield ways
    finally:
        for way in ways:
            way.end()


def measured(ways: list[Way], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Of each way, each round's figures; of the first also how long a program takes that writes once."""
    once = {way.name: way.ready_s + way.write()["seconds"] for way in ways}
    found: dict[str, list[dict[str, float]]] = {way.name: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            figures = way.write()
            found[way.name].append({**figures, "rate": way.rows / figures["seconds"], "once": once[way.name]})
    return found


def lines(found: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """A table of Markdown."""
    yield "| | rows/s | least – most | CPU µs a row | once, from the start | like for like | times | has to be | |"
    yield "|:--|--:|--:|--:|--:|--:|--:|:--|:--|"
    for name, figures in found.items():
        rates = [one["rate"] for one in figures]
        cpu = statistics.median(one["cpu"] * 1e6 / (one["rate"] * one["seconds"]) for one in figures)
        told = f"| {name} | {statistics.median(rates):,.0f} | {min(rates):,.0f} – {max(rates):,.0f} | {cpu:,.1f} |"
        told += f" {figures[0]['once']:.1f} s |"
        told += f" {_times(figures, found[LIKE[name]]):.2f} × |" if LIKE.get(name) in found else " |"
        if name not in LEAST or LEAST[name][0] not in found:
            yield f"{told} | | |"
            continue
        other, least = LEAST[name]
        times = _times(figures, found[other])
        yield f"{told} {times:.2f} × {other} | ≥ {least:g} × | {'kept' if times >= least else 'not kept'} |"


def _times(figures: list[dict[str, float]], others: list[dict[str, float]]) -> float:
    """How many times the rate of another way: the median of ratios of one round."""
    return statistics.median(one["rate"] / other["rate"] for one, other in zip(figures, others, strict=True))


def main() -> int:
    """Measures and prints; 1 where a bound is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows",
        type=int,
        default=64_000,
        help="rows of tensors (64,000); of pictures an eighth, or, by Spark, an eighth of a fourth",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds that are measured (3)")
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=list(WAYS), metavar="WAY", help="some ways")
    parser.add_argument("--work", type=Path, default=ROOT / ".bench", help="where environments are kept (.bench)")
    parser.add_argument("--publish", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    asked = parser.parse_args()
    shape = " × ".join(map(str, FIELDS["tensor"][1]))
    title = (
        f"{asked.rows:,} rows of float32 tensors of {shape}, {asked.rows // 8:,} pictures, of which Spark writes "
        f"{asked.rows // 32:,}; load of the machine before "
        f"{os.getloadavg()[0]:.1f}; medians of {asked.rounds} rounds"
    )
    print(title)
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        raw_data(Path(folder, "raw"), "tensor", asked.rows)
        raw_data(Path(folder, "raw"), "image", asked.rows // 32)
        for together in IN_TURNS:
            names = [name for name in together if name in asked.only]
            with all_ways(names, Path(folder), asked.rows, asked.work / "venvs") as ways:
                tables.append(list(lines(measured(ways, asked.rounds))))
    table = tables[0] + [line for one in tables[1:] for line in one[2:]]  # under one head
    print(*table, sep="\n")
    if asked.publish:
        PAGE.write_text(page_of(table, title, facts()), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")
    return 1 if any("not kept" in line for line in table) else 0


if __name__ == "__main__":
    sys.exit(main())
