"""Tests of the footer cache: one read for concurrent callers, LRU eviction, memory limit, rewritten files."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from petastore.errors import DatasetChangedError, StorageError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import read_footer
from tests.storage.conftest import Put
from tests.storage.footers.counted_files import TEN, counted, parquet_bytes


def test_footer_cache_reads_a_footer_once_for_concurrent_callers() -> None:
    location, filesystem = counted({"a.parquet": parquet_bytes(TEN)})
    file = read_footer(location, "a.parquet").file
    cache = FooterCache()
    ready = threading.Barrier(8)

    def ask(_: int) -> Footer:
        ready.wait()
        return cache.get(location, file)

    with ThreadPoolExecutor(8) as threads:
        footers = list(threads.map(ask, range(8)))
    assert len({id(footer) for footer in footers}) == 1
    assert len(filesystem.read) == 2


def test_footer_cache_evicts_lru() -> None:
    location, filesystem = counted({f"{name}.parquet": parquet_bytes(TEN) for name in "abc"})
    files = [read_footer(location, f"{name}.parquet").file for name in "abc"]
    size = len(read_footer(location, "a.parquet").encoded)
    cache = FooterCache(max_bytes=2 * size)
    before = len(filesystem.read)
    for number in (0, 1, 0, 2):  # footer 1 is evicted
        cache.get(location, files[number])
    assert len(cache) == 2
    cache.get(location, files[0])
    assert len(filesystem.read) - before == 3
    cache.get(location, files[1])
    assert len(filesystem.read) - before == 4


def test_footer_cache_keeps_a_too_large_last_footer() -> None:
    location, filesystem = counted({"a.parquet": parquet_bytes(TEN)})
    file = read_footer(location, "a.parquet").file
    cache = FooterCache(max_bytes=1)
    assert cache.get(location, file) is cache.get(location, file)
    assert len(filesystem.read) == 2


def test_footer_cache_memory_limit_evicts_footers() -> None:
    location, filesystem = counted({f"{name}.parquet": parquet_bytes(TEN) for name in "abc"})
    footers = [read_footer(location, f"{name}.parquet") for name in "abc"]
    cache = FooterCache()
    cache.know(location, [dataclasses.replace(footers[0], version=None)])
    for footer in footers[1:]:
        cache.get(location, footer.file)
    assert len(cache) == 2
    cache.limit_memory(10 * len(footers[0].encoded))
    assert len(cache) == 1
    before = len(filesystem.read)
    assert cache.get(location, footers[2].file).file == footers[2].file
    assert len(filesystem.read) == before
    cache.limit_memory(0)
    assert cache.get(location, footers[0].file) is not footers[0]
    assert len(cache) == 1


def test_footer_cache_cost_does_not_grow_with_footers() -> None:
    location, _ = counted({f"{number}.parquet": parquet_bytes(TEN) for number in range(1000)})
    first = read_footer(location, "0.parquet")
    cache = FooterCache(max_bytes=900 * len(first.encoded))
    files = [DataFile(f"{number}.parquet", first.file.size, first.file.digest) for number in range(1000)]
    work = [calls_in(functools.partial(cache.get, location, file)) for file in files]
    assert len(cache) == 900
    assert sum(work[-100:]) <= 1.5 * sum(work[:100])


def calls_in(task: Callable[[], Any]) -> int:
    """Return the number of Python function calls and lines that a task runs."""
    seen = 0

    def note(_frame: Any, _event: str, _argument: Any) -> Any:
        nonlocal seen
        seen += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        task()
    finally:
        sys.settrace(before)
    return seen


def test_footer_cache_skips_files_of_unknown_version() -> None:
    location, filesystem = counted({f"{name}.parquet": parquet_bytes(TEN) for name in "abc"})
    # The version is unknown, as with storage that reports no versions.
    footers = [dataclasses.replace(read_footer(location, f"{name}.parquet"), version=None) for name in "abc"]
    cache = FooterCache()
    cache.know(location, footers)
    before = len(filesystem.read)
    assert [cache.get(location, footer.file) is footer for footer in footers] == [False] * 3
    assert len(filesystem.read) == before + 3
    again = FooterCache()
    again.know(location, footers)
    with location.filesystem.open_output_stream(location.join("a.parquet")) as stream:
        stream.write(parquet_bytes(TEN.slice(3)))
    with pytest.raises(DatasetChangedError):
        again.get(location, footers[0].file)


def test_footer_cache_keeps_local_footers(tmp_path: Path) -> None:
    location = open_location(tmp_path)
    for name in "abc":
        (tmp_path / name).write_bytes(parquet_bytes(TEN))
    footers = [read_footer(location, name) for name in "abc"]
    cache = FooterCache(max_bytes=2 * len(footers[0].encoded))
    cache.know(location, footers)
    assert [cache.get(location, footer.file) is footer for footer in footers] == [True, True, False]


def change_size(file: DataFile) -> DataFile:
    return DataFile(file.path, file.size + 1, file.digest)


def change_digest(file: DataFile) -> DataFile:
    return DataFile(file.path, file.size, "0" * 32)


@pytest.mark.parametrize("change", [change_size, change_digest])
def test_footer_cache_raises_for_a_rewritten_file(
    location: Location, put: Put, change: Callable[[DataFile], DataFile]
) -> None:
    put("a.parquet", TEN)
    file = read_footer(location, "a.parquet").file
    cache = FooterCache()
    for _ in range(2):
        with pytest.raises(DatasetChangedError, match=r"a\.parquet was rewritten"):
            cache.get(location, change(file))
    assert len(cache) == 0
    assert cache.get(location, file).file == file


def test_footer_cache_does_not_compare_an_unknown_digest(location: Location, put: Put) -> None:
    size = put("a.parquet", TEN)
    assert FooterCache().get(location, DataFile("a.parquet", size)).file.size == size


def test_footer_cache_does_not_store_a_failed_read(location: Location, put: Put) -> None:
    cache = FooterCache()
    data = parquet_bytes(TEN)
    file = DataFile("a.parquet", len(data))
    with pytest.raises(StorageError, match="missing"):
        cache.get(location, file)
    put("a.parquet", data)
    assert cache.get(location, file).metadata.num_rows == 10


def test_footer_cache_pickles_empty(location: Location, put: Put) -> None:
    put("a.parquet", TEN)
    put("b.parquet", TEN)
    files = [read_footer(location, name).file for name in ("a.parquet", "b.parquet")]
    for max_bytes, most in ((1 << 20, 2), (1, 1)):
        cache = FooterCache(max_bytes=max_bytes)
        cache.get(location, files[0])
        again = pickle.loads(pickle.dumps(cache))  # noqa: S301 - our own bytes
        assert len(again) == 0
        for file in files:
            again.get(location, file)
        assert len(again) == most  # the limit is pickled, too
