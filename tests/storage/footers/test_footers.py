"""Footers are read with one request, trusted in nothing, and kept once."""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from petastore.errors import DatasetChangedError, MetadataError, SchemaError, StorageError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footers import (
    Footer,
    FooterCache,
    agreed_arrow_schema,
    inventory_of,
    list_data_files,
    read_footer,
    read_footers,
)
from petastore.storage.row_groups.row_group import read_row_group
from tests.storage.conftest import Put


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


TEN = pa.table({"id": list(range(10)), "name": [f"n{number}" for number in range(10)]})


class Counted(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A filesystem in memory that notes what is read."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.read: list[int] = []

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        stream = super()._open(path, mode, **more)
        if mode == "rb":
            self.opened += 1
            return Noting(stream, self.read)
        return stream


class Noting:
    def __init__(self, stream: Any, read: list[int]) -> None:
        self._stream = stream
        self._read = read

    def read(self, size: int = -1) -> Any:
        data = self._stream.read(size)
        self._read.append(len(data))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def counted(files: dict[str, bytes]) -> tuple[Location, Counted]:
    filesystem = Counted()
    filesystem.store = {}
    location = open_location("/ds", filesystem=filesystem)
    for path, data in files.items():
        with location.filesystem.open_output_stream(location.join(path)) as stream:
            stream.write(data)
    return location, filesystem


def test_a_footer_says_what_is_in_the_file(location: Location, put: Put) -> None:
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


def test_a_small_footer_takes_one_read_and_a_large_one_two() -> None:
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
        (b"x", "has 1 bytes and is no Parquet"),
        (b"id,name\n1,one\n2,two\n3,three\n", "is no Parquet: it ends with"),
        (parquet_bytes(TEN)[:-20], "begins as Parquet, but was cut short or damaged"),
        (parquet_bytes(TEN)[:-4] + b"PARE", "encrypted"),
        (b"PAR1" + b"\0" * 20 + (10**6).to_bytes(4, "little") + b"PAR1", "says that its footer has 1,000,000 bytes"),
        (b"PAR1" + b"\0" * 20 + (0).to_bytes(4, "little") + b"PAR1", "says that its footer has 0 bytes"),
        (b"PAR1" + b"\xff" * 20 + (20).to_bytes(4, "little") + b"PAR1", "the footer is damaged"),
    ],
)
def test_what_is_no_parquet_is_refused_by_name(location: Location, put: Put, content: bytes, why: str) -> None:
    put("day=1/x.parquet", content)
    with pytest.raises(MetadataError, match=why) as refused:
        read_footer(location, "day=1/x.parquet")
    assert "day=1/x.parquet" in str(refused.value)


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    data = parquet_bytes(TEN)
    location = open_location(tmp_path)
    for length in range(0, len(data), 7):
        (tmp_path / "x.parquet").write_bytes(data[:length])
        with pytest.raises(MetadataError, match=r"x\.parquet"):
            read_footer(location, "x.parquet")


def test_a_footer_beyond_the_bound_is_refused_before_it_is_read() -> None:
    location, filesystem = counted({"a.parquet": b"PAR1" + b"\0" * 300_000 + (250_000).to_bytes(4, "little") + b"PAR1"})
    with pytest.raises(MetadataError, match=r"its footer has 250,000 bytes; at most 100,000 are read"):
        read_footer(location, "a.parquet", max_bytes=100_000)
    assert sum(filesystem.read) == 64 * 1024


def test_a_missing_file_is_named(location: Location) -> None:
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
    """A file of ten rows in one row group whose row group says something else."""
    data = parquet_bytes(pa.table({"x": pa.array(range(10), pa.int8())}), store_schema=False)
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    # RowGroup.num_rows is followed by file_offset, two fields on: 0x16 <rows> 0x26.
    old = b"\x16" + varint(10) + b"\x26"
    place = footer.rindex(old)
    footer = footer[:place] + b"\x16" + varint(claimed) + b"\x26" + footer[place + len(old) :]
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_row_groups_that_do_not_add_up_are_refused(location: Location, put: Put) -> None:
    put("right.parquet", with_rows(10))
    assert read_footer(location, "right.parquet").groups["rows"].tolist() == [10]
    put("x.parquet", with_rows(11))
    with pytest.raises(MetadataError, match=r"x\.parquet: the footer says 10 rows, but its row groups have 11"):
        _ = read_footer(location, "x.parquet").groups


