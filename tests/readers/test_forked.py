"""Tests of fork while readers are open: no child hangs, wherever the parent's threads are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from petastore import Unischema, UnischemaField, write_dataset
from tests.tier import sized

ROWS = 600
FORKS = sized(full=50, quick=15)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("forked") / "numbers")
    schema = Unischema("Numbers", [UnischemaField("id", np.int64), UnischemaField("wave", np.float32, (8,))])
    rows = ({"id": i, "wave": np.full(8, i, np.float32)} for i in range(ROWS))
    write_dataset(folder, schema, rows, rows_per_row_group=20, rows_per_file=100)
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("run", ["alone", pytest.param("spin", marks=pytest.mark.slow)])
def test_forked_children_stop_inherited_readers_and_read_again(url: str, repository: Path, run: str) -> None:
    """A separate program forks, so that the memory of the test run has no influence; a slow variant adds CPU load."""
    command = [sys.executable, "-m", "tests.readers.forking", url, str(ROWS), str(FORKS), run]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"{FORKS} forks\n", 0), done.stderr
