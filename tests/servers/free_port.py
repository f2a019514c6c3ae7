"""Start third-party servers that cannot choose a free port: find a port, and wait until the server listens."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["serving_until_input_ends"]

_LONGEST_START_S = 120.0
_MOST_STARTS = 5
_LISTENING = "0A"
"""The listening state of a socket in `/proc/net/tcp`."""


@contextlib.contextmanager
def _started(command: Callable[[int], Sequence[str]]) -> Iterator[int]:
    """Start a program with a free port, and yield the port once the program listens on it.

    Another program may take the port first. Then the program ends, and is restarted with another port.
    """
    for attempt in range(_MOST_STARTS):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port: int = bound.getsockname()[1]
        with subprocess.Popen(command(port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            try:
                if _listens(process, port):
                    yield port
                    return
                if process.poll() is None or attempt == _MOST_STARTS - 1:
                    raise RuntimeError(f"the server does not listen; its status is {process.poll()}")
            finally:
                process.terminate()
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a program listens on a port; return False if it ends or takes too long."""
    end = time.monotonic() + _LONGEST_START_S
    while process.poll() is None and time.monotonic() < end:
        if not _sockets_of(process.pid).isdisjoint(_listening_sockets(port)):
            return True
        time.sleep(0.02)
    return False


def _listening_sockets(port: int) -> set[str]:
    """Return the sockets that listen on a port, in the form of `/proc/PID/fd`."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{words[9]}]")
    return found


def _sockets_of(pid: int) -> set[str]:
    """Return the open files and sockets of a process."""
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(str(descriptor.readlink()))
    return found


@contextlib.contextmanager
def serving_until_input_ends(command: Callable[[int], Sequence[str]]) -> Iterator[int]:
    """Start a program and yield its port, then wait until standard input closes, so that no child outlives its parent.

    Args:
        command: A function from a port to the program and its arguments.
    """
    with _started(command) as port:
        yield port
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()
