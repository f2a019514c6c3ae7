"""obstore asks where it does what was asked for; fsspec elsewhere; Arrow's own file systems ask for themselves."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from pyarrow import fs

from petastore.errors import StorageError
from petastore.storage.files.location import Location
from petastore.storage.ranges.coalesced import MAX_GAP_BYTES, ByteRange
from petastore.storage.ranges.fetch import RangeFetcher
from petastore.storage.ranges.open_fetcher import open_fetcher
from petastore.storage.requests.client import Answer, FileVersion, UnsuitedError
from tests.pace import LONG
from tests.storage.ranges.conftest import location_of


@pytest.mark.leaves_running("file systems of clouds keep their sessions")
@pytest.mark.parametrize(
    ("url", "options", "system"),
    [
        ("s3://bucket/a", {"anon": True}, "obstore"),
        ("s3://bucket/a", {"anon": True, "config_kwargs": {"proxies": {}}}, "S3FileSystem"),
        ("http://127.0.0.1:1/a", {}, "obstore"),
        ("http://127.0.0.1:1/a", {"encoded": True}, "HTTPFileSystem"),
        ("gs://bucket/a", {"token": "anon"}, "obstore"),
        ("gs://bucket/a", {"token": "anon", "version_aware": True}, "GCSFileSystem"),
        ("abfs://bucket/a", {"account_name": "me", "account_key": "aHVzaA=="}, "obstore"),
        ("abfs://bucket/a", {"account_name": "me", "anon": True, "version_aware": True}, "AzureBlobFileSystem"),
        ("memory://a", {}, "MemoryFileSystem"),
    ],
)
def test_who_asks(url: str, options: dict[str, Any], system: str) -> None:
    fetcher = open_fetcher(location_of(url, **options))
    assert fetcher.client_of("a").system == system
    fetcher.close()


def test_without_obstore_fsspec_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    fetcher = open_fetcher(location_of("s3://bucket/a", anon=True))
    assert fetcher.client_of("a").system == "S3FileSystem"
    fetcher.close()


def test_file_systems_of_arrow_ask_for_themselves() -> None:
    fetcher = open_fetcher(Location("mock://x", fs.SubTreeFileSystem("/", fs.LocalFileSystem()), "x"))
    assert fetcher.client_of("a").system == "SubTreeFileSystem"
    fetcher.close()


class Client:
    """Reads the files whose names begin with `known`; UnsuitedError for all others."""

    def __init__(self, system: str, known: str = "", *, meeting: threading.Barrier | None = None) -> None:
        self.system, self._known, self._meeting = system, known, meeting
        self.requests: list[str] = []

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:  # noqa: ARG002
        self.requests.append(path)
        if not path.startswith(self._known):
            if self._meeting is not None:
                self._meeting.wait(LONG)
            raise UnsuitedError("it cannot be asked for that")
        return Answer(bytes(length), version)

    def tail(self, path: str, length: int) -> Answer:
        return self.get(path, 0, length, FileVersion(length))

    def version(self, path: str) -> FileVersion:
        return self.get(path, 0, 1, FileVersion(1000)).version or FileVersion(0)


def test_range_fetcher_falls_back_for_unsuited_files_only() -> None:
    first, fallback = Client("first", known="plain"), Client("fallback")
    fetcher = RangeFetcher(Location("mock://x", fs.LocalFileSystem(), ""), first, fallback=fallback)
    for path in ("odd", "plain-1", "odd", "plain-2", "plain-1"):
        assert fetcher.fetch(path, FileVersion(1000), [ByteRange(0, 10)]).nbytes == 10
    fetcher.close()
    assert first.requests == ["odd", "plain-1", "plain-2", "plain-1"]  # the odd file is tried once
    assert fallback.requests == ["odd", "odd"]
    assert [fetcher.client_of(path).system for path in ("odd", "plain-1")] == ["fallback", "first"]
    assert fetcher.counts.requests == 5


def test_range_fetcher_falls_back_for_requests_of_one_file_at_the_same_time() -> None:
    first, fallback = Client("first", known="plain", meeting=threading.Barrier(2)), Client("fallback")
    fetcher = RangeFetcher(Location("mock://x", fs.LocalFileSystem(), ""), first, fallback=fallback)
    apart = [ByteRange(0, 10), ByteRange(2 * MAX_GAP_BYTES, 10)]
    assert fetcher.fetch("odd", FileVersion(4 * MAX_GAP_BYTES), apart).nbytes == 20
    fetcher.close()
    assert (first.requests, fallback.requests) == (["odd", "odd"], ["odd", "odd"])


def test_range_fetcher_without_fallback_raises_for_unsuited_files() -> None:
    fetcher = RangeFetcher(Location("mock://x", fs.LocalFileSystem(), ""), Client("first", known="plain"))
    with pytest.raises(StorageError, match="it cannot be asked for that"):
        fetcher.version_of("odd")
    fetcher.close()
