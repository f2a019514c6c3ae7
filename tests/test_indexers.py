"""Indexers find the row groups of each value, by rows and by columns alike."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.expressions.equality import equality_key
from petastore.indexers import FieldNotNullIndexer, RowGroupIndex, SingleFieldIndexer
from tests.predicates.columns_to_ask import arrays_in_rows, rows_of, scalars


def said(indexer: Any) -> dict[Any, set[int]]:
    return {equality_key(value): indexer.get_row_group_indexes(value) for value in indexer.indexed_values}


@pytest.mark.parametrize("kind", [SingleFieldIndexer, FieldNotNullIndexer])
@given(columns=st.lists(scalars() | arrays_in_rows(), min_size=1, max_size=4))
def test_columns_are_indexed_as_their_rows_are(kind: Any, columns: list[NDArray[Any]]) -> None:
    by_rows, by_columns, added = kind("i", "x"), kind("i", "x"), kind("i", "x")
    for group, column in enumerate(columns):
        rows = rows_of({"x": column})
        by_rows.build_index(rows, group)
        by_columns.build_index_batch({"x": column}, group)
        part = kind("i", "x")
        part.build_index(rows, group)
        added = added + part
    assert said(by_rows) == said(by_columns) == said(added)


def test_each_element_of_an_array_is_indexed_and_missing_values_are_not() -> None:
    indexer = SingleFieldIndexer("by_tag", "tags")
    indexer.build_index([{"tags": np.array(["a", "b"])}, {"tags": None}, {"tags": np.array([["c"]])}], 4)
    indexer.build_index([{"tags": np.array([])}, {"tags": ["a"]}], 5)
    assert said(indexer) == {"a": {4, 5}, "b": {4}, "c": {4}}
    assert indexer.get_row_group_indexes("d") == set()
    numbers = SingleFieldIndexer("by_score", "score")
    numbers.build_index([{"score": float("nan")}, {"score": 0.5}], 0)
    assert said(numbers) == {0.5: {0}}


def test_indexers_of_other_fields_cannot_be_added_up() -> None:
    with pytest.raises(InvalidArgumentError, match="look at other things"):
        SingleFieldIndexer("i", "x") + SingleFieldIndexer("i", "y")
    with pytest.raises(InvalidArgumentError, match="look at other things"):
        FieldNotNullIndexer("i", "x") + SingleFieldIndexer("i", "x")


@pytest.mark.parametrize(("name", "field"), [("", "x"), (7, "x"), ("i", ""), ("i", None)])
def test_names_are_names(name: Any, field: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="is a name"):
        SingleFieldIndexer(name, field)


def test_a_stored_index_looks_values_up_however_they_are_written() -> None:
    index = RowGroupIndex("i", ("x",), [3, np.datetime64("2026-01-31"), "a"], [[0, 2], [1], [2]])
    assert index.get_row_group_indexes(np.float32(3)) == {0, 2}
    assert index.get_row_group_indexes(dt.datetime(2026, 1, 31, tzinfo=dt.UTC)) == {1}
    assert index.get_row_group_indexes("b") == set()
    assert repr(index) == "RowGroupIndex('i' of 'x', 3 values)"
    with pytest.raises(InvalidArgumentError, match="cannot look up"):
        index.get_row_group_indexes([3])


def test_an_index_of_where_there_are_values_has_them_whatever_is_asked() -> None:
    index = RowGroupIndex("i", ("x",), None, [[0, 2]])
    assert index.get_row_group_indexes() == index.get_row_group_indexes("anything") == {0, 2}
    assert len(index.indexed_values) == 1
