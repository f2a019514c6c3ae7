"""What a process has running, and what of it was not there before.

Linux; elsewhere open files and shared memory are not looked at.
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
from typing import Self

import psutil

PATIENCE_SECONDS = 10.0
_FILES = Path("/proc/self/fd")
_CHILDREN = Path("/proc/thread-self/children")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is looked at, nothing is written


@dataclasses.dataclass(frozen=True)
class Running:
    """What runs at one moment: each as a key that stays the same while it runs, and words for people."""

    things: dict[tuple[object, ...], str]

    @classmethod
    def now(cls) -> Self:
        """What runs now in this process."""
        return cls({**_threads(), **_children(), **_open_files(), **_shared_memory()})


def left_since(before: Running, *, patience: float | None = None) -> list[str]:
    """What runs now and did not before, once ends in progress have had some seconds (10 unless told); one line each."""
    deadline: float | None = None
    while True:
        left = {key: words for key, words in Running.now().things.items() if key not in before.things}
        if not left or (deadline is not None and time.monotonic() > deadline):
            return sorted(words for key, words in left.items() if not _belongs_to_a_stranger(key))
        gc.collect()
        # From here on: what the collector ended may have waited in it, as torch does for each of its workers.
        deadline = deadline or time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
        time.sleep(0.01)


def start_what_python_keeps() -> None:
    """The helpers that multiprocessing starts on first use and keeps until the interpreter ends."""
    multiprocessing.resource_tracker.ensure_running()
    multiprocessing.forkserver.ensure_running()


def _threads() -> dict[tuple[object, ...], str]:
    return {("thread", thread): f"thread {thread.name}" for thread in threading.enumerate()}


def _children() -> dict[tuple[object, ...], str]:
    found: dict[tuple[object, ...], str] = {}
    for child in _descendants():
        with contextlib.suppress(psutil.Error):
            found["child", child.pid, child.create_time()] = f"child process {_command(child)}"
    return found


def _descendants() -> list[psutil.Process]:
    """Children of this process, and theirs.

    psutil looks at every process of the machine to find them: that took 5 ms, twice a test.
    """
    if not _CHILDREN.exists():
        return psutil.Process().children(recursive=True)
    found, parents = list[psutil.Process](), [os.getpid()]
    while parents:
        pids = _children_of(parents.pop())
        parents += pids
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                found.append(psutil.Process(pid))
    return found


def _children_of(process: int) -> list[int]:
    """Processes that threads of a process have begun and that have not been waited for."""
    pids: list[int] = []
    for thread in _entries(Path(f"/proc/{process}/task")):
        with contextlib.suppress(OSError):  # it has ended
            pids += map(int, (thread / "children").read_text().split())
    return pids


def _command(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({process.status()}): {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"{process.pid}"


def _open_files() -> dict[tuple[object, ...], str]:
    files: dict[tuple[object, ...], str] = {}
    of_spark = _sockets_of_spark()
    for descriptor in _entries(_FILES):
        if descriptor.name in of_spark:
            continue
        try:
            target = descriptor.readlink()
        except OSError:  # the descriptor through which the folder is listed
            continue
        files["file", descriptor.name, target] = f"open file {descriptor.name} -> {target}"
    return files


def _sockets_of_spark() -> set[str]:
    """Descriptors through which this process talks to Spark, if it ever did.

    The session of one test is kept for the next ones, and the thread that tells it which of its objects are gone opens
    a socket of its own when a first one is collected: in whatever test that is.
    """
    spark = sys.modules.get("pyspark.core.context")
    gateway = None if spark is None else spark.SparkContext._gateway
    connections = () if gateway is None else tuple(gateway._gateway_client.deque)
    return {str(connection.socket.fileno()) for connection in connections if connection.socket is not None}


def _shared_memory() -> dict[tuple[object, ...], str]:
    # joblib, which scikit-learn brings into programs that tests run side by side, makes semaphores; nothing here does.
    paths = (path for path in _entries(_SHARED_MEMORY) if not path.name.startswith("sem.loky-"))
    return {("memory", path): f"shared memory {path}" for path in paths}


def _entries(folder: Path) -> Iterable[Path]:
    return folder.iterdir() if folder.is_dir() else ()


def _belongs_to_a_stranger(key: tuple[object, ...]) -> bool:
    """Whether shared memory is in use by a process that is not ours: another test run on this machine."""
    if key[0] != "memory":
        return False
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    return any(_maps(process, str(key[1])) for process in psutil.process_iter() if process.pid not in ours)


def _maps(process: psutil.Process, path: str) -> bool:
    try:
        return any(region.path == path for region in process.memory_maps())
    except psutil.Error:
        return False
