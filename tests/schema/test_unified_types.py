"""Tests of unifying the types of a column in several files, without loss of values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petastore.arrow import conformed
from petastore.schema.unified_types import unified_field, unified_type
from tests.tier import examples

NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
]
EQUAL_TEXT = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
LEAVES = [
    *NUMBERS,
    *EQUAL_TEXT,
    *(pa.null(), pa.bool_(), pa.binary(), pa.large_binary(), pa.binary(2), pa.date32()),
    *(pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.duration("ms"), pa.duration("us")),
    *(pa.time32("s"), pa.time64("ns"), pa.decimal128(5, 2), pa.decimal128(7, 5), pa.decimal128(38, 0)),
]


def nested(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        types.map(pa.list_),
        types.map(pa.large_list),
        types.map(lambda item: pa.list_(item, 2)),
        st.dictionaries(st.sampled_from("abc"), types, min_size=1, max_size=3).map(pa.struct),
        types.map(lambda item: pa.map_(pa.string(), item)),
    )


TYPES = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([pa.int32(), pa.int64()], pa.int64()),
        ([pa.uint32(), pa.int8()], pa.int64()),
        ([pa.uint64(), pa.int8()], None),
        ([pa.float32(), pa.float64()], pa.float64()),
        ([pa.int16(), pa.float32()], pa.float32()),
        ([pa.int32(), pa.float32()], pa.float64()),
        ([pa.uint32(), pa.int8(), pa.float32()], pa.float64()),
        ([pa.int64(), pa.float64()], pa.float64()),
        ([pa.uint64(), pa.float32(), pa.int8()], pa.float64()),
        ([pa.bool_(), pa.int8()], None),
        ([pa.string(), pa.large_string()], pa.large_string()),
        ([pa.string(), pa.string_view()], pa.large_string()),
        ([pa.string(), pa.binary()], None),
        ([pa.binary(4), pa.binary()], pa.binary()),
        ([pa.binary(4), pa.large_binary()], pa.large_binary()),
        ([pa.list_(pa.int8()), pa.large_list(pa.int16())], pa.large_list(pa.int16())),
        ([pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3)], pa.list_(pa.int8())),
        ([pa.list_(pa.int8(), 2), pa.list_(pa.int16(), 2)], pa.list_(pa.int16(), 2)),
        ([pa.dictionary(pa.int8(), pa.string()), pa.string()], pa.string()),
        (
            [pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string())],
            pa.dictionary(pa.int32(), pa.string()),
        ),
        ([pa.timestamp("s"), pa.timestamp("us")], pa.timestamp("us")),
        ([pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")], pa.timestamp("us", "UTC")),
        ([pa.timestamp("us", "UTC"), pa.timestamp("us")], None),
        ([pa.time32("ms"), pa.time64("us")], pa.time64("us")),
        ([pa.date32(), pa.date64()], pa.date64()),
        ([pa.decimal128(7, 5), pa.decimal128(8, 5)], pa.decimal128(8, 5)),
        ([pa.decimal128(7, 5), pa.decimal128(7, 0)], pa.decimal128(12, 5)),
        ([pa.decimal128(38, 0), pa.decimal128(38, 5)], pa.decimal256(43, 5)),
        ([pa.decimal256(76, 0), pa.decimal256(76, 5)], None),
        ([pa.json_(), pa.string()], pa.string()),
        ([pa.json_(), pa.large_string()], pa.large_string()),
        ([pa.uuid(), pa.binary(16)], pa.binary(16)),
        ([pa.uuid(), pa.binary()], pa.binary()),
        ([pa.uuid(), pa.json_()], None),
        ([pa.bool8(), pa.int16()], pa.int16()),
        ([pa.fixed_shape_tensor(pa.int8(), [2]), pa.list_(pa.int8(), 2)], None),
        ([pa.list_(pa.uuid()), pa.large_list_view(pa.binary(16))], pa.large_list(pa.binary(16))),
        ([pa.null(), pa.int8()], pa.int8()),
        ([pa.null(), pa.null()], pa.null()),
        (
            [pa.struct({"a": pa.int8()}), pa.struct({"b": pa.string(), "a": pa.int16()})],
            pa.struct({"a": pa.int16(), "b": pa.string()}),
        ),
        ([pa.struct({"a": pa.int8()}), pa.struct({"a": pa.string()})], None),
        ([pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int16())], pa.map_(pa.string(), pa.int16())),
        ([pa.map_(pa.string(), pa.int8()), pa.list_(pa.int8())], None),
    ],
)
def test_unified_type_is_the_narrowest_type_that_keeps_all_values_exact(
    types: list[pa.DataType], expected: pa.DataType | None
) -> None:
    for order in itertools.permutations(types):
        found = unified_type(order)
        assert (found is None) == (expected is None)
        assert found is None or sorted(map(str, _members(found))) == sorted(map(str, _members(expected)))


def _members(found: Any) -> list[pa.Field]:
    return list(found) if pa.types.is_struct(found) else [pa.field("x", found)]


def test_unified_field_is_nullable_if_nullable_in_any_file_even_if_nested() -> None:
    def field(nullable: bool) -> pa.Field:
        item = pa.field("element", pa.int8(), nullable=nullable)
        return pa.field("x", pa.struct([pa.field("l", pa.list_(item), nullable=nullable)]), nullable=nullable)

    assert unified_field([field(False), field(True)]) == field(True)
    assert unified_field([field(False), field(False)]) == field(False)


def cells_of(stored: pa.DataType, data: st.DataObject) -> pa.Array:
    """Return a few cells of a type, some of them null."""
    if pa.types.is_dictionary(stored):
        return cells_of(stored.value_type, data).dictionary_encode().cast(stored)
    rows = data.draw(st.lists(st.one_of(st.none(), value_of(stored)), max_size=3))
    return pa.array(rows, stored)


def value_of(stored: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_null(stored):
        return st.none()
    if types.is_struct(stored):
        return st.fixed_dictionaries({field.name: st.one_of(st.none(), value_of(field.type)) for field in stored})
    if types.is_map(stored):
        item = st.one_of(st.none(), value_of(stored.item_type))
        return st.lists(st.tuples(st.sampled_from(["k", "l"]), item), max_size=2)
    if types.is_fixed_size_list(stored):
        return st.lists(st.one_of(st.none(), value_of(stored.value_type)), min_size=2, max_size=2)
    if types.is_list(stored) or types.is_large_list(stored):
        return st.lists(st.one_of(st.none(), value_of(stored.value_type)), max_size=3)
    if types.is_dictionary(stored):
        return value_of(stored.value_type)
    return st.sampled_from(SCALARS[stored.id])


_EDGES = {each.id: (1 << (each.bit_width - 1 if each in NUMBERS[:4] else each.bit_width)) - 1 for each in NUMBERS[:8]}
SCALARS: dict[int, Sequence[Any]] = {
    **{number: [0, 1, edge] for number, edge in _EDGES.items()},
    **{each.id: [0.5, -2.0] for each in NUMBERS[8:]},
    **{each.id: ["", "ab"] for each in EQUAL_TEXT[:2]},
    **{each.id: [b"", b"ab"] for each in (pa.binary(), pa.large_binary())},
    pa.binary(2).id: [b"ab", b"cd"],
    pa.bool_().id: [True, False],
    **{
        each.id: pa.array([0, 86_400], pa.int32()).cast(pa.int64()).to_pylist()
        for each in (pa.timestamp("s"), pa.duration("s"), pa.time32("s"), pa.time64("us"), pa.date32())
    },
    pa.decimal128(5, 2).id: [0, 99],  # decimal128(7, 5) holds two digits before the point
}
SCALARS[pa.time32("s").id] = SCALARS[pa.time64("ns").id] = [0, 3]


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TYPES, TYPES, st.data())
def test_values_cast_to_the_unified_type_equal_pyarrow_concat_tables(
    one: pa.DataType, other: pa.DataType, data: st.DataObject
) -> None:
    first, second = cells_of(one, data), cells_of(other, data)
    found = unified_type([one, other])
    if found is None:
        return
    joined = [*conformed(first, found).to_pylist(), *conformed(second, found).to_pylist()]
    assert joined == [*first.to_pylist(), *second.to_pylist()] or pa.types.is_nested(found)
    try:
        tables = [pa.table({"x": first}), pa.table({"x": second})]
        expected = pa.concat_tables(tables, promote_options="permissive").column("x").to_pylist()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return  # pyarrow unifies fewer types
    assert joined == expected


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TYPES, min_size=1, max_size=4), st.randoms())
def test_unified_type_does_not_depend_on_the_order_of_files(types: list[pa.DataType], random: Any) -> None:
    shuffled = types.copy()
    random.shuffle(shuffled)
    one, other = unified_type(types), unified_type(shuffled)
    assert (one is None) == (other is None)
    if one is not None:
        assert unified_type([one, other]) is not None
        assert unified_type([*types, one]) is not None


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TYPES, st.integers(0, 2), st.data())
def test_casting_a_slice_to_the_unified_type_equals_slicing_the_cast(
    stored: pa.DataType, begin: int, data: st.DataObject
) -> None:
    cells = cells_of(stored, data)
    found = unified_type([stored, data.draw(TYPES)])
    if found is not None:
        part = conformed(cells.slice(begin, 1), found)
        part.validate(full=True)
        assert part.to_pylist() == conformed(cells, found).slice(begin, 1).to_pylist()
