"""Who asks obstore gets the bytes of one version, or is told that there is another; on stores that need no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore, MemoryStore

from petastore.storage.obstores.client import ObstoreClient
from petastore.storage.obstores.kept_stores import of_containers
from petastore.storage.requests.client import FileVersion, NotTheVersionError

DATA = bytes(range(100))


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    found: Any = MemoryStore() if request.param == "memory" else LocalStore(tmp_path)
    found.put("a/x", DATA)
    return found


def client_of(store: Any) -> ObstoreClient:
    return ObstoreClient(of_containers(lambda _: store))


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (0, 100), (37, 20), (99, 1)])
def test_ranges_are_those_of_the_file_and_tell_their_version(store: Any, offset: int, length: int) -> None:
    client = client_of(store)
    version = client.version("bucket/a/x")
    answer = client.get("bucket/a/x", offset, length, version)
    assert bytes(answer.data) == DATA[offset : offset + length]
    assert answer.version == version
    assert version.tells
    assert version.size == 100


@pytest.mark.parametrize("length", [1, 7, 100, 1000])
def test_ends_are_those_of_the_file(store: Any, length: int) -> None:
    answer = client_of(store).tail("bucket/a/x", length)
    assert bytes(answer.data) == DATA[-length:]
    assert answer.version == client_of(store).version("bucket/a/x")


def test_another_version_is_never_given_for_the_one_that_was_demanded(store: Any) -> None:
    client = client_of(store)
    before = client.version("bucket/a/x")
    store.put("a/x", DATA[::-1] + b"!")
    with pytest.raises(NotTheVersionError):
        client.get("bucket/a/x", 0, 10, before)
    assert bytes(client.get("bucket/a/x", 0, 10, None).data) == DATA[::-1][:10]


def test_a_file_that_became_shorter_is_another_version(store: Any) -> None:
    client = client_of(store)
    store.put("a/x", DATA[:50])
    for version in (None, FileVersion(100)):
        with pytest.raises(NotTheVersionError):
            client.get("bucket/a/x", 40, 60, version)


def test_a_file_that_is_not_there_is_missing(store: Any) -> None:
    client = client_of(store)
    asks: list[Callable[[], object]] = [
        lambda: client.get("bucket/a/y", 0, 1, None),
        lambda: client.tail("bucket/a/y", 1),
        lambda: client.version("bucket/a/y"),
    ]
    for ask in asks:
        with pytest.raises(FileNotFoundError):
            ask()
