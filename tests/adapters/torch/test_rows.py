"""Tests of rows as dicts for `collate_fn`: default_collate and decimal_friendly_collate equal whole columns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from petastore.adapters.torch import DataLoader
from petastore.adapters.torch.rows import decimal_friendly_collate
from petastore.errors import DecodeError
from tests.adapters.torch.in_memory import SAME_DTYPE, ReaderInMemory, objects


def test_collate_fn_receives_rows_as_dicts() -> None:
    seen: list[list[dict[str, Any]]] = []
    columns = {
        "id": np.arange(3, dtype=np.uint16),
        "xy": np.arange(6.0).reshape(3, 2),
        "at": np.array([1, 2, 3], dtype="datetime64[us]"),
        "age": np.ma.MaskedArray([7, 8, 9], mask=[False, True, False]),
        "name": objects("a", None, "c"),
        "free": objects(np.zeros(1), np.zeros((2,), "uint32"), None),
    }

    def collate(rows: list[dict[str, Any]]) -> int:
        seen.append(rows)
        return len(rows)

    loader = DataLoader(ReaderInMemory(columns), 2, collate)
    assert loader.collate_fn is collate
    assert list(loader) == [2, 1]
    rows = [row for batch in seen for row in batch]
    assert [row["id"] for row in rows] == [0, 1, 2]
    assert rows[0]["id"].dtype == np.int32
    assert [row["xy"].tolist() for row in rows] == [[0, 1], [2, 3], [4, 5]]
    assert [row["at"] for row in rows] == [1000, 2000, 3000]
    assert [row["age"] for row in rows] == [7, None, 9]
    assert [row["name"] for row in rows] == ["a", None, "c"]
    assert rows[1]["free"].dtype == np.int64
    assert rows[2]["free"] is None


def test_default_collate_of_rows_equals_collating_whole_columns() -> None:
    columns: dict[str, NDArray[Any]] = {name: np.arange(6).astype(name).reshape(3, 2) for name in SAME_DTYPE}
    columns |= {"u2": np.arange(3, dtype="u2"), "at": np.arange(3).astype("datetime64[s]"), "t": objects("a", "b", "c")}
    columns |= {
        "scalar": np.arange(3, dtype="f4"),
        "flag": np.array([True, False, True]),
        "d": objects(*map(Decimal, "123")),
    }
    columns |= {"free": objects(np.zeros(1), np.ones(2), np.zeros(0))}
    (by_columns,) = DataLoader(ReaderInMemory(columns), 3)
    (by_rows,) = DataLoader(ReaderInMemory(columns), 3, lambda rows: decimal_friendly_collate(rows))
    assert list(by_columns) == list(by_rows)
    for name, whole in by_columns.items():
        if isinstance(whole, torch.Tensor):
            assert whole.dtype is by_rows[name].dtype
            assert torch.equal(whole, by_rows[name])
        elif name == "free":
            assert all(map(torch.equal, whole, by_rows[name]))
        else:
            assert whole == by_rows[name]


def test_decimal_friendly_collate_names_the_column_of_a_missing_value() -> None:
    loader = DataLoader(
        ReaderInMemory({"age": np.ma.MaskedArray([1, 2], mask=[False, True])}),
        2,
        lambda rows: decimal_friendly_collate(rows),
    )
    with pytest.raises(DecodeError, match=r"column 'age': nulls= must be set .* 1 of 2 values missing\."):
        list(loader)


def test_decimal_friendly_collate_accepts_nested_rows() -> None:
    rows = [{0: {"id": np.int32(i)}, 1: {"t": "x"}} for i in range(2)]
    collated = decimal_friendly_collate(rows)
    assert collated[0]["id"].tolist() == [0, 1]
    assert collated[1] == {"t": ["x", "x"]}


def test_decimal_friendly_collate_as_collate_fn_converts_whole_columns() -> None:
    column = np.arange(3)
    (batch,) = DataLoader(ReaderInMemory({"id": column}), 3, decimal_friendly_collate)
    assert batch["id"].data_ptr() == column.ctypes.data


def test_decimal_friendly_collate_collates_tuples_by_item() -> None:
    class Pair(NamedTuple):
        number: Any
        price: Any

    rows = [(np.int32(1), Decimal("1.5")), (np.int32(2), Decimal(2))]
    numbers, prices = decimal_friendly_collate(rows)
    assert (numbers.tolist(), prices) == ([1, 2], (Decimal("1.5"), Decimal(2)))
    named = decimal_friendly_collate([Pair(*row) for row in rows])
    assert (type(named), named.number.tolist(), named.price) == (Pair, [1, 2], prices)


def test_decimal_friendly_collate_collates_lists_by_item() -> None:
    numbers, prices, words = decimal_friendly_collate([[1, Decimal(1), ["a"]], [2, Decimal(2), ["b", "c"]]])
    assert (numbers.tolist(), prices, words) == ([1, 2], (Decimal(1), Decimal(2)), (["a"], ["b", "c"]))
    assert decimal_friendly_collate([{"words": ["a"]}, {"words": ["b", "c"]}]) == {"words": [["a"], ["b", "c"]]}
