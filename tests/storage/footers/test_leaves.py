"""Tests of leaf columns: number and paths are those of the Parquet file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import MetadataError
from petastore.storage.footers.leaves import leaf_count, leaf_paths, leaves_by_column


def nested(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        children.map(pa.list_),
        children.map(pa.large_list),
        children.map(lambda item: pa.list_(item, 2)),
        st.tuples(children, children).map(lambda pair: pa.struct({"a": pair[0], "a.b": pair[1]})),
        children.map(lambda item: pa.map_(pa.string(), item)),
    )


TYPES = st.recursive(
    st.sampled_from([pa.int8(), pa.string(), pa.binary(4), pa.decimal128(9, 2), pa.timestamp("ns", "UTC")]),
    nested,
    max_leaves=6,
)


@given(st.lists(TYPES, min_size=1, max_size=4))
def test_number_of_leaf_columns_of_each_type_equals_the_file(types: list[pa.DataType]) -> None:
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(types)])
    sink = pa.BufferOutputStream()
    pq.write_metadata(schema, sink)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    read_back = metadata.schema.to_arrow_schema()
    ranges = leaves_by_column(read_back, metadata.num_columns, source="x")
    assert [leaf for leaves in ranges.values() for leaf in leaves] == list(range(metadata.num_columns))
    assert [len(leaves) for leaves in ranges.values()] == [leaf_count(kind) for kind in types]
    for name, leaves in ranges.items():
        paths = [metadata.schema.column(leaf).path for leaf in leaves]
        assert all(path == name or path.startswith(f"{name}.") for path in paths)


@pytest.mark.parametrize(
    ("kind", "count"),
    [(pa.dictionary(pa.int8(), pa.string()), 1), (pa.null(), 1), (pa.fixed_shape_tensor(pa.float32(), [2, 3]), 1)],
)
def test_leaf_column_count_of_extension_types_follows_the_storage_type(kind: Any, count: int) -> None:
    assert leaf_count(kind) == count


def test_leaf_columns_of_duplicate_names_are_not_found_by_name() -> None:
    schema = pa.schema([("x", pa.int8()), ("y", pa.int8()), ("x", pa.int8()), ("z", pa.int8()), ("x", pa.int8())])
    assert leaves_by_column(schema, 5, source="a.parquet") == {"y": range(1, 2), "z": range(3, 4)}


def test_footer_with_inconsistent_number_of_leaf_columns_raises() -> None:
    with pytest.raises(
        MetadataError, match=r"a\.parquet: the footer is damaged: it has 3 leaf columns, but its Arrow schema needs 1"
    ):
        leaves_by_column(pa.schema({"x": pa.int8()}), 3, source="a.parquet")


def test_leaf_paths_are_grouped_by_column() -> None:
    schema = pa.schema({"a.b": pa.int8(), "v": pa.list_(pa.int8())})
    assert leaf_paths(schema, ["a.b", "v.list.element"]) == {"a.b": ["a.b"], "v": ["v.list.element"]}
