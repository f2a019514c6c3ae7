"""Tests of the manifest: round trip, atomic replacement, and rejection of invalid or damaged manifests."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

import petastore
from petastore.errors import MetadataError, StorageError
from petastore.inventory import DataFile, Inventory
from petastore.readers.random_access import RandomAccess
from petastore.schema.file_schemas import FileSchemas
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footers import inventory_of, read_footers
from petastore.storage.metadata.manifest import (
    COMMON_METADATA,
    MANIFEST,
    Manifest,
    looked_around,
    manifest_token,
    read_manifest,
    read_schema_document,
    write_common_metadata,
    write_manifest,
)
from tests.storage.conftest import Put

SCHEMA = pa.schema({"x": pa.int8()})

names = st.text(st.characters(exclude_characters="/\\\0:", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name not in {".", ".."}
)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
partitions = st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4) | st.none()), max_size=2).map(tuple)
counts = st.lists(st.tuples(*[st.integers(0, 2**40)] * 3), max_size=4)
digests = st.just("") | st.text("0123456789abcdef", min_size=32, max_size=32)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    parts = []
    for path in draw(st.lists(paths, max_size=4, unique=True)):
        file = DataFile(path, draw(st.integers(0, 2**50)), draw(digests), draw(partitions))
        groups = np.array(draw(counts), dtype=np.int64).reshape(-1, 3)
        parts.append((file, dict(zip(("rows", "stored_bytes", "decoded_bytes"), groups.T, strict=True))))
    return Inventory.concatenate(parts)


@given(inventories(), st.none() | st.text(max_size=20), st.text(max_size=10))
def test_manifest_round_trips(inventory: Inventory, document: str | None, writer: str) -> None:
    location = open_location("memory://manifest-law")
    write_manifest(location, Manifest(inventory, document, writer))
    manifest = read_manifest(location)
    assert manifest is not None
    assert manifest.inventory == inventory
    assert manifest.inventory.files == inventory.files
    assert (manifest.schema_document, manifest.writer) == (document, writer)


def some_inventory(*paths: str) -> Inventory:
    groups = {name: [3, 4] for name in ("rows", "stored_bytes", "decoded_bytes")}
    return Inventory.concatenate([(DataFile(path, 100, "ab" * 16), groups) for path in paths])


def test_missing_manifest_returns_none(location: Location) -> None:
    assert read_manifest(location) is None
    assert manifest_token(location) is None


def test_manifest_is_ignored_for_single_files(tmp_path: Path) -> None:
    write_manifest(open_location(tmp_path), Manifest(some_inventory("a.parquet"), None, "x"))
    (tmp_path / "a.parquet").write_bytes(b"x")
    assert read_manifest(open_location(tmp_path / "a.parquet")) is None


def test_manifest_token_changes_with_the_manifest(location: Location) -> None:
    write_manifest(location, Manifest(some_inventory("a.parquet"), None, "x"))
    first = manifest_token(location)
    write_manifest(location, Manifest(some_inventory("b.parquet"), None, "x"))
    assert first is not None
    assert manifest_token(location) not in {first, None}


def test_manifest_write_leaves_no_temporary_files(tmp_path: Path) -> None:
    for _ in range(2):
        write_manifest(open_location(tmp_path), Manifest(some_inventory("a.parquet"), None, "x"))
    assert [path.name for path in (tmp_path / "_petastore").iterdir()] == ["inventory.arrow"]


def test_failed_manifest_write_keeps_the_old_manifest(tmp_path: Path) -> None:
    location = open_location(tmp_path)
    old = Manifest(some_inventory("a.parquet"), None, "old")
    write_manifest(location, old)
    (tmp_path / "_petastore").rename(tmp_path / "kept")
    (tmp_path / "_petastore").write_bytes(b"in the way")
    with pytest.raises(StorageError, match=r"cannot make the directory _petastore"):
        write_manifest(location, Manifest(some_inventory("b.parquet"), None, "new"))
    (tmp_path / "_petastore").unlink()
    (tmp_path / "kept").rename(tmp_path / "_petastore")
    assert read_manifest(location) == old


def test_unlisted_files_are_found(location: Location, put: Put) -> None:
    put("a.parquet", b"x")
    put("day=1/extra.parquet", b"x")
    manifest = Manifest(some_inventory("a.parquet", "gone.parquet"), None, "x")
    assert looked_around(location, manifest).strangers == ["day=1/extra.parquet"]


def test_empty_directory_has_no_unlisted_files(tmp_path: Path) -> None:
    assert looked_around(open_location(tmp_path), Manifest(some_inventory("a.parquet"), None, "x")) == ([], {})


def test_read_manifest_runs_no_loop_over_row_groups(tmp_path: Path) -> None:
    files, groups = 10_000, 100
    numbers = np.arange(files * groups)
    inventory = Inventory(
        tuple(DataFile(f"day=1/part-{number:05d}.parquet", 10**8, f"{number:032x}") for number in range(files)),
        (numbers // groups).astype(np.int32),
        (numbers % groups).astype(np.int32),
        numbers,
        numbers,
        numbers,
    )
    location = open_location(tmp_path)
    write_manifest(location, Manifest(inventory, "{}", "x"))
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        manifest = read_manifest(location)
    finally:
        sys.settrace(before)
    assert manifest is not None
    assert manifest.inventory.num_row_groups == 1_000_000
    assert lines < 50 * files


GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize(("name", "is_sealed"), [("with", True), ("without", False)])
def test_manifest_format_is_stable(location: Location, put: Put, name: str, is_sealed: bool) -> None:
    put(MANIFEST, (GOLDEN / f"inventory-1-{name}-digest.arrow").read_bytes())
    manifest = read_manifest(location)
    assert manifest is not None
    one = DataFile("a=1/one.parquet", 100, "ab" * 16, (("a", "1"),))
    two = DataFile("a=2/two.parquet", 7, "", (("a", "2"),))
    found = manifest.inventory
    assert found.files == (one, two)
    assert (found.rows.tolist(), found.file.tolist(), found.ordinal.tolist()) == ([5, 4, 3], [0, 0, 1], [0, 1, 0])
    assert (found.stored_bytes.tolist(), found.decoded_bytes.tolist()) == ([50, 40, 6], [500, 400, 60])
    assert (manifest.schema_document, manifest.writer) == ('{"x": "é"}', "petastore 0.1.0 by hand")
    assert manifest.is_sealed is is_sealed


def test_bit_flip_in_a_manifest_raises(location: Location, put: Put) -> None:
    data = bytearray((GOLDEN / "inventory-1-with-digest.arrow").read_bytes())
    for place in range(0, len(data), 3):
        data[place] ^= 1 << place % 8
        put(MANIFEST, bytes(data))
        with pytest.raises(MetadataError, match=r"inventory\.arrow is damaged.*generate-metadata"):
            read_manifest(location)
        data[place] ^= 1 << place % 8


GOOD: dict[str, Any] = {
    "path": pa.array(["a.parquet", "b/c.parquet"]),
    "size": pa.array([10, 20], pa.int64()),
    "digest": pa.array(["", "0" * 32]),
    "partitions": pa.array([[], [("k", None)]], pa.map_(pa.string(), pa.string())),
    **{
        name: pa.array([[1, 2], [3]], pa.list_(pa.field("element", pa.int64(), nullable=False)))
        for name in ("rows", "stored_bytes", "decoded_bytes")
    },
}
METADATA = {"petastore.format": "petastore.inventory", "petastore.version": "1", "petastore.needs": "petastore 0.1.0"}


def encoded(columns: dict[str, Any] | None = None, metadata: dict[str, str] | None = None, **changed: Any) -> bytes:
    table = pa.table({**(GOOD if columns is None else columns), **changed})
    table = table.replace_schema_metadata(METADATA if metadata is None else metadata)
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def lists(*values: Any, kind: Any = None) -> pa.Array:
    return pa.array(values, kind or GOOD["rows"].type)


def test_handwritten_manifest_is_read(location: Location, put: Put) -> None:
    put(MANIFEST, encoded(extra=pa.array([1, 2])))  # columns of later releases are ignored
    manifest = read_manifest(location)
    assert manifest is not None
    assert manifest.inventory.rows.tolist() == [1, 2, 3]
    assert manifest.inventory.file.tolist() == [0, 0, 1]
    assert manifest.inventory.ordinal.tolist() == [0, 1, 0]
    assert manifest.inventory.files[1] == DataFile("b/c.parquet", 20, "0" * 32, (("k", None),))
    assert (manifest.schema_document, manifest.writer) == (None, "")


BAD: dict[str, Callable[[], bytes]] = {
    "is damaged": lambda: b"",
    "is damaged: ": lambda: b"ARROW1\0\0 and then nothing of sense",
    "must have petastore.format='petastore.*', got 'none'": lambda: encoded(metadata={}),
    "must have petastore.format='petastore.*', got 'x'": lambda: encoded(
        metadata={**METADATA, "petastore.format": "x"}
    ),
    "must be an integer of at least 1, got '0'": lambda: encoded(metadata={**METADATA, "petastore.version": "0"}),
    "must be an integer of at least 1, got 'x'": lambda: encoded(metadata={**METADATA, "petastore.version": "x"}),
    "has version 2, but this release of petastore reads only up to 1; install petastore 9.9": lambda: encoded(
        metadata={**METADATA, "petastore.version": "2", "petastore.needs": "petastore 9.9"}
    ),
    "must have one column 'rows' of type .*, got none": lambda: encoded(
        {name: GOOD[name] for name in GOOD if name != "rows"}
    ),
    "must have one column 'size' of type int64, got int32": lambda: encoded(size=pa.array([1, 2], pa.int32())),
    "'path' must not have nulls, got 1": lambda: encoded(path=pa.array(["a", None])),
    "'size' must not have nulls, got 1": lambda: encoded(size=pa.array([1, None], pa.int64())),
    "'rows' must not have nulls, got 1": lambda: encoded(rows=lists([1, 2], None)),
    "the sum of column 'rows' must be at most .*, got 1.38e.19": lambda: encoded(rows=lists([2**62, 2**62], [2**62])),
    "'stored_bytes' must have values of at least 0, got -1": lambda: encoded(stored_bytes=lists([1, -1], [3])),
    "must have one entry for each row group of a file": lambda: encoded(decoded_bytes=lists([1], [2, 3])),
    "the size of 'a' must be at least 0 bytes, got -1": lambda: encoded(
        path=pa.array(["a", "b"]), size=pa.array([-1, 2], pa.int64())
    ),
    "a digest must be 32 hexadecimal digits, got 'xyz' for 'b/c.parquet'": lambda: encoded(
        digest=pa.array(["", "xyz"])
    ),
    "files must be sorted by path and listed once": lambda: encoded(path=pa.array(["b", "a"])),
    "got 'a' after 'a'": lambda: encoded(path=pa.array(["a", "a"])),
}


@pytest.mark.parametrize("why", BAD)
def test_invalid_manifest_raises(location: Location, put: Put, why: str) -> None:
    put(MANIFEST, BAD[why]())
    with pytest.raises(MetadataError, match=why) as refused:
        read_manifest(location)
    assert MANIFEST in str(refused.value)


@pytest.mark.parametrize(
    "path",
    [
        "../a.parquet", "b/../../a", "/etc/passwd", "", "a//b", "./a", "a/.", "a\\..\\..\\b", "..", "a/", "C:/a", "c:a",
        "s3://bucket/a", "file:/etc/passwd", "a\0b",
    ],
)  # fmt: skip
def test_manifest_path_outside_the_dataset_raises(location: Location, put: Put, path: str) -> None:
    put(MANIFEST, encoded(path=pa.array([path, "~"])))
    with pytest.raises(
        MetadataError, match=r"a path must (be relative, inside the dataset|not begin with a URL scheme)"
    ):
        read_manifest(location)
    with pytest.raises(
        MetadataError, match=r"a path must (be relative, inside the dataset|not begin with a URL scheme)"
    ):
        write_manifest(location, Manifest(some_inventory(path), None, "x"))


@given(st.data())
def test_manifest_with_changed_bytes_parses_or_raises(data: st.DataObject) -> None:
    location = open_location("memory://manifest-damage")
    whole = bytearray(encoded())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(whole), len(whole) // 2]))
    location.filesystem.create_dir(location.join("_petastore"), recursive=True)
    with location.filesystem.open_output_stream(location.join(MANIFEST)) as sink:
        sink.write(bytes(whole[:end]))
    try:
        manifest = read_manifest(location)
    except MetadataError:
        return
    assert manifest is not None
    inventory = manifest.inventory
    assert (inventory.rows >= 0).all()
    assert (inventory.ordinal >= 0).all()
    assert set(inventory.file.tolist()) <= set(range(len(inventory.files)))


def test_too_large_manifest_raises_before_reading(tmp_path: Path) -> None:
    path = tmp_path / MANIFEST
    path.parent.mkdir()
    with path.open("wb") as sparse:
        os.truncate(sparse.fileno(), (1 << 30) + 1)
    with pytest.raises(MetadataError, match="must have at most 1,073,741,824 bytes, got 1,073,741,825"):
        read_manifest(open_location(tmp_path))


def test_common_metadata_contains_the_schema_document_once(location: Location) -> None:
    assert read_schema_document(location) is None
    write_common_metadata(location, SCHEMA, '{"x": "é"}')
    assert read_schema_document(location) == '{"x": "é"}'
    with location.filesystem.open_input_file(location.join(COMMON_METADATA)) as source:
        metadata = pq.read_metadata(source)
    assert metadata.metadata == {b"petastore.unischema": '{"x": "é"}'.encode()}
    assert (metadata.num_rows, metadata.num_row_groups) == (0, 0)
    assert metadata.schema.to_arrow_schema() == SCHEMA


def test_common_metadata_keeps_keys_of_other_tools(location: Location) -> None:
    pickled = b"\x80\x04\xff not text"
    with location.filesystem.open_output_stream(location.join(COMMON_METADATA)) as sink:
        pq.write_metadata(SCHEMA.with_metadata({"dataset-toolkit.unischema.v1": pickled, "mine": "yes"}), sink)
    write_common_metadata(location, SCHEMA, "one")
    write_common_metadata(location, SCHEMA, "two")
    with location.filesystem.open_input_file(location.join(COMMON_METADATA)) as source:
        metadata = pq.read_metadata(source).metadata
    assert metadata == {b"dataset-toolkit.unischema.v1": pickled, b"mine": b"yes", b"petastore.unischema": b"two"}


def test_hadoop_checksum_of_a_replaced_file_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "._common_metadata.crc").write_bytes(b"crc")
    write_common_metadata(open_location(tmp_path), SCHEMA, "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["_common_metadata"]


def test_damaged_common_metadata_raises_and_is_replaced(location: Location, put: Put) -> None:
    put(COMMON_METADATA, b"no parquet at all")
    with pytest.raises(
        MetadataError,
        match=r"_common_metadata is not a Parquet file: it must end with b'PAR1', got b' all'\. If another program",
    ):
        read_schema_document(location)
    write_common_metadata(location, SCHEMA, "{}")
    assert read_schema_document(location) == "{}"


def test_schema_document_that_is_not_text_raises(location: Location) -> None:
    with location.filesystem.open_output_stream(location.join(COMMON_METADATA)) as sink:
        pq.write_metadata(SCHEMA.with_metadata({"petastore.unischema": b"\xff\xfe"}), sink)
    with pytest.raises(MetadataError, match="the schema document must be UTF-8"):
        read_schema_document(location)


def test_manifests_compare_by_value() -> None:
    one = Manifest(some_inventory("a.parquet"), None, "x")
    assert one == Manifest(some_inventory("a.parquet"), None, "x")
    assert one != dataclasses.replace(one, writer="y")


def a_dataset_whose_manifest_says(folder: Path, **changed: Any) -> None:
    """Write two files of 9 and 3 rows, and a manifest without a digest whose columns can be changed."""
    for name, rows in (("a.parquet", 9), ("b.parquet", 3)):
        pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), folder / name, row_group_size=5)
    location = open_location(folder)
    inventory = inventory_of(read_footers(location, ["a.parquet", "b.parquet"]))
    columns = {
        **GOOD,
        "path": pa.array([file.path for file in inventory.files]),
        "size": pa.array([file.size for file in inventory.files], pa.int64()),
        "digest": pa.array([file.digest for file in inventory.files]),
        "partitions": pa.array([[], []], GOOD["partitions"].type),
        "rows": lists([5, 4], [3]),
        **{name: lists([80, 64], [48]) for name in ("stored_bytes", "decoded_bytes")},
    }
    (folder / MANIFEST).parent.mkdir()
    (folder / MANIFEST).write_bytes(encoded({**columns, **changed}))


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "one row more": ({"rows": lists([5, 5], [3])}, "5 rows in row group 1 of a.parquet, but the file's footer has 4"),
    "one row less": ({"rows": lists([4, 4], [3])}, "4 rows in row group 0 of a.parquet, but the file's footer has 5"),
    "a high bit": (
        {"rows": lists([65541, 4], [3])},
        "65,541 rows in row group 0 of a.parquet, but the file's footer has 5",
    ),
    "the highest bit": (
        {"rows": lists([5 + 2**61, 4], [3])},
        "rows in row group 0 of a.parquet, but the file's footer has 5",
    ),
    "no rows of a file": (
        {"rows": lists([5, 4], [0])},
        "0 rows in row group 0 of b.parquet, but the file's footer has 3",
    ),
    "one row group less": (
        {name: lists([5], [3]) for name in ("rows", "stored_bytes", "decoded_bytes")},
        "1 row groups in a.parquet, but the file's footer has 2",
    ),
    "no row group of a file": (
        {name: lists([5, 4], []) for name in ("rows", "stored_bytes", "decoded_bytes")},
        "0 row groups in b.parquet, but the file's footer has 1",
    ),
    "one row group more": (
        {name: lists([5, 4, 4], [3]) for name in ("rows", "stored_bytes", "decoded_bytes")},
        "3 row groups in a.parquet, but the file's footer has 2",
    ),
}


@pytest.mark.parametrize("make", [petastore.make_reader, petastore.make_batch_reader])
@pytest.mark.parametrize("pool", ["thread", "dummy"])
@pytest.mark.parametrize("lie", LIES)
def test_manifest_with_wrong_row_counts_raises(tmp_path: Path, make: Any, pool: str, lie: str) -> None:
    changed, message = LIES[lie]
    a_dataset_whose_manifest_says(tmp_path, **changed)
    with (
        pytest.raises(MetadataError, match=f"the inventory is damaged: it lists .*{message}.*generate-metadata"),
        make(str(tmp_path), reader_pool_type=pool, shuffle_row_groups=False) as reader,
    ):
        list(reader)


@pytest.mark.parametrize("lie", LIES)
def test_manifest_with_wrong_row_counts_raises_in_filters(tmp_path: Path, lie: str) -> None:
    changed, message = LIES[lie]
    a_dataset_whose_manifest_says(tmp_path, **changed)
    with pytest.raises(MetadataError, match=message):
        petastore.make_batch_reader(str(tmp_path), filters=petastore.col("id") < 7, filter_cache=False)
    with pytest.raises(MetadataError, match=message):
        RandomAccess(petastore.open_dataset(tmp_path)).take([0, -1])


@pytest.mark.parametrize("bytes_said", [0, 1, 2**61])
def test_manifest_with_wrong_sizes_is_harmless(tmp_path: Path, bytes_said: int) -> None:
    a_dataset_whose_manifest_says(
        tmp_path, stored_bytes=lists([bytes_said, 1], [1]), decoded_bytes=lists([bytes_said, 1], [1])
    )
    for options in ({"shuffle_rows": True}, {"workers_count": 2}, {"reader_pool_type": "dummy"}):
        with petastore.make_reader(str(tmp_path), seed=1, **options) as reader:
            assert sorted(int(row.id) for row in reader) == sorted([*range(9), *range(3)])


@pytest.mark.parametrize("of_files", [(0, 2), (0, -1)])
def test_manifest_with_an_invalid_schema_number_of_a_file_raises(of_files: tuple[int, int], tmp_path: Path) -> None:
    location = open_location(tmp_path)
    schemas = FileSchemas((pa.schema({"x": pa.int8()}), pa.schema({"x": pa.int16()})), (0, 1), ("a", "b"))
    inventory = some_inventory("a.parquet", "b.parquet")
    write_manifest(location, Manifest(inventory, None, "x", schemas))
    read = read_manifest(location)
    assert read is not None
    assert read.schemas is not None
    assert (read.schemas.schemas, read.schemas.of_files) == (schemas.schemas, (0, 1))
    write_manifest(location, Manifest(inventory, None, "x", dataclasses.replace(schemas, of_files=of_files)))
    with pytest.raises(MetadataError, match="the schema numbers of files must be from 0 to"):
        read_manifest(location)
