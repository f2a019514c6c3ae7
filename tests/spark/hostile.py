"""Tasks that are killed and tried again, or run twice at a time; each row is written once, and each rank runs once.

Run by `test_hostile.py`: `python -m tests.spark.hostile KIND FOLDER`. Tasks die on sessions of the kinds classic and
connect; twice is a cluster of two hosts. Facts go into a JSON file.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from petastore.spark import (
    LocalRows,
    connect_session,
    local_session,
    materialize_dataset,
    register_data_source,
    run_on_dataframe,
    write_options,
)
from tests.spark.attempts import SLOW, SlowDisk, attempt, until, wait_for_another_attempt
from tests.spark.scenario import problem_of
from tests.spark.source import through_spark as frames
from tests.spark.source.through_spark import left_at, seen_at
from tests.spark.standalone import standalone_cluster
from tests.spark.writing import by_tasks as poses


class Steps:
    """What both kinds of programs write."""

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
        """What a block of one write leaves."""
        url = self.folder / name
        with materialize_dataset(self.spark, url, poses.POSES, rows_per_row_group=5, **how) as writer:
            write(writer)
        return {"whole": poses.are_poses(url, range(poses.ROWS)), "left": left_in_the_end(url)}


class Killed(Steps):
    """Workers of Python die in the middle of the first attempt of each task, when they have written rows."""

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


class Twice(Steps):
    """Spark runs tasks that take long a second time, on another host. The first attempts wait for the second ones."""

    def source(self) -> dict[str, Any]:
        url = self.write(through(self.frames, self.slowly("source")), "source")
        return {"whole": frames.is_whole(url), "left": left_in_the_end(url), "attempts": self.attempts("source")}

    def block_of(self, way: str, write: Callable[[Any], None], **how: Any) -> dict[str, Any]:
        return self.block(way, write, **how) | {"attempts": self.attempts(way)}

    def rows(self) -> dict[str, Any]:
        pose = functools.partial(pose_slowly, self.marks("rows"))
        return self.block_of(
            "rows", lambda writer: writer.write_rows(pose, range(poses.ROWS), partitions=poses.PARTITIONS)
        )

    def columns(self) -> dict[str, Any]:
        columns = through(self.poses, self.slowly("columns"))
        return self.block_of("columns", lambda writer: writer.write_columns(columns))

    def files(self) -> dict[str, Any]:
        plain = self.folder / "plain"
        self.poses.write.parquet(plain.as_uri())
        slow_disk = SlowDisk(self.marks("files"))
        return self.block_of("files", lambda writer: writer.write_files(str(plain)), filesystem=slow_disk)

    def ranks(self) -> dict[str, Any]:
        """Both ranks wait while Spark runs a task twice that began after them, and no longer."""
        from pyspark.ml.torch.distributor import TorchDistributor

        two = self.spark.range(0, 10, 1, 2)
        distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
        return {
            "run_on_dataframe": self.meanwhile(
                "run_on_dataframe", lambda marks: run_on_dataframe(two, functools.partial(waits_as_rank, marks))
            ),
            "TorchDistributor": self.meanwhile("TorchDistributor", lambda marks: distributor.run(waits_as_rank, marks)),
        }

    def meanwhile(self, name: str, launch: Callable[[str], Any]) -> dict[str, Any]:
        marks = self.marks(name)
        problems: list[str] = []
        ranks = threading.Thread(target=lambda: problems.append(problem_of(lambda: launch(marks))))
        ranks.start()
        try:
            until(lambda: len(list(Path(marks).glob("rank-*"))) >= 2 or not ranks.is_alive())
            one = self.spark.range(0, 10, 1, 1)
            rows = through(one, self.slowly(f"beside {name}", partition=0)).count()
        finally:
            Path(marks, "go").touch()
            ranks.join()
        begun = [path.name.rpartition("-")[0] for path in Path(marks).glob("rank-*")]
        return {
            "problems": problems,
            "begun": sorted(begun),
            "beside": [rows, self.attempts(f"beside {name}")],
        }

    def marks(self, name: str) -> str:
        folder = self.folder / "marks" / name
        folder.mkdir(parents=True)
        return str(folder)

    def attempts(self, name: str) -> list[str]:
        return sorted(path.name for path in (self.folder / "marks" / name).glob("begun-*"))

    def slowly(self, name: str, partition: int = SLOW) -> Any:
        marks = self.marks(name)

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches
            wait_for_another_attempt(marks, partition)

        return rows


def through(frame: Any, function: Any) -> Any:
    """The rows of a DataFrame, from the workers of Python; for Spark a dot in a name is a struct's field there."""
    numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    return numbered.mapInArrow(function, numbered.schema).toDF(*frame.columns)


def left_in_the_end(url: Path) -> list[str]:
    """What still lies beside the dataset when the slower one of two attempts had its time to find the job over."""
    end = time.monotonic() + 20
    until(lambda: not left_at(url) or time.monotonic() > end)
    return left_at(url)


def waits_as_rank(marks: str, _: LocalRows | None = None) -> None:
    Path(marks, f"rank-{os.environ['RANK']}-{os.getpid()}").touch()
    until(Path(marks, "go").exists)


def pose_slowly(marks: str, number: int) -> dict[str, Any]:
    if number % 40 == 39:  # the last row of a partition
        wait_for_another_attempt(marks, SLOW)
    return poses.pose(number)


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


if __name__ == "__main__":
    kind, target = sys.argv[1], Path(sys.argv[2])
    with contextlib.ExitStack() as stack:
        if kind == "twice":
            cluster = stack.enter_context(standalone_cluster(target, cores=3))
            eagerly = {
                "spark.executor.cores": "3",
                "spark.speculation": "true",
                "spark.speculation.quantile": "0.5",
                "spark.speculation.minTaskRuntime": "1s",
                "spark.speculation.task.duration.threshold": "1s",
            }
            session = local_session(master=cluster, **eagerly)
            twice = Twice(session, target)
            steps: Any = (twice.source, twice.rows, twice.columns, twice.files, twice.ranks)
        else:
            make = connect_session if kind == "connect" else functools.partial(local_session, "tests")
            session = make("local-cluster[2,1,1024]", **{"spark.task.maxFailures": "3"})
            killed = Killed(session, target)
            steps = (
                killed.source_killed, killed.source_lost_for_good, killed.block_killed, killed.block_lost_for_good
            )  # fmt: skip
        facts = {step.__name__: step() for step in steps}
        session.stop()
    (target / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
