"""Trainer process: entry point of `python -m petastore.spark.training [PARENT]`.

`petastore.spark.training.trainer` describes the process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import sys
import tempfile
import threading
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from petastore.spark.training.spool import LocalRows
from petastore.spark.training.trainer import Outcome

__all__: list[str] = []

_Pipe: TypeAlias = "Connection[Any, Any]"


def _main(parent: str | None) -> None:
    pipe: _Pipe = Connection(os.dup(0))
    os.dup2(2, 1)  # output of the function goes to the executor's log
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with tempfile.TemporaryDirectory(prefix="petastore-rows-", dir=parent) as folder:
        pipe.send_bytes(folder.encode())
        try:
            rows, function, environment = pipe.recv()
        except (EOFError, OSError):
            return  # the process that started this one has ended, or needs no training
        os.environ.update(environment)
        end = threading.Thread(target=_end_with_the_task, args=(pipe, folder), daemon=True)
        end.start()
        pipe.send_bytes(_outcome(rows, function).encoded)
        end.join()  # wait, so that peers see this process end only after the task has reported the error


def _outcome(rows: LocalRows, function: bytes) -> Outcome:
    try:
        return Outcome.of(pickle.loads(function)(rows))  # noqa: S301 - sent by the user's driver
    except BaseException:  # noqa: BLE001 - `sys.exit` must only end the function, not this process
        return Outcome.of_problem(traceback.format_exc())


def _end_with_the_task(pipe: _Pipe, folder: str) -> None:
    """Wait until the parent process has ended, then end this process."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    _main(sys.argv[1] if len(sys.argv) > 1 else None)
