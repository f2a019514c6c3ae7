"""Progress of a Spark write: the numbers of finished and of all Spark tasks.

Use it where Spark's own progress bar is not visible.

A Connect session reports its progress. For a classic session, a thread polls the progress until the block ends.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from petastore.monitoring.progress import progress_shown
from petastore.spark.session import ActiveStages
from petastore.threads import Daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "progress_told"]

Progress: TypeAlias = Callable[[int, int], object]
"""Function that is called with the number of finished Spark tasks and of all tasks known so far."""

_LOOKS_EVERY_S = 0.5

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def progress_told(spark: SparkSession, progress: bool | Progress | None) -> Iterator[None]:
    """Return a context manager that reports the progress of the session's Spark tasks.

    On classic sessions, stages that began before the block are not counted.

    Args:
        spark: A classic or Connect session.
        progress: Function that is called when the numbers change, by any thread, but never by two threads at the same
            time. If it raises an error, this is logged, and the function is not called again. True shows the progress
            on standard error; None does nothing.
    """
    with progress_shown(progress, "writing", "Spark tasks") as show:
        if show is None:
            yield
            return
        told = _Told(show)
        is_connect = type(spark).__module__.startswith("pyspark.sql.connect.")
        with _handled(spark, told) if is_connect else _asked(ActiveStages(spark), told):
            yield


class _Told:
    """Progress of each Spark stage, and the sums that were reported last."""

    def __init__(self, progress: Progress) -> None:
        self._progress: Progress | None = progress
        self._stages: dict[int, tuple[int, int]] = {}
        self._said = (0, 0)
        self._lock = threading.Lock()  # on Connect, several threads may run queries, and each reports progress

    def note(self, stages: Iterable[tuple[int, int, int]]) -> None:
        """Record (stage number, finished tasks, all tasks) of each stage.

        If the sums over all stages have changed, the progress function is called.
        """
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
        except Exception:  # noqa: BLE001 - an error of the progress bar must not fail the write
            _log.exception(
                "progress=%r raised an error; it is no longer called, and the write continues", self._progress
            )
            self._progress = None


@contextlib.contextmanager
def _handled(spark: Any, told: _Told) -> Iterator[None]:
    def handle(stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:  # noqa: ARG001 - passed by Spark
        # Spark may send its last message before the last tasks finish, so all tasks of an ended query count as done.
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
