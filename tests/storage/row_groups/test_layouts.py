"""Tests of converting Arrow columns so that rows can be taken: view types, dictionaries, nested columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from petastore import col, make_batch_reader, make_reader
from petastore.adapters.torch import MapDataset
from petastore.storage.files.location import Location
from petastore.storage.row_groups.asked_columns import is_pickable, pickable
from tests.storage.conftest import Put

WORDS = ["a", None, "a word that is longer than twelve bytes", ""]
COLUMNS = {
    "text": pa.array(WORDS, pa.string_view()),
    "bytes": pa.array([None if word is None else word.encode() for word in WORDS], pa.binary_view()),
    "in a list": pa.array([[word, "x"] for word in WORDS], pa.list_(pa.string_view())),
    "in a large list": pa.array([[word, "x"] for word in WORDS], pa.large_list(pa.string_view())),
    "in a list view": pa.array([[word, "x"] for word in WORDS], pa.list_view(pa.string_view())),
    "in a large list view": pa.array([[word, None] for word in WORDS], pa.large_list_view(pa.string_view())),
    "in a fixed list": pa.array([[word, "x"] for word in WORDS], pa.list_(pa.string_view(), 2)),
    "in a struct": pa.array([{"word": word} for word in WORDS], pa.struct({"word": pa.string_view()})),
    "a list view": pa.array([[1], [], None, [2, 3]], pa.list_view(pa.int64())),
    "plain": pa.array([1, 2, None, 4]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_converted_columns_have_equal_values_and_support_take(name: str) -> None:
    table = pickable(pa.table({name: COLUMNS[name]}))
    picked = table.column(0).combine_chunks().take(pa.array([3, 0, 2, 1]))
    values = COLUMNS[name].to_pylist()
    assert picked.to_pylist() == [values[row] for row in (3, 0, 2, 1)]


def test_table_without_view_types_is_not_converted() -> None:
    table = pa.table({"id": [1], "words": [["a"]]})
    assert pickable(table) is table


def test_view_types_inside_maps_are_converted() -> None:
    rows = [[("a", b"x"), ("b", None)], None, []]
    table = pa.table({"x": pa.array(rows, pa.map_(pa.string(), pa.binary_view()))})
    laid = pickable(table)
    assert laid.schema.field("x").type == pa.map_(pa.string(), pa.large_binary())
    assert laid.column("x").to_pylist() == rows
    assert laid.column("x").take([2, 0]).to_pylist() == [rows[2], rows[0]]
    assert is_pickable(pa.map_(pa.string(), pa.binary()))


@pytest.mark.parametrize("row_group_size", [30, 100])
def test_dictionary_indices_grow_beyond_8_bits(location: Location, put: Put, row_group_size: int) -> None:
    expected = [f"user {number}" for number in range(300)]
    for number in range(3):
        texts = pa.array(expected[100 * number : 100 * number + 100])
        cells = texts.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
        binary = texts.cast(pa.binary()).dictionary_encode().cast(pa.dictionary(pa.uint8(), pa.binary()))
        lists = pa.ListArray.from_arrays(pa.array(range(101), pa.int32()), cells)
        structs = pa.StructArray.from_arrays([cells], ["name"])
        columns = {"text": cells, "bytes": binary, "list": lists, "struct": structs}
        put(f"{number}.parquet", pa.table(columns), row_group_size=row_group_size)
    with make_batch_reader(location.url, shuffle_row_groups=False) as reader:
        (batch,) = reader.iter_batches(300)
    assert batch["text"].tolist() == expected
    assert batch["bytes"].tolist() == [text.encode() for text in expected]
    assert [cell.tolist() for cell in batch["list"]] == [[text] for text in expected]
    assert batch["struct"].tolist() == [{"name": text} for text in expected]
    with make_reader(location.url, filters=col("text") == "user 250", filter_cache=False) as reader:
        assert [row.text for row in reader] == ["user 250"]
    assert MapDataset(location.url).rows.take([299, 0])["text"].tolist() == ["user 299", "user 0"]
