"""Tests of `export`: Petastorm metadata for petastore datasets, or an error with the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import Unischema, UnischemaField, write_dataset
from petastore.codecs import NdarrayCodec, ScalarCodec
from petastore.errors import InvalidArgumentError, MetadataError, SchemaError
from petastore.interop import export, migrate
from petastore.storage.metadata.manifest import COMMON_METADATA
from petastore.storage.metadata.petastorm_index import PETASTORM_INDEX_KEY
from petastore.storage.metadata.petastorm_schema import PETASTORM_SCHEMA_KEY
from petastore.writers.generate import generate_metadata

SCHEMA = Unischema(
    "user",
    [
        UnischemaField("id", "int64", (), ScalarCodec("bigint")),
        UnischemaField("name", "str", (), None, True),
        UnischemaField("pose", "float32", (2, None), NdarrayCodec()),
    ],
)
POSE = np.ones((2, 3), "float32")
COUNTS_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    rows = [{"id": number, "name": None, "pose": POSE} for number in range(10)]
    write_dataset(tmp_path / "users", SCHEMA, rows, rows_per_row_group=3, rows_per_file=6)
    return tmp_path / "users"


def keys(folder: Path) -> dict[bytes, bytes]:
    return dict(pq.read_metadata(folder / COMMON_METADATA).metadata or {})


def test_exported_dataset_reads_without_petastores_metadata(dataset: Path, tmp_path: Path) -> None:
    export(dataset)
    before = petastore.open_dataset(dataset)
    theirs = tmp_path / "theirs"
    shutil.copytree(dataset, theirs, ignore=shutil.ignore_patterns("_petastore"))
    metadata = pq.read_metadata(theirs / COMMON_METADATA)
    with pq.ParquetWriter(theirs / COMMON_METADATA, metadata.schema.to_arrow_schema().remove_metadata()) as writer:
        petastorms = {key: value for key, value in keys(dataset).items() if key.startswith(b"dataset-toolkit")}
        writer.add_key_value_metadata(petastorms)
    after = petastore.open_dataset(theirs)
    assert (after.schema, after.inventory) == (before.schema, before.inventory)
    assert migrate(theirs).schema == SCHEMA


def test_export_counts_row_groups_per_file(dataset: Path) -> None:
    exported = export(dataset)
    assert exported.written == (COMMON_METADATA,)
    counts = json.loads(keys(dataset)[COUNTS_KEY])
    assert counts == {path.name: pq.read_metadata(path).num_row_groups for path in dataset.glob("*.parquet")}
    assert sorted(counts.values()) == [2, 2]


def test_export_keeps_petastores_metadata(dataset: Path) -> None:
    before, manifest = keys(dataset), (dataset / "_petastore" / "inventory.arrow").read_bytes()
    export(dataset)
    assert before.items() <= keys(dataset).items()
    assert (dataset / "_petastore" / "inventory.arrow").read_bytes() == manifest
    assert petastore.open_dataset(dataset).schema == SCHEMA


def test_export_dry_run_writes_nothing(dataset: Path) -> None:
    before = (dataset / COMMON_METADATA).read_bytes()
    assert export(dataset, dry_run=True).written == (COMMON_METADATA,)
    assert (dataset / COMMON_METADATA).read_bytes() == before


def test_export_is_idempotent_until_files_are_added(dataset: Path) -> None:
    export(dataset)
    assert export(dataset).written == ()
    write_dataset(dataset, SCHEMA, [{"id": 1, "name": "x", "pose": POSE}], mode="append")
    assert export(dataset).written == (COMMON_METADATA,)
    assert len(json.loads(keys(dataset)[COUNTS_KEY])) == 3


def test_export_keeps_equal_petastorm_metadata(fixtures_root: Path, tmp_path: Path) -> None:
    shutil.copytree(fixtures_root / "petastorm-legacy" / "0.7.6", tmp_path / "copy")
    migrate(tmp_path / "copy")
    pickled = keys(tmp_path / "copy")[PETASTORM_SCHEMA_KEY]
    export(tmp_path / "copy")
    assert keys(tmp_path / "copy")[PETASTORM_SCHEMA_KEY] == pickled


def test_export_rewrites_a_pickle_that_petastorm_cannot_read(fixtures_root: Path, tmp_path: Path) -> None:
    shutil.copytree(fixtures_root / "petastorm-legacy" / "0.5.1", tmp_path / "copy")
    schema = petastore.open_dataset(tmp_path / "copy").schema
    assert b"pyspark.serializers" in keys(tmp_path / "copy")[PETASTORM_SCHEMA_KEY]
    assert export(tmp_path / "copy").written == (COMMON_METADATA,)
    assert b"pyspark.serializers" not in keys(tmp_path / "copy")[PETASTORM_SCHEMA_KEY]
    assert petastore.open_dataset(tmp_path / "copy").schema == schema
    assert export(tmp_path / "copy").written == ()


def test_export_removes_a_stale_petastorm_index(dataset: Path) -> None:
    export(dataset)
    metadata = pq.read_metadata(dataset / COMMON_METADATA)
    with pq.ParquetWriter(dataset / COMMON_METADATA, metadata.schema.to_arrow_schema().remove_metadata()) as writer:
        writer.add_key_value_metadata({**(metadata.metadata or {}), PETASTORM_INDEX_KEY: b"an index"})
    assert export(dataset).written == ()
    assert PETASTORM_INDEX_KEY in keys(dataset)
    write_dataset(dataset, SCHEMA, [{"id": 1, "name": "x", "pose": POSE}], mode="append")
    export(dataset)
    assert PETASTORM_INDEX_KEY not in keys(dataset)


def test_export_rewrites_lost_common_metadata(dataset: Path) -> None:
    (dataset / COMMON_METADATA).unlink()
    export(dataset)
    assert PETASTORM_SCHEMA_KEY in keys(dataset)
    assert pq.read_schema(dataset / COMMON_METADATA).names == ["id", "name", "pose"]


def test_export_raises_for_plain_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match="must declare a schema, got none"):
        export(tmp_path)
    with pytest.raises(
        InvalidArgumentError, match="url must be a directory, because Petastorm's metadata belongs to one, got files:"
    ):
        export(tmp_path / "a.parquet")


def test_export_raises_for_files_not_in_the_dataset(dataset: Path) -> None:
    shutil.copy(next(dataset.glob("*.parquet")), dataset / "stray.parquet")
    with pytest.warns(UserWarning, match="stray"), pytest.raises(InvalidArgumentError, match=r"stray\.parquet"):
        export(dataset)


def test_export_raises_for_a_spark_summary_file(dataset: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), dataset / "_metadata")
    with pytest.raises(MetadataError, match="_metadata must not have row groups"):
        export(dataset)


@pytest.mark.parametrize(
    ("directories", "reason"),
    [
        (["n=1", "n=__HIVE_DEFAULT_PARTITION__"], "null"),
        (["n=a%3Ab"], "escape"),
        (["n=007", "n=+8"], "zeros or signs"),
    ],
)
def test_export_raises_for_partitions_that_petastorm_misreads(
    tmp_path: Path, directories: list[str], reason: str
) -> None:
    partitioned(tmp_path, directories)
    with pytest.raises(SchemaError, match=f"the partition column 'n': .*{reason}"):
        export(tmp_path)


@pytest.mark.parametrize("directories", [["n=1", "n=2"], ["n=a", "n=b"]])
def test_export_declares_partitions_as_columns(tmp_path: Path, directories: list[str]) -> None:
    partitioned(tmp_path, directories)
    exported = export(tmp_path)
    assert list(exported.schema.fields) == ["id", "n"]
    assert list(json.loads(keys(tmp_path)[COUNTS_KEY])) == [f"{directory}/a.parquet" for directory in directories]
    assert pq.read_schema(tmp_path / COMMON_METADATA).names == ["id"]


def partitioned(folder: Path, directories: list[str]) -> None:
    for directory in directories:
        (folder / directory).mkdir()
        pq.write_table(pa.table({"id": pa.array([1, 2])}), folder / directory / "a.parquet")
    given = [UnischemaField("id", "int64", nullable=True)]
    has_null = any("HIVE" in directory for directory in directories)
    is_text = not all(
        directory[2:].isdigit() and directory[2] != "0" for directory in directories if "H" not in directory
    )
    given.append(UnischemaField("n", "str" if is_text else "int64", nullable=has_null))
    generate_metadata(folder, Unischema("parts", given))
