"""Tests of choosing the storage client: obstore for object stores, fsspec for its filesystems, else Arrow."""

from __future__ import annotations

from typing import Any

import fsspec
import pytest
from pyarrow import fs

from petastore.errors import InvalidArgumentError
from petastore.storage.files.location import Location, open_location
from petastore.storage.ranges.fetch import RangeFetcher
from tests.storage.ranges.conftest import location_of


@pytest.mark.parametrize(
    ("url", "options", "system"),
    [
        ("s3://bucket/a", {"anon": True}, "obstore"),
        ("http://127.0.0.1:1/a", {}, "obstore"),
        ("gs://bucket/a", {"token": "anon"}, "obstore"),
        ("abfs://bucket/a", {"account_name": "me", "account_key": "aHVzaA=="}, "obstore"),
        ("memory://a", {}, "MemoryFileSystem"),
    ],
)
def test_range_fetcher_uses_the_client_of_the_url_scheme(url: str, options: dict[str, Any], system: str) -> None:
    fetcher = RangeFetcher(location_of(url, **options))
    assert fetcher.client.system == system
    fetcher.close()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket/a", {"anon": True, "version_aware": True}),
        ("http://127.0.0.1:1/a", {"get_client": print}),
        ("gs://bucket/a", {"token": "anon", "version_aware": True}),
        ("abfs://bucket/a", {"account_name": "me", "anon": True, "version_aware": True}),
    ],
)
def test_storage_option_unknown_to_obstore_raises_with_its_name(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"got (version_aware|get_client)\. Correct them, or pass a file system"
    ):
        location_of(url, **options)


def test_range_fetcher_uses_the_filesystem_given_by_the_user() -> None:
    fetcher = RangeFetcher(Location("mock://x", fs.SubTreeFileSystem("/", fs.LocalFileSystem()), "x"))
    assert fetcher.client.system == "SubTreeFileSystem"
    fetcher.close()
    fetcher = RangeFetcher(open_location("/x", filesystem=fsspec.filesystem("memory")))
    assert fetcher.client.system == "MemoryFileSystem"
    fetcher.close()
