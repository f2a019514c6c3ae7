"""Tests of verified row groups: remembered per file version, and forgotten after any write."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from petastore.storage.footers.tails import LocalVersion
from petastore.storage.row_groups.open_files import VerifiedRowGroups

ASKED = (("id",), ("word", "weight"))


def version_of(path: Path) -> LocalVersion:
    with path.open("rb") as opened:
        return LocalVersion.of(opened.fileno())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"some bytes")
    return path


def test_verified_row_group_is_remembered_by_path_version_and_columns(file: Path) -> None:
    known, version = VerifiedRowGroups(), version_of(file)
    assert not known.has(str(file), version, 1, ASKED)
    known.add(str(file), version, 1, ASKED)
    assert known.has(str(file), version, 1, ASKED)
    assert not known.has(str(file), version, 0, ASKED)
    assert not known.has(str(file), version, 1, ASKED[:1])
    assert not known.has(str(file) + "x", version, 1, ASKED)
    for name in version._fields:
        other = version._replace(**{name: getattr(version, name) + 1})
        assert not known.has(str(file), other, 1, ASKED), name


def test_new_file_version_forgets_verified_row_groups(file: Path) -> None:
    known, version = VerifiedRowGroups(), version_of(file)
    known.add(str(file), version, 0, ASKED)
    known.add(str(file), version._replace(inode=7), 1, ASKED)
    assert not known.has(str(file), version, 0, ASKED)
    assert not known.has(str(file), version._replace(inode=7), 0, ASKED)
    assert known.has(str(file), version._replace(inode=7), 1, ASKED)


def test_local_file_version_differs_when_mtime_is_set_back(file: Path) -> None:
    before, times = version_of(file), file.stat()
    while version_of(file).changed_ns == before.changed_ns:  # until the ctime changes
        with file.open("r+b") as written:
            written.write(b"SOME")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = version_of(file)
    assert (after.inode, after.size, after.written_ns) == (before.inode, before.size, before.written_ns)
    assert after != before


def test_local_file_version_differs_after_a_write_through_mmap(file: Path) -> None:
    before = version_of(file)
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        while version_of(file) == before:
            mapped[0] ^= 1
            mapped.flush()


def test_local_file_version_of_an_open_file_differs_after_it_is_replaced(file: Path, tmp_path: Path) -> None:
    with file.open("rb") as opened:
        before = LocalVersion.of(opened.fileno())
        (tmp_path / "other").write_bytes(b"more bytes")
        (tmp_path / "other").replace(file)
        assert LocalVersion.of(opened.fileno()) != before
