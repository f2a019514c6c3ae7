"""Tests of announced access orders: other processes see them, and the reader's position, until they are closed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from petastore.cache.disk_cache import Announcement, announced
from petastore.cache.folder import Folder
from petastore.cache.ledger import Ledger
from petastore.cache.next_use import uses_within
from tests.forked import forked

KEYS = [f"key {number}" for number in range(5)]
ORDER = np.array([3, 1, -1, 4, 1])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "cache")


@pytest.fixture
def ledger(folder: Folder) -> Iterator[Ledger]:
    ledger = Ledger(folder, 1 << 22)
    yield ledger
    ledger.close()


def names(folder: Folder) -> list[str]:
    return [path.name for path in folder.futures.iterdir()]


def test_announced_access_order_is_visible_until_closed(folder: Folder, ledger: Ledger) -> None:
    with announced(folder, ledger, KEYS, ORDER) as announcement:
        assert announcement.uses == len(ORDER)
        assert len(names(folder)) == 1
        assert ledger.contents().readers == 1
    assert names(folder) == []
    assert ledger.contents().readers == 0
    announcement.close()
    announcement.move_to(2)


def test_announced_access_order_is_truncated_to_its_share_of_the_cache(folder: Folder) -> None:
    ledger = Ledger(folder, 1 << 20)
    most = uses_within(ledger.most // 64)
    order = np.tile(np.arange(5), most)
    with announced(folder, ledger, KEYS, order) as announcement:
        assert 0 < announcement.uses <= most
    with announced(folder, ledger, KEYS, np.where(order > 0, -1, order)) as announcement:
        assert announcement.uses > most  # positions with -1, which are not uses, take no space
    ledger.close()


def test_announcement_accepts_positions_outside_its_access_order(folder: Folder, ledger: Ledger) -> None:
    with announced(folder, ledger, KEYS, ORDER) as announcement:
        for position in (-3, 2, 99):
            announcement.move_to(position)
        announcement.move_to(1, begun=99)


def test_closing_an_announcement_in_a_forked_child_keeps_it_for_the_parent(folder: Folder, ledger: Ledger) -> None:
    with announced(folder, ledger, KEYS, ORDER) as announcement:
        assert os.waitpid(forked(announcement.close), 0)[1] == 0
        assert len(names(folder)) == 1


def test_announcement_without_an_access_order_does_nothing() -> None:
    with Announcement() as announcement:
        announcement.move_to(3)
    assert announcement.uses == 0
