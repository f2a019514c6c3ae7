"""Tests of remote files without etags: rows of the planned version or an error, never a mix."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from pyarrow import fs

from petastore.cache import DiskCache
from petastore.dataset.opening import open_dataset
from petastore.errors import DatasetChangedError
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.open_files import OpenFiles
from tests.failing_files import FailingFiles, OwnHandler

GROUPS, ROWS = 4, 40_000


def parquet(first: int) -> bytes:
    """Return a file without page checksums, whose size and footer do not depend on its values."""
    sink, numbers = pa.BufferOutputStream(), np.arange(first, first + GROUPS * ROWS)
    table = pa.table({"id": numbers, "text": [f"{number:07}" for number in numbers.tolist()]})
    pq.write_table(
        table,
        sink,
        row_group_size=ROWS,
        data_page_size=1 << 16,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
    )
    return bytes(sink.getvalue().to_pybytes())


class ReadAhead(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A filesystem like most for the web: files read megabytes ahead, and info has its own name for the mtime."""

    protocol = "ahead"
    cachable = False
    asked: list[tuple[int, int]] = []  # noqa: RUF012 - of the class, as its files are
    cat_file = AbstractFileSystem.cat_file

    def info(self, path: str, **more: Any) -> Any:
        info = super().info(path, **more)
        return {**info, "modificationTime": info.pop("created", None)}

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        return _Ahead(self, path, mode) if mode == "rb" else super()._open(path, mode, **more)


class _Ahead(AbstractBufferedFile):  # type: ignore[misc]
    def _fetch_range(self, start: int, end: int) -> bytes:
        ReadAhead.asked.append((start, end))
        return bytes(self.fs.store[self.path].getvalue()[start:end])


Place = tuple[str, Any, Callable[[bytes], None]]


@pytest.fixture(params=["memory", "reads ahead", "subtree", "own handler"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Yield a URL, its filesystem, and a function that writes the one file."""
    name = uuid.uuid4().hex
    if request.param == "subtree":
        yield name, fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), writer_below(tmp_path / name)
        return
    if request.param == "own handler":
        handler = TellingHandler(FailingFiles())
        yield name, fs.PyFileSystem(handler), lambda data: handler.put(f"{name}/a.parquet", data)
        return
    store = fsspec.filesystem("memory") if request.param == "memory" else ReadAhead()
    yield f"/{name}", store, lambda data: store.pipe_file(f"/{name}/a.parquet", data)
    store.rm(f"/{name}", recursive=True)
    ReadAhead.asked.clear()


class TellingHandler(OwnHandler):
    """A filesystem handler that reports modification times."""

    def __init__(self, files: FailingFiles) -> None:
        super().__init__(files)
        self.writes = 0

    def put(self, path: str, data: bytes) -> None:
        self.files.files[path] = data
        self.writes += 1

    def _info(self, found: dict[str, Any]) -> Any:
        info = super()._info(found)
        return fs.FileInfo(info.path, info.type, size=info.size, mtime_ns=self.writes) if info.is_file else info


def writer_below(folder: Path) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        folder.mkdir(exist_ok=True)
        path = folder / "a.parquet"
        before = path.stat().st_mtime_ns if path.exists() else 0
        path.write_bytes(data)
        while path.stat().st_mtime_ns == before:  # until the mtime changes
            path.write_bytes(data)

    return write


CHANGED = r"a\.parquet was rewritten.*: it had ([\d,]+ bytes, written .+), and has ([\d,]+ bytes, written [^.]+\.?\S*)"


@pytest.mark.parametrize("part", [Part(("id", "text")), Part(("id", "text"), first=10)], ids=["whole", "first rows"])
def test_remote_file_rewritten_while_reading_raises(place: Place, part: Part) -> None:
    url, filesystem, write = place
    write(parquet(0))
    dataset, files = open_dataset(url, filesystem=filesystem), OpenFiles()
    (file,) = dataset.inventory.files
    read = dataset.reading(files)
    (table,) = read(file, 0, [part])
    assert table.column("id").to_pylist() == list(range(table.num_rows))
    other = parquet(1_000_000)
    assert len(other) == file.size
    write(other)
    with pytest.raises(DatasetChangedError) as caught:
        list(read(file, 1, [part]))
    found = re.search(CHANGED, str(caught.value))
    assert found is not None, caught.value
    assert found[1] != found[2]
    files.close()


def test_remote_file_requests_only_needed_chunks(place: Place) -> None:
    url, filesystem, write = place
    write(parquet(0))
    dataset, files = open_dataset(url, filesystem=filesystem), OpenFiles()
    (file,) = dataset.inventory.files
    ReadAhead.asked.clear()
    for group in range(GROUPS):
        (table,) = dataset.reading(files)(file, group, [Part(("id",))])
        assert table.column("id").to_pylist() == list(range(group * ROWS, (group + 1) * ROWS))
    assert sum(end - start for start, end in ReadAhead.asked) <= 1.05 * GROUPS * ROWS * 8
    files.close()


def test_remote_file_requests_few_bytes_for_few_rows(place: Place) -> None:
    url, filesystem, write = place
    write(parquet(0))
    dataset, files = open_dataset(url, filesystem=filesystem), OpenFiles()
    ReadAhead.asked.clear()
    (table,) = dataset.reading(files)(dataset.inventory.files[0], 1, [Part(("text",), first=3)])
    assert table.column("text").to_pylist() == [f"{ROWS + row:07}" for row in range(3)]
    assert sum(end - start for start, end in ReadAhead.asked) <= 300_000 < ROWS * 11
    files.close()


def test_rewritten_file_is_not_served_from_the_disk_cache(place: Place, tmp_path: Path) -> None:
    url, filesystem, write = place
    write(parquet(0))
    for first in (0, 1_000_000):
        write(parquet(first))
        dataset = open_dataset(url, filesystem=filesystem).with_cache(tmp_path / "cache", limit=1 << 26)
        cache, files = dataset.kept.cache, OpenFiles()
        assert isinstance(cache, DiskCache)
        for _ in range(2):
            (table,) = dataset.reading(files)(dataset.inventory.files[0], 3, [Part(("id",))])
            assert table.column("id")[0].as_py() == first + 3 * ROWS
        assert (cache.metrics.hits, cache.metrics.misses) == (1, 1)
        files.close()
        dataset.kept.close()
