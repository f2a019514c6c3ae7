"""Tests of `hf://` with huggingface_hub's filesystem: reading files, digests as versions, and the missing package.

No request goes to the hub: a stand-in filesystem reports files in the form of huggingface_hub's.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from fsspec.spec import AbstractFileSystem

import petastore
from petastore.errors import DatasetChangedError
from petastore.inventory import ReadUnit
from petastore.storage.files.listing import list_etags
from petastore.storage.files.location import open_location


class Hub(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A filesystem of files by repository and revision, each with the digest of its content."""

    protocol = "hf"
    root_marker = ""
    store: dict[str, Any] = {}  # noqa: RUF012 - as fsspec has it
    pseudo_dirs: list[str] = [""]  # noqa: RUF012 - as fsspec has it
    cachable = False
    find = AbstractFileSystem.find

    def __init__(self, token: str | None = None, endpoint: str | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.token, self.endpoint = token, endpoint

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("hf://").rstrip("/")

    def info(self, path: str, **more: Any) -> Any:
        return self._told(super().info(path, **more))

    def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
        found = [self._told(one) for one in super().ls(path, detail=True, **more)]
        return found if detail else [one["name"] for one in found]

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        info.pop("created", None)  # huggingface_hub reports commits, not times
        if info["type"] != "file":
            return info
        return {**info, "blob_id": hashlib.sha1(self.store[info["name"]].getvalue()).hexdigest(), "lfs": None}  # noqa: S324


@pytest.fixture
def hub() -> Iterator[Hub]:
    fsspec.register_implementation("hf", Hub, clobber=True)
    yield Hub()
    Hub.store.clear()
    Hub.pseudo_dirs[:] = [""]
    del _registry["hf"]


def put(hub: Hub, path: str, first: int) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": range(first, first + 100)}), sink)
    hub.pipe_file(path, sink.getvalue().to_pybytes())


def test_hub_missing_package_is_named() -> None:
    script = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "import petastore\n"
        "try: petastore.open_dataset('hf://datasets/me/frames')\n"
        "except petastore.errors.MissingExtraError as problem: print(problem)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == (
        "a hf:// URL needs the package 'huggingface_hub', which is not installed here: pip install huggingface_hub\n"
    )


def test_hub_repositories_and_revisions_are_paths(hub: Hub) -> None:
    put(hub, "datasets/me/frames@refs/convert/parquet/default/0.parquet", 0)
    put(hub, "datasets/me/frames@1a2b3c/data/0.parquet", 100)
    for url, first in (
        ("hf://datasets/me/frames@refs/convert/parquet/default", 0),
        ("hf://datasets/me/frames@1a2b3c/data/*.parquet", 100),
        ("hf://datasets/me/frames@1a2b3c/data/0.parquet", 100),
    ):
        with petastore.make_batch_reader(url, shuffle_row_groups=False) as reader:
            assert [number for batch in reader for number in batch.id.tolist()] == list(range(first, first + 100))


def test_hub_options_do_not_show_the_token(hub: Hub) -> None:
    put(hub, "datasets/me/frames/0.parquet", 0)
    options = {"token": "hf_hush", "endpoint": "https://hub.example"}
    location = open_location("hf://datasets/me/frames", storage_options=options)
    assert (location.filesystem.fs.token, location.filesystem.fs.endpoint) == ("hf_hush", "https://hub.example")
    assert location.url == "hf://datasets/me/frames"
    assert "hush" not in f"{location!r} {petastore.open_dataset('hf://datasets/me/frames', storage_options=options)!r}"


def test_hub_file_version_is_its_content_digest(hub: Hub) -> None:
    put(hub, "datasets/me/frames/0.parquet", 0)
    location = open_location("hf://datasets/me/frames")
    first = list_etags(location)
    put(hub, "datasets/me/frames/0.parquet", 1)
    second = list_etags(location)
    assert first.keys() == second.keys() == {"0.parquet"}
    assert first["0.parquet"] != second["0.parquet"]
    assert len(second["0.parquet"][1]) == 40


def test_hub_ranges_are_cached_by_digest(hub: Hub, tmp_path: Any) -> None:
    for first in (0, 100):
        put(hub, "datasets/me/frames/0.parquet", first)
        for hits in (0, 1):
            with petastore.make_batch_reader(
                "hf://datasets/me/frames", cache_type="local-disk", cache_location=tmp_path
            ) as reader:
                assert [number for batch in reader for number in batch.id.tolist()] == list(range(first, first + 100))
                assert (reader.diagnostics["cache_hits"], reader.diagnostics["cache_misses"]) == (hits, 1 - hits)


def test_hub_file_rewritten_while_reading_raises(hub: Hub) -> None:
    put(hub, "datasets/me/frames/0.parquet", 0)
    dataset = petastore.open_dataset("hf://datasets/me/frames")
    put(hub, "datasets/me/frames/0.parquet", 1)
    with pytest.raises(
        DatasetChangedError, match=r"it had [\d,]+ bytes, etag \w{40}, and has [\d,]+ bytes, etag \w{40}"
    ):
        dataset.read(ReadUnit(0, dataset.inventory.files[0], 0, (0, 100), ("id",)))
