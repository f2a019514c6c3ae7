"""Tests of the cache ledger: space is counted before a write, evictions, and files of killed processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from petastore.cache.folder import Folder, LockedFile, locked
from petastore.cache.ledger import Ledger
from petastore.cache.next_use import Future, FutureFile, future_bytes
from petastore.cache.table import KEPT, WRITING, Table

LIMIT = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "cache")


def held(folder: Folder, number: int) -> LockedFile:
    file = locked(folder.writing / (bytes([number]) * 16).hex(), patience=0)
    assert file is not None
    return file


def kept(folder: Folder, ledger: Ledger, number: int, size: int = 4096) -> None:
    with held(folder, number) as file:
        assert ledger.reserve(file, size)[0] is not None
        folder.rename(file.path, Path(folder.entry(file.path.name)))
        assert ledger.commit(bytes([number]) * 16)


def states(folder: Folder) -> list[int]:
    return sorted(int(state) for state in Table.open(folder.ledger).state if state)


def test_reserving_an_entry_counts_its_bytes_and_allocates_its_file(folder: Folder) -> None:
    ledger = Ledger(folder, LIMIT)
    with held(folder, 1) as file:
        slot, evicted = ledger.reserve(file, 5000)
        assert (slot, evicted, file.path.stat().st_size) == (0, 0, 5000)
        assert Table.open(folder.ledger).counted == 8192
        Ledger(folder, LIMIT).close()  # opening the cache keeps a file that is being written
        folder.ledger.unlink()
        Ledger(folder, LIMIT).close()  # and counts it, if the table must be rebuilt
        assert Table.open(folder.ledger).counted == 8192
        assert ledger.commit(bytes([1]) * 16)
    ledger.close()


def test_clear_down_to_a_size_keeps_the_most_recently_used_entries(folder: Folder) -> None:
    ledger = Ledger(folder, LIMIT)
    for number in range(1, 5):
        kept(folder, ledger, number)
    since = time.time_ns()
    ledger.note_use(0, bytes([1]) * 16)  # the entry in the first slot
    assert ledger.clear(but_bytes=2 * 4096 + 1, but_since=0) == 2 * 4096
    assert [path.name[:2] for path in sorted((folder.root / "entries").glob("*/*"))] == ["01", "04"]
    assert ledger.clear(but_bytes=LIMIT, but_since=since) == 4096
    assert [path.name[:2] for path in (folder.root / "entries").glob("*/*")] == ["01"]
    assert ledger.clear() == 4096
    ledger.close()


def test_opening_the_cache_removes_files_of_a_killed_writer(folder: Folder) -> None:
    ledger = Ledger(folder, LIMIT)
    for number in (1, 2, 3):
        with held(folder, number) as file:
            assert ledger.reserve(file, 5000)[0] is not None
            if number == 2:  # 1 was killed after the rename, 2 before it, 3 before its file was allocated
                continue
            folder.rename(file.path, Path(folder.entry(file.path.name))) if number == 1 else file.path.unlink()
    assert states(folder) == [WRITING] * 3
    Ledger(folder, LIMIT).close()
    assert states(folder) == [KEPT]
    assert list(folder.writing.iterdir()) == []
    ledger.close()


def test_opening_the_cache_removes_entries_of_an_interrupted_eviction(folder: Folder) -> None:
    ledger = Ledger(folder, LIMIT)
    kept(folder, ledger, 1)
    kept(folder, ledger, 2)
    Table.open(folder.ledger).set_state(0, -77)
    Ledger(folder, LIMIT).close()
    assert states(folder) == [KEPT]
    assert sum(path.is_file() for path in (folder.root / "entries").rglob("*")) == 1
    ledger.close()


def test_opening_the_cache_removes_the_access_order_of_a_killed_reader(folder: Folder) -> None:
    Ledger(folder, LIMIT).close()
    path = folder.futures / ("ab" * 16)
    path.write_bytes(future_bytes(Future.of(np.arange(4, dtype=np.uint64), np.arange(4))))
    read = FutureFile(path)
    with path.open("rb") as removed:
        Ledger(folder, LIMIT).close()
        assert not path.exists()
        assert os.fstat(removed.fileno()).st_size == 64 + 64  # truncation would kill readers that map it
    assert read.future.words.tolist() == [0, 1, 2, 3]


def test_failed_file_allocation_leaves_no_bytes_counted(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError

    ledger = Ledger(folder, LIMIT)
    with held(folder, 1) as file, monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", full)
        with pytest.raises(OSError):
            ledger.reserve(file, 5000)
    assert states(folder) == []
    ledger.close()


def test_reserving_space_evicts_old_entries_and_returns_the_evicted_bytes(folder: Folder) -> None:
    ledger = Ledger(folder, LIMIT)
    for number in range(4):
        kept(folder, ledger, number, 250_000)
    with held(folder, 9) as file:
        slot, evicted = ledger.reserve(file, 300_000)
        assert slot is not None
        assert evicted == 2 * -(-250_000 // 4096) * 4096
        assert [Path(folder.entry((bytes([number]) * 16).hex())).exists() for number in range(4)] == [
            *(False, False),
            *(True, True),
        ]
        file.path.unlink()
    ledger.close()


def test_reserving_more_than_the_cache_size_evicts_nothing(folder: Folder) -> None:
    ledger = Ledger(folder, LIMIT)
    kept(folder, ledger, 1)
    with held(folder, 2) as file:
        assert ledger.reserve(file, LIMIT) == (None, 0)
        file.path.unlink()
    assert states(folder) == [KEPT]
    ledger.close()
