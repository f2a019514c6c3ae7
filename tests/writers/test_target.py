"""Tests of write targets: existing files, write modes, concurrent commits, and schema differences."""

from __future__ import annotations

import json
from typing import Any

import fsspec
import pytest

from petastore import write_dataset
from petastore.errors import DatasetChangedError, DatasetExistsError, SchemaError
from petastore.inventory import Inventory
from petastore.schema import Unischema, UnischemaField
from petastore.schema.document import dump_document
from petastore.storage.files.location import open_location
from petastore.storage.footers.footers import read_footers
from petastore.storage.metadata.manifest import read_manifest
from petastore.writers.target import Mode, Target, schema_difference
from tests.writers.conftest import everything_in

SCHEMA = Unischema("numbers", [UnischemaField("id", "int64")])


def write(url: str, first: int, mode: Mode = "append") -> None:
    write_dataset(url, SCHEMA, [{"id": first}, {"id": first + 1}], mode=mode, rows_per_row_group=1)


def target(url: str, mode: Mode) -> Target:
    return Target(open_location(url), SCHEMA, mode, writer="a test")


@pytest.mark.parametrize("mode", ["error", "overwrite", "append"])
def test_every_write_mode_creates_a_missing_dataset(url: str, mode: Mode) -> None:
    begun = target(url, mode)
    assert begun.needs_a_file
    assert begun.first_number == 0
    assert len(begun.next_manifest([]).inventory.files) == 0


def test_appended_files_are_numbered_after_existing_files(url: str) -> None:
    write(url, 0)
    write(url, 2)
    assert target(url, "append").first_number == 2
    assert not target(url, "append").needs_a_file
    assert target(url, "overwrite").first_number == 0
    assert target(url, "overwrite").needs_a_file


def test_append_manifest_lists_old_files_first(url: str) -> None:
    write(url, 0)
    location = open_location(url)
    old = read_manifest(location)
    assert old is not None
    footers = read_footers(location, [file.path for file in old.inventory.files])
    appended = target(url, "append").next_manifest(footers)
    assert [file.path for file in appended.inventory.files] == [file.path for file in old.inventory.files] * 2
    assert appended.inventory.rows.tolist() == [1, 1, 1, 1]
    replaced = target(url, "overwrite").next_manifest(footers)
    assert (replaced.inventory, replaced.writer) == (old.inventory, "a test")
    assert replaced.schema_document == dump_document("numbers", SCHEMA)


def test_write_to_an_occupied_directory_raises_with_its_name(url: str) -> None:
    write(url, 0)
    with pytest.raises(DatasetExistsError, match=r"must be empty, got \S+ \(\d files in all\)"):
        target(url, "error")


def test_target_ignores_the_marker_of_a_killed_writer_without_files(url: str) -> None:
    files, folder = fsspec.core.url_to_fs(url)
    files.makedirs(f"{folder}/_petastore")
    files.pipe_file(f"{folder}/_petastore/writing-{'0' * 32}", b"")
    assert target(url, "error").needs_a_file
    files.pipe_file(f"{folder}/_part-00000-{'0' * 32}.parquet", b"")
    with pytest.raises(DatasetExistsError, match=r"must be empty, got _part-00000-0+\.parquet \(1 files in all\)"):
        target(url, "error")


@pytest.mark.parametrize(("mode", "error"), [("error", DatasetExistsError), ("overwrite", DatasetChangedError)])
def test_write_raises_when_another_writer_committed_during_it(url: str, mode: Mode, error: type[Exception]) -> None:
    begun = target(url, mode)
    write(url, 0)
    with pytest.raises(
        error, match="another writer committed a dataset during this write; its rows are kept, and this write is"
    ):
        begun.next_manifest([])


def test_only_overwrite_deletes_data_files_missing_in_the_new_manifest(url: str) -> None:
    write(url, 0)
    location = open_location(url)
    with location.filesystem.open_output_stream(location.join("notes.txt")) as notes:
        notes.write(b"mine")
    old = read_manifest(location)
    assert old is not None
    (data,) = (file.path for file in old.inventory.files)
    steps: list[tuple[Mode, Inventory, set[str]]] = [
        ("append", Inventory.of_rows([]), {data, "notes.txt"}),
        ("overwrite", old.inventory, {data, "notes.txt"}),
        ("overwrite", Inventory.of_rows([]), {"notes.txt"}),
    ]
    for mode, inventory, left in steps:
        target(url, mode).delete_replaced(inventory)
        assert {data, "notes.txt"}.intersection(everything_in(location)) == left


def document(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"name": name, "fields": fields})


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (document("a", {"name": "x"}), document("a"), "the rows lack the field 'x'"),
        (document("a"), document("a", {"name": "x"}), "the dataset lacks the field 'x'"),
        (
            document("a", {"name": "x", "dtype": "int8", "nullable": True}),
            document("a", {"name": "x", "dtype": "int64"}),
            (
                "dtype of 'x' is 'int8' in the dataset and 'int64' in the rows; "
                "nullable of 'x' is True in the dataset and None in the rows"
            ),
        ),
        (
            document("a", {"name": "x"}, {"name": "y"}),
            document("a", {"name": "y"}, {"name": "x"}),
            "the fields have another order",
        ),
    ],
)
def test_schema_difference_describes_how_two_schemas_differ(theirs: str, ours: str, said: str) -> None:
    assert schema_difference(theirs, ours) == said


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"name": "a", "fields": [1]}'])
def test_schema_difference_reports_a_damaged_schema_document(damaged: str) -> None:
    assert schema_difference(damaged, document("a")).startswith("the schema document of the dataset is damaged (")


def test_append_of_another_schema_raises(url: str) -> None:
    write(url, 0)
    other = Unischema("numbers", [UnischemaField("id", "int32")])
    with pytest.raises(
        SchemaError, match=r"rows to append must have the schema of .*, got a difference: dtype of 'id' is 'int64'"
    ):
        Target(open_location(url), other, "append", writer="a test")
