"""What the tests of ranges share: servers, and a way to make a location without looking at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow import fs

from petastore.storage.files.fsspec_handler import Handler
from petastore.storage.files.location import Location
from petastore.storage.ranges.fetch import RangeFetcher
from petastore.storage.ranges.open_fetcher import open_fetcher

Fetcher = Callable[..., RangeFetcher]


def location_of(url: str, *, timeout_s: float = 60.0, **options: Any) -> Location:
    """A location that nobody was asked about."""
    store, root = fsspec.core.url_to_fs(url, skip_instance_cache=True, **options)
    return Location(url, fs.PyFileSystem(Handler(store)), root.rstrip("/"), timeout_s=timeout_s)


@pytest.fixture(scope="session", autouse=True)
def _threads_that_obstore_keeps(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start them, so that no test is blamed for what they have open."""
    import obstore
    from obstore.store import LocalStore

    root: Path = tmp_path_factory.mktemp("obstore")
    (root / "x").write_bytes(b"x")
    obstore.get(LocalStore(root), "x").bytes()


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    """Makes fetchers that are closed in the end."""
    made: list[RangeFetcher] = []

    def make(location: Location, **options: Any) -> RangeFetcher:
        found = open_fetcher(location, **options)
        made.append(found)
        return found

    yield make
    for one in made:
        one.close()
