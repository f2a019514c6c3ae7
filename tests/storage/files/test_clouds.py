"""Which file systems have buckets, and which of them sign nothing."""

from __future__ import annotations

from typing import Any

import fsspec
import pytest
from pyarrow import fs

from petastore.storage.files.clouds import has_buckets, is_anonymous
from petastore.storage.files.fsspec_handler import Files, Handler

pytestmark = pytest.mark.leaves_running("file systems of clouds keep their sessions")
AZURE = "AccountName=me;EndpointSuffix=core.windows.net"


@pytest.mark.parametrize(
    ("protocol", "options", "buckets", "anonymous"),
    [
        ("s3", {"anon": True}, True, True),
        ("s3", {"key": "AKIA", "secret": "hush"}, True, False),
        ("gs", {"token": "anon"}, True, True),
        ("abfs", {"account_name": "me", "anon": True}, True, True),
        ("abfs", {"account_name": "me", "account_key": "aHVzaA=="}, True, False),
        ("abfs", {"connection_string": f"{AZURE};AccountKey=aHVzaA=="}, True, False),
        ("abfs", {"connection_string": f"{AZURE};SharedAccessSignature=sig=x"}, True, False),
        ("memory", {}, False, False),
        ("http", {}, False, False),
    ],
)
def test_stores_of_fsspec(protocol: str, options: dict[str, Any], buckets: bool, anonymous: bool) -> None:
    store = fsspec.filesystem(protocol, skip_instance_cache=True, **options)
    assert has_buckets(Files(Handler(store))) is buckets
    assert is_anonymous(store) is anonymous


def test_stores_of_arrow() -> None:
    assert has_buckets(fs.S3FileSystem(anonymous=True, region="us-east-1"))
    assert not has_buckets(fs.LocalFileSystem())
    assert not is_anonymous(None)
