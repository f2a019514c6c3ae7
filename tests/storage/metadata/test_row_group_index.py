"""Tests of stored row group indexes: round trip; stale, damaged and hostile indexes raise."""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from petastore.errors import DatasetChangedError, InvalidArgumentError, MetadataError
from petastore.indexers import RowGroupIndex
from petastore.inventory import DataFile, Inventory
from petastore.storage.files.location import Location, open_location
from petastore.storage.metadata import row_group_index
from petastore.storage.metadata.row_group_index import INDEXES, read_index, stored_index_names, write_indexes
from tests.tier import examples

GROUPS = {"rows": [5, 5], "stored_bytes": [9, 9], "decoded_bytes": [9, 9]}
FILES = [DataFile(f"part-{number}.parquet", 100 + number, f"{number:032x}") for number in range(3)]
INVENTORY = Inventory.concatenate([(file, GROUPS) for file in FILES])
INDEX = RowGroupIndex("by id", ("id",), [3, "a"], [[0, 5], [1]])
VALUES = [
    0, -1, 2**63, 10**30, True, 0.5, float("inf"), "", 'é\n"', b"", b"\xff\0", Decimal("-1.50"),
    np.datetime64("2026-01-31"), np.datetime64("2026-01-31T10:11:12.345678901", "ns"), np.timedelta64(-3, "us"),
]  # fmt: skip


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return open_location(tmp_path)


@settings(max_examples=examples(30))
@given(values=st.lists(st.sampled_from(VALUES), unique_by=repr))
def test_row_group_index_round_trips_values_of_every_type(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    location = open_location(tmp_path_factory.mktemp("index"))
    groups = [[place % 6, 5] if place % 6 != 5 else [5] for place in range(len(values))]
    write_indexes(location, INVENTORY, [RowGroupIndex("i", ("x", "y"), values, groups)])
    found = read_index(location, INVENTORY, "i")
    assert found is not None
    assert (found.index_name, found.column_names, list(found.row_groups)) == ("i", ("x", "y"), groups)
    assert list(map(repr, found.values or ())) == list(map(repr, values))


def test_not_null_index_round_trips(location: Location) -> None:
    write_indexes(location, INVENTORY, [RowGroupIndex("i", ("x",), None, [[2, 4]])])
    found = read_index(location, INVENTORY, "i")
    assert found is not None
    assert (found.values, found.get_row_group_indexes()) == (None, {2, 4})


def test_row_group_index_accepts_any_name_and_is_replaced(location: Location) -> None:
    for name in ("by id", "../up", "a/b", ".", "é%2F"):
        write_indexes(location, INVENTORY, [dataclasses.replace(INDEX, index_name=name)])
    write_indexes(location, INVENTORY, [dataclasses.replace(INDEX, index_name=".", values=["b"], row_groups=[[1]])])
    assert stored_index_names(location) == sorted([".", "../up", "a/b", "by id", "é%2F"])
    replaced = read_index(location, INVENTORY, ".")
    assert replaced is not None
    assert replaced.values == ["b"]
    assert {path.parent.name for path in Path(location.root).rglob("*.arrow")} == {"indexes"}
    with pytest.raises(InvalidArgumentError, match="index_name must have 1 to 200 characters after URL encoding, got"):
        write_indexes(location, INVENTORY, [dataclasses.replace(INDEX, index_name="é" * 100)])


def test_missing_row_group_index_returns_none(location: Location) -> None:
    assert stored_index_names(location) == []
    assert read_index(location, INVENTORY, "by id") is None


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (FILES[:2], r"part-2\.parquet is gone"),
        ([*FILES, DataFile("part-9.parquet", 1, "0" * 32)], r"part-9\.parquet was added"),
        ([*FILES[:2], dataclasses.replace(FILES[2], digest="f" * 32)], r"part-2\.parquet was rewritten"),
        ([dataclasses.replace(FILES[0], size=99), *FILES[1:]], r"part-0\.parquet was rewritten"),
    ],
)
def test_row_group_index_of_other_files_raises(location: Location, files: list[DataFile], message: str) -> None:
    write_indexes(location, INVENTORY, [INDEX])
    with pytest.raises(
        DatasetChangedError, match=f"'by id' is stale: since it was built, {message}.*build the index again"
    ):
        read_index(location, Inventory.concatenate([(file, GROUPS) for file in files]), "by id")


