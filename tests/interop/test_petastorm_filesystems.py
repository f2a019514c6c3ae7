"""URLs lead to filesystems with the methods that programs of Petastorm's call."""

from __future__ import annotations

import pickle
from pathlib import Path
from urllib.parse import urlparse

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from petastore.errors import InvalidArgumentError, RetiredWarning
from petastore.interop.petastorm_filesystems import FilesystemResolver, get_filesystem_and_path_or_paths


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A Parquet file of three rows, in a folder of its own."""
    path = tmp_path / "data" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3]}), path)
    return path


def test_a_local_url_leads_to_a_filesystem_and_the_path_in_it(file: Path) -> None:
    resolver = FilesystemResolver(file.parent.as_uri())
    filesystem, path = resolver.filesystem(), resolver.get_dataset_path()
    assert path == str(file.parent)
    assert filesystem.exists(path)
    assert filesystem.isdir(path)
    assert filesystem.ls(path, detail=False) == [str(file)]
    with filesystem.open(f"{path}/a.parquet", "rb") as opened:
        assert pq.read_table(opened).num_rows == 3
    assert resolver.parsed_dataset_url().path == path


def test_a_url_that_was_parsed_already_and_a_file_are_taken_too(file: Path) -> None:
    resolver = FilesystemResolver(urlparse(file.as_uri()), {}, storage_options={})
    assert resolver.get_dataset_path() == str(file)
    assert resolver.filesystem().isfile(str(file))


def test_a_factory_makes_the_filesystem_again_where_it_is_unpickled(file: Path) -> None:
    factory = FilesystemResolver(file.parent.as_uri()).filesystem_factory()
    made = pickle.loads(pickle.dumps(factory))()  # noqa: S301 - made on this line
    assert isinstance(made, LocalFileSystem)
    assert made.exists(str(file))


def test_an_object_store_is_fsspecs_own_filesystem() -> None:
    resolver = FilesystemResolver("memory://bucket/frames", storage_options={"skip_instance_cache": True})
    assert type(resolver.filesystem()) is fsspec.get_filesystem_class("memory")
    assert resolver.get_dataset_path() == "/bucket/frames"


def test_what_has_no_effect_any_more_is_told() -> None:
    with pytest.warns(RetiredWarning, match="hdfs_driver"):
        FilesystemResolver("memory://bucket/frames", hdfs_driver="libhdfs3")


def test_one_url_gives_a_path_and_a_list_gives_paths(file: Path) -> None:
    filesystem, path = get_filesystem_and_path_or_paths(file.parent.as_uri())
    assert (type(filesystem), path) == (LocalFileSystem, str(file.parent))
    _, paths = get_filesystem_and_path_or_paths([file.as_uri(), str(file.parent)])
    assert paths == [str(file), str(file.parent)]


def test_a_filesystem_that_was_given_comes_back(file: Path) -> None:
    given = LocalFileSystem()
    assert get_filesystem_and_path_or_paths(file.as_uri(), filesystem=given)[0] is given


@pytest.mark.parametrize("urls", [["file:///a/1.parquet", "memory://a/2.parquet"], []])
def test_urls_of_several_filesystems_or_of_none_are_refused(urls: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="share scheme and host"):
        get_filesystem_and_path_or_paths(urls)
