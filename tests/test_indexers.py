"""Tests of indexers: they find the row groups of each value, from rows and from columns alike."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.expressions.literal import equality_key
from petastore.indexers import FieldNotNullIndexer, RowGroupIndex, SingleFieldIndexer
from tests.predicates.columns_to_ask import arrays_in_rows, rows_of, scalars


def said(indexer: Any) -> dict[Any, set[int]]:
    return {equality_key(value): indexer.get_row_group_indexes(value) for value in indexer.indexed_values}


@pytest.mark.parametrize("kind", [SingleFieldIndexer, FieldNotNullIndexer])
@given(columns=st.lists(scalars() | arrays_in_rows(), min_size=1, max_size=4))
def test_build_index_batch_equals_build_index(kind: Any, columns: list[NDArray[Any]]) -> None:
    by_rows, by_columns, added = kind("i", "x"), kind("i", "x"), kind("i", "x")
    for group, column in enumerate(columns):
        rows = rows_of({"x": column})
        by_rows.build_index(rows, group)
        by_columns.build_index_batch({"x": column}, group)
        part = kind("i", "x")
        part.build_index(rows, group)
        added = added + part
    assert said(by_rows) == said(by_columns) == said(added)


def test_indexer_indexes_array_elements_and_skips_nulls() -> None:
    indexer = SingleFieldIndexer("by_tag", "tags")
    indexer.build_index([{"tags": np.array(["a", "b"])}, {"tags": None}, {"tags": np.array([["c"]])}], 4)
    indexer.build_index([{"tags": np.array([])}, {"tags": ["a"]}], 5)
    assert said(indexer) == {"a": {4, 5}, "b": {4}, "c": {4}}
    assert indexer.get_row_group_indexes("d") == set()
    numbers = SingleFieldIndexer("by_score", "score")
    numbers.build_index([{"score": float("nan")}, {"score": 0.5}], 0)
    assert said(numbers) == {0.5: {0}}


def test_indexers_of_different_fields_cannot_be_merged() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"^other must be a SingleFieldIndexer of field 'x', got .*'i', 'y'\)$"
    ):
        SingleFieldIndexer("i", "x") + SingleFieldIndexer("i", "y")
    with pytest.raises(InvalidArgumentError, match=r"^other must be a FieldNotNullIndexer of field 'x', got Single"):
        FieldNotNullIndexer("i", "x") + SingleFieldIndexer("i", "x")


@pytest.mark.parametrize(("name", "field"), [("", "x"), (7, "x"), ("i", ""), ("i", None)])
def test_indexer_names_must_be_text(name: Any, field: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a non-empty str"):
        SingleFieldIndexer(name, field)


def test_stored_index_finds_equal_values_of_any_type() -> None:
    index = RowGroupIndex("i", ("x",), [3, np.datetime64("2026-01-31"), "a"], [[0, 2], [1], [2]])
    assert index.get_row_group_indexes(np.float32(3)) == {0, 2}
    assert index.get_row_group_indexes(dt.datetime(2026, 1, 31, tzinfo=dt.UTC)) == {1}
    assert index.get_row_group_indexes("b") == set()
    assert repr(index) == "RowGroupIndex('i' of 'x', 3 values)"
    with pytest.raises(InvalidArgumentError, match="must be hashable to be looked up"):
        index.get_row_group_indexes([3])


def test_not_null_index_returns_row_groups_for_any_value() -> None:
    index = RowGroupIndex("i", ("x",), None, [[0, 2]])
    assert index.get_row_group_indexes() == index.get_row_group_indexes("anything") == {0, 2}
    assert len(index.indexed_values) == 1
