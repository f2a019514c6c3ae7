"""Tests of `petastore verify`: exit codes, text and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.cli.command import petastore
from tests.verification.damage import dataset


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    dataset(tmp_path / "frames")
    return tmp_path / "frames"


def test_verify_exits_with_0_without_problems(frames: Path) -> None:
    ran = petastore("verify", frames)
    line = f"{frames.as_uri()}: no problems in 3 files, 6 row groups, 30 rows, 120 cells\n"
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, line, "")
    ran = petastore("verify", frames, "--columns", "id", "--sample", "2", "--workers", "1")
    assert (ran.exit_code, ran.stdout) == (
        0,
        line.replace("6 row groups, 30", "2 row groups of 6, 10").replace("120", "10"),
    )


def test_verify_exits_with_1_and_lists_problems(frames: Path) -> None:
    files = sorted(frames.glob("*.parquet"))
    files[1].unlink()
    ran = petastore("verify", frames)
    assert ran.exit_code == 1
    first, last = ran.stdout.splitlines()
    assert first.startswith(f"missing_file {files[1].name}: ")
    assert last == f"{frames.as_uri()}: 1 problem in 2 files, 4 row groups, 20 rows, 80 cells"
    ran = petastore("verify", frames, "--json")
    report = json.loads(ran.stdout)
    assert (ran.exit_code, report["files"], report["cells"]) == (1, 2, 80)
    assert [(one["kind"], one["file"], one["row"]) for one in report["problems"]] == [
        ("missing_file", files[1].name, None)
    ]


def test_verify_exits_with_2_if_it_cannot_run(tmp_path: Path) -> None:
    ran = petastore("verify", tmp_path / "nothing")
    assert (ran.exit_code, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)


def test_verify_exits_with_130_after_ctrl_c(frames: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("petastore.verification.row_groups.RowGroupCheck.check", interrupted)
    ran = petastore("verify", frames)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (130, "", "petastore: interrupted\n")
