"""No child hangs that is forked while readers are open, wherever the threads of its parent are at that moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from petastore import Unischema, UnischemaField, write_dataset

ROWS = 600
FORKS = 50


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("forked") / "numbers")
    schema = Unischema("Numbers", [UnischemaField("id", np.int64), UnischemaField("wave", np.float32, (8,))])
    rows = ({"id": i, "wave": np.full(8, i, np.float32)} for i in range(ROWS))
    write_dataset(folder, schema, rows, rows_per_row_group=20, rows_per_file=100)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("run", range(4))
def test_children_stop_readers_of_their_parent_and_read_again(url: str, repository: Path, run: int) -> None:
    """In a program of its own, beside one that spins: what a test run has in memory does not matter here."""
    command = [sys.executable, "-m", "tests.readers.forking", url, str(ROWS), str(FORKS), "spin" if run else "alone"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"{FORKS} forks\n", 0), done.stderr
