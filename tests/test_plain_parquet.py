"""Tests of plain Parquet: values of random Arrow types equal pyarrow's, and columns may have any name and number."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import petastore
from tests.arrow_values import of_arrow, of_petastore
from tests.tier import examples

INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
"""All int64 except the smallest one, which is NumPy's NaT."""


def counts(stored: pa.DataType, values: st.SearchStrategy[int]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """Return a type and integer counts for its values, because Python's objects cannot represent all of them."""
    return stored, values


ZONES = [None, "UTC", "+05:30", "Etc/GMT+3", "Europe/Berlin", "Nowhere/Land"]
TIMES = [
    *(counts(pa.timestamp(unit, zone), INT64) for unit in ("ms", "us", "ns") for zone in ZONES),
    *(counts(pa.duration(unit), INT64) for unit in ("s", "ms", "us", "ns")),
    counts(pa.timestamp("s", "UTC"), st.integers(-(2**50), 2**50)),
    counts(pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    counts(pa.time32("ms"), st.integers(0, 86_399_999)),
    counts(pa.time64("us"), st.integers(0, 86_399_999_999)),
    counts(pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
]
PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *(
        (pa.from_numpy_dtype(f"int{bits}"), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        for bits in (8, 16, 32, 64)
    ),
    *((pa.from_numpy_dtype(f"uint{bits}"), st.integers(0, 2**bits - 1)) for bits in (8, 16, 32, 64)),
    (pa.float16(), st.floats(width=16)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    *((kind, st.text(max_size=4)) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, st.binary(max_size=4)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.decimal32(5, 2), st.decimals(-999, 999, places=2)),
    (pa.decimal64(12, 3), st.decimals(-999, 999, places=3)),
    (pa.decimal128(38, 10), st.decimals(-(10**20), 10**20, places=10)),
    (pa.decimal256(76, 0), st.integers(-(10**75), 10**75).map(Decimal)),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
    (pa.null(), st.none()),
]


def is_time(stored: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(stored))


@st.composite
def columns(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """Draw a type and a strategy for its values; times are drawn as integer counts."""
    kind = draw(
        st.sampled_from(["plain", "plain", "time", "list", "large", "fixed", "struct", "map"][: 8 if depth else 3])
    )
    if kind == "plain":
        return draw(st.sampled_from(PLAIN))
    if kind == "time":
        return draw(st.sampled_from(TIMES))
    inner, values = draw(columns(depth - 1))
    inside = values if draw(st.booleans()) else st.none() | values
    if kind == "struct":
        second, others = draw(columns(depth - 1))
        return pa.struct({"a": inner, "b.c": second}), st.fixed_dictionaries({"a": inside, "b.c": st.none() | others})
    if kind == "map":
        return pa.map_(pa.string(), inner), st.lists(st.tuples(st.text(max_size=2), inside), max_size=2)
    if kind == "fixed":
        return pa.list_(inner, 2), st.lists(inside, min_size=2, max_size=2)
    return (pa.large_list if kind == "large" else pa.list_)(inner), st.lists(inside, max_size=3)


def as_integers(stored: pa.DataType) -> pa.DataType:
    """Return the type with integers in place of times, so that pyarrow can convert Python integers to it."""
    types = pa.types
    if is_time(stored):
        return pa.int32() if stored.bit_width == 32 else pa.int64()
    if types.is_struct(stored):
        return pa.struct([field.with_type(as_integers(field.type)) for field in stored])
    if types.is_map(stored):
        return pa.map_(stored.key_type, as_integers(stored.item_type))
    if types.is_fixed_size_list(stored):
        return pa.list_(as_integers(stored.value_type), stored.list_size)
    if types.is_large_list(stored):
        return pa.large_list(as_integers(stored.value_type))
    return pa.list_(as_integers(stored.value_type)) if types.is_list(stored) else stored


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table with one column of a random type."""
    stored, values = draw(columns())
    rows = draw(st.lists(st.none() | values, max_size=6))
    try:
        return pa.table({"x": pa.array(rows, as_integers(stored)).cast(stored)})
    except pa.ArrowInvalid:  # Arrow's cast of lists with nulls makes columns that Arrow itself then rejects
        assume(False)
        raise


def without_lists_of_nulls(value: Any) -> Any:
    """Replace lists that contain only nulls with None: masked arrays of fixed size do not distinguish the two."""
    if not isinstance(value, list):
        return value
    items = [without_lists_of_nulls(item) for item in value]
    return None if items and all(item is None for item in items) else items


@given(tables(), st.integers(1, 4), st.booleans(), st.booleans())
@settings(max_examples=examples(150))
def test_plain_parquet_values_equal_pyarrows(
    table: pa.Table, rows_per_group: int, is_batched: bool, with_dictionary: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            pq.write_table(table, folder + "/x.parquet", row_group_size=rows_per_group, use_dictionary=with_dictionary)
        except (pa.ArrowNotImplementedError, IndexError):  # Arrow cannot write views, nor dictionaries in some structs
            assume(False)
        make = petastore.make_batch_reader if is_batched else petastore.make_reader
        with make(folder, shuffle_row_groups=False) as reader:
            given_out = [of_petastore(item.x) for item in reader]
            found = [value for column in given_out for value in column] if is_batched else given_out
        # One row group at a time, because Arrow cannot concatenate nested dictionaries of several row groups.
        with pq.ParquetFile(folder + "/x.parquet") as file:
            groups = [file.read_row_group(number).column("x") for number in range(file.num_row_groups)]
        expected = [value for group in groups for value in of_arrow(group)]
        assert list(map(without_lists_of_nulls, found)) == list(map(without_lists_of_nulls, expected))


NAMES = [
    "a.b",
    "a b",
    "class",
    "_id",
    "__dict__",
    "count",
    "index",
    "größe",
    "日本",
    "a/b",
    "x" * 300,
    "None",
    "0",
    "\t",
]


@pytest.mark.parametrize("make", [petastore.make_reader, petastore.make_batch_reader])
def test_plain_parquet_columns_can_have_any_name(tmp_path: Path, make: Any) -> None:
    table = pa.table({name: [number, number + 1] for number, name in enumerate(NAMES)})
    pq.write_table(table, tmp_path / "x.parquet")
    for columns in (None, NAMES):
        with make(str(tmp_path), columns, shuffle_row_groups=False) as reader:
            assert list(reader.schema.fields) == NAMES
            first = next(iter(reader))
            for number, name in enumerate(NAMES):
                assert of_petastore(first[name]) == of_petastore(
                    [number, number + 1] if reader.batched_output else number
                )


def test_plain_parquet_with_a_thousand_columns_is_read(tmp_path: Path) -> None:
    table = pa.table({f"c{number}": [number, None] for number in range(1000)})
    pq.write_table(table, tmp_path / "x.parquet")
    with petastore.make_reader(str(tmp_path), shuffle_row_groups=False) as reader:
        first, second = list(reader)
    assert list(first) == list(range(1000))
    assert set(second) == {None}


@pytest.mark.parametrize("make", [petastore.make_reader, petastore.make_batch_reader])
@pytest.mark.parametrize("rows", [0, 1])
def test_plain_parquet_without_rows_or_row_groups_is_read(tmp_path: Path, make: Any, rows: int) -> None:
    schema = pa.schema({"id": pa.int64(), "place": pa.struct({"x": pa.int8()})})
    pq.ParquetWriter(tmp_path / "a.parquet", schema).close()
    with pq.ParquetWriter(tmp_path / "b.parquet", schema) as writer:
        writer.write_table(schema.empty_table())
        writer.write_table(pa.table({"id": [7], "place": [{"x": 1}]}, schema=schema).slice(0, rows))
    with make(str(tmp_path)) as reader:
        assert [of_petastore(item.id) for item in reader] == of_petastore(
            ([[7]] if reader.batched_output else [7])[:rows]
        )


@pytest.mark.parametrize("make", [petastore.make_reader, petastore.make_batch_reader])
def test_plain_parquet_without_columns_raises(tmp_path: Path, make: Any) -> None:
    pq.write_table(pa.table({}), tmp_path / "x.parquet")
    with make(str(tmp_path)) as reader:
        assert (list(reader.schema), list(reader)) == ([], [])
