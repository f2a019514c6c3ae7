"""Two attempts of a Spark task that run at the same time, and both write all rows of the task."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

SLOW = 2
"""The partition whose first attempt waits for the second."""


class SlowDisk(LocalFileSystem):  # type: ignore[misc]
    """Filesystem on which the first attempt of a task opens plain files slowly."""

    protocol = "slow"

    def __init__(self, marks: str) -> None:
        super().__init__()
        self.marks = marks

    def _open(self, path: str, mode: str = "rb", **how: Any) -> Any:
        if mode == "rb" and "/plain/" in path:
            wait_for_another_attempt(self.marks, SLOW)
        return super()._open(path, mode=mode, **how)


def wait_for_another_attempt(marks: str, partition: int) -> None:
    """Wait in a Spark task until both attempts of a partition have begun; tasks can only communicate through files."""
    from pyspark import TaskContext

    if TaskContext.get() is None or attempt()[0] != partition:
        return
    Path(marks, f"begun-{attempt()[1]}").touch()
    until(lambda: all(Path(marks, f"begun-{number}").exists() for number in (0, 1)))


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.1)


def attempt() -> tuple[int, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.attemptNumber()
