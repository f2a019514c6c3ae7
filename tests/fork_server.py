"""Fork server: imports modules once, then forks a child process for each test program that it receives.

Run by `tests.warm_interpreters` as `python -m tests.fork_server SOCKET MODULE…`. A request is a length and a JSON
object with `program`, `arguments`, `environment`, `folder` and `pass_fds`. File descriptors are sent with it: standard
input, output and error, the pipe for the exit status, and those that the program inherits.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import types
import warnings
from typing import Any

__all__ = ["LENGTH", "MOST_DESCRIPTORS"]

LENGTH = struct.Struct("!I")
"""Format of the length that precedes each request."""

MOST_DESCRIPTORS = 32


def serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork a child for each request until the client closes its end.

    Returns:
        The request and its descriptors in a child; None in the server.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, SIGCHLD would be ignored
    signal.set_wakeup_fd(wakes)
    statuses: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == woken:
                    os.read(woken, 4096)
                    report_ended(statuses)
                    continue
                received = receive(channel)
                if received is None:
                    return None
                request, descriptors = received
                (*standard, status), shared = descriptors[:4], descriptors[4:]
                child = forked()
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    channel.close()
                    for descriptor in (woken, wakes, status, *statuses.values()):
                        os.close(descriptor)
                    return request, [*standard, *shared]
                for descriptor in (*standard, *shared):
                    os.close(descriptor)
                statuses[child] = status
                write_line(status, child)


def forked() -> int:
    """Fork this process. Python warns if native threads exist; those of NumPy and pyarrow handle forks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next request and its descriptors, or None at the end."""
    head, descriptors, _, _ = socket.recv_fds(channel, LENGTH.size, MOST_DESCRIPTORS)
    if not head:
        return None
    (length,) = LENGTH.unpack(head)
    text = b""
    while len(text) < length:
        text += channel.recv(length - len(text))
    return json.loads(text), descriptors


def report_ended(statuses: dict[int, int]) -> None:
    """Write the exit status of each child that has ended to its pipe."""
    for child in list(statuses):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            descriptor = statuses.pop(child)
            write_line(descriptor, os.waitstatus_to_exitcode(status))
            os.close(descriptor)


def write_line(descriptor: int, number: int) -> None:
    """Write a number to a client, and ignore a client that has disconnected."""
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, f"{number}\n".encode())


def become(request: dict[str, Any], descriptors: list[int]) -> types.CodeType:
    """Set up this child like `python -c PROGRAM ARGUMENTS` before its first line; return the compiled program."""
    standard, shared = descriptors[:3], descriptors[3:]
    for wanted, descriptor in enumerate(standard):
        os.dup2(descriptor, wanted)
        os.close(descriptor)
    # A requested descriptor number may be that of a received descriptor, so all are first duplicated to numbers that
    # are not in use.
    lifted = [moved_above(descriptor, 1000) for descriptor in shared]
    for wanted, descriptor in zip(request["pass_fds"], lifted, strict=True):
        os.dup2(descriptor, wanted)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["-c", *request["arguments"]]
    sys.path[0] = ""
    main = types.ModuleType("__main__")
    main.__dict__.update({"__builtins__": builtins, "__spec__": None})
    sys.modules["__main__"] = main
    return compile(request["program"], "<string>", "exec", dont_inherit=True)


def moved_above(descriptor: int, least: int) -> int:
    """Return a copy of a descriptor with a number of at least `least`, and close the original."""
    import fcntl

    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
    os.close(descriptor)
    return copy


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # without it, garbage collection in a child writes to the inherited pages, which copies them
    received = serve(socket.socket(fileno=int(sys.argv[1])))
    if received is not None:
        # At module level, so that the interpreter exits normally: exit handlers run, threads end, buffers are flushed.
        code = become(*received)
        exec(code, sys.modules["__main__"].__dict__)  # noqa: S102 - a test's own program
