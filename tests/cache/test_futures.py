"""Tests of access order files: round trip, position, locks, and detection of damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from petastore.cache.folder import locked
from petastore.cache.next_use import Future, FutureFile, future_bytes, note_position, open_futures, uses_within

FUTURE = Future.of(np.array([7, 5, 6], np.uint64), np.array([0, 2, 0, 1]))


def test_access_order_file_round_trips(tmp_path: Path) -> None:
    (tmp_path / "future").write_bytes(future_bytes(FUTURE))
    read = FutureFile(tmp_path / "future")
    assert read.future.words.tolist() == [5, 6, 7]
    assert read.future.uses.tolist() == FUTURE.uses.tolist()
    assert read.position == 0


def test_reader_position_in_an_access_order_file_is_visible_at_once(tmp_path: Path) -> None:
    (tmp_path / "future").write_bytes(future_bytes(FUTURE))
    read = FutureFile(tmp_path / "future")
    with (tmp_path / "future").open("r+b") as file:
        for position, seen in ((3, 3), (2**63, 4)):
            note_position(file.fileno(), min(position, 2), position)
            assert (read.position, read.begun) == (2, seen)


def test_access_order_file_is_live_while_its_owner_holds_the_lock(tmp_path: Path) -> None:
    (tmp_path / "future").write_bytes(future_bytes(FUTURE))
    holder = locked(tmp_path / "future", patience=None)
    assert holder is not None
    read, other = FutureFile(tmp_path / "future"), FutureFile(tmp_path / "future")
    assert read.is_living
    assert other.is_living
    holder.close()
    assert not read.is_living
    assert not other.is_living


def test_access_order_file_detects_any_damaged_byte_except_in_the_position(tmp_path: Path) -> None:
    right = bytes(future_bytes(FUTURE))
    for place in (*range(40), *range(64, len(right))):
        (tmp_path / "future").write_bytes(right[:place] + bytes([right[place] ^ 4]) + right[place + 1 :])
        assert open_futures(tmp_path, ["future"]) == []
    for wrong in (b"", right[:63], right[:-1], right + b"\0"):
        (tmp_path / "future").write_bytes(wrong)
        assert open_futures(tmp_path, ["future"]) == []
    (tmp_path / "future").write_bytes(right)
    assert len(open_futures(tmp_path, ["future", "gone"])) == 1


def test_number_of_uses_follows_from_the_size_of_an_access_order_file() -> None:
    for uses in (0, 1, 1000):
        future = Future.of(np.arange(uses, dtype=np.uint64), np.arange(uses))
        size = len(future_bytes(future))
        assert uses_within(size) == uses
    assert uses_within(0) == 0


def test_damaged_access_order_files_are_closed_after_the_error(tmp_path: Path) -> None:
    (tmp_path / "future").write_bytes(b"wrong")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(ValueError, match="header"):
            FutureFile(tmp_path / "future")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
