"""Tests of selection files: round trip; a file that is damaged or does not match is a cache miss."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.plan.selection import Pruned, Selection
from petastore.selecting.remembered import read_selection_file, selection_bytes, write_aside

ROWS = np.array([3, 0, 9, 5])
KEPT = Selection(np.array([3, 0, 5, 0]), {2: np.array([True, False] * 4 + [True])})
NOTHING = Selection(np.zeros(4, np.int64), {})


def written(folder: Path, data: bytes) -> Any:
    (folder / "x.selection").write_bytes(data)
    return read_selection_file(folder / "x.selection", "key", ROWS)


def test_selection_file_round_trips(tmp_path: Path) -> None:
    assert written(tmp_path, selection_bytes("key", KEPT, ROWS)) == KEPT
    assert written(tmp_path, selection_bytes("key", NOTHING, ROWS)) == NOTHING


@given(st.lists(st.lists(st.booleans(), max_size=20), min_size=1, max_size=10))
def test_selection_file_round_trips_any_bitmaps(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[bool]]
) -> None:
    rows = np.array([len(bits) for bits in drawn])
    kept = Selection.of_flags(enumerate(np.array(bits, np.bool_) for bits in drawn), rows)
    path = tmp_path_factory.getbasetemp() / "drawn.selection"
    path.write_bytes(selection_bytes("key", kept, rows))
    assert read_selection_file(path, "key", rows) == kept


def test_missing_selection_file_is_a_miss(tmp_path: Path) -> None:
    assert read_selection_file(tmp_path / "none.selection", "key", ROWS) is None
    assert read_selection_file(tmp_path, "key", ROWS) is None


def test_damaged_selection_file_is_a_miss(tmp_path: Path) -> None:
    data = selection_bytes("key", KEPT, ROWS)
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 1
        assert written(tmp_path, bytes(damaged)) is None
        assert written(tmp_path, data[:place]) is None
    assert written(tmp_path, data + b"\x00") is None


def test_selection_file_of_another_filter_is_a_miss(tmp_path: Path) -> None:
    assert written(tmp_path, selection_bytes("other", KEPT, ROWS)) is None
    assert written(tmp_path, selection_bytes("key", Selection(np.zeros(3, np.int64), {}), ROWS[:3])) is None


def test_selection_file_never_loads_pickles(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (tmp_path / "sprung").touch, ()

    assert written(tmp_path, pickle.dumps(Trap())) is None
    assert not (tmp_path / "sprung").exists()


def forged(
    partial: list[int],
    whole: list[int],
    bitmaps: bytes,
    *,
    pruned: str = "[]",
    version: bytes = b"petastore.selection/3",
) -> bytes:
    """Return a selection file with any contents and a valid digest."""
    flags = b"".join(np.packbits(np.isin(np.arange(4), groups)).tobytes() for groups in (partial, whole))
    content = b'{"key": "key", "row_groups": 4, "pruned": ' + pruned.encode() + b"}\n" + flags + bitmaps
    return version + b"\n" + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


@pytest.mark.parametrize(
    ("partial", "whole", "bitmaps"),
    [
        ([0], [0], b"\xc0"),
        ([0], [], b""),
        ([0], [], b"\xc0\x00"),
        ([0], [], b"\xe0"),
        ([0], [], b"\x00"),
        ([0], [], b"\x81"),
        ([1], [], b"\xc0"),
        ([1], [], b""),
        ([2], [], b"\xc0"),
        ([2], [], b"\xc0\x00\x00"),
        ([], [0], b"\xc0"),
        ([0, 2], [], b"\xc0\x00\xc0"),
    ],
    ids=str,
)
def test_selection_file_that_does_not_match_the_row_groups_is_a_cache_miss(
    tmp_path: Path, partial: list[int], whole: list[int], bitmaps: bytes
) -> None:
    assert written(tmp_path, forged(partial, whole, bitmaps)) is None


PRUNED = (Pruned("statistics", 1, 5), Pruned("filter", 0, 4))


def test_selection_file_stores_counts_of_skipped_rows(tmp_path: Path) -> None:
    found = written(tmp_path, selection_bytes("key", dataclasses.replace(KEPT, pruned=PRUNED), ROWS))
    assert found == KEPT
    assert found.pruned == PRUNED


@pytest.mark.parametrize(
    "pruned",
    [
        '[["chance", 1, 5]]',
        '[["filter", 1]]',
        '[["filter", 1, 5, 6]]',
        '[["filter", -1, 5]]',
        '[["filter", 6, 5]]',
        '[["filter", 1, 1e999]]',
        '[["filter", true, 5]]',
        '[["filter", 1,  5]]',
        '[["filter", 0, 16]]',
        '{"filter": 5}',
        '"filter"',
        "null",
        "",
        "[" * 100_000,
    ],
    ids=lambda pruned: str(pruned)[:20],
)
def test_selection_file_with_impossible_counts_is_a_miss(tmp_path: Path, pruned: str) -> None:
    assert written(tmp_path, forged([0], [], b"\xc0", pruned='[["filter", 1, 15]]')) is not None
    assert written(tmp_path, forged([0], [], b"\xc0", pruned=pruned)) is None


def test_selection_file_of_an_older_version_is_a_miss(tmp_path: Path) -> None:
    assert written(tmp_path, forged([0], [], b"\xc0", version=b"petastore.selection/2")) is None


def test_forged_selection_file_with_valid_checksum_is_read(tmp_path: Path) -> None:
    found = written(tmp_path, forged([0], [], b"\xc0"))
    assert found == Selection(np.array([2, 0, 0, 0]), {0: np.array([True, True, False])})


def test_failed_selection_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.selection"
    write_aside(path, b"old")
    with pytest.raises(TypeError):
        write_aside(path, "text")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
