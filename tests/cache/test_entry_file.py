"""An entry's file is served as it was written, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.cache.entry_file import (
    HEADER,
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
@given(payload=st.binary(max_size=70_000), more=st.none() | st.integers(-1, 1))
def test_what_was_written_is_mapped_or_copied(
    mapped: bool, payload: bytes, more: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "entry", payload)
    assert path.stat().st_size == HEADER + len(payload) <= size_on_disk(len(payload))
    into = None if more is None else memoryview(bytearray(max(len(payload) + more, 0)))
    entry = map_entry(path, DIGEST, MOST, mapped=mapped, into=into)
    assert entry is not None
    assert (bytes(entry.view), entry.slot, entry.view.readonly) == (payload, 7, True)
    if into is not None and len(into) == len(payload):
        assert entry.view.obj is into.obj
        assert bytes(into) == payload
    entry.close()
    entry.close()


def test_there_may_be_none(tmp_path: Path) -> None:
    assert map_entry(tmp_path / "none", DIGEST, MOST) is None


def test_memory_stays_as_long_as_somebody_looks_at_it(tmp_path: Path) -> None:
    entry = map_entry(written(tmp_path / "entry", bytes(range(200))), DIGEST, MOST)
    assert entry is not None
    numbers = np.frombuffer(entry.view, np.uint8)
    (tmp_path / "entry").unlink()
    entry.close()
    assert numbers.tolist() == list(range(200))


def test_payloads_are_aligned_in_memory(tmp_path: Path) -> None:
    entry = map_entry(written(tmp_path / "entry", bytes(8)), DIGEST, MOST)
    assert entry is not None
    address = np.frombuffer(entry.view, np.uint8).ctypes.data
    entry.close()
    assert address % 64 == 0


def test_any_wrong_byte_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "entry", b"payload of some bytes")
    right = path.read_bytes()
    for place in range(len(right)):
        path.write_bytes(right[:place] + bytes([right[place] ^ 0x10]) + right[place + 1 :])
        for into in (None, memoryview(bytearray(len(right) - HEADER))):
            with pytest.raises(DamagedEntryError):
                map_entry(path, DIGEST, MOST, into=into)


def test_what_is_cut_lengthened_anothers_or_too_large_is_damaged(tmp_path: Path) -> None:
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


def test_what_is_no_file_is_damaged_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(written(tmp_path / "entry", b"payload"))
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        with pytest.raises(DamagedEntryError):
            map_entry(tmp_path / name, DIGEST, MOST)


def test_all_is_written_however_little_the_system_takes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:3], offset))
    with (tmp_path / "file").open("wb") as file:
        write_all(file.fileno(), b"ten bytes.", 2)
    assert (tmp_path / "file").read_bytes() == b"\0\0ten bytes."
