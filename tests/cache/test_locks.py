"""Tests of file locks: exclusive among threads and processes, released at the end of a process, not held by forks."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from petastore.cache.folder import locked


def test_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    first = locked(tmp_path / "lock", patience=None)
    assert first is not None
    assert locked(tmp_path / "lock", patience=0) is None
    assert locked(tmp_path / "lock", patience=0.01) is None
    first.close()
    first.close()
    second = locked(tmp_path / "lock", patience=0)
    assert second is not None
    second.close()


def test_waiting_threads_get_the_file_lock_after_its_release(tmp_path: Path) -> None:
    first = locked(tmp_path / "lock", patience=None)
    assert first is not None
    done = []

    def wait(patience: float | None) -> None:
        held = locked(tmp_path / "lock", patience=patience)
        assert held is not None
        with held:
            done.append(patience)

    threads = [threading.Thread(target=wait, args=(patience,)) for patience in (None, 60.0)]
    for thread in threads:
        thread.start()
    assert done == []
    first.close()
    for thread in threads:
        thread.join()
    assert len(done) == 2


def test_thread_waiting_for_a_deleted_lock_file_locks_the_new_file(tmp_path: Path) -> None:
    first = locked(tmp_path / "lock", patience=None)
    assert first is not None
    found = []

    def wait() -> None:
        held = locked(tmp_path / "lock", patience=None)
        assert held is not None
        with held:
            found.append(held.is_in_place)

    thread = threading.Thread(target=wait)
    thread.start()
    (tmp_path / "lock").unlink()
    assert not first.is_in_place
    first.close()
    thread.join()
    assert found == [True]


def test_forked_child_neither_holds_nor_releases_locks(tmp_path: Path) -> None:
    held = locked(tmp_path / "lock", patience=None)
    assert held is not None
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        held.close()
        os.write(ready[1], b"1" if held.fd == -1 else b"0")
        os.read(go[0], 1)
        os._exit(0)
    assert os.read(ready[0], 1) == b"1"
    assert locked(tmp_path / "lock", patience=0) is None
    held.close()
    again = locked(tmp_path / "lock", patience=0)  # although the child still runs
    assert again is not None
    again.close()
    os.write(go[1], b"1")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for end in (*ready, *go):
        os.close(end)


def test_lock_file_that_is_a_symbolic_link_raises(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        locked(tmp_path / "link", patience=0)
    assert not (tmp_path / "elsewhere").exists()
