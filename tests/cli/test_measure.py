"""`petastore throughput` shows what was measured."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from petastore import Unischema, UnischemaField, write_dataset


def petastore(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "petastore.cli", *arguments]
    environment = {"COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    write_dataset(path, Unischema("Numbers", [UnischemaField("id", np.int64)]), [{"id": i} for i in range(1200)])
    return path


def test_throughput_closes_with_one_line(dataset: Path) -> None:
    ran = petastore(
        "throughput", dataset, "--warmup", "100", "--measure", "500", "--seconds", "0", "--batch-size", "50", "-w", "1"
    )
    assert ran.returncode == 0
    assert "measured  500 rows in " in ran.stdout
    assert re.fullmatch(r"[0-9,]+ rows/s, .*/s, [0-9]+ % CPU, .* of memory", ran.stdout.splitlines()[-1])


def test_what_cannot_be_measured_is_one_line(dataset: Path) -> None:
    ran = petastore("throughput", dataset, "--pool-type", "fibre")
    assert ran.returncode == 2
    assert "reader_pool_type='fibre' is not known" in ran.stderr
