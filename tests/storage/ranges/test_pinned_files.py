"""Tests of pinned file versions: ranges are fetched only from the version that has the planned footer."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.cache import DiskCache
from petastore.errors import DatasetChangedError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footers import read_footer
from petastore.storage.ranges.fetch import ByteRange, FetchedRanges
from petastore.storage.ranges.pinned_files import KeptFiles, PinnedFiles
from petastore.storage.stores.interface import FileVersion
from tests.servers.fault_proxy import FaultProxy, Faults
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


def test_ranges_are_fetched_from_the_file_version_of_the_footer(
    location: Location, footer: Footer, fetcher: Fetcher
) -> None:
    pinned = PinnedFiles(fetcher(location))
    for _ in range(2):
        found = pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])
        assert found.read(0, 4).to_pybytes() == b"PAR1"


@pytest.mark.parametrize(
    "other", [parquet(7), parquet(0)[:-30], parquet(0) + parquet(1)], ids=["same size", "shorter", "longer"]
)
def test_fetch_from_a_file_with_another_footer_raises(
    other: bytes, location: Location, footer: Footer, fetcher: Fetcher
) -> None:
    pinned = PinnedFiles(fetcher(location))
    put(location, other)
    with pytest.raises(DatasetChangedError, match="was rewritten since the dataset was listed"):
        pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])


def test_fetch_from_a_file_rewritten_after_the_first_fetch_raises(
    location: Location, footer: Footer, fetcher: Fetcher
) -> None:
    pinned = PinnedFiles(fetcher(location))
    pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])
    put(location, parquet(0))  # the same bytes with another version, which may have other bytes
    with pytest.raises(DatasetChangedError, match="was rewritten since the dataset was listed"):
        pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])


@pytest.mark.server
def test_checking_the_footer_of_a_file_takes_one_request(
    served: Served, proxy: FaultProxy, fetcher: Fetcher, tmp_path: Any
) -> None:
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


@pytest.mark.server
def test_cached_ranges_of_a_file_version_are_fetched_once(
    served: Served, proxy: FaultProxy, fetcher: Fetcher, tmp_path: Any
) -> None:
    from petastore.storage.files.location import open_location

    whole = parquet(0)
    for folder in (served.root, tmp_path):
        (folder / "kept.parquet").write_bytes(whole)
    footer = read_footer(open_location(tmp_path), "kept.parquet")
    with DiskCache(tmp_path / "cache", limit=1 << 20) as cache:
        kept = KeptFiles(cache)
        asked = [ByteRange(0, 4), ByteRange(10, 500), ByteRange(490, 100), ByteRange(10, 40)]
        for more in ([], [ByteRange(5000, 70), ByteRange(5070, 70)]):
            pinned = PinnedFiles(fetcher(location_of(proxy.url)), kept)
            proxy.begin(Faults())
            for _ in range(3):
                ranges = [*asked, *more, *asked]
                found = pinned.fetch(footer.file, footer.encoded, ranges)
                for one in ranges:
                    assert found.read(*one).to_pybytes() == whole[one.offset : one.end]
            assert proxy.counted.requests == (1 if more else 2)  # the first fetch also requests the version
        assert cache.metrics.misses == 6
        pinned.discard(footer.file, asked)
        assert cache.info().entries == 2


@pytest.mark.server
def test_cached_ranges_are_not_mixed_with_a_new_file_version(
    served: Served, proxy: FaultProxy, fetcher: Fetcher, tmp_path: Any
) -> None:
    from petastore.storage.files.location import open_location

    for folder in (served.root, tmp_path):
        (folder / "anew.parquet").write_bytes(parquet(0))
    footer = read_footer(open_location(tmp_path), "anew.parquet")
    with DiskCache(tmp_path / "cache", limit=1 << 20) as cache:
        pinned = PinnedFiles(fetcher(location_of(proxy.url)), KeptFiles(cache))
        pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4)])
        whole = bytearray(parquet(0))
        whole[100] ^= 1  # same size and footer
        (served.root / "anew.parquet").write_bytes(whole)
        with pytest.raises(DatasetChangedError):
            pinned.fetch(footer.file, footer.encoded, [ByteRange(0, 4), ByteRange(100, 8)])
        later = PinnedFiles(fetcher(location_of(proxy.url)), KeptFiles(cache))
        found = later.fetch(footer.file, footer.encoded, [ByteRange(0, 4), ByteRange(100, 8)])
        assert found.read(100, 8).to_pybytes() == whole[100:108]
        assert cache.metrics.misses == 1 + 2


def test_stale_etag_of_one_file_does_not_affect_others(location: Location, fetcher: Fetcher) -> None:
    stale, fresh, other = (DataFile(f"{name}.parquet", 1000, etag=f'"{name}"') for name in ("stale", "fresh", "other"))
    requested: list[DataFile] = []

    def fetch(file: DataFile, version: FileVersion) -> FetchedRanges:
        requested.append(file)
        if file is stale:
            raise DatasetChangedError("stale.parquet was rewritten")
        return FetchedRanges(1000, version, [])

    pinned = PinnedFiles(fetcher(location))
    for file in (fresh, stale, stale, other):
        pinned.as_told(file, functools.partial(fetch, file))
    assert requested == [fresh, stale, other]  # the stale etag is requested once
    assert [pinned.trusts_etag(file) for file in (stale, fresh, other)] == [False, True, True]
    assert not pinned.trusts_etag(dataclasses.replace(other, etag=""))


def test_manifest_etags_are_trusted_again_if_another_file_has_a_fresh_one(location: Location, fetcher: Fetcher) -> None:
    stale, fresh, other = (DataFile(f"{name}.parquet", 1000, etag=f'"{name}"') for name in ("stale", "fresh", "other"))

    def refuse(_: FileVersion) -> FetchedRanges:
        raise DatasetChangedError("it was rewritten")

    pinned = PinnedFiles(fetcher(location))
    assert pinned.as_told(stale, refuse) is None
    assert [pinned.trusts_etag(file) for file in (stale, fresh, other)] == [False] * 3  # the dataset may be a copy
    pinned.compare_etag(stale, FileVersion(1000, '"rewritten"'))
    assert not pinned.trusts_etag(other)
    pinned.compare_etag(fresh, FileVersion(1000, fresh.etag))
    assert [pinned.trusts_etag(file) for file in (stale, fresh, other)] == [False, True, True]
