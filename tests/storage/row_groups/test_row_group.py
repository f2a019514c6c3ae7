"""Tests of reading a row group: requested columns and rows, memory, damage, rewritten files."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DatasetChangedError, DecodeError, InvalidArgumentError, StorageError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location, open_location
from petastore.storage.files.whole_files import read_up_to
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import read_footer
from petastore.storage.row_groups import small_files
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.open_files import OpenFiles, Reading
from petastore.storage.row_groups.row_group import read_row_group, read_row_group_in_parts
from tests.storage.conftest import Put

ROWS = 10
COLUMNS: dict[str, Any] = {
    "id": list(range(ROWS)),
    "a.b": [f"flat {row}" for row in range(ROWS)],
    "a": [None if row == 3 else {"b": row, "c": [row] * row} for row in range(ROWS)],
    "pairs": pa.array([[("k", row)] for row in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "vector": pa.array([[row, row] for row in range(ROWS)], pa.list_(pa.float32(), 2)),
    "text": pa.array([str(row % 3) for row in range(ROWS)], pa.large_string()),
    "kind": pa.array([str(row % 3) for row in range(ROWS)]).dictionary_encode(),
    "price": pa.array([Decimal(row) / 10 for row in range(ROWS)], pa.decimal128(9, 2)),
    "when": pa.array([dt.datetime(2026, 1, 1, row, tzinfo=dt.UTC) for row in range(ROWS)]),
    "nothing": pa.nulls(ROWS),
}
TABLE = pa.table(COLUMNS)


def read(location: Location, ordinal: int, columns: Sequence[str], path: str = "x.parquet") -> pa.Table:
    file = read_footer(location, path).file
    return read_row_group(location, file, ordinal, columns, footers=FooterCache())


@pytest.mark.parametrize("columns", [list(COLUMNS), list(COLUMNS)[::-1], ["a"], ["a.b"], ["a.b", "a"], ["pairs", "id"]])
def test_row_group_has_the_requested_columns_in_order(location: Location, put: Put, columns: list[str]) -> None:
    put("x.parquet", TABLE, row_group_size=4)
    for ordinal in range(3):
        table = read(location, ordinal, columns)
        assert table.column_names == columns
        assert table.equals(TABLE.slice(4 * ordinal, 4).select(columns))
        table.validate(full=True)


@pytest.mark.parametrize("first", [1, 3, 4, 9])
def test_row_group_reads_only_the_first_rows(location: Location, put: Put, first: int) -> None:
    put("x.parquet", TABLE, row_group_size=4)
    file = read_footer(location, "x.parquet").file
    parts = [Part((name,), first=first) for name in COLUMNS]
    tables = list(read_row_group_in_parts(location, file, 1, parts, footers=FooterCache()))
    for name, table in zip(COLUMNS, tables, strict=True):
        assert table.equals(TABLE.slice(4, min(first, 4)).select([name]))


@contextlib.contextmanager
def pool_of_its_own() -> Iterator[pa.MemoryPool]:
    """Yield a memory pool that counts Arrow's allocations in the block, and their peak."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def test_memory_of_a_column_part_is_freed_before_the_next_part_is_read(tmp_path: Path) -> None:
    rows = 500_000
    columns = {name: np.arange(rows) + number for number, name in enumerate("abc")}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", use_dictionary=False)
    location = open_location(tmp_path)
    file = read_footer(location, "x.parquet").file

    def most_allocated(names: str) -> int:
        with pool_of_its_own() as pool:
            tables = read_row_group_in_parts(
                location, file, 0, [Part((name,)) for name in names], footers=FooterCache()
            )
            while next(tables, None) is not None:  # a `for` would hold each table while the next one is read
                pass
            assert pool.bytes_allocated() == 0
            return pool.max_memory() or 0

    assert most_allocated("abc") - most_allocated("a") < rows
    assert most_allocated("a") > 8 * rows


def test_row_group_without_columns_has_the_row_count(location: Location, put: Put) -> None:
    put("x.parquet", TABLE, row_group_size=4)
    table = read(location, 2, [])
    assert (table.num_columns, table.num_rows) == (0, 2)


