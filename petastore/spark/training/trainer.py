"""The process that trains: started by a task of Spark on its host, with a directory for its rows, and gone with it.

A process of its own, since Spark uses its workers again: what engines leave behind (threads, memory, process groups)
ends with it, and its peers notice at once when it fails. It runs as `python -m petastore.spark.training`:

```text
trainer → task    the directory that it made
task → trainer    what to run, once the rows are there
trainer → task    what the function gave, or the problem
```

What it is given to run is a pickle, of the process that started it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from petastore.errors import WorkerError
from petastore.spark.training.local_rows import LocalRows
from petastore.spark.training.messages import receive, send

__all__ = ["Outcome", "Trainer"]

_BYTES = b"b"
_JSON = b"j"
_PROBLEM = b"p"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How a function ended; it crosses processes as bytes."""

    encoded: bytes

    @classmethod
    def of(cls, value: Any) -> Self:
        """What a function gave.

        Raises:
            TypeError: It is neither bytes nor a value of JSON.
        """
        if isinstance(value, (bytes, bytearray, memoryview)):
            return cls(_BYTES + bytes(value))
        try:
            return cls(_JSON + json.dumps(value).encode())
        except (TypeError, ValueError) as problem:
            raise TypeError(
                f"the training function gave a {type(value).__name__}, which cannot go back to the driver: give None, "
                f"numbers, text, lists and dicts of these, or bytes, such as of a model that was saved ({problem})"
            ) from None

    @classmethod
    def of_problem(cls, text: str) -> Self:
        """What a function raised."""
        return cls(_PROBLEM + text.encode())

    @property
    def problem(self) -> str | None:
        """What went wrong; None where nothing did."""
        return self.encoded[1:].decode(errors="replace") if self.encoded[:1] == _PROBLEM else None

    def value(self) -> Any:
        """What the function gave.

        Example:
            >>> Outcome.of({"loss": 0.25}).value(), Outcome.of(b"model").value()
            ({'loss': 0.25}, b'model')
        """
        return self.encoded[1:] if self.encoded[:1] == _BYTES else json.loads(self.encoded[1:])


class Trainer:
    """The task's side. Its process and directory are gone after `close`, or when this process ends.

    Args:
        parent: Where its directory is made; None is where temporary files are.

    Raises:
        WorkerError: The process could not be started.
    """

    def __init__(self, parent: str | None = None) -> None:
        command = [sys.executable, "-m", __package__, *([] if parent is None else [parent])]
        searched = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        # Its session is its own, so that what it started itself ends with it.
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": searched},
            start_new_session=True,
        )

    def folder(self) -> str:
        """The directory for rows, on the local disk.

        Raises:
            WorkerError: The process has ended.
        """
        return self._answer().decode()

    def train(self, rows: LocalRows, function: bytes, environment: Mapping[str, str]) -> Outcome:
        """Runs a function there to its end.

        Args:
            rows: What it is given.
            function: A pickle of it.
            environment: Variables that are set for it.

        Raises:
            WorkerError: The process died.
        """
        with contextlib.suppress(BrokenPipeError):  # it has ended; its answer says so
            send(_stream(self._process.stdin), pickle.dumps((rows, function, dict(environment))))
        return Outcome(self._answer())

    def close(self) -> None:
        """Ends the process, whatever it does, and what it started."""
        _stream(self._process.stdin).close()  # it deletes its directory, and ends
        self._process.wait()
        with contextlib.suppress(ProcessLookupError):  # there is nothing else in its session
            os.killpg(self._process.pid, signal.SIGKILL)
        _stream(self._process.stdout).close()

    def _answer(self) -> bytes:
        answer = receive(_stream(self._process.stdout))
        if answer is None:
            code = self._process.wait()
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            raise WorkerError(f"the process that trains {how}; what it printed is in the executor's log")
        return answer


def _stream(stream: Any) -> BinaryIO:
    return cast("BinaryIO", stream)  # both were asked for
