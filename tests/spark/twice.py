"""Spark tasks that run twice at the same time on two hosts: each row is written once, each rank runs once."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from petastore.spark import LocalRows, run_on_dataframe
from tests.spark import through_spark as frames
from tests.spark.attempts import SLOW, SlowDisk, until, wait_for_another_attempt
from tests.spark.killed import Steps, left_in_the_end, through
from tests.spark.scenario import problem_of
from tests.spark.writing import by_tasks as poses


class Twice(Steps):
    """Steps in which Spark runs slow tasks a second time on another host. First attempts wait for second ones."""

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
        """Let both ranks wait while Spark runs a task twice that began after them."""
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


def waits_as_rank(marks: str, _: LocalRows | None = None) -> None:
    Path(marks, f"rank-{os.environ['RANK']}-{os.getpid()}").touch()
    until(Path(marks, "go").exists)


def pose_slowly(marks: str, number: int) -> dict[str, Any]:
    if number % 40 == 39:  # the last row of its partition
        wait_for_another_attempt(marks, SLOW)
    return poses.pose(number)


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Run the steps."""
    own = Twice(spark, folder)
    return {step.__name__: step() for step in (own.source, own.rows, own.columns, own.files, own.ranks)}
