"""Tests of the footer cache on disk: processes of a host read each footer of a dataset once per file version."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.cache import DiskCache
from petastore.errors import MetadataError
from petastore.storage.files.location import open_location
from petastore.storage.footers.tails import KeptTails, Tail
from petastore.storage.ranges.pinned_files import footer_key
from petastore.storage.stores.interface import FileVersion
from tests.pace import patience
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served
from tests.tier import sized

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("fsspec keeps its web session, obstore its threads")]
KEYS: dict[str, Any] = {"key": "AKIAEXAMPLE", "secret": "hush-hush", "client_kwargs": {"region_name": "us-east-1"}}
FILES = 12
PROCESSES = sized(full=8, quick=3)


def parquet_of(first: int, rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(first, first + rows)}), sink)
    return sink.getvalue()


class Stored:
    """Plain Parquet in a bucket behind a proxy, and a cache."""

    def __init__(self, bucket: Path, proxy: FaultProxy, cache: Path) -> None:
        self._folder, self.proxy, self.cache = bucket / "frames", proxy, cache
        self._folder.mkdir(parents=True)
        self.url = f"s3://{bucket.name}/frames"
        self.options = {**KEYS, "endpoint_url": proxy.url}
        for number in range(FILES):
            self.put(number, parquet_of(100 * number, 100 + number))

    def put(self, number: int, data: bytes) -> None:
        (self._folder / f"part-{number:02}.parquet").write_bytes(data)

    def opened(self, processes: int = 1) -> list[dict[str, Any]]:
        """Return the results of new processes that open the dataset at the same time."""
        self.proxy.begin(Faults())
        command = [sys.executable, "-m", "tests.storage.footers.opening", self.url, json.dumps(self.options)]
        with contextlib.ExitStack() as running:
            started = [
                running.enter_context(
                    subprocess.Popen(
                        [*command, str(self.cache)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                    )
                )
                for _ in range(processes)
            ]
            for one in started:
                assert one.stdout is not None
                assert one.stdout.readline().startswith("ready")
            for one in started:
                assert one.stdin is not None
                one.stdin.close()
            told = [one.stdout.read() for one in started if one.stdout is not None]
            assert [one.wait(patience(60)) for one in started] == [0] * processes
        return [json.loads(one) for one in told]

    @property
    def asked_of_files(self) -> int:
        return sum(".parquet" in head for head in self.proxy.counted.heads)

    @property
    def entries(self) -> list[Path]:
        return [path for path in self.cache.glob("petastore-cache-1/entries/*/*") if path.is_file()]

    def reader(self) -> petastore.Reader:
        cache: dict[str, Any] = {"cache_type": "local-disk", "cache_location": self.cache, "cache_size_limit": 1 << 26}
        return petastore.make_batch_reader(self.url, storage_options=self.options, seed=0, **cache)


@pytest.fixture
def stored(s3_served: Served, tmp_path: Path) -> Iterator[Stored]:
    with FaultProxy(s3_served.port) as proxy:
        yield Stored(s3_served.root / uuid.uuid4().hex, proxy, tmp_path / "cache")


ROWS = [100 + number for number in range(FILES)]


def test_cached_footers_save_requests_on_second_open(stored: Stored) -> None:
    for misses in (FILES, 0):
        (found,) = stored.opened()
        assert found["rows"] == ROWS
        assert (stored.asked_of_files, found["misses"], found["hits"]) == (misses, misses, FILES - misses)
    assert stored.proxy.counted.requests <= 8  # the listing, and the check for a manifest


def test_concurrent_processes_read_each_footer_once(stored: Stored) -> None:
    found = stored.opened(PROCESSES)
    assert [one["rows"] for one in found] == [ROWS] * PROCESSES
    assert FILES <= stored.asked_of_files <= 1.05 * FILES
    assert sum(one["misses"] for one in found) == stored.asked_of_files


def test_cached_footer_of_a_rewritten_file_is_read_again(stored: Stored) -> None:
    stored.opened()
    stored.put(5, parquet_of(0, 7))
    (found,) = stored.opened()
    assert found["rows"] == [*ROWS[:5], 7, *ROWS[6:]]
    assert stored.asked_of_files == 1


def test_damaged_cached_footer_is_fetched_again(stored: Stored) -> None:
    stored.opened()
    for path in stored.entries[:3]:
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 1
        path.write_bytes(whole)
    stored.proxy.begin(Faults())
    with stored.reader() as reader:
        assert sorted(number for batch in reader for number in batch.id.tolist()) == sorted(
            first + row for number, first in enumerate(range(0, 100 * FILES, 100)) for row in range(100 + number)
        )
        found = reader.diagnostics
    assert (found["footer_corrupt"], found["footer_misses"], found["footer_hits"]) == (3, 3, FILES - 3)


def test_invalid_footer_is_not_cached(stored: Stored) -> None:
    whole = bytearray(parquet_of(0, 100))
    length = int.from_bytes(whole[-8:-4], "little")
    whole[-8 - length : -8] = bytes(length)
    stored.put(3, bytes(whole))
    for _ in range(2):
        stored.proxy.begin(Faults())
        with pytest.raises(MetadataError, match=r"part-03\.parquet"):
            stored.reader()
        assert stored.asked_of_files == FILES + 1  # all footers are validated, and the damaged one is fetched twice
    stored.put(3, parquet_of(300, 103))
    (found,) = stored.opened()
    assert found["rows"] == ROWS


FOOTER = b"a footer"
TOLD = FileVersion(1000, '"told"')


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[KeptTails]:
    with DiskCache(tmp_path, limit=1 << 20) as cache:
        yield KeptTails(cache, open_location("memory://bucket/frames"), {"a": TOLD, "weak": FileVersion(1000, 'W/"1"')})


def test_cached_footer_is_found_by_an_etag_with_or_without_quotes(kept: KeptTails) -> None:
    listed = KeptTails(kept.cache, kept.location, {"a": FileVersion(1000, "told")})
    fetched = Tail(1000, FOOTER, FileVersion(1000, '"told"', "monday"))
    assert listed.tail("a", lambda: fetched) == fetched._replace(version=TOLD)
    assert kept.tail("a", lambda: pytest.fail("it is there")) == fetched._replace(version=TOLD)


@pytest.mark.parametrize(
    "version", [None, FileVersion(1000, '"newer"'), FileVersion(1001, '"told"'), FileVersion(1000, "", "monday")]
)
def test_footer_of_another_file_version_is_returned_and_not_cached(
    kept: KeptTails, version: FileVersion | None
) -> None:
    fetched = Tail(1000 if version is None else version.size, FOOTER, version)
    for _ in range(2):
        assert kept.tail("a", lambda: fetched) == fetched
    assert kept.cache.metrics.hits == kept.cache.metrics.bytes_written == 0


@pytest.mark.parametrize("path", ["weak", "of which nothing was told"])
def test_footer_of_a_file_without_a_strong_etag_is_not_cached(kept: KeptTails, path: str) -> None:
    fetched = Tail(1000, FOOTER, kept.told.get(path))
    assert kept.tail(path, lambda: fetched) == fetched
    assert kept.cache.info().entries == 0


@pytest.mark.parametrize("entry", [b"", b"\x06\0\0\0", b"\xff" * 40, b"\x06\0\0\0" + b'"told"', b"\x03\0\0\0abcfooter"])
def test_cached_footer_of_another_format_is_replaced(kept: KeptTails, entry: bytes) -> None:
    key = footer_key(kept.location, "a", TOLD)
    assert key is not None
    with kept.cache.entry(key, lambda: entry):
        pass
    fetched = Tail(1000, FOOTER, TOLD)
    for entries in (0, 1):
        assert kept.tail("a", lambda: fetched) == fetched
        assert kept.cache.info().entries == entries
