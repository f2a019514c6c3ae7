"""Rows are named tuples whose columns may have any name."""

from __future__ import annotations

import copy
import pickle

import pytest

from petastore.schema.row import row_type

ROW = row_type("user", ("id", "a-b", "class", "_private", "count", "index"))(1, 2, 3, 4, 5, 6)


def test_every_column_is_reached_by_its_true_name() -> None:
    assert [ROW["id"], ROW["a-b"], ROW["class"], ROW["_private"], ROW["count"], ROW["index"]] == [1, 2, 3, 4, 5, 6]
    assert ROW._asdict() == {"id": 1, "a-b": 2, "class": 3, "_private": 4, "count": 5, "index": 6}
    assert (ROW.id, ROW.count, ROW.index, ROW[1], ROW[-1], ROW[:2]) == (1, 5, 6, 2, 6, (1, 2))
    assert tuple(ROW) == (1, 2, 3, 4, 5, 6)


def test_an_unknown_column_is_a_key_error_that_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match="a-b"):
        ROW["nobody"]


def test_equal_arguments_give_the_same_type() -> None:
    assert row_type("user", ("id",)) is row_type("user", ("id",))


def test_rows_survive_pickle_and_copy() -> None:
    for again in (pickle.loads(pickle.dumps(ROW)), copy.deepcopy(ROW)):  # noqa: S301 - our own bytes
        assert again == ROW
        assert type(again) is type(ROW)


def test_a_row_is_replaced_and_unpacked_as_a_named_tuple() -> None:
    first, *rest = ROW
    assert (first, rest) == (1, [2, 3, 4, 5, 6])
    assert ROW._replace(id=9).id == 9
