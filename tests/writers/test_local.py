"""Tests of `write_dataset`: round trip, sizes, write modes, errors, concurrent and killed writers."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import tracemalloc
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.dataset import open_dataset
from petastore.errors import (
    DatasetChangedError,
    DatasetExistsError,
    DatasetNotFoundError,
    EncodeError,
    InvalidArgumentError,
    MetadataError,
    SchemaError,
    StorageError,
)
from petastore.indexing import SingleFieldIndexer, get_row_group_indexes
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.schema.document import dump_document
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import open_location
from petastore.storage.footers.footers import read_footer
from petastore.storage.metadata.manifest import looked_around, read_manifest, read_schema_document
from petastore.storage.row_groups.page_headers import PageWindow, headers_of, values_of
from petastore.writers import local
from petastore.writers.commit import commit_dataset, publish
from petastore.writers.copying import copy_cells
from petastore.writers.generate import generate_metadata
from petastore.writers.local import write_dataset
from petastore.writers.parquet import FileLayout
from tests.pace import patience
from tests.storage.footers.of_bytes import footer_of_bytes
from tests.writers import killed
from tests.writers.conftest import everything_in, stored
from tests.writers.killed import SCHEMA, rows


def ids(url: Any) -> list[int]:
    return [row["id"] for row in stored(str(url))]


def test_written_rows_are_read_back_unchanged(url: str) -> None:
    schema = Unischema(
        "all",
        [
            UnischemaField("id", "int32"),
            UnischemaField("a.b", "str", nullable=True),
            UnischemaField("image", "uint8", (4, 4, 3), CompressedImageCodec("png")),
            UnischemaField("array", "float32", (None, 2), NdarrayCodec()),
        ],
    )
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    given = [
        {"id": number, "image": image, "array": np.full((number, 2), number, np.float32)}
        | ({"a.b": str(number)} if number % 2 else {})
        for number in range(10)
    ]
    inventory = write_dataset(url, schema, iter(given), rows_per_row_group=4)
    assert inventory.rows.tolist() == [4, 4, 2]
    found = stored(url)
    assert [row["id"] for row in found] == list(range(10))
    assert [row["a.b"] for row in found] == [str(number) if number % 2 else None for number in range(10)]
    fields = schema.fields
    arrays = [NdarrayCodec().decode(fields["array"], row["array"]) for row in found]
    for array, row in zip(arrays, given, strict=True):
        np.testing.assert_array_equal(array, np.asarray(row["array"]))
    np.testing.assert_array_equal(CompressedImageCodec("png").decode(fields["image"], found[9]["image"]), image)


def test_schema_is_stored_in_manifest_common_metadata_and_files(url: str) -> None:
    inventory = write_dataset(url, SCHEMA, rows(0, 10), rows_per_file=4)
    location = open_location(url)
    document = dump_document("numbers", SCHEMA)
    manifest = read_manifest(location)
    assert manifest is not None
    assert manifest.inventory == inventory
    assert manifest.schema_document == document
    assert manifest.writer.startswith("petastore ")
    assert read_schema_document(location) == document
    for file in inventory.files:
        footer = read_footer(location, file.path)
        assert footer.schema_document == document
        assert footer.file == file
        assert footer.arrow_schema == storage_schema(SCHEMA)
    assert looked_around(location, manifest).strangers == []


@pytest.mark.parametrize(
    ("count", "asked", "groups"),
    [
        (10, {"rows_per_row_group": 3}, [[3, 3, 3, 1]]),
        (10, {"rows_per_row_group": 3, "rows_per_file": 5}, [[3, 2], [3, 2]]),
        (10, {"rows_per_file": 4}, [[4], [4], [2]]),
        (10_000, {"rows_per_row_group": 4500}, [[4500, 4500, 1000]]),
        (10_000, {"rows_per_file": 5000}, [[5000], [5000]]),
        (3000, {"row_group_size_mb": 8000 / 2**20}, [[1000, 1000, 1000]]),
        (10, {}, [[10]]),
        (0, {}, [[]]),
    ],
)
def test_row_groups_and_files_have_the_requested_sizes(
    url: str, count: int, asked: dict[str, Any], groups: list[list[int]]
) -> None:
    inventory = write_dataset(url, SCHEMA, rows(0, count), **asked)
    found = [inventory.rows[inventory.file == number].tolist() for number in range(len(inventory.files))]
    assert found == groups
    assert ids(url) == list(range(count))


def test_writer_starts_a_new_file_when_the_file_size_is_reached(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        FileLayout, "of", lambda **asked: FileLayout(asked["rows_per_row_group"], 1, None, file_bytes=2000)
    )
    inventory = write_dataset(url, SCHEMA, rows(0, 1000), rows_per_row_group=100)
    assert len(inventory.files) > 2
    assert ids(url) == list(range(1000))


def test_non_nullable_field_is_required_in_the_file(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", SCHEMA, rows(0, 10))
    (file,) = (tmp_path / "x").glob("*.parquet")
    assert "required int64 field_id=-1 id" in str(pq.ParquetFile(file).schema)


def test_parquet_pages_have_equal_row_counts_across_encoding_chunks(tmp_path: Path) -> None:
    schema = Unischema("x", [UnischemaField("x", "float32", (64, 32), NdarrayCodec())])
    write_dataset(tmp_path / "x", schema, {"x": np.zeros((2000, 64, 32), np.float32)}, rows_per_row_group=500)
    (path,) = (tmp_path / "x").glob("*.parquet")
    data, footer = path.read_bytes(), footer_of_bytes(path.read_bytes())
    window = PageWindow(lambda length, at: data[at : at + length])
    for group in range(footer.metadata.num_row_groups):
        pages = headers_of(window.header, footer.chunk(group, 0))
        assert [values for header, *_ in pages if (values := values_of(header))] == [128, 128, 128, 116]


def test_other_tools_read_only_the_data_files(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", SCHEMA, rows(0, 100), rows_per_file=30)
    assert pads.dataset(tmp_path / "x").count_rows() == 100


def test_write_memory_is_bounded_by_chunks_and_a_row_group(tmp_path: Path) -> None:
    schema = Unischema("blob", [UnischemaField("blob", "uint8", (1_000_000,), NdarrayCodec())])
    before = pa.total_allocated_bytes()
    peak = 0

    def look(_: int) -> None:
        nonlocal peak
        peak = max(peak, pa.total_allocated_bytes() - before)

    tracemalloc.start()
    blobs = ({"blob": np.full(1_000_000, number % 256, np.uint8)} for number in range(120))
    write_dataset(tmp_path / "x", schema, blobs, row_group_size_mb=8, progress=look, workers_count=2)
    _, python_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak + python_peak < 90_000_000  # 120 MB of values; a chunk has 4 to 5, a row group 8


@pytest.mark.parametrize("as_columns", [False, True])
def test_files_do_not_depend_on_workers_count(tmp_path: Path, as_columns: bool) -> None:
    ids = np.arange(2000)
    arrays = np.random.default_rng(0).random((len(ids), 64, 64), np.float32)  # 32 MB: eight chunks
    schema = Unischema("x", [UnischemaField("id", "int64"), UnischemaField("x", "float32", (64, 64), NdarrayCodec())])

    def written(threads: int | None) -> list[pa.Table]:
        url = tmp_path / str(threads)
        data = {"id": ids, "x": arrays} if as_columns else [{"id": i, "x": arrays[i]} for i in ids]
        write_dataset(url, schema, data, row_group_size_mb=5, workers_count=threads)
        (file,) = map(pq.ParquetFile, url.glob("*.parquet"))
        return [file.read_row_group(group) for group in range(file.num_row_groups)]

    expected = written(0)
    assert len(expected) > 5
    assert written(1) == written(3) == written(None) == expected


def test_rows_are_iterated_in_the_calling_thread(tmp_path: Path) -> None:
    seen = set()

    def watched() -> Iterator[dict[str, Any]]:
        for row in rows(0, 10_000):
            seen.add(threading.get_ident())
            yield row

    before = threading.active_count()
    write_dataset(tmp_path / "x", SCHEMA, watched(), workers_count=2)
    assert seen == {threading.get_ident()}
    assert threading.active_count() == before


def test_first_invalid_row_is_named_with_any_workers_count(tmp_path: Path) -> None:
    wrong = [{**row, "id": "seven"} if number in (9_000, 17_000) else row for number, row in enumerate(rows(0, 20_000))]
    for threads in (0, 3):
        with pytest.raises(EncodeError, match="column 'id', row 9,000"):
            write_dataset(tmp_path / "x", SCHEMA, wrong, workers_count=threads)
        assert everything_in(open_location(tmp_path / "x")) == []


def test_write_workers_count_must_be_an_int(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="workers_count"):
        write_dataset(tmp_path / "x", SCHEMA, rows(0, 1), workers_count=-1)


def test_indexes_are_written_with_the_data(url: str) -> None:
    by_id = [SingleFieldIndexer("by_id", "id")]
    write_dataset(url, SCHEMA, rows(0, 10), rows_per_row_group=4, indexers=by_id)
    write_dataset(url, SCHEMA, rows(10, 14), rows_per_row_group=4, mode="append", indexers=iter(by_id))  # type: ignore[arg-type]
    index = get_row_group_indexes(open_dataset(url))["by_id"]
    assert [sorted(index.get_row_group_indexes(number)) for number in (0, 4, 9, 13)] == [[0], [1], [2], [3]]


def test_indexer_of_an_unknown_field_raises_before_writing(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"indexers must use fields of.*\('id'\), got 'name' in SingleFieldIndexer\('by', 'name'\)",
    ):
        write_dataset(tmp_path / "x", SCHEMA, rows(0, 10), indexers=[SingleFieldIndexer("by", "name")])
    assert not (tmp_path / "x").exists()


def test_progress_receives_the_rows_written(url: str) -> None:
    told: list[int] = []
    write_dataset(url, SCHEMA, rows(0, 10), rows_per_row_group=4, progress=told.append)
    assert told == [4, 8, 10]


def test_dataset_without_rows_has_a_schema(url: str) -> None:
    assert write_dataset(url, SCHEMA, []).num_rows == 0
    assert stored(url) == []
    assert read_schema_document(open_location(url)) == dump_document("numbers", SCHEMA)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"mode": "replace"}, "mode must be one of 'error', 'overwrite', 'append', got 'replace'"),
        ({"rows": "id"}, "an iterable of dicts"),
        ({"rows": 7}, "an iterable of dicts"),
        ({"schema": "int64"}, "schema must be a Unischema .*, got 'int64'"),
        ({"schema": Unischema("none", [])}, "at least one field"),
        ({"url": ["a", "b"]}, "url must be one URL or path, got list"),
        ({"compression": "rar"}, "compression must be one of .*, got 'rar'"),
        ({"rows_per_row_group": 0}, "rows_per_row_group must be an int of at least 1, got 0"),
        ({"rows_per_row_group": 5, "row_group_size_mb": 1}, "Pass one of them"),
    ],
)
def test_write_invalid_arguments_raise_before_anything_is_created(
    tmp_path: Path, asked: dict[str, Any], why: str
) -> None:
    given = {"url": tmp_path / "x", "schema": SCHEMA, "rows": [], **asked}
    with pytest.raises(InvalidArgumentError, match=why):
        write_dataset(given.pop("url"), given.pop("schema"), given.pop("rows"), **given)
    assert list(tmp_path.iterdir()) == []


def test_existing_dataset_raises_by_default(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(
        DatasetExistsError,
        match=r'must be empty, got notes\.txt \(1 files in all\)\. Choose another URL, or mode="append" or',
    ):
        write_dataset(tmp_path, SCHEMA, rows(0, 1))
    with pytest.raises(
        DatasetExistsError, match=r"the dataset URL must be a directory, got the file.*Choose another URL"
    ):
        write_dataset(tmp_path / "notes.txt", SCHEMA, rows(0, 1), mode="overwrite")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_write_to_an_empty_directory_works(tmp_path: Path) -> None:
    assert write_dataset(tmp_path, SCHEMA, rows(0, 1)).num_rows == 1


def test_append_adds_rows_at_the_end(url: str) -> None:
    for start in range(0, 50, 10):
        inventory = write_dataset(url, SCHEMA, rows(start, 10), mode="append", rows_per_file=4)
        assert inventory.num_rows == start + 10
    assert ids(url) == list(range(50))
    assert write_dataset(url, SCHEMA, [], mode="append") == inventory


def test_append_creates_a_missing_dataset(url: str) -> None:
    write_dataset(url, SCHEMA, [], mode="append")
    assert ids(url) == []


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ([UnischemaField("id", "int32")], "dtype of 'id' is 'int64' in the dataset and 'int32' in the rows"),
        (
            [UnischemaField("id", "int64", nullable=True)],
            "nullable of 'id' is False in the dataset and True in the rows",
        ),
        ([UnischemaField("no", "int64")], "the rows lack the field 'id'; the dataset lacks the field 'no'"),
    ],
)
def test_append_of_another_schema_raises_with_the_difference(
    url: str, fields: list[UnischemaField], difference: str
) -> None:
    write_dataset(url, SCHEMA, rows(0, 10))
    given = rows(10, 10)
    with pytest.raises(SchemaError, match=difference):
        write_dataset(url, Unischema("numbers", fields), given, mode="append")
    assert next(given) == {"id": 10}  # not a single row was consumed
    with pytest.raises(SchemaError, match=f"got a difference: {difference}"):  # the name of the schema is none
        write_dataset(url, Unischema("other", fields), given, mode="append")


def test_append_keeps_the_name_of_the_datasets_schema(url: str) -> None:
    write_dataset(url, {"id": [1]})
    write_dataset(url, Unischema("other", SCHEMA), [{"id": 2}], mode="append")
    more = Unischema("more", [*SCHEMA, UnischemaField("n", "int8", nullable=True)])
    write_dataset(url, more, [{"id": 3, "n": 4}], mode="append")
    assert open_dataset(url).schema == Unischema("inferred", more)
    assert stored(url)[1:] == [{"id": 2}, {"id": 3, "n": 4}]


def test_append_accepts_another_field_order_and_fewer_nullable_fields(url: str) -> None:
    stored_so = Unischema("two", [UnischemaField("a", "int8", nullable=True), UnischemaField("b", "str")])
    all_there = Unischema("two", [UnischemaField("b", "str"), UnischemaField("a", "int8")])
    write_dataset(url, stored_so, [{"a": None, "b": "x"}])
    write_dataset(url, all_there, [{"a": 2, "b": "y"}], mode="append")
    write_dataset(url, all_there, {"b": ["z"], "a": np.array([3], np.int8)}, mode="append")
    with pytest.raises(EncodeError, match="column 'a', row 0: the value must not be None"):
        write_dataset(url, all_there, [{"a": None, "b": "no"}], mode="append")
    assert open_dataset(url).schema == stored_so
    assert stored(url) == [{"a": None, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": "z"}]


def test_append_without_a_schema_uses_the_datasets_schema(url: str) -> None:
    write_dataset(url, pd.DataFrame({"n": [1, 2], "s": ["a", None], "x": [None, None], "e": [[1], []]}))
    schema = open_dataset(url).schema
    write_dataset(url, pd.DataFrame({"e": [[2]], "s": ["b"], "n": [3.0]}), mode="append")  # omits a nullable column
    write_dataset(url, pa.table({"n": [4], "s": pa.nulls(1), "x": pa.nulls(1), "e": [[3]]}), mode="append")
    assert open_dataset(url).schema == schema
    assert [row["n"] for row in stored(url)] == [1, 2, 3, 4]
    assert [row["s"] for row in stored(url)] == ["a", None, "b", None]
    for frame, said in [
        (pd.DataFrame({"n": [1.5], "s": ["a"], "e": [[1]]}), "column 'n', row 0"),
        (pd.DataFrame({"n": [None], "s": ["a"], "e": [[1]]}), "column 'n', row 0: the value must not be null"),
        (
            pd.DataFrame({"n": [1], "s": ["a"], "x": [7], "e": [[1]]}),
            "column 'x', row 0: a value of the type null must be None, got ",
        ),
        (
            pd.DataFrame({"n": [1], "s": ["a"], "e": [[1]], "more": [1]}),
            "column 'more': columns must be fields of schema .*, got 'more'",
        ),
    ]:
        with pytest.raises(EncodeError, match=said):
            write_dataset(url, frame, mode="append")
    assert len(stored(url)) == 4


def test_append_to_plain_parquet_raises(tmp_path: Path) -> None:
    plain, copy = tmp_path / "plain", tmp_path / "copy"
    plain.mkdir()
    pq.write_table(pa.table({"id": [1]}, storage_schema(SCHEMA)), plain / "a.parquet")
    advice = r"generate_metadata\(url, petastore\.open_dataset\(url\)\.schema\), or .* `petastore copy`; then append"
    with pytest.raises(SchemaError, match=f"must have a petastore schema to append rows.*{advice}"):
        write_dataset(plain, SCHEMA, rows(5, 2), mode="append")
    copy_cells(plain, copy)
    generate_metadata(plain, open_dataset(plain).schema)
    for folder in (plain, copy):
        assert write_dataset(folder, SCHEMA, rows(5, 2), mode="append").num_rows == 3


@pytest.mark.parametrize("has_manifest", [False, True])
def test_append_to_hive_partitions_raises_unless_files_store_the_key(tmp_path: Path, has_manifest: bool) -> None:
    schema = Unischema(
        "s", [UnischemaField(name, kind, nullable=True) for name, kind in (("a", "int64"), ("k", "str"))]
    )
    table = pa.table({"a": [1, 2], "k": ["x", None]})
    pq.write_to_dataset(table, tmp_path / "h", partition_cols=["k"])
    (tmp_path / "stored" / "k=x").mkdir(parents=True)
    pq.write_table(table.slice(0, 1), tmp_path / "stored" / "k=x" / "0.parquet")
    for name in ("h", "stored"):
        generate_metadata(tmp_path / name, schema)
        if not has_manifest:
            (tmp_path / name / "_petastore" / "inventory.arrow").unlink()
    with pytest.raises(
        SchemaError, match=r"must store the values of 'k' in its files to append rows, .*petastore copy"
    ):
        write_dataset(tmp_path / "h", {"a": [7], "k": ["z"]}, mode="append")
    assert not list((tmp_path / "h").glob("*.parquet"))
    copy_cells(tmp_path / "h", tmp_path / "copy")
    for name, first in (("copy", [{"a": 1, "k": "x"}, {"a": 2, "k": None}]), ("stored", [{"a": 1, "k": "x"}])):
        write_dataset(tmp_path / name, {"a": [7], "k": ["z"]}, mode="append")
        found = open_dataset(tmp_path / name).to_arrow().to_pylist()
        assert sorted(found, key=lambda row: row["a"]) == [*first, {"a": 7, "k": "z"}]


def test_append_works_without_a_manifest_if_common_metadata_exists(tmp_path: Path) -> None:
    write_dataset(tmp_path, SCHEMA, rows(0, 3))
    (tmp_path / "_petastore" / "inventory.arrow").unlink()
    write_dataset(tmp_path, SCHEMA, rows(3, 3), mode="append")
    assert ids(tmp_path) == list(range(6))


def test_overwrite_deletes_the_old_dataset_and_no_other_files(tmp_path: Path) -> None:
    write_dataset(tmp_path, SCHEMA, rows(0, 100), rows_per_file=10)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "_metadata").write_bytes(b"a summary of old files")
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "day=1" / "other.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "part-of-the-old")
    schema = Unischema("other", [UnischemaField("name", "str")])
    write_dataset(tmp_path, schema, [{"name": "Ada"}], mode="overwrite")
    assert stored(str(tmp_path)) == [{"name": "Ada"}]
    left = everything_in(open_location(tmp_path))
    assert len(list_data_files(open_location(tmp_path))) == 2  # includes notes.txt, which only the manifest excludes
    assert {"notes.txt", "_common_metadata", "_petastore/inventory.arrow"} == set(left) - {
        path for path in left if path.startswith("part-")
    }


def test_overwrite_creates_a_missing_dataset(url: str) -> None:
    assert write_dataset(url, SCHEMA, rows(0, 5), mode="overwrite").num_rows == 5


def test_overwrite_warns_about_files_that_cannot_be_deleted() -> None:
    class Keeping(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
        cachable = False
        kept = ""

        def rm(self, path: str, **more: Any) -> None:
            self._refuse(path)
            super().rm(path, **more)

        def rm_file(self, path: str) -> None:
            self._refuse(path)
            super().rm_file(path)

        def _refuse(self, path: str) -> None:
            if self.kept and path.endswith(self.kept):
                raise PermissionError(f"{path} is kept")

    filesystem = Keeping()
    filesystem.store = {}
    write_dataset("/x", SCHEMA, rows(0, 5), filesystem=filesystem)
    location = open_location("/x", filesystem=filesystem)
    (filesystem.kept,) = list_data_files(location)
    with pytest.warns(UserWarning, match=r"the replaced file part-00000-.* cannot be deleted: .* is kept"):
        write_dataset("/x", SCHEMA, rows(5, 5), filesystem=filesystem, mode="overwrite")
    manifest = read_manifest(location)
    assert manifest is not None
    assert looked_around(location, manifest).strangers == [filesystem.kept]


class Stop(BaseException):
    """Not a subclass of Exception, like KeyboardInterrupt."""


def failing(problem: BaseException, after: int) -> Iterator[dict[str, Any]]:
    yield from rows(100, after)
    raise problem


@pytest.mark.parametrize("mode", ["error", "overwrite", "append"])
@pytest.mark.parametrize("problem", [ZeroDivisionError("in the rows"), KeyboardInterrupt(), Stop(), GeneratorExit()])
def test_exception_in_the_rows_keeps_existing_files(url: str, mode: Any, problem: BaseException) -> None:
    location = open_location(url)
    if mode != "error":
        write_dataset(url, SCHEMA, rows(0, 10))
    before = everything_in(location)
    with pytest.raises(type(problem)):
        write_dataset(url, SCHEMA, failing(problem, 5000), mode=mode, rows_per_row_group=500, rows_per_file=1000)
    assert everything_in(location) == before
    if mode == "error":
        assert read_manifest(location) is None
        with pytest.raises(DatasetNotFoundError):
            list_data_files(location)
        assert write_dataset(url, SCHEMA, rows(0, 10)).num_rows == 10
    assert ids(url) == list(range(10))


def test_invalid_row_error_has_the_row_number_in_the_whole_input(url: str) -> None:
    given = itertools.chain(rows(0, 9000), [{"id": "x"}])
    with pytest.raises(EncodeError) as refused:
        write_dataset(url, SCHEMA, given, rows_per_row_group=1000)
    assert (refused.value.row, refused.value.column) == (9000, "id")
    assert everything_in(open_location(url)) == []


def test_exception_in_the_progress_callback_undoes_the_write(url: str) -> None:
    def stop(_: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        write_dataset(url, SCHEMA, rows(0, 10), progress=stop)
    assert everything_in(open_location(url)) == []


def test_interrupt_after_the_commit_keeps_the_files(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(url, SCHEMA, rows(0, 10))

    def interrupted(*args: Any) -> None:
        publish(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "publish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_dataset(url, SCHEMA, rows(10, 10), mode="append")
    assert ids(url) == list(range(20))
    assert len(list_data_files(open_location(url))) == 2


def test_failed_write_over_a_damaged_manifest_raises_its_own_error(tmp_path: Path) -> None:
    write_dataset(tmp_path, SCHEMA, rows(0, 10))
    (tmp_path / "_petastore" / "inventory.arrow").write_bytes(b"damaged")
    with pytest.raises(MetadataError, match="is damaged"):
        write_dataset(tmp_path, SCHEMA, rows(0, 10), mode="append")
    with pytest.raises(Stop):
        write_dataset(tmp_path, SCHEMA, failing(Stop(), 10), mode="overwrite")
    write_dataset(tmp_path, SCHEMA, rows(5, 5), mode="overwrite")
    assert ids(tmp_path) == list(range(5, 10))


def test_disk_error_raises_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StorageError):
        write_dataset(tmp_path / "file" / "below", SCHEMA, rows(0, 10))

    class Full(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
        cachable = False

        def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
            if mode == "wb" and path.endswith(".parquet"):
                raise OSError(28, "No space left on device")
            return super()._open(path, mode, **more)

    with pytest.raises(StorageError, match="No space left"):
        write_dataset("/full", SCHEMA, rows(0, 10), filesystem=Full())


def test_concurrent_appends_in_threads_keep_all_rows(url: str) -> None:
    write_dataset(url, SCHEMA, [])

    def append(start: int) -> None:
        for number in range(start, start + 30, 10):
            write_dataset(url, SCHEMA, rows(number, 10), mode="append")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(append, range(0, 120, 30)))
    assert sorted(ids(url)) == list(range(120))


def test_overwrite_raises_and_keeps_files_of_a_concurrent_commit(url: str) -> None:
    write_dataset(url, SCHEMA, rows(0, 10))

    def given() -> Iterator[dict[str, int]]:
        yield from rows(100, 10)
        write_dataset(url, SCHEMA, rows(10, 10), mode="append")
        yield from rows(200, 10)

    with pytest.raises(DatasetChangedError, match="another writer committed"):
        write_dataset(url, SCHEMA, given(), mode="overwrite")
    assert ids(url) == list(range(20))
    assert len(list_data_files(open_location(url))) == 2


def test_concurrent_creation_does_not_mix_datasets(url: str) -> None:
    def given() -> Iterator[dict[str, int]]:
        yield from rows(100, 10)
        write_dataset(url, SCHEMA, rows(0, 10), mode="append")
        yield from rows(200, 10)

    with pytest.raises(DatasetExistsError, match="another writer committed"):
        write_dataset(url, SCHEMA, given())
    assert ids(url) == list(range(10))


def test_unfinished_write_is_invisible_to_readers(url: str) -> None:
    write_dataset(url, SCHEMA, rows(0, 10))
    location = open_location(url)
    seen: list[list[str]] = []

    def look(_: int) -> None:
        seen.append(list_data_files(location))

    write_dataset(url, SCHEMA, rows(10, 100), mode="append", rows_per_file=20, progress=look)
    assert {len(paths) for paths in seen} == {1}
    assert len(list_data_files(location)) == 6


def test_object_store_write_uses_no_rename() -> None:
    class Store(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
        protocol = ("s3", "s3a")
        cachable = False

        store: dict[str, Any] = {}  # noqa: RUF012 - as the class above has it
        pseudo_dirs = [""]  # noqa: RUF012 - those of other tests are not its own

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.split("://")[-1].strip("/")

        def mv(self, path1: str, path2: str, **more: Any) -> None:
            raise AssertionError(f"{path1} is renamed to {path2} {more}, but an object store copies to rename")

    filesystem = Store()
    filesystem.mkdir("/bucket")  # writers never create a bucket
    inventory = write_dataset("s3://bucket/x", SCHEMA, rows(0, 10), rows_per_file=4, filesystem=filesystem)
    assert inventory.num_rows == 10
    location = open_location("s3://bucket/x", filesystem=filesystem)
    assert not location.store.has_cheap_rename
    assert len(list_data_files(location)) == 3
    assert read_manifest(location) is not None


@pytest.fixture(scope="module")
def graveyard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return datasets whose writers were killed at different points; see `killed`."""
    root = tmp_path_factory.mktemp("killed")
    command = [sys.executable, killed.__file__, str(root)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(100))
    assert not ended.stdout + ended.stderr, ended.stdout + ended.stderr
    assert ended.returncode == 0
    return root


