"""Tests of datasets written by Petastorm 0.5.1, 0.7.6 and 0.13.1: schema and values are read without unpickling."""

from __future__ import annotations

import io
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from petastore import Unischema, UnischemaField, make_batch_reader, make_reader
from petastore.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from petastore.dataset import open_dataset
from petastore.errors import MetadataError
from petastore.storage.files.location import open_location
from petastore.storage.metadata.manifest import write_common_metadata
from petastore.storage.metadata.petastorm_schema import PETASTORM_SCHEMA_KEY
from petastore.testing.codec_laws import assert_declared
from petastore.writers.commit import commit_dataset

ARRAYS = NdarrayCodec()
SHAPE = (32, 16, 3)
# The fields that both pickled legacy schemas have, written by hand.
COMMON = [
    UnischemaField("decimal", Decimal, (), ScalarCodec("decimal(10,9)")),
    UnischemaField("empty_matrix_string", bytes, (None,), ARRAYS),
    UnischemaField("id", "int64", (), ScalarCodec("bigint")),
    UnischemaField("id2", "int32", (), ScalarCodec("smallint")),
    UnischemaField("id_float", "float64", (), ScalarCodec("double")),
    UnischemaField("id_odd", bool, (), ScalarCodec("boolean")),
    UnischemaField("image_png", "uint8", SHAPE, CompressedImageCodec("png")),
    UnischemaField("matrix", "float32", SHAPE, ARRAYS),
    UnischemaField("matrix_nullable", "uint16", SHAPE, ARRAYS, nullable=True),
    UnischemaField("matrix_uint16", "uint16", SHAPE, ARRAYS),
    UnischemaField("partition_key", str, (), ScalarCodec("string")),
    UnischemaField("python_primitive_uint8", "uint8", (), ScalarCodec("smallint")),
    UnischemaField("sensor_name", str, (1,), ARRAYS),
    UnischemaField("string_array_nullable", str, (None,), ARRAYS, nullable=True),
]
ADDED = {
    "0.5.1": [UnischemaField("matrix_string", bytes, (None,), ARRAYS)],
    "0.7.6": [
        UnischemaField("integer_nullable", "int32", (), ScalarCodec("smallint"), nullable=True),
        UnischemaField("matrix_string", bytes, (None, None), ARRAYS),
        UnischemaField("matrix_uint32", "uint32", SHAPE, ARRAYS),
    ],
}
RELEASES = sorted(ADDED)


def plain_value(field: UnischemaField, cell: Any) -> Any:
    """Return the value of a cell, decoded by Pillow or NumPy instead of petastore."""
    if cell is None:
        return None
    if isinstance(field.codec, CompressedImageCodec):
        with Image.open(io.BytesIO(cell)) as opened:
            return np.asarray(opened)
    return np.load(io.BytesIO(cell), allow_pickle=False) if isinstance(field.codec, NdarrayCodec) else cell


def legacy(fixtures_root: Path, release: str) -> Path:
    return fixtures_root / "petastorm-legacy" / release


@pytest.mark.parametrize("release", RELEASES)
def test_petastorm_schema_is_read_with_all_fields(fixtures_root: Path, release: str) -> None:
    dataset = open_dataset(legacy(fixtures_root, release))
    expected = sorted(COMMON + ADDED[release], key=lambda field: field.name)
    assert dataset.schema == Unischema("TestSchema", expected)
    assert dataset.has_schema_document
    assert dataset.partition_names == ("partition_key",)


@pytest.mark.parametrize("release", RELEASES)
def test_petastorm_dataset_values_equal_other_libraries(fixtures_root: Path, release: str) -> None:
    folder = legacy(fixtures_root, release)
    cells = {
        row["id"]: row | {"partition_key": path.parent.name.removeprefix("partition_key=")}
        for path in folder.rglob("*.parquet")
        for row in pq.ParquetFile(path).read().to_pylist()
    }
    with make_reader(folder, workers_count=2) as reader:
        rows = {int(row.id): row for row in reader}
    assert rows.keys() == cells.keys() != set()
    for number, row in rows.items():
        for field in COMMON + ADDED[release]:
            found = getattr(row, field.name)
            wanted = plain_value(field, cells[number][field.name])
            assert (found is None) == (wanted is None)
            if found is not None:
                assert_declared(field, found)
                np.testing.assert_array_equal(found, wanted)


def test_petastorm_dataset_is_read_with_the_values_that_petastorm_reads(fixtures_root: Path) -> None:
    with np.load(fixtures_root / "petastorm-0.13.1" / "Meadow.expected.npz") as opened:
        expected = {name: opened[name] for name in opened.files}
    seen = set()
    with make_reader(fixtures_root / "petastorm-0.13.1" / "Meadow") as reader:
        for row in reader:
            for name, found in row._asdict().items():
                key = f"{row.id}/{name}"
                assert (found is None) == (key not in expected)
                if found is not None:
                    wanted = Decimal(str(expected[key])) if name == "price" else expected[key]
                    np.testing.assert_array_equal(found, wanted)
                    seen.add(key)
    assert seen == expected.keys()


def test_batch_reader_decodes_petastorm_datasets(fixtures_root: Path) -> None:
    with make_batch_reader(legacy(fixtures_root, "0.7.6"), schema_fields=["id", "matrix"]) as reader:
        batches = list(reader)
    assert sum(len(batch.id) for batch in batches) == 10
    assert all(batch.matrix.shape == (len(batch.id), *SHAPE) and batch.matrix.dtype == "float32" for batch in batches)


def test_single_partition_directory_is_read_without_its_column(fixtures_root: Path) -> None:
    folder = fixtures_root / "petastorm-0.13.1" / "Meadow"
    whole = open_dataset(folder).schema
    for part in (folder / "day=2026-02-01", min((folder / "day=2026-02-01").glob("*.parquet"))):
        dataset = open_dataset(part)
        assert dataset.schema == Unischema("Meadow", [field for field in whole if field.name != "day"])
        assert dataset.partition_names == ()


def test_committing_a_petastorm_dataset_keeps_its_pickled_schema(fixtures_root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "meadow"
    shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", folder)
    before = open_dataset(folder)
    commit_dataset(open_location(folder), before.schema, writer="a test")
    after = open_dataset(folder)
    assert (after.schema, after.writer) == (before.schema, "a test")
    assert PETASTORM_SCHEMA_KEY in pq.read_metadata(folder / "_common_metadata").metadata


def test_schema_document_takes_precedence_over_the_pickle(fixtures_root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "meadow"
    shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", folder)
    document = '{"format":"petastore.unischema","version":1,"name":"ours","fields":[]}'
    write_common_metadata(open_location(folder), pa.schema([]), document)
    assert open_dataset(folder).schema.name == "ours"


def test_pickle_with_unknown_classes_raises_when_opened(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "part-0.parquet")
    schema = pa.schema({"id": pa.int64()}, {PETASTORM_SCHEMA_KEY: b"cmypkg.codecs\nTheirCodec\n."})
    pq.write_metadata(schema, tmp_path / "_common_metadata")
    with pytest.raises(MetadataError, match=r"_common_metadata.*'mypkg.codecs.TheirCodec'"):
        open_dataset(tmp_path)
