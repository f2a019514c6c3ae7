"""Tests of parsing row group counts from footers: equal to pyarrow's, and safe for arbitrary bytes."""

from __future__ import annotations

import contextlib
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import MetadataError
from petastore.storage.footers.chunk_metadata import chunk_contents, read_chunk, row_group_counts


def footer_of(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def parquet(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("groups", [0, 1, 14, 15, 300])
@pytest.mark.parametrize("options", [{}, {"write_page_index": True}, {"compression": "zstd", "version": "1.0"}])
def test_row_group_counts_equal_pyarrows(groups: int, options: dict[str, object]) -> None:
    rows = groups * 3
    nested = pa.array([[{"x": str(row)}] * (row % 3) for row in range(rows)], pa.list_(pa.struct({"x": pa.string()})))
    columns = {"id": pa.array(range(rows), pa.int64()), "blob": [os.urandom(200)] * rows, "nested": nested}
    data = parquet(pa.table(columns), row_group_size=3, **options)
    metadata = pq.read_metadata(pa.BufferReader(data))
    expected = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        stored = sum(group.column(column).total_compressed_size for column in range(metadata.num_columns))
        expected.append((group.num_rows, stored, group.total_byte_size))
    footer = footer_of(data)
    counts, places = row_group_counts(footer, source="x")
    chunks = [[read_chunk(footer, place, source="x") for place in of_group] for of_group in places]
    in_footer = chunk_contents(footer, range(metadata.num_columns), source="x")
    assert chunks == [[group[leaf] for leaf in range(metadata.num_columns)] for group in in_footer]
    assert counts.dtype == np.int64
    assert [tuple(row) for row in counts.T.tolist()] == expected


@given(st.binary(max_size=300))
def test_row_group_counts_of_any_bytes_parse_or_raise(data: bytes) -> None:
    with contextlib.suppress(MetadataError):
        assert row_group_counts(data, source="x.parquet")[0].shape[0] == 3


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_row_group_counts_of_a_damaged_footer_parse_or_raise(position: int, value: int) -> None:
    footer = bytearray(FOOTER)
    footer[position % len(footer)] = value
    with contextlib.suppress(MetadataError):
        assert row_group_counts(bytes(footer), source="x")[0].shape[0] == 3


def test_deeply_nested_footer_raises() -> None:
    with pytest.raises(MetadataError, match="x: the footer is damaged"):
        row_group_counts(b"\x1c" * 100_000, source="x")


def test_footer_list_longer_than_the_data_raises() -> None:
    with pytest.raises(MetadataError):
        row_group_counts(b"\x49\xfc\xff\xff\xff\xff\x07", source="x")


FOOTER = footer_of(parquet(pa.table({"a": list(range(40)), "b": ["x"] * 40}), row_group_size=10))