def test_empty_row_group_is_read(location: Location, put: Put, tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, TABLE.schema) as writer:
        writer.write_table(TABLE.slice(0, 0), row_group_size=1)
        writer.write_table(TABLE)
    put("x.parquet", bytes(sink.getvalue()))
    footer = read_footer(location, "x.parquet")
    assert footer.groups["rows"].tolist() == [0, ROWS]
    assert read(location, 0, ["id", "a"]).num_rows == 0


def test_pandas_and_field_metadata_are_ignored(location: Location, put: Put) -> None:
    frame = TABLE.select(["id", "text"]).to_pandas().set_index("text")
    put("x.parquet", pa.Table.from_pandas(frame))
    table = read(location, 0, ["text", "id"])
    assert table.column_names == ["text", "id"]
    assert table.schema.metadata is None
    assert [table.schema.field(name).metadata for name in table.column_names] == [None, None]


def test_required_column_stays_required(location: Location, put: Put) -> None:
    put("x.parquet", pa.table({"id": [1]}, pa.schema([pa.field("id", pa.int64(), nullable=False)])))
    assert not read(location, 0, ["id"]).schema.field("id").nullable


@pytest.mark.parametrize(
    ("ordinal", "columns", "why"),
    [
        (
            0,
            ["missing"],
            r"columns must be columns of x\.parquet \('id', 'a\.b', 'a', 'pairs', 'vector', 'text', 'kind',",
        ),
        (0, ["b"], r"columns must be columns of x\.parquet \('id', 'a\.b', 'a', 'pairs', 'vector', 'text', 'kind',"),
        (0, ["id", "id"], r"columns must be distinct, got \['id', 'id'\]"),
        (3, ["id"], r"row group must be below 3, the number of row groups in x\.parquet, got 3"),
        (-1, ["id"], r"row group must be below 3, the number of row groups in x\.parquet, got -1"),
    ],
)
def test_missing_column_raises(location: Location, put: Put, ordinal: int, columns: list[str], why: str) -> None:
    put("x.parquet", TABLE, row_group_size=4)
    with pytest.raises(InvalidArgumentError, match=why):
        read(location, ordinal, columns)


def test_footer_is_parsed_once_for_all_row_groups(location: Location, put: Put) -> None:
    put("x.parquet", TABLE, row_group_size=1)
    file = read_footer(location, "x.parquet").file
    footers = FooterCache()
    with ThreadPoolExecutor(4) as threads:
        tables = list(
            threads.map(lambda ordinal: read_row_group(location, file, ordinal, ["id"], footers=footers), range(ROWS))
        )
    assert [table.column("id").to_pylist() for table in tables] == [[row] for row in range(ROWS)]
    assert len(footers) == 1


def with_damage(column: str, ordinal: int, **options: Any) -> bytes:
    """Return the table as a file in which the pages of one column chunk are overwritten."""
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink, row_group_size=4, **options)
    data = bytearray(sink.getvalue())
    metadata = pq.read_metadata(pa.BufferReader(bytes(data)))
    (chunk,) = [
        metadata.row_group(ordinal).column(leaf)
        for leaf in range(metadata.num_columns)
        if metadata.schema.column(leaf).path == column
    ]
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xa5" * chunk.total_compressed_size
    return bytes(data)


def test_damaged_page_raises_with_file_row_group_and_column(location: Location, put: Put) -> None:
    put("day=1/x.parquet", with_damage("text", 1))
    with pytest.raises(DecodeError, match="the data is damaged") as refused:
        read(location, 1, ["id", "text", "a.b"], "day=1/x.parquet")
    assert (refused.value.file, refused.value.row_group, refused.value.column) == ("day=1/x.parquet", 1, "text")
    assert read(location, 0, ["text"], "day=1/x.parquet").num_rows == 4
    assert read(location, 1, ["id", "a.b"], "day=1/x.parquet").num_rows == 4


def test_page_checksums_detect_one_changed_bit(location: Location, put: Put) -> None:
    sink = pa.BufferOutputStream()
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table({"blob": [b"x" * 1000]}), sink, write_page_checksum=True, **options)
    data = bytearray(sink.getvalue())
    data[data.index(b"x" * 500) + 100] ^= 1
    put("x.parquet", bytes(data))
    with pytest.raises(DecodeError, match="damaged"):
        read(location, 0, ["blob"])


