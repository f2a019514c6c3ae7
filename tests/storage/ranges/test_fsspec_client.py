"""fsspec's file systems give ranges too, and a file that changed meanwhile is found out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import fsspec
import pytest

from petastore.errors import DatasetChangedError, FileMissingError
from petastore.storage.files.location import Location
from petastore.storage.ranges.coalesced import ByteRange
from tests.storage.ranges.conftest import Fetcher, location_of

DATA = bytes(range(256)) * 100


@pytest.fixture
def location() -> Iterator[Location]:
    root = f"/{uuid.uuid4().hex}"
    store = fsspec.filesystem("memory")
    store.pipe_file(f"{root}/a.bin", DATA)
    yield location_of(f"memory:/{root}")
    store.rm(root, recursive=True)


def test_ranges_of_any_file_system(location: Location, fetcher: Fetcher) -> None:
    opened = fetcher(location)
    version = opened.version_of("a.bin")
    assert version.size == len(DATA)
    fetched = opened.fetch("a.bin", version, [ByteRange(5, 7), ByteRange(20_000, 5)])
    assert fetched.read(20_000, 5).to_pybytes() == DATA[20_000:20_005]
    assert opened.client_of("a.bin").system == "MemoryFileSystem"


def test_a_file_that_was_written_anew_is_refused(location: Location, fetcher: Fetcher) -> None:
    opened = fetcher(location)
    version = opened.version_of("a.bin")
    fsspec.filesystem("memory").pipe_file(location.join("a.bin"), DATA[::-1])
    with pytest.raises(DatasetChangedError, match=r"it had 25,600 bytes, written .*, and has 25,600 bytes, written"):
        opened.fetch("a.bin", version, [ByteRange(5, 7)])


def test_what_is_not_there_is_missing(location: Location, fetcher: Fetcher) -> None:
    with pytest.raises(FileMissingError, match=r"b\.bin is missing"):
        fetcher(location).version_of("b.bin")
