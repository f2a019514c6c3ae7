"""Tests of column selection in a file: by name, in the requested order, with checks of types and row counts."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.errors import DecodeError, InvalidArgumentError, SchemaError
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footers import read_footer
from petastore.storage.row_groups.asked_columns import check_rows, leaves_of, pickable
from petastore.storage.row_groups.row_group import as_asked, is_as_asked

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


def test_leaf_columns_are_in_the_order_of_requested_columns(footer: Footer) -> None:
    assert leaves_of(footer, 0, ["id", "point"], 2) == [0, 1, 2]
    assert leaves_of(footer, 1, ["word", "point", "id"], 2) == [4, 1, 2, 0]
    assert leaves_of(footer, 1, [], 2) == []
    assert leaves_of(footer, 1, ["point.y", "point"], 2) == [2, 1]


@pytest.mark.parametrize(
    ("ordinal", "columns", "said"),
    [
        (2, ["id"], r"row group must be below 2, the number of row groups in x\.parquet, got 2"),
        (-1, ["id"], r"row group must be below 2, the number of row groups in x\.parquet, got -1"),
        (0, ["id", "ID"], r"columns must be columns of x\.parquet \('id', 'point', 'kind', 'word'\), got 'ID'"),
        (0, ["point.q"], r"columns must be columns of x\.parquet \('id', 'point', 'kind', 'word'\), got 'point\.q'"),
        (0, ["id", "word", "id"], r"columns must be distinct, got \['id', 'word', 'id'\]"),
    ],
)
def test_unknown_column_raises_on_each_request(footer: Footer, ordinal: int, columns: list[str], said: str) -> None:
    for _ in range(2):  # only successful lookups are cached
        with pytest.raises(InvalidArgumentError, match=said):
            leaves_of(footer, ordinal, columns, 2)


def test_unreadable_column_raises_only_if_requested(footer: Footer) -> None:
    columns = dataclasses.replace(
        footer.columns,
        leaves={name: leaves for name, leaves in footer.leaves.items() if name != "word"},
        unreadable={"word": "column 'word' is encrypted"},
        leaves_of={},
    )
    footer = footer.unified(columns)
    assert leaves_of(footer, 0, ["id"], 1) == [0]
    with pytest.raises(SchemaError, match=r"'word'.*Leave it out with schema_fields"):
        leaves_of(footer, 0, ["word"], 1)


def test_columns_of_equal_names_are_distinguished_in_any_order(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([{"q": 2}]), pa.array([3])], names=["odd", "point", "odd"])
    pq.write_table(table, tmp_path / "x.parquet")
    footer = read_footer(open_location(tmp_path), "x.parquet")
    values = {"odd": 1, "odd_1": 3, "point.q": 2}
    for columns in itertools.permutations(values):
        for count in (1, 2, 3):
            asked = columns[:count]
            leaves = leaves_of(footer, 0, asked, 1)
            read = pq.ParquetFile(tmp_path / "x.parquet").reader.read_row_group(0, column_indices=leaves)
            assert as_asked(read, footer, 0, asked).to_pylist() == [{name: values[name] for name in asked}]


def as_read(*columns: str, **changes: Any) -> pa.Table:
    """Return a table in the form of Arrow's reads: with metadata, in chunks, and in any order."""
    table = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 2)]).select(columns)
    fields = [field.with_metadata({"id": "7"}) for field in table.schema]
    return table.cast(pa.schema(fields, {"pandas": "{}"}), **changes)


@pytest.mark.parametrize("columns", [("id",), ("word", "id"), ("point", "word", "id")])
def test_table_has_requested_columns_in_one_chunk(footer: Footer, columns: tuple[str, ...]) -> None:
    for _ in range(2):
        found = as_asked(as_read(*columns[::-1]), footer, 0, columns)
        assert found.equals(TABLE.select(columns).combine_chunks(), check_metadata=True)
        assert {column.num_chunks for column in found.columns} == {1}


def test_table_of_many_columns_has_one_chunk_each(footer: Footer) -> None:
    names = tuple(f"c{number}" for number in range(20))
    table = pa.table({name: pa.chunked_array([[1], [2]]) for name in names})
    found = as_asked(table, footer, 0, names)
    assert {column.num_chunks for column in found.columns} == {1}


def test_table_without_columns_has_the_row_count(footer: Footer) -> None:
    assert [as_asked(TABLE.select([]), footer, ordinal, ()).num_rows for ordinal in (0, 1)] == [2, 1]


def test_dictionary_index_out_of_range_raises(footer: Footer) -> None:
    wild = pa.DictionaryArray.from_arrays(pa.array([0, 5]), pa.array(["a"]), safe=False)
    with pytest.raises(DecodeError, match=r"column 'kind', row group 1 in x\.parquet: the data is damaged"):
        as_asked(pa.table({"kind": wild}), footer, 1, ("kind",))


def test_table_with_the_requested_columns_and_types_is_used_as_it_is() -> None:
    plain = TABLE.select(["id", "word"]).schema
    assert is_as_asked(plain, ("id", "word"))
    assert is_as_asked(plain.with_metadata({"pandas": "{}"}), ("id", "word"))
    assert not is_as_asked(plain, ("word", "id"))
    assert not is_as_asked(TABLE.select(["kind"]).schema, ("kind",))
    assert not is_as_asked(pa.schema([pa.field("id", pa.int64(), metadata={"a": "b"})]), ("id",))
    assert not is_as_asked(pa.schema([("s", pa.string_view())]), ("s",))


def test_row_count_that_differs_from_the_footer_raises(footer: Footer) -> None:
    check_rows(2, footer, 0, ["id"], 2)
    check_rows(0, footer, 0, [], 2)
    with pytest.raises(DecodeError, match="the pages must have 2 rows, as the footer declares, got 3"):
        check_rows(3, footer, 0, ["id"], 2)


def test_string_views_are_converted_next_to_null_structs() -> None:
    kind = pa.struct([pa.field("a", pa.struct([pa.field("b", pa.bool_(), nullable=False)]), nullable=False)])
    table = pa.table(
        {"words": pa.array(["w", None], pa.string_view()), "s": pa.array([{"a": {"b": True}}, None], kind)}
    )
    found = pickable(table)
    assert found.schema.types == [pa.large_string(), kind]
    assert found.to_pylist() == table.to_pylist()
