"""Tests of the column layout: columns of equal dtype and shape are stacked, and the others stay encoded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastore.readers.loaded.arena import Layout, Stack

FIELDS = [
    UnischemaField("a", np.float32),
    UnischemaField("b", np.float32, nullable=True),
    UnischemaField("c", np.float32, (3,)),
    UnischemaField("d", np.float32, (3,), NdarrayCodec()),
    UnischemaField("e", np.int64, (), ScalarCodec("bigint")),
    UnischemaField("f", np.float32, (None,), NdarrayCodec()),
    UnischemaField("g", np.str_),
    UnischemaField("h", np.float32, (3,), CompressedNdarrayCodec()),
    UnischemaField("i", "datetime64[us]"),
]


def layout_of(*fields: UnischemaField, rows: int = 100, apart: frozenset[str] = frozenset()) -> Layout:
    return Layout.of(Unischema("s", list(fields)), rows=rows, apart=apart)


@given(st.permutations(FIELDS), st.sets(st.sampled_from([field.name for field in FIELDS])), st.integers(1, 10**7))
def test_column_layout_puts_each_column_in_one_stack_or_leaves_it_encoded(
    fields: list[UnischemaField], apart: set[str], rows: int
) -> None:
    layout = layout_of(*fields, rows=rows, apart=frozenset(apart))
    stacked = [name for stack in layout.stacks for name in stack.names]
    assert sorted([*stacked, *layout.encoded]) == sorted(field.name for field in fields)
    assert not apart & set(stacked)
    assert all(layout.stacks[number].names[place] == name for name, (number, place) in layout.places.items())
    assert sorted(number for kind in layout.kinds for number in kind) == list(range(len(layout.stacks)))
    for kind in layout.kinds:
        assert len({(layout.stacks[number].dtype, layout.stacks[number].shape) for number in kind}) == 1


def test_column_layout_stacks_fixed_size_columns_of_equal_dtype_and_shape() -> None:
    layout = layout_of(*FIELDS)
    assert sorted(layout.encoded) == ["f", "g", "h"]
    assert {stack.names for stack in layout.stacks} == {("a", "b"), ("c",), ("d",), ("e",), ("i",)}


@pytest.mark.parametrize(("rows", "at_once"), [(1, 64), (2**15, 16), (2**19, 1), (2**25, 1)])
def test_number_of_scalar_columns_per_stack_falls_with_rows_per_row_group(rows: int, at_once: int) -> None:
    fields = [UnischemaField(f"x{number}", np.float32) for number in range(100)]
    sizes = [len(stack.names) for stack in layout_of(*fields, rows=rows).stacks]
    assert max(sizes) == at_once
    assert sum(sizes) == 100


def test_column_layout_stores_only_short_rows_in_shuffled_order() -> None:
    short, long = UnischemaField("short", np.float32), UnischemaField("long", np.float32, (17,), NdarrayCodec())
    whole = UnischemaField("whole", np.uint8, (20_000,), NdarrayCodec())
    assert [stack.in_read_order for stack in layout_of(short, long).stacks] == [True, False]
    assert layout_of(short, long).reorders_rows
    # For rows this long, decoding dominates the time, so reordering has no benefit.
    assert not layout_of(short, whole).reorders_rows


def test_column_stacks_of_long_rows_limit_the_rows_read_at_once() -> None:
    assert Stack(("x",), np.dtype(np.float32), (16,)).rows_at_once is None
    assert Stack(("x",), np.dtype(np.float32), (17,)).rows_at_once == 2**21 // 68
    assert Stack(("x",), np.dtype(np.uint8), (2**30,)).rows_at_once == 1


def test_column_layout_without_fields_is_empty() -> None:
    assert layout_of() == Layout((), ())
