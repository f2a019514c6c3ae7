"""A worker process, as its parent sees it: how it is started, talked to and ended, and what is said of it when it died.

It is a fresh interpreter: nothing is forked, so it does not matter which threads and locks the parent has, and the
program's main module is not imported. No helper process stays behind, as forkserver and the resource tracker of
`multiprocessing` do.
"""

from __future__ import annotations

import contextlib
import multiprocessing.spawn
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from petastore.transforming.transport import Channel
from petastore.transforming.worker import Failure, Setup
from petastore.work.thread import available_cpus

__all__ = ["WorkerProcess"]

_GRACE_SECONDS = 0.5
"""How long a worker may take to end by itself."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerProcess:
    """One process that runs `petastore.transforming.worker.main`.

    Args:
        number: Which one, from 0; for people.
        of: How many there are.

    Example:
        >>> worker = WorkerProcess(0, of=1)
        >>> worker.begin(Setup.of([])) is None
        True
        >>> worker.end(); worker.how_it_ended()
        'ended with exit code 0'
    """

    def __init__(self, number: int, of: int) -> None:
        self._number = number
        self._owner = os.getpid()
        ours, theirs = socket.socketpair()
        with theirs:
            command, passed = _command(theirs.fileno()), [theirs.fileno()]
            try:
                with _without_interrupts():
                    self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                        command, pass_fds=passed, stdin=subprocess.DEVNULL, env=_environment(of)
                    )
            except BaseException:
                ours.close()
                raise
        self._sentinel = _sentinel(self._process.pid)
        self.channel = Channel(ours, sentinel=self._sentinel)
        """The connection to it."""

    def begin(self, setup: Setup) -> Failure | None:
        """Waits until the worker has what it needs: None, or why it has not.

        Raises:
            EOFError: It died, or `hang_up` was called.
        """
        self.channel.send(0, setup)
        return self.channel.receive()[1]

    def __str__(self) -> str:
        return f"worker process {self._number} (pid {self._process.pid})"

    def end(self) -> None:
        """End the process once its current call is done, or kill it after 0.5 s."""
        if os.getpid() != self._owner:  # a fork of the parent's has copies of all this, but no child to end
            return
        self.channel.hang_up()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.channel.close()
        if self._sentinel is not None:
            os.close(self._sentinel)
            self._sentinel = None

    def how_it_ended(self) -> str:
        """In words, after `end`."""
        code = self._process.returncode
        if code >= 0:
            return f"ended with exit code {code}"
        name = next((known.name for known in signal.Signals if known.value == -code), "unknown")
        said = f"was killed by signal {-code} ({name})"
        if name == "SIGKILL":
            said += ", as the system does when memory runs out"
        return said


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """A block whose child processes are born without Ctrl-C: while they import, it would print a traceback of each.

    The worker ignores the signal once it runs (`petastore.transforming.worker.main`), and lets it through again.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _command(connection: int) -> list[str]:
    """The interpreter as it was started here, with the same paths; `-c` alone looks in the working directory first."""
    paths = [path or str(Path.cwd()) for path in sys.path]
    program = (
        f"import sys; sys.path[:] = {paths!r}; "
        f"from petastore.transforming.worker import main; main({connection}, {os.getpid()})"
    )
    # Executable and flags as multiprocessing passes them on; what follows them is a program of its own.
    theirs = [os.fsdecode(part) for part in multiprocessing.spawn.get_command_line()]
    return [*theirs[: theirs.index("-c")], "-c", program]


def _environment(workers: int) -> dict[str, str]:
    """Libraries that start threads for all CPUs in each of the workers would only get in each other's way."""
    threads = str(max(available_cpus() // workers, 1))
    return {**dict.fromkeys(_THREAD_VARIABLES, threads), **os.environ}


def _sentinel(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where there is none."""
    try:
        return os.pidfd_open(pid)  # type: ignore[attr-defined, unused-ignore]
    except (AttributeError, OSError):  # not Linux, or not allowed here
        return None
