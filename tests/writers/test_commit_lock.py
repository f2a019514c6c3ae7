"""Only one writer commits at a time, in this process and in others."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from petastore.storage.files.location import open_location
from petastore.writers.commit_lock import LOCK, committing


def test_threads_commit_one_after_the_other(url: str) -> None:
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


def test_the_lock_is_one_that_other_processes_see(tmp_path: Path) -> None:
    location = open_location(tmp_path / "dataset")
    with committing(location), Path(location.join(LOCK)).open("r+") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with Path(location.join(LOCK)).open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_lock_is_let_go_when_the_commit_fails(url: str) -> None:
    location = open_location(url)
    with pytest.raises(KeyError), committing(location):
        raise KeyError
    with committing(location):
        pass