@pytest.mark.parametrize("value", [(1, 2), None, float("nan"), object(), np.datetime64("NaT")])
def test_row_group_index_raises_for_unsupported_values(location: Location, value: Any) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match="values of the index 'i' must be numbers, text, bytes, decimals, dates or times, got",
    ):
        write_indexes(location, INVENTORY, [RowGroupIndex("i", ("x",), [value], [[0]])])
    assert stored_index_names(location) == []


def test_row_group_index_that_cannot_be_read_back_raises(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    write_indexes(location, INVENTORY, [INDEX])
    monkeypatch.setattr(row_group_index, "MAX_BYTES", 500)
    with pytest.raises(MetadataError, match="fewer distinct values"):
        write_indexes(location, INVENTORY, [INDEX])
    with pytest.raises(MetadataError, match="must have at most 500 bytes, got"):
        read_index(location, INVENTORY, "by id")


GROUPS_TYPE = pa.list_(pa.field("element", pa.int32(), nullable=False))
"""The type of the list of row groups of a value."""


def written(location: Location, **changes: Any) -> None:
    """Write an index by hand, with some parts changed."""
    metadata = {
        "petastore.format": "petastore.row_group_index",
        "petastore.version": "1",
        "petastore.index": json.dumps({"name": "i", "columns": ["x"]}),
        "petastore.files": json.dumps([[file.path, file.size, file.digest, 2] for file in FILES]),
        **changes.get("metadata", {}),
    }
    value = pa.array(changes.get("value", ["3"]), pa.large_string())
    groups = pa.array(changes.get("row_groups", [[0]]), changes.get("type", GROUPS_TYPE))
    fields = [pa.field("value", pa.large_string(), nullable=False), pa.field("row_groups", groups.type, nullable=False)]
    schema = pa.schema(fields, metadata=metadata)
    path = Path(location.root) / INDEXES / "i.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    with ipc.new_file(path, schema) as writer:
        writer.write_batch(pa.record_batch([value, groups], schema=schema))


def test_handwritten_row_group_index_is_read(location: Location) -> None:
    written(location)
    found = read_index(location, INVENTORY, "i")
    assert found is not None
    assert (found.values, list(found.row_groups)) == ([3], [[0]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row_groups": [[6]]}, "row-group numbers must be from 0 to"),
        ({"row_groups": [[-1]]}, "row-group numbers must be from 0 to"),
        ({"row_groups": [None]}, "nulls"),
        ({"row_groups": [[None]], "type": pa.list_(pa.int32())}, "must have the columns"),
        ({"value": [None]}, "damaged"),
        ({"value": ["{"]}, "damaged"),
        ({"value": ['{"float": "x"}']}, "damaged"),
        ({"value": ['{"decimal": "x"}']}, "damaged"),
        ({"value": ['{"datetime64[Y]": "1"}']}, "the kind of an indexed value must be a known one"),
        ({"value": ["1,2"]}, "each text must be one JSON value, got 2 values in 1 texts"),
        ({"value": ["1", "2],[3"], "row_groups": [[0], [0]]}, "damaged"),
        ({"value": ['{"a": 1, "b": 2}']}, "an indexed value must be a literal or a dict"),
        ({"value": ["[1]"]}, "an indexed value must be a literal or a dict"),
        ({"value": ["[" * 100_000]}, "damaged"),
        ({"value": ["9" * 10_000]}, "damaged"),
        ({"metadata": {"petastore.format": "other"}}, "must have petastore.format='petastore.*', got 'other'"),
        ({"metadata": {"petastore.version": "0"}}, "must be an integer of at least 1, got '0'"),
        ({"metadata": {"petastore.version": "2", "petastore.needs": "petastore 9"}}, "install petastore 9"),
        (
            {"metadata": {"petastore.index": json.dumps({"name": "j", "columns": []})}},
            "the file must contain the index 'i', got 'j'",
        ),
        ({"metadata": {"petastore.index": "[]"}}, "damaged"),
        ({"metadata": {"petastore.files": "7"}}, "damaged"),
        ({"metadata": {"petastore.files": "["}}, "damaged"),
    ],
)
def test_damaged_row_group_index_raises(location: Location, changes: dict[str, Any], message: str) -> None:
    written(location, **changes)
    with pytest.raises(MetadataError, match=message):
        read_index(location, INVENTORY, "i")


def test_truncated_row_group_index_raises(location: Location) -> None:
    written(location)
    path = Path(location.root) / INDEXES / "i.arrow"
    data = path.read_bytes()
    for length in range(0, len(data), 16):
        path.write_bytes(data[:length])
        with pytest.raises(MetadataError):
            read_index(location, INVENTORY, "i")