OLD = list(range(killed.OLD_ROWS))
NEW = list(range(killed.OLD_ROWS, killed.OLD_ROWS + killed.NEW_ROWS))
COMMITTED = killed.POINTS[5:]


@pytest.mark.parametrize("point", killed.POINTS)
def test_killed_first_write_leaves_no_dataset_or_all_rows(graveyard: Path, point: str) -> None:
    location = open_location(graveyard / "error" / point)
    if point in COMMITTED:
        assert ids(location.root) == NEW
        return
    assert read_manifest(location) is None
    with pytest.raises(DatasetNotFoundError):
        list_data_files(location)


@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize("point", killed.POINTS)
def test_killed_overwrite_leaves_the_old_or_new_dataset(graveyard: Path, mode: str, point: str) -> None:
    directory = graveyard / mode / point
    expected = ([] if mode == "overwrite" else OLD) + NEW if point in COMMITTED else OLD
    assert ids(directory) == expected


@pytest.mark.parametrize("mode", killed.MODES)
@pytest.mark.parametrize("point", killed.POINTS)
def test_overwrite_after_a_killed_write_removes_its_files(graveyard: Path, mode: str, point: str) -> None:
    directory = graveyard / mode / point
    copied = directory.parent / f"copy of {point}"
    subprocess.run(["cp", "-r", str(directory), str(copied)], check=True)
    write_dataset(copied, SCHEMA, rows(7, 3), mode="overwrite")
    assert ids(copied) == [7, 8, 9]
    assert len(everything_in(open_location(copied))) == 3


