"""Tests of writers killed at any call: readers see the old dataset or the new one, and the next overwrite cleans up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pace import patience
from tests.writers.killed_at_calls import AT_COMMIT, LAST, WHILE_ROWS


@pytest.mark.timeout(600)
def test_dataset_is_old_or_new_when_a_writer_is_killed_at_any_call(tmp_path: Path, repository: Path) -> None:
    command = [sys.executable, "-m", "tests.writers.killed_at_calls", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(290), cwd=repository, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    outcome = json.loads(done.stdout)
    assert (outcome["other"], outcome["left"]) == ([], [])
    for mode in ("append", "overwrite"):
        old, new = ([call for one, call in outcome[name] if one == mode] for name in ("old", "new"))
        assert len(old) >= WHILE_ROWS
        assert len(old) + len(new) == WHILE_ROWS + AT_COMMIT + len(LAST)
        assert new, "some are killed after they have committed"
