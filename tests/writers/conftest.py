"""Fixtures shared by the tests of writing."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.metadata.manifest import read_manifest
from petastore.storage.row_groups.row_group import read_row_group


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a dataset that does not exist yet."""
    if request.param == "file":
        yield f"file://{tmp_path}/dataset"
        return
    place = f"memory://{uuid.uuid4().hex}/dataset"
    yield place
    location = open_location(place)
    with contextlib.suppress(FileNotFoundError):
        location.filesystem.delete_dir(location.root)


def stored(url: str) -> list[dict[str, Any]]:
    """Return all rows of a committed dataset as stored, in the order of the manifest."""
    location = open_location(url)
    manifest = read_manifest(location)
    assert manifest is not None
    inventory = manifest.inventory
    footers = FooterCache()
    rows: list[dict[str, Any]] = []
    for index, ordinal in zip(inventory.file.tolist(), inventory.ordinal.tolist(), strict=True):
        file = inventory.files[index]
        names = list(footers.get(location, file).leaves)
        rows += read_row_group(location, file, ordinal, names, footers=footers).to_pylist()
    return rows


def everything_in(location: Location) -> list[str]:
    """Return all files below the root, including hidden ones, except the lock file."""
    below = location.filesystem.get_file_info(pa.fs.FileSelector(location.root, recursive=True, allow_not_found=True))
    root = location.root.rstrip("/") + "/"
    return sorted(info.path.removeprefix(root) for info in below if info.is_file and info.base_name != ".lock")
