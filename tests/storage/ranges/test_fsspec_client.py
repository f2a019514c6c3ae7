"""Tests of range requests through fsspec filesystems: byte ranges, rewritten and missing files."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import fsspec
import pytest

from petastore.errors import DatasetChangedError, FileMissingError
from petastore.storage.files.location import Location
from petastore.storage.ranges.fetch import ByteRange
from tests.storage.ranges.conftest import Fetcher, location_of

DATA = bytes(range(256)) * 100


@pytest.fixture
def location() -> Iterator[Location]:
    root = f"/{uuid.uuid4().hex}"
    store = fsspec.filesystem("memory")
    store.pipe_file(f"{root}/a.bin", DATA)
    yield location_of(f"memory:/{root}")
    store.rm(root, recursive=True)


def test_fsspec_client_reads_ranges(location: Location, fetcher: Fetcher) -> None:
    opened = fetcher(location)
    version = opened.version_of("a.bin")
    assert version.size == len(DATA)
    fetched = opened.fetch("a.bin", version, [ByteRange(5, 7), ByteRange(20_000, 5)])
    assert fetched.read(20_000, 5).to_pybytes() == DATA[20_000:20_005]
    assert opened.client.system == "MemoryFileSystem"


def test_fsspec_client_raises_for_a_rewritten_file(location: Location, fetcher: Fetcher) -> None:
    opened = fetcher(location)
    version = opened.version_of("a.bin")
    fsspec.filesystem("memory").pipe_file(location.join("a.bin"), DATA[::-1])
    with pytest.raises(DatasetChangedError, match=r"it had 25,600 bytes, written .*, and has 25,600 bytes, written"):
        opened.fetch("a.bin", version, [ByteRange(5, 7)])


def test_fsspec_client_missing_file_raises(location: Location, fetcher: Fetcher) -> None:
    with pytest.raises(FileMissingError, match=r"b\.bin is missing"):
        fetcher(location).version_of("b.bin")
