"""Tests of stored indexes: they are loaded by name, and a stale index raises an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import petastore
from petastore import open_dataset
from petastore.errors import DatasetChangedError
from petastore.indexing import FieldNotNullIndexer, SingleFieldIndexer, build_rowgroup_index, get_row_group_indexes
from tests.readers.small import SCHEMA, a_row, written


def test_dataset_without_indexes_returns_an_empty_dict(tmp_path: Path) -> None:
    assert get_row_group_indexes(written(tmp_path)) == {}


def test_built_index_is_found_by_name(tmp_path: Path) -> None:
    dataset = written(tmp_path)
    build_rowgroup_index(
        str(tmp_path), indexers=[SingleFieldIndexer("by_id", "id"), FieldNotNullIndexer("has_word", "word")]
    )
    found = get_row_group_indexes(open_dataset(str(tmp_path)))
    assert set(found) == {"by_id", "has_word"}
    assert found["by_id"].get_row_group_indexes(7) == {1}
    assert found["by_id"].get_row_group_indexes(99) == set()
    assert found["has_word"].get_row_group_indexes() == set(range(dataset.inventory.num_row_groups))


def test_stale_index_raises(tmp_path: Path) -> None:
    written(tmp_path / "data")
    build_rowgroup_index(str(tmp_path / "data"), indexers=[SingleFieldIndexer("by_id", "id")])
    petastore.write_dataset(str(tmp_path / "other"), SCHEMA, map(a_row, range(9)))
    shutil.copytree(tmp_path / "data" / "_petastore" / "indexes", tmp_path / "other" / "_petastore" / "indexes")
    with pytest.raises(DatasetChangedError, match="by_id"):
        get_row_group_indexes(open_dataset(str(tmp_path / "other")))
