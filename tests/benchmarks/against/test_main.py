"""Tests of the comparison command: arguments, exit codes, and one small run from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.against import __main__ as command
from benchmarks.against import imports
from benchmarks.against.__main__ import main, ways
from benchmarks.against.rounds import Comparison
from benchmarks.against.trees import Tree
from benchmarks.against.verdicts import OURS, QUANTITIES, THEIRS, turns
from benchmarks.bench.process import TaskFailedError
from benchmarks.bench.workloads import WORKLOADS

pytestmark = pytest.mark.slow

ONE = ["--itself", "--workloads", "rows", "--figures", "cpu"]
TINY = ["--workloads", "rows", "--scale", "0.01", "--seconds", "0", "--rounds", "2", "--settle", "0"]


def test_comparison_of_a_tree_with_itself_runs_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "TRIES", 1)
    # Even on a busy machine, two runs of the same tree do not differ by a factor of 100.
    assert main(["--itself", *TINY, "--bound", "10000", "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "KEPT: all 5 figures are not worse than itself by more than 10000 %"
    for quantity in QUANTITIES.values():
        assert f"  {quantity.what} " in said
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (results["ours"], results["theirs"]) == ("this tree", "itself")
    for runs in results["runs"].values():
        assert [(run["round"], run["tree"]) for run in runs] == [(n, tree) for n in (0, 1) for tree in turns(n)]
    for run in results["runs"]["rows, petastore, rows"]:
        assert run["rate"] > 0
        assert 0 < run["cpu_a_row"] < 1
        assert run["peak_bytes"] > 10e6


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the results of all runs, so that no source tree is run."""

    def give(runs: list[dict[str, Any]]) -> None:
        monkeypatch.setattr(Comparison, "runs", lambda *_: runs)

    monkeypatch.setattr(command, "checked_out", lambda _, root, name="this tree": Tree(name, root, ""))
    return give


@pytest.mark.parametrize(("times", "status"), [(1.0, 0), (1.02, 0), (1.04, 1)])
def test_comparison_exits_with_1_for_a_regression_beyond_the_bound(
    times: float, status: int, ran: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(
        [
            {"round": number, "tree": tree, "cpu_a_row": 1e-6 * (times if tree == OURS else 1.0)}
            for number in range(3)
            for tree in turns(number)
        ]
    )
    asked = ["--itself", "--workloads", "rows", "images", "--figures", "cpu", "--folder", str(tmp_path)]
    assert main(asked) == status
    assert capsys.readouterr().out.splitlines()[-1].startswith("NOT KEPT: 0 of 2" if status else "KEPT: all 2")
    assert main([*asked, "--bound", "5"]) == 0


def test_comparison_exits_with_1_if_a_source_tree_cannot_read_the_files(
    ran: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran([{"round": 0, "tree": OURS, "error": "no moon"}, {"round": 0, "tree": THEIRS, "cpu_a_row": 1.0}])
    assert main([*ONE, "--folder", str(tmp_path)]) == 1
    assert "  this tree failed: no moon\n" in capsys.readouterr().out


@pytest.mark.usefixtures("ran")
def test_comparison_exits_with_1_if_the_files_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> list[dict[str, Any]]:
        raise TaskFailedError("the disk is full")

    monkeypatch.setattr(Comparison, "runs", full)
    assert main([*ONE, "--folder", str(tmp_path)]) == 1
    assert "  itself failed: its files could not be written: the disk is full\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "name a commit to measure against, or --itself"),
        (["HEAD", "--itself"], "name a commit to measure against, or --itself"),
        (["no-such-branch"], "no-such-branch: fatal:"),
        (["--itself", "--workloads", "nothing"], "invalid choice: 'nothing'"),
        (["--itself", "--rounds", "0"], "at least one round is needed"),
        (["--itself", "--bound", "-1"], "a percentage of at least 0, not -1"),
        (["--itself", "--bound", "nan"], "a percentage of at least 0, not nan"),
    ],
)
def test_invalid_benchmark_arguments_raise_before_anything_runs(
    asked: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(asked)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_comparison_covers_all_workloads_by_default() -> None:
    assert all(len(ways(workload, [], {})) == 1 for workload in WORKLOADS)
    assert [way.name for way in ways("images", ["petastore", "petastore, unshuffled"], {})] == [
        *("petastore", "petastore, unshuffled"),
    ]
    assert ways("rows", ["petastore, unshuffled"], {}) == []


def test_comparison_passes_the_requested_pool_to_the_reader() -> None:
    (way,) = ways("images", ["petastore, unshuffled"], {"reader_pool_type": "process"})
    assert way.options == {"shuffled": False, "reader_pool_type": "process"}
