"""Tests of the data files of one write before its commit: rotation, markers, undo."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.schema.document import DOCUMENT_KEY, dump_document
from petastore.storage.files.listing import unfinished_writes
from petastore.storage.files.location import Location, open_location
from petastore.writers.commit import commit_dataset
from petastore.writers.files import DataFiles
from petastore.writers.parquet import FileLayout, writer_options
from tests.writers.conftest import everything_in

SCHEMA = Unischema("numbers", [UnischemaField("id", "int64")])


def group(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, storage_schema(SCHEMA))


def files_at(location: Location, *, rows_per_file: int | None = None, first_number: int = 0) -> DataFiles:
    layout = FileLayout.of(rows_per_row_group=None, row_group_size_mb=None, rows_per_file=rows_per_file)
    return DataFiles(location, SCHEMA, layout, writer_options(SCHEMA, "snappy"), first_number=first_number)


@pytest.fixture
def location(url: str) -> Location:
    return open_location(url)


def test_file_is_closed_after_the_row_group_that_reaches_rows_per_file(location: Location) -> None:
    files = files_at(location, rows_per_file=3, first_number=7)
    for ids in ((1, 2), (3,), (4,)):
        files.write(group(*ids))
    names = files.finish(at_least_one=False)
    assert [name[:11] for name in names] == ["part-00007-", "part-00008-"]
    tables = []
    for name in names:
        with location.filesystem.open_input_file(location.join(name)) as file:
            opened = pq.ParquetFile(file)
            tables.append(opened.read())
            assert opened.metadata.metadata[DOCUMENT_KEY.encode()].decode() == dump_document("numbers", SCHEMA)
    assert [table["id"].to_pylist() for table in tables] == [[1, 2, 3], [4]]


def test_unfinished_write_has_a_marker_and_hidden_file_names(
    location: Location,
) -> None:
    files = files_at(location)
    files.write(group(1))
    (token,) = unfinished_writes(location)
    under_way = [path for path in everything_in(location) if path.endswith(".parquet")]
    assert under_way or not location.store.has_cheap_rename
    assert all(token in path for path in under_way)
    assert all(path.startswith("_") for path in under_way) or not location.store.has_cheap_rename
    (name,) = files.finish(at_least_one=False)
    assert everything_in(location) == sorted([f"_petastore/writing-{token}", name])
    files.end()
    assert everything_in(location) == [name]


def test_file_without_rows_is_written_only_for_a_dataset_without_files(location: Location) -> None:
    assert files_at(location).finish(at_least_one=False) == []
    (name,) = files_at(location).finish(at_least_one=True)
    with location.filesystem.open_input_file(location.join(name)) as file:
        assert pq.ParquetFile(file).read().equals(group())


@pytest.mark.parametrize("is_complete", [False, True])
def test_undo_of_a_write_deletes_all_written_files(location: Location, is_complete: bool) -> None:
    files = files_at(location, rows_per_file=1)
    files.write(group(1))
    files.write(group(2))
    if is_complete:
        files.finish(at_least_one=False)
    files.undo()
    assert everything_in(location) == []
    files.undo()  # undo is idempotent, because an error may occur while another is handled


def test_undo_of_a_write_keeps_committed_files(location: Location) -> None:
    files = files_at(location)
    files.write(group(1))
    names = files.finish(at_least_one=False)
    commit_dataset(location, SCHEMA, files=names, writer="a test")
    files.undo()
    assert set(names) < set(everything_in(location))
    assert unfinished_writes(location) == set()