def test_dictionary_index_out_of_range_raises(location: Location, put: Put) -> None:
    kinds = pa.array(["one", "two", "three", "four"] * 8).dictionary_encode()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"kind": kinds}), sink, compression="none")
    data = bytes(sink.getvalue())
    # 32 packed indices of 2 bits: 0b11100100 per byte. With a declared width of 3 bits they read as up to 7.
    place = data.index(b"\xe4" * 8)
    put("x.parquet", data[: place - 2] + b"\x03" + data[place - 1 :])
    with pytest.raises(DecodeError):
        read(location, 0, ["kind"])


def test_file_rewritten_after_listing_raises(location: Location, put: Put) -> None:
    put("x.parquet", TABLE, row_group_size=4)
    file = read_footer(location, "x.parquet").file
    footers = FooterCache()
    read_row_group(location, file, 0, ["id"], footers=footers)
    put("x.parquet", TABLE.slice(0, 5))
    for cache in (footers, FooterCache()):
        with pytest.raises(DatasetChangedError, match=r"x\.parquet was rewritten"):
            read_row_group(location, file, 0, ["id"], footers=cache)


def test_rewritten_file_of_equal_size_is_not_reported_as_damage(location: Location, put: Put) -> None:
    def table(values: list[int]) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), sink, compression="none", use_dictionary=False)
        return bytes(sink.getvalue())

    old, new = table([1, 2, 3]), table([4, 5, 6])
    assert len(old) == len(new)
    put("x.parquet", old)
    file = read_footer(location, "x.parquet").file
    footers = FooterCache()
    footers.get(location, file)
    broken = bytearray(new)
    broken[4:24] = b"\xa5" * 20
    put("x.parquet", bytes(broken))
    with pytest.raises(DatasetChangedError, match=r"x\.parquet was rewritten"):
        read_row_group(location, file, 0, ["x"], footers=footers)


def test_missing_file_raises_with_its_name(location: Location, put: Put) -> None:
    put("x.parquet", TABLE)
    file = read_footer(location, "x.parquet").file
    footers = FooterCache()
    footers.get(location, file)
    location.filesystem.delete_file(location.join("x.parquet"))
    for cache in (footers, FooterCache()):
        with pytest.raises(StorageError, match=r"x\.parquet is missing"):
            read_row_group(location, file, 0, ["id"], footers=cache)


def test_unreadable_file_raises_storage_error(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").mkdir()
    with pytest.raises(StorageError, match=r"x\.parquet"):
        read_row_group(open_location(tmp_path), DataFile("x.parquet", 1), 0, ["id"], footers=FooterCache())


def test_small_file_is_read_whole_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"id": range(100)})
    pq.write_table(table, tmp_path / "part-0.parquet", row_group_size=10)
    location, footers, files = open_location(tmp_path), FooterCache(), OpenFiles()
    file = read_footer(location, "part-0.parquet").file
    whole: list[str] = []
    read_whole = read_up_to

    def noted(location: Location, path: str, size: int) -> bytes:
        whole.append(path)
        return read_whole(location, path, size)

    monkeypatch.setattr(small_files, "read_up_to", noted)
    for ordinal in (3, 0, *range(10)):
        parts = [Part(("id",))]
        (found,) = read_row_group_in_parts(location, file, ordinal, parts, footers=footers, files=files)
        assert found.equals(table.slice(10 * ordinal, 10).combine_chunks())
    files.close()
    assert whole == ["part-0.parquet"]


def test_file_modified_during_each_read_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "x.parquet", row_group_size=10)
    location, footers = open_location(tmp_path), FooterCache()
    file = read_footer(location, "x.parquet").file
    footers.get(location, file)

    def write_at_most(times: int) -> pa.Table:
        doubts = itertools.chain([True] * times, itertools.repeat(False))
        monkeypatch.setattr(Reading, "is_in_doubt", property(lambda _: next(doubts)))
        return read_row_group(location, file, 3, ["id"], footers=footers)

    assert write_at_most(4).column("id").to_pylist() == list(range(30, 40))
    with pytest.raises(DatasetChangedError, match=r"x\.parquet was rewritten .* row group 3"):
        write_at_most(5)
