"""Plain pages that are read without Arrow give what Arrow gives, whatever the writer chose; or Arrow is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DecodeError, PetastoreError
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import read_footer
from petastore.storage.pages.data_pages import data_pages
from petastore.storage.pages.headers import PageWindow
from petastore.storage.row_groups import long_lists as long_lists_module
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.long_lists import LongLists, NotPlainError
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.row_group import read_row_group_in_parts
from tests.tier import examples, sized

LONG = 10_000  # numbers of four bytes: more than are left to Arrow


def lists_of(rows: int, kind: Any = None, *, size: int = LONG, distinct: int | None = None) -> pa.FixedSizeListArray:
    """Lists of random numbers; of so many distinct ones, that a dictionary holds."""
    of = pa.float32() if kind is None else kind
    random = np.random.RandomState(rows + size)
    values = random.randint(0, distinct or 2**31 - 1, rows * size).astype(of.to_pandas_dtype())
    return pa.FixedSizeListArray.from_arrays(pa.array(values, of), size)


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14])


def in_parts(folder: Path, at_once: int, ordinal: int = 0, files: OpenFiles | None = None) -> list[pa.Table]:
    location = open_location(str(folder))
    footer = read_footer(location, "x.parquet")
    parts = [Part(("x",), rows_at_once=at_once)]
    footers = FooterCache()
    return list(read_row_group_in_parts(location, footer.file, ordinal, parts, footers=footers, files=files))


def written(folder: Path, array: pa.Array, **options: Any) -> pa.Table:
    table = pa.table({"x": array})
    pq.write_table(table, folder / "x.parquet", **options)
    return table


@contextlib.contextmanager
def long_lists(folder: Path, ordinal: int = 0, *, verify: bool = True) -> Iterator[LongLists | None]:
    """What reads the column, while its file is open."""
    metadata = pq.read_metadata(folder / "x.parquet")
    kind = pq.read_schema(folder / "x.parquet").field("x").type
    with pa.OSFile(str(folder / "x.parquet")) as source:
        yield LongLists.of(source, metadata, ordinal, 0, kind, verify=verify)


def rows_without_arrow(folder: Path, *, verify: bool = True) -> list[int]:
    """Of each row group: how many rows are given without Arrow."""
    counts = [0] * pq.read_metadata(folder / "x.parquet").num_row_groups
    for group in range(len(counts)):
        with long_lists(folder, group, verify=verify) as lists, contextlib.suppress(NotPlainError):
            assert lists is not None
            for array in lists.arrays(lists.first_row, 1):
                counts[group] += len(array)
    return counts


@hypothesis.given(
    rows=st.integers(0, 7),
    size=st.sampled_from([8192, LONG, 12_345]),
    kind=st.sampled_from([pa.float32(), pa.int64(), pa.uint32(), pa.float64()]),
    version=st.sampled_from(["1.0", "2.0"]),
    compression=st.sampled_from(["none", "snappy", "zstd", "gzip", "brotli", "lz4"]),
    distinct=st.sampled_from([None, 200]),
    page=st.sampled_from([1000, 30_000, 1 << 20]),
    checksum=st.booleans(),
    nullable=st.booleans(),
    missing=st.sampled_from([None, "number", "list"]),
    at_once=st.integers(1, 8),
)
@hypothesis.settings(max_examples=examples(150), deadline=None)
def test_what_is_read_is_what_arrow_reads(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    size: int,
    kind: Any,
    version: Any,
    compression: str,
    distinct: int | None,
    page: int,
    checksum: bool,
    nullable: bool,
    missing: str | None,
    at_once: int,
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    numbers = lists_of(rows, kind, size=size, distinct=distinct).values
    if missing == "number" and rows:
        numbers = pa.array(np.ma.masked_array(numbers.to_numpy(), np.arange(len(numbers)) == len(numbers) - 7))
    item = pa.field("element", kind, nullable=nullable or missing is not None)
    array = pa.FixedSizeListArray.from_arrays(numbers, type=pa.list_(item, size))
    if missing == "list" and rows:
        array = pa.array([*array.to_pylist()[:-1], None], array.type)
    options: Any = {"data_page_version": version, "compression": compression, "data_page_size": page}
    expected = written(folder, array, row_group_size=4, write_page_checksum=checksum, **options)
    with_files = OpenFiles()
    for group in range(pq.read_metadata(folder / "x.parquet").num_row_groups):
        for files in (None, with_files, with_files):
            tables = in_parts(folder, at_once, group, files)
            assert [table.num_rows for table in tables[:-1]] == [at_once] * (len(tables) - 1)
            found = pa.concat_tables(tables)
            assert found.equals(expected.slice(group * 4, 4))
            found.validate(full=True)
    with_files.close()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "brotli"])
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("page", [1000, 30_000, 1 << 20])
def test_plain_pages_are_read_without_arrow(
    tmp_path: Path, version: Any, compression: str, checksum: bool, page: int
) -> None:
    options: Any = {"data_page_version": version, "compression": compression, "data_page_size": page}
    written(tmp_path, lists_of(9), use_dictionary=False, row_group_size=4, write_page_checksum=checksum, **options)
    assert rows_without_arrow(tmp_path, verify=True) == [4, 4, 1]
    assert rows_without_arrow(tmp_path, verify=False) == [4, 4, 1]


def test_rows_after_those_of_a_dictionary_are_read_without_arrow(tmp_path: Path) -> None:
    written(tmp_path, lists_of(40), dictionary_pagesize_limit=1 << 17)
    (without,) = rows_without_arrow(tmp_path)
    assert 30 < without < 40


def test_numbers_in_a_dictionary_alone_are_arrows(tmp_path: Path) -> None:
    written(tmp_path, lists_of(9, distinct=100))
    assert rows_without_arrow(tmp_path) == [0]


def test_tensors_are_read_without_arrow(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), [100, 100], permutation=[1, 0])
    tensors = pa.ExtensionArray.from_storage(kind, lists_of(5))
    expected = written(tmp_path, tensors, use_dictionary=False)
    assert rows_without_arrow(tmp_path) == [5]
    assert pa.concat_tables(in_parts(tmp_path, 2)).equals(expected)


def test_where_a_number_is_missing_the_rows_from_there_on_are_arrows(tmp_path: Path) -> None:
    values = np.ma.masked_array(np.arange(5 * LONG, dtype=np.float32), np.arange(5 * LONG) == 3 * LONG + 1)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values), LONG)
    written(tmp_path, lists, use_dictionary=False, data_page_size=1000)
    assert rows_without_arrow(tmp_path) == [3]


@pytest.mark.parametrize(
    "array",
    [
        lists_of(3, size=100),
        lists_of(3, pa.int16(), size=40_000),
        pa.array([[True] * 400_000], pa.list_(pa.bool_(), 400_000)),
    ],
    ids=["short", "narrower than they are stored", "truths"],
)
def test_other_columns_are_arrows(tmp_path: Path, array: pa.Array) -> None:
    written(tmp_path, array)
    with long_lists(tmp_path) as lists:
        assert lists is None


def test_a_bit_that_flips_is_found_by_the_checksum_and_told_by_arrow(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    written(tmp_path, lists_of(3), use_dictionary=False, compression="none", write_page_checksum=True)
    data, right = bytearray(path.read_bytes()), pq.read_table(path)
    random = np.random.RandomState(0)
    for place in [*range(4, 200), *random.randint(200, 3 * 4 * LONG, 60).tolist()][:: sized(full=1, quick=4)]:
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(random.randint(8))
        path.write_bytes(flipped)
        try:
            found = pa.concat_tables(in_parts(tmp_path, 1))
        except PetastoreError:
            continue
        assert found.equals(right), place  # of a header: what nobody reads
    path.write_bytes(bytes(data[:5000]) + bytes([data[5000] ^ 1]) + bytes(data[5001:]))
    assert rows_without_arrow(tmp_path) == [0]
    with pytest.raises(DecodeError, match="checksum"):
        in_parts(tmp_path, 1)


def test_a_page_that_says_that_it_becomes_huge_is_left_to_arrow(tmp_path: Path) -> None:
    written(tmp_path, lists_of(3), use_dictionary=False, compression="zstd")
    assert rows_without_arrow(tmp_path) == [3]
    path = tmp_path / "x.parquet"
    data, column = path.read_bytes(), pq.read_metadata(path).row_group(0).column(0)
    (page,) = data_pages(PageWindow(lambda size, at: data[at : at + size]), column)
    said = data.index(varint(2 * page.unpacked), column.data_page_offset)
    path.write_bytes(data[:said] + varint(2 * (page.unpacked | 1 << 19)) + data[said + 3 :])
    with long_lists(tmp_path) as lists:
        assert lists is not None
        with pytest.raises(NotPlainError, match="is said to have"):
            next(lists.arrays(0, 1))


def test_long_levels_are_checked_and_not_remembered(tmp_path: Path) -> None:
    """Of a page of many lists, where each takes a few bytes of them."""
    table = written(tmp_path, lists_of(600), data_page_size=2**25, use_dictionary=False, compression="none")
    before = long_lists_module._refuse_levels.cache_info()
    assert pa.concat_tables(in_parts(tmp_path, 100)).equals(table)
    assert long_lists_module._refuse_levels.cache_info() == before
