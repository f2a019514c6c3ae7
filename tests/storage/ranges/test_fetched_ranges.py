"""Tests of decoding row groups from fetched byte ranges: same values as the file, zero-copy, one read per chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.storage.ranges.fetch import ByteRange, FetchedRanges, coalesce, in_memory_file
from petastore.storage.row_groups.fetched_row_group import chunk_ranges
from petastore.storage.stores.interface import FileVersion
from tests.storage.footers.of_bytes import footer_of_bytes
from tests.tier import examples

ROWS = 3000


def table() -> pa.Table:
    dice = np.random.default_rng(3)
    return pa.table(
        {
            "number": dice.integers(0, 1 << 40, ROWS),
            "few": [f"label {number % 5}" for number in range(ROWS)],
            "image": [dice.bytes(200) for _ in range(ROWS)],
            "list": [list(range(number % 4)) for number in range(ROWS)],
            "nothing": pa.nulls(ROWS, pa.int64()),
        }
    )


def written(**options: Any) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table(), sink, row_group_size=1000, **options)
    return sink.getvalue()


FILES = {
    "plain": written(compression="none", use_dictionary=False),
    "usual": written(write_page_checksum=True),
    "second version": written(data_page_version="2.0", data_page_size=1000, compression="zstd"),
}


def fetched_of(data: pa.Buffer, ranges: list[ByteRange]) -> FetchedRanges:
    version = FileVersion(data.size)
    return FetchedRanges(data.size, version, [(one.offset, data.slice(*one)) for one in ranges])


def reader_of(fetched: FetchedRanges, metadata: Any) -> Any:
    reader = pq.ParquetReader()
    reader.open(in_memory_file(fetched), metadata=metadata, pre_buffer=False, page_checksum_verification=True)
    return reader


@pytest.mark.parametrize("name", FILES)
@given(
    group=st.integers(0, 2),
    leaves=st.lists(st.integers(0, 4), unique=True, min_size=1),
    pieces=st.booleans(),
)
@settings(max_examples=examples(25))
def test_row_group_read_from_fetched_ranges_equals_the_file(
    name: str, group: int, leaves: list[int], pieces: bool
) -> None:
    data = FILES[name]
    metadata = pq.read_metadata(pa.BufferReader(data))
    chunks = chunk_ranges(footer_of_bytes(data), group, leaves).values()
    requests = coalesce(chunks)
    if pieces:  # as if long requests had been split
        requests = [
            ByteRange(at, min(5000, one.end - at)) for one in requests for at in range(one.offset, one.end, 5000)
        ]
    reader = reader_of(fetched_of(data, requests), metadata)
    found = reader.read_row_group(group, column_indices=leaves, use_threads=False)
    assert found.equals(pq.ParquetFile(data).read_row_group(group).select(leaves))


def test_arrow_reads_each_column_chunk_of_fetched_ranges_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = FILES["usual"]
    metadata = pq.read_metadata(pa.BufferReader(data))
    chunks = list(chunk_ranges(footer_of_bytes(data), 1, range(5)).values())
    fetched, asked = fetched_of(data, chunks), []

    def read(offset: int, length: int) -> pa.Buffer:
        asked.append(ByteRange(offset, length))
        return data.slice(offset, length)

    monkeypatch.setattr(fetched, "read_up_to", read)
    reader_of(fetched, metadata).read_row_group(1, column_indices=list(range(5)), use_threads=False)
    assert asked == chunks


def test_reading_bytes_not_fetched_raises() -> None:
    data = FILES["usual"]
    metadata = pq.read_metadata(pa.BufferReader(data))
    fetched = fetched_of(data, [*chunk_ranges(footer_of_bytes(data), 0, [0]).values()])
    with pytest.raises(OSError, match="not fetched"):
        reader_of(fetched, metadata).read_row_group(0, column_indices=[2], use_threads=False)


def test_fetched_ranges_with_a_flipped_bit_raise() -> None:
    data = bytearray(FILES["usual"])
    metadata = pq.read_metadata(pa.BufferReader(bytes(data)))
    chunk = chunk_ranges(footer_of_bytes(data), 0, [2])[2]
    data[chunk.offset + chunk.length // 2] ^= 1
    reader = reader_of(fetched_of(pa.py_buffer(data), [chunk]), metadata)
    with pytest.raises((OSError, pa.ArrowException), match=r"(?i)crc|checksum"):
        reader.read_row_group(0, column_indices=[2], use_threads=False)


def test_fetched_ranges_are_read_zero_copy() -> None:
    first, second = pa.py_buffer(b"abcdef"), pa.py_buffer(b"ghi")
    fetched = FetchedRanges(100, FileVersion(100), [(10, first), (16, second), (30, first)])
    assert fetched.read(12, 3).to_pybytes() == b"cde"
    assert fetched.read(12, 3).address == first.address + 2
    assert fetched.read(14, 5).to_pybytes() == b"efghi"  # spans two adjacent ranges
    assert fetched.read_up_to(18, 90).to_pybytes() == b"i"
    for offset, length in ((9, 1), (14, 6), (19, 1), (28, 4), (34, 5)):
        with pytest.raises(LookupError, match="fetched"):
            fetched.read(offset, length)
    with pytest.raises(LookupError, match="fetched"):
        FetchedRanges(100, FileVersion(100), []).read(0, 1)
