"""Tests of small files: read whole up to a limit, replaced atomically, and read in one version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from petastore.errors import MetadataError, StorageError
from petastore.storage.files.location import open_location
from petastore.storage.files.whole_files import delete_quietly, read_up_to, read_whole, replace_whole


@pytest.mark.parametrize("url", ["{}", "memory://bucket/{}"])
def test_small_file_is_replaced_read_and_deleted(tmp_path: Path, url: str) -> None:
    location = open_location(url.format(tmp_path))
    assert read_whole(location, "a/b.bin", max_bytes=10) is None
    for data in (b"first", b"second"):
        replace_whole(location, "a/b.bin", data)
        assert read_whole(location, "a/b.bin", max_bytes=10) == data
    with pytest.raises(MetadataError, match=r"b\.bin must have at most 5 bytes, got 6"):
        read_whole(location, "a/b.bin", max_bytes=5)
    delete_quietly(location, "a/b.bin")
    delete_quietly(location, "a/b.bin")
    assert read_whole(location, "a/b.bin", max_bytes=10) is None


def test_file_replaced_after_its_size_was_read_is_read_in_one_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    location = open_location("memory://bucket/replaced")
    replace_whole(location, "b.bin", b"old")
    versions = [b"longer than that", b"short"]
    size_of = type(location.filesystem.fs).size

    def size(store: Any, path: str) -> int:
        found: int = size_of(store, path)
        if versions:
            replace_whole(location, "b.bin", versions.pop(0))
        return found

    monkeypatch.setattr(type(location.filesystem.fs), "size", size)
    assert read_whole(location, "b.bin", max_bytes=100) == b"short"


def test_failed_replacement_of_a_file_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "a" / "b.bin").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"cannot rename \S+ to a/b\.bin"):
        replace_whole(open_location(tmp_path), "a/b.bin", b"data")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.bin"]


def test_file_modified_while_it_is_read_is_read_in_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread, path = os.pread, tmp_path / "data"
    halves: list[bytes] = []

    def with_a_write_between(opened: int, size: int, at: int) -> bytes:
        if halves:
            return pread(opened, size, at)
        halves.append(pread(opened, 500, 0))
        with path.open("r+b") as file:
            file.write(b"b" * 1000)
        return halves[0] + pread(opened, 500, 500)

    for _ in range(20):  # the second write may have the same mtime or another
        halves.clear()
        path.write_bytes(b"a" * 1000)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pread", with_a_write_between)
            assert read_up_to(open_location(tmp_path), "data", 1001) == b"b" * 1000
