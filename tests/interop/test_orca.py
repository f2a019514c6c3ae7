"""Tests of BigDL Orca datasets: opened in place with `open_orca`, or converted; files are written in Orca's layout."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import UnischemaField
from petastore.codecs import CompressedImageCodec
from petastore.errors import InvalidArgumentError, MetadataError, SchemaError, StorageError
from petastore.interop.orca import convert_orca, open_orca, orca_schema
from petastore.writers.generate import generate_metadata
from tests.failing_files import FailingFiles

ROWS, CHUNK = 25, 8
IMAGE = UnischemaField("image", "uint8", (None, None, 3), CompressedImageCodec("jpeg"), nullable=True)


def picture(number: int) -> Any:
    return np.full((4 + number % 2, 5, 3), number * 9, np.uint8)


def points(number: int) -> Any:
    return np.arange(number % 3 + 1, dtype=np.float64)[:, None] * [1.0, 2.0]


def archive(array: Any) -> bytes:
    stored = io.BytesIO()
    np.savez_compressed(stored, arr=array)
    return stored.getvalue()


def write_as_orca(folder: Path) -> str:
    """Write the layout of Orca's `ParquetDataset.write`: chunks of rows, and JSON metadata that is not validated."""
    for begin in range(0, ROWS, CHUNK):
        numbers = range(begin, min(ROWS, begin + CHUNK))
        rows = {
            "image": [cv2.imencode(".png", picture(n))[1].tobytes() for n in numbers],
            "points": [archive(points(n)) for n in numbers],
            "label": pa.array(numbers, pa.int32()),
            "name": [f"row {n}" for n in numbers],
        }
        chunk = folder / f"chunk={begin // CHUNK}"
        chunk.mkdir(parents=True)
        pq.write_table(pa.table(rows), chunk / "part-00000.parquet")

    def field(kind: str, dtype: str, shape: list[int]) -> dict[str, Any]:
        return {
            "feature_type": {"__enum__": f"FeatureType.{kind}"},
            "dtype": {"__enum__": f"DType.{dtype}"},
            "shape": shape,
        }

    metadata = {
        "image": field("IMAGE", "FLOAT32", []),
        "points": field("NDARRAY", "FLOAT32", [2]),  # deliberately wrong: the arrays are float64, and of other shapes
        "label": field("SCALAR", "INT32", []),
        "name": field("SCALAR", "STRING", []),
    }
    (folder / "_orca_metadata").write_text(json.dumps(metadata))
    return str(folder)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return write_as_orca(tmp_path / "orca")


def check_rows(rows: list[Any]) -> None:
    assert sorted(int(row.label) for row in rows) == list(range(ROWS))
    for row in rows:
        number = int(row.label)
        assert (row.image == picture(number)).all()
        assert row.points.dtype == np.float64
        assert (row.points == points(number)).all()
        assert row.name == f"row {number}"


def test_open_orca_works_with_more_ranks_than_chunks(url: str) -> None:
    generate_metadata(url, orca_schema(url, fields=[IMAGE]))
    rows = []
    for rank in range(5):
        with petastore.make_reader(url, cur_shard=rank, shard_count=5) as reader:
            rows += list(reader)
    check_rows(rows)
    assert {int(row.chunk) for row in rows} == {0, 1, 2, 3}


class ReadOnlyFiles(FailingFiles):
    """Read-only in-memory filesystem."""

    def request(self, kind: str) -> None:
        super().request(kind)
        if kind in ("create", "write", "copy", "delete", "mkdir"):
            raise OSError(errno.EROFS, "read-only")


def test_open_orca_works_on_read_only_storage(url: str) -> None:
    files = ReadOnlyFiles()
    files.files = {
        f"orca/{path.relative_to(url)}": path.read_bytes() for path in Path(url).rglob("*.*") if path.is_file()
    }
    files.files["orca/_orca_metadata"] = (Path(url) / "_orca_metadata").read_bytes()
    with pytest.raises(StorageError, match="read-only"):
        generate_metadata("orca", orca_schema("orca", filesystem=files), filesystem=files)
    dataset = open_orca("orca", fields=[IMAGE], filesystem=files)
    rows = []
    for rank in range(5):
        with petastore.make_reader(dataset, cur_shard=rank, shard_count=5) as reader:
            rows += list(reader)
    check_rows(rows)
    assert {int(row.chunk) for row in rows} == {0, 1, 2, 3}


def test_orca_field_that_does_not_match_the_files_raises(url: str) -> None:
    with pytest.raises(
        SchemaError,
        match=r"column 'label' must be string, as UnischemaField\('label', str, .*, got int32\. Write the file",
    ):
        open_orca(url, fields=[UnischemaField("label", "str", nullable=True)])


def test_convert_orca_removes_chunks(url: str, tmp_path: Path) -> None:
    target = tmp_path / "ours"
    seen: list[int] = []
    inventory = convert_orca(url, target, fields=[IMAGE], rows_per_row_group=10, progress=seen.append)
    assert inventory.rows.tolist() == [10, 10, 5]
    assert seen == [10, 20, 25]
    with petastore.make_reader(target, shuffle_row_groups=False) as reader:
        assert list(reader.schema.fields) == ["image", "points", "label", "name"]
        check_rows(list(reader))


def test_orca_images_are_bytes_without_a_declared_codec(url: str) -> None:
    schema = orca_schema(url)
    assert schema["image"].dtype_name == "bytes"
    assert schema["points"].shape == (None, None)


def test_open_orca_raises_for_other_datasets(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "0.parquet")
    with pytest.raises(InvalidArgumentError, match="has no _orca_metadata"):
        orca_schema(tmp_path)


def test_orca_unknown_field_raises(url: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"fields must name fields of .*'image', 'points'.*got \['picture'\]"
    ):
        orca_schema(url, fields=[UnischemaField("picture", "uint8")])


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"image": 1}', '{"image": {"feature_type": {"__enum__": "FeatureType.SOUND"}}}',
     '{"sound": {"feature_type": {"__enum__": "FeatureType.IMAGE"}}}'],
)  # fmt: skip
def test_orca_damaged_metadata_raises(url: str, text: str) -> None:
    (Path(url) / "_orca_metadata").write_text(text)
    with pytest.raises(MetadataError, match="_orca_metadata"):
        orca_schema(url)


@pytest.mark.parametrize("cell", [b"no archive", archive(np.array([{}], object))])
def test_orca_cells_that_are_not_arrays_raise(url: str, cell: bytes) -> None:
    path = Path(url) / "chunk=0" / "part-00000.parquet"
    table = pq.read_table(path, partitioning=None)
    cells = [cell, *table["points"].to_pylist()[1:]]
    pq.write_table(table.set_column(1, "points", pa.array(cells, pa.binary())), path)
    with pytest.raises((MetadataError, SchemaError), match=r"column 'points', row 0"):
        orca_schema(url)


def test_orca_missing_array_is_skipped_for_inference(url: str) -> None:
    path = Path(url) / "chunk=0" / "part-00000.parquet"
    table = pq.read_table(path, partitioning=None)
    cells = pa.array([None, *table["points"].to_pylist()[1:]], pa.binary())
    pq.write_table(table.set_column(1, "points", cells), path)
    with pytest.raises(
        SchemaError,
        match=r"the first row must have an array in 'points', from which petastore takes the dtype, got none\. Declare",
    ):
        orca_schema(url)
