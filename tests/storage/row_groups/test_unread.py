"""Why a row group could not be read."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

from petastore.storage.row_groups import unread


@pytest.mark.parametrize(
    ("problem", "is_of_storage"),
    [
        (OSError("When reading: AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28"), True),
        (OSError("google::cloud::Status(UNAVAILABLE: try again)"), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError("Corrupt snappy compressed data."), False),
        (OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"), False),
        (pa.ArrowInvalid("Unexpected end of stream"), False),
    ],
)
def test_failures_of_storage_are_told_from_damaged_pages(problem: Exception, is_of_storage: bool) -> None:
    assert unread._is_of_storage(problem) == is_of_storage
