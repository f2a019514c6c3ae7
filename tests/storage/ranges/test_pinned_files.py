"""A file is read in the version that has the footer by which it is read, and in no other."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DatasetChangedError
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import Footer, read_footer
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.pinned_files import PinnedFiles
from tests.servers.fault_proxy import FaultProxy
from tests.servers.fixtures import Served
from tests.storage.ranges.conftest import Fetcher, location_of


def parquet(first: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"x": pa.array(range(first, first + 1000))}), sink, compression="none", use_dictionary=False
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.fixture
def location() -> Iterator[Location]:
    root = f"/{uuid.uuid4().hex}"
    store = fsspec.filesystem("memory")
    store.pipe_file(f"{root}/a.parquet", parquet(0))
    yield location_of(f"memory:/{root}")
    store.rm(root, recursive=True)


@pytest.fixture
def footer(location: Location) -> Footer:
    return read_footer(location, "a.parquet")


def put(location: Location, data: bytes) -> None:
    fsspec.filesystem("memory").pipe_file(location.join("a.parquet"), data)


def test_ranges_come_of_the_file_with_this_footer(location: Location, footer: Footer, fetcher: Fetcher) -> None:
    pinned = PinnedFiles(fetcher(location))
    for _ in range(2):
        found = pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])
        assert found.read(0, 4).to_pybytes() == b"PAR1"


@pytest.mark.parametrize(
    "other", [parquet(7), parquet(0)[:-30], parquet(0) + parquet(1)], ids=["same size", "shorter", "longer"]
)
def test_a_file_with_another_footer_is_refused(
    other: bytes, location: Location, footer: Footer, fetcher: Fetcher
) -> None:
    pinned = PinnedFiles(fetcher(location))
    put(location, other)
    with pytest.raises(DatasetChangedError, match="was rewritten since the dataset was listed"):
        pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])


def test_a_file_that_is_written_anew_later_is_refused(location: Location, footer: Footer, fetcher: Fetcher) -> None:
    pinned = PinnedFiles(fetcher(location))
    pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])
    put(location, parquet(0))  # the same bytes, but who can tell
    with pytest.raises(DatasetChangedError, match="was rewritten since the dataset was listed"):
        pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])


@pytest.mark.server
def test_it_takes_one_request_a_file(served: Served, proxy: FaultProxy, fetcher: Fetcher, tmp_path: Any) -> None:
    for folder in (served.root, tmp_path):
        (folder / "pinned.parquet").write_bytes(parquet(0))
    from petastore.storage.files.location import open_location

    footer = read_footer(open_location(tmp_path), "pinned.parquet")
    pinned = PinnedFiles(fetcher(location_of(proxy.url)))
    for _ in range(3):
        pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])
    assert proxy.counted.requests == 1 + 3
    (served.root / "pinned.parquet").write_bytes(parquet(0)[:2000])
    with pytest.raises(DatasetChangedError):
        PinnedFiles(pinned.fetcher).fetch(footer.file, footer.encoded, [ByteRange(0, 4)])
