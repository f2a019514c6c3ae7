"""obstore asks where it does what was asked for; fsspec elsewhere; Arrow's own file systems ask for themselves."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyarrow import fs

from petastore.storage.files.location import Location
from petastore.storage.ranges.open_fetcher import open_fetcher
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
    assert fetcher.system == system
    fetcher.close()


def test_without_obstore_fsspec_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    fetcher = open_fetcher(location_of("s3://bucket/a", anon=True))
    assert fetcher.system == "S3FileSystem"
    fetcher.close()


def test_file_systems_of_arrow_ask_for_themselves() -> None:
    fetcher = open_fetcher(Location("mock://x", fs.SubTreeFileSystem("/", fs.LocalFileSystem()), "x"))
    assert fetcher.system == "SubTreeFileSystem"
    fetcher.close()
