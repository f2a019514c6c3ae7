"""Tests of detecting object stores: which filesystems have buckets."""

from __future__ import annotations

import pytest

from petastore.storage.files.file_systems import filesystem_and_path


@pytest.mark.parametrize(
    ("url", "buckets"), [("s3://b/a", True), ("gs://b/a", True), ("memory://b/a", False), ("http://host/a", False)]
)
def test_filesystem_has_buckets_only_for_object_store_schemes(url: str, buckets: bool) -> None:
    filesystem, _ = filesystem_and_path(url, None, None)
    assert filesystem.has_buckets is buckets
