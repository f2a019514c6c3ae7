"""Trainer process: a Spark task starts it to run the training function.

The process ends together with the task.

Training runs in a separate process, because Spark reuses its Python workers. When the process ends, threads, memory and
process groups of frameworks end, too, and other ranks notice a failure at once. The process is started as `python -m
petastore.spark.training`:

```text
trainer → task    the directory that the trainer created
task → trainer    the function, after the rows were written
trainer → task    the result of the function, or its error
```

The messages go through a socket pair, which is the standard input of the trainer. The task sends the training function
as a pickle.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from petastore.errors import WorkerError
from petastore.spark.training.spool import LocalRows

__all__ = ["Outcome", "Trainer"]

_BYTES = b"b"
_JSON = b"j"
_PROBLEM = b"p"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Return value or exception of a function, in serialized form."""

    encoded: bytes

    @classmethod
    def of(cls, value: Any) -> Self:
        """Wrap the return value of a function.

        Raises:
            TypeError: The value is neither bytes nor JSON-serializable.
        """
        if isinstance(value, (bytes, bytearray, memoryview)):
            return cls(_BYTES + bytes(value))
        try:
            return cls(_JSON + json.dumps(value).encode())
        except (TypeError, ValueError) as problem:
            raise TypeError(
                "train_fn must return None, bytes, or numbers, text, lists and dicts of these, got "
                f"{type(value).__name__} ({problem}). Return the bytes of a saved model"
            ) from None

    @classmethod
    def of_problem(cls, text: str) -> Self:
        """Wrap the exception of a function."""
        return cls(_PROBLEM + text.encode())

    @property
    def problem(self) -> str | None:
        """Exception of the function as text; None if the function returned a value."""
        return self.encoded[1:].decode(errors="replace") if self.encoded[:1] == _PROBLEM else None

    def value(self) -> Any:
        """Return the function's return value.

        Example:
            >>> Outcome.of({"loss": 0.25}).value(), Outcome.of(b"model").value()
            ({'loss': 0.25}, b'model')
        """
        return self.encoded[1:] if self.encoded[:1] == _BYTES else json.loads(self.encoded[1:])


class Trainer:
    """Handle of a trainer process, for the Spark task that starts it.

    The process and its directory end with `close`, or with the process of the task.

    Args:
        parent: Parent of the trainer's directory; None means the directory of temporary files.

    Raises:
        WorkerError: The process could not be started.
    """

    def __init__(self, parent: str | None = None) -> None:
        command = [sys.executable, "-m", __package__, *([] if parent is None else [parent])]
        searched = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self._pipe, theirs = multiprocessing.Pipe()
        with theirs:
            # A new process session, so that `close` can kill all children of the trainer together.
            self._process = subprocess.Popen(  # noqa: S603 - runs this Python with a module of petastore
                command, stdin=theirs.fileno(), env=os.environ | {"PYTHONPATH": searched}, start_new_session=True
            )

    def folder(self) -> str:
        """Return the directory for rows on the local disk, which the trainer has created.

        Raises:
            WorkerError: The process has ended.
        """
        return self._answer().decode()

    def train(self, rows: LocalRows, function: bytes, environment: Mapping[str, str]) -> Outcome:
        """Run a function in the trainer process, wait for its end, and return its outcome.

        Args:
            rows: Rows that are passed to the function.
            function: Pickled function.
            environment: Environment variables of the function.

        Raises:
            WorkerError: The process died.
        """
        with contextlib.suppress(ConnectionError):  # the process has already ended; its exit status has the reason
            self._pipe.send((rows, function, dict(environment)))
        return Outcome(self._answer())

    def close(self) -> None:
        """End the trainer process and its child processes.

        The trainer deletes its directory before it ends.
        """
        self._pipe.close()  # tells the trainer to delete its directory and end
        self._process.wait()
        with contextlib.suppress(ProcessLookupError):  # raised if no child process is left
            os.killpg(self._process.pid, signal.SIGKILL)

    def _answer(self) -> bytes:
        try:
            return self._pipe.recv_bytes()
        except (EOFError, OSError):  # the process has ended, perhaps in the middle of a message
            code = self._process.wait()
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            raise WorkerError(f"the training process {how}. Read its output in the executor's log") from None
