"""Warm interpreters: fixtures that fork test programs from a process that has imported petastore, torch or TensorFlow.

`python -c "import torch …"` takes three seconds of CPU, `import tensorflow` five to eight; a fork takes 20 ms. Programs
that test imports, `__main__`, the hash seed, Ctrl-C or a crash at exit still start separate processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TextIO

import pytest

from tests.fork_server import LENGTH
from tests.pace import patience

__all__ = ["ForkedProgram", "WarmInterpreter", "run_together", "warm_python", "warm_tensorflow", "warm_torch"]

REPOSITORY = Path(__file__).resolve().parent.parent

READER_MODULES = ("petastore", "petastore.readers", "pyarrow.parquet", "pandas")
TORCH_MODULES = (*READER_MODULES, "torch", "torch.distributed", "torch.utils.data", "petastore.adapters.torch")


class ForkedProgram:
    """A running test program, with the part of `subprocess.Popen` that tests use; all three streams are text pipes.

    Attributes:
        pid: The process id.
        stdin: The program's standard input.
        stdout: Its standard output.
        stderr: Its standard error.
        returncode: The exit code, negative after a signal, or None while it runs.
    """

    def __init__(self, pid: int, status: IO[bytes], streams: tuple[TextIO, TextIO, TextIO]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None
        self._status = status
        self._printed = ["", ""]
        self._readers: list[threading.Thread] = []

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once the program has ended.

        Raises:
            subprocess.TimeoutExpired: It has not ended after `timeout` seconds.
        """
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"forked program {self.pid}", timeout or 0.0)
            line = self._status.readline()
            if not line:
                raise AssertionError("internal error: the fork server ended before its program")
            self.returncode = int(line)
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Close standard input, and return what the program prints until it ends.

        Raises:
            subprocess.TimeoutExpired: It has not ended after `timeout` seconds.
        """
        if not self._readers:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
            self._readers = [
                threading.Thread(target=self._read, args=(number, stream), daemon=True)
                for number, stream in enumerate((self.stdout, self.stderr))
            ]
            for reader in self._readers:
                reader.start()
        for reader in self._readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(f"forked program {self.pid}", timeout or 0.0)
        self.wait(timeout)
        return self._printed[0], self._printed[1]

    def _read(self, number: int, stream: TextIO) -> None:
        with stream:
            self._printed[number] = stream.read()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended, because another process may then have its pid."""
        if self.returncode is None and not select.select([self._status], [], [], 0)[0]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless the program has ended."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        """Return the program itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        """Wait for the program's end; kill it first after an error."""
        if kind is not None:
            self.kill()
        self.communicate()


class WarmInterpreter:
    """Fork server that imports some modules when it is created, and ends with `close`.

    Example:
        >>> with contextlib.closing(WarmInterpreter("json")) as interpreter:
        ...     interpreter.run("import json; print(json.dumps([1]))").stdout.rstrip()
        '[1]'
    """

    def __init__(self, *modules: str) -> None:
        self._channel, of_server = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        with of_server:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(of_server.fileno()), *modules],
                pass_fds=[of_server.fileno()],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def start(
        self,
        program: str,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> ForkedProgram:
        """Fork a process that runs the text of a program, as `python -c` does. It can import `tests`.

        Args:
            program: The text.
            arguments: Become `sys.argv[1:]`.
            env: Environment variables; those of this process unless given.
            cwd: Working directory; that of this process unless given.
            pass_fds: Descriptors that the program inherits under the same numbers.
        """
        request = {
            "program": program,
            "arguments": [os.fspath(each) if isinstance(each, os.PathLike) else str(each) for each in arguments],
            "environment": dict(os.environ if env is None else env),
            "folder": os.fspath(cwd or Path.cwd()),
            "pass_fds": list(pass_fds),
        }
        text = json.dumps(request).encode()
        (program_in, stdin), (stdout, program_out), (stderr, program_err), (status, ended) = (
            os.pipe() for _ in range(4)
        )
        given = [program_in, program_out, program_err, ended]
        status_file = os.fdopen(status, "rb", buffering=0)
        streams = (
            os.fdopen(stdin, "w", encoding="utf-8"),
            os.fdopen(stdout, encoding="utf-8"),
            os.fdopen(stderr, encoding="utf-8"),
        )
        with contextlib.suppress(ConnectionError):  # the server has ended; the missing pid raises below
            socket.send_fds(self._channel, [LENGTH.pack(len(text))], [*given, *pass_fds])
            self._channel.sendall(text)
        for descriptor in given:
            os.close(descriptor)
        pid = status_file.readline()
        if not pid:
            for stream in (status_file, *streams):
                stream.close()
            self._log.seek(0)
            raise AssertionError(f"the fork server did not start: {self._log.read().decode()}")
        return ForkedProgram(int(pid), status_file, streams)

    def run(
        self,
        program: str,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, and return what `subprocess.run` returns; kill it after `timeout` idle seconds."""
        started = self.start(program, *arguments, env=env, cwd=cwd)
        try:
            printed = started.communicate(patience(timeout))
        finally:
            started.kill()
            started.communicate()
        return subprocess.CompletedProcess(["-c", *map(str, arguments)], started.wait(), *printed)

    def close(self) -> None:
        """End the server. Programs that still run continue."""
        self._channel.close()
        self._server.wait()
        self._log.close()


def run_together(programs: Sequence[ForkedProgram], timeout: float = 300) -> list[tuple[str, str]]:
    """Return the output of each of some programs, once all have exited with 0; kill all of them otherwise."""
    try:
        printed = [program.communicate(patience(timeout)) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    assert [program.returncode for program in programs] == [0] * len(programs), printed
    return printed


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmInterpreter]:
    """Return an interpreter that has imported petastore and what its readers need, without a framework."""
    with contextlib.closing(WarmInterpreter(*READER_MODULES)) as interpreter:
        yield interpreter


@pytest.fixture(scope="session")
def warm_torch() -> Iterator[WarmInterpreter]:
    """Return an interpreter that has imported torch and the torch adapter."""
    with contextlib.closing(WarmInterpreter(*TORCH_MODULES)) as interpreter:
        yield interpreter


@pytest.fixture(scope="session")
def warm_tensorflow() -> Iterator[WarmInterpreter]:
    """Return an interpreter that has imported TensorFlow and its adapter, and has not used either."""
    modules = (*READER_MODULES, "tensorflow", "petastore.adapters.tensorflow")
    with contextlib.closing(WarmInterpreter(*modules)) as interpreter:
        yield interpreter
