"""Tests of committing files: each is checked against the schema, and the dataset changes atomically."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.codecs import NdarrayCodec
from petastore.dataset.opening import open_dataset
from petastore.errors import DatasetChangedError, DatasetNotFoundError, MetadataError, SchemaError, StorageError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.schema.document import dump_document
from petastore.storage.files.listing import list_data_files, writing_marker
from petastore.storage.files.location import Location, open_location
from petastore.storage.metadata.manifest import Manifest, read_manifest, read_schema_document, write_manifest
from petastore.writers.commit import commit_dataset, publish

SCHEMA = Unischema(
    "user",
    [
        UnischemaField("id", "int64"),
        UnischemaField("name", "str", nullable=True),
        UnischemaField("face", "uint8", (2, 2), NdarrayCodec()),
    ],
)
STORED = storage_schema(SCHEMA)


def table(rows: int = 3, schema: pa.Schema = STORED) -> pa.Table:
    columns = {"id": list(range(rows)), "name": [None] * rows, "face": [b"npy"] * rows}
    return pa.table(columns, schema)


def put(location: Location, path: str, content: pa.Table, **options: Any) -> None:
    full = location.join(path)
    location.filesystem.create_dir(full.rpartition("/")[0], recursive=True)
    with location.filesystem.open_output_stream(full) as sink:
        pq.write_table(content, sink, **options)


def test_commit_publishes_the_written_files(url: str) -> None:
    location = open_location(url)
    put(location, "part-1.parquet", table(5), row_group_size=2)
    put(location, "part-0.parquet", table(3))
    inventory = commit_dataset(location, SCHEMA, writer="a test")
    assert [file.path for file in inventory.files] == ["part-0.parquet", "part-1.parquet"]
    assert inventory.rows.tolist() == [3, 2, 2, 1]
    manifest = read_manifest(location)
    assert manifest == Manifest(inventory, dump_document("user", SCHEMA), "a test")
    assert read_schema_document(location) == dump_document("user", SCHEMA)


def test_commit_lists_only_the_given_files(url: str) -> None:
    location = open_location(url)
    for name in "abc":
        put(location, f"{name}.parquet", table())
    commit_dataset(location, SCHEMA, writer="all")
    inventory = commit_dataset(location, SCHEMA, files=["c.parquet", "a.parquet"], writer="two")
    assert [file.path for file in inventory.files] == ["a.parquet", "c.parquet"]
    assert read_manifest(location) == Manifest(inventory, dump_document("user", SCHEMA), "two")


def test_commit_accepts_partition_columns_missing_in_files(url: str) -> None:
    schema = Unischema("user", [*SCHEMA, UnischemaField("day", "datetime64[D]"), UnischemaField("n", "int32")])
    location = open_location(url)
    put(location, "day=2026-01-01/n=7/a.parquet", table())
    inventory = commit_dataset(location, schema, writer="x")
    assert inventory.files[0].partitions == (("day", "2026-01-01"), ("n", "7"))
    with location.filesystem.open_input_file(location.join("_common_metadata")) as source:
        assert pq.read_schema(source).names == ["id", "name", "face"]


@pytest.mark.parametrize(
    ("path", "field", "why"),
    [
        ("n=x/a.parquet", UnischemaField("n", "int32"), "the partition n=x must be int32"),
        ("n=__HIVE_DEFAULT_PARTITION__/a.parquet", UnischemaField("n", "int32"), "null partition of 'n'"),
        (
            "m=1/a.parquet",
            UnischemaField("n", "int32"),
            r"m=1/a\.parquet must have the column 'n', which the schema declares",
        ),
    ],
)
def test_commit_raises_for_partitions_not_in_the_schema(url: str, path: str, field: UnischemaField, why: str) -> None:
    location = open_location(url)
    put(location, path, table())
    with pytest.raises(SchemaError, match=why):
        commit_dataset(location, Unischema("user", [*SCHEMA, field]), writer="x")
    assert read_manifest(location) is None


def test_file_outside_partition_directories_needs_nullable_partition_field(url: str) -> None:
    location = open_location(url)
    put(location, "n=1/a.parquet", table())
    put(location, "b.parquet", table())
    with pytest.raises(SchemaError, match=r"b\.parquet must have the column 'n', which the schema declares"):
        commit_dataset(location, Unischema("user", [*SCHEMA, UnischemaField("n", "int64")]), writer="x")
    key = UnischemaField("n", "int64", nullable=True)
    commit_dataset(location, Unischema("user", [*SCHEMA, key]), writer="x")
    assert [row.n for row in open_dataset(url).head(columns=["n"])] == [None] * 3 + [1] * 2


def changed(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Schema:
    index = STORED.get_field_index(name)
    return STORED.set(index, pa.field(name, kind, nullable=nullable))


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (STORED.remove(0), r"b\.parquet must have the column 'id', which the schema declares, got 'name', 'face'"),
        (STORED.append(pa.field("age", pa.int8())), r"b\.parquet must have only columns of schema 'user', got 'age'"),
        (changed("id", pa.int32()), r"b\.parquet must store column 'id' as int64, like .*, got int32"),
        (changed("face", pa.string()), "must store column 'face' as binary, like .*, got string"),
        (changed("id", pa.int64(), nullable=True), r"b\.parquet must store column 'id' as REQUIRED, .* got OPTIONAL"),
    ],
)
def test_commit_raises_for_a_file_with_another_schema(url: str, stored: pa.Schema, why: str) -> None:
    location = open_location(url)
    put(location, "a.parquet", table())
    before = commit_dataset(location, SCHEMA, writer="before")
    put(location, "b.parquet", stored.empty_table())
    with pytest.raises(SchemaError, match=why):
        commit_dataset(location, SCHEMA, writer="after")
    manifest = read_manifest(location)
    assert manifest is not None
    assert (manifest.inventory, manifest.writer) == (before, "before")


def test_commit_accepts_required_columns_for_nullable_fields(url: str) -> None:
    location = open_location(url)
    put(location, "a.parquet", pa.table({"x": [1]}, pa.schema([pa.field("x", pa.int64(), nullable=False)])))
    schema = Unischema("x", [UnischemaField("x", "int64", nullable=True)])
    assert commit_dataset(location, schema, writer="x").num_rows == 1


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        (UnischemaField("x", "str", nullable=True), pa.large_string()),
        (UnischemaField("x", "str", nullable=True), pa.dictionary(pa.int8(), pa.string())),
        (UnischemaField("x", "bytes", nullable=True), pa.large_binary()),
        (UnischemaField("x", "bytes", nullable=True), pa.binary(4)),
        (UnischemaField("x", "datetime64[us]", nullable=True), pa.timestamp("ns")),
        (UnischemaField("x", "datetime64[us]", nullable=True), pa.timestamp("ms", "UTC")),
        (UnischemaField("x", "float32", (3,), nullable=True), pa.list_(pa.float32(), 3)),
        (UnischemaField("x", "float32", (None,), nullable=True), pa.large_list(pa.float32())),
        (UnischemaField("x", "float32", (None, 2), nullable=True), pa.list_(pa.list_(pa.float32()))),
        (UnischemaField("x", Decimal, nullable=True), pa.decimal128(38, 18)),
        (UnischemaField("x", "uint8", nullable=True), pa.int16()),
    ],
)
def test_commit_accepts_equivalent_arrow_types(tmp_path: Path, field: UnischemaField, stored: Any) -> None:
    location = open_location(tmp_path)
    put(location, "a.parquet", pa.schema({"x": stored}).empty_table())
    assert commit_dataset(location, Unischema("x", [field]), writer="x").num_rows == 0


def test_commit_accepts_int96_timestamps(tmp_path: Path) -> None:
    location = open_location(tmp_path)
    times = pa.table({"t": pa.array(np.array(["2026-01-01"], "M8[us]"))})
    put(location, "a.parquet", times, use_deprecated_int96_timestamps=True, store_schema=False)
    schema = Unischema("t", [UnischemaField("t", "datetime64[us]", nullable=True)])
    assert commit_dataset(location, schema, writer="x").num_rows == 1


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        (UnischemaField("x", Decimal, nullable=True), pa.decimal128(10, 2)),
        (UnischemaField("x", "float32", (3,), nullable=True), pa.list_(pa.float64(), 3)),
        (UnischemaField("x", "float32", (3,), nullable=True), pa.list_(pa.list_(pa.float32()))),
        (UnischemaField("x", "datetime64[D]", nullable=True), pa.timestamp("us")),
        (UnischemaField("x", "str", nullable=True), pa.binary()),
        (UnischemaField("x", "int64", nullable=True), pa.struct({"y": pa.int64()})),
        (UnischemaField("x", "int64", nullable=True), pa.map_(pa.string(), pa.int64())),
    ],
)
def test_commit_raises_for_a_column_stored_in_another_type(tmp_path: Path, field: UnischemaField, stored: Any) -> None:
    location = open_location(tmp_path)
    put(location, "a.parquet", pa.schema({"x": stored}).empty_table())
    with pytest.raises(SchemaError, match=r"a\.parquet must store column 'x' as .*, got "):
        commit_dataset(location, Unischema("x", [field]), writer="x")


def test_commit_raises_for_no_files_or_a_damaged_file(tmp_path: Path) -> None:
    location = open_location(tmp_path)
    with pytest.raises(DatasetNotFoundError):
        commit_dataset(open_location(tmp_path / "missing"), SCHEMA, writer="x")
    (tmp_path / "a.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(MetadataError, match=r"a\.parquet is not a Parquet"):
        commit_dataset(location, SCHEMA, writer="x")
    with pytest.raises(StorageError, match=r"gone\.parquet is missing"):
        commit_dataset(location, SCHEMA, files=["gone.parquet"], writer="x")


def test_commit_does_not_wait_for_unfinished_writes(url: str) -> None:
    location = open_location(url)
    token = "ab" * 16
    put(location, "a.parquet", table())
    put(location, f"part-00000-{token}.parquet", table())
    _mark(location, token)
    assert [file.path for file in commit_dataset(location, SCHEMA, writer="x").files] == ["a.parquet"]


def test_write_killed_after_its_commit_stays_committed(url: str) -> None:
    location = open_location(url)
    token = "cd" * 16
    name = f"part-00000-{token}.parquet"
    put(location, name, table())
    write_manifest(location, Manifest(commit_dataset(location, SCHEMA, writer="x"), None, "x"))
    _mark(location, token)
    put(location, "b.parquet", table())
    assert list_data_files(location) == ["b.parquet"]
    inventory = commit_dataset(location, SCHEMA, writer="x")
    assert [file.path for file in inventory.files] == ["b.parquet", name]
    assert list_data_files(location) == ["b.parquet", name]


def _mark(location: Location, token: str) -> None:
    location.filesystem.create_dir(location.join("_petastore"), recursive=True)
    with location.filesystem.open_output_stream(location.join(writing_marker(token))) as sink:
        sink.write(b"x")


def test_concurrent_commits_are_both_kept(url: str) -> None:
    location = open_location(url)
    put(location, "a.parquet", table())
    theirs = Manifest(commit_dataset(location, SCHEMA, writer="x"), None, "another")
    seen: list[str] = []

    def change() -> Manifest:
        now = read_manifest(location)
        assert now is not None
        seen.append(now.writer)
        if len(seen) == 1:
            write_manifest(location, theirs)
        return Manifest(now.inventory, None, f"after {now.writer}")

    publish(location, SCHEMA, change)
    assert seen == ["x", "another"]
    manifest = read_manifest(location)
    assert manifest is not None
    assert manifest.writer == "after another"


def test_commit_raises_after_five_conflicts_with_other_writers(url: str) -> None:
    location = open_location(url)
    put(location, "a.parquet", table())
    inventory = commit_dataset(location, SCHEMA, writer="x")
    calls: list[int] = []

    def change() -> Manifest:
        calls.append(1)
        write_manifest(location, Manifest(inventory, None, f"another, time {len(calls)}"))
        return Manifest(inventory, None, "mine")

    with pytest.raises(DatasetChangedError, match="other writers committed during all 5 attempts"):
        publish(location, SCHEMA, change)
    manifest = read_manifest(location)
    assert manifest is not None
    assert manifest.writer == "another, time 5"
