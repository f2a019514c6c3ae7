"""Tests of list views: converted and written with equal values, also where pyarrow's cast loses some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore import Unischema, UnischemaField, open_dataset, write_dataset
from petastore.arrow import conformed
from petastore.codecs import VectorCodec
from petastore.writers.copying import copy_cells
from petastore.writers.generate import generate_metadata

LISTS = st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3), max_size=7)


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("wanted", [pa.list_, pa.large_list])
@given(data=st.data())
def test_list_views_become_lists_of_the_same_values(view: Any, wanted: Any, data: st.DataObject) -> None:
    values = data.draw(LISTS)
    cells = pa.array(values, view(pa.int32())).slice(data.draw(st.integers(0, len(values))))
    if len(cells) and data.draw(st.booleans()):
        picked = st.lists(st.integers(0, len(cells) - 1), max_size=4)
        cells = cells.take(pa.array(data.draw(picked), pa.int64()))
    found = conformed(cells, wanted(pa.int64()))
    found.validate(full=True)
    assert found.type == wanted(pa.int64())
    assert found.to_pylist() == cells.to_pylist()


def test_overlapping_list_views_become_lists_of_the_same_values() -> None:
    offsets, sizes = pa.array([2, 0, 1], pa.int32()), pa.array([1, 3, 0], pa.int32())
    cells = pa.ListViewArray.from_arrays(offsets, sizes, pa.array([7, 8, 9]))
    assert conformed(cells, pa.list_(pa.int64())).to_pylist() == cells.to_pylist() == [[9], [7, 8, 9], []]


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Return a strategy of values of a type, with nulls at each level."""
    types = pa.types
    if types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({member.name: values_of(member.type) for member in kind})
    if types.is_map(kind):
        pairs = st.dictionaries(st.sampled_from("ab"), values_of(kind.item_type), max_size=2)
        return st.none() | pairs.map(lambda pairs: list(pairs.items()))
    if types.is_fixed_size_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    if hasattr(kind, "value_type"):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    return st.none() | (st.text("ab", max_size=2) if types.is_large_string(kind) else st.integers(-9, 9))


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda view: view(pa.int32()),
        lambda view: view(view(pa.int32())),
        lambda view: view(pa.struct({"a": view(pa.large_string()), "b": pa.int8()})),
        lambda view: view(pa.list_(view(pa.int8()), 2)),
        lambda view: pa.struct({"a": view(pa.int64()), "b": pa.large_list(view(pa.int8()))}),
        lambda view: pa.list_(pa.struct({"a": view(pa.int64())})),
        lambda view: pa.list_(pa.struct({"a": view(pa.int64())}), 2),
        lambda view: pa.map_(pa.string(), view(pa.struct({"a": pa.list_(view(pa.int8()), 1)}))),
    ],
)
@given(data=st.data())
@settings(max_examples=20)
def test_written_list_views_have_the_values_of_the_input(
    wrap: Any, view: Any, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind = wrap(view)
    cells = pa.array(data.draw(st.lists(values_of(kind), min_size=1, max_size=5)), kind)
    cells = cells.slice(data.draw(st.integers(0, len(cells) - 1)))
    column = pa.chunked_array([cells, cells]) if data.draw(st.booleans()) else cells
    url = tmp_path_factory.mktemp("views") / "x"
    write_dataset(url, pa.table({"x": column}))
    assert open_dataset(url).to_arrow()["x"].to_pylist() == column.to_pylist()


VECTORS = Unischema("s", [UnischemaField("v", "float64", (None,), VectorCodec(), nullable=True)])


@pytest.mark.parametrize("list_type", [pa.list_, pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("rows", [4, 1])
def test_vectors_in_list_views_are_written_and_read(list_type: Any, rows: int, tmp_path: Path) -> None:
    members = {"indices": list_type(pa.int32()), "values": list_type(pa.float64())}
    vectors = [
        None,
        {"type": 1, "values": [1.0, 2.0]},
        {"type": 0, "size": 3, "indices": [1], "values": [5.0]},
        {"type": 1, "values": []},
    ]
    kind = pa.struct({"type": pa.int8(), "size": pa.int32(), **members})
    column = pa.array(vectors[:rows], kind)
    write_dataset(tmp_path / "x", VECTORS, {"v": column})
    pq.write_table(pa.table({"v": column}), tmp_path / "y.parquet")
    for dataset in (open_dataset(tmp_path / "x"), open_dataset(tmp_path / "y.parquet", schema=VECTORS)):
        assert dataset.to_arrow()["v"].to_pylist() == [None, [1.0, 2.0], [0.0, 5.0, 0.0], []][:rows]


def test_copied_list_views_have_the_values_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    values = [[1, 3], None, [2]]
    pq.write_table(pa.table({"x": pa.array(values, pa.list_view(pa.int32()))}), tmp_path / "x" / "0.parquet")
    generate_metadata(tmp_path / "x", open_dataset(tmp_path / "x").schema)
    copy_cells(tmp_path / "x", tmp_path / "y")
    assert open_dataset(tmp_path / "y").to_arrow()["x"].to_pylist() == values
