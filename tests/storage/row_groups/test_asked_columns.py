"""Columns are found in a file by their names, and their tables are as they were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DecodeError, InvalidArgumentError, SchemaError
from petastore.storage.files.location import open_location
from petastore.storage.footers.footers import Footer, read_footer
from petastore.storage.row_groups.asked_columns import as_asked, check_rows, is_as_asked, leaves_of

TABLE = pa.table(
    {
        "id": [1, 2, 3],
        "point": [{"x": 1, "y": [2.0]}, None, {"x": 3, "y": []}],
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        "word": ["a", "b", None],
    }
)


@pytest.fixture
def footer(tmp_path: Path) -> Footer:
    pq.write_table(TABLE, tmp_path / "x.parquet", row_group_size=2)
    return read_footer(open_location(tmp_path), "x.parquet")


def test_leaves_are_those_of_the_columns_in_the_asked_order(footer: Footer) -> None:
    assert leaves_of(footer, 0, ["id", "point"], 2) == [0, 1, 2]
    assert leaves_of(footer, 1, ["word", "point", "id"], 2) == [4, 1, 2, 0]
    assert leaves_of(footer, 1, [], 2) == []


@pytest.mark.parametrize(
    ("ordinal", "columns", "said"),
    [
        (2, ["id"], r"x\.parquet has 2 row groups, so it has no row group 2"),
        (-1, ["id"], "no row group -1"),
        (0, ["id", "ID"], r"x\.parquet has no column 'ID'; it has 'id', 'point', 'kind', 'word'"),
        (0, ["point.x"], r"no column 'point\.x'"),
        (0, ["id", "word", "id"], r"\['id', 'word', 'id'\] name one column twice"),
    ],
)
def test_what_the_file_lacks_is_refused_each_time(footer: Footer, ordinal: int, columns: list[str], said: str) -> None:
    for _ in range(2):  # what was found is remembered, what was refused is not
        with pytest.raises(InvalidArgumentError, match=said):
            leaves_of(footer, ordinal, columns, 2)


def test_a_column_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1], [2], [3]], names=["odd", "odd", "id"]), tmp_path / "x.parquet")
    footer = read_footer(open_location(tmp_path), "x.parquet")
    assert leaves_of(footer, 0, ["id"], 1) == [2]
    with pytest.raises(SchemaError, match=r"odd.*leave it out with schema_fields"):
        leaves_of(footer, 0, ["odd"], 1)


def as_read(*columns: str, **changes: Any) -> pa.Table:
    """What Arrow reads: with metadata, in chunks, and in any order."""
    table = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 2)]).select(columns)
    fields = [field.with_metadata({"id": "7"}) for field in table.schema]
    return table.cast(pa.schema(fields, {"pandas": "{}"}), **changes)


@pytest.mark.parametrize("columns", [("id",), ("word", "id"), ("point", "word", "id")])
def test_tables_have_the_columns_in_their_order_without_metadata_in_one_chunk(
    footer: Footer, columns: tuple[str, ...]
) -> None:
    for _ in range(2):
        found = as_asked(as_read(*columns[::-1]), footer, 0, columns)
        assert found.equals(TABLE.select(columns).combine_chunks(), check_metadata=True)
        assert {column.num_chunks for column in found.columns} == {1}


def test_many_columns_are_one_chunk_each_too(footer: Footer) -> None:
    names = tuple(f"c{number}" for number in range(20))
    table = pa.table({name: pa.chunked_array([[1], [2]]) for name in names})
    found = as_asked(table, footer, 0, names)
    assert {column.num_chunks for column in found.columns} == {1}


def test_no_columns_have_the_rows_of_the_row_group(footer: Footer) -> None:
    assert [as_asked(TABLE.select([]), footer, ordinal, ()).num_rows for ordinal in (0, 1)] == [2, 1]


def test_indices_outside_their_dictionary_are_damage(footer: Footer) -> None:
    wild = pa.DictionaryArray.from_arrays(pa.array([0, 5]), pa.array(["a"]), safe=False)
    with pytest.raises(DecodeError, match=r"column 'kind', row group 1 in x\.parquet: the data is damaged"):
        as_asked(pa.table({"kind": wild}), footer, 1, ("kind",))


def test_what_is_as_asked_needs_nothing_done_to_it() -> None:
    plain = TABLE.select(["id", "word"]).schema
    assert is_as_asked(plain, ("id", "word"))
    assert is_as_asked(plain.with_metadata({"pandas": "{}"}), ("id", "word"))
    assert not is_as_asked(plain, ("word", "id"))
    assert not is_as_asked(TABLE.select(["kind"]).schema, ("kind",))
    assert not is_as_asked(pa.schema([pa.field("id", pa.int64(), metadata={"a": "b"})]), ("id",))
    assert not is_as_asked(pa.schema([("s", pa.string_view())]), ("s",))


def test_other_rows_than_the_footer_says_are_refused_unless_no_column_was_read(footer: Footer) -> None:
    check_rows(2, footer, 0, ["id"], 2)
    check_rows(0, footer, 0, [], 2)
    with pytest.raises(DecodeError, match="the pages hold 3 rows, but the footer says 2"):
        check_rows(3, footer, 0, ["id"], 2)
