"""How many of Spark's tasks are done, told while a block writes: for where its own bar is not seen.

A Connect session tells it by itself. A classic one is asked, by a thread that lives as long as the block.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from petastore.spark.classic import ActiveStages
from petastore.threads import Daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "progress_told"]

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the tasks that are done, and all that are known so far."""

_LOOKS_EVERY_S = 0.5

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def progress_told(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
    """A block in which tasks of the session are counted; on classic ones not those of stages that began before it.

    Args:
        spark: A classic or Connect session.
        progress: Called whenever the numbers change, by any thread, never by two at once; None leaves all as it is.
            Once it has raised, which is logged, it is not called again.
    """
    if progress is None:
        yield
        return
    told = _Told(progress)
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        with _handled(spark, told):
            yield
    else:
        with _asked(ActiveStages(spark), told):
            yield


class _Told:
    """What was told last, and of each stage how far it is."""

    def __init__(self, progress: Progress) -> None:
        self._progress: Progress | None = progress
        self._stages: dict[int, tuple[int, int]] = {}
        self._said = (0, 0)
        self._lock = threading.Lock()  # on Connect each thread that runs something tells of it

    def note(self, stages: Iterable[tuple[int, int, int]]) -> None:
        """Of each stage: its number, tasks done, and all of its tasks."""
        with self._lock:
            self._stages.update((number, (done, tasks)) for number, done, tasks in stages)
            found = self._stages.values()
            sums = (sum(done for done, _ in found), sum(tasks for _, tasks in found))
            if sums != self._said:
                self._said = sums
                self._tell(sums)

    def _tell(self, sums: tuple[int, int]) -> None:
        if self._progress is None:
            return
        try:
            self._progress(*sums)
        except Exception:  # noqa: BLE001 - a bar that fails is no reason to give up a write
            _log.exception("progress=%r raised; it is not called any more, and Spark goes on", self._progress)
            self._progress = None


@contextlib.contextmanager
def _handled(spark: Any, told: _Told) -> Iterator[None]:
    def handle(stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:  # noqa: ARG001 - Spark's names
        # The last message before the end may be older than the last tasks.
        told.note((one.stage_id, one.num_tasks if done else one.num_completed_tasks, one.num_tasks) for one in stages)

    spark.registerProgressHandler(handle)
    try:
        yield
    finally:
        spark.removeProgressHandler(handle)


@contextlib.contextmanager
def _asked(stages: ActiveStages, told: _Told) -> Iterator[None]:
    has_ended = threading.Event()

    def ask() -> None:
        while not has_ended.wait(_LOOKS_EVERY_S):
            told.note(stages.progress())

    thread = Daemon("petastore-spark-progress", ask)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
    told.note(stages.progress())
