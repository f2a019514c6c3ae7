"""Tests of committing files that a materialize block added; older unlisted files are ignored."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import DatasetNotFoundError, InvalidArgumentError, SchemaError
from petastore.inventory import Inventory
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.spark.writing.dataset_writer import BlockCommit
from petastore.storage.files.location import open_location
from petastore.storage.metadata.manifest import read_manifest

SCHEMA = Unischema("numbers", [UnischemaField("id", "int64")])


def put(path: Path, rows: int = 4, *, rows_per_group: int = 2, schema: Unischema = SCHEMA) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(rows)}, storage_schema(schema)), path, row_group_size=rows_per_group)


def block(folder: Path, *added: str, rows_per_row_group: int | None = None, schema: Unischema = SCHEMA) -> Inventory:
    """Run a block that adds files, as Spark would."""
    commit = BlockCommit(open_location(str(folder)), schema, "a test", rows_per_row_group)
    commit.begin()
    for name in added:
        put(folder / name, schema=schema)
    return commit.finish()


def names(inventory: Inventory) -> list[str]:
    return [file.path for file in inventory.files]


def test_materialize_blocks_extend_the_manifest(tmp_path: Path) -> None:
    assert names(block(tmp_path, "b.parquet")) == ["b.parquet"]
    assert names(block(tmp_path, "a.parquet")) == ["a.parquet", "b.parquet"]
    assert petastore.open_dataset(str(tmp_path)).inventory.num_rows == 8


def test_materialize_overwrite_removes_files_from_the_manifest(tmp_path: Path) -> None:
    block(tmp_path, "a.parquet")
    commit = BlockCommit(open_location(str(tmp_path)), SCHEMA, "a test", None)
    commit.begin()
    (tmp_path / "a.parquet").unlink()
    put(tmp_path / "b.parquet")
    assert names(commit.finish()) == ["b.parquet"]


def test_materialize_warns_about_files_of_a_failed_block(tmp_path: Path) -> None:
    block(tmp_path, "a.parquet")
    put(tmp_path / "left.parquet")
    with pytest.warns(UserWarning, match=r"1 existing files are not listed in a manifest \(left.parquet, …\)"):
        assert names(block(tmp_path, "b.parquet")) == ["a.parquet", "b.parquet"]
    manifest = read_manifest(open_location(str(tmp_path)))
    assert manifest is not None
    assert names(manifest.inventory) == ["a.parquet", "b.parquet"]


def test_materialize_without_a_manifest_commits_all_parquet(tmp_path: Path) -> None:
    put(tmp_path / "old.parquet")
    assert names(block(tmp_path, "new.parquet")) == ["new.parquet", "old.parquet"]


def test_materialize_block_that_wrote_nothing_raises(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError):
        block(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_materialize_with_another_schema_raises(tmp_path: Path) -> None:
    block(tmp_path, "a.parquet")
    other = Unischema("numbers", [UnischemaField("id", "int32")])
    with pytest.raises(
        SchemaError, match=r"the rows must have the schema of .*, got a difference: dtype of 'id' is 'int64'"
    ):
        block(tmp_path, "b.parquet", schema=other)
    manifest = read_manifest(open_location(str(tmp_path)))
    assert manifest is not None
    assert names(manifest.inventory) == ["a.parquet"]


def test_materialize_warns_once_about_row_groups_smaller_than_requested(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="error"):
        block(tmp_path, "a.parquet", rows_per_row_group=2)
    with pytest.warns(UserWarning, match=r"row group 0 of b.parquet has 2 rows, but rows_per_row_group=3 was") as told:
        block(tmp_path, "b.parquet", rows_per_row_group=3)
    assert len(told) == 1


def test_materialize_block_raises_for_spark_files_after_writer_methods(tmp_path: Path) -> None:
    block(tmp_path, "a.parquet")
    put(tmp_path / "left.parquet")
    commit = BlockCommit(open_location(str(tmp_path)), SCHEMA, "a test", None)
    commit.begin()
    petastore.write_dataset(tmp_path, SCHEMA, [{"id": 1}], mode="append")  # a commit of another writer
    commit.refuse_files()
    put(tmp_path / "b.parquet")
    with pytest.raises(
        InvalidArgumentError,
        match="a materialize_dataset block must write either with its writer's methods or with Spark, got 1 more files",
    ):
        commit.refuse_files()