def test_negative_counts_are_refused(location: Location, put: Put) -> None:
    put("x.parquet", with_rows(-10))
    with pytest.raises(MetadataError, match=r"x\.parquet: the footer says that row group 0 has -10 rows"):
        _ = read_footer(location, "x.parquet").groups


def test_two_columns_of_one_name_cannot_be_read_and_the_others_can(location: Location, put: Put) -> None:
    put("x.parquet", pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"]))
    footer = read_footer(location, "x.parquet")
    assert footer.unreadable == {"a": "2 columns of x.parquet are called 'a', and columns are read by name"}
    assert (footer.arrow_schema.names, footer.leaves) == (["b"], {"b": range(1, 2)})


def test_many_footers_come_in_the_order_asked(location: Location, put: Put) -> None:
    paths = [f"{number:03d}.parquet" for number in range(40)]
    for number, path in enumerate(paths):
        put(path, {"x": list(range(number))})
    asked = paths[::-1]
    footers = read_footers(location, asked)
    assert [footer.file.path for footer in footers] == asked
    assert inventory_of(footers).num_rows == sum(range(40))
    assert read_footers(location, []) == []


def test_the_first_bad_footer_stops_the_reading(location: Location, put: Put) -> None:
    for number in range(30):
        put(f"{number:03d}.parquet", b"PAR1, but no more of it" if number in (7, 20) else TEN)
    with pytest.raises(MetadataError, match=r"007\.parquet"):
        read_footers(location, list_data_files(location))


def test_files_that_are_no_parquet_are_named_together(location: Location, put: Put) -> None:
    for number in range(30):
        put(f"{number:03d}.parquet", b"no parquet at all" if number % 4 == 3 else TEN)
    shown = r"7 of the 30 files there are no Parquet: 003\.parquet, .*, 019\.parquet, …\. .* move these away, give them"
    with pytest.raises(MetadataError, match=shown):
        read_footers(location, list_data_files(location))


def footer_with(path: str, schema: pa.Schema) -> Footer:
    location, _ = counted({path: parquet_bytes(schema.empty_table())})
    return read_footer(location, path)


def test_files_agree_whatever_the_order_of_columns() -> None:
    one = footer_with("a.parquet", pa.schema({"x": pa.int8(), "y": pa.string()}))
    two = footer_with("b.parquet", pa.schema({"y": pa.string(), "x": pa.int8()}))
    assert agreed_arrow_schema([one, two]) == one.arrow_schema


def test_a_column_is_nullable_where_one_file_says_so() -> None:
    def schema(nullable: bool) -> pa.Schema:
        item = pa.field("element", pa.int8(), nullable=nullable)
        struct = pa.struct([pa.field("a", pa.int8(), nullable=nullable)])
        return pa.schema(
            [
                pa.field("x", pa.int8(), nullable=nullable),
                pa.field("v", pa.list_(item), nullable=False),
                pa.field("s", struct, nullable=False),
                pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=nullable)), nullable=False),
            ]
        )

    agreed = agreed_arrow_schema([footer_with("a.parquet", schema(False)), footer_with("b.parquet", schema(True))])
    assert agreed == schema(True)


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        ({"x": pa.int8()}, r"a\.parquet has a column 'y', but b\.parquet lacks it"),
        ({"x": pa.int8(), "y": pa.string(), "z": pa.int8()}, r"b\.parquet has a column 'z', but a\.parquet lacks it"),
        ({"x": pa.int16(), "y": pa.string()}, r"column 'x' is int8 in a\.parquet, but int16 in b\.parquet"),
        ({"x": pa.list_(pa.int8()), "y": pa.string()}, r"column 'x' is int8 in a\.parquet, but list"),
    ],
)
def test_files_that_disagree_are_both_named(theirs: dict[str, pa.DataType], why: str) -> None:
    ours = footer_with("a.parquet", pa.schema({"x": pa.int8(), "y": pa.string()}))
    with pytest.raises(SchemaError, match=why):
        agreed_arrow_schema([ours, footer_with("b.parquet", pa.schema(theirs))])


