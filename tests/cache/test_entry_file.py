"""Tests of entry files: content is returned as written, and any damage is detected."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.cache.entry_file import (
    HEADER,
    MAPPED_BYTES,
    DamagedEntryError,
    digest_of,
    map_entry,
    size_on_disk,
    write_all,
    write_entry,
)

MOST = 1 << 20
DIGEST = digest_of("key")


def written(path: Path, payload: bytes) -> Path:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        write_entry(fd, DIGEST, 7, memoryview(payload))
    finally:
        os.close(fd)
    return path


@pytest.mark.parametrize("mapped", [True, False])
@given(payload=st.binary(max_size=7000), times=st.sampled_from([1, 100]))
def test_written_entry_file_is_read_by_memory_map_or_copy(
    mapped: bool, payload: bytes, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    payload *= times
    path = written(tmp_path_factory.getbasetemp() / "entry", payload)
    assert path.stat().st_size == HEADER + len(payload) <= size_on_disk(len(payload))
    entry = map_entry(path, DIGEST, MOST, mapped=mapped)
    assert entry is not None
    assert (bytes(entry.view), entry.slot, entry.view.readonly) == (payload, 7, True)
    entry.close()
    entry.close()


def test_missing_entry_file_returns_none(tmp_path: Path) -> None:
    assert map_entry(tmp_path / "none", DIGEST, MOST) is None


def test_mapped_entry_stays_readable_after_its_file_is_deleted_and_closed(tmp_path: Path) -> None:
    entry = map_entry(written(tmp_path / "entry", bytes(range(200))), DIGEST, MOST)
    assert entry is not None
    numbers = np.frombuffer(entry.view, np.uint8)
    (tmp_path / "entry").unlink()
    entry.close()
    assert numbers.tolist() == list(range(200))


def test_mapped_cache_entries_are_aligned_to_64_bytes(tmp_path: Path) -> None:
    entry = map_entry(written(tmp_path / "entry", bytes(MAPPED_BYTES)), DIGEST, MOST)
    assert entry is not None
    address = np.frombuffer(entry.view, np.uint8).ctypes.data
    entry.close()
    assert address % 64 == 0


def test_entry_file_detects_every_wrong_byte(tmp_path: Path) -> None:
    path = written(tmp_path / "entry", b"payload of some bytes")
    right = path.read_bytes()
    for place in range(len(right)):
        path.write_bytes(right[:place] + bytes([right[place] ^ 0x10]) + right[place + 1 :])
        with pytest.raises(DamagedEntryError):
            map_entry(path, DIGEST, MOST)


def test_entry_file_of_another_key_or_wrong_length_is_damaged(tmp_path: Path) -> None:
    path = written(tmp_path / "entry", b"payload")
    right = path.read_bytes()
    with pytest.raises(DamagedEntryError):
        map_entry(path, digest_of("another key"), MOST)
    with pytest.raises(DamagedEntryError):
        map_entry(path, DIGEST, len(right) - 1)
    for wrong in (b"", right[:10], right[:HEADER], right[:-1], right + b"\0", bytes(len(right))):
        path.write_bytes(wrong)
        with pytest.raises(DamagedEntryError):
            map_entry(path, DIGEST, MOST)


def test_pipe_link_or_folder_as_entry_file_is_damaged_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(written(tmp_path / "entry", b"payload"))
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        with pytest.raises(DamagedEntryError):
            map_entry(tmp_path / name, DIGEST, MOST)


def test_write_all_continues_after_partial_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:3], offset))
    with (tmp_path / "file").open("wb") as file:
        write_all(file.fileno(), b"ten bytes.", 2)
    assert (tmp_path / "file").read_bytes() == b"\0\0ten bytes."
