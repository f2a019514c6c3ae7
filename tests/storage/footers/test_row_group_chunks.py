"""Tests of the column chunks to fetch for some columns of a row group, with valid and damaged footers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import PetastoreError
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footers import read_footer
from petastore.storage.row_groups.fetched_row_group import row_group_chunks

NAME = "a.parquet"
ASKED = (("x",), ("word", "x"))


def written(folder: Path) -> Footer:
    table = pa.table({"x": np.arange(8.0), "y": np.arange(8), "word": [f"w{number}" for number in range(8)]})
    pq.write_table(table, folder / NAME, row_group_size=4, use_dictionary=False, write_page_checksum=True)
    return read_footer(open_location(folder), NAME)


def test_column_requested_twice_has_one_chunk_range(tmp_path: Path) -> None:
    footer = written(tmp_path)
    chunks = row_group_chunks(footer, 1, ASKED)
    group = footer.metadata.row_group(1)
    lying = {group.column(leaf).path_in_schema: group.column(leaf) for leaf in (0, 2)}
    assert {name: (one.offset, one.length) for one, name in chunks.columns.items()} == {
        name: (column.data_page_offset, column.total_compressed_size) for name, column in lying.items()
    }
    assert chunks.ordinal == 1


@pytest.mark.parametrize("change", [1, 4, 0x80, 0xFF], ids=lambda change: f"xor {change:#x}")
def test_chunk_ranges_of_a_damaged_footer_never_crash_the_process(tmp_path: Path, change: int) -> None:
    """Some calls of Arrow end the process if the metadata is impossible."""
    table = pa.table({"x": np.arange(8.0), "y": pa.array([1, None] * 4), "word": [f"w{number}" for number in range(8)]})
    pq.write_table(table, tmp_path / NAME, row_group_size=4, compression="none")
    whole, location = (tmp_path / NAME).read_bytes(), open_location(tmp_path)
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for at in range(begin, len(whole) - 8):
        (tmp_path / NAME).write_bytes(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])
        try:
            footer = read_footer(location, NAME)
            row_group_chunks(footer, 1, (tuple(footer.leaves),))
        except PetastoreError:
            refused += 1
    assert 0 < refused < len(whole) - 8 - begin
