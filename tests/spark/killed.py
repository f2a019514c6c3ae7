"""Steps whose Spark tasks are killed and retried: each row is written once. `test_killed_tasks.py` checks the facts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from petastore.spark import materialize_dataset, register_data_source, write_options
from tests.spark import through_spark as frames
from tests.spark.attempts import SLOW, attempt, until
from tests.spark.scenario import problem_of
from tests.spark.through_spark import left_at, seen_at
from tests.spark.writing import by_tasks as poses


class Steps:
    """Base class: the frames to write, and ways to write them."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        register_data_source(spark)
        self.frames = spark.range(0, frames.ROWS, 1, frames.PARTITIONS).selectExpr(*frames.RAW)
        self.poses = spark.range(0, poses.ROWS, 1, poses.PARTITIONS).selectExpr(*poses.RAW_POSES)

    def write(self, frame: Any, name: str, **how: Any) -> Path:
        asked = write_options(frames.SCHEMA, rows_per_row_group=200, **how)
        frame.write.format("petastore").options(**asked).mode("append").save(str(self.folder / name))
        return self.folder / name

    def block(self, name: str, write: Callable[[Any], None], **how: Any) -> dict[str, Any]:
        """Return the facts about a block with one write."""
        url = self.folder / name
        with materialize_dataset(self.spark, url, poses.POSES, rows_per_row_group=5, **how) as writer:
            write(writer)
        return {"whole": poses.are_poses(url, range(poses.ROWS)), "left": left_in_the_end(url)}


class Killed(Steps):
    """Steps in which Python workers die in the middle of the first attempt of each task, after writing rows."""

    def source_killed(self) -> dict[str, Any]:
        url = self.write(through(self.frames, dies_at_first), "source", index_fields=["id"])
        return {"whole": frames.is_whole(url), "left": left_at(url), "indexed": frames.is_indexed(url)}

    def source_lost_for_good(self) -> dict[str, Any]:
        problem = problem_of(lambda: self.write(through(self.frames, always_dies), "source lost for good"))
        url = self.folder / "source lost for good"
        facts = {"refused": bool(problem), "seen": seen_at(url)}
        self.write(self.frames, url.name)
        return facts | {"whole": frames.is_whole(url)}

    def block_killed(self) -> dict[str, Any]:
        columns = through(self.poses, dies_at_first)
        found = {
            "rows": self.block(
                "rows", lambda writer: writer.write_rows(pose_or_death, range(poses.ROWS), partitions=poses.PARTITIONS)
            ),
            "columns": self.block("columns", lambda writer: writer.write_columns(columns)),
        }
        if hasattr(self.spark, "_jvm"):
            rdd = self.spark.sparkContext.parallelize(range(poses.ROWS), poses.PARTITIONS).map(pose_or_death)
            found["rdd"] = self.block("rdd", lambda writer: writer.write_rows(rdd))
        return found

    def block_lost_for_good(self) -> dict[str, Any]:
        columns = through(self.poses, always_dies)
        problem = problem_of(lambda: self.block("lost for good", lambda writer: writer.write_columns(columns)))
        url = self.folder / "lost for good"
        facts = {"refused": bool(problem), "seen": seen_at(url)}
        return facts | self.block(url.name, lambda writer: writer.write_columns(self.poses))


def through(frame: Any, function: Any) -> Any:
    """Pass a DataFrame through a function in Python workers.

    Columns are renamed, because Spark reads a dot as a struct field.
    """
    numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    return numbered.mapInArrow(function, numbered.schema).toDF(*frame.columns)


def left_in_the_end(url: Path) -> list[str]:
    """Return the files that remain next to the dataset after the slower attempt noticed the end of the job."""
    end = time.monotonic() + 300
    until(lambda: not left_at(url) or time.monotonic() > end)
    return left_at(url)


def pose_or_death(number: int) -> dict[str, Any]:
    if attempt()[1] == 0 and number % 40 == 39:
        os.kill(os.getpid(), signal.SIGKILL)
    return poses.pose(number)


def dies_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, 20)
        if attempt()[1] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch.slice(20)


def always_dies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        if attempt()[0] == SLOW:
            os.kill(os.getpid(), signal.SIGKILL)


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Run the steps."""
    own = Killed(spark, folder)
    steps = (own.source_killed, own.source_lost_for_good, own.block_killed, own.block_lost_for_good)
    return {step.__name__: step() for step in steps}
