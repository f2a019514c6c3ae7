"""Tests of small files that are read whole, alone or together: same tables, errors, and limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DecodeError, InvalidArgumentError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import read_footer
from petastore.storage.row_groups.asked_columns import Part, in_one
from petastore.storage.row_groups.read_together import joined, small_files_together
from petastore.storage.row_groups.small_files import SMALL_FILE_BYTES, small_file

ROWS = 12


def table_of(number: int) -> pa.Table:
    rows = range(ROWS * number, ROWS * (number + 1))
    return pa.table({"id": rows, "word": [f"w{row % 5}" for row in rows], "list": [[row] * (row % 3) for row in rows]})


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return open_location(tmp_path)


def put(location: Location, count: int, **options: Any) -> list[DataFile]:
    for number in range(count):
        pq.write_table(table_of(number), Path(location.root) / f"{number:02}", row_group_size=ROWS // 2, **options)
    return [read_footer(location, f"{number:02}").file for number in range(count)]


def together(location: Location, asked: Sequence[tuple[DataFile, int]], *parts: Part) -> list[pa.Table] | None:
    found = small_files_together(location, asked, parts, FooterCache())
    return None if found is None else list(found)


FLAT = Part(("word", "id"))


@pytest.mark.parametrize("count", [1, 3, 70])
@pytest.mark.parametrize("parts", [(FLAT,), (Part(("id",)), Part(("word",))), (Part(("list", "id")),)], ids=str)
def test_row_groups_read_together_equal_single_reads(location: Location, count: int, parts: tuple[Part, ...]) -> None:
    files = put(location, count)
    asked = [(file, ordinal) for file in files[::-1] for ordinal in (1, 0)]
    found = together(location, asked, *parts)
    assert found is not None
    for part, table in zip(parts, found, strict=True):
        rows = [table_of(files.index(file)).slice(ROWS // 2 * ordinal, ROWS // 2) for file, ordinal in asked]
        assert table.equals(pa.concat_tables(rows).select(part.columns).combine_chunks())


@pytest.mark.parametrize("count", [2, 70])
def test_damaged_row_group_among_many_is_named(location: Location, count: int) -> None:
    files = put(location, count, write_page_checksum=True, compression="none", use_dictionary=False)
    path = Path(location.root) / files[1].path
    data = bytearray(path.read_bytes())
    place = bytes(data).index((ROWS + 1).to_bytes(8, "little"))
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(DecodeError, match=r"row group 0.*01|01.*row group 0"):
        together(location, [(file, 0) for file in files], FLAT)


@pytest.mark.parametrize("parts", [(), (Part(()),), (Part(("id",), first=2),), (FLAT, FLAT)], ids=str)
def test_small_file_is_not_read_whole_for_first_rows_or_repeated_columns(
    location: Location, parts: tuple[Part, ...]
) -> None:
    (file,) = put(location, 1)
    assert small_file(location, file, 0, parts, FooterCache()) is None
    assert small_files_together(location, [(file, 0)], parts, FooterCache()) is None


def test_large_file_is_not_read_together(location: Location, tmp_path: Path) -> None:
    words = [f"{row:0100}" for row in range(SMALL_FILE_BYTES // 100)]
    pq.write_table(pa.table({"word": words}), tmp_path / "x", compression="none", use_dictionary=False)
    file = read_footer(location, "x").file
    assert file.size > SMALL_FILE_BYTES
    assert small_file(location, file, 0, [Part(("word",))], FooterCache()) is None


def test_file_that_expands_in_memory_is_not_read_together(location: Location, tmp_path: Path) -> None:
    pq.write_table(pa.table({"word": ["x" * 1000] * 10_000}), tmp_path / "x", compression="zstd", use_dictionary=False)
    file = read_footer(location, "x").file
    assert file.size < SMALL_FILE_BYTES
    assert small_file(location, file, 0, [Part(("word",))], FooterCache()) is None
    assert small_files_together(location, [(file, 0)] * 2, [Part(("word",))], FooterCache()) is None


def test_files_of_different_types_are_not_read_together(location: Location, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "a")
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), tmp_path / "b")
    files = [read_footer(location, name).file for name in "ab"]
    assert together(location, [(file, 0) for file in files], Part(("id",))) is None


def test_missing_column_or_row_group_of_a_small_file_raises(location: Location) -> None:
    (file,) = put(location, 1)
    with pytest.raises(InvalidArgumentError, match=r"columns must be columns of 00 \('id', 'word', 'list'\), got 'x'"):
        small_file(location, file, 0, [Part(("x",))], FooterCache())
    with pytest.raises(InvalidArgumentError, match="row group must be below 2, the number of row groups in 00, got 2"):
        small_file(location, file, 2, [FLAT], FooterCache())


def test_column_parts_read_together_use_the_smallest_byte_limit() -> None:
    one = in_one([Part(("a", "b"), most_bytes=9), Part(("c",), rows_at_once=3, most_bytes=5)])
    assert one == Part(("a", "b", "c"), most_bytes=5)


def test_small_file_tables_are_concatenated_and_split_into_column_parts() -> None:
    tables = [table_of(0), table_of(1)]
    first, second = joined(tables, [Part(("id",)), Part(("list", "word"))])
    assert first.column("id").to_pylist() == list(range(2 * ROWS))
    assert second.equals(pa.concat_tables(tables).select(["list", "word"]).combine_chunks())
