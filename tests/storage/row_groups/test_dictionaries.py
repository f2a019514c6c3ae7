"""Tests of dictionary-encoded text: a long value that many rows share raises before it is copied for each row."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import petastore
from petastore.errors import DecodeError
from petastore.storage.files.location import open_location
from petastore.storage.footers.chunk_metadata import ChunkContents
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import read_footer
from petastore.storage.row_groups import asked_columns, row_group
from petastore.storage.row_groups.asked_columns import Part, copied_bytes
from petastore.storage.row_groups.row_group import read_row_group_in_parts
from tests import bombs
from tests.tier import examples

MIB = 1024 * 1024

READ = """
from petastore import make_reader
options = eval(sys.argv[2])
with make_reader(sys.argv[1], ["id"]) as reader:
    list(reader)
begin()
try:
    with make_reader(sys.argv[1], workers_count=2, **options) as reader:
        list(reader.iter_batches(10))
except ValueError as problem:
    print(problem)
print(growth())
"""


def written(folder: Path, values: Any, **options: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": np.arange(len(values)), "s": values})
    pq.write_table(table, folder / "part-0.parquet", compression="zstd", store_schema=False, **options)
    return str(folder)


def without_sizes(folder: Path) -> None:
    """Remove size statistics from a footer, as in files of earlier writers.

    In ColumnMetaData, size statistics follow page encodings, three field numbers later, and begin with a number.
    """
    path = folder / "part-0.parquet"
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    assert b"\x3c\x16" in footer
    path.write_bytes(data[: -8 - length] + footer.replace(b"\x3c\x16", b"\x7c\x16") + data[-8:])
    assert all(chunk.copied_bytes is None for group in dictionaries_of(path) for chunk in group.values())


def dictionaries_of(path: Path) -> list[dict[int, ChunkContents]]:
    return read_footer(open_location(path.parent), path.name).dictionaries


def long_texts(rows: int) -> Any:
    """Return this many rows that refer to one text of a mebibyte."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * MIB]))


@pytest.mark.parametrize("says_sizes", [True, False])
@pytest.mark.parametrize("kind", ["text", "list"])
@pytest.mark.parametrize("options", [{}, {"memory_budget": 100_000_000}])
def test_dictionary_column_expanding_beyond_limit_raises_before_allocating(
    tmp_path: Path, kind: str, options: dict[str, Any], says_sizes: bool
) -> None:
    values = long_texts(3000)
    if kind == "list":
        values = pa.ListArray.from_arrays(pa.array(np.arange(0, 3001, 3), pa.int32()), values)
    url = written(tmp_path, values)
    if not says_sizes:
        without_sizes(tmp_path)
    grew, said = bombs.grown_by(READ, url, repr(options))
    assert re.search(r"bytes of memory \(.*\), got 3,145,728,000", said)
    assert "'s', row group 0 in part-0.parquet" in said
    assert grew < 80 * MIB


def test_memory_budget_limits_the_expanded_size_of_dictionary_columns(tmp_path: Path) -> None:
    url = written(tmp_path, long_texts(120))
    refused = pytest.raises(DecodeError, match=r"at most 25,000,000 bytes of memory .*, got 125,829,120")
    with petastore.make_reader(url, workers_count=1, memory_budget=10**8) as reader, refused:
        list(reader.iter_batches(1))
    with petastore.make_reader(url) as reader:
        assert sum(len(row.s) for row in reader) == 125_829_120


TEXTS = st.lists(st.none() | st.sampled_from(["", "a", "äöü" * 20, "x" * 3000]), min_size=1, max_size=300)


@settings(deadline=None, max_examples=examples(25))
@given(texts=TEXTS, rows_at_once=st.none() | st.integers(1, 50), as_bytes=st.booleans(), says_sizes=st.booleans())
def test_column_raises_when_its_rows_exceed_the_limit(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str | None],
    rows_at_once: int | None,
    as_bytes: bool,
    says_sizes: bool,
) -> None:
    values = pa.array(texts, pa.string())
    values = values.cast(pa.binary()) if as_bytes else values
    folder = tmp_path_factory.mktemp("texts")
    location = open_location(written(folder, values, row_group_size=len(texts)))
    if not says_sizes:
        without_sizes(folder)
    file = read_footer(location, "part-0.parquet").file

    def read(most: int) -> pa.Table:
        part = Part(("s",), rows_at_once, most_bytes=most)
        tables = read_row_group_in_parts(location, file, 0, [part], footers=FooterCache())
        return pa.concat_tables(list(tables)).combine_chunks()

    size = copied_bytes(pa.chunked_array([values.dictionary_encode()]))
    assert read(size).equals(read(asked_columns.MOST_BYTES))
    if size:
        with pytest.raises(DecodeError, match=f"at most {size - 1:,} bytes of memory .*, got {size:,}"):
            read(size - 1)


@pytest.mark.parametrize("values", [["a", "bc", "bc"] * 1000, ["bc"] * 3000, [["a", "bc"], ["bc"]] * 1000])
def test_column_size_is_checked_by_its_dictionary_at_most_once(
    tmp_path: Path, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    location = open_location(written(tmp_path, values))
    checked: list[str] = []
    check = asked_columns.check_copies

    def noted(*arguments: Any) -> None:
        checked.append(arguments[3])
        check(*arguments)

    monkeypatch.setattr(row_group, "check_copies", noted)

    def read() -> list[str]:
        checked.clear()
        file, footers = read_footer(location, "part-0.parquet").file, FooterCache()
        for _ in range(3):
            parts = [Part(("s",), most_bytes=9000)]
            (table,) = read_row_group_in_parts(location, file, 0, parts, footers=footers)
            assert table.column("s").to_pylist() == values
        return checked

    assert read() == []
    without_sizes(tmp_path)
    assert read() == ["s"]


def test_column_with_pages_without_a_dictionary_is_measured_to_the_end() -> None:
    column = pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b" * 50] * 3).dictionary_encode()])

    class Reader:
        """A reader that returns rows in Arrow's form for such a page: each has its own dictionary."""

        def iter_batches(self, rows: int, **_: Any) -> Any:
            return iter(pa.table({"s": column.slice(0, rows)}).to_batches())

        def read_row_group(self, _: int, **__: Any) -> pa.Table:
            return pa.table({"s": column})

    footer: Any = SimpleNamespace(copied_bytes={})
    asked_columns.check_copies(Reader(), footer, 0, "s", [1], most=200)
    assert footer.copied_bytes == {(0, "s"): 1 + 3 * 50}


def test_measuring_a_dictionary_column_with_an_index_out_of_range_raises() -> None:
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int32()), pa.array(["a"]), safe=False)
    with pytest.raises(DecodeError, match="damaged"):
        copied_bytes(pa.chunked_array([wrong]))


def test_expanded_size_counts_dictionary_text_in_all_nested_columns() -> None:
    texts = pa.array(["ab", "c", "ab", "ab"]).dictionary_encode()
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 4], pa.int32()), texts)
    structs = pa.StructArray.from_arrays([lists, pa.array(["xyz", "xyz"]).dictionary_encode()], ["l", "t"])
    assert copied_bytes(pa.chunked_array([structs])) == 2 + 1 + 2 + 2 + 6
    assert asked_columns.MOST_BYTES == 1024 * MIB
