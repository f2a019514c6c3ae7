"""Tests of benchmark data: files are generated once, and again after any input of them has changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench import data
from benchmarks.bench.data import Data
from benchmarks.bench.roster import FORMATS


def test_benchmark_data_is_rebuilt_when_its_source_format_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("petastore", "petastorm", "lance")
    before = [data.recipe_of("images", name) for name in names]
    monkeypatch.setitem(FORMATS, "petastore", dataclasses.replace(FORMATS["petastore"], module="limits"))
    after = [data.recipe_of("images", name) for name in names]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, False, True]


def test_benchmark_data_is_reused_unless_another_source_tree_writes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[tuple[str, Path]] = []
    monkeypatch.setattr(data, "run_task", lambda _, task, **more: made.append((task["do"], more["root"])))

    def make(**written: Any) -> list[str]:
        made.clear()
        (tmp_path / "data" / "rows").mkdir(parents=True, exist_ok=True)
        found = Data(tmp_path, say=lambda _: None, **written).make("rows", "petastore")
        assert found == tmp_path / "data" / "rows" / "petastore"
        return [do for do, _ in made]

    assert make() == ["make", "write"]
    assert make() == []
    assert make(root=Path("/another"), writer="of another commit") == ["make", "write"]
    assert [root for _, root in made] == [Path("/another")] * 2
    assert make(root=Path("/another"), writer="of another commit") == []
