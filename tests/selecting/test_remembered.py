"""Tests of the cache of selections: size limit, LRU eviction, damaged entries, cache directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore.errors import InvalidArgumentError
from petastore.plan import Selection
from petastore.plan.selection import Pruned
from petastore.selecting.remembered import RememberedSelections, selection_bytes, selection_directory

ROWS = np.array([4, 0, 6, 5])
FLAGS = [(0, np.ones(4, np.bool_)), (2, np.array([True, False] * 3)), (3, np.zeros(5, np.bool_))]
SELECTION = Selection.of_flags(FLAGS, ROWS)


def test_selection_stores_bitmaps_only_for_partly_selected_row_groups() -> None:
    assert SELECTION.counts.tolist() == [4, 0, 3, 0]
    assert list(SELECTION.bitmaps) == [2]
    whole = np.array([False, True, False, True])
    assert Selection.of_flags(FLAGS[:2], ROWS, whole=whole).counts.tolist() == [4, 0, 3, 5]


def test_cached_selection_round_trips(tmp_path: Path) -> None:
    memory = RememberedSelections(tmp_path / "deep" / "down")
    assert memory.load("a1", ROWS) is None
    memory.save("a1", SELECTION, ROWS)
    assert memory.load("a1", ROWS) == SELECTION
    assert memory.load("b2", ROWS) is None
    told = Selection.of_flags(FLAGS[:1], ROWS, pruned=(Pruned("statistics", 1, 6), Pruned("filter", 1, 5)))
    memory.save("b2", told, ROWS)
    again = memory.load("b2", ROWS)
    assert again is not None
    assert again.pruned == told.pruned
    nothing = Selection(np.zeros(4, np.int64), {})
    memory.save("c3", nothing, ROWS)
    assert memory.load("c3", ROWS) == nothing


def test_damaged_cached_selection_is_a_miss_and_can_be_saved_again(tmp_path: Path) -> None:
    memory = RememberedSelections(tmp_path)
    memory.save("a1", SELECTION, ROWS)
    (tmp_path / "a1.selection").write_bytes(b"nonsense")
    assert memory.load("a1", ROWS) is None
    memory.save("a1", SELECTION, ROWS)
    assert memory.load("a1", ROWS) == SELECTION


def test_least_recently_used_selection_is_evicted_first(tmp_path: Path) -> None:
    size = len(selection_bytes("a", SELECTION, ROWS))
    memory = RememberedSelections(tmp_path, max_bytes=3 * size)
    for place, key in enumerate("abc"):
        memory.save(key, SELECTION, ROWS)
        os.utime(tmp_path / f"{key}.selection", (place, place))
    assert memory.load("a", ROWS) is not None  # the access makes "b" the oldest entry
    memory.save("d", SELECTION, ROWS)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "c", "d"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * size


def test_selection_over_the_limit_is_not_cached(tmp_path: Path) -> None:
    memory = RememberedSelections(tmp_path, max_bytes=10)
    memory.save("a", SELECTION, ROWS)
    assert list(tmp_path.iterdir()) == []


def test_temporary_files_of_killed_processes_are_removed_after_a_day(tmp_path: Path) -> None:
    memory = RememberedSelections(tmp_path)
    for name in ("old.aside", "new.aside", "somebody else's"):
        (tmp_path / name).touch()
    for name in ("old.aside", "somebody else's"):
        os.utime(tmp_path / name, (0, 0))
    memory.save("a", SELECTION, ROWS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.selection", "new.aside", "somebody else's"]


def test_filter_cache_directory_follows_argument_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_filter_cache_that_is_not_a_local_directory_raises(asked: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="filter_cache"):
        selection_directory(asked)
