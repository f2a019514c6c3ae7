"""Tests of benchmark rounds: source trees take turns, and a failure of one does not stop the other."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.against import rounds
from benchmarks.against.rounds import Comparison
from benchmarks.against.trees import Tree
from benchmarks.against.verdicts import OURS, THEIRS
from benchmarks.bench.data import Data
from benchmarks.bench.drive import Pace
from benchmarks.bench.process import TaskFailedError
from benchmarks.bench.roster import contenders_for

HERE, THERE = Tree("this tree", Path("/here"), "1"), Tree("a7806d7", Path("/there"), "2")


@pytest.fixture
def comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    monkeypatch.setattr(Data, "make", lambda *_: tmp_path)
    return Comparison(HERE, THERE, Data(tmp_path), 2, Pace(0.0, 1.0), settle_s=0.0, say=lambda _: None)


def test_compared_source_trees_take_turns_to_run_first(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Path] = []

    def run(*_: Any, root: Path) -> dict[str, Any]:
        ran.append(root)
        return {"rate": 1.0}

    monkeypatch.setattr(rounds, "measured", run)
    found = comparison.runs("rows", contenders_for("rows")[0])
    assert [str(root) for root in ran] == [
        *("/there", "/here", "/here", "/there"),
        *("/here", "/there", "/there", "/here"),
    ]
    assert [run["tree"] for run in found] == [THEIRS if root == THERE.root else OURS for root in ran]
    assert [run["round"] for run in found] == [0] * 4 + [1] * 4


def test_failure_of_one_tree_does_not_stop_the_other(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    def import_seconds(root: Path) -> float:
        if root == HERE.root:
            raise TaskFailedError("no moon tonight")
        return 0.5

    monkeypatch.setattr(rounds, "import_seconds", import_seconds)
    found = comparison.import_runs()
    assert [run["error"] for run in found if run["tree"] == OURS] == ["no moon tonight"] * 4
    assert [run["import_seconds"] for run in found if run["tree"] == THEIRS] == [0.5] * 4


def test_measurement_waits_until_written_files_are_flushed(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(rounds, "measured", lambda *_, **__: {"rate": 1.0})
    (tmp_path / "new.parquet").touch()
    comparison.runs("rows", contenders_for("rows")[0])
    assert waited == []
    dataclasses.replace(comparison, settle_s=600.0).runs("rows", contenders_for("rows")[0])
    (seconds,) = waited
    assert 500 < seconds <= 600
