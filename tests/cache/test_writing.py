"""Tests of writing cache entries: atomic, with one writer at a time, and counted while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from petastore.cache.entries import Writing
from petastore.cache.folder import Folder
from petastore.cache.ledger import Ledger
from petastore.cache.table import FUTURE, KEPT, Table

NAME = bytes(range(16))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "cache")


@pytest.fixture
def ledger(folder: Folder) -> Iterator[Ledger]:
    ledger = Ledger(folder, 1 << 20)
    yield ledger
    ledger.close()


def begun(folder: Folder, ledger: Ledger) -> Writing:
    writing = Writing.begun(folder, ledger, NAME, patience=0)
    assert writing is not None
    return writing


def put(fd: int, _: int) -> None:
    os.pwrite(fd, b"payload", 0)


def aside(folder: Folder) -> list[str]:
    return [path.name for path in folder.writing.iterdir()]


def counted(folder: Folder) -> list[int]:
    return [int(state) for state in Table.open(folder.ledger).state if state]


@pytest.mark.parametrize("state", [KEPT, FUTURE])
def test_written_entry_is_moved_into_place_and_counted(folder: Folder, ledger: Ledger, state: int) -> None:
    target = Path(folder.entry(NAME.hex()))
    with begun(folder, ledger) as writing:
        assert writing.write(7, put)
        assert aside(folder) == [NAME.hex()]
        writing.place(target, state).close()
    assert target.read_bytes() == b"payload"
    assert (aside(folder), counted(folder)) == ([], [state])


def test_failed_write_of_an_entry_leaves_no_file_and_no_counted_bytes(folder: Folder, ledger: Ledger) -> None:
    def fails() -> None:
        with begun(folder, ledger) as writing:
            assert writing.write(7, put)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (aside(folder), counted(folder)) == ([], [])


def test_cache_entry_has_one_writer_at_a_time(folder: Folder, ledger: Ledger) -> None:
    with begun(folder, ledger):
        assert Writing.begun(folder, ledger, NAME, patience=0) is None
        with Writing.begun(folder, ledger, NAME[::-1], patience=0) or pytest.fail("another name is free"):
            pass
    with begun(folder, ledger):
        pass


def test_leftovers_of_a_killed_writer_are_not_mixed_with_a_new_entry(folder: Folder, ledger: Ledger) -> None:
    (folder.writing / NAME.hex()).write_bytes(b"what somebody left")
    target = Path(folder.entry(NAME.hex()))
    with begun(folder, ledger) as writing:
        assert (folder.writing / NAME.hex()).stat().st_size == 0
        assert writing.write(7, put)
        writing.place(target).close()
    assert target.read_bytes() == b"payload"


def test_entry_over_the_limit_is_not_written(folder: Folder, ledger: Ledger) -> None:
    with begun(folder, ledger) as writing:
        assert not writing.write(ledger.most + 1, lambda *_: pytest.fail("it was written"))
    assert (aside(folder), counted(folder)) == ([], [])


def test_writing_an_entry_reports_the_bytes_that_it_evicted(folder: Folder, ledger: Ledger) -> None:
    for number in range(2):
        name = bytes([number]) * 16
        with Writing.begun(folder, ledger, name, patience=0) or pytest.fail("nobody has it") as writing:
            assert writing.write(ledger.most, lambda *_: None, has_to=True)
            writing.place(Path(folder.entry(name.hex()))).close()
    assert writing.evicted >= ledger.most
    assert counted(folder) == [KEPT]
