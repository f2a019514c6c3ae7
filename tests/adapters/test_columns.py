"""Tests of column conversion for tensors: zero-copy, missing values, times as int64 nanoseconds, and padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from petastore.adapters.nulls import missing_rows, nanoseconds, present
from petastore.adapters.ragged_arrays import flattened, padded, ragged_cells
from petastore.errors import DecodeError
from petastore.schema import UnischemaField


def test_column_without_missing_values_is_zero_copy() -> None:
    column = np.arange(6).reshape(3, 2)
    assert present("id", column) is column
    assert np.shares_memory(present("id", np.ma.MaskedArray(column)), column)
    assert np.shares_memory(present("id", np.ma.MaskedArray(column, mask=np.zeros((3, 2), bool))), column)


def test_missing_values_raise_with_column_name_and_count() -> None:
    column = np.ma.MaskedArray(np.arange(6).reshape(3, 2), mask=[[True, True], [False, False], [False, True]])
    with pytest.raises(
        DecodeError,
        match=r"column 'xy': nulls= must be set where .*missing, got 'error' and 2 of 3 values missing\. "
        r"Pass nulls=\"mask\".*'xy': value.*DataLoader.*filters=col\('xy'\)\.is_valid\(\)",
    ) as caught:
        present("xy", column)
    assert caught.value.column == "xy"
    with pytest.raises(DecodeError, match=r"column 'name': nulls= .* 1 of 2 values missing\."):
        present("name", np.array(["a", None], dtype=object))


def test_rows_with_missing_values_are_found_for_every_dtype() -> None:
    assert missing_rows(np.ma.MaskedArray([1, 2], mask=[False, True])).tolist() == [False, True]
    assert missing_rows(np.ma.MaskedArray([1, 2])).tolist() == [False, False]
    assert missing_rows(np.array([None, np.arange(3)], dtype=object)).tolist() == [True, False]
    assert missing_rows(np.array([1.0, np.nan])).tolist() == [False, False]


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        (np.zeros((2, 3)), [False, False]),
        (np.ma.MaskedArray(np.zeros((2, 3)), [[True] * 3, [False] * 3]), [True, False]),
        (np.ma.MaskedArray(np.zeros(2), [False, True]), [False, True]),
        (np.array([None, "a"], object), [True, False]),
        (np.zeros((0, 3)), []),
    ],
)
def test_row_counts_as_missing_only_by_mask_or_none(values: Any, missing: list[bool]) -> None:
    assert missing_rows(values).tolist() == missing


@given(
    times=hnp.arrays(np.int64, 5, elements=st.integers(-(2**62), 2**62)),
    unit=st.sampled_from(["D", "h", "m", "s", "ms", "us", "ns", "ps"]),
    kind=st.sampled_from(["datetime64", "timedelta64"]),
)
def test_times_are_exact_nanoseconds_or_raise(times: NDArray[np.int64], unit: str, kind: str) -> None:
    nanoseconds_each = {"D": 86_400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000}
    exact = [int(time) * nanoseconds_each.get(unit, 1) for time in times]
    fits = all(-(2**63) < value < 2**63 for value in exact) and unit != "ps"
    column = times.view(f"{kind}[{unit}]")
    if fits:
        assert nanoseconds("at", column).tolist() == exact
    elif unit != "ps":
        with pytest.raises(
            DecodeError, match="column 'at': times must be whole nanoseconds that fit into 64 bits, got"
        ):
            nanoseconds("at", column)


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us"])
def test_times_raise_outside_the_int64_nanosecond_range(unit: str) -> None:
    last = np.array([2**63 - 1], dtype="datetime64[ns]").astype(f"datetime64[{unit}]")
    assert nanoseconds("at", last)[0] == last.astype("datetime64[ns]").view(np.int64)[0] > 0
    with pytest.raises(DecodeError, match="nanoseconds"):
        nanoseconds("at", last + 1)
    first = -np.array([2**63 - 1]).view("timedelta64[ns]").astype(f"timedelta64[{unit}]")
    assert nanoseconds("took", first)[0] < 0
    with pytest.raises(DecodeError, match="nanoseconds"):
        nanoseconds("took", first - 1)


def test_times_finer_than_a_nanosecond_and_months_raise() -> None:
    with pytest.raises(DecodeError, match="column 'at': times must be whole nanoseconds that fit into 64 bits, got"):
        nanoseconds("at", np.array([1500], dtype="datetime64[ps]"))
    with pytest.raises(
        DecodeError, match=r"durations must have a unit of days or less, got .*, which has no fixed length"
    ):
        nanoseconds("took", np.array([1], dtype="timedelta64[M]"))


def test_nanoseconds_are_zero_copy_and_byte_order_is_converted() -> None:
    column = np.array([1, 2], dtype="datetime64[ns]")
    assert np.shares_memory(nanoseconds("at", column), column)
    assert nanoseconds("at", column.astype(">M8[ns]")).tolist() == [1, 2]
    assert nanoseconds("at", np.array(["NaT"], dtype="datetime64[s]")).tolist() == [-(2**63)]


def object_column(cells: list[Any]) -> NDArray[Any]:
    column = np.empty(len(cells), dtype=object)
    for row, cell in enumerate(cells):
        column[row] = cell
    return column


@st.composite
def ragged_columns(draw: st.DrawFn) -> tuple[UnischemaField, NDArray[Any]]:
    shape = draw(st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=3).filter(lambda sizes: None in sizes))
    field = UnischemaField("cells", draw(st.sampled_from(["float32", "uint16", "bool"])), tuple(shape))
    sizes = st.tuples(*(st.integers(0, 4) if size is None else st.just(size) for size in shape))
    cells = draw(st.lists(sizes.flatmap(lambda drawn: hnp.arrays(field.dtype, drawn)), max_size=5))
    return field, object_column(cells)


@given(drawn=ragged_columns())
def test_padded_column_has_cells_and_fill_value(
    drawn: tuple[UnischemaField, NDArray[Any]],
) -> None:
    field, column = drawn
    values, lengths = padded(field, column, 1)
    free = [axis for axis, size in enumerate(field.shape) if size is None]
    assert values.dtype == field.dtype
    assert lengths.dtype == np.int64
    assert lengths.shape == ((len(column),) if len(free) == 1 else (len(column), len(free)))
    for cell, row, length in zip(column, values, lengths.reshape(len(column), len(free)), strict=True):
        assert length.tolist() == [cell.shape[axis] for axis in free]
        corner = tuple(map(slice, cell.shape))
        np.testing.assert_array_equal(row[corner], cell)
        rest = np.ones(row.shape, bool)
        rest[corner] = False
        assert (row[rest] == 1).all()
    longest = np.max([cell.shape for cell in column], axis=0, initial=0) if len(column) else np.zeros(len(field.shape))
    assert all(values.shape[1 + axis] == longest[axis] for axis in free)


@given(drawn=ragged_columns())
def test_flattened_ragged_arrays_can_be_split_again(drawn: tuple[UnischemaField, NDArray[Any]]) -> None:
    field, column = drawn
    flat, shapes = flattened(field, column)
    assert flat.dtype == field.dtype
    parts = np.split(flat, np.cumsum(shapes.prod(axis=1)))[:-1] if len(column) else []
    for cell, part, shape in zip(column, parts, shapes.tolist(), strict=True):
        np.testing.assert_array_equal(part.reshape(shape), cell)


def test_padding_raises_for_wrong_shapes_and_missing_cells() -> None:
    field = UnischemaField("track", "float32", (None, 2))
    good = np.zeros((3, 2), "float32")
    for bad in (np.zeros((3, 3)), np.zeros(3), np.zeros((1, 2, 2))):
        with pytest.raises(
            DecodeError, match=r"column 'track': a value must have shape \(None, 2\), as the field declares, got .*"
        ):
            ragged_cells(field, object_column([good, bad]))
    with pytest.raises(DecodeError, match=r"column 'track': nulls= .* 1 of 2 values missing\."):
        padded(field, object_column([good, None]))


def test_times_are_padded_as_times() -> None:
    field = UnischemaField("at", "datetime64[ms]", (None,))
    values, _ = padded(field, object_column([np.array([5], "M8[ms]"), np.array([], "M8[ms]")]))
    assert values.tolist() == [[np.datetime64(5, "ms").item()], [np.datetime64(0, "ms").item()]]
