"""Tests of the cache on a failing or slow disk: it is bypassed with one warning."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from petastore.cache.entries import FOLDER, Disk
from petastore.errors import CacheBypassWarning, StorageError

LIMIT = 1 << 20


def test_cache_files_are_stored_under_the_location(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "place", LIMIT)
    assert disk.folder.root == tmp_path / "place" / FOLDER
    assert disk.ledger is not None
    assert disk.most == disk.ledger.most < LIMIT


def test_cache_is_bypassed_until_the_location_is_a_directory(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.write_text("a file")
    with pytest.warns(CacheBypassWarning, match=r"place.*bypassed.*choose another cache_location or cache_size_limit"):
        disk = Disk(place, LIMIT)
    assert (disk.ledger, disk.most) == (None, sys.maxsize)
    with pytest.raises(StorageError, match=r"the cache at .*place.* cannot be used") as caught:
        disk.asked_of_ledger(lambda ledger: ledger.contents())
    assert caught.value.errno
    place.unlink()
    assert disk.asked_of_ledger(lambda ledger: ledger.contents().limit) == LIMIT
    assert disk.ledger is not None


def test_full_or_slow_disk_pauses_the_cache_with_one_warning(tmp_path: Path) -> None:
    disk = Disk(tmp_path, LIMIT)
    with pytest.warns(CacheBypassWarning, match="No space"):
        disk.bypass(OSError(28, "No space left on device"))
    assert disk.rests_until == 0
    with warnings.catch_warnings(record=True) as said:
        disk.bypass(TimeoutError(110, "slow"))
    assert said == []
    assert disk.rests_until > 0
