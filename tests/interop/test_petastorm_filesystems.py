"""Tests of `FilesystemResolver` and related functions: filesystems with the methods that Petastorm programs call."""

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
from petastore.interop.petastorm_calls import FilesystemResolver, get_filesystem_and_path_or_paths


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a Parquet file of three rows into its own folder, and return its path."""
    path = tmp_path / "data" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3]}), path)
    return path


def test_filesystem_resolver_resolves_a_local_url(file: Path) -> None:
    resolver = FilesystemResolver(file.parent.as_uri())
    filesystem, path = resolver.filesystem(), resolver.get_dataset_path()
    assert path == str(file.parent)
    assert filesystem.exists(path)
    assert filesystem.isdir(path)
    assert filesystem.ls(path, detail=False) == [str(file)]
    with filesystem.open(f"{path}/a.parquet", "rb") as opened:
        assert pq.read_table(opened).num_rows == 3
    assert resolver.parsed_dataset_url().path == path


def test_filesystem_resolver_accepts_parsed_urls_and_files(file: Path) -> None:
    resolver = FilesystemResolver(urlparse(file.as_uri()), {}, storage_options={})
    assert resolver.get_dataset_path() == str(file)
    assert resolver.filesystem().isfile(str(file))


def test_filesystem_factory_recreates_the_filesystem_after_pickling(file: Path) -> None:
    factory = FilesystemResolver(file.parent.as_uri()).filesystem_factory()
    made = pickle.loads(pickle.dumps(factory))()  # noqa: S301 - made on this line
    assert isinstance(made, LocalFileSystem)
    assert made.exists(str(file))


def test_filesystem_resolver_returns_fsspec_for_object_stores() -> None:
    resolver = FilesystemResolver("memory://bucket/frames", storage_options={"skip_instance_cache": True})
    assert type(resolver.filesystem()) is fsspec.get_filesystem_class("memory")
    assert resolver.get_dataset_path() == "/bucket/frames"


def test_filesystem_resolver_warns_for_hdfs_driver_without_effect() -> None:
    with pytest.warns(RetiredWarning, match="hdfs_driver"):
        FilesystemResolver("memory://bucket/frames", hdfs_driver="libhdfs3")


def test_get_filesystem_and_path_or_paths_accepts_one_url_or_a_list(file: Path) -> None:
    filesystem, path = get_filesystem_and_path_or_paths(file.parent.as_uri())
    assert (type(filesystem), path) == (LocalFileSystem, str(file.parent))
    _, paths = get_filesystem_and_path_or_paths([file.as_uri(), str(file.parent)])
    assert paths == [str(file), str(file.parent)]


def test_filesystem_given_by_the_caller_is_returned(file: Path) -> None:
    given = LocalFileSystem()
    assert get_filesystem_and_path_or_paths(file.as_uri(), filesystem=given)[0] is given


@pytest.mark.parametrize(
    ("urls", "got"), [(["file:///a/1.parquet", "memory://a/2.parquet"], "file://, memory://"), ([], "none")]
)
def test_filesystem_for_urls_of_several_schemes_raises(urls: list[str], got: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"must be URLs of the same scheme and host, got {got}"):
        get_filesystem_and_path_or_paths(urls)
