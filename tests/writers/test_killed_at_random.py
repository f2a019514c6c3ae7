"""Whenever a writer is killed, readers see the old dataset or the new one, and the next overwrite clears all else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pace import patience
from tests.writers.killed_at_random import KILLED


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_writers_that_are_killed_at_random_moments(tmp_path: Path, repository: Path) -> None:
    command = [sys.executable, "-m", "tests.writers.killed_at_random", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(590), cwd=repository, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    outcome = json.loads(done.stdout)
    assert (outcome["other"], outcome["left"]) == ([], [])
    assert outcome["old"] + outcome["new"] == KILLED
    assert outcome["old"] >= 5, "some are killed before they commit"
