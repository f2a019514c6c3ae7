"""Tests of cache keys: they differ by version, file and server, and contain no secrets."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from petastore.cache import DiskCache
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.ranges.fetch import ByteRange
from petastore.storage.ranges.pinned_files import KeptFiles, keys_of
from petastore.storage.stores.interface import FileVersion
from tests.storage.ranges.conftest import location_of

FILE = DataFile("day=1/a.parquet", 4000, "ab12")
VERSION = FileVersion(4000, '"9a03"', "monday")
RANGES = [ByteRange(4, 100), ByteRange(104, 20)]
S3: dict[str, Any] = {"key": "AKIASECRET", "secret": "hush-hush", "endpoint_url": "http://me:hush@127.0.0.1:9000"}


def s3(**options: Any) -> Location:
    return location_of("s3://bucket/frames", **{**S3, **options})


def signed(signature: str) -> Location:
    url = f"https://host/data/{FILE.path}?signature={signature}"
    return dataclasses.replace(location_of("https://host/data"), named={FILE.path: url})


def keys(
    location: Location, file: DataFile = FILE, version: FileVersion = VERSION, ranges: list[ByteRange] | None = None
) -> list[str]:
    found = keys_of(location, file, version, RANGES if ranges is None else ranges)
    assert found is not None
    return found


def test_cache_key_differs_by_location_file_version_and_range() -> None:
    others = [
        keys(s3(endpoint_url="http://127.0.0.1:9001")),
        keys(location_of("s3://other/frames", **S3)),
        keys(s3(), dataclasses.replace(FILE, path="day=2/a.parquet")),
        keys(s3(), dataclasses.replace(FILE, digest="ab13")),
        keys(s3(), version=dataclasses.replace(VERSION, etag='"9a04"')),
        keys(s3(), version=dataclasses.replace(VERSION, size=4001)),
        keys(s3(), ranges=[ByteRange(4, 101), ByteRange(104, 21)]),
    ]
    assert len({key for found in [keys(s3()), *others] for key in found}) == 2 * 8


def test_cache_key_of_a_file_with_etag_excludes_user_and_mtime() -> None:
    touched = dataclasses.replace(VERSION, modified="tuesday")
    assert keys(s3(key="AKIAOTHER")) == keys(s3(), version=touched) == keys(s3())


def test_cache_key_of_a_file_with_weak_or_no_etag_includes_mtime() -> None:
    for etag in ("", 'W/"1"'):
        one, other = (FileVersion(4000, etag, day) for day in ("monday", "tuesday"))
        assert set(keys(s3(), version=one)).isdisjoint(keys(s3(), version=other))


def test_cache_key_is_none_without_a_version() -> None:
    assert keys_of(s3(), FILE, FileVersion(4000), RANGES) is None


@pytest.mark.parametrize("secret", ["AKIASECRET", "hush", "signature"])
def test_cache_key_contains_no_secrets(secret: str) -> None:
    assert secret not in "".join(keys(s3()) + keys(signed("hush-hush")))


def test_cache_key_ignores_url_signatures() -> None:
    assert keys(signed("one")) == keys(signed("other"))


def test_cached_files_can_be_pickled(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=1 << 20) as cache:
        kept: KeptFiles = pickle.loads(pickle.dumps(KeptFiles(cache, {FILE: VERSION})))  # noqa: S301 - our own
        assert kept.versions == {FILE: VERSION}
        assert kept.cache is not None
        assert kept.cache.location == tmp_path
        kept.close()
    KeptFiles().close()
