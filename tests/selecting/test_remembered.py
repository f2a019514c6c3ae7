"""Selections are remembered within bounds, and forgotten when they are not used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore.errors import InvalidArgumentError
from petastore.plan import Selection
from petastore.plan.selection import Pruned
from petastore.selecting.remembered import RememberedSelections, selection_directory, selection_of
from petastore.selecting.selection_file import selection_bytes

ROWS = np.array([4, 0, 6, 5])
SELECTION = selection_of({0: True, 2: np.array([True, False] * 3), 3: False}, ROWS)


def test_a_selection_is_made_of_what_is_kept() -> None:
    assert SELECTION.counts.tolist() == [4, 0, 3, 0]
    assert list(SELECTION.bitmaps) == [2]


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    memory = RememberedSelections(tmp_path / "deep" / "down")
    assert memory.load("a1", ROWS) is None
    memory.save("a1", SELECTION, ROWS)
    assert memory.load("a1", ROWS) == SELECTION
    assert memory.load("b2", ROWS) is None
    told = selection_of({0: True}, ROWS, (Pruned("statistics", 1, 6), Pruned("filter", 1, 5)))
    memory.save("b2", told, ROWS)
    again = memory.load("b2", ROWS)
    assert again is not None
    assert again.pruned == told.pruned
    nothing = Selection(np.zeros(4, np.int64), {})
    memory.save("c3", nothing, ROWS)
    assert memory.load("c3", ROWS) == nothing


def test_a_damaged_entry_is_a_miss_and_is_written_anew(tmp_path: Path) -> None:
    memory = RememberedSelections(tmp_path)
    memory.save("a1", SELECTION, ROWS)
    (tmp_path / "a1.selection").write_bytes(b"nonsense")
    assert memory.load("a1", ROWS) is None
    memory.save("a1", SELECTION, ROWS)
    assert memory.load("a1", ROWS) == SELECTION


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    size = len(selection_bytes("a", {0: True, 2: SELECTION.bitmaps[2]}, ROWS))
    memory = RememberedSelections(tmp_path, max_bytes=3 * size)
    for place, key in enumerate("abc"):
        memory.save(key, SELECTION, ROWS)
        os.utime(tmp_path / f"{key}.selection", (place, place))
    assert memory.load("a", ROWS) is not None  # used, so "b" is the oldest now
    memory.save("d", SELECTION, ROWS)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "c", "d"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * size


def test_what_is_larger_than_the_bound_is_not_remembered(tmp_path: Path) -> None:
    memory = RememberedSelections(tmp_path, max_bytes=10)
    memory.save("a", SELECTION, ROWS)
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_is_cleared_away_after_a_day(tmp_path: Path) -> None:
    memory = RememberedSelections(tmp_path)
    for name in ("old.parts", "new.parts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.claim").touch()
    (tmp_path / "old.aside").touch()
    (tmp_path / "somebody else's").touch()
    for path in tmp_path.glob("old.*"):
        os.utime(path, (0, 0))
    memory.save("a", SELECTION, ROWS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.selection", "new.parts", "somebody else's"]


def test_the_directory_is_the_one_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETASTORE_CACHE", str(tmp_path))
    assert selection_directory(True) == tmp_path / "selections"
    assert selection_directory(tmp_path / "here") == tmp_path / "here"
    assert selection_directory("here") == Path("here")
    assert selection_directory(False) is None
    monkeypatch.delenv("PETASTORE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert selection_directory(True) == tmp_path / "xdg" / "petastore" / "selections"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert selection_directory(True) == tmp_path / "home" / ".cache" / "petastore" / "selections"
    monkeypatch.setattr("sys.platform", "darwin")
    assert selection_directory(True) == tmp_path / "home" / "Library" / "Caches" / "petastore" / "selections"


@pytest.mark.parametrize("asked", ["", 7, None, "s3://bucket/x"])
def test_what_is_no_local_directory_is_refused(asked: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="filter_cache"):
        selection_directory(asked)
