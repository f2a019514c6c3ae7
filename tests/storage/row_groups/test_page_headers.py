"""No bit that flips in the pages of a file with checksums, headers among them, gives other values without an error."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.row_groups import page_headers
from petastore.storage.row_groups.page_headers import refuse_damaged_pages
from petastore.storage.row_groups.row_group import read_row_group


def a_table(rows: int) -> pa.Table:
    """Columns of many kinds, with and without missing values, flat and nested."""
    numbers = range(rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "maybe": pa.array([None if n % 3 == 0 else n * 1.5 for n in numbers]),
            "never": pa.array([None] * rows, pa.int64()),
            "word": pa.array([None if n % 4 == 0 else f"w{n % 3}" for n in numbers]),
            "list": pa.array([None if n % 7 == 6 else list(range(n % 4)) for n in numbers], pa.list_(pa.int64())),
            "struct": pa.array([{"a": n, "b": [str(n)] * (n % 3)} for n in numbers]),
            "flag": pa.array([n % 2 == 0 for n in numbers]),
            "long": pa.array(["x" * 900 + str(n) for n in numbers]),
        }
    )


OPTIONS: list[dict[str, Any]] = [
    {"data_page_version": version, "use_dictionary": dictionary, "compression": compression}
    for version, dictionary, compression in itertools.product(["1.0", "2.0"], [True, False], ["none", "zstd"])
]
every_kind = pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(map(str, options.values())))


def headers_are_right(path: Path) -> None:
    metadata = pq.read_metadata(path)
    with pa.OSFile(str(path)) as source:
        for group in range(metadata.num_row_groups):
            refuse_damaged_pages(
                source.read_at, metadata, range(metadata.num_columns), file=DataFile("", 0), ordinal=group
            )


@every_kind
@pytest.mark.parametrize("rows", [0, 1, 7, 5000])
def test_headers_that_are_right_pass(tmp_path: Path, options: dict[str, Any], rows: int) -> None:
    path = tmp_path / "x.parquet"
    for page_bytes in (100, 1 << 20):
        pq.write_table(
            a_table(rows), path, write_page_checksum=True, row_group_size=3000, data_page_size=page_bytes, **options
        )
        headers_are_right(path)


@pytest.mark.parametrize(
    ("encoding", "dtype"),
    [
        ("DELTA_BINARY_PACKED", "int64"), ("BYTE_STREAM_SPLIT", "float32"), ("RLE", "bool"), ("PLAIN", "int16"),
        ("DELTA_LENGTH_BYTE_ARRAY", "str"), ("DELTA_BYTE_ARRAY", "str"),
    ],
)  # fmt: skip
def test_every_encoding_passes(tmp_path: Path, encoding: str, dtype: str) -> None:
    values = pa.array(np.arange(3000).astype(dtype).tolist())
    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"x": values}), path, use_dictionary=False, column_encoding={"x": encoding}, write_page_checksum=True
    )
    headers_are_right(path)


def test_a_column_that_leaves_its_dictionary_passes(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    words = pa.table({"x": [f"word {number}" for number in range(20_000)]})
    pq.write_table(words, path, dictionary_pagesize_limit=1000, data_page_size=1000, write_page_checksum=True)
    headers_are_right(path)


@every_kind
def test_the_quick_way_reads_what_the_slow_one_reads(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(a_table(500), path, write_page_checksum=True, data_page_size=500, row_group_size=200, **options)
    data, quick = path.read_bytes(), {}
    for place in page_places(path):
        quick[place] = page_headers._page_header(data, place)
    for pattern in ("_USUAL", "_USUAL_DICTIONARY"):
        monkeypatch.setattr(page_headers, pattern, re.compile(rb"(?!)"))
    for place, (header, after) in quick.items():
        slow, slow_after = page_headers._page_header(data, place)
        assert after == slow_after
        assert {number: header[number] for number in (1, 3)} == {number: slow[number] for number in (1, 3)}
        assert (4 in header, header.get(8)) == (4 in slow, slow.get(8))
        if header[1] == 0:
            assert [header[5][number] for number in (1, 2, 3, 4)] == [slow[5][number] for number in (1, 2, 3, 4)]
    assert len(quick) > 10


def page_places(path: Path) -> Iterator[int]:
    metadata, data = pq.read_metadata(path), path.read_bytes()
    for group, leaf in itertools.product(range(metadata.num_row_groups), range(metadata.num_columns)):
        column = metadata.row_group(group).column(leaf)
        at = column.dictionary_page_offset or column.data_page_offset
        stop = at + column.total_compressed_size
        while at < stop:
            yield at
            header, after = page_headers._page_header(data, at)
            at = after + header[3]


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[3], OPTIONS[5], OPTIONS[6]])
def test_each_flip_of_a_bit_in_a_header_is_refused_or_harmless(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "x.parquet"
    table = a_table(9).drop_columns(["long", "struct"])
    pq.write_table(table, path, write_page_checksum=True, write_statistics=False, **options)
    location, footers, refused, named = open_location(tmp_path), FooterCache(), 0, 0
    file, data = DataFile("x.parquet", path.stat().st_size), bytearray(path.read_bytes())
    places = [inside for at in page_places(path) for inside in range(at, page_headers._page_header(bytes(data), at)[1])]
    with path.open("r+b", buffering=0) as written:
        for place, bit in itertools.product(places, range(8)):
            write_byte(written, place, data[place] ^ 1 << bit)
            try:
                found = read_row_group(location, file, 0, table.column_names, footers=footers)
            except DecodeError as problem:
                refused += 1
                said = re.search(r"the page header of \S+ at byte ([\d,]+) is damaged", str(problem))
                named += said is not None and int(said[1].replace(",", "")) <= place + 1 < len(data)
            else:
                assert found.equals(table), (place, bit)
            write_byte(written, place, data[place])
    assert refused > 4 * len(places)
    assert named > 0


def write_byte(file: Any, place: int, value: int) -> None:
    file.seek(place)
    file.write(bytes([value]))


MANY = {"dictionaries": {"use_dictionary": True}, "plain": {"use_dictionary": False, "write_statistics": False}}


@functools.cache
def wide_file(kind: str) -> tuple[bytes, Any]:
    """The bytes of a file with many columns of a few kinds, and its metadata."""
    numbers = np.arange(400)
    columns: dict[str, Any] = {}
    for n in range(24):
        columns[f"float {n}"] = (numbers % 50 * (n + 0.5)).astype(np.float32)
        columns[f"int {n}"] = pa.array(numbers + n, pa.int64(), mask=numbers % 5 == 0 if n % 2 else None)
        columns[f"text {n}"] = [f"{n % 3} {number % 7}" for number in numbers.tolist()]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns), sink, write_page_checksum=True, data_page_size=900, write_batch_size=100, **MANY[kind]
    )
    data = sink.getvalue().to_pybytes()
    return data, pq.read_metadata(pa.BufferReader(data))


@pytest.mark.parametrize("kind", MANY)
def test_many_headers_are_seen_right_together(kind: str) -> None:
    data, metadata = wide_file(kind)
    group, asked = metadata.row_group(0), []

    def read(size: int, at: int) -> bytes:
        asked.append(at)
        return data[at : at + size]

    columns = [group.column(leaf) for leaf in range(metadata.num_columns)]
    are_right = page_headers._seen_right(read, columns)
    assert are_right.mean() > 0.9
    assert len(asked) > len(columns)  # chunks of several pages are among them


Flip = tuple[int, int, int]
flips: st.SearchStrategy[list[Flip]] = st.lists(
    st.tuples(st.integers(0, 71), st.integers(0, 127), st.integers(0, 7)), max_size=4
)


@pytest.mark.parametrize("kind", MANY)
@given(flips=flips)
def test_headers_that_are_looked_at_together_are_refused_as_one_by_one(kind: str, flips: list[Flip]) -> None:
    data, metadata = wide_file(kind)
    damaged, group = bytearray(data), metadata.row_group(0)
    for leaf, place, bit in flips:
        at = min(filter(None, [group.column(leaf).dictionary_page_offset, group.column(leaf).data_page_offset]))
        damaged[at + place] ^= 1 << bit
    assert refused(bytes(damaged), metadata, together=True) == refused(bytes(damaged), metadata, together=False)


def refused(data: bytes, metadata: Any, *, together: bool) -> str | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_headers, "_FEWEST_TOGETHER", 2 if together else math.inf)
        try:
            refuse_damaged_pages(
                lambda size, at: data[at : at + size], metadata, range(metadata.num_columns), file=DataFile("", 0),
                ordinal=0,
            )  # fmt: skip
        except DecodeError as problem:
            return str(problem)
    return None
