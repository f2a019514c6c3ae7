"""Fixtures shared by the tests of storage."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec.asyn
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.storage.files.location import Location, open_location

Put = Callable[..., int]


@pytest.fixture(scope="session", autouse=True)
def _loop_that_fsspec_keeps() -> None:
    """Start fsspec's global event loop thread before any test, so that thread leak checks ignore it."""
    fsspec.asyn.get_loop()


@pytest.fixture(params=["file", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    """Yield an empty directory, once on a local and once on an fsspec filesystem."""
    if request.param == "file":
        yield open_location(tmp_path)
        return
    place = open_location(f"memory://{uuid.uuid4().hex}/dataset")
    place.filesystem.create_dir(place.root, recursive=True)
    yield place
    place.filesystem.delete_dir(place.root)


@pytest.fixture
def put(location: Location) -> Put:
    """Return a function that writes bytes, or a table as Parquet, to `location`, and returns the size."""

    def put(path: str, content: bytes | pa.Table | dict[str, Any], **options: Any) -> int:
        if not isinstance(content, bytes):
            sink = pa.BufferOutputStream()
            table = content if isinstance(content, pa.Table) else pa.table(content)
            pq.write_table(table, sink, **options)
            content = sink.getvalue().to_pybytes()
        full = location.join(path)
        location.filesystem.create_dir(full.rpartition("/")[0], recursive=True)
        with location.filesystem.open_output_stream(full, compression=None) as stream:
            stream.write(content)
        return len(content)

    return put
