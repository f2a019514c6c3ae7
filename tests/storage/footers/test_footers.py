"""Tests of reading footers: one request, validated contents, and shared memory for equal columns."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import MetadataError, StorageError
from petastore.inventory import DataFile
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers import tails
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import inventory_of, read_footer, read_footers, schemas_of
from petastore.storage.row_groups.row_group import read_row_group
from tests.storage.conftest import Put
from tests.storage.footers.counted_files import TEN, counted, parquet_bytes
from tests.tier import sized


def test_footer_equals_the_file(location: Location, put: Put) -> None:
    size = put("day=1/a.parquet", TEN, row_group_size=4)
    footer = read_footer(location, "day=1/a.parquet")
    data = parquet_bytes(TEN, row_group_size=4)
    length = int.from_bytes(data[-8:-4], "little")
    digest = hashlib.sha256(data[-8 - length : -8]).hexdigest()[:32]
    assert footer.file == DataFile("day=1/a.parquet", size, digest, (("day", "1"),))
    assert footer.arrow_schema == TEN.schema
    assert footer.groups["rows"].tolist() == [4, 4, 2]
    assert footer.groups["stored_bytes"].sum() < size
    assert footer.groups["decoded_bytes"].min() > 0
    assert footer.schema_document is None


def test_small_footer_takes_one_read_and_a_large_one_two() -> None:
    wide = pa.table({f"column {number}": [1] for number in range(2000)})
    location, filesystem = counted({"a.parquet": parquet_bytes(TEN), "b.parquet": parquet_bytes(wide)})
    read_footer(location, "a.parquet")
    assert len(filesystem.read) == 1
    footer = read_footer(location, "b.parquet")
    assert len(filesystem.read) == 3
    assert filesystem.read[1] == 64 * 1024
    assert filesystem.read[2] == len(footer.encoded) > 64 * 1024


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"x", r"day=1/x\.parquet is not a Parquet file: the file has only 1 byte$"),
        (
            b"id,name\n1,one\n2,two\n3,three\n",
            r"day=1/x\.parquet is not a Parquet file: it must end with b'PAR1', got b'ree\\n'",
        ),
        (
            parquet_bytes(TEN)[:-20],
            r"day=1/x\.parquet is a truncated or damaged Parquet file: it must end with b'PAR1', got b' 26\.'",
        ),
        (parquet_bytes(TEN)[:-4] + b"PARE", "encrypted"),
        (
            b"PAR1" + b"\0" * 20 + (10**6).to_bytes(4, "little") + b"PAR1",
            "must declare a footer of 1 to .* bytes, got 1,000,000",
        ),
        (b"PAR1" + b"\0" * 20 + (0).to_bytes(4, "little") + b"PAR1", "must declare a footer of 1 to .* bytes, got 0"),
        (
            b"PAR1" + b"\xff" * 20 + (20).to_bytes(4, "little") + b"PAR1",
            "the footer, which begins at byte",
        ),
    ],
)
def test_file_that_is_not_parquet_raises_with_its_name(location: Location, put: Put, content: bytes, why: str) -> None:
    put("day=1/x.parquet", content)
    with pytest.raises(MetadataError, match=why) as refused:
        read_footer(location, "day=1/x.parquet")
    assert "day=1/x.parquet" in str(refused.value)


def test_truncated_file_raises(tmp_path: Path) -> None:
    data = parquet_bytes(TEN)
    location = open_location(tmp_path)
    for length in range(0, len(data), 7):
        (tmp_path / "x.parquet").write_bytes(data[:length])
        with pytest.raises(MetadataError, match=r"x\.parquet"):
            read_footer(location, "x.parquet")


def test_too_large_footer_raises_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    location, filesystem = counted({"a.parquet": b"PAR1" + b"\0" * 300_000 + (250_000).to_bytes(4, "little") + b"PAR1"})
    monkeypatch.setattr(tails, "MAX_FOOTER_BYTES", 100_000)
    with pytest.raises(MetadataError, match=r"the footer of \S+ must have at most 100,000 bytes, got 250,000"):
        read_footer(location, "a.parquet")
    assert sum(filesystem.read) == 2 * 64 * 1024  # read twice, because a bit of its length may have flipped


def test_missing_file_raises_with_its_name(location: Location) -> None:
    with pytest.raises(StorageError, match=r"the file gone\.parquet is missing"):
        read_footer(location, "gone.parquet")


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def with_rows(claimed: int) -> bytes:
    """Return a file of ten rows in one row group whose footer claims another row count."""
    data = parquet_bytes(pa.table({"x": pa.array(range(10), pa.int8())}), store_schema=False)
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    # RowGroup.num_rows is followed by file_offset, two fields on: 0x16 <rows> 0x26.
    old = b"\x16" + varint(10) + b"\x26"
    place = footer.rindex(old)
    footer = footer[:place] + b"\x16" + varint(claimed) + b"\x26" + footer[place + len(old) :]
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_footer_with_inconsistent_row_counts_raises(location: Location, put: Put) -> None:
    put("right.parquet", with_rows(10))
    assert read_footer(location, "right.parquet").groups["rows"].tolist() == [10]
    put("x.parquet", with_rows(11))
    with pytest.raises(
        MetadataError, match=r"x\.parquet: the footer is damaged: it declares 10 rows, but 11 in the row groups"
    ):
        _ = read_footer(location, "x.parquet").groups


def test_footer_with_negative_counts_raises(location: Location, put: Put) -> None:
    put("x.parquet", with_rows(-10))
    with pytest.raises(MetadataError, match=r"x\.parquet: the footer is damaged: it declares -10 rows for row group 0"):
        _ = read_footer(location, "x.parquet").groups


def test_duplicate_column_names_are_numbered(location: Location, put: Put) -> None:
    put("x.parquet", pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"]))
    footer = read_footer(location, "x.parquet")
    assert footer.unreadable == {}
    leaves = {"a": range(1), "b": range(1, 2), "a_1": range(2, 3)}
    assert (footer.arrow_schema.names, footer.leaves) == (["a", "b", "a_1"], leaves)


def test_footers_are_returned_in_the_requested_order(location: Location, put: Put) -> None:
    paths = [f"{number:03d}.parquet" for number in range(40)]
    for number, path in enumerate(paths):
        put(path, {"x": list(range(number))})
    asked = paths[::-1]
    footers = read_footers(location, asked)
    assert [footer.file.path for footer in footers] == asked
    assert inventory_of(footers).num_rows == sum(range(40))
    assert read_footers(location, []) == []


def test_first_bad_footer_stops_reading(location: Location, put: Put) -> None:
    for number in range(30):
        put(f"{number:03d}.parquet", b"PAR1, but no more of it" if number in (7, 20) else TEN)
    with pytest.raises(MetadataError, match=r"007\.parquet"):
        read_footers(location, list_data_files(location))


def test_all_files_that_are_not_parquet_are_named(location: Location, put: Put) -> None:
    for number in range(30):
        put(f"{number:03d}.parquet", b"no parquet at all" if number % 4 == 3 else TEN)
    shown = r"7 of its 30 files are not Parquet files: 003\.parquet, .*, 019\.parquet, …\. Move them away, give them"
    with pytest.raises(MetadataError, match=shown):
        read_footers(location, list_data_files(location))


@pytest.mark.parametrize("extra", ["nothing", "other schema", "more row groups", "pandas"])
def test_footers_read_together_equal_single_reads(extra: str, location: Location, put: Put) -> None:
    generator = np.random.default_rng(7)
    for number in range(90):
        rows = int(generator.integers(1, 200_000 if number == 50 else 300))
        table = pa.table({"id": range(rows), "name": [f"{'x' * (number % 40)} {row}" for row in range(rows)]})
        options: dict[str, Any] = {"row_group_size": -(-rows // 3)}
        if extra == "other schema" and number % 9 == 4:
            table = table.append_column("more", pa.array([None] * rows, pa.list_(pa.int8())))
        if extra == "more row groups" and number % 5 == 4:
            options = {"row_group_size": -(-rows // 5)}
        if extra == "pandas":
            table = table.replace_schema_metadata({"pandas": f"{number}" * 30})
        put(f"day={number}/a.parquet", table, **options)
    paths = list_data_files(location)
    together, alone = read_footers(location, paths), [read_footer(location, path) for path in paths]
    for one, other in zip(together, alone, strict=True):
        assert (one.file, one.encoded, one.leaves) == (other.file, other.encoded, other.leaves)
        assert one.arrow_schema.equals(other.arrow_schema, check_metadata=True)
        assert one.metadata.equals(other.metadata)
        assert {name: counts.tolist() for name, counts in one.groups.items()} == {
            name: counts.tolist() for name, counts in other.groups.items()
        }


def test_damaged_footer_among_equal_footers_is_found() -> None:
    data = parquet_bytes(TEN)
    length = int.from_bytes(data[-8:-4], "little")
    location, filesystem = counted({f"{number:03d}.parquet": data for number in range(100)})
    for place in range(len(data) - 8 - length, len(data) - 8, sized(full=3, quick=21)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        filesystem.pipe_file(location.join("050.parquet"), bytes(flipped))
        paths = [f"{number:03d}.parquet" for number in range(20, 100)]
        try:
            alone = read_footer(location, "050.parquet")
            expected: Any = alone.groups
        except MetadataError as problem:
            expected = problem
        try:
            together = read_footers(location, paths)[30]
        except MetadataError as problem:
            assert str(problem) == str(expected)  # noqa: PT017 - which of them fails is not known beforehand
            continue
        if isinstance(expected, MetadataError):
            with pytest.raises(MetadataError):
                _ = together.metadata
            continue
        for name, counts in expected.items():
            np.testing.assert_array_equal(together.groups[name], counts)


def test_footer_decoded_bytes_equal_the_pages(location: Location, put: Put) -> None:
    put("a.parquet", {"x": np.zeros(100_000)}, use_dictionary=False, compression="zstd")
    groups = read_footer(location, "a.parquet").groups
    assert groups["decoded_bytes"].sum() > 800_000 > 100 * groups["stored_bytes"].sum()


def test_footers_of_petastorm_files_are_read(fixtures_root: Path) -> None:
    location = open_location(fixtures_root / "petastorm-0.13.1" / "Meadow")
    footers = read_footers(location, list_data_files(location))
    inventory = inventory_of(footers)
    assert (len(inventory.files), inventory.num_rows) == (12, 36)
    assert inventory.files[0].partitions == (("day", "2026-01-01"),)
    assert len(schemas_of(footers).unified().arrow) == len(footers[0].leaves)
    cache = FooterCache()
    for number in range(inventory.num_row_groups):
        file = inventory.files[inventory.file[number]]
        names = list(footers[0].leaves)
        table = read_row_group(location, file, int(inventory.ordinal[number]), names, footers=cache)
        assert table.num_rows == inventory.rows[number]


def test_footers_of_equal_columns_share_memory(tmp_path: Path) -> None:
    flat, nested = pa.table({"b": pa.array([1], pa.int64())}), pa.table({"a": pa.array([{"b": 1}])})
    required = pa.schema([pa.field("b", pa.int64(), nullable=False)])
    below = pa.schema([pa.field("a", pa.struct(list(required)), nullable=False)])
    tables = [flat, flat.slice(0, 0), nested, flat.cast(required), nested.cast(below), flat]
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{number}.parquet", store_schema=False)
    paths = [f"{number}.parquet" for number in range(len(tables))]
    footers = read_footers(open_location(tmp_path), paths)
    assert footers[0].columns is footers[1].columns
    assert len({id(footer.columns) for footer in footers}) == 5
    for footer, table in zip(footers, tables, strict=True):
        assert footer.arrow_schema == table.schema


def test_footers_of_different_arrow_types_are_not_shared(tmp_path: Path) -> None:
    words = pa.table({"word": ["a", "b"]})
    coded = pa.table({"word": words["word"].combine_chunks().dictionary_encode()})
    for name, table in {"a": words, "b": coded, "c": words}.items():
        pq.write_table(table, tmp_path / name)
    footers = read_footers(open_location(tmp_path), ["a", "b", "c"])
    assert [footer.arrow_schema for footer in footers] == [words.schema, coded.schema, words.schema]
