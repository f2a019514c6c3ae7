"""Tests of `generate_metadata`: existing Parquet files get a manifest, and a schema if one is given or stored."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.dataset.opening import open_dataset
from petastore.errors import DatasetNotFoundError, InvalidArgumentError, SchemaError
from petastore.storage.files.location import open_location
from petastore.storage.metadata.manifest import COMMON_METADATA, MANIFEST, read_manifest
from petastore.writers.generate import generate_metadata

FIELD = UnischemaField("pose", "float32", (2, 2), NdarrayCodec())
SCHEMA = Unischema("pose", [FIELD])


def write(folder: Path, name: str, rows: int, *, nullable: bool = False) -> None:
    folder.mkdir(exist_ok=True)
    poses = [np.full((2, 2), row, "float32") for row in range(rows)]
    cells = NdarrayCodec().encode_column(poses, FIELD)
    pq.write_table(pa.table([cells], schema=pa.schema([pa.field("pose", cells.type, nullable)])), folder / name)


def test_generate_metadata_writes_the_given_schema(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 3)
    write(tmp_path, "b.parquet", 4)
    assert petastore.open_dataset(tmp_path).schema != SCHEMA
    inventory = generate_metadata(tmp_path, SCHEMA)
    assert (inventory.num_rows, len(inventory.files)) == (7, 2)
    dataset = petastore.open_dataset(tmp_path)
    assert (dataset.schema, dataset.inventory) == (SCHEMA, inventory)
    with petastore.make_reader(tmp_path, shuffle_row_groups=False) as reader:
        assert [int(row.pose[1, 1]) for row in reader] == [0, 1, 2, 0, 1, 2, 3]


def test_generate_metadata_updates_the_file_list(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 3)
    generate_metadata(tmp_path, SCHEMA)
    (tmp_path / "a.parquet").unlink()
    write(tmp_path, "c.parquet", 5)
    assert generate_metadata(tmp_path).num_rows == 5
    assert petastore.open_dataset(tmp_path).schema == SCHEMA


def test_generate_metadata_rewrites_a_lost_manifest(tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "d", SCHEMA, [{"pose": np.zeros((2, 2), "float32")}] * 9, rows_per_row_group=4)
    (tmp_path / "d" / MANIFEST).unlink()
    (tmp_path / "d" / COMMON_METADATA).unlink()
    assert generate_metadata(tmp_path / "d").rows.tolist() == [4, 4, 1]
    assert petastore.open_dataset(tmp_path / "d").schema == SCHEMA


def test_generate_metadata_of_plain_parquet_keeps_inference(tmp_path: Path) -> None:
    table = pa.table(
        {"id": pa.array([1, 2], pa.uint32()), "tags": [{"a": 1}, None], "half": pa.array([1, 2], pa.float16())}
    )
    (tmp_path / "day=7").mkdir()
    pq.write_table(table, tmp_path / "day=7" / "a.parquet")
    before = petastore.open_dataset(tmp_path)
    assert generate_metadata(tmp_path) == before.inventory
    after = petastore.open_dataset(tmp_path)
    assert (tmp_path / MANIFEST).exists()
    assert not (tmp_path / COMMON_METADATA).exists()
    assert (after.schema, after.inventory, after.partition_names) == (before.schema, before.inventory, ("day",))


def test_generate_metadata_uses_petastorms_schema(tmp_path: Path, fixtures_root: Path) -> None:
    folder = tmp_path / "Meadow"
    shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", folder)
    before = petastore.open_dataset(folder)
    assert generate_metadata(folder) == before.inventory
    after = petastore.open_dataset(folder)
    assert after.has_schema_document
    assert set(after.schema) == set(before.schema)
    assert after.writer == "petastore generate_metadata"


def test_generate_metadata_raises_for_files_with_another_schema(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 3, nullable=True)
    with pytest.raises(SchemaError, match=r"a\.parquet must store column 'pose' as REQUIRED, .* got OPTIONAL"):
        generate_metadata(tmp_path, SCHEMA)
    assert not (tmp_path / MANIFEST).exists()


def test_manifest_has_the_schemas_of_files_that_differ(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 3)
    pq.write_table(pa.table({"pose": [1]}), tmp_path / "b.parquet")
    generate_metadata(tmp_path)
    manifest = read_manifest(open_location(tmp_path))
    assert manifest is not None
    assert manifest.schemas is not None
    assert manifest.schemas.of_files == (0, 1)
    assert (
        "in 1 file such as a.parquet and int64 in 1 file such as b.parquet" in open_dataset(tmp_path).unreadable["pose"]
    )


def test_generate_metadata_raises_without_files(tmp_path: Path) -> None:
    write(tmp_path / "d", "a.parquet", 3)
    with pytest.raises(InvalidArgumentError, match="dataset_url must be a directory, got the file"):
        generate_metadata(tmp_path / "d" / "a.parquet")
    with pytest.raises(DatasetNotFoundError):
        generate_metadata(tmp_path / "nothing")
