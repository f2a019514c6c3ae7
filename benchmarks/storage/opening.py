"""Opening many files with few requests, by a manifest."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench.process import ROOT
from benchmarks.storage.children import one_epoch
from benchmarks.storage.far import Bench
from benchmarks.storage.figures import Figure
from benchmarks.storage.tables import committed
from petastore.writers.generate import generate_metadata

__all__ = ["many_files", "one_column"]

FILES, GROUPS = 10_000, 100
"""A million row groups."""

CONSTANT = 8
"""Requests beside one, and one for each row group: however many files there are."""

COLUMNS, ROW_GROUPS, ROWS = 40, 64, 32_768


def many_files(bench: Bench) -> list[Figure]:
    """Opens ten thousand files with the manifest, on the local disk, in fresh processes."""
    files = max(round(FILES * bench.scale), 10)

    def write(folder: Path) -> None:
        first = folder / "part-00000.parquet"
        table = pa.table({"id": np.arange(GROUPS), "x": np.arange(GROUPS) / 7.0})
        pq.write_table(table, first, row_group_size=1)
        for number in range(1, files):
            os.link(first, folder / f"part-{number:05d}.parquet")  # the bytes of one file, under many names
        generate_metadata(folder)

    folder = bench.made("many/files", f"{files} files of {GROUPS} row groups", write)
    told = [_opened(folder) for _ in range(bench.rounds)]
    assert all(one["rows"] == files * GROUPS for one in told)
    what = f"{files:,} files, {files * GROUPS:,} row groups"
    return [
        Figure(f"{what}: open", [one["seconds"] for one in told], "s", most=1.2),
        Figure("the same, CPU", [one["cpu"] for one in told], "s"),
        Figure("peak memory of that process", [one["opened"] for one in told], "MB", most=400),
        Figure("of it before opening, by imports", [one["imported"] for one in told], "MB"),
        Figure("first batch", [one["first_batch"] for one in told], "s"),
        Figure("peak memory by then", [one["megabytes"] for one in told], "MB"),
    ]


def _opened(folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.storage.opened", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    told: dict[str, float] = json.loads(ran.stdout)
    return told


def one_column(bench: Bench) -> list[Figure]:
    """Reads an epoch of one column of forty over S3, in a process of its own, and counts what passes."""
    rows = max(round(ROWS * bench.scale), 4096)
    figures = []
    for files in (1, 8, 64):
        name = f"columns/{files}"
        recipe = f"{files} files, {COLUMNS} columns, {ROW_GROUPS} row groups of {rows}"
        bench.made(name, recipe, functools.partial(_write, bench, files, rows, name))
        with bench.line() as line:
            one_epoch(
                "benchmarks.storage.reading",
                "table",
                f"s3://{name}",
                rows * ROW_GROUPS,
                schema_fields=["id"],
                num_epochs=1,
                storage_options=line.options,
            )
            requests, read = line.counted
        kind = "file" if files == 1 else "files"
        most = 1 + ROW_GROUPS + CONSTANT
        figures += [
            Figure(f"{ROW_GROUPS} row groups in {files} {kind}: requests", [requests], most=most),
            Figure("bytes, times those of the column", [read / (rows * ROW_GROUPS * 8)], "×", most=1.05),
        ]
    return figures


def _write(bench: Bench, files: int, rows: int, name: str, folder: Path) -> None:
    """The same file under several names: what is in its columns does not matter, but for one of them."""
    groups, dice = ROW_GROUPS // files, np.random.default_rng(0)
    first, options = folder / "part-00.parquet", {"compression": "none", "use_dictionary": False}
    schema = pa.schema([(name, pa.int64()) for name in ("id", *(f"c{number:02}" for number in range(1, COLUMNS)))])
    with pq.ParquetWriter(first, schema, **options) as writer:
        for group in range(groups):
            columns = [np.arange(group * rows, (group + 1) * rows)]
            columns += [dice.integers(0, 1 << 40, rows) for _ in range(COLUMNS - 1)]
            writer.write_table(pa.table(columns, schema), row_group_size=rows)
    for number in range(1, files):
        os.link(first, folder / f"part-{number:02}.parquet")
    committed(bench, name)
