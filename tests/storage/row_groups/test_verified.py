"""What was verified is believed for the very version of a file that was old then; not for long, and not everywhere."""

from __future__ import annotations

import math
import mmap
import os
from pathlib import Path

import pytest

from petastore.storage.row_groups.verified import (
    Verified,
    Version,
    file_system_tells_of_writes,
    telling_version_of,
    tells_of_writes,
    version_of,
)

ASKED = (("id",), ("word", "weight"))


def a_version(path: Path) -> Version:
    found = version_of(str(path))
    assert found is not None
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"some bytes")
    return path


def test_what_was_noted_is_believed_for_that_version_row_group_and_question(file: Path) -> None:
    known, version = Verified(), a_version(file)
    assert not known.is_believed(str(file), version, 1, ASKED)
    known.note(str(file), version, 1, 3, ASKED)
    assert known.is_believed(str(file), version, 1, ASKED)
    assert not known.is_believed(str(file), version, 0, ASKED)
    assert not known.is_believed(str(file), version, 1, ASKED[:1])
    assert not known.is_believed(str(file) + "x", version, 1, ASKED)
    for name in version._fields:
        other = version._replace(**{name: getattr(version, name) + 1})
        assert not known.is_believed(str(file), other, 1, ASKED), name


def test_another_version_forgets_what_was_known(file: Path) -> None:
    known, version = Verified(), a_version(file)
    known.note(str(file), version, 0, 2, ASKED)
    known.note(str(file), version._replace(inode=7), 1, 2, ASKED)
    assert not known.is_believed(str(file), version, 0, ASKED)
    assert not known.is_believed(str(file), version._replace(inode=7), 0, ASKED)
    assert known.is_believed(str(file), version._replace(inode=7), 1, ASKED)


def test_nothing_is_believed_for_long(file: Path) -> None:
    known, version = Verified(believed_s=0.0), a_version(file)
    known.note(str(file), version, 0, 1, ASKED)
    assert not known.is_believed(str(file), version, 0, ASKED)
    unasked = Verified(believed_s=math.inf)
    unasked.note(str(file), version, 0, 2, ASKED)
    assert unasked.is_believed(str(file), version, 0, ASKED)
    assert not unasked.is_believed(str(file), version, 1, ASKED)


def test_a_version_is_settled_when_it_is_old(file: Path) -> None:
    version = a_version(file)
    assert not Verified().is_settled(version)
    assert Verified(settled_s=0.0).is_settled(version)
    assert Verified().is_settled(version._replace(changed_ns=version.changed_ns - 61 * 10**9))
    assert not Verified(settled_s=0.0).is_settled(version._replace(changed_ns=version.changed_ns + 10**12))


def test_putting_the_time_of_the_last_write_back_makes_another_version(file: Path) -> None:
    before, times = a_version(file), file.stat()
    while a_version(file).changed_ns == before.changed_ns:  # until the clock of the file system has moved on
        with file.open("r+b") as written:
            written.write(b"SOME")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = a_version(file)
    assert (after.inode, after.size, after.written_ns) == (before.inode, before.size, before.written_ns)
    assert after != before


def test_a_write_through_memory_makes_another_version(file: Path) -> None:
    before = a_version(file)
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        while a_version(file) == before:
            mapped[0] ^= 1
            mapped.flush()


def test_there_is_no_version_of_no_file(tmp_path: Path) -> None:
    assert version_of(str(tmp_path / "gone")) is None
    assert telling_version_of(str(tmp_path / "gone")) is None


def test_each_write_makes_another_version_than_a_telling_one(file: Path) -> None:
    for number in range(100):
        before = telling_version_of(str(file))
        with file.open("r+b") as opened:
            opened.write(bytes([number]))
        assert a_version(file) != before


def test_the_version_that_was_seen_last_is_the_known_one(file: Path) -> None:
    known, version = Verified(), a_version(file)
    assert not known.is_known(str(file), version)
    known.see(str(file), version)
    assert known.is_known(str(file), version)
    other = version._replace(inode=7)
    assert not known.is_known(str(file), other)
    known.see(str(file), other)
    assert known.is_known(str(file), other)


def test_file_systems_that_do_not_tell_of_each_write_are_not_believed(file: Path, tmp_path: Path) -> None:
    for kind, tells in {"ext4": True, "xfs": True, "tmpfs": False, "nfs4": False, "fuse.sshfs": False}.items():
        place = str(tmp_path).replace("-", "\\055")
        mounts = tmp_path / "mountinfo"
        mounts.write_text(
            "22 1 8:1 / / rw,relatime shared:1 - ext2 /dev/root rw\n"
            f"23 22 0:21 / {place} rw,nosuid shared:2 master:1 - {kind} some rw\n"
            "24 22 0:22 / /elsewhere rw - nfs4 host:/x rw\n"
        )
        assert file_system_tells_of_writes(str(file), mounts) is tells
    assert not file_system_tells_of_writes(str(file), tmp_path / "not there")
    assert tells_of_writes(str(file), a_version(file)) is file_system_tells_of_writes(str(file))
