"""Rows can be picked from every column that was read, and the values are the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

from petastore.storage.row_groups.layouts import is_pickable, pickable

WORDS = ["a", None, "a word that is longer than twelve bytes", ""]
COLUMNS = {
    "text": pa.array(WORDS, pa.string_view()),
    "bytes": pa.array([None if word is None else word.encode() for word in WORDS], pa.binary_view()),
    "in a list": pa.array([[word, "x"] for word in WORDS], pa.list_(pa.string_view())),
    "in a large list": pa.array([[word, "x"] for word in WORDS], pa.large_list(pa.string_view())),
    "in a fixed list": pa.array([[word, "x"] for word in WORDS], pa.list_(pa.string_view(), 2)),
    "in a struct": pa.array([{"word": word} for word in WORDS], pa.struct({"word": pa.string_view()})),
    "a list view": pa.array([[1], [], None, [2, 3]], pa.list_view(pa.int64())),
    "plain": pa.array([1, 2, None, 4]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_can_be_picked_and_are_the_same(name: str) -> None:
    table = pickable(pa.table({name: COLUMNS[name]}))
    picked = table.column(0).combine_chunks().take(pa.array([3, 0, 2, 1]))
    values = COLUMNS[name].to_pylist()
    assert picked.to_pylist() == [values[row] for row in (3, 0, 2, 1)]


def test_a_table_without_views_is_given_back_as_it_is() -> None:
    table = pa.table({"id": [1], "words": [["a"]]})
    assert pickable(table) is table


def test_views_inside_maps_are_laid_out_too() -> None:
    rows = [[("a", b"x"), ("b", None)], None, []]
    table = pa.table({"x": pa.array(rows, pa.map_(pa.string(), pa.binary_view()))})
    laid = pickable(table)
    assert laid.schema.field("x").type == pa.map_(pa.string(), pa.large_binary())
    assert laid.column("x").to_pylist() == rows
    assert laid.column("x").take([2, 0]).to_pylist() == [rows[2], rows[0]]
    assert is_pickable(pa.map_(pa.string(), pa.binary()))