def test_nested_types_that_disagree_are_refused() -> None:
    one = footer_with("a.parquet", pa.schema({"s": pa.struct({"x": pa.int8()})}))
    two = footer_with("b.parquet", pa.schema({"s": pa.struct({"y": pa.int8()})}))
    with pytest.raises(SchemaError, match="column 's' is"):
        agreed_arrow_schema([one, two])


def test_no_files_have_no_schema() -> None:
    with pytest.raises(SchemaError, match="there are no files"):
        agreed_arrow_schema([])


def test_a_footer_is_read_once_however_many_ask_at_once() -> None:
    location, filesystem = counted({"a.parquet": parquet_bytes(TEN)})
    file = read_footer(location, "a.parquet").file
    cache = FooterCache()
    ready = threading.Barrier(8)

    def ask(_: int) -> Footer:
        ready.wait()
        return cache.get(location, file)

    with ThreadPoolExecutor(8) as threads:
        footers = list(threads.map(ask, range(8)))
    assert len({id(footer) for footer in footers}) == 1
    assert filesystem.opened == 2


def test_the_least_recently_used_footers_go_first() -> None:
    location, filesystem = counted({f"{name}.parquet": parquet_bytes(TEN) for name in "abc"})
    files = [read_footer(location, f"{name}.parquet").file for name in "abc"]
    size = len(read_footer(location, "a.parquet").encoded)
    cache = FooterCache(max_bytes=2 * size)
    before = filesystem.opened
    for number in (0, 1, 0, 2):  # the second goes
        cache.get(location, files[number])
    assert len(cache) == 2
    cache.get(location, files[0])
    assert filesystem.opened - before == 3
    cache.get(location, files[1])
    assert filesystem.opened - before == 4


def test_a_footer_larger_than_the_cache_is_kept_while_it_is_the_last() -> None:
    location, filesystem = counted({"a.parquet": parquet_bytes(TEN)})
    file = read_footer(location, "a.parquet").file
    cache = FooterCache(max_bytes=1)
    assert cache.get(location, file) is cache.get(location, file)
    assert filesystem.opened == 2


def test_a_cache_of_many_footers_does_as_much_for_the_last_as_for_the_first() -> None:
    location, _ = counted({f"{number}.parquet": parquet_bytes(TEN) for number in range(1000)})
    first = read_footer(location, "0.parquet")
    cache = FooterCache(max_bytes=900 * len(first.encoded))
    files = [DataFile(f"{number}.parquet", first.file.size, first.file.digest) for number in range(1000)]
    work = [calls_in(functools.partial(cache.get, location, file)) for file in files]
    assert len(cache) == 900
    assert sum(work[-100:]) <= 1.5 * sum(work[:100])


def calls_in(task: Callable[[], Any]) -> int:
    """How many functions and lines of Python a task runs."""
    seen = 0

    def note(_frame: Any, _event: str, _argument: Any) -> Any:
        nonlocal seen
        seen += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        task()
    finally:
        sys.settrace(before)
    return seen


def test_a_footer_that_is_known_is_not_parsed_again_but_the_file_is_looked_at() -> None:
    location, filesystem = counted({f"{name}.parquet": parquet_bytes(TEN) for name in "abc"})
    footers = [read_footer(location, f"{name}.parquet") for name in "abc"]
    cache = FooterCache(max_bytes=2 * len(footers[0].encoded))
    cache.know(location, footers)
    before = filesystem.opened
    assert [cache.get(location, footer.file) is footer for footer in footers] == [True, True, False]
    assert filesystem.opened == before + 3
    again = FooterCache()
    again.know(location, footers)
    with location.filesystem.open_output_stream(location.join("a.parquet")) as stream:
        stream.write(parquet_bytes(TEN.slice(3)))
    with pytest.raises(DatasetChangedError):
        again.get(location, footers[0].file)


