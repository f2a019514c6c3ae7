"""Where column chunks are is taken from the footer, and not believed."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.ranges.column_chunks import chunk_ranges

FILE = DataFile("a.parquet", 10_000)


@dataclasses.dataclass
class Footer:
    """As much of a footer as is looked at."""

    columns: list[dict[str, Any]]
    created_by: str = "parquet-cpp-arrow version 18.0.0"

    def row_group(self, _: int) -> Any:
        return SimpleNamespace(column=lambda leaf: SimpleNamespace(**{**USUAL, **self.columns[leaf]}))


USUAL = {
    "data_page_offset": 500, "dictionary_page_offset": None, "has_dictionary_page": False,
    "total_compressed_size": 1000, "num_values": 10, "path_in_schema": "x",
}  # fmt: skip


def found(*columns: dict[str, Any], **of_footer: Any) -> list[tuple[int, int]]:
    footer = Footer(list(columns), **of_footer)
    return [tuple(one) for one in chunk_ranges(footer, 0, range(len(columns)), FILE).values()]  # type: ignore[misc]


def test_a_chunk_begins_with_its_dictionary() -> None:
    assert found({}) == [(500, 1000)]
    assert found({"has_dictionary_page": True, "dictionary_page_offset": 400}) == [(400, 1000)]
    assert found({"has_dictionary_page": True, "dictionary_page_offset": 0}) == [(500, 1000)]


def test_writers_that_counted_too_few_bytes_get_a_few_more() -> None:
    assert found({}, created_by="parquet-mr version 1.2.8") == [(500, 1100)]
    assert found({"data_page_offset": 8980}, created_by="parquet-mr") == [(8980, 1020)]


@pytest.mark.parametrize(
    "column",
    [
        {"data_page_offset": 3}, {"data_page_offset": -1}, {"data_page_offset": 9_500}, {"total_compressed_size": -5},
        {"total_compressed_size": 1 << 60}, {"total_compressed_size": 0},
        {"has_dictionary_page": True, "dictionary_page_offset": 1},
    ],
)  # fmt: skip
def test_a_chunk_beyond_its_file_is_refused(column: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match=r"column 'x', row group 0 in a\.parquet: the footer is damaged"):
        found(column)


def test_more_bytes_than_the_file_can_have_are_refused() -> None:
    with pytest.raises(DecodeError, match=r"30,000 bytes, but the file has 10,000"):
        found(*[{"total_compressed_size": 5000}] * 6)


def test_chunks_of_real_files_cover_all_but_the_footer() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": range(1000), "b": [str(number % 7) for number in range(1000)], "c": [[1], []] * 500})
    pq.write_table(table, sink, row_group_size=300)
    data = sink.getvalue()
    metadata = pq.read_metadata(pa.BufferReader(data))
    file = DataFile("a.parquet", data.size)
    ranges = [one for group in range(4) for one in chunk_ranges(metadata, group, range(3), file).values()]
    assert ranges[0].offset == 4
    assert all(one.end == other.offset for one, other in itertools.pairwise(ranges))
    assert ranges[-1].end == data.size - 8 - metadata.serialized_size
