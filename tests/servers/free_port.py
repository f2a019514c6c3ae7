"""Servers of others, which cannot be told to take any free port: which one is free, and when they answer on it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

__all__ = ["serving_until_input_ends"]

_LONGEST_START_S = 120.0


@contextlib.contextmanager
def _started(command: Callable[[int], Sequence[str]]) -> Iterator[int]:
    """The port of a program that was told one, once it answers there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
    with subprocess.Popen(command(port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for(port, process)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Asks until somebody answers: such a program says nothing when it is ready."""
    end = time.monotonic() + _LONGEST_START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server does not answer; its status is {process.poll()}") from None
            time.sleep(0.02)
        else:
            return


@contextlib.contextmanager
def serving_until_input_ends(command: Callable[[int], Sequence[str]]) -> Iterator[int]:
    """The port of a program; the block ends when standard input does: so does a child whose parent is gone.

    Args:
        command: The program and its arguments, given a port.
    """
    with _started(command) as port:
        yield port
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()
