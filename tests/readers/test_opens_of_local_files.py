"""Tests of file system calls on local files: opens, footer reads and stats per epoch, and threads of opening."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.storage.footers import tails
from petastore.storage.row_groups import opened_file
from tests.pace import patience

GROUPS, ROWS = 4, 50_000


def written(folder: Path, files: int = 1) -> str:
    for number in range(files):
        ids = np.random.default_rng(number).permutation(GROUPS * ROWS)
        pq.write_table(pa.table({"id": ids}), folder / f"{number}.parquet", row_group_size=ROWS)
    return str(folder)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """Count calls on Parquet files; all that Arrow does to open a file counts as one open."""
    counts: collections.Counter[str] = collections.Counter()
    real: dict[str, Any] = {"open": os.open, "fstat": os.fstat, "OSFile": pa.OSFile}
    real["tail_of"] = tails.tail_of

    def is_parquet(opened: int) -> bool:
        return str(Path(f"/proc/self/fd/{opened}").readlink()).endswith(".parquet")

    def noted(what: str, name: str) -> Any:
        def call(first: Any, *others: Any, **options: Any) -> Any:
            counts[what] += is_parquet(first) if isinstance(first, int) else str(first).endswith(".parquet")
            return real[name](first, *others, **options)

        return call

    monkeypatch.setattr(os, "open", noted("opens", "open"))
    monkeypatch.setattr(pa, "OSFile", noted("opens", "OSFile"))
    monkeypatch.setattr(os, "fstat", noted("stats", "fstat"))
    monkeypatch.setattr(tails, "tail_of", noted("footers", "tail_of"))
    monkeypatch.setattr(opened_file, "tail_of", noted("footers", "tail_of"))
    return counts


def read(dataset: Any) -> None:
    with petastore.make_batch_reader(dataset, reader_pool_type="dummy", shuffle_row_groups=False) as reader:
        assert sum(len(batch.id) for batch in reader) == GROUPS * ROWS


def test_local_file_is_opened_once_per_epoch(tmp_path: Path, counted: collections.Counter[str]) -> None:
    """The footer was read when the dataset was opened; each row group takes one stat to check the version."""
    dataset = petastore.open_dataset(written(tmp_path))
    assert (counted["opens"], counted["footers"]) == (1, 1)
    counted.clear()
    read(dataset)
    assert counted == {"opens": 1, "stats": GROUPS}


def test_local_file_of_a_manifest_is_opened_once_with_its_footer(
    tmp_path: Path, counted: collections.Counter[str]
) -> None:
    rows = {"id": np.random.default_rng(0).permutation(GROUPS * ROWS)}
    petastore.write_dataset(tmp_path / "x", rows, rows_per_row_group=ROWS, rows_per_file=GROUPS * ROWS)
    counted.clear()
    dataset = petastore.open_dataset(tmp_path / "x")
    assert counted.total() == 0
    read(dataset)
    assert counted == {"opens": 1, "footers": 1, "stats": 1 + GROUPS}


STARTED = """
import sys, threading
import petastore
started, start = [], threading.Thread.start

def noted(thread):
    started.append(thread.name)
    start(thread)

threading.Thread.start = noted
petastore.open_dataset(sys.argv[1])
print(started)
"""


def test_opening_a_local_directory_starts_no_thread(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", STARTED, written(tmp_path, files=3)],
        check=True, capture_output=True, text=True, timeout=patience(60),
    )  # fmt: skip
    assert ran.stdout == "[]\n"
