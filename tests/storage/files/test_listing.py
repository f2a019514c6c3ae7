"""Tests of listing data files: hidden files, unfinished writes, links, manifests, and errors for empty folders."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from petastore import Unischema, UnischemaField, open_dataset, write_dataset
from petastore.errors import DatasetNotFoundError, MetadataError, StorageError
from petastore.storage.files.listing import list_data_files, unfinished_writes, writing_marker
from petastore.storage.files.location import Location, open_location
from tests.storage.conftest import Put

TOKEN = "0123456789abcdef" * 2


def test_files_are_listed_sorted_at_every_depth(location: Location, put: Put) -> None:
    for path in ("b.parquet", "day=2/a.snappy.parquet", "a/x.parq", "day=1/z.parquet"):
        put(path, b"x")
    assert list_data_files(location) == ["a/x.parq", "b.parquet", "day=1/z.parquet", "day=2/a.snappy.parquet"]


def test_listing_skips_hidden_names_at_every_depth(location: Location, put: Put) -> None:
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


def test_listing_keeps_partition_keys_with_an_underscore(location: Location, put: Put) -> None:
    put("_day=1/a.parquet", b"x")
    assert list_data_files(location) == ["_day=1/a.parquet"]


def test_listing_accepts_files_with_any_extension(location: Location, put: Put) -> None:
    names = ["B.PARQUET", "README.md", "a.parquet", "part-00001", "x.parquet.gz", "x.pqt"]
    for name in names:
        put(name, b"x")
    assert list_data_files(location) == names


def test_listing_skips_empty_and_checksum_files(location: Location, put: Put) -> None:
    put("a.parquet", b"x")
    for path, content in {"b.parquet": b"", "000001_0": b"", "a.parquet.crc": b"x", "day=1/c.crc": b"x"}.items():
        put(path, content)
    assert list_data_files(location) == ["a.parquet"]


def test_listing_accepts_an_explicit_file_of_any_name(location: Location, put: Put) -> None:
    for name in ("_a", "b.crc", ".c"):
        put(name, b"x")
    place = [f"{location.url}/{name}" for name in ("_a", "b.crc", ".c")]
    assert list_data_files(open_location(place)) == [".c", "_a", "b.crc"]
    put("d.parquet", b"")
    with pytest.raises(MetadataError, match=r"d\.parquet must be a Parquet file, got an empty file"):
        list_data_files(open_location([*place, f"{location.url}/d.parquet"]))


def test_listing_accepts_an_explicit_directory_of_any_name(location: Location, put: Put) -> None:
    for path in ("_old/a.parquet", "_old/_b.parquet", "new/c.parquet"):
        put(path, b"x")
    place = open_location([f"{location.url}/_old", f"{location.url}/new"])
    assert list_data_files(place) == ["_old/a.parquet", "new/c.parquet"]


def test_listing_raises_for_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="must have at least one Parquet file, got an empty directory"):
        list_data_files(open_location(tmp_path))


def test_listing_raises_for_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="there is nothing at that path"):
        list_data_files(open_location(tmp_path / "missing"))
    with pytest.raises(DatasetNotFoundError, match="there is nothing at that path"):
        list_data_files(open_location("memory://surely/missing"))


def test_missing_path_error_suggests_a_similar_name(tmp_path: Path) -> None:
    (tmp_path / "mydata").mkdir()
    with pytest.raises(DatasetNotFoundError, match=r"nothing at that path\. Did you mean 'mydata'\?$"):
        list_data_files(open_location(tmp_path / "mydat"))


def test_missing_path_error_names_a_scheme_with_one_slash() -> None:
    with pytest.raises(DatasetNotFoundError, match=r"nothing at that path\. Write s3://, with two slashes"):
        list_data_files(open_location("s3:/bucket/train"))


def test_directory_without_parquet_raises_and_lists_its_contents(location: Location, put: Put) -> None:
    put("_SUCCESS", b"x")
    put("a.parquet", b"")
    with pytest.raises(
        DatasetNotFoundError, match=r"must have at least one Parquet file, got only _SUCCESS, a\.parquet"
    ):
        list_data_files(location)
    put("table.csv", b"x")
    with pytest.raises(DatasetNotFoundError, match=r"must have at least one Parquet file, got only table\.csv"):
        open_dataset(location.url)


def test_listing_of_files_and_directories(tmp_path: Path) -> None:
    for path in ("day=1/a.parquet", "day=1/b.parquet", "day=2/c.parquet", "day=3/_d.parquet"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    location = open_location([str(tmp_path / path) for path in ("day=2", "day=1/b.parquet", "day=3/_d.parquet")])
    assert list_data_files(location) == ["day=1/b.parquet", "day=2/c.parquet", "day=3/_d.parquet"]


def test_listing_names_a_missing_file_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x")
    with pytest.raises(DatasetNotFoundError, match=r"there is nothing at gone\.parquet"):
        list_data_files(open_location([str(tmp_path / "a.parquet"), str(tmp_path / "gone.parquet")]))


def test_listing_skips_files_of_an_unfinished_write(location: Location, put: Put) -> None:
    put("a.parquet", b"x")
    put(f"part-00000-{TOKEN}.parquet", b"x")
    assert len(list_data_files(location)) == 2
    put(writing_marker(TOKEN), b"")
    assert unfinished_writes(location) == {TOKEN}
    assert list_data_files(location) == ["a.parquet"]


def test_glob_pattern_skips_files_of_an_unfinished_write(location: Location, put: Put) -> None:
    for path in ("a.parquet", f"b-{TOKEN}.parquet", "inner/c.parquet", f"inner/d-{TOKEN[::-1]}.parquet"):
        put(path, b"x")
    put(writing_marker(TOKEN), b"")
    put("inner/" + writing_marker(TOKEN[::-1]), b"")
    assert list_data_files(location) == ["a.parquet", "inner/c.parquet"]
    assert list_data_files(open_location(f"{location.url}/*.parquet", patterns=True)) == ["a.parquet"]
    named = open_location([f"{location.url}/a.parquet", f"{location.url}/b-{TOKEN}.parquet"])
    assert list_data_files(named) == ["a.parquet", f"b-{TOKEN}.parquet"]


def test_listing_of_only_an_unfinished_write_raises(location: Location, put: Put) -> None:
    put(f"part-00000-{TOKEN}.parquet", b"x")
    put(writing_marker(TOKEN), b"")
    with pytest.raises(DatasetNotFoundError, match="a write that has not ended or was interrupted"):
        list_data_files(location)


def test_missing_directory_has_no_unfinished_writes(tmp_path: Path) -> None:
    assert unfinished_writes(open_location(tmp_path / "missing")) == set()


def test_directory_that_cannot_be_listed_raises_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    location = Location("file:///x", open_location(tmp_path).filesystem, str(tmp_path), ("file/below",))
    with pytest.raises(StorageError):
        list_data_files(location)


def test_listing_never_opens_special_files(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "gone.parquet").symlink_to(tmp_path / "nowhere")
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    (tmp_path / "_hidden").symlink_to(tmp_path / "nowhere")
    shown = (
        "has 3 entries among its data files that cannot be read: "
        "fifo is a FIFO, gone.parquet is a link that leads nowhere, itself is a link that leads"
    )
    with pytest.raises(StorageError, match=shown):
        list_data_files(open_location(tmp_path))
    with pytest.raises(StorageError, match="is a FIFO"):
        list_data_files(open_location([str(tmp_path / "a.parquet"), str(tmp_path / "fifo")]))
    with pytest.raises(StorageError, match="must be a file or a directory, got something else"):
        open_dataset(tmp_path / "fifo")


def test_manifest_decides_the_files_and_unlisted_ones_are_ignored(tmp_path: Path) -> None:
    schema = Unischema("user", [UnischemaField("id", "int64")])
    write_dataset(tmp_path, schema, [{"id": 1}])
    (tmp_path / "README.md").write_text("About users, and nothing else.")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "gone.parquet").symlink_to(tmp_path / "nowhere")
    dataset = open_dataset(tmp_path)
    assert dataset.inventory.num_rows == 1
    os.link(dataset.paths[0], tmp_path / "PART-00007")
    with pytest.warns(UserWarning, match=r"holds 1 data file\(s\) .* does not list, which are not read: PART-00007"):
        open_dataset(tmp_path)
    (tmp_path / "PART-00007").unlink()
    Path(dataset.paths[0]).unlink()
    os.mkfifo(dataset.paths[0])
    with pytest.raises(StorageError, match=r"\.parquet is a FIFO"):
        open_dataset(tmp_path)


def test_listing_examines_few_unlisted_files(tmp_path: Path) -> None:
    filesystem = Counting()
    schema = Unischema("user", [UnischemaField("id", "int64")])
    write_dataset("/ds", schema, [{"id": 1}], filesystem=filesystem)
    for number in range(1000):
        filesystem.pipe_file(f"/ds/notes-{number:04d}", b"nothing but notes")
    before = filesystem.opened
    assert open_dataset("/ds", filesystem=filesystem).inventory.num_rows == 1
    assert filesystem.opened - before <= 66


class Counting(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """An in-memory filesystem without shared instances that counts opens per file."""

    cachable = False

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.store: dict[str, Any] = {}
        self.pseudo_dirs = [""]
        self.opened = 0

    def open(self, *arguments: Any, **more: Any) -> Any:
        self.opened += 1
        return super().open(*arguments, **more)


def test_listing_follows_links(tmp_path: Path) -> None:
    for path in ("elsewhere/b.parquet", "elsewhere/deep/c.parquet", "store/1.parquet", "ds/a.parquet"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    (tmp_path / "ds" / "day=1").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "ds" / "day=2").symlink_to("../elsewhere")
    (tmp_path / "ds" / "z.parquet").symlink_to(tmp_path / "store" / "1.parquet")
    assert list_data_files(open_location(tmp_path / "ds")) == [
        "a.parquet",
        "day=1/b.parquet",
        "day=1/deep/c.parquet",
        "day=2/b.parquet",
        "day=2/deep/c.parquet",
        "z.parquet",
    ]


def test_listing_follows_a_link_to_a_hidden_version(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / ".versions" / version).mkdir(parents=True)
        (tmp_path / ".versions" / version / f"{version}.parquet").write_bytes(b"x")
    (tmp_path / "current").symlink_to(".versions/2")
    assert list_data_files(open_location(tmp_path)) == ["current/2.parquet"]


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "{}/*", "{}/**/*.parquet", "{}/[!z]*/*"])
def test_listing_of_cyclic_links_has_each_file_once(tmp_path: Path, spelling: str) -> None:
    root = tmp_path / "ds"
    for path in ("a.parquet", "day=1/b.parquet", "day=2/c.parquet"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": range(100)}), root / path)
    (root / "a.parquet").rename(root / "day=2" / "a.parquet")
    (root / "day=1" / "up").symlink_to(root)
    (root / "day=1" / "here").symlink_to(".")
    (root / "day=2" / "above").symlink_to(tmp_path)
    (root / "latest").symlink_to("day=2")
    dataset = open_dataset(spelling.format(root))
    assert [file.path for file in dataset.inventory.files] == [
        "day=1/b.parquet",
        "day=2/a.parquet",
        "day=2/c.parquet",
    ]
    assert dataset.inventory.num_rows == 300


def test_listing_ends_for_a_link_cycle_outside_the_root(tmp_path: Path) -> None:
    for name in "xyz":
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.parquet").write_bytes(b"x")
        for other in "xyz":
            (tmp_path / name / f"to-{other}").symlink_to(tmp_path / other)
    (tmp_path / "ds").mkdir()
    (tmp_path / "ds" / "a").symlink_to(tmp_path / "x")
    assert list_data_files(open_location(tmp_path / "ds")) == [
        "a/to-y/to-z/z.parquet",
        "a/to-y/y.parquet",
        "a/to-z/to-y/y.parquet",
        "a/to-z/z.parquet",
        "a/x.parquet",
    ]


def test_listing_raises_for_too_many_link_paths(tmp_path: Path) -> None:
    stores = [tmp_path / ".stores" / f"{number}" for number in range(20)]
    for store in stores:
        store.mkdir(parents=True)
        for other in stores:
            (store / f"to-{other.name}").symlink_to(other)
    (tmp_path / "a").symlink_to(stores[0])
    with pytest.raises(StorageError, match="in at most 100 ways, got more"):
        list_data_files(open_location(tmp_path))


def test_listing_handles_links_between_listed_directories(tmp_path: Path) -> None:
    for path in ("day=1/a.parquet", "day=2/b.parquet", "day=3/c.parquet"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_bytes(b"x")
    (tmp_path / "day=1" / "two").symlink_to(tmp_path / "day=2")
    (tmp_path / "day=1" / "three").symlink_to(tmp_path / "day=3")
    named = open_location([str(tmp_path / "day=1"), str(tmp_path / "day=2")])
    assert list_data_files(named) == ["day=1/a.parquet", "day=1/three/c.parquet", "day=2/b.parquet"]
    below = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert list_data_files(open_location("/", filesystem=below)) == [
        "day=1/a.parquet",
        "day=2/b.parquet",
        "day=3/c.parquet",
    ]


def test_listing_accepts_parquet_of_any_name(location: Location, put: Put) -> None:
    names = ["B.PARQUET", "a.parquet", "day.csv", "part-00001", "x.parquet.gz", "x.pqt"]
    for number, name in enumerate(names):
        put(name, {"id": [number]})
    assert [file.path for file in open_dataset(location.url).inventory.files] == names
    put("x.parquet.gz", gzip.compress(b"no Parquet itself, whatever is in it"))
    put("README.md", b"About this data set, in words.")
    with pytest.raises(
        MetadataError, match=r"2 of its 7 files are not Parquet files: README\.md, x\.parquet\.gz\. Move them away"
    ):
        open_dataset(location.url)
    assert len(open_dataset(f"{location.url}/*[!zd]").inventory.files) == 5


def test_link_to_a_neighboring_file_is_read_once(tmp_path: Path) -> None:
    for folder in ("day=1", "day=2", ".store"):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"id": [len(folder)]}), tmp_path / folder / "part-0.parquet")
    (tmp_path / "day=1/latest.parquet").symlink_to("part-0.parquet")
    (tmp_path / "day=2/other-day.parquet").symlink_to(tmp_path / "day=1/part-0.parquet")
    (tmp_path / "day=2/stored.parquet").symlink_to("../.store/part-0.parquet")
    (tmp_path / "day=2/stored-again.parquet").symlink_to("../.store/part-0.parquet")  # content stores share equal files
    names = ["day=1/part-0.parquet", "day=2/part-0.parquet", "day=2/stored-again.parquet", "day=2/stored.parquet"]
    assert list_data_files(open_location(tmp_path)) == names
    for url in (tmp_path, f"{tmp_path}/day=*/*.parquet", [str(tmp_path / "day=1"), str(tmp_path / "day=2")]):
        assert open_dataset(url).inventory.num_rows == 4
    named = [str(tmp_path / "day=1" / name) for name in ("part-0.parquet", "latest.parquet")]
    assert open_dataset(named).inventory.num_rows == 2  # each listed name counts


def test_link_to_a_neighboring_file_is_not_unlisted(tmp_path: Path) -> None:
    schema = Unischema("id", [UnischemaField("id", "int64")])
    write_dataset(str(tmp_path), schema, [{"id": 1}])
    (tmp_path / "latest.parquet").symlink_to(open_dataset(tmp_path).paths[0])
    assert open_dataset(tmp_path).inventory.num_rows == 1
    write_dataset(str(tmp_path), schema, [{"id": 2}, {"id": 3}], mode="overwrite")
    assert open_dataset(tmp_path).inventory.num_rows == 2
