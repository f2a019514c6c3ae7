"""File systems of Arrow give ranges, ends and versions of files, without saying of which version bytes are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from petastore.storage.ranges.arrow_client import ArrowClient
from petastore.storage.requests.client import NotTheVersionError

DATA = bytes(range(100))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "x").write_bytes(DATA)
    return tmp_path / "x"


def test_ranges_are_those_of_the_file(path: Path) -> None:
    client = ArrowClient(fs.LocalFileSystem())
    for offset, length in ((0, 1), (0, 100), (37, 20), (99, 1)):
        answer = client.get(str(path), offset, length, None)
        assert bytes(answer.data) == DATA[offset : offset + length]
        assert answer.version is None


@pytest.mark.parametrize("length", [1, 7, 100, 1000])
def test_an_end_comes_with_the_version_that_it_is_of(path: Path, length: int) -> None:
    client = ArrowClient(fs.LocalFileSystem())
    answer = client.tail(str(path), length)
    assert bytes(answer.data) == DATA[-length:]
    assert answer.version == client.version(str(path))


def test_a_file_without_bytes_has_no_end(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(NotTheVersionError):
        ArrowClient(fs.LocalFileSystem()).tail(str(path), 8)


def test_versions_of_one_size_are_told_apart_by_less_than_a_second(path: Path) -> None:
    client = ArrowClient(fs.LocalFileSystem())
    seconds = 1_700_000_000
    os.utime(path, ns=(0, seconds * 10**9 + 1))
    first = client.version(str(path))
    os.utime(path, ns=(0, seconds * 10**9 + 2))
    assert (first.size, first.modified) == (100, "2023-11-14 22:13:20.000000001")
    assert not first.is_same(client.version(str(path)))


def test_a_file_that_is_not_there_is_said_to_be_missing(path: Path) -> None:
    for ask in (
        ArrowClient(fs.LocalFileSystem()).version,
        lambda name: ArrowClient(fs.LocalFileSystem()).get(name, 0, 1, None),
    ):
        with pytest.raises(FileNotFoundError):
            ask(f"{path}.not")


def test_it_is_named_after_who_handles_it() -> None:
    handled: Any = fs.PyFileSystem(fs.FSSpecHandler(MemoryFileSystem()))
    assert ArrowClient(fs.LocalFileSystem()).system == "LocalFileSystem"
    assert ArrowClient(handled).system == "FSSpecHandler"
