"""Tests of structs, maps and nested lists decoded to Python objects, with times, time zones and bytes inside."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs.arrow.arrow_objects import decode_objects
from petastore.errors import DecodeError
from petastore.schema import UnischemaField

FIELD = UnischemaField("x", object, nullable=True)
UNITS = ("s", "ms", "us", "ns")
ZONES = (None, "", "UTC", "+05:30", "-00:01", "Etc/GMT+3", "Nowhere/Land")


def decoded(cells: Any) -> list[Any]:
    out = np.empty(len(cells), object)
    decode_objects(cells, FIELD, out)
    return out.tolist()


def at(count: int, unit: str) -> Any:
    return np.array(count).astype(f"datetime64[{unit}]")[()]


def lasting(count: int, unit: str) -> Any:
    return np.array(count).astype(f"timedelta64[{unit}]")[()]


def instants(counts: list[int | None], stored: pa.DataType) -> Any:
    return pa.array(counts, pa.int64()).view(stored)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", UNITS)
def test_nested_timestamps_are_numpy_datetime64_in_utc(unit: str, zone: str | None) -> None:
    counts = [0, None, 2**62, -(2**62), 1]
    column = instants(counts, pa.timestamp(unit, zone))
    expected = [None if count is None else at(count, unit) for count in counts]
    structs = pa.StructArray.from_arrays([column], ["at"])
    assert decoded(structs) == [{"at": time} for time in expected]
    assert decoded(pa.ListArray.from_arrays(pa.array([0, 2, 2, 5], pa.int32()), structs)) == [
        [{"at": time} for time in expected[:2]],
        [],
        [{"at": time} for time in expected[2:]],
    ]
    keys = pa.array(list("abcde"))
    assert decoded(pa.MapArray.from_arrays(pa.array([0, 2, 5], pa.int32()), keys, column)) == [
        list(zip("ab", expected[:2], strict=True)),
        list(zip("cde", expected[2:], strict=True)),
    ]


@pytest.mark.parametrize("unit", UNITS)
def test_nested_durations_are_numpy_timedelta64(unit: str) -> None:
    structs = pa.StructArray.from_arrays([instants([2**62, None, -5], pa.duration(unit))], ["d"])
    assert decoded(structs) == [
        {"d": lasting(2**62, unit)},
        {"d": None},
        {"d": lasting(-5, unit)},
    ]


def test_nested_dates_and_times_equal_those_of_columns() -> None:
    days = pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())
    clock = pa.array([1, 86_399_999_999_999], pa.int64()).cast(pa.time64("ns"))
    assert decoded(pa.StructArray.from_arrays([days, clock], ["day", "clock"])) == [
        {"day": np.datetime64(0, "D"), "clock": np.timedelta64(1, "ns")},
        {"day": np.datetime64(2**31 - 1, "D"), "clock": np.timedelta64(86_399_999_999_999, "ns")},
    ]


def test_arrow_tensors_inside_structs_have_logical_axis_order() -> None:
    kind = pa.fixed_shape_tensor(pa.int16(), (2, 3), permutation=[1, 0])
    storage = pa.array([list(range(6)), None, list(range(6, 12))], pa.list_(pa.int16(), 6))
    structs = pa.StructArray.from_arrays([pa.ExtensionArray.from_storage(kind, storage)], ["t"])
    first, second, third = decoded(structs)
    np.testing.assert_array_equal(first["t"], np.arange(6, dtype="int16").reshape(2, 3).T, strict=True)
    assert second == {"t": None}
    np.testing.assert_array_equal(third["t"], np.arange(6, 12, dtype="int16").reshape(2, 3).T, strict=True)


def test_text_that_is_not_utf_8_names_its_row() -> None:
    text = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"\xff", b"\xff"]).buffers())
    with pytest.raises(DecodeError, match="utf-8") as caught:
        decoded(pa.StructArray.from_arrays([text], ["word"]))
    assert (caught.value.column, caught.value.row) == ("x", 1)


@pytest.mark.parametrize("inner", [pa.array([1]), instants([1], pa.timestamp("us"))], ids=["numbers", "times"])
def test_struct_with_two_members_of_one_name_raises(inner: Any) -> None:
    with pytest.raises(DecodeError, match=r"'a', 'a'|duplicate field names"):
        decoded(pa.StructArray.from_arrays([inner, inner], ["a", "a"]))


# Types for which `to_pylist` gives equal values: times and time zones that Python's datetime supports.
SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "number": (pa.int32(), st.integers(-5, 5)),
    "text": (pa.string(), st.text(max_size=3)),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "moment": (pa.timestamp("ms"), st.datetimes().map(lambda time: time.replace(microsecond=0))),
    "day": (pa.date32(), st.dates()),
    "span": (pa.duration("us"), st.timedeltas(dt.timedelta(-9), dt.timedelta(9))),
}


@st.composite
def nested(draw: st.DrawFn, depth: int = 3) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """Draw a nested type and a strategy for Python values of it."""
    kinds = ["scalar", "list", "large", "view", "fixed", "struct", "map"] if depth else ["scalar"]
    kind = draw(st.sampled_from(kinds))
    if kind == "scalar":
        return draw(st.sampled_from(list(SCALARS.values())))
    inner, values = draw(nested(depth - 1))
    values = st.none() | values
    if kind == "struct":
        second, others = draw(nested(depth - 1))
        members = {"a": values, "b": st.none() | others}
        return pa.struct({"a": inner, "b": second}), st.fixed_dictionaries(members)
    if kind == "map":
        pairs = st.lists(st.tuples(st.text(max_size=2), values), max_size=3)
        return pa.map_(pa.string(), inner), pairs
    if kind == "fixed":
        return pa.list_(inner, 2), st.lists(values, min_size=2, max_size=2)
    make = {"list": pa.list_, "large": pa.large_list, "view": pa.list_view}[kind]
    return make(inner), st.lists(values, max_size=3)


def as_expected(value: Any, stored: pa.DataType) -> Any:
    """Convert a value of `to_pylist` to the expected value, with NumPy times."""
    types = pa.types
    if value is None:
        return None
    if types.is_struct(stored):
        return {field.name: as_expected(value[field.name], field.type) for field in stored}
    if types.is_map(stored):
        return [(key, as_expected(item, stored.item_type)) for key, item in value]
    if hasattr(stored, "value_type"):
        return [as_expected(item, stored.value_type) for item in value]
    if types.is_timestamp(stored):
        return np.datetime64(value.replace(tzinfo=None), stored.unit)
    if types.is_date(stored):
        return np.datetime64(value, "D")
    return np.timedelta64(value, stored.unit) if types.is_duration(stored) else value


@given(st.data())
def test_slices_of_nested_columns_decode_like_pyarrow_to_pylist(data: st.DataObject) -> None:
    stored, values = data.draw(nested())
    rows = data.draw(st.lists(values, max_size=5))
    cells = pa.array(rows, stored)
    first, count = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
    part = cells.slice(first, count)
    wanted = [as_expected(value, stored) for value in part.to_pylist()]
    assert decoded(part) == wanted
    of_structs = pa.StructArray.from_arrays([cells], ["x"]).slice(first, count)
    assert decoded(of_structs) == [{"x": value} for value in wanted]
