"""`run_on_dataframe`: train on the hosts that hold a DataFrame's rows.

A shared filesystem is not needed.
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from petastore.errors import InvalidArgumentError, MissingExtraError, WorkerError
from petastore.plan.request import whole_number
from petastore.schema import Unischema
from petastore.spark.dataframe import check_columns, inferred_schema, numbered_columns
from petastore.spark.prepared import tensor_columns
from petastore.spark.training.spool import LocalRows
from petastore.spark.training.task import Job
from petastore.spark.training.trainer import Outcome
from petastore.writers.parquet import FileLayout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["run_on_dataframe"]

_RESULT = "rank int, outcome binary"
# Part of Spark's message about a job that failed because an executor was lost, not because a rank raised an error.
_LOST = re.compile(r"ExecutorLostFailure [^\n]*")


def run_on_dataframe(
    df: DataFrame,
    train_fn: Callable[[LocalRows], Any],
    num_proc: int | None = None,
    *,
    schema: Unischema | None = None,
    rows_per_row_group: int | None = None,
    row_group_size_mb: float | None = None,
    restarts: int = 0,
    local_folder: str | os.PathLike[str] | None = None,
) -> list[Any]:
    """Train on a Spark DataFrame in Spark's executors.

    A dataset on shared storage is not needed. The tasks of one barrier stage write their partitions to local disks, as
    Parquet with codecs. They exchange a few rows, so that all ranks have equally many. Then each task runs `train_fn`
    with its rows in a separate process. All ranks have the same number of batches, and each row belongs to one rank.

    Works on classic and Connect sessions. petastore must be installed on the executors. One slot per rank must be free:
    Spark waits ten minutes for the slots, or as long as `spark.scheduler.barrier.maxConcurrentTasksCheck` options
    allow.

    In `train_fn`, `petastore.distributed.current_shard()` returns the rank. `RANK`, `WORLD_SIZE`, `LOCAL_RANK`,
    `LOCAL_WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` and `TF_CONFIG` are set, so that
    `torch.distributed.init_process_group` and TensorFlow's `MultiWorkerMirroredStrategy` work.

    Args:
        df: A DataFrame. With `schema`, it has raw values as in `encode_dataframe`. Without, it may have numbers, text,
            times, arrays of any dimension, and Spark ML vectors, which become arrays.
        train_fn: Training function, called on each rank with the rank's rows (`LocalRows`). It is sent by cloudpickle.
            It may return None, bytes, numbers, text, and lists and dicts of these.
        num_proc: Number of ranks, into which the DataFrame is repartitioned. None uses one rank per partition, so that
            rows stay on their executor.
        schema: Schema of the rows. None infers it from the columns.
        rows_per_row_group: As in `write_dataset`.
        row_group_size_mb: As in `write_dataset`.
        restarts: Maximum number of restarts after `train_fn` fails or an executor is lost. A restart recomputes the
            partitions. `LocalRows.restarts` counts restarts, so that `train_fn` can resume from a state that it has
            saved.
        local_folder: Directory for rows on each host during training; None means the temporary directory.

    Returns:
        The results of `train_fn`, in the order of ranks.

    Raises:
        InvalidArgumentError: An argument is invalid; the message names it.
        SchemaError: No schema can be inferred from the columns, or they do not match `schema`.
        WorkerError: `train_fn` raised, a value does not fit the schema, an executor was lost, or there are fewer rows
            than ranks. The message has the first error of a rank.
        MissingExtraError: pyspark is not installed.

    Warns:
        RuntimeWarning: Training restarts; the message has the reason.
    """
    if num_proc is not None:
        df = df.repartition(whole_number(num_proc, name="num_proc", least=1))
    layout = FileLayout.of(
        rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=None
    )
    folder = None if local_folder is None else os.fspath(local_folder)
    job, numbered = _job(df, train_fn, schema, layout, folder)
    told = _trained(numbered, job, whole_number(restarts, name="restarts", least=0))
    return _values(sorted(told, key=lambda row: row["rank"]))


def _trained(df: DataFrame, job: Job, restarts: int) -> list[Any]:
    """Run the training until it succeeds, and return the result of each rank.

    After a failure, the training is restarted, at most `restarts` times in all.
    """
    try:
        told: list[Any] = df.mapInArrow(job, _RESULT, barrier=True).collect()
    except Exception as problem:
        if not type(problem).__module__.startswith(("pyspark", "py4j")):
            raise
        ended = _ended(str(problem), job)
        if job.restarts == restarts:
            raise WorkerError(ended) from problem
        warnings.warn(f"{ended}. Training restarts", RuntimeWarning, stacklevel=3)
    else:
        return told
    return _trained(df, dataclasses.replace(job, restarts=job.restarts + 1), restarts)


def _values(told: Sequence[Any]) -> list[Any]:
    outcomes = [Outcome(bytes(row["outcome"])) for row in told]
    for outcome in outcomes:
        if outcome.problem is not None:
            raise WorkerError(f"run_on_dataframe failed: {outcome.problem}")
    return [outcome.value() for outcome in outcomes]


def _ended(said: str, job: Job) -> str:
    """Return an error message about a failed job, without Spark's stack traces.

    The message has the exception of a rank, or Spark's own message.
    """
    lost = _LOST.search(said)
    cause = job.problem_in(said) or (lost[0] if lost else said)
    times = f" {job.restarts + 1} times" if job.restarts else ""
    return f"run_on_dataframe ended{times} without a result: {cause}"


def _job(
    df: DataFrame,
    train_fn: Callable[[LocalRows], Any],
    schema: Unischema | None,
    layout: FileLayout,
    folder: str | None,
) -> tuple[Job, DataFrame]:
    try:
        from pyspark import cloudpickle
    except ImportError as problem:
        raise MissingExtraError("run_on_dataframe", package="pyspark", extra="spark") from problem
    if not callable(train_fn):
        raise InvalidArgumentError(f"train_fn must be callable with the rows of a rank, got {train_fn!r:.100}")
    if schema is None:
        df = tensor_columns(df, None)
        schema = inferred_schema(df.schema)
    schema.as_spark_schema()
    check_columns(df.schema, schema)
    job = Job(
        secret=secrets.token_bytes(),
        schema=schema,
        columns=tuple(df.columns),
        layout=layout,
        function=cloudpickle.dumps(train_fn),
        restarts=0,
        folder=folder,
    )
    return job, numbered_columns(df)
