"""Fixtures for tests with real engines: datasets of numbered rows, and running programs as users start them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import psutil
import pytest

from petastore import Unischema, UnischemaField, write_dataset
from tests.java_options import tell_java
from tests.pace import measured
from tests.time_limits import pytest_runtest_protocol as pytest_runtest_protocol

tell_java(os.environ)

REPOSITORY = Path(__file__).resolve().parent.parent

UNEVEN = (1, 97, 5, 40, 2, 60, 14)
"""Rows of seven row groups of different sizes: 219 in total."""

NumberedSchema = Unischema(
    "Numbered",
    [UnischemaField("id", np.int64), UnischemaField("x", np.float32, (4,)), UnischemaField("y", np.float32)],
)


_MARK = "PROGRAM_OF_A_TEST"


class Run(Protocol):
    """Type of the fixture `run`, which runs a program to its end."""

    def __call__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path = REPOSITORY,
        seconds: float = 120,
        fails: bool = False,
    ) -> str: ...


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the repository clone."""
    return REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def _cache_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a cache folder for this test run instead of the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PETASTORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def write_numbered(url: str, row_groups: Sequence[int] = UNEVEN) -> str:
    """Write a dataset of rows `id`, 0 to n - 1, with `x` (4,) and `y`, in row groups of the given sizes.

    `y` is the sum of `x`, so that a model can learn something.
    """
    begin = 0
    for rows in row_groups:
        ids = np.arange(begin, begin + rows)
        x = np.random.default_rng(begin).random((rows, 4), dtype=np.float32)
        columns = {"id": ids, "x": x, "y": x.sum(axis=1)}
        write_dataset(url, NumberedSchema, columns, mode="append", rows_per_row_group=rows)
        begin += rows
    return url


@pytest.fixture
def numbered(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a dataset of numbered rows in the folder of a test, as `write_numbered`."""

    def write(row_groups: Sequence[int] = UNEVEN, name: str = "numbered") -> str:
        return write_numbered(str(tmp_path / name), row_groups)

    return write


@pytest.fixture(scope="session")
def run() -> Run:
    """Return a function that runs a program of several processes, by default in the root of the clone.

    It returns the output. The test fails with the output if the exit code is not 0 (with `fails`: is 0), it takes four
    times as long as its time limit for an idle machine, or a process is left behind. `bin` of this Python is first on
    PATH.
    """

    def run_it(
        command: Sequence[str | os.PathLike[str]],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path = REPOSITORY,
        seconds: float = 120,
        fails: bool = False,
    ) -> str:
        words, began = [str(part) for part in command], time.monotonic()
        mark = {_MARK: uuid.uuid4().hex}
        with tempfile.TemporaryFile("w+", errors="replace") as output:

            def fail(what: str) -> None:
                output.seek(0)
                pytest.fail(f"{' '.join(words)} {what}; it printed:\n{output.read()}", pytrace=False)

            started = subprocess.Popen(
                words,
                cwd=folder,
                env=os.environ | _settings() | dict(environment or {}) | mark,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = _code_of(started, 4 * seconds)
                if code is None:
                    fail(f"took longer than {time.monotonic() - began:.1f} s")
                left = _left_of(mark)
                if left:
                    fail(f"left {', '.join(left)}")
                if (code != 0) != fails:
                    fail(f"ended with {code}")
            finally:
                for process in _marked(mark):
                    process.kill()
                started.wait()
            output.seek(0)
            return output.read()

    return run_it


def _code_of(process: subprocess.Popen[Any], seconds: float) -> int | None:
    """Return the exit code of a program; None if it has not ended after some seconds of an idle machine.

    The slowness of the machine is measured again and again, because other tests begin and end meanwhile.
    """
    while seconds > 0:
        slice_s = min(max(seconds, 0.1), 15.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(slice_s)
        seconds -= slice_s / measured()
    return None


def _settings() -> dict[str, str]:
    """Return the environment variables of every program: paths of this test run, few threads, few log messages."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def _left_of(mark: Mapping[str, str]) -> list[str]:
    """Return the processes that a program left behind, after those that are about to end."""
    _, left = psutil.wait_procs(_marked(mark), timeout=10)
    return [f"{process.pid} ({' '.join(process.cmdline())[:200]})" for process in left]


def _marked(mark: Mapping[str, str]) -> list[psutil.Process]:
    """Return all processes with a mark in their environment, wherever they are in the process tree."""
    marked = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # the process has ended, or belongs to another user
            if mark.items() <= process.environ().items():
                marked.append(process)
    return marked
