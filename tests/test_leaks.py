"""Tests of the leak check: each kind of leak is found, and resources that are being closed are waited for."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import leaks


@contextlib.contextmanager
def a_thread(tmp_path: Path) -> Iterator[str]:
    del tmp_path
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="the-leak")
    thread.start()
    yield "thread the-leak"
    end.set()
    thread.join()


@contextlib.contextmanager
def a_child(tmp_path: Path) -> Iterator[str]:
    del tmp_path
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield f"child process {child.pid}"
        child.communicate(b"\n")


@contextlib.contextmanager
def an_open_file(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "leak.txt"
    with path.open("w"):
        yield str(path)


@contextlib.contextmanager
def shared_memory_of_ours(tmp_path: Path) -> Iterator[str]:
    del tmp_path
    memory = shared_memory.SharedMemory(name=f"leak-{uuid.uuid4().hex}", create=True, size=8)
    yield memory.name
    memory.close()
    memory.unlink()


Leak = Callable[[Path], contextlib.AbstractContextManager[str]]


@pytest.mark.parametrize("leak", [a_thread, a_child, an_open_file, shared_memory_of_ours])
def test_leak_check_names_running_resources(leak: Leak, tmp_path: Path) -> None:
    before = leaks.Running.now()
    with leak(tmp_path) as words:
        assert words in "\n".join(leaks.left_since(before, patience=0))
    assert leaks.left_since(before) == []


def test_leak_check_waits_for_ending_threads() -> None:
    before = leaks.Running.now()
    timer = threading.Timer(0.2, lambda: None)
    timer.start()
    assert leaks.left_since(before) == []
    assert not timer.is_alive()


def test_leak_check_ignores_sockets_of_a_shared_spark_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.core.context import SparkContext

    kept = SparkContext._gateway  # from an earlier test in the same process
    before = leaks.Running.now()
    ours, javas = socket.socketpair()
    with ours, javas:
        connections = [] if kept is None else [*kept._gateway_client.deque]
        connections += [SimpleNamespace(socket=ours), SimpleNamespace(socket=None)]
        gateway = SimpleNamespace(_gateway_client=SimpleNamespace(deque=connections))
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        (left,) = leaks.left_since(before, patience=0)
        assert left.startswith(f"open file {javas.fileno()} -> socket:")
