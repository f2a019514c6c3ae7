"""Trainer process: entry point of `python -m petastore.spark.training [PARENT]`.

`petastore.spark.training.trainer` describes the process.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import BinaryIO

from petastore.spark.training.spool import LocalRows
from petastore.spark.training.trainer import Outcome, receive, send

__all__: list[str] = []


def _main(parent: str | None) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the function goes to the executor's log
    # Not buffered: a thread that waits in a read would hold the buffer's lock, and block the exit of the interpreter.
    orders = os.fdopen(os.dup(0), "rb", buffering=0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with tempfile.TemporaryDirectory(prefix="petastore-rows-", dir=parent) as folder:
        send(answers, folder.encode())
        order = receive(orders)
        if order is None:
            return
        rows, function, environment = pickle.loads(order)  # noqa: S301 - sent by the process that started this one
        os.environ.update(environment)
        end = threading.Thread(target=_end_with_the_task, args=(orders, folder), daemon=True)
        end.start()
        send(answers, _outcome(rows, function).encoded)
        end.join()  # wait, so that peers see this process end only after the task has reported the error


def _outcome(rows: LocalRows, function: bytes) -> Outcome:
    try:
        return Outcome.of(pickle.loads(function)(rows))  # noqa: S301 - sent by the user's driver
    except BaseException:  # noqa: BLE001 - `sys.exit` must only end the function, not this process
        return Outcome.of_problem(traceback.format_exc())


def _end_with_the_task(orders: BinaryIO, folder: str) -> None:
    """Wait until the parent process has ended, then end this process."""
    receive(orders)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    _main(sys.argv[1] if len(sys.argv) > 1 else None)
