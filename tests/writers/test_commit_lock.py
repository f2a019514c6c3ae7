"""Tests of the commit lock: one writer commits at a time, across threads and processes."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from petastore.storage.files.location import open_location
from petastore.writers.commit import LOCK, committing


def test_commit_lock_serializes_threads(url: str) -> None:
    location = open_location(url)
    inside: list[int] = []
    seen: list[int] = []

    def commit() -> None:
        for _ in range(50):
            with committing(location):
                inside.append(1)
                seen.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=commit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 200


def test_commit_lock_is_visible_to_other_processes(tmp_path: Path) -> None:
    location = open_location(tmp_path / "dataset")
    with committing(location), Path(location.join(LOCK)).open("r+") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with Path(location.join(LOCK)).open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_commit_lock_is_released_when_the_commit_fails(url: str) -> None:
    location = open_location(url)
    with pytest.raises(KeyError), committing(location):
        raise KeyError
    with committing(location):
        pass
