"""`run_on_dataframe`: training where a DataFrame's rows are, without a file system that hosts share."""

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
from petastore.spark.dataframe import check_columns, inferred_schema
from petastore.spark.tensor_columns import tensor_columns
from petastore.spark.training.local_rows import LocalRows
from petastore.spark.training.task import Job
from petastore.spark.training.trainer import Outcome
from petastore.writers.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["run_on_dataframe"]

_RESULT = "rank int, kind string, said binary"
# In what Spark says of a job where no rank raised anything: the executor that is gone.
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
    """Trains on a DataFrame, on the executors that compute it: no dataset is written to shared storage.

    The tasks of one barrier stage write their partitions to the disks of their hosts, as Parquet with codecs, and send
    each other the few rows that make their parts equal. Then each runs the function, in a process of its own, with its
    rows: all ranks have the same number of batches, and each row is given to just one of them. Works on classic and
    Connect sessions; the executors need petastore, and as many slots at a time as there are ranks:
    Spark waits ten minutes for them, unless `spark.scheduler.barrier.maxConcurrentTasksCheck` says otherwise.

    In the function `petastore.distributed.current_shard()` knows the rank, and `torch.distributed.init_process_group`
    and TensorFlow's `MultiWorkerMirroredStrategy` find their peers: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`,
    `LOCAL_WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` and `TF_CONFIG` are set.

    Args:
        df: Any DataFrame: with `schema` of raw values, as `encode_dataframe` takes them; else of numbers, text, times,
            arrays of one dimension and more, and vectors of Spark ML, which become arrays.
        train_fn: Is given its rank's rows (`LocalRows`), and gives None, numbers, text, lists and dicts of these, or
            bytes. It goes to the executors as a closure, by cloudpickle.
        num_proc: Ranks; the DataFrame is shuffled into as many partitions. None makes each partition a rank, and lets
            rows stay where they are computed.
        schema: What the rows are. None is what the columns are.
        rows_per_row_group: As in `write_dataset`.
        row_group_size_mb: As in `write_dataset`.
        restarts: How often training may begin again when a function fails or an executor is lost; partitions are
            computed anew then, and `LocalRows.restarts` says so: a function that saves its state goes on from it.
        local_folder: Where rows lie on each host while it trains; None is where temporary files are.

    Returns:
        What each rank's function gave, in the order of ranks.

    Raises:
        InvalidArgumentError: An argument cannot be.
        SchemaError: The columns have no schema, or cannot be stored as it says.
        WorkerError: A function raised, a value does not fit, an executor was lost, or there are fewer rows than ranks.
            The message has the first problem of a rank.
        MissingExtraError: pyspark is not installed.

    Warns:
        RuntimeWarning: Training begins again, and why.
    """
    if num_proc is not None:
        df = df.repartition(whole_number(num_proc, name="num_proc", least=1))
    layout = Layout.of(rows_per_row_group=rows_per_row_group, row_group_size_mb=row_group_size_mb, rows_per_file=None)
    folder = None if local_folder is None else os.fspath(local_folder)
    job, numbered = _job(df, train_fn, schema, layout, folder)
    told = _trained(numbered, job, whole_number(restarts, name="restarts", least=0))
    return _values(sorted(told, key=lambda row: row["rank"]))


def _trained(df: DataFrame, job: Job, restarts: int) -> list[Any]:
    """What each rank told, in whichever attempt all came to their end."""
    try:
        told: list[Any] = df.mapInArrow(job, _RESULT, barrier=True).collect()
    except Exception as problem:
        if not type(problem).__module__.startswith(("pyspark", "py4j")):
            raise
        ended = _ended(str(problem), job)
        if job.restarts == restarts:
            raise WorkerError(ended) from problem
        warnings.warn(f"{ended}. It begins again", RuntimeWarning, stacklevel=3)
    else:
        return told
    return _trained(df, dataclasses.replace(job, restarts=job.restarts + 1), restarts)


def _values(told: Sequence[Any]) -> list[Any]:
    for row in told:
        if row["kind"] == "problem":
            raise WorkerError(f"run_on_dataframe was given up: {bytes(row['said']).decode()}")
    return [Outcome(bytes(row["said"])).value() for row in told]


def _ended(said: str, job: Job) -> str:
    """What a rank raised, or Spark says of a failed job, without the stacks of its own."""
    lost = _LOST.search(said)
    cause = job.problem_in(said) or (lost[0] if lost else said)
    times = f" {job.restarts + 1} times" if job.restarts else ""
    return f"run_on_dataframe ended{times} without a result: {cause}"


def _job(
    df: DataFrame,
    train_fn: Callable[[LocalRows], Any],
    schema: Unischema | None,
    layout: Layout,
    folder: str | None,
) -> tuple[Job, DataFrame]:
    try:
        from pyspark import cloudpickle
    except ImportError as problem:
        raise MissingExtraError("run_on_dataframe", package="pyspark", extra="spark") from problem
    if not callable(train_fn):
        raise InvalidArgumentError(f"train_fn is called with the rows of a rank, but {train_fn!r:.100} was given")
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
    # mapInArrow takes a dot in a name for a struct's field; these names it understands.
    return job, df.toDF(*(f"c{number}" for number in range(len(df.columns))))
