"""Leak check: threads, child processes, open files and shared memory that a test left behind.

Open files are checked on Linux only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import psutil

PATIENCE_SECONDS = 30.0
_FILES = "/proc/self/fd"
_TASKS = Path("/proc/self/task")

Key = tuple[object, ...]
"""Identifies one running resource while it exists; the first item is its kind."""


@dataclasses.dataclass(frozen=True)
class Running:
    """All threads, child processes, open files and shared memory of this process at one moment."""

    keys: frozenset[Key]

    @classmethod
    def now(cls) -> Self:
        """Return the resources that exist now."""
        return cls(frozenset([*_threads(), *_children(), *_open_files(), *_shared_memory()]))


def left_since(before: Running, *, patience: float | None = None) -> list[str]:
    """Return one line for each resource that exists now and did not exist before.

    Args:
        before: The resources that existed before.
        patience: Seconds to wait for resources that are being closed; `PATIENCE_SECONDS` by default.
    """
    deadline: float | None = None
    while True:
        left = Running.now().keys - before.keys
        if not left or (deadline is not None and time.monotonic() > deadline):
            return sorted(filter(None, map(_words, left)))
        gc.collect()
        # The deadline starts after garbage collection, because finalizers may wait, as torch's does for each worker.
        deadline = deadline or time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
        time.sleep(0.01)


def start_what_python_keeps() -> None:
    """Start the helper processes that multiprocessing keeps running, and track the shared memory that it registers."""
    multiprocessing.resource_tracker.ensure_running()
    multiprocessing.forkserver.ensure_running()
    _follow_registrations()


_registered: set[str] = set()
"""Names of shared memory and semaphores of this process; /dev/shm also lists those of other programs."""


def _follow_registrations() -> None:
    tracker = multiprocessing.resource_tracker
    if hasattr(tracker.register, "follows"):
        return
    register, unregister = tracker.register, tracker.unregister

    def followed_register(name: Any, rtype: str) -> None:
        _registered.add(name)
        register(name, rtype)

    def followed_unregister(name: Any, rtype: str) -> None:
        _registered.discard(name)
        unregister(name, rtype)

    followed_register.follows = register  # type: ignore[attr-defined]
    tracker.register, tracker.unregister = followed_register, followed_unregister


def _words(key: Key) -> str:
    """Describe a resource in an error message; empty if it no longer exists."""
    match key:
        case ("thread", threading.Thread(name=name)):
            return f"thread {name}"
        case ("child", int(pid)):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                return f"child process {pid} ({process.status()}): {' '.join(process.cmdline())[:200]}"
            return ""
        case ("file", descriptor, target):
            return f"open file {descriptor} -> {target}"
        case _:
            return f"shared memory {key[1]}"


def _threads() -> Iterable[Key]:
    return (("thread", thread) for thread in threading.enumerate())


def _children() -> Iterable[Key]:
    """Yield the child processes of this process, recursively."""
    if not _TASKS.exists():
        yield from (("child", child.pid) for child in psutil.Process().children(recursive=True))
        return
    kept = {_pid_of(multiprocessing.resource_tracker), _pid_of(multiprocessing.forkserver)}
    parents = [os.getpid()]
    while parents:
        # psutil would scan all processes of the machine, which takes 5 ms.
        for pid in _children_of(parents.pop()):
            if pid not in kept:
                parents.append(pid)
                yield "child", pid


def _pid_of(module: object) -> int | None:
    helper = getattr(module, "_resource_tracker", None) or getattr(module, "_forkserver", None)
    return getattr(helper, "_pid", None) or getattr(helper, "_forkserver_pid", None)


def _children_of(process: int) -> list[int]:
    """Return the child processes of a process that it has not waited for."""
    pids: list[int] = []
    with contextlib.suppress(OSError):  # the process ended
        for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208 - twice a test: paths take three times as long
            with contextlib.suppress(OSError):  # the thread ended
                pids += _numbers_in(f"/proc/{process}/task/{thread}/children")
    return pids


def _numbers_in(file: str) -> Iterable[int]:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return map(int, os.read(descriptor, 1 << 20).split())
    finally:
        os.close(descriptor)


def _open_files() -> Iterable[Key]:
    try:
        descriptors = os.listdir(_FILES)  # noqa: PTH208 - as above
    except OSError:
        return
    for descriptor in set(descriptors) - _sockets_of_spark():
        with contextlib.suppress(OSError):  # os.listdir's own descriptor is closed by now
            yield "file", descriptor, os.readlink(f"{_FILES}/{descriptor}")  # noqa: PTH115 - as above


def _sockets_of_spark() -> set[str]:
    """Return the descriptors of this process's connections to Spark, if it has any.

    Tests share one Spark session. py4j's thread that reports collected objects to Spark opens a socket when the first
    object is collected, which may be in any test.
    """
    spark = sys.modules.get("pyspark.core.context")
    gateway = None if spark is None else spark.SparkContext._gateway
    connections = () if gateway is None else tuple(gateway._gateway_client.deque)
    return {str(connection.socket.fileno()) for connection in connections if connection.socket is not None}


def _shared_memory() -> Iterable[Key]:
    return (("memory", name) for name in tuple(_registered))
