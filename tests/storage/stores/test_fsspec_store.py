"""Tests of the fsspec client: file info like pyarrow's handler, etags, listing cache, exit while a request hangs."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import fsspec
import pytest
from pyarrow import fs

from petastore.storage.stores.fsspec_store import FsspecStore, etag_in, forget_listings
from petastore.storage.stores.interface import listed_etag

HANGS = """
import threading, time
from fsspec.spec import AbstractFileSystem
from petastore.storage.stores.fsspec_store import FsspecStore

asked = threading.Event()

class Hangs(AbstractFileSystem):
    def info(self, path, **_):
        asked.set()
        while True:
            time.sleep(0.001)

threading.Thread(target=FsspecStore(Hangs()).get_file_info, args=("x",), daemon=True).start()
asked.wait()
"""


def test_process_exits_while_a_request_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def told(found: Any) -> Any:
    return [told(one) for one in found] if isinstance(found, list) else (found.path, found.type, found.size)


def test_fsspec_store_file_info_equals_that_of_pyarrow_fsspec_handler() -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/asked/day=1/a", b"abc")
    ours, arrows = FsspecStore(store), fs.PyFileSystem(fs.FSSpecHandler(store))
    try:
        for asked in (
            "/asked", "/asked/day=1/a", "/asked/nothing", ["/asked", "/asked/nothing"],
            fs.FileSelector("/asked", recursive=True), fs.FileSelector("/nowhere", allow_not_found=True),
        ):  # fmt: skip
            assert told(ours.get_file_info(asked)) == told(arrows.get_file_info(asked))
        again = pickle.loads(pickle.dumps(ours))  # noqa: S301 - our own
        assert type(again) is FsspecStore
        assert again.get_file_info("/asked/day=1/a").size == 3
    finally:
        store.rm("/asked", recursive=True)


class Remembers:
    """A filesystem that records the paths whose listings are invalidated, with or without a path argument."""

    def __init__(self) -> None:
        self.forgotten: list[str | None] = []

    def invalidate_cache(self, path: str | None = None) -> None:
        self.forgotten.append(path)


class RemembersAll(Remembers):
    def invalidate_cache(self) -> None:  # type: ignore[override]
        self.forgotten.append(None)


@pytest.mark.parametrize(
    ("info", "etag"),
    [
        ({"ETag": '"9a"', "md5Hash": "1b"}, '"9a"'),
        ({"generation": 17, "etag": "CAE="}, "17"),
        ({"etag": None, "sha": "0c"}, "0c"),
        ({"name": "a", "size": 7}, ""),
    ],
)
def test_file_version_from_fsspec_info_is_its_etag_or_generation(info: dict[str, object], etag: str) -> None:
    assert etag_in(info) == etag


def test_fsspec_listing_includes_etags_if_the_storage_has_them() -> None:
    class Names(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
        protocol = "names"

        def info(self, path: str, **asked: object) -> dict[str, object]:
            return {**super().info(path, **asked), "ETag": '"9a"'}

    Names().pipe_file("/listed/a", b"abc")
    try:
        assert listed_etag(FsspecStore(Names()).get_file_info("/listed/a")) == '"9a"'
        assert listed_etag(FsspecStore(fsspec.filesystem("memory")).get_file_info("/listed/a")) == ""
    finally:
        Names().rm("/listed", recursive=True)


def test_pyarrow_listing_has_no_etags(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert listed_etag(fs.LocalFileSystem().get_file_info(str(tmp_path_factory.getbasetemp()))) == ""


@pytest.mark.parametrize(("path", "one", "every"), [("a/b", ["a/b"], [None]), (None, [None], [None])])
def test_fsspec_store_invalidates_the_listing_cache_of_a_path_or_all_of_it(
    path: str | None, one: list[str | None], every: list[str | None]
) -> None:
    forgets_one, forgets_all = Remembers(), RemembersAll()
    for store in (forgets_one, forgets_all):
        forget_listings(store, path)
    assert (forgets_one.forgotten, forgets_all.forgotten) == (one, every)
