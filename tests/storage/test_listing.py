"""Which files are data files, and what an empty place says."""

from __future__ import annotations

from pathlib import Path

import pytest

from petastore.errors import DatasetNotFoundError, MetadataError, StorageError
from petastore.storage.listing import is_data_file, list_data_files, unfinished_writes, writing_marker
from petastore.storage.location import Location, open_location
from tests.storage.conftest import Put

TOKEN = "0123456789abcdef" * 2


def test_files_are_listed_sorted_at_every_depth(location: Location, put: Put) -> None:
    for path in ("b.parquet", "day=2/a.snappy.parquet", "a/x.parq", "day=1/z.parquet"):
        put(path, b"x")
    assert list_data_files(location) == ["a/x.parq", "b.parquet", "day=1/z.parquet", "day=2/a.snappy.parquet"]


def test_hidden_names_are_left_out_at_every_level(location: Location, put: Put) -> None:
    put("a.parquet", b"x")
    for path in (
        "_SUCCESS",
        ".a.parquet.crc",
        "_metadata",
        "_common_metadata",
        "_temporary/0/b.parquet",
        ".x/c.parquet",
    ):
        put(path, b"x")
    put("day=1/_started", b"x")
    put("day=1/.staging/d.parquet", b"x")
    assert list_data_files(location) == ["a.parquet"]


def test_a_partition_key_may_begin_with_an_underscore(location: Location, put: Put) -> None:
    put("_day=1/a.parquet", b"x")
    assert list_data_files(location) == ["_day=1/a.parquet"]


def test_other_files_beside_parquet_are_left_out(location: Location, put: Put) -> None:
    put("a.parquet", b"x")
    put("README.md", b"x")
    put("notes", b"x")
    assert list_data_files(location) == ["a.parquet"]


def test_files_without_a_suffix_count_where_none_has_one(location: Location, put: Put) -> None:
    put("000000_0", b"x")
    put("000001_0", b"")
    assert list_data_files(location) == ["000000_0"]


def test_a_parquet_file_without_bytes_is_an_error(location: Location, put: Put) -> None:
    put("a.parquet", b"x")
    put("day=1/empty.parquet", b"")
    with pytest.raises(MetadataError, match=r"day=1/empty\.parquet has no bytes"):
        list_data_files(location)


def test_an_empty_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="is an empty directory"):
        list_data_files(open_location(tmp_path))


def test_a_path_where_nothing_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="there is nothing at that path"):
        list_data_files(open_location(tmp_path / "missing"))
    with pytest.raises(DatasetNotFoundError, match="there is nothing at that path"):
        list_data_files(open_location("memory://surely/missing"))


def test_a_directory_without_parquet_says_what_is_there(location: Location, put: Put) -> None:
    put("table.csv", b"x")
    put("_SUCCESS", b"")
    with pytest.raises(DatasetNotFoundError, match=r"found only _SUCCESS, table\.csv"):
        list_data_files(location)


def test_a_list_of_files_and_directories_lists_those(tmp_path: Path) -> None:
    for path in ("day=1/a.parquet", "day=1/b.parquet", "day=2/c.parquet", "day=3/_d.parquet"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    location = open_location([str(tmp_path / path) for path in ("day=2", "day=1/b.parquet", "day=3/_d.parquet")])
    assert list_data_files(location) == ["day=1/b.parquet", "day=2/c.parquet", "day=3/_d.parquet"]


def test_a_missing_file_of_a_list_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x")
    with pytest.raises(DatasetNotFoundError, match=r"there is nothing at gone\.parquet"):
        list_data_files(open_location([str(tmp_path / "a.parquet"), str(tmp_path / "gone.parquet")]))


def test_files_of_a_write_that_has_not_ended_are_left_out(location: Location, put: Put) -> None:
    put("a.parquet", b"x")
    put(f"part-00000-{TOKEN}.parquet", b"x")
    assert len(list_data_files(location)) == 2
    put(writing_marker(TOKEN), b"")
    assert unfinished_writes(location) == {TOKEN}
    assert list_data_files(location) == ["a.parquet"]


def test_a_place_with_nothing_but_an_unfinished_write_says_so(location: Location, put: Put) -> None:
    put(f"part-00000-{TOKEN}.parquet", b"x")
    put(writing_marker(TOKEN), b"")
    with pytest.raises(DatasetNotFoundError, match="a write that has not ended or was interrupted"):
        list_data_files(location)


def test_there_are_no_unfinished_writes_where_nothing_is(tmp_path: Path) -> None:
    assert unfinished_writes(open_location(tmp_path / "missing")) == set()


@pytest.mark.parametrize(
    ("path", "is_data"),
    [("a.parquet", True), ("k=1/a.pq", True), ("a.csv", False), ("_a.parquet", False), ("_t/a.parquet", False)],
)
def test_names_alone_tell_data_files(path: str, is_data: bool) -> None:
    assert is_data_file(path) is is_data


def test_a_directory_that_may_not_be_listed_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    location = Location("file:///x", open_location(tmp_path).filesystem, str(tmp_path), ("file/below",))
    with pytest.raises(StorageError):
        list_data_files(location)
