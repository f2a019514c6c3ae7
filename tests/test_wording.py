"""Tests of the wording check: counts of unclear phrases may only fall."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import wording


def test_wording_check_counts_each_unclear_phrase(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("What fails is told.\nIt is no array.\nA picture.\n", encoding="utf-8")
    (tmp_path / "petastore").mkdir()
    code = '"""Of nothing."""\nraise ValueError("x cannot be: y")\n'
    (tmp_path / "petastore" / "m.py").write_text(code, encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_m.py").write_text("def test_what_is_told() -> None: ...\n", encoding="utf-8")
    assert wording.counts(tmp_path) == dict.fromkeys(wording.PATTERNS, 1)


def test_wording_check_fails_when_a_count_rises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = tmp_path / "limits.json"
    (tmp_path / "README.md").write_text("It is an array.\n", encoding="utf-8")
    assert wording.main(["--lower"], tmp_path, limits) == 0
    assert set(json.loads(limits.read_text(encoding="utf-8")).values()) == {0}
    (tmp_path / "README.md").write_text("It is no array.\n", encoding="utf-8")
    assert wording.main(["--lower"], tmp_path, limits) == 1
    assert "is no X: 1 lines, at most 0" in capsys.readouterr().out
