"""Tests of cache entries: from disk or from the fetch function, in the order of their keys, each fetched once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from petastore.cache.entries import MOST_OPEN, Counts, Disk, Entries
from petastore.cache.entry_file import Entry
from petastore.errors import CacheBypassWarning


class Fetching:
    """Fetch function that records the numbers of the requested entries."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, numbers: Sequence[int]) -> list[bytes]:
        self.asked += numbers
        return [b"entry %d" % number for number in numbers]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path, 1 << 22)
    yield disk
    if disk.ledger is not None:
        disk.ledger.close()


def asked(entries: Entries, numbers: Sequence[int], fetch: Fetching) -> list[bytes]:
    found = entries.of(
        [f"key {number}" for number in numbers], lambda some: fetch([numbers[n] for n in some]), [None] * len(numbers)
    )
    taken = [bytes(entry.view) for entry in found]
    for entry in found:
        entry.close()
    return taken


def test_only_missing_cache_entries_are_fetched_and_stored(disk: Disk) -> None:
    counts, fetch = Counts(), Fetching()
    entries = Entries(disk, counts)
    assert asked(entries, [2, 0], fetch) == [b"entry 2", b"entry 0"]
    assert asked(entries, [0, 1, 2, 3], fetch) == [b"entry %d" % number for number in range(4)]
    assert fetch.asked == [2, 0, 1, 3]
    told = counts.told()
    assert (told.hits, told.misses, told.bytes_read, told.bytes_written) == (2, 4, 14, 28)


def test_more_entries_than_open_file_limit_are_stored(disk: Disk) -> None:
    fetch, many = Fetching(), list(range(MOST_OPEN + 9))
    entries = Entries(disk, Counts())
    first, again = asked(entries, many, fetch), asked(entries, many, fetch)
    assert first == again == [b"entry %d" % number for number in many]
    assert fetch.asked == many


def test_request_without_keys_returns_no_entries(disk: Disk) -> None:
    assert Entries(disk, Counts()).of([], lambda _: pytest.fail("nothing is missing"), []) == []


def test_failed_fetch_raises_and_releases_the_lock(disk: Disk) -> None:
    entries, fetch = Entries(disk, Counts()), Fetching()

    def fail(_: Sequence[int]) -> list[bytes]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        entries.of(["key 0"], fail, [None])
    assert asked(entries, [0], fetch) == [b"entry 0"]
    assert list(disk.folder.writing.iterdir()) == []


def test_fetch_function_that_returns_too_few_entries_raises(disk: Disk) -> None:
    with pytest.raises(ValueError, match="zip"):
        Entries(disk, Counts()).of(["a", "b"], lambda _: [b"one"], [None, None])


def test_entry_over_the_limit_is_returned_and_not_stored(disk: Disk) -> None:
    counts = Counts()
    large = bytes(disk.most)
    for _ in range(2):
        (entry,) = Entries(disk, counts).of(["large"], lambda _: [large], [len(large)])
        assert entry.view == large
        entry.close()
    assert (counts.told().bypassed, counts.told().hits) == (2, 0)


def test_discarded_entry_is_fetched_again(disk: Disk) -> None:
    entries, fetch = Entries(disk, Counts()), Fetching()
    asked(entries, [0, 1], fetch)
    entries.discard(["key 0", "never kept"])
    asked(entries, [0, 1], fetch)
    assert fetch.asked == [0, 1, 0]


def test_entries_are_fetched_each_time_when_the_cache_has_no_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheBypassWarning):
        disk = Disk(tmp_path / "file", 1 << 22)
    fetch, counts = Fetching(), Counts()
    assert asked(Entries(disk, counts), [0], fetch) == asked(Entries(disk, counts), [0], fetch) == [b"entry 0"]
    assert (fetch.asked, counts.told().bypassed) == ([0, 0], 2)


def test_fetched_entry_is_a_read_only_buffer() -> None:
    entry = Entry.of(np.array([[1, 2]], dtype="<i2"))
    assert (bytes(entry.view), entry.view.readonly) == (b"\x01\x00\x02\x00", True)
    held = memoryview(entry.view)
    entry.close()  # while a memory view of it exists
    assert bytes(held) == b"\x01\x00\x02\x00"
