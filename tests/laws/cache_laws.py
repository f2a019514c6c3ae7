"""Tests that every byte cache must pass: subclass `CacheLaws`, define how to create a cache, and inherit the tests.

A cache returns exactly the bytes that were fetched for a key. It fetches them once if they fit. Its size on disk never
exceeds its limit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from petastore.cache import DiskCache

__all__ = ["CacheLaws", "Source", "bytes_at_one_moment"]


def bytes_at_one_moment(folder: Path) -> int:
    """Return a lower bound of the size of a folder at one moment, while other processes create and remove files in it.

    Files that exist before and after a moment also existed at that moment. Each is counted once, even if it is
    renamed, and with the smaller of its two sizes.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as made:
        ...     _ = Path(made, "file").write_bytes(b"seven b")
        ...     bytes_at_one_moment(Path(made))
        7
    """
    found: dict[int, tuple[Path, int]] = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            status = _status(path)
            if status is not None:
                found[status.st_ino] = path, status.st_size
    total = 0
    for number, (path, size) in found.items():
        status = _status(path)
        if status is not None and status.st_ino == number:
            total += min(size, status.st_size)
    return total


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


class Source:
    """Source of random bytes by key and size, which records each fetched key.

    Example:
        >>> source = Source()
        >>> source.fetch("a", 3)() == source.content("a", 3), source.fetched
        (True, ['a'])
    """

    def __init__(self) -> None:
        self.fetched: list[str] = []

    @staticmethod
    def content(key: str, size: int) -> bytes:
        """Return the bytes of a key."""
        return np.random.default_rng([size, *key.encode()]).bytes(size)

    def fetch(self, key: str, size: int) -> Callable[[], bytes]:
        """Return a function that fetches the bytes of a key."""

        def fetch() -> bytes:
            self.fetched.append(key)
            return self.content(key, size)

        return fetch


class CacheLaws:
    """Tests of the contract of `petastore.cache.DiskCache`."""

    limit = 1 << 20

    def make_cache(self, folder: Path) -> DiskCache:
        """Return a cache in a folder, with the limit of this class."""
        raise NotImplementedError

    @staticmethod
    def ask(cache: DiskCache, source: Source, key: str, size: int) -> None:
        """Request an entry, and verify its bytes."""
        with cache.entry(key, source.fetch(key, size)) as view:
            assert view.readonly
            assert bytes(view) == source.content(key, size)

    def test_cached_entry_is_not_fetched_again_even_by_a_later_cache(self, tmp_path: Path) -> None:
        """Entries survive the cache object that wrote them."""
        source, sizes = Source(), {"empty": 0, "one": 1, "block": 4096, "odd": 70_001}
        for _ in range(2):
            with self.make_cache(tmp_path) as cache:
                for _ in range(2):
                    for key, size in sizes.items():
                        self.ask(cache, source, key, size)
        assert source.fetched == list(sizes)

    def test_each_file_version_has_its_own_cache_entry(self, tmp_path: Path) -> None:
        """The key contains the file version, so bytes of another version are never returned."""
        source = Source()
        with self.make_cache(tmp_path) as cache:
            for _ in range(2):
                for version in ("file@1", "file@2"):
                    self.ask(cache, source, version, 5_000)
        assert source.fetched == ["file@1", "file@2"]

    def test_cache_never_uses_more_disk_than_its_limit(self, tmp_path: Path) -> None:
        """Entries larger than the limit are not cached."""
        source = Source()
        with self.make_cache(tmp_path) as cache:
            for number in range(60):
                self.ask(cache, source, f"entry {number}", 50_000 + 997 * number)
                assert bytes_at_one_moment(tmp_path) <= self.limit
            self.ask(cache, source, "large", self.limit)
            self.ask(cache, source, "large", self.limit)
            assert bytes_at_one_moment(tmp_path) <= self.limit
            assert source.fetched.count("large") == 2
            assert cache.metrics.bypassed == 2

    def test_failed_fetch_raises_in_the_caller_and_caches_nothing(self, tmp_path: Path) -> None:
        """The next request fetches again."""
        source, problem = Source(), ZeroDivisionError("on purpose")

        def fails() -> bytes:
            raise problem

        with self.make_cache(tmp_path) as cache:
            before = bytes_at_one_moment(tmp_path)
            with pytest.raises(ZeroDivisionError) as caught, cache.entry("key", fails):
                pass
            assert caught.value is problem
            assert bytes_at_one_moment(tmp_path) == before
            self.ask(cache, source, "key", 100)
        assert source.fetched == ["key"]

    def test_exception_in_the_with_block_is_raised_and_the_entry_stays_cached(self, tmp_path: Path) -> None:
        """Errors during the use of an entry do not affect the cache."""
        source = Source()
        with self.make_cache(tmp_path) as cache:
            with pytest.raises(KeyError), cache.entry("key", source.fetch("key", 10)):
                raise KeyError
            self.ask(cache, source, "key", 10)
        assert source.fetched == ["key"]

    def test_concurrent_threads_fetch_an_entry_once(self, tmp_path: Path) -> None:
        """Later threads wait, and get the bytes that the first thread fetched."""
        source, threads = Source(), 8
        begin = threading.Barrier(threads)
        problems: list[BaseException] = []

        def run() -> None:
            try:
                for number in range(10):
                    begin.wait(60)
                    self.ask(cache, source, f"entry {number}", 20_000)
            except BaseException as problem:  # noqa: BLE001 - reported below
                problems.append(problem)

        with self.make_cache(tmp_path) as cache:
            running = [threading.Thread(target=run) for _ in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            assert problems == []
            assert sorted(source.fetched) == sorted(f"entry {number}" for number in range(10))
            assert cache.metrics.hits == 10 * (threads - 1)

    def test_caches_in_one_directory_share_their_entries(self, tmp_path: Path) -> None:
        """An entry is fetched once, by either cache."""
        source = Source()
        with self.make_cache(tmp_path) as one, self.make_cache(tmp_path) as other:
            self.ask(one, source, "key", 3_000)
            self.ask(other, source, "key", 3_000)
            assert (one.metrics.misses, other.metrics.hits) == (1, 1)
        assert source.fetched == ["key"]

    def test_damaged_entry_is_detected_counted_and_fetched_again(self, tmp_path: Path) -> None:
        """Entries with a wrong byte, and truncated entries, are detected."""
        random, source = np.random.RandomState(5), Source()
        with self.make_cache(tmp_path) as cache:
            known = {*_files(tmp_path)}
            self.ask(cache, source, "key", 3_000)
            (path,) = {*_files(tmp_path)} - known
            right = path.read_bytes()
            for damage in range(500):
                place = random.randint(len(right))
                wrong = bytearray(right)
                wrong[place] ^= random.randint(1, 256)
                path.write_bytes(wrong if damage % 10 else right[:place])
                self.ask(cache, source, "key", 3_000)
                assert cache.metrics.damaged == damage + 1
                self.ask(cache, source, "key", 3_000)
            assert cache.metrics.damaged == 500
            assert len(source.fetched) == 501


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
