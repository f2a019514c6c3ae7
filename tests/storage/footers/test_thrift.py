"""Tests of the reader of Thrift's compact protocol: round trip, exact skipping, invalid and truncated input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.storage.footers.chunk_metadata import (
    BINARY,
    INTEGER,
    PRESENCE,
    STRUCT,
    list_reader,
    read_binary,
    read_integer,
    read_struct_list,
    read_varint,
    skip_struct,
    skip_value,
    some_structs_reader,
    struct_reader,
)
from tests.storage.footers.by_hand import binary, varint, zigzag

Written = tuple[int, bytes, Any]
"""A type, the encoded value as an element of a list or field, and the value."""

integers = st.integers(-(2**63), 2**63 - 1).map(lambda number: (6, zigzag(number), number))
binaries = st.binary(max_size=200).map(lambda data: (BINARY, binary(data), data))
doubles = st.binary(min_size=8, max_size=8).map(lambda data: (7, data, data))
leaves = integers | binaries | doubles


def list_of(items: list[Written]) -> Written:
    kind = items[0][0] if items else 6
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + varint(len(items))
    return 9, head + b"".join(item[1] for item in items), [item[2] for item in items]


def struct_of(fields: dict[int, Written], *, long_headers: bool = False) -> Written:
    data, before = b"", 0
    for number, (kind, value, _) in sorted(fields.items()):
        step = number - before
        data += bytes([step << 4 | kind]) if step < 16 and not long_headers else bytes([kind]) + zigzag(number)
        data, before = data + value, number
    return STRUCT, data + b"\x00", {number: value for number, (_, _, value) in fields.items()}


def lists_and_structs(inner: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    lists = (
        st.sampled_from([integers, binaries, doubles]).flatmap(lambda kind: st.lists(kind, max_size=20)).map(list_of)
    )
    structs = st.dictionaries(st.integers(1, 200), inner, max_size=5)
    return lists | st.tuples(structs, st.booleans()).map(lambda pair: struct_of(pair[0], long_headers=pair[1]))


values = st.recursive(leaves, lists_and_structs, max_leaves=12)
structs = st.tuples(st.dictionaries(st.integers(1, 200), values, max_size=6), st.booleans())


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_thrift_numbers_round_trip(number: int, rest: bytes) -> None:
    written = varint(number)
    assert read_varint(written + rest, 0) == (number, len(written))
    signed = number - 2**63
    assert read_integer(b"x" + zigzag(signed) + rest, 1) == (signed, 1 + len(zigzag(signed)))


@given(values, st.binary(max_size=3))
def test_thrift_values_are_skipped_exactly(value: Written, rest: bytes) -> None:
    kind, written, _ = value
    assert skip_value(b"x" + written + rest, 1, kind) == 1 + len(written)


@given(structs, st.integers(1, 200))
def test_thrift_fields_are_found_and_others_skipped(given_struct: tuple[dict[int, Written], bool], wanted: int) -> None:
    fields, long_headers = given_struct
    _, written, _ = struct_of(fields, long_headers=long_headers)
    read = struct_reader({wanted: {**INTEGER, BINARY: read_binary}, 7: PRESENCE})
    found, end = read(written, 0)
    expected = {number: field[2] for number, field in fields.items() if number == wanted and field[0] in (6, BINARY)}
    if 7 in fields:
        expected[7] = True
    assert (found if wanted != 7 else {7: True} if 7 in found else {}) == expected
    assert end == len(written) == skip_struct(written, 0)


@given(st.lists(st.integers(-9, 9), max_size=40), st.sets(st.integers(0, 45)))
def test_thrift_list_items_are_found_by_index(numbers: list[int], places: set[int]) -> None:
    written = list_of([struct_of({2: (6, zigzag(number), number)}) for number in numbers])
    if not numbers:
        written = (9, bytes([STRUCT]), [])
    _, data, _ = struct_of({1: written})
    read = struct_reader({1: some_structs_reader(struct_reader({2: INTEGER}), places)})
    assert read(data, 0) == ({1: {n: {2: each} for n, each in enumerate(numbers) if n in places}}, len(data))


def test_thrift_booleans_are_skipped_in_lists_and_fields() -> None:
    assert skip_value(bytes([0x31, 1, 2, 1, 99]), 0, 9) == 4
    assert skip_struct(bytes([0x11, 0x12, 0x15, 4, 0, 99]), 0) == 5


def test_invalid_thrift_raises() -> None:
    with pytest.raises(ValueError, match="must have at most 64 bits, got more"):
        read_varint(b"\xff" * 11 + b"\x01", 0)
    with pytest.raises(ValueError, match="must be a type of the compact protocol, got 13"):
        skip_value(b"\x00", 0, 13)
    with pytest.raises(ValueError, match=r"a list must have elements of Thrift type 12 .struct., got type 8"):
        read_struct_list(bytes([0x18, 0]), 0)
    with pytest.raises(ValueError, match="a list must have elements of Thrift type 4 or 5 or 6, got type 8"):
        struct_reader({1: list_reader(INTEGER)})(bytes([0x19, 0x18, 0, 0]), 0)


@given(structs, st.integers(0, 10**6))
def test_truncated_thrift_raises(given_struct: tuple[dict[int, Written], bool], stop: int) -> None:
    _, written, _ = struct_of(given_struct[0], long_headers=given_struct[1])
    with pytest.raises(IndexError):
        skip_struct(written[: stop % len(written)], 0)
