"""Tests of pickled filesystems: no secrets in the pickle; unpickling finds credentials or raises with advice."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from petastore.errors import StorageAccessError
from petastore.storage.files.file_systems import WithoutSecrets, goes_to_a_child


def pickled(filesystem: Any) -> bytes:
    return pickle.dumps(WithoutSecrets(filesystem, "s3://bucket/data"))


def unpickled(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - our own


NEEDS_A_KEY = {"region": "here", "secret": "hush"}


class Picky(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem that cannot be created without its key."""

    def __init__(self, key: str | None = None, **options: Any) -> None:
        if key is None and "region" in options:
            raise ValueError("give me a key")
        super().__init__(**options)


def test_filesystem_without_secrets_round_trips() -> None:
    for filesystem in (fs.LocalFileSystem(use_mmap=True), fs.PyFileSystem(fs.FSSpecHandler(MemoryFileSystem()))):
        assert unpickled(pickled(filesystem)) == filesystem


@pytest.mark.leaves_running("Arrow's S3 keeps its threads")
def test_pyarrow_filesystem_pickles_without_credentials() -> None:
    keys = {"access_key": "AKIAXXX", "secret_key": "hushhush"}
    filesystem = fs.S3FileSystem(**keys, region="eu-west-1", scheme="http")
    data = pickled(filesystem)
    assert b"hushhush" in pickle.dumps(filesystem)
    assert b"hushhush" not in data
    again = unpickled(data)
    assert isinstance(again, fs.S3FileSystem)
    assert again.region == "eu-west-1"


def test_fsspec_filesystem_round_trips_with_its_options() -> None:
    options = {"secret": "hushhush", "profile": "work", "client_kwargs": {"token": "hushhush", "region_name": "here"}}
    data = pickled(fs.PyFileSystem(fs.FSSpecHandler(Picky("hushhush", **options))))
    assert b"hushhush" not in data
    store = unpickled(data).handler.fs
    assert type(store) is Picky
    assert store.storage_options == {"profile": "work", "client_kwargs": {"region_name": "here"}}


@pytest.mark.parametrize(("token", "stays"), [("anon", True), ("google_default", True), ("ya29.hushhush", False)])
def test_gcsfs_token_is_pickled_only_if_it_is_not_a_secret(token: str, stays: bool) -> None:
    store = unpickled(pickled(fs.PyFileSystem(fs.FSSpecHandler(MemoryFileSystem(token=token))))).handler.fs
    assert ("token" in store.storage_options) is stays


def test_unpickling_filesystem_without_credentials_raises_with_advice() -> None:
    data = pickled(fs.PyFileSystem(fs.FSSpecHandler(Picky("hushhush", **NEEDS_A_KEY))))
    with pytest.raises(
        StorageAccessError,
        match=r"s3://bucket/data cannot be opened .* credentials of its file system \(.*secret.*Open the dataset in",
    ) as caught:
        unpickled(data)
    assert "hush" not in str(caught.value)


def test_credentials_are_not_pickled_when_no_child_process_is_started() -> None:
    assert not goes_to_a_child()
