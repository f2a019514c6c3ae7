"""Which chunks of a row group are fetched for some columns; a cache learns whose they are, and how to decode them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.cache import DiskCache
from petastore.errors import DecodeError, PetastoreError
from petastore.storage.files.location import open_location
from petastore.storage.footers.footers import Footer, read_footer
from petastore.storage.ranges.fetched_ranges import FetchedRanges
from petastore.storage.ranges.kept_chunks import PlannedChunks
from petastore.storage.ranges.kept_files import KeptFiles
from petastore.storage.requests.client import FileVersion
from petastore.storage.row_groups.planned_chunks import planned_chunks

NAME = "a.parquet"
ASKED = (("x",), ("word", "x"))


def written(folder: Path) -> Footer:
    table = pa.table({"x": np.arange(8.0), "y": np.arange(8), "word": [f"w{number}" for number in range(8)]})
    pq.write_table(table, folder / NAME, row_group_size=4, use_dictionary=False, write_page_checksum=True)
    return read_footer(open_location(folder), NAME)


def fetched(data: bytes, chunks: PlannedChunks) -> FetchedRanges:
    ranges = sorted(chunks.columns)
    read = [(one.offset, pa.py_buffer(data[one.offset : one.end])) for one in ranges]
    return FetchedRanges(len(data), FileVersion(len(data)), read)


def test_each_column_that_is_asked_for_has_one_chunk_however_often_it_is(tmp_path: Path) -> None:
    footer = written(tmp_path)
    chunks = planned_chunks(footer, 1, ASKED, kept=None)
    group = footer.metadata.row_group(1)
    lying = {group.column(leaf).path_in_schema: group.column(leaf) for leaf in (0, 2)}
    assert {name: (one.offset, one.length) for one, name in chunks.columns.items()} == {
        name: (column.data_page_offset, column.total_compressed_size) for name, column in lying.items()
    }
    assert (chunks.ordinal, chunks.kept, chunks.decode) == (1, (), None)


def test_a_cache_is_told_whose_chunks_they_are_and_how_they_are_decoded(tmp_path: Path) -> None:
    footer, data = written(tmp_path), (tmp_path / NAME).read_bytes()
    with DiskCache(tmp_path / "cache", limit=1 << 20) as cache:
        chunks = planned_chunks(footer, 1, ASKED, KeptFiles(cache))
    assert {(one.columns, str(one.kind)) for one in chunks.kept} == {(("x",), "double"), (("word",), "None")}
    ranges = list(chunks.columns)
    assert chunks.decode is not None
    columns = chunks.decode(fetched(data, chunks), ranges)
    read = {chunks.columns[one]: column.to_pylist() for one, column in zip(ranges, columns, strict=True)}
    assert read == {"x": [4.0, 5.0, 6.0, 7.0], "word": ["w4", "w5", "w6", "w7"]}


def test_chunks_that_are_damaged_are_not_decoded(tmp_path: Path) -> None:
    footer, data = written(tmp_path), (tmp_path / NAME).read_bytes()
    with DiskCache(tmp_path / "cache", limit=1 << 20) as cache:
        chunks = planned_chunks(footer, 0, (("word",),), KeptFiles(cache))
    assert chunks.decode is not None
    with pytest.raises((OSError, DecodeError), match="CRC"):
        chunks.decode(fetched(data.replace(b"w2", b"w7"), chunks), list(chunks.columns))


@pytest.mark.parametrize("change", [1, 4, 0x80, 0xFF], ids=lambda change: f"xor {change:#x}")
def test_no_byte_of_a_footer_ends_the_process_that_asks_for_chunks(tmp_path: Path, change: int) -> None:
    """What Arrow takes for impossible ends the process, where it is asked for it in the wrong way."""
    table = pa.table({"x": np.arange(8.0), "y": pa.array([1, None] * 4), "word": [f"w{number}" for number in range(8)]})
    pq.write_table(table, tmp_path / NAME, row_group_size=4, compression="none")
    whole, location = (tmp_path / NAME).read_bytes(), open_location(tmp_path)
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused = 0
    with DiskCache(tmp_path / "cache", limit=1 << 20) as cache:
        for at in range(begin, len(whole) - 8):
            (tmp_path / NAME).write_bytes(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])
            try:
                footer = read_footer(location, NAME)
                for kept in (None, KeptFiles(cache)):
                    planned_chunks(footer, 1, (tuple(footer.leaves),), kept)
            except PetastoreError:
                refused += 1
    assert 0 < refused < len(whole) - 8 - begin
