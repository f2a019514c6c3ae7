"""Parent side of a worker process: start the process, exchange messages, stop it, and detect that it died.

The worker is a new interpreter. It is not forked, so threads and locks of the parent cannot block it, and it does not
import the main module of the program. Unlike `multiprocessing` with its forkserver and resource tracker, this module
needs no helper process.
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
from petastore.work.pools import available_cpus

__all__ = ["WorkerProcess"]

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerProcess:
    """Worker process that runs the functions of transforms (`petastore.transforming.worker.main`).

    Args:
        number: Number of the worker, from 0, for its name.
        of: Number of workers.

    Example:
        >>> import pickle
        >>> worker = WorkerProcess(0, of=1)
        >>> worker.begin((pickle.dumps([]), [])) is None
        True
        >>> worker.end(grace_s=60); worker.how_it_ended()
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
        """The connection to the worker."""

    def begin(self, setup: Setup) -> Failure | None:
        """Send the functions to the worker, and wait until it has imported them; return None, or the worker's error.

        Raises:
            EOFError: The worker died, or `hang_up` was called.
        """
        self.channel.send(0, setup)
        return self.channel.receive()[1]

    def __str__(self) -> str:
        return f"worker process {self._number} (pid {self._process.pid})"

    def end(self, grace_s: float = 0.5) -> None:
        """End the process once its current call is done.

        Args:
            grace_s: Seconds that the process gets to end before it is killed.
        """
        if os.getpid() != self._owner:  # in a fork of the parent, the worker is not a child of this process
            return
        self.channel.hang_up()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.channel.close()
        if self._sentinel is not None:
            os.close(self._sentinel)
            self._sentinel = None

    def how_it_ended(self) -> str:
        """Return how the process ended, as text, after `end`."""
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
    """Block SIGINT for child processes that are started in the `with` block.

    Otherwise Ctrl-C would print a traceback while the worker imports modules. After the imports, the worker ignores
    the signal and unblocks it (`petastore.transforming.worker.main`).
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _command(connection: int) -> list[str]:
    """Return the command line of a worker: this interpreter with the same flags and the same `sys.path`.

    `sys.path` is set explicitly, because `-c` alone would search the working directory first.
    """
    paths = [path or str(Path.cwd()) for path in sys.path]
    program = (
        f"import sys; sys.path[:] = {paths!r}; "
        f"from petastore.transforming.worker import main; main({connection}, {os.getpid()})"
    )
    # Executable and flags are the same as in multiprocessing; only the program after `-c` is different.
    theirs = [os.fsdecode(part) for part in multiprocessing.spawn.get_command_line()]
    return [*theirs[: theirs.index("-c")], "-c", program]


def _environment(workers: int) -> dict[str, str]:
    """Return the environment of a worker: its libraries may use its share of the CPUs as threads.

    Variables that are already set keep their values.
    """
    threads = str(max(available_cpus() // workers, 1))
    return {**dict.fromkeys(_THREAD_VARIABLES, threads), **os.environ}


def _sentinel(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None if the system has no pidfd."""
    try:
        return os.pidfd_open(pid)  # type: ignore[attr-defined, unused-ignore]
    except (AttributeError, OSError):  # not Linux, or not allowed here
        return None
