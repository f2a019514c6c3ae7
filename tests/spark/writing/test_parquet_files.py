"""Tests of `write_files`: Parquet files of raw columns are encoded in the same way as columns from Spark."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs import NdarrayCodec
from petastore.errors import DatasetNotFoundError, InvalidArgumentError, PetastoreError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.spark.dataframe import encode_batch
from petastore.spark.writing.tasks import ParquetFiles

SCHEMA = Unischema(
    "steps",
    [
        UnischemaField("id", "int64"),
        UnischemaField("pose", "uint8", (2, 2), NdarrayCodec(), nullable=True),
        UnischemaField("name", str, nullable=True),
    ],
)


def raw(ids: list[int], kind: str) -> pa.Table:
    poses: list[Any] = [None if number % 3 == 0 else [number % 256, 1, 2, 3] for number in ids]
    shaped = {
        "flat": pa.array(poses, pa.list_(pa.uint8())),
        "nested": pa.array(
            [None if pose is None else [pose[:2], pose[2:]] for pose in poses], pa.large_list(pa.list_(pa.int16()))
        ),
        "bytes": pa.array([None if pose is None else bytes(pose) for pose in poses], pa.large_binary()),
    }
    names = pa.array([None if number % 2 else str(number) for number in ids], pa.string()).dictionary_encode()
    return pa.table({"name": names, "pose": shaped[kind], "id": pa.array(ids, pa.int32())})


def put(path: Path, table: pa.Table, **how: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **how)
    return path


@given(
    st.lists(st.lists(st.integers(-99, 99), max_size=9), min_size=1, max_size=3),
    st.sampled_from(["flat", "nested", "bytes"]),
    st.integers(1, 4),
)
def test_write_files_encodes_the_columns(files: list[list[int]], kind: str, group: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tables = [raw(ids, kind) for ids in files]
        for number, table in enumerate(tables):
            put(Path(folder, f"{number}.parquet"), table, row_group_size=group)
        found = pickle.loads(pickle.dumps(ParquetFiles.found_at(folder, SCHEMA)))  # noqa: S301 - our own
        cells = pa.Table.from_batches(found(range(len(files))), storage_schema(SCHEMA))
    plain = pa.concat_tables([table.set_column(0, "name", table["name"].cast(pa.string())) for table in tables])
    batch = plain.combine_chunks().to_batches()[0] if plain.num_rows else pa.RecordBatch.from_pylist([], plain.schema)
    assert cells.combine_chunks() == pa.Table.from_batches([encode_batch(batch, SCHEMA)]).combine_chunks()


def test_write_files_accepts_file_list_and_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [str(put(tmp_path / "raw" / f"{number}.parquet", raw([number], "flat"))) for number in range(2)]
    monkeypatch.chdir(tmp_path)
    assert ParquetFiles.found_at("raw", SCHEMA).urls == tuple(files)
    assert ParquetFiles.found_at(files[::-1], SCHEMA).urls == tuple(files[::-1])
    assert ParquetFiles.found_at(Path("raw/1.parquet"), SCHEMA).urls == (files[1],)
    assert ParquetFiles.found_at([Path(files[0]).as_uri()], SCHEMA).urls == (Path(files[0]).as_uri(),)


def test_write_files_uses_the_given_filesystem() -> None:
    store = fsspec.filesystem("memory")
    with store.open("/raw-files/a.parquet", "wb") as sink:
        pq.write_table(raw([4], "flat"), sink)
    for how in ({}, {"filesystem": store}):
        found = ParquetFiles.found_at("memory://raw-files", SCHEMA, **how)
        assert [cells["id"].to_pylist() for cells in found([0])] == [[4]]


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (
            ["part=1/a.parquet"],
            InvalidArgumentError,
            r"paths must have no columns in directory names, got part=1/a\.parquet of.*Write the DataFrame that",
        ),
        (
            ["other.parquet"],
            InvalidArgumentError,
            r"must have exactly the fields of schema 'steps', got 'name', 'pose', 'number': \['id'\] missing,",
        ),
        (
            ["extra.parquet"],
            InvalidArgumentError,
            r"must have exactly the fields of schema 'steps', got 'name', 'pose', 'id', 'more': \[\] missing,",
        ),
        (["nowhere.parquet"], DatasetNotFoundError, "there is nothing"),
        (["no.parquet"], PetastoreError, "no.parquet"),
    ],
)
def test_write_files_raises_for_unsupported_columns(
    tmp_path: Path, names: list[str], error: type[Exception], message: str
) -> None:
    put(tmp_path / "other" / "other.parquet", raw([1], "flat").rename_columns(["name", "pose", "number"]))
    put(tmp_path / "extra" / "extra.parquet", raw([1], "flat").append_column("more", pa.array([1])))
    put(tmp_path / "part" / "part=1" / "a.parquet", raw([1], "flat"))
    (tmp_path / "no").mkdir()
    (tmp_path / "no" / "no.parquet").write_bytes(b"no Parquet at all")
    place = {"part=1/a.parquet": tmp_path / "part"}.get(names[0], tmp_path / names[0].partition(".")[0] / names[0])
    with pytest.raises(error, match=message):
        ParquetFiles.found_at(place, SCHEMA)


def test_write_files_raises_for_a_directory_in_a_list(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path / f"{number % 2}" / f"{number}.parquet", raw([number], "flat"))
    with pytest.raises(
        InvalidArgumentError, match="paths must name each file once, or one directory, got 2 paths for 3 files of"
    ):
        ParquetFiles.found_at([tmp_path / "0", tmp_path / "1"], SCHEMA)
