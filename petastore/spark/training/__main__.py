"""The trainer's side: see `petastore.spark.training.trainer`. `python -m petastore.spark.training [PARENT]`."""

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

from petastore.spark.training.local_rows import LocalRows
from petastore.spark.training.messages import receive, send
from petastore.spark.training.trainer import Outcome

__all__: list[str] = []


def _main(parent: str | None) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints goes to the executor's log
    # Without a buffer: a thread waits for its lock when Python ends.
    orders = os.fdopen(os.dup(0), "rb", buffering=0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with tempfile.TemporaryDirectory(prefix="petastore-rows-", dir=parent) as folder:
        send(answers, folder.encode())
        order = receive(orders)
        if order is None:
            return
        rows, function, environment = pickle.loads(order)  # noqa: S301 - of the process that started this one
        os.environ.update(environment)
        end = threading.Thread(target=_end_with_the_task, args=(orders, folder), daemon=True)
        end.start()
        send(answers, _outcome(rows, function).encoded)
        end.join()  # peers notice when this process ends, and that is for the task to say


def _outcome(rows: LocalRows, function: bytes) -> Outcome:
    try:
        return Outcome.of(pickle.loads(function)(rows))  # noqa: S301 - of the user's driver, by the task
    except BaseException:  # noqa: BLE001 - `sys.exit` of a program ends its function, and is none of this process's
        return Outcome.of_problem(traceback.format_exc())


def _end_with_the_task(orders: BinaryIO, folder: str) -> None:
    """Waits until nobody is there any more who would want a result."""
    receive(orders)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    _main(sys.argv[1] if len(sys.argv) > 1 else None)
