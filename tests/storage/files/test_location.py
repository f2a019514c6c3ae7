"""Tests of `open_location`: URLs and lists become a filesystem and a root, and credentials are never shown."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from petastore.errors import InvalidArgumentError, StorageConnectionError, StorageError
from petastore.storage.files.location import open_location


def test_location_accepts_path_objects_and_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_location(tmp_path / "x").root == str(tmp_path / "x")
    assert open_location("x/y").root == str(tmp_path / "x" / "y")


def test_location_of_a_file_has_its_directory_as_root(tmp_path: Path) -> None:
    (tmp_path / "one.parquet").write_bytes(b"PAR1")
    location = open_location(f"file://{tmp_path}/one.parquet")
    assert (location.root, location.paths) == (str(tmp_path), ("one.parquet",))
    assert location.url == f"file://{tmp_path}/one.parquet"
    assert location.join("one.parquet") == str(tmp_path / "one.parquet")


def test_location_of_a_list_has_the_common_directory_as_root(tmp_path: Path) -> None:
    location = open_location([f"file://{tmp_path}/day=1/a.parquet", f"{tmp_path}/day=2"])
    assert location.root == str(tmp_path)
    assert location.paths == ("day=1/a.parquet", "day=2")
    assert location.url == f"file://{tmp_path}"


def test_location_of_a_list_of_relative_paths_shows_the_common_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for paths in (["day=1/a.parquet", "b.parquet"], ["b.parquet", "day=1/a.parquet"], ["b.parquet", "c.parquet"]):
        location = open_location(paths)
        assert (location.url, location.paths) == (f"file://{tmp_path}", tuple(paths))


def test_location_of_a_list_of_one_url_equals_that_of_the_url(tmp_path: Path) -> None:
    assert open_location([str(tmp_path)]) == open_location(tmp_path)


def test_location_of_a_list_keeps_its_scheme() -> None:
    location = open_location(["memory://bucket/ds/a.parquet", "memory://bucket/ds/deep/b.parquet"])
    assert location.url == "memory://bucket/ds"
    assert (location.root, location.paths) == ("/bucket/ds", ("a.parquet", "deep/b.parquet"))


def test_location_of_a_list_may_have_the_filesystem_root_as_root() -> None:
    location = open_location(["/a-1", "/b-2"])
    assert (location.url, location.root, location.paths) == ("file:///", "/", ("a-1", "b-2"))
    assert location.join("a-1") == "/a-1"


def test_location_counts_paths_listed_several_times() -> None:
    location = open_location(["/data/x/a", "/data/y/b.parquet", "/data/x/a"])
    assert (location.paths, location.times) == (("x/a", "y/b.parquet"), {"x/a": 2})
    told = [location.times_of(path) for path in ("x/a/1.parquet", "x/a", "x/ab/1.parquet", "y/b.parquet")]
    assert told == [2, 2, 1, 1]


@pytest.mark.parametrize(
    ("urls", "why"),
    [
        (["s3://a/x", "s3://b/x"], "have the same scheme and host, got "),
        (["s3://a/x", "gs://a/x"], "have the same scheme and host, got "),
        (["/data/x", "memory://x"], "have the same scheme and host, got "),
        (["/data/x", "/data/x"], "a whole dataset must be named once, got file:///data/x 2 times"),
        (["/data/x", "/data/x/day=1"], "overlap"),
        (["/data/x/b", "/data/x", "/data/x-1"], "overlap"),
    ],
)
def test_urls_of_different_storages_raise(urls: list[str], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        open_location(urls)


@pytest.mark.parametrize("wrong", [None, 7, b"/data", [], "", "   ", [None], [b"/data"], [""], {"a": 1}, "a\0b"])
def test_invalid_url_raises(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        open_location(wrong)


class Secretive(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """An in-memory filesystem that takes credentials and can fail."""

    protocol = "secretive"
    cachable = False

    def __init__(self, password: str = "", broken: bool = False, **more: Any) -> None:
        super().__init__(**more)
        self.password = password
        self.broken = broken

    def info(self, path: str, **more: Any) -> Any:
        if self.broken:
            raise PermissionError(f"secretive://user:{self.password}@host{path} refused")
        return super().info(path, **more)


@pytest.fixture
def _secretive() -> Iterator[None]:
    fsspec.register_implementation("secretive", Secretive, clobber=True)
    yield
    del _registry["secretive"]


@pytest.mark.usefixtures("_secretive")
def test_storage_options_are_never_shown() -> None:
    location = open_location("secretive://bucket/x", storage_options={"password": "hush"})
    assert location.filesystem.fs.password == "hush"  # noqa: S105 - it is none
    assert "hush" not in f"{location!r} {location.url} {location.root}"
    with pytest.raises(InvalidArgumentError, match="nonsense") as refused:
        open_location("s3://bucket/x", storage_options={"nonsense": "hush"})
    assert "hush" not in str(refused.value)


@pytest.mark.usefixtures("_secretive")
def test_user_and_password_in_a_url_are_never_shown() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        open_location("secretive://user:hush@bucket/x")
    assert str(refused.value) == (
        "the URL must not contain user and password for this scheme, got secretive://***@bucket/x. "
        "Pass them as storage_options"
    )
    with pytest.raises(StorageError) as unreachable:
        open_location("secretive://bucket/x", storage_options={"password": "hush", "broken": True})
    assert "hush" not in str(unreachable.value)


@pytest.mark.leaves_running("obstore keeps its threads")
def test_url_signature_is_never_shown() -> None:
    with pytest.raises(StorageConnectionError, match=r"^http://127\.0\.0\.1:9/x\.parquet: ") as refused:
        open_location("http://127.0.0.1:9/x.parquet?signature=hush")
    assert "hush" not in str(refused.value)


def test_location_can_be_pickled(tmp_path: Path) -> None:
    for url in (tmp_path, "memory://bucket/x"):
        location = open_location(os.fspath(url))
        again = pickle.loads(pickle.dumps(location))  # noqa: S301 - our own bytes
        assert again == location
