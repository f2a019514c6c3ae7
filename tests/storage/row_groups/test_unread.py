"""Tests of finding the reason of a failed read: a storage error or a damaged page."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import DecodeError, StorageError
from petastore.storage.files.location import open_location
from petastore.storage.footers.footers import read_footer
from petastore.storage.row_groups.open_files import explained
from petastore.storage.row_groups.page_headers import read_header
from tests.memory import grown_in_child


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
def test_read_error_is_reported_as_storage_error_or_damaged_page(
    tmp_path: Path, problem: Exception, is_of_storage: bool
) -> None:
    pq.write_table(pa.table({"id": range(9)}), tmp_path / "a.parquet")
    location = open_location(tmp_path)
    footer = read_footer(location, "a.parquet")
    found = explained(problem, location, footer.file, 0, ["id"], footer)
    assert isinstance(found, StorageError if is_of_storage else DecodeError)


def test_search_for_a_damaged_page_allocates_nothing_for_its_declared_size(tmp_path: Path) -> None:
    """Arrow skips a page of unknown type, and allocates as many bytes as its header declares."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": np.arange(9), "x": np.arange(9.0)}), path, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    metadata = pq.read_metadata(path)
    at = metadata.row_group(0).column(0).data_page_offset
    of_unknown_kind, huge = b"\x15\x9a\x01\x15\x18", b"\x15\x80\xa8\xd6\xb9\x07\x00"
    data[at : at + len(of_unknown_kind + huge)] = of_unknown_kind + huge
    path.write_bytes(data)

    def read() -> None:
        with (
            pytest.raises(DecodeError, match=r"column 'id', row group 0 in a\.parquet: the data is damaged"),
            petastore.make_batch_reader(str(path), num_epochs=1, reader_pool_type="dummy") as reader,
        ):
            list(reader)

    read()  # imports the modules that errors need
    _, grown = grown_in_child(lambda _: read())
    assert grown < 2**28


def test_search_for_a_damaged_page_ends_at_a_negative_page_size(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": np.arange(9) % 3}), path, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    at = pq.read_metadata(path).row_group(0).column(0).dictionary_page_offset
    header, end = read_header(bytes(data), at)
    packed = at + 5  # skips type and uncompressed size, one byte each after their field headers
    assert data[packed] >> 1 == header[3]
    data[packed] = 2 * (end - at) - 1  # minus the length of the header
    path.write_bytes(data)
    with (
        pytest.raises(DecodeError, match=r"column 'id', row group 0 in a\.parquet: the data is damaged"),
        petastore.make_batch_reader(str(path), num_epochs=1, reader_pool_type="dummy") as reader,
    ):
        list(reader)
