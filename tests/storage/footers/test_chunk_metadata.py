"""Tests of column chunk metadata in footers: equal to pyarrow's, uncertain statistics ignored, damage detected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import MetadataError
from petastore.storage.files.location import open_location
from petastore.storage.footers.chunk_metadata import ChunkContents, chunk_contents, read_chunk
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footers import read_footer
from tests.storage.footers.by_hand import HIGH, LOW, binary, field, footer_by_hand, struct_list, zigzag


def footer_of(folder: Path, table: pa.Table, **options: Any) -> Footer:
    pq.write_table(table, folder / "part.parquet", **options)
    return read_footer(open_location(str(folder)), "part.parquet")


def test_column_chunk_metadata_equals_that_of_pyarrow(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": np.arange(90),
            "word": ["abc"] * 90,
            "points": [[{"x": 1, "y": None}] * (row % 3) for row in range(90)],
        }
    )
    footer = footer_of(tmp_path, table, row_group_size=40, compression="zstd", use_dictionary=["word"])
    metadata = footer.metadata
    found = chunk_contents(footer.encoded, range(metadata.num_columns), source="x.parquet")
    assert len(found) == metadata.num_row_groups == 3
    for number, group in enumerate(found):
        said = [metadata.row_group(number).column(leaf) for leaf in range(metadata.num_columns)]
        for leaf, chunk in enumerate(said):
            own = group[leaf]
            assert own == footer.chunk(number, leaf)
            assert (own.path, own.values) == (chunk.path_in_schema, chunk.num_values)
            assert own.has_dictionary == chunk.has_dictionary_page
            assert own.first_page == (chunk.dictionary_page_offset or chunk.data_page_offset)
            assert (own.decoded_bytes, own.stored_bytes) == (chunk.total_uncompressed_size, chunk.total_compressed_size)
    assert [group[1].copied_bytes for group in found] == [120, 120, 30]
    assert {group[0].copied_bytes for group in found} == {None}


def test_column_chunk_metadata_has_only_requested_leaf_columns(tmp_path: Path) -> None:
    footer = footer_of(tmp_path, pa.table({"a": [1], "b": [2], "c": [3]}))
    assert [set(group) for group in chunk_contents(footer.encoded, [2, 0], source="x")] == [{0, 2}]
    assert chunk_contents(footer.encoded, [], source="x") == [{}]


def only_chunk(footer: bytes) -> ChunkContents:
    ((leaf, chunk),) = chunk_contents(footer, {0}, source="x.parquet")[0].items()
    assert leaf == 0
    return chunk


def test_column_chunk_statistics_use_min_value_and_max_value() -> None:
    new = field(3, 6, zigzag(2)) + field(2, 8, binary(HIGH)) + field(1, 8, binary(LOW))
    assert only_chunk(footer_by_hand(new)) == ChunkContents(physical=1, nulls=2, minimum=LOW, maximum=HIGH)


def test_column_chunk_statistics_ignore_the_deprecated_min_and_max() -> None:
    old = field(1, 8, binary(HIGH)) + field(1, 8, binary(LOW)) + field(1, 6, zigzag(2))
    assert only_chunk(footer_by_hand(old)) == ChunkContents(physical=1, nulls=2)


@pytest.mark.parametrize("exact", [1, 2])
def test_column_chunk_statistics_marked_inexact_are_bounds(exact: int) -> None:
    flags = field(1, exact, b"") + field(1, exact, b"")  # fields 7 and 8, booleans whose value is in the field header
    new = field(5, 8, binary(HIGH)) + field(1, 8, binary(LOW)) + flags
    assert only_chunk(footer_by_hand(new)) == ChunkContents(physical=1, minimum=LOW, maximum=HIGH)


@pytest.mark.parametrize(
    "orders",
    [struct_list([]), struct_list([b""]), struct_list([field(2, 12, b"\x00")])],
    ids=["none", "empty", "newer"],
)
def test_column_chunk_statistics_need_a_known_column_order(orders: bytes) -> None:
    new = field(3, 6, zigzag(2)) + field(2, 8, binary(HIGH)) + field(1, 8, binary(LOW))
    assert only_chunk(footer_by_hand(new, orders=orders)) == ChunkContents(physical=1, nulls=2)


def test_column_chunk_metadata_of_a_truncated_footer_raises(tmp_path: Path) -> None:
    footer = footer_of(tmp_path, pa.table({"x": range(5), "y": list("abcde")}), row_group_size=2).encoded
    whole = chunk_contents(footer, {0, 1}, source="x.parquet")
    assert [set(group) for group in whole] == [{0, 1}] * 3
    for stop in range(len(footer) - 1):
        with pytest.raises(MetadataError, match=r"x\.parquet"):
            chunk_contents(footer[:stop], {0, 1}, source="x.parquet")


def test_footer_with_any_byte_changed_raises_or_is_harmless(tmp_path: Path) -> None:
    encoded = footer_of(tmp_path, pa.table({"x": range(5)}), row_group_size=2).encoded
    refused = 0
    for place in range(0, len(encoded), 3):
        damaged = bytearray(encoded)
        damaged[place] ^= 0xFF
        try:
            found = chunk_contents(bytes(damaged), {0}, source="x.parquet")
        except MetadataError:
            refused += 1
        else:
            assert all(isinstance(chunk, ChunkContents) for group in found for chunk in group.values())
    assert refused > 0


@pytest.mark.parametrize(("dictionary", "first"), [(None, 500), (400, 400), (0, 500), (600, 500)])
def test_column_chunk_starts_at_its_dictionary_page(dictionary: int | None, first: int) -> None:
    metadata = field(9, 6, zigzag(500)) + (b"" if dictionary is None else field(2, 6, zigzag(dictionary)))
    chunk = read_chunk(field(3, 12, metadata + b"\x00") + b"\x00", 0, source="x")
    assert chunk.first_page == first
