"""Tests of loading row groups: stacked, zero-copy and encoded columns all have the written values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastore.codecs.registry import codec_of
from petastore.decoding.buffers import Buffers
from petastore.readers.loaded.arena import Layout
from petastore.readers.loaded.row_group_reader import LoadedRowGroup, RowGroupReader
from petastore.storage.row_groups.asked_columns import Part

FIELDS = [
    UnischemaField("f4", np.float32),
    UnischemaField("g4", np.float32, (), None, True),
    UnischemaField("i8", np.int64, (), ScalarCodec("bigint")),
    UnischemaField("u1", np.uint8),  # stored as int16
    UnischemaField("flag", np.bool_, (), None, True),
    UnischemaField("at", np.dtype("M8[us]"), (), None, True),
    UnischemaField("word", str),
    UnischemaField("pair", np.float64, (2,)),
    UnischemaField("long", np.float32, (9, 5), NdarrayCodec()),
    UnischemaField("gone", np.float32, (9, 5), NdarrayCodec(), True),
    UnischemaField("zip", np.int32, (3,), CompressedNdarrayCodec()),
    UnischemaField("free", np.int32, (None,), NdarrayCodec()),
]
VIEW = Unischema("all", FIELDS)


def value(field: UnischemaField, row: int) -> Any:
    if field.nullable and row % 5 == 2:
        return None
    if field.numpy_dtype is str or field.name == "word":
        return f"w{row}"
    if field.name == "at":
        return np.datetime64(row, "us")
    shape = tuple(3 if size is None else size for size in field.shape)
    made = np.full(shape, row % 200).astype(field.dtype)
    return made if shape else made[()]


def table(rows: int) -> pa.Table:
    columns = {
        field.name: codec_of(field).encode_column([value(field, row) for row in range(rows)], field) for field in VIEW
    }
    return pa.table(columns)


def reading(stored: pa.Table, reads: list[Part] | None = None) -> Any:
    def read(parts: Sequence[Part]) -> Iterator[pa.Table]:
        for part in parts:
            if reads is not None:
                reads.append(part)
            asked = stored.select(list(part.columns))
            step = part.rows_at_once or max(stored.num_rows, 1)
            for first in range(0, max(stored.num_rows, 1), step):
                yield asked.slice(first, step).combine_chunks()

    return read


def loader(view: Unischema = VIEW, rows: int = 50) -> RowGroupReader:
    return RowGroupReader(Layout.of(view, rows=rows), view.fields, Buffers())


def seen(taken: RowGroupReader, row_group: LoadedRowGroup, field: UnischemaField, rows: Sequence[int]) -> list[Any]:
    """Return the values of some rows of a loaded row group."""
    if field.name in row_group.cells:
        cells = row_group.cells[field.name].take(pa.array(rows, pa.int64())).to_pylist()
        return [None if cell is None else codec_of(field).decode(field, cell) for cell in cells]
    number, place = taken.layout.places[field.name]
    at = row_group.place.places_of(np.array(rows), in_read_order=taken.layout.stacks[number].in_read_order)
    missing = row_group.missing.get(field.name)
    return [
        None if missing is not None and missing[row] else row_group.place.stacks[number][place][where]
        for row, where in zip(rows, at.tolist(), strict=True)
    ]


@given(st.integers(1, 400), st.integers(0, 9), st.booleans())
def test_loaded_row_group_has_the_values_that_were_written(rows: int, seed: int, in_read_order: bool) -> None:
    turns = np.random.RandomState(seed).permutation(rows) if in_read_order else None
    taken = loader(rows=rows)
    row_group = taken.load(rows, turns, reading(table(rows)))
    some = sorted({0, rows // 3, rows - 1})
    for field in VIEW:
        for row, found in zip(some, seen(taken, row_group, field, some), strict=True):
            np.testing.assert_array_equal(found, value(field, row), err_msg=f"{field.name} of row {row}")


def test_fixed_size_columns_are_stacked_on_loading_and_others_stay_encoded() -> None:
    taken = loader()
    row_group = taken.load(50, None, reading(table(50)))
    assert set(row_group.cells) == {"word", "zip", "free"}
    assert set(row_group.files) == {"zip"}
    assert set(row_group.missing) == {"g4", "flag", "at", "gone"}
    assert row_group.missing["g4"].tolist() == [row % 5 == 2 for row in range(50)]


def test_ragged_arrays_stay_encoded() -> None:
    field = UnischemaField("x", np.int32, (None,), NdarrayCodec(), True)
    one = np.zeros(3, np.int32)
    for other in (one, np.zeros(2, np.int32), np.zeros((3, 1), np.int32), None):
        cells = [None if each is None else NdarrayCodec().encode(UnischemaField("x", np.int32, np.shape(each)), each)
                 for each in (one, one, other)]  # fmt: skip
        row_group = loader(Unischema("s", [field])).load(3, None, reading(pa.table({"x": pa.array(cells)})))
        assert set(row_group.cells) == {"x"}


def test_loaded_row_group_keeps_only_selected_rows() -> None:
    taken = loader(Unischema("s", FIELDS[:1]))
    row_group = taken.load(50, np.array([7, 3]), reading(table(50)))
    places = row_group.place.places
    assert row_group.place.stacks[0].tolist() == [[7.0, 3.0]]
    assert places is not None
    assert (places[[7, 3]].tolist(), int((places >= 0).sum())) == ([0, 1], 2)


def test_columns_with_invalid_values_stay_encoded_on_loading() -> None:
    fields = [UnischemaField("a", np.float32), UnischemaField("b", np.float32), UnischemaField("c", np.uint8)]
    stored = pa.table(
        {"a": pa.array([1.0, 2.0], pa.float32()), "b": pa.array([1.0, None], pa.float32()), "c": pa.array([1, 300])}
    )
    taken = loader(Unischema("s", fields))
    row_group = taken.load(2, None, reading(stored))
    assert set(row_group.cells) == {"b", "c"}
    number, place = taken.layout.places["a"]
    assert row_group.place.stacks[number][place].tolist() == [1.0, 2.0]


def test_column_of_large_arrays_with_a_damaged_cell_stays_encoded() -> None:
    field = UnischemaField("x", np.float64, (1200, 100), NdarrayCodec())  # two rows are read at once
    good = [field.codec.encode(field, np.full((1200, 100), row, float)) for row in range(5)]  # type: ignore[union-attr]
    stored = pa.table({"x": pa.array([*good[:3], b"damaged", good[4]], pa.binary())})
    reads: list[Part] = []
    row_group = loader(Unischema("s", [field])).load(5, None, reading(stored, reads))
    assert reads == [Part(("x",), 2), Part(("x",))]
    assert row_group.cells["x"].to_pylist() == stored["x"].to_pylist()


def test_column_stacks_have_fewer_columns_for_larger_row_groups() -> None:
    many = Unischema("wide", [UnischemaField(f"c{number}", np.float64) for number in range(300)])
    assert {len(stack.names) for stack in Layout.of(many, rows=1_000_000).stacks} == {1}
    assert [len(stack.names) for stack in Layout.of(many, rows=100).stacks] == [64, 64, 64, 64, 44]
    assert Layout.of(many, rows=100, apart={"c0"}).encoded == ("c0",)


@pytest.mark.parametrize("rows", [0, 1])
def test_row_groups_of_0_and_1_rows_are_loaded(rows: int) -> None:
    taken = loader()
    row_group = taken.load(rows, None, reading(table(rows)))
    assert [stack.shape[1] for stack in row_group.place.stacks] == [rows] * len(row_group.place.stacks)


@pytest.mark.parametrize("length", [2, 1000, 5000])
@pytest.mark.parametrize("shuffle_rows", [False, True])
@pytest.mark.parametrize("filters", [None, [("id", ">", 37)]])
def test_arrays_of_loaded_row_groups_belong_to_their_rows(
    tmp_path: Path, length: int, shuffle_rows: bool, filters: Any
) -> None:
    """Rows of 16 bytes to 40 kB: only columns of short rows are stored in read order."""
    schema = Unischema("s", [UnischemaField("id", "int64"), UnischemaField("x", "float64", (length,), NdarrayCodec())])
    rows = ({"id": number, "x": np.full(length, number, float)} for number in range(400))
    petastore.write_dataset(tmp_path / "s", schema, rows, rows_per_row_group=130)
    asked = {
        "shuffle_rows": shuffle_rows,
        "shuffle_block_rows": 1,
        "interleave": 2,
        "filters": filters,
        "filter_cache": False,
    }
    with petastore.make_reader(tmp_path / "s", seed=3, num_epochs=2, **asked) as reader:
        seen = []
        for batch in reader.iter_batches(190):
            assert (batch["x"] == batch["id"][:, None]).all()
            seen += batch["id"].tolist()
    first = 0 if filters is None else 38
    assert sorted(seen) == sorted([*range(first, 400)] * 2)


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_row_group_loaded_by_several_tasks_equals_one_loaded_by_one(most: int) -> None:
    taken, turns = dataclasses.replace(loader(), piece_bytes=100), np.array([7, 3, 0])
    whole = taken.load(50, turns, reading(table(50)))
    tasks, finish = taken.loading(50, turns, reading(table(50)), most=most)
    assert len(tasks) == min(most, len(taken.layout.stacks))
    for task in reversed(tasks):
        task()
    made = finish()
    assert [stack.tolist() for stack in made.place.stacks] == [stack.tolist() for stack in whole.place.stacks]
    assert {name: cells.to_pylist() for name, cells in made.cells.items()} == {
        name: cells.to_pylist() for name, cells in whole.cells.items()
    }
    assert made.missing.keys() == whole.missing.keys()


def test_small_row_group_is_read_by_one_task() -> None:
    assert len(loader().loading(50, None, reading(table(50)), most=8)[0]) == 1
