"""Tests of reading several row groups in one call: they equal the same row groups read one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petastore.errors import DecodeError
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import read_footer
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.read_together import read_run
from petastore.storage.row_groups.row_group import read_row_group_in_parts

COLUMNS = {
    "id": pa.int64(),
    "word": pa.string(),
    "kind": pa.dictionary(pa.int32(), pa.string()),
    "list": pa.list_(pa.float32()),
    "geo": pa.struct({"lat": pa.float64()}),
    "old": pa.timestamp("ns"),
}


def _table(rows: int) -> pa.Table:
    values = {
        "id": list(range(rows)),
        "word": [None if row % 7 == 3 else f"word {row}" for row in range(rows)],
        "kind": [f"kind {row % 3}" for row in range(rows)],
        "list": [[row] * (row % 4) for row in range(rows)],
        "geo": [{"lat": row / 2} for row in range(rows)],
        "old": [row * 1000 for row in range(rows)],
    }
    return pa.table({name: pa.array(values[name], kind) for name, kind in COLUMNS.items()})


def _write(path: Path, sizes: list[int], **options: bool) -> pa.Table:
    table, first = _table(sum(sizes)), 0
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for rows in sizes:
            writer.write_table(table.slice(first, rows), row_group_size=max(rows, 1))
            first += rows
    return table


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    columns=st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, unique=True),
    checksums=st.booleans(),
    old=st.booleans(),
    data=st.data(),
)
def test_row_groups_read_in_one_call_equal_those_read_singly(
    tmp_path: Path, sizes: list[int], columns: list[str], checksums: bool, old: bool, data: st.DataObject
) -> None:
    _write(tmp_path / "x", sizes, write_page_checksum=checksums, use_deprecated_int96_timestamps=old)
    location = open_location(str(tmp_path))
    footers, part, footer = FooterCache(), Part(tuple(columns)), read_footer(location, "x")
    ordinals = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=12))
    files = OpenFiles()
    found = read_run(location, footer, ordinals, part, files)
    if found is None:
        assert old
        return
    singles = [
        table
        for ordinal in ordinals
        for table in read_row_group_in_parts(location, footer.file, ordinal, [part], footers=footers, files=files)
    ]
    assert found.equals(pa.concat_tables(singles).combine_chunks())
    assert all(column.num_chunks == 1 for column in found.columns)
    files.close()


def test_damaged_page_in_row_groups_read_in_one_call_raises(tmp_path: Path) -> None:
    _write(tmp_path / "x", [40] * 5, write_page_checksum=True)
    location = open_location(str(tmp_path))
    footer = read_footer(location, "x")
    chunk = footer.metadata.row_group(3).column(0)
    data = bytearray((tmp_path / "x").read_bytes())
    data[chunk.data_page_offset - 4] ^= 1  # in the dictionary page
    (tmp_path / "x").write_bytes(data)
    with pytest.raises((DecodeError, OSError)):
        read_run(location, footer, range(5), Part(("id",)), OpenFiles())


def test_row_groups_read_in_one_call_are_remembered_as_verified(tmp_path: Path) -> None:
    _write(tmp_path / "x", [4] * 6, write_page_checksum=True)
    location = open_location(str(tmp_path))
    files, part = OpenFiles(), Part(("id", "word"))
    footer = read_footer(location, "x")
    read_run(location, footer, [0, 1], part, files)
    version = footer.local
    assert version is not None
    has = [files.verified.has(str(tmp_path / "x"), version, ordinal, (part.columns,)) for ordinal in range(3)]
    assert has in ([True, True, False], [False] * 3)  # a file written within the last tick is not trusted
    files.close()


def test_row_groups_read_in_one_call_are_in_the_requested_order(tmp_path: Path) -> None:
    table = _write(tmp_path / "x", [3, 5, 2])
    location = open_location(str(tmp_path))
    found = read_run(location, read_footer(location, "x"), [2, 0], Part(("id",)), OpenFiles())
    assert found is not None
    assert found.column("id").to_pylist() == np.asarray(table.column("id"))[[8, 9, 0, 1, 2]].tolist()