@pytest.mark.parametrize(
    ("extra", "most"), [("nothing", 5), ("other schema", 15), ("more row groups", 25), ("pandas", 90)]
)
def test_footers_read_together_are_those_read_one_by_one(extra: str, most: int, location: Location, put: Put) -> None:
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
    assert len({id(footer.columns) for footer in together}) <= most
    for one, other in zip(together, alone, strict=True):
        assert (one.file, one.encoded, one.leaves) == (other.file, other.encoded, other.leaves)
        assert one.arrow_schema.equals(other.arrow_schema, check_metadata=True)
        assert one.metadata.equals(other.metadata)
        assert {name: counts.tolist() for name, counts in one.groups.items()} == {
            name: counts.tolist() for name, counts in other.groups.items()
        }


def test_a_damaged_footer_among_many_that_are_alike_is_found() -> None:
    data = parquet_bytes(TEN)
    length = int.from_bytes(data[-8:-4], "little")
    location, filesystem = counted({f"{number:03d}.parquet": data for number in range(100)})
    for place in range(len(data) - 8 - length, len(data) - 8, 3):
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


def change_size(file: DataFile) -> DataFile:
    return DataFile(file.path, file.size + 1, file.digest)


def change_digest(file: DataFile) -> DataFile:
    return DataFile(file.path, file.size, "0" * 32)


@pytest.mark.parametrize("change", [change_size, change_digest])
def test_a_rewritten_file_is_refused_by_name(
    location: Location, put: Put, change: Callable[[DataFile], DataFile]
) -> None:
    put("a.parquet", TEN)
    file = read_footer(location, "a.parquet").file
    cache = FooterCache()
    for _ in range(2):
        with pytest.raises(DatasetChangedError, match=r"a\.parquet was rewritten"):
            cache.get(location, change(file))
    assert len(cache) == 0
    assert cache.get(location, file).file == file


def test_an_unknown_digest_is_not_compared(location: Location, put: Put) -> None:
    size = put("a.parquet", TEN)
    assert FooterCache().get(location, DataFile("a.parquet", size)).file.size == size


def test_a_failed_read_is_not_kept(location: Location, put: Put) -> None:
    cache = FooterCache()
    data = parquet_bytes(TEN)
    file = DataFile("a.parquet", len(data))
    with pytest.raises(StorageError, match="missing"):
        cache.get(location, file)
    put("a.parquet", data)
    assert cache.get(location, file).metadata.num_rows == 10


def test_a_cache_pickles_as_an_empty_one(location: Location, put: Put) -> None:
    put("a.parquet", TEN)
    cache = FooterCache(max_bytes=12345)
    cache.get(location, read_footer(location, "a.parquet").file)
    again = pickle.loads(pickle.dumps(cache))  # noqa: S301 - our own bytes
    assert len(again) == 0
    assert again._max_bytes == 12345


def test_decoded_bytes_are_those_of_the_pages(location: Location, put: Put) -> None:
    put("a.parquet", {"x": np.zeros(100_000)}, use_dictionary=False, compression="zstd")
    groups = read_footer(location, "a.parquet").groups
    assert groups["decoded_bytes"].sum() > 800_000 > 100 * groups["stored_bytes"].sum()


def test_files_that_petastorm_wrote_are_listed_and_read(fixtures_root: Path) -> None:
    location = open_location(fixtures_root / "petastorm-0.13.1" / "Meadow")
    footers = read_footers(location, list_data_files(location))
    inventory = inventory_of(footers)
    assert (len(inventory.files), inventory.num_rows) == (12, 36)
    assert inventory.files[0].partitions == (("day", "2026-01-01"),)
    assert len(agreed_arrow_schema(footers)) == len(footers[0].leaves)
    cache = FooterCache()
    for number in range(inventory.num_row_groups):
        file = inventory.files[inventory.file[number]]
        names = list(footers[0].leaves)
        table = read_row_group(location, file, int(inventory.ordinal[number]), names, footers=cache)
        assert table.num_rows == inventory.rows[number]
