"""Tests of the pyarrow filesystem client: ranges, tails, and file versions by mtime."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from petastore.storage.stores.interface import ArrowStore, NotTheVersionError

DATA = bytes(range(100))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "x").write_bytes(DATA)
    return tmp_path / "x"


def test_pyarrow_client_ranges_equal_the_file(path: Path) -> None:
    client = ArrowStore(fs.LocalFileSystem())
    for offset, length in ((0, 1), (0, 100), (37, 20), (99, 1)):
        answer = client.get(str(path), offset, length, None)
        assert bytes(answer.data) == DATA[offset : offset + length]
        assert answer.version is None


@pytest.mark.parametrize("length", [1, 7, 100, 1000])
def test_pyarrow_client_file_tail_has_the_version_of_the_file(path: Path, length: int) -> None:
    client = ArrowStore(fs.LocalFileSystem())
    answer = client.tail(str(path), length)
    assert bytes(answer.data) == DATA[-length:]
    assert answer.version == client.version(str(path))


def test_pyarrow_client_raises_for_the_tail_of_an_empty_file(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(NotTheVersionError):
        ArrowStore(fs.LocalFileSystem()).tail(str(path), 8)


def test_pyarrow_client_file_versions_differ_by_a_nanosecond_of_mtime(path: Path) -> None:
    client = ArrowStore(fs.LocalFileSystem())
    seconds = 1_700_000_000
    os.utime(path, ns=(0, seconds * 10**9 + 1))
    first = client.version(str(path))
    os.utime(path, ns=(0, seconds * 10**9 + 2))
    assert (first.size, first.modified) == (100, "2023-11-14 22:13:20.000000001")
    assert not first.is_same(client.version(str(path)))


def test_pyarrow_client_missing_file_raises(path: Path) -> None:
    for ask in (
        ArrowStore(fs.LocalFileSystem()).version,
        lambda name: ArrowStore(fs.LocalFileSystem()).get(name, 0, 1, None),
    ):
        with pytest.raises(FileNotFoundError):
            ask(f"{path}.not")


def test_pyarrow_client_is_named_after_its_filesystem() -> None:
    handled: Any = fs.PyFileSystem(fs.FSSpecHandler(MemoryFileSystem()))
    assert ArrowStore(fs.LocalFileSystem()).system == "LocalFileSystem"
    assert ArrowStore(handled).system == "FSSpecHandler"


@pytest.mark.leaves_running("Arrow's S3 keeps its threads")
def test_pyarrow_s3_client_has_buckets_and_no_cheap_rename() -> None:
    objects, local = ArrowStore(fs.S3FileSystem(anonymous=True, region="us-east-1")), ArrowStore(fs.LocalFileSystem())
    assert (objects.has_buckets, objects.has_cheap_rename, objects.is_retried) == (True, False, False)
    assert (local.has_buckets, local.has_cheap_rename, local.is_retried) == (False, True, False)
