"""Tests of torch workers that die at random steps, on two ranks: the same training as without deaths."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from neighbours.conftest import Run, write_numbered
from neighbours.torch.programs.journal import Death, History, history
from neighbours.torch.restarts import STEPS_PER_EPOCH, assert_as_if_nobody_had_died, deaths, ended, environment_of

# The first test runs the programs of all tests in this module.
pytestmark = pytest.mark.timeout(600)

TORCHRUN = ["torchrun", "--standalone", "--nproc-per-node=2", "--max-restarts=3"]
FORKED = ["python", "-m", "neighbours.torch.programs.forked_torchrun"]

CASES: list[tuple[str, list[str]]] = [
    ("restarted_by_torchrun", []),
    ("restarted_by_torchrun", ["--distributed-checkpoint"]),
    ("restarted_lightning", []),
    ("restarted_lightning", ["--every-epoch"]),
    ("restarted_fabric", []),
    ("restarted_accelerate", []),
    ("restarted_accelerate", ["--every-epoch"]),
]


@dataclasses.dataclass
class Trained:
    """Histories of runs with deaths, by program and options, and of runs without, by program."""

    url: str
    folders: dict[str, Path] = dataclasses.field(default_factory=dict)

    def disturbed(self, program: str, options: list[str]) -> History:
        return self._history(f"{program} {options}")

    def undisturbed(self, program: str) -> History:
        return self._history(program)

    def add(self, parent: Path, name: str, program: str, options: list[str], dying: list[Death]) -> dict[str, Any]:
        """Return the run of a program for `forked_torchrun`."""
        folder = self.folders[name] = parent / f"run-{len(self.folders)}"
        folder.mkdir()
        arguments = [self.url, str(folder), *options]
        problem = str(folder / "problem.txt")
        return {
            "program": program,
            "arguments": arguments,
            "environment": environment_of(dying),
            "problem": problem,
        }

    def _history(self, name: str) -> History:
        problem = self.folders[name] / "problem.txt"
        if problem.exists():
            pytest.fail(f"{name}: {problem.read_text(encoding='utf-8')}", pytrace=False)
        return history(self.folders[name])


@pytest.fixture(scope="module")
def trained(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Run all programs, each with and without deaths; their workers are forked from one process."""
    parent = tmp_path_factory.mktemp("trained")
    trained = Trained(write_numbered(str(parent / "numbered")))
    runs = [
        trained.add(parent, f"{program} {options}", program, options, deaths_of(program, options))
        for program, options in CASES
    ]
    runs += [trained.add(parent, program, program, [], []) for program in sorted({program for program, _ in CASES})]
    file = parent / "runs.json"
    file.write_text(json.dumps(runs), encoding="utf-8")
    run([*FORKED, str(file)], environment=environment_of([]), seconds=300)
    return trained


def deaths_of(program: str, options: list[str]) -> list[Death]:
    return deaths(f"{program} {options}", every=STEPS_PER_EPOCH if "--every-epoch" in options else 2)


@pytest.mark.parametrize(
    ("program", "options"), CASES, ids=lambda value: value if isinstance(value, str) else " ".join(value) or "-"
)
def test_torch_run_resumes_exactly_after_workers_die(trained: Trained, program: str, options: list[str]) -> None:
    disturbed = trained.disturbed(program, options)
    # The choice of checkpoints does not change the training.
    assert_as_if_nobody_had_died(disturbed, trained.undisturbed(program))
    # A life resumes in the middle of a later epoch, so counting epochs from 0 in each process would be noticed.
    assert any(step > STEPS_PER_EPOCH and step % STEPS_PER_EPOCH for step in disturbed.resumed) or options


def test_torchrun_workers_resume_exactly_after_a_crash(trained: Trained, run: Run, tmp_path: Path) -> None:
    dying = deaths("restarted_by_torchrun by its command")
    program = "neighbours/torch/programs/restarted_by_torchrun.py"
    disturbed = ended(run, [*TORCHRUN, program, trained.url, str(tmp_path)], tmp_path, dying)
    assert_as_if_nobody_had_died(disturbed, trained.undisturbed("restarted_by_torchrun"))
