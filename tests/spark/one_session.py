"""Run all steps of one kind of Spark session: `python -m tests.spark.one_session KIND FOLDER [PART …]`.

Starting Spark costs more than most steps, and classic and Connect sessions cannot share a process. So each kind runs
once, in its own process, and many test files read its output: `FOLDER/PART/facts.json`. If a part raises,
`FOLDER/PART/problem.txt` has the traceback. Parts start from the same configuration of the session.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.cloudpickle import register_pickle_by_value

from petastore.spark import connect_session, local_session
from tests.spark.standalone import standalone_cluster
from tests.tier import IS_FULL

__all__ = ["PARTS"]

_QUICK = ("scenario", "frames", "writing.by_tasks", "through_spark")
_SLOW = ("barrier", "hello_world", "pages", "copy_command")

PARTS = {
    "classic": (*_QUICK, "workers_python", *(_SLOW if IS_FULL else ())),
    "connect": (*_QUICK, "killed", "training.on_dataframe", "again"),
    "local-cluster": ("scenario", "killed", "training.on_dataframe"),
    "standalone": ("twice",),
}
"""Modules of `tests.spark` for each kind of session; `facts_of(kind, spark, folder)` of each returns its facts."""

_AFTERWARDS = frozenset({"again", "copy_command"})
"""Parts that start their own sessions in the running Java, after the shared session was stopped."""

_FORKING = {"spark.python.daemon.module": "tests.spark.forking_daemon"}
# Compiling Java for each query of a few rows takes a seventh of the CPU. In full runs, the classic session compiles, as
# users' sessions do.
_INTERPRETED = _FORKING | {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_OF_CLUSTER = _INTERPRETED | {
    "spark.task.maxFailures": "3",
    # By default, a rank that waits for an executor requests it again only after 15 seconds.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
}
_EAGER = _INTERPRETED | {
    "spark.executor.cores": "3",
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.task.duration.threshold": "1s",
}


def session_of(kind: str, master: str) -> Any:
    """Start a session of a kind."""
    starts: dict[str, Callable[[], Any]] = {
        "classic": functools.partial(local_session, **(_FORKING if IS_FULL else _INTERPRETED)),
        # A task has three attempts, so that killed tasks are retried without a cluster.
        "connect": functools.partial(connect_session, "local[2,3]", **_INTERPRETED),
        "local-cluster": functools.partial(local_session, "tests", "local-cluster[2,1,1024]", **_OF_CLUSTER),
        "standalone": functools.partial(local_session, "tests", master, **_EAGER),
    }
    return starts[kind]()


def run_part(part: str, kind: str, spark: Any, folder: Path) -> None:
    """Run a part and write its facts or its traceback, so that a failing part does not hide the others."""
    own = folder / part
    own.mkdir()
    try:
        module = importlib.import_module(f"tests.spark.{part}")
        register_pickle_by_value(module)  # like the functions of a user's script
        facts = module.facts_of(kind, spark, own)
        (own / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    except Exception:  # noqa: BLE001 - the test of this part shows it
        (own / "problem.txt").write_text(traceback.format_exc(), encoding="utf-8")


def restore(spark: Any, before: dict[str, str]) -> None:
    """Restore the configuration of a session."""
    for key in spark.conf.getAll.keys() - before.keys():
        spark.conf.unset(key)
    for key, value in before.items():
        if spark.conf.get(key, None) != value:
            spark.conf.set(key, value)


def main(kind: str, folder: Path, *parts: str) -> None:
    """Run all parts of a kind, or only the given ones."""
    chosen = parts or PARTS[kind]
    with standalone_cluster(folder, cores=3) if kind == "standalone" else contextlib.nullcontext("") as master:
        spark = session_of(kind, master)
        before = dict(spark.conf.getAll)
        for part in chosen:
            if part not in _AFTERWARDS:
                run_part(part, kind, spark, folder)
                restore(spark, before)
        # Neither `with` nor `finally`: a step forks a child that exits normally, and must not stop the session.
        spark.stop()
    for part in _AFTERWARDS.intersection(chosen):
        run_part(part, kind, None, folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
