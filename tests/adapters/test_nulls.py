"""Tests of the `nulls=` option: fill values and masks by column, and errors for values that do not fit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.adapters.nulls import Fill, nulls_of
from petastore.errors import InvalidArgumentError
from tests.adapters import nullable

FIELDS = list(nullable.SCHEMA)


def test_nulls_error_fills_no_columns() -> None:
    assert nulls_of("error", FIELDS) == {}
    assert list(nulls_of({"age": 7, "name": "error"}, FIELDS)) == ["age"]


def test_nulls_mask_as_text_applies_to_all_nullable_columns() -> None:
    made = nulls_of("mask", FIELDS)
    assert list(made) == nullable.NULLABLE
    assert [null.mask for null in made.values()] == [f"{name}_valid" for name in nullable.NULLABLE]


def test_nulls_mask_is_allowed_for_non_nullable_columns() -> None:
    null = nulls_of({"id": "mask"}, FIELDS)["id"]
    assert null.valid(np.arange(3)).tolist() == [True] * 3
    column = np.arange(3)
    assert null.filled(column) is column


@given(st.lists(st.tuples(st.integers(-100, 100), st.booleans()), max_size=20), st.integers(-(2**31), 2**31 - 1))
def test_fill_value_replaces_only_missing_numbers(cells: list[tuple[int, bool]], fill: int) -> None:
    data = np.array([number for number, _ in cells], np.int32)
    gone = np.array([missing for _, missing in cells], np.bool_)
    null = nulls_of({"x": fill}, [UnischemaField("x", "int32")])["x"]
    filled = null.filled(np.ma.MaskedArray(data, gone))
    assert filled.tolist() == [fill if missing else number for number, missing in cells]
    assert filled.dtype == np.int32
    assert null.valid(np.ma.MaskedArray(data, gone)).tolist() == (~gone).tolist()
    objects = np.array([None if missing else str(number) for number, missing in cells], dtype=object)
    null = nulls_of({"x": Fill(str(fill))}, [UnischemaField("x", str)])["x"]
    assert null.filled(objects).tolist() == [str(fill) if missing else str(number) for number, missing in cells]
    assert null.valid(objects).tolist() == (~gone).tolist()


def test_nulls_mask_covers_rows_of_windows() -> None:
    pose = nulls_of("mask", [UnischemaField("pose", "int8", (3, 2), nullable=True)], are_windows=True)["pose"]
    gone = np.array([[True, False, False], [False, True, True]])
    column = np.ma.MaskedArray(np.ones((2, 3, 2), np.int8), np.broadcast_to(gone[:, :, None], (2, 3, 2)))
    assert pose.filled(column).tolist() == np.where(gone[:, :, None], 0, np.ones((2, 3, 2))).tolist()
    assert pose.valid(column).tolist() == (~gone).tolist()
    name = nulls_of("mask", [UnischemaField("name", str, (3,), nullable=True)], are_windows=True)["name"]
    texts = np.array([["a", None, "c"], [None, None, "f"]], dtype=object)
    assert [window.tolist() for window in name.filled(texts)] == [["a", "", "c"], ["", "", "f"]]
    assert name.valid(texts).tolist() == [[True, False, True], [False, False, True]]
    assert texts[0].tolist() == ["a", None, "c"]
    assert name.valid(texts[:0]).shape == (0, 3)


REFUSED: dict[str, tuple[Any, str]] = {
    "a column that there is not": (
        {"size": 1},
        r"nulls must name nullable columns of the reader \('id', 'age', 'height', 'alive', 'at', 'name',",
    ),
    "text for numbers": ({"age": "old"}, r"'age' \(int64\) can hold, got 'old'"),
    "a fraction for integers": ({"never": 1.5}, r"\(int8\) can hold"),
    "NaN for integers": ({"age": float("nan")}, r"\(int64\) can hold"),
    "too much": ({"never": 128}, r"\(int8\) can hold"),
    "None": ({"age": None}, r"\(int64\) can hold"),
    "a number for text": ({"name": 0}, r"\(str\) can hold"),
    "a float for money": ({"price": 0.5}, r"\(decimal\) can hold"),
    "another shape": ({"pose": [1, 2, 3]}, r"\(float32\[2\]\) can hold"),
    "one row for arrays of free shape": ({"track": [0, 0]}, r"\(int16\[None, 2\]\) can hold"),
    "numbers for all": (0, "nulls={'name': …}"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_fill_value_that_the_column_cannot_hold_raises_with_its_name(case: str) -> None:
    nulls, message = REFUSED[case]
    with pytest.raises(InvalidArgumentError, match=message):
        nulls_of(nulls, FIELDS)


@pytest.mark.parametrize("nulls", ["masked", "", "err", {"name": "Mask"}])
def test_nulls_raises_for_unknown_text(nulls: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="nulls must be 'error', 'mask' or a value for 'name', got"):
        nulls_of(nulls, [UnischemaField("name", str, nullable=True)])
    assert nulls_of(Fill("mask"), [UnischemaField("name", str, nullable=True)])["name"].value == "mask"


@pytest.mark.parametrize("value", [0, b"", Fill(0)])
def test_nulls_raises_for_fill_values_of_another_type(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'name' \(str\) can hold"):
        nulls_of({"name": value}, [UnischemaField("name", str, nullable=True)])


def test_nulls_mask_raises_when_its_column_name_exists() -> None:
    fields = [UnischemaField("age", "int64", nullable=True), UnischemaField("age_valid", "bool")]
    with pytest.raises(
        InvalidArgumentError,
        match=r"the name 'age_valid' must be free, because nulls='mask' adds a column of this name for 'age'",
    ):
        nulls_of("mask", fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("height", float("nan")),
        ("height", 1),
        ("height", Fill(1)),
        ("name", Fill("mask")),
        ("at", np.datetime64("2020-01-01")),
        ("price", Decimal(1)),
        ("raw", b"x"),
        ("pose", [1, 2]),
        ("pose", -1),
        ("track", np.ones((1, 2), np.int16)),
        ("alive", True),
    ],
)
def test_fill_value_is_cast_to_the_columns_type(name: str, value: Any) -> None:
    null = nulls_of({name: value}, FIELDS)[name]
    field = nullable.SCHEMA[name]
    if field.dtype == np.dtype(object) or None in field.shape:
        column = np.array([None], dtype=object)
        np.testing.assert_array_equal(null.filled(column)[0], value.value if isinstance(value, Fill) else value)
    else:
        shape = (1, *(size or 0 for size in field.shape))
        filled = null.filled(np.ma.MaskedArray(np.zeros(shape, field.dtype), mask=True))
        assert (filled.shape, filled.dtype) == (shape, field.dtype)
        value = value.value if isinstance(value, Fill) else value
        np.testing.assert_array_equal(filled[0], np.broadcast_to(np.asarray(value, field.dtype), shape[1:]))
