"""Tests of Ray Train workers that die at random steps: the same training as without deaths."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from neighbours.conftest import Run
from neighbours.torch.programs.journal import Death, History
from neighbours.torch.restarts import assert_as_if_nobody_had_died, deaths, ended


@pytest.mark.timeout(600)  # five groups of workers, each half a minute on an idle machine
def test_ray_train_workers_resume_exactly_after_a_crash(run: Run, numbered: Callable[..., str], tmp_path: Path) -> None:
    url = numbered()

    def train(name: str, dying: list[Death]) -> History:
        folder = tmp_path / name
        folder.mkdir()
        with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as rays:  # sockets need short paths
            command = ["python", "neighbours/torch/programs/restarted_ray_train.py", url, str(folder), rays]
            return ended(run, command, folder, dying, seconds=300)

    assert_as_if_nobody_had_died(train("disturbed", deaths("ray")), train("undisturbed", []))
