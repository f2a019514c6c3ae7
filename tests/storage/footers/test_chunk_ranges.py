"""Tests of byte ranges of column chunks: taken from the footer, and checked against the file size."""

from __future__ import annotations

import dataclasses
import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.footers.chunk_metadata import ChunkContents
from petastore.storage.row_groups.fetched_row_group import chunk_ranges
from tests.storage.footers.of_bytes import footer_of_bytes

USUAL = ChunkContents("x", 10, first_page=500, stored_bytes=1000)


@dataclasses.dataclass
class Footer:
    """A stand-in for a footer with the attributes that are used."""

    columns: tuple[ChunkContents, ...]
    may_miscount: bool = False
    file: DataFile = dataclasses.field(default_factory=lambda: DataFile("a.parquet", 10_000))

    def chunk(self, _: int, leaf: int) -> ChunkContents:
        return self.columns[leaf]


def found(*columns: ChunkContents, may_miscount: bool = False) -> list[tuple[int, int]]:
    footer = Footer(columns, may_miscount)
    ranges = chunk_ranges(footer, 0, range(len(columns)))  # type: ignore[arg-type]
    return [(one.offset, one.length) for one in ranges.values()]


def test_chunk_ranges_equal_the_footer() -> None:
    assert found(USUAL, USUAL._replace(first_page=2000)) == [(500, 1000), (2000, 1000)]
    assert found(ChunkContents("x")) == []


def test_chunk_range_is_extended_for_old_writers() -> None:
    assert found(USUAL, may_miscount=True) == [(500, 1100)]
    assert found(USUAL._replace(first_page=8980), may_miscount=True) == [(8980, 1020)]


@pytest.mark.parametrize(
    "column",
    [
        USUAL._replace(first_page=3), USUAL._replace(first_page=-1), USUAL._replace(first_page=9_500),
        USUAL._replace(stored_bytes=-5), USUAL._replace(stored_bytes=1 << 60), USUAL._replace(stored_bytes=0),
    ],
)  # fmt: skip
def test_chunk_beyond_its_file_raises(column: ChunkContents) -> None:
    with pytest.raises(DecodeError, match=r"column 'x', row group 0 in a\.parquet: the footer is damaged"):
        found(column)


def test_chunk_larger_than_its_file_raises() -> None:
    with pytest.raises(DecodeError, match=r"30,000 bytes, but the file has 10,000"):
        found(*[USUAL._replace(stored_bytes=5000)] * 6)


def test_chunks_of_real_files_cover_all_but_the_footer() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": range(1000), "b": [str(number % 7) for number in range(1000)], "c": [[1], []] * 500})
    pq.write_table(table, sink, row_group_size=300)
    data = sink.getvalue()
    footer = footer_of_bytes(data)
    ranges = [one for group in range(4) for one in chunk_ranges(footer, group, range(3)).values()]
    assert ranges[0].offset == 4
    assert all(one.end == other.offset for one, other in itertools.pairwise(ranges))
    assert ranges[-1].end == data.size - 8 - len(footer.encoded)
