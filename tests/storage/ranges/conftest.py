"""Fixtures shared by the tests of range requests: servers, and a location that is created without requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from petastore.storage.files.file_systems import filesystem_and_path
from petastore.storage.files.location import Location
from petastore.storage.ranges.fetch import RangeFetcher

Fetcher = Callable[..., RangeFetcher]


def location_of(url: str, *, timeout_s: float = 60.0, **options: Any) -> Location:
    """Return a location without any request to the storage."""
    filesystem, root = filesystem_and_path(url, options, None, timeout_s)
    return Location(url, filesystem, root, timeout_s=timeout_s)


@pytest.fixture(scope="session", autouse=True)
def _threads_that_obstore_keeps(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start obstore's threads before any test, so that thread leak checks ignore them."""
    import obstore
    from obstore.store import LocalStore

    root: Path = tmp_path_factory.mktemp("obstore")
    (root / "x").write_bytes(b"x")
    obstore.get(LocalStore(root), "x").bytes()


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    """Yield a function that makes fetchers, which are closed after the test."""
    made: list[RangeFetcher] = []

    def make(location: Location, **options: Any) -> RangeFetcher:
        found = RangeFetcher(location, **options)
        made.append(found)
        return found

    yield make
    for one in made:
        one.close()
