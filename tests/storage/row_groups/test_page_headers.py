"""Tests of page header checks: a bit flip in a file with checksums raises, or does not change values."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.files.location import open_location
from petastore.storage.footers.chunk_metadata import read_varint
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.row_groups.page_headers import read_header, refuse_damaged_pages
from petastore.storage.row_groups.row_group import read_row_group
from tests.storage.footers.of_bytes import footer_of_bytes
from tests.storage.many_pages import OPTIONS, a_table, every_kind, page_places, pages_of_leaves
from tests.tier import sized


def headers_are_right(path: Path) -> None:
    footer = footer_of_bytes(path.read_bytes())
    with pa.OSFile(str(path)) as source:
        for group in range(footer.metadata.num_row_groups):
            refuse_damaged_pages(source.read_at, footer, [group], range(footer.metadata.num_columns))


@every_kind
@pytest.mark.parametrize("rows", [0, 1, 7, 5000])
def test_valid_page_headers_pass(tmp_path: Path, options: dict[str, Any], rows: int) -> None:
    path = tmp_path / "x.parquet"
    for page_bytes in (100, 1 << 20):
        pq.write_table(
            a_table(rows), path, write_page_checksum=True, row_group_size=3000, data_page_size=page_bytes, **options
        )
        headers_are_right(path)


@pytest.mark.parametrize(
    ("encoding", "dtype"),
    [
        ("DELTA_BINARY_PACKED", "int64"), ("BYTE_STREAM_SPLIT", "float32"), ("RLE", "bool"), ("PLAIN", "int16"),
        ("DELTA_LENGTH_BYTE_ARRAY", "str"), ("DELTA_BYTE_ARRAY", "str"),
    ],
)  # fmt: skip
def test_page_headers_of_every_encoding_pass(tmp_path: Path, encoding: str, dtype: str) -> None:
    values = pa.array(np.arange(3000).astype(dtype).tolist())
    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"x": values}), path, use_dictionary=False, column_encoding={"x": encoding}, write_page_checksum=True
    )
    headers_are_right(path)


def test_page_headers_of_a_dictionary_fallback_pass(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    words = pa.table({"x": [f"word {number}" for number in range(20_000)]})
    pq.write_table(words, path, dictionary_pagesize_limit=1000, data_page_size=1000, write_page_checksum=True)
    headers_are_right(path)


@pytest.mark.parametrize("kind", [0, 3, 5, 6])
def test_bit_flip_in_a_page_header_raises_or_is_harmless(tmp_path: Path, kind: int) -> None:
    """Every third flip of each kind of file, offset by kind, so that each bit of a field flips in some kind."""
    options = OPTIONS[kind]
    path = tmp_path / "x.parquet"
    table = a_table(9).drop_columns(["long", "struct"])
    pq.write_table(table, path, write_page_checksum=True, write_statistics=False, **options)
    location, footers, refused, named = open_location(tmp_path), FooterCache(), 0, 0
    file, data = DataFile("x.parquet", path.stat().st_size), bytearray(path.read_bytes())
    places = [
        (table.column_names[leaf], inside)
        for leaf, at in pages_of_leaves(path)
        for inside in range(at, read_header(bytes(data), at)[1])
    ]
    flips = list(itertools.product(places, range(8)))[kind % 3 :: sized(full=3, quick=9)]
    with path.open("r+b", buffering=0) as written:
        for (column, place), bit in flips:
            write_byte(written, place, data[place] ^ 1 << bit)
            try:
                found = read_row_group(location, file, 0, [column], footers=footers)
            except DecodeError as problem:
                refused += 1
                said = re.search(r"the page header of \S+ at byte ([\d,]+) is damaged", str(problem))
                named += said is not None and int(said[1].replace(",", "")) <= place + 1 < len(data)
            else:
                assert found.equals(table.select([column])), (place, bit)
            write_byte(written, place, data[place])
    assert refused > len(flips) / 2
    assert named > 0


def write_byte(file: Any, place: int, value: int) -> None:
    file.seek(place)
    file.write(bytes([value]))


def test_page_header_with_a_negative_size_raises(tmp_path: Path) -> None:
    """A loop from page to page by their sizes would never end."""
    path = tmp_path / "x.parquet"
    pq.write_table(a_table(500), path, write_page_checksum=True, data_page_size=500, row_group_size=200)
    data = path.read_bytes()
    places = list(page_places(path))
    assert len(places) > 10
    for at in places:
        header, _ = read_header(data, at)
        field = at + 2  # skips the type and its field header; the uncompressed size is next
        while data[field + 1] > 127:
            field += 1
        first = field + 3
        assert read_varint(data, first)[0] >> 1 == header[3]
        with pytest.raises(ValueError, match="lacks the type or the size of its page"):
            read_header(data[:first] + bytes([data[first] | 1]) + data[first + 1 :], at)
