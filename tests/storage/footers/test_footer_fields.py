"""Fields of footers are what a walk that is written out finds, whatever happened to the bytes."""

from __future__ import annotations

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
from petastore.storage.footers.column_chunks import chunk_contents, chunk_statistics
from petastore.storage.footers.footer_fields import footer_fields
from petastore.storage.footers.row_group_counts import row_group_counts
from petastore.storage.footers.thrift import (
    INTEGER,
    INTEGERS,
    LIST,
    PRESENCE,
    STRUCT,
    read_field,
    read_integer,
    read_struct_list,
    skip_struct,
    skip_value,
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
    """The footer with some bytes changed, often to one that stands elsewhere in it, and sometimes cut off."""
    data = bytearray(footer())
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data) - 1))
        data[place] = draw(st.integers(0, 255) | st.sampled_from(footer()))
    return bytes(data[: draw(st.just(len(data)) | st.integers(0, len(data)))])


def walk(data: bytes, at: int, visit: Callable[[int, int, int], int | None]) -> int:
    """One struct, field by field; `visit` gives the position after what it reads, or None for what is skipped."""
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        after = visit(field, kind, at)
        at = skip_value(data, at, kind) if after is None else after
    return at + 1


class Counts:
    """Rows, stored and decoded bytes of each row group, as a walk finds them that looks at each field itself."""

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
        size, at = read_integer(self.data, self.find(7, INTEGERS, self.find(3, (STRUCT,), at)))
        self.groups[-1][1] += size
        return skip_struct(self.data, skip_struct(self.data, at))

    def find(self, wanted: int, kinds: tuple[int, ...], at: int) -> int:
        field = 0
        while self.data[at]:
            field, kind, at = read_field(self.data, at, field)
            if field == wanted and kind in kinds:
                return at
            at = skip_value(self.data, at, kind)
        raise ValueError(f"there is no field {wanted}")


@settings(max_examples=examples(300))
@given(damaged())
def test_counts_of_damaged_footers_are_those_of_a_walk_that_is_written_out(data: bytes) -> None:
    try:
        wanted = Counts(data).groups
    except BROKEN:
        with pytest.raises(MetadataError, match=r"x\.parquet: the footer is damaged"):
            row_group_counts(data, source="x.parquet")
    else:
        assert row_group_counts(data, source="x.parquet").T.tolist() == wanted


@given(damaged())
def test_damaged_footers_are_refused_or_read(data: bytes) -> None:
    for read in (chunk_contents, chunk_statistics):
        try:
            groups = read(data, {0, 2}, source="x.parquet")
        except MetadataError:
            continue
        assert all(set(group) <= {0, 2} for group in groups)


def test_the_last_of_several_fields_holds() -> None:
    twice = bytes([0x15, 8, 0x05, 2, 10, 0])  # field 1 is 4; field 1 again, by its number, is 5
    assert footer_fields(twice, {1: INTEGER}, source="x") == {1: 5}


def test_a_field_of_another_type_is_not_there() -> None:
    text = bytes([0x18, 2, 65, 65, 0])
    assert footer_fields(text, {1: INTEGER}, source="x") == {}
    assert footer_fields(text, {1: PRESENCE}, source="x") == {1: True}


def test_what_is_no_footer_is_refused_with_the_file_named() -> None:
    with pytest.raises(MetadataError, match=r"x\.parquet: the footer is damaged"):
        footer_fields(bytes([0x1E]), {1: INTEGER}, source="x.parquet")
