"""Tests of TensorFlowOnSpark and `horovod.spark.run` on Spark executors: each row counts once, or the job fails.

In each run a process is killed in the middle of an epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from neighbours.conftest import UNEVEN, Run

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "noted"
    folder.mkdir()
    return folder


def assert_each_row_was_read_by_one(folder: Path, names: list[str]) -> None:
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert sorted(found) == names
    assert [found[name]["shard"] for name in names] == [[0, 2], [1, 2]]
    assert sorted(number for one in found.values() for number in one["ids"]) == list(range(sum(UNEVEN)))


def begun_in(folder: Path) -> list[str]:
    return sorted(path.name.rpartition("-")[0] for path in folder.glob("*.begun"))


def test_horovod_spark_ranks_start_once_and_resume_from_a_commit(
    numbered: Callable[..., str], folder: Path, run: Run
) -> None:
    run(["python", "-m", "neighbours.spark.clusters", "horovod", numbered(), folder], seconds=250)
    problems = json.loads((folder / "problems").read_text())
    assert len(problems) == 2
    assert all("one or more processes exited with non-zero status" in problem for problem in problems)
    assert begun_in(folder) == [f"rank-{rank}-{at}" for rank in (0, 1) for at in (2, 3, 99)]
    assert_each_row_was_read_by_one(folder, ["rank-0", "rank-1"])


def test_tfos_node_restarts_when_its_executor_is_lost(numbered: Callable[..., str], folder: Path, run: Run) -> None:
    run(["python", "-m", "neighbours.spark.clusters", "tensorflow-on-spark", numbered(), folder], seconds=200)
    assert begun_in(folder) == ["chief-0", "worker-0", "worker-0"]
    assert_each_row_was_read_by_one(folder, ["chief-0", "worker-0"])


@pytest.mark.parametrize("way", ["once", "unnoticed"])
def test_tfos_node_that_is_not_restarted_ends_the_program(
    way: str, numbered: Callable[..., str], folder: Path, run: Run
) -> None:
    program = "neighbours.spark.clusters"
    run(["python", "-m", program, f"tensorflow-on-spark-{way}", numbered(), folder], seconds=200, fails=True)
    assert begun_in(folder) == ["chief-0", "worker-0"]
    assert not (folder / "worker-0.json").exists()
