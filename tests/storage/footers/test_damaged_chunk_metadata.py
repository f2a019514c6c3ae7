"""Tests of parsing damaged footers: results equal a reference parser's, or an error is raised."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.errors import MetadataError
from petastore.storage.footers.chunk_metadata import (
    INTEGER,
    INTEGERS,
    LIST,
    PRESENCE,
    STRUCT,
    chunk_contents,
    read_integer,
    read_struct_list,
    row_group_counts,
    skip_value,
    struct_reader,
)
from tests.tier import examples

BROKEN = (IndexError, ValueError, OverflowError, RecursionError)


@functools.cache
def footer() -> bytes:
    columns = {"a": range(40), "b": [str(number) for number in range(40)], "c": [[1.0, 2.0]] * 40}
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=10)
    data = file.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@st.composite
def damaged(draw: Any) -> bytes:
    """Draw the footer with some bytes changed, often to another of its bytes, and sometimes truncated."""
    data = bytearray(footer())
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data) - 1))
        data[place] = draw(st.integers(0, 255) | st.sampled_from(footer()))
    return bytes(data[: draw(st.just(len(data)) | st.integers(0, len(data)))])


def read_field(data: bytes, at: int, previous: int) -> tuple[int, int, int]:
    """Return number and type of the field at `at`, and the position of its value."""
    header = data[at]
    if header >> 4:
        return previous + (header >> 4), header & 15, at + 1
    number, after = read_integer(data, at + 1)
    return number, header & 15, after


def walk(data: bytes, at: int, visit: Callable[[int, int, int], int | None]) -> int:
    """Walk over one struct; `visit` returns the position after a field that it reads, or None to skip the field."""
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        after = visit(field, kind, at)
        at = skip_value(data, at, kind) if after is None else after
    return at + 1


class Counts:
    """Reference parser: rows, stored bytes and decoded bytes of each row group, read field by field."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.groups: list[list[int]] = []
        walk(data, 0, self.of_file)
        if any(not -(2**63) <= number < 2**63 for group in self.groups for number in group):
            raise OverflowError

    def of_file(self, field: int, kind: int, at: int) -> int | None:
        if field != 4 or kind != LIST:
            return None
        count, at = read_struct_list(self.data, at)
        self.groups.clear()
        for _ in range(count):
            self.groups.append([0, 0, 0])
            at = walk(self.data, at, self.of_group)
        return at

    def of_group(self, field: int, kind: int, at: int) -> int | None:
        if field == 1 and kind == LIST:
            count, at = read_struct_list(self.data, at)
            self.groups[-1][1] = 0
            for _ in range(count):
                at = self.chunk(at)
            return at
        if field in (2, 3) and kind in INTEGERS:
            self.groups[-1][{3: 0, 2: 2}[field]], at = read_integer(self.data, at)
            return at
        return None

    def chunk(self, at: int) -> int:
        size: int | None = None

        def of_chunk(field: int, kind: int, at: int) -> int | None:
            nonlocal size
            if field != 3 or kind != STRUCT:
                return None
            size = None
            return walk(self.data, at, of_metadata)

        def of_metadata(field: int, kind: int, at: int) -> int | None:
            nonlocal size
            if field != 7 or kind not in INTEGERS:
                return None
            size, at = read_integer(self.data, at)
            return at

        at = walk(self.data, at, of_chunk)
        if size is None:
            raise ValueError("the chunk has no size")
        self.groups[-1][1] += size
        return at


@settings(max_examples=examples(300))
@given(damaged())
def test_damaged_footer_counts_equal_a_reference_parser(data: bytes) -> None:
    try:
        wanted = Counts(data).groups
    except BROKEN:
        with pytest.raises(MetadataError, match=r"x\.parquet: the footer is damaged"):
            row_group_counts(data, source="x.parquet")
    else:
        assert row_group_counts(data, source="x.parquet")[0].T.tolist() == wanted


@given(damaged())
def test_damaged_footers_raise_or_parse(data: bytes) -> None:
    with contextlib.suppress(MetadataError):
        groups = chunk_contents(data, {0, 2}, source="x.parquet")
        assert all(set(group) <= {0, 2} for group in groups)


def test_last_of_repeated_thrift_fields_is_used() -> None:
    twice = bytes([0x15, 8, 0x05, 2, 10, 0])  # field 1 is 4; field 1 again, by its number, is 5
    assert struct_reader({1: INTEGER})(twice, 0)[0] == {1: 5}


def test_thrift_field_of_another_type_is_ignored() -> None:
    text = bytes([0x18, 2, 65, 65, 0])
    assert struct_reader({1: INTEGER})(text, 0)[0] == {}
    assert struct_reader({1: PRESENCE})(text, 0)[0] == {1: True}


def test_invalid_footer_raises_with_the_file() -> None:
    with pytest.raises(MetadataError, match=r"x\.parquet: the footer is damaged"):
        row_group_counts(bytes([0x1E]), source="x.parquet")
