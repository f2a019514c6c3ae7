"""The data files of one write, before anybody else is meant to see them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.schema.document import DOCUMENT_KEY, dump_document
from petastore.storage.files.listing import unfinished_writes
from petastore.storage.files.location import Location, open_location
from petastore.storage.files.whole_files import write_file
from petastore.writers import files as files_module
from petastore.writers.commit import commit_dataset
from petastore.writers.files import DataFiles
from petastore.writers.layout import Layout
from petastore.writers.parquet import writer_options
from tests.writers.conftest import everything_in

SCHEMA = Unischema("numbers", [UnischemaField("id", "int64")])


def group(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, storage_schema(SCHEMA))


def files_at(location: Location, *, rows_per_file: int | None = None, first_number: int = 0) -> DataFiles:
    layout = Layout.of(rows_per_row_group=None, row_group_size_mb=None, rows_per_file=rows_per_file)
    return DataFiles(location, SCHEMA, layout, writer_options(SCHEMA, "snappy"), first_number=first_number)


@pytest.fixture
def location(url: str) -> Location:
    return open_location(url)


def test_a_file_ends_with_the_row_group_that_fills_it_and_names_count_on(location: Location) -> None:
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


def test_while_it_writes_a_marker_has_its_token_and_its_names_are_hidden_where_renames_are_cheap(
    location: Location,
) -> None:
    files = files_at(location)
    (token,) = unfinished_writes(location)
    files.write(group(1))
    under_way = [path for path in everything_in(location) if path.endswith(".parquet")]
    assert under_way or not location.has_cheap_rename
    assert all(token in path for path in under_way)
    assert all(path.startswith("_") for path in under_way) or not location.has_cheap_rename
    (name,) = files.finish(at_least_one=False)
    assert everything_in(location) == sorted([f"_petastore/writing-{token}", name])
    files.end()
    assert everything_in(location) == [name]


def test_files_beside_each_other_have_one_marker_which_is_written_once(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def write(location: Location, path: str, content: bytes) -> None:
        written.append(path)
        write_file(location, path, content)

    monkeypatch.setattr(files_module, "write_file", write)
    files = files_at(location)
    (token,) = unfinished_writes(location)
    for number, others in enumerate([files, files.beside(1), files.beside(2)]):
        others.write(group(number))
        others.complete(at_least_one=False)
    assert written == [f"_petastore/writing-{token}"]
    assert len(everything_in(location)) == 4
    assert all(token in path for path in everything_in(location))
    files.undo()
    assert everything_in(location) == []


def test_a_file_without_rows_is_made_only_where_one_is_needed(location: Location) -> None:
    assert files_at(location).finish(at_least_one=False) == []
    (name,) = files_at(location).finish(at_least_one=True)
    with location.filesystem.open_input_file(location.join(name)) as file:
        assert pq.ParquetFile(file).read().equals(group())


@pytest.mark.parametrize("is_complete", [False, True])
def test_undone_files_are_gone_whether_they_were_complete_or_not(location: Location, is_complete: bool) -> None:
    files = files_at(location, rows_per_file=1)
    files.write(group(1))
    files.write(group(2))
    if is_complete:
        files.finish(at_least_one=False)
    files.undo()
    assert everything_in(location) == []
    files.undo()  # may come twice: an error while one is handled


def test_files_that_the_manifest_lists_are_not_undone(location: Location) -> None:
    files = files_at(location)
    files.write(group(1))
    names = files.finish(at_least_one=False)
    commit_dataset(location, SCHEMA, files=names, writer="a test")
    files.undo()
    assert set(names) < set(everything_in(location))
    assert unfinished_writes(location) == set()
