"""What only a classic Spark process can do: start a Spark Connect server inside itself, see its tasks, and make RDDs.

The one file of this package that touches a `SparkContext`: what else is for classic sessions alone goes through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from petastore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

__all__ = ["ActiveStages", "rdd_of_numbers", "start_connect_server"]


def start_connect_server(settings: Mapping[str, str]) -> str:
    """Start Spark in this process with a Connect server in it, unless there is one already.

    It ends with the process, or with the session's `stop()`. `SparkSession.builder.remote("local[2]")` does the same,
    but always on port 15002, so that two of them cannot run on one machine.

    Args:
        settings: Spark's configuration, with `spark.master` and `spark.connect.grpc.binding.port`.

    Returns:
        The port on which it listens.

    Raises:
        InvalidArgumentError: This process runs classic Spark.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    plugin = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    }
    context = SparkContext.getOrCreate(SparkConf().setAll([*settings.items(), *plugin.items()]))
    port = context.getConf().get("spark.connect.grpc.binding.port")
    if port is None:
        raise InvalidArgumentError(
            "this process has a classic Spark session, and pyspark allows no Connect session beside it: stop() that "
            "one first, or connect from another process"
        )
    SparkSession(context)
    return str(port)


def rdd_of_numbers(spark: SparkSession, numbers: int, partitions: int) -> RDD[int]:
    """The numbers from 0 on, as an RDD.

    Args:
        spark: A classic session.
        numbers: How many.
        partitions: How many ranges they are dealt out in.
    """
    return spark.sparkContext.parallelize(range(numbers), partitions)


class ActiveStages:
    """Stages that begin from now on, and how far they are; stages that begin and end between two looks are missed.

    Args:
        spark: A classic session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._older = frozenset(self._tracker.getActiveStageIds())
        self._open: set[int] = set()

    def progress(self) -> list[tuple[int, int, int]]:
        """Of each stage that was not complete at the last look: its number, tasks done, and all of its tasks."""
        self._open.update(number for number in self._tracker.getActiveStageIds() if number not in self._older)
        found = []
        for number in sorted(self._open):
            stage = self._tracker.getStageInfo(number)
            if stage is not None:
                found.append((number, stage.numCompletedTasks, stage.numTasks))
            if stage is None or stage.numCompletedTasks >= stage.numTasks:
                self._open.discard(number)
        return found
