"""Data pages of a column chunk are found one after the other, with all of its values and bytes."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.storage.pages.data_pages import data_pages
from petastore.storage.pages.headers import PageWindow
from tests.storage.pages.many_pages import a_table, every_kind, page_places


@every_kind
def test_data_pages_have_all_values_of_their_chunk_one_behind_the_other(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(a_table(700), path, write_page_checksum=True, data_page_size=500, row_group_size=300, **options)
    metadata, data, found = pq.read_metadata(path), path.read_bytes(), 0
    with pa.OSFile(str(path)) as source:
        for group in range(metadata.num_row_groups):
            for leaf in range(metadata.num_columns):
                column, values, end = metadata.row_group(group).column(leaf), 0, 0
                for page in data_pages(PageWindow(source.read_at), column):
                    assert (page.first, page.at > end) == (values, True)
                    assert page.encoding in column.encodings
                    assert page.is_v2 == (options["data_page_version"] == "2.0")
                    assert zlib.crc32(data[page.at : page.at + page.packed]) == page.checksum
                    values, end, found = values + page.values, page.at + page.packed, found + 1
                assert values == column.num_values
    assert found > metadata.num_row_groups * metadata.num_columns
    assert found <= len(list(page_places(path)))


def test_a_page_that_is_longer_than_its_chunk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": pa.array([1, 2, 3], pa.int32())}), path, use_dictionary=False, compression="none")
    column, data = pq.read_metadata(path).row_group(0).column(0), bytearray(path.read_bytes())
    (page,) = data_pages(PageWindow(lambda size, at: bytes(data[at : at + size])), column)
    place = data.index(
        bytes([page.packed << 1]), column.data_page_offset + 4
    )  # the first is its size before it was compressed
    data[place] = 126
    with pytest.raises(ValueError, match="a page has 63 bytes"):
        list(data_pages(PageWindow(lambda size, at: bytes(data[at : at + size])), column))
