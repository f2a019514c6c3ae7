"""Tests of rows as named tuples with arbitrary column names."""

from __future__ import annotations

import copy
import pickle

import pytest

from petastore.schema.unischema import row_type

ROW = row_type("user", ("id", "a-b", "class", "_private", "count", "index"))(1, 2, 3, 4, 5, 6)


def test_row_columns_are_accessible_by_name() -> None:
    assert [ROW["id"], ROW["a-b"], ROW["class"], ROW["_private"], ROW["count"], ROW["index"]] == [1, 2, 3, 4, 5, 6]
    assert ROW._asdict() == {"id": 1, "a-b": 2, "class": 3, "_private": 4, "count": 5, "index": 6}
    assert (ROW.id, ROW.count, ROW.index, ROW[1], ROW[-1], ROW[:2]) == (1, 5, 6, 2, 6, (1, 2))
    assert tuple(ROW) == (1, 2, 3, 4, 5, 6)


def test_unknown_row_column_raises_key_error() -> None:
    with pytest.raises(KeyError, match="a-b"):
        ROW["nobody"]


def test_row_type_is_cached() -> None:
    assert row_type("user", ("id",)) is row_type("user", ("id",))


def test_rows_can_be_pickled_and_copied() -> None:
    for again in (pickle.loads(pickle.dumps(ROW)), copy.deepcopy(ROW)):  # noqa: S301 - our own bytes
        assert again == ROW
        assert type(again) is type(ROW)


def test_row_behaves_like_a_named_tuple() -> None:
    first, *rest = ROW
    assert (first, rest) == (1, [2, 3, 4, 5, 6])
    assert ROW._replace(id=9).id == 9
