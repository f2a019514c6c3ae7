"""Steps that write rows, columns and files in Spark tasks; `test_tasks.py` checks the facts."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.indexing import SingleFieldIndexer, get_row_group_indexes
from petastore.spark import encode_dataframe, materialize_dataset
from tests.spark.scenario import SCHEMA, problem_of, raw_dataframe, row_of, wait_for
from tests.spark.through_spark import left_at, seen_at

ROWS = 120
PARTITIONS = 3
POSES = Unischema(
    "poses", [UnischemaField("id", "int64"), UnischemaField("pose.2", "float32", (2, 2), NdarrayCodec(), nullable=True)]
)
RAW_POSES = ("id", "if(id % 5 = 4, null, array(array(float(id), 1f), array(2f, 3f))) as `pose.2`")


def pose(number: int) -> dict[str, Any]:
    value = np.array([[number, 1], [2, 3]], "float32")
    return {"id": number} if number % 5 == 4 else {"id": number, "pose.2": value}


def poses(mark: str, start: int) -> Iterator[dict[str, Any]]:
    """Yield ten rows of an item, after progress was reported, so that it is reported while a stage runs."""
    wait_for(mark)
    yield from map(pose, range(start, start + 10))


def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"bytes": [batch.nbytes]})


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return one is other if one is None or other is None else bool(one == other)


def rows_at(url: Path) -> list[Any]:
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        return list(reader)


def ids_at(url: Path) -> list[int]:
    return [int(row.id) for row in rows_at(url)]


def are_poses(url: Path, numbers: Any) -> bool:
    """Return whether the dataset has exactly these rows in this order."""
    rows, expected = rows_at(url), list(map(pose, numbers))
    return len(rows) == len(expected) and all(
        int(row.id) == one["id"] and same(row["pose.2"], one.get("pose.2"))
        for row, one in zip(rows, expected, strict=True)
    )


class Steps:
    """Each public method is a step; it returns facts for the JSON file."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.raw = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(*RAW_POSES)

    def block(self, name: str, schema: Unischema = POSES, **asked: Any) -> Any:
        return materialize_dataset(self.spark, self.folder / name, schema, **asked)

    def everything(self) -> dict[str, bool]:
        """Return for each way of writing whether all columns equal those of `write_dataset`."""
        rows = list(map(row_of, range(ROWS)))
        petastore.write_dataset(self.folder / "reference", SCHEMA, rows)
        reference = rows_at(self.folder / "reference")
        plain = self.folder / "plain"
        frame = raw_dataframe(self.spark, ROWS, PARTITIONS)
        frame.write.parquet(plain.as_uri())
        with self.block("rows", SCHEMA) as writer:
            writer.write_rows(row_of, range(ROWS), partitions=PARTITIONS)
        with self.block("columns", SCHEMA) as writer:
            writer.write_columns(frame)
        with self.block("files", SCHEMA) as writer:
            writer.write_files(plain)
        with self.block("named", SCHEMA) as writer:
            writer.write_files(self.spark.read.parquet(plain.as_uri()).inputFiles(), partitions=2)
        found = {}
        for name in ("rows", "columns", "files", "named"):
            ours = sorted(rows_at(self.folder / name), key=lambda row: row.id)
            found[name] = len(ours) == ROWS and all(
                same(row[field], other[field])
                for row, other in zip(ours, reference, strict=True)
                for field in SCHEMA.fields
            )
        return found

    def told_and_indexed(self) -> dict[str, Any]:
        """Write several times in one block, with requested row group sizes, an index, and progress."""
        told: list[tuple[int, int]] = []
        mark = self.folder / "was told"

        def tell(done: int, tasks: int) -> None:
            told.append((done, tasks))
            mark.touch()

        indexer = SingleFieldIndexer("by", "id")
        with self.block(
            "several",
            rows_per_row_group=7,
            indexers=[indexer],
            progress=tell,
        ) as writer:
            writer.write_rows(functools.partial(poses, str(mark)), [0, 10], partitions=2)
            writer.write(self.raw.where("id between 20 and 59"))
            writer.write_rows(pose, (number for number in range(60, ROWS)), partitions=1)
            seen = seen_at(self.folder / "several")
        url = self.folder / "several"
        (index,) = get_row_group_indexes(petastore.open_dataset(url)).values()
        return {
            "seen": seen,
            "whole": are_poses(url, range(ROWS)),
            "rows": writer.inventory.rows.tolist(),
            "writer": petastore.open_dataset(url).writer.startswith("Spark 4"),
            "index": sorted(index.get_row_group_indexes(11)),
            "told": told[-1][0] == told[-1][1] > 0,
            "left": left_at(url),
        }

    def modes(self) -> dict[str, Any]:
        url = self.folder / "modes"
        with self.block("modes") as writer:
            writer.write_rows(pose, range(3), partitions=1)
        refused = problem_of(lambda: self.written("modes", range(3, 5)))
        self.written("modes", range(3, 5), mode="append")
        appended = ids_at(url)
        self.written("modes", [7, 8], mode="overwrite")
        return {"refused": refused, "appended": appended, "overwritten": ids_at(url), "left": left_at(url)}

    def written(self, name: str, numbers: Any, function: Any = pose, **how: Any) -> None:
        with self.block(name) as writer:
            writer.write_rows(function, numbers, **how)

    def raised(self) -> dict[str, Any]:
        """Return the effects of a block that raises, or whose task raises."""

        def raises() -> None:
            with self.block("modes") as writer:
                writer.write_rows(pose, range(3), mode="append")
                raise KeyError("the user's own problem")

        def swallows() -> None:
            with self.block("modes") as writer:
                problem_of(lambda: writer.write_rows(bad, range(3), mode="overwrite", partitions=1))

        def bad(number: int) -> Any:
            return {"id": number, "pose.2": np.zeros(number, "float32")}

        url = self.folder / "modes"
        before = ids_at(url)
        facts = {
            "own": problem_of(raises),
            "value": problem_of(lambda: self.written("modes", [4], bad, mode="append")),
            "no row": problem_of(lambda: self.written("modes", [4], str, mode="append")),
        }
        swallows()
        return facts | {"kept": ids_at(url) == before, "left": left_at(url)}

    def kinds(self) -> dict[str, Any]:
        """Write encoded cells and raw columns, which are recognized by their types."""
        with self.block("cells") as writer:
            writer.write(encode_dataframe(self.raw, POSES))
        with self.block("raw") as writer:
            writer.write(self.raw)
        return {
            "cells": are_poses_in_any_order(self.folder / "cells"),
            "raw": are_poses(self.folder / "raw", range(ROWS)),
            "of Spark": [path.name for path in (self.folder / "cells").glob("*.snappy.parquet")] != [],
        }

    def batches(self) -> dict[str, Any]:
        """Return the bytes that Spark passes to Python at a time, for rows of 8 KiB."""
        key = "spark.sql.execution.arrow.maxBytesPerBatch"
        read = "spark.sql.parquet.columnarReaderBatchSize"
        large = self.spark.range(0, 2000, 1, 1).selectExpr("cast(repeat('0', 8192) as binary) as cell")
        facts: dict[str, Any] = {}
        with self.block("batches") as writer:
            facts["inside"] = max(row.bytes for row in large.mapInArrow(sizes, "bytes long").collect())
            facts["read"] = self.spark.conf.get(read)
            writer.write_rows(pose, [1])
        facts["restored"] = not {key, read} & self.spark.conf.getAll.keys()
        self.spark.conf.set(key, "1000000")
        with self.block("batches") as writer:
            facts["of one's own"] = max(row.bytes for row in large.mapInArrow(sizes, "bytes long").collect())
            writer.write_rows(pose, [2], mode="append")
        self.spark.conf.unset(key)
        return facts

    def refused(self) -> dict[str, str]:
        cells = encode_dataframe(self.raw, POSES)
        either = Unischema("t", [*POSES, UnischemaField("blob", "uint8", (None,), NdarrayCodec())])

        def both(name: str, first: Any, second: Any) -> str:
            def block() -> None:
                with self.block(name) as writer:
                    first(writer)
                    second(writer)

            return problem_of(block)

        def rows(writer: Any) -> None:
            writer.write_rows(pose, [1])

        def alone(action: Any, schema: Unischema = POSES) -> str:
            def block() -> None:
                with self.block("alone", schema) as writer:
                    action(writer)

            return problem_of(block)

        (self.folder / "hive" / "day=1").mkdir(parents=True)
        petastore.write_dataset(self.folder / "hive" / "day=1", {"id": [1]})
        petastore.write_dataset(self.folder / "other", {"id": [1], "name": ["a"]})
        facts = {
            "cells after rows": both("both", rows, lambda writer: writer.write(cells)),
            "Spark's files beside rows": both("beside", rows, lambda writer: cells.write.parquet(writer.url, "append")),
            "another mode": both("both", rows, lambda writer: writer.write_rows(pose, [1], mode="append")),
            "an unknown mode": alone(lambda writer: writer.write_rows(pose, [1], mode="ignore")),
            "no items": alone(lambda writer: writer.write_rows(pose)),
            "no function": alone(lambda writer: writer.write_rows([pose(1)])),
            "no partitions": alone(lambda writer: writer.write_rows(pose, [1], partitions=0)),
            "either": alone(lambda writer: writer.write(self.raw.selectExpr("*", "binary('a') as blob")), either),
            "a column": alone(lambda writer: writer.write(self.raw.drop("id"))),
            "columns of files": alone(lambda writer: writer.write_files(self.folder / "other")),
            "hive": alone(lambda writer: writer.write_files(self.folder / "hive")),
            "no files": alone(lambda writer: writer.write_files(self.folder / "nowhere")),
        }
        facts["left"] = str([*seen_at(self.folder / "both"), *seen_at(self.folder / "alone")])
        return facts


class Classic(Steps):
    """Steps for sessions with RDDs."""

    def rdd(self) -> dict[str, Any]:
        numbers = self.spark.sparkContext.parallelize(range(ROWS), PARTITIONS)
        with self.block("rdd", rows_per_row_group=30) as writer:
            writer.write_rows(numbers.map(pose))
        refused = problem_of(lambda: self.written("refused", [1], numbers))
        return {
            "whole": are_poses(self.folder / "rdd", range(ROWS)),
            "rows": writer.inventory.rows.tolist(),
            "refused": refused,
        }


def are_poses_in_any_order(url: Path) -> bool:
    return sorted(ids_at(url)) == list(range(ROWS))


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Run the steps of a kind of session."""
    own = Classic(spark, folder) if kind == "classic" else Steps(spark, folder)
    steps: Any = [own.everything, own.told_and_indexed, own.modes, own.raised, own.kinds, own.batches, own.refused]
    steps += [own.rdd] if isinstance(own, Classic) else []
    return {step.__name__: step() for step in steps}