@pytest.mark.parametrize("name", ["_petastore/.inventory.arrow", "._common_metadata"])
def test_leftovers_of_a_killed_write_are_removed_by_the_next_overwrite(tmp_path: Path, name: str) -> None:
    write_dataset(tmp_path, SCHEMA, rows(0, 3))
    (tmp_path / f"{name}.{uuid.uuid4().hex}").write_bytes(b"half of it")
    write_dataset(tmp_path, SCHEMA, rows(7, 3), mode="overwrite")
    assert ids(tmp_path) == [7, 8, 9]
    assert len(everything_in(open_location(tmp_path))) == 3


def test_append_after_a_killed_append_adds_only_its_rows(graveyard: Path) -> None:
    copied = graveyard / "appended again"
    subprocess.run(["cp", "-r", str(graveyard / "append" / killed.POINTS[2]), str(copied)], check=True)
    write_dataset(copied, SCHEMA, rows(5000, 3), mode="append")
    assert ids(copied) == [*OLD, 5000, 5001, 5002]
    commit_dataset(open_location(copied), SCHEMA, writer="all that is found")
    assert ids(copied) == [*OLD, 5000, 5001, 5002]


def test_concurrent_appends_in_processes_keep_all_rows(graveyard: Path) -> None:
    assert sorted(ids(graveyard / "appended")) == list(range(4000))
