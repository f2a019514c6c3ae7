"""Steps of writing and reading through the data source; `test_through_spark.py` checks the facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.indexing import get_row_group_indexes
from petastore.spark import prepare_dataframe, register_data_source, write_options
from tests.spark.scenario import problem_of

ROWS = 3000
PARTITIONS = 4
ROW_GROUP_BYTES = 50_000
READ_AT_ONCE = "spark.sql.parquet.columnarReaderBatchSize"
HANDED_AT_ONCE = "spark.sql.execution.arrow.maxBytesPerBatch"
SCHEMA = Unischema(
    "frames",
    [
        UnischemaField("id", "int64"),
        UnischemaField("frame", "uint8", (4, 4, 3), CompressedImageCodec("png")),
        UnischemaField("pose", "float32", (2, 2), NdarrayCodec()),
        UnischemaField("label", str, nullable=True),
    ],
)
RAW = (
    "id",
    "cast(repeat('0', 48) as binary) as frame",
    "array(float(id), 1f, 2f, 3f) as pose",
    "if(id % 2 = 0, 'even', null) as label",
)


def ids_at(url: Path) -> list[int]:
    with petastore.make_reader(url, ["id"]) as reader:
        return sorted(int(row.id) for row in reader)


def is_whole(url: Path) -> bool:
    return ids_at(url) == list(range(ROWS))


def left_at(url: Path) -> list[str]:
    """Return the files that are not part of the dataset: there should be none that a write has to clean up."""
    listed = {file.path for file in petastore.open_dataset(url).inventory.files}
    found = {str(path.relative_to(url)) for path in url.rglob("*") if path.is_file()}
    own = ("_petastore/", "_common_metadata", "._common_metadata")
    return sorted(path for path in found - listed if not path.startswith(own) or "writing" in path)


def bounds_of(spark: Any) -> list[str | None]:
    """Return the settings for how much Spark reads, and passes to Python, at a time."""
    return [spark.conf.getAll.get(key) for key in (READ_AT_ONCE, HANDED_AT_ONCE)]


def seen_at(url: Path) -> list[str]:
    """Return the visible Parquet files; a task that is killed after its job was abandoned leaves hidden ones."""
    return [path.name for path in url.rglob("*.parquet") if not path.name.startswith(("_", "."))]


def cell_bytes(url: Path) -> list[list[int]]:
    """Return for each file the bytes of the stored cells of each row group."""
    files = [pq.ParquetFile(url / file.path) for file in petastore.open_dataset(url).inventory.files]
    return [[file.read_row_group(group).nbytes for group in range(file.num_row_groups)] for file in files]


def is_indexed(url: Path) -> bool:
    """Return whether the index of ids has exactly the row group of each id."""
    dataset = petastore.open_dataset(url)
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader:
        ids = [int(row.id) for row in reader]
    groups = np.repeat(np.arange(dataset.inventory.num_row_groups), dataset.inventory.rows).tolist()
    index = get_row_group_indexes(dataset)["id"]
    return sorted(index.indexed_values) == sorted(ids) and all(
        index.get_row_group_indexes(number) == {group} for number, group in zip(ids, groups, strict=True)
    )


class Steps:
    """Each method is a step; it returns facts for the JSON file."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.before = bounds_of(spark)
        register_data_source(spark, session_settings=False)
        self.left_alone = bounds_of(spark) == self.before
        spark.conf.set(READ_AT_ONCE, "1000")
        register_data_source(spark)
        register_data_source(spark)
        self.raw = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(*RAW)

    def write(self, frame: Any, name: str, mode: str = "append", **options: Any) -> Path:
        asked = write_options(SCHEMA, **({"rows_per_row_group": 200} | options))
        frame.write.format("petastore").options(**asked).mode(mode).save(str(self.folder / name))
        return self.folder / name

    def session(self) -> dict[str, Any]:
        return {"before": self.before, "left alone": self.left_alone, "bounds": bounds_of(self.spark)}

    def written(self) -> dict[str, Any]:
        url = self.write(self.raw, "frames")
        dataset = petastore.open_dataset(url)
        with petastore.make_reader(url, shuffle_row_groups=False) as reader:
            row = next(reader)
        return {
            "schema": dataset.schema == SCHEMA,
            "whole": is_whole(url),
            "row groups": dataset.inventory.rows.tolist(),
            "files": len(dataset.inventory.files),
            "row": [int(row.id), row.frame.tolist() == np.full((4, 4, 3), 48).tolist(), row.pose.tolist(), row.label],
            "left": left_at(url),
        }

    def read(self) -> dict[str, Any]:
        url = str(self.folder / "frames")
        frame = self.spark.read.format("petastore").load(url)
        some = self.spark.read.format("petastore").option("columns", "id, po.*").load(url)
        row = frame.where("id = 5").first()
        return {
            "types": dict(frame.dtypes),
            "count": frame.count(),
            "sum": frame.selectExpr("sum(id)").first()[0],
            "row": [row.pose, row.label],
            "some": some.columns,
            "partitions": some.selectExpr("spark_partition_id() as p").distinct().count(),
        }

    def appended_and_overwritten(self) -> dict[str, Any]:
        url = self.folder / "frames"
        # The schema of the dataset applies if the options have no schema.
        self.raw.selectExpr("id + 3000 as id", "frame", "pose", "label").write.format("petastore").mode("append").save(
            str(url)
        )
        facts: dict[str, Any] = {"appended": ids_at(url) == list(range(2 * ROWS))}
        self.write(self.raw.where("id < 10"), "frames", "overwrite")
        return facts | {"overwritten": ids_at(url), "left": left_at(url)}

    def inferred(self) -> dict[str, Any]:
        plain = self.spark.range(10).selectExpr("id", "array(float(id), 1f) as track", "string(id) as name")
        plain.write.format("petastore").mode("append").save(str(self.folder / "plain"))
        schema = petastore.open_dataset(self.folder / "plain").schema
        return {field.name: [field.dtype_name, list(field.shape)] for field in schema}

    def prepared(self) -> dict[str, Any]:
        """Check the order of rows in files, and the number of files."""

        def stored(name: str, frame: Any = None, **how: Any) -> Any:
            frame = prepare_dataframe(self.spark.range(0, ROWS, 1, 16) if frame is None else frame, **how)
            frame.write.format("petastore").mode("append").save(str(self.folder / name))
            inventory = petastore.open_dataset(self.folder / name).inventory
            with petastore.make_reader(self.folder / name, shuffle_row_groups=False) as reader:
                ids = [int(row.id) for row in reader]
            assert sorted(ids) == list(range(ROWS))
            return ids, np.bincount(inventory.file, inventory.rows).tolist()

        mixed, four = stored("mixed", shuffle=7, files=4)
        again, _ = stored("again", shuffle=7, files=4)
        # The rows come in another order, from other partitions, as after the loss of an executor.
        dealt, _ = stored("dealt", self.spark.range(0, ROWS, 1, 16).repartition(5).orderBy("id"), shuffle=7, files=4)
        other, _ = stored("other", shuffle=8, files=4)
        maps = self.spark.range(0, ROWS, 1, 8).selectExpr("map(id, id) as m")
        odd = self.spark.range(0, ROWS, 1, 8).selectExpr("id as `a.b`", "array(named_struct('x', map(id, id))) as m")
        _, few = stored("few")
        _, mixed_few = stored("mixed-few", shuffle=7)
        return {
            "moved": float(np.abs(np.array(mixed) - np.arange(ROWS)).mean()),
            "repeatable": mixed == again,
            "of the values alone": mixed == dealt,
            "with maps": [prepare_dataframe(frame, shuffle=7, files=4).count() for frame in (maps, odd)],
            "seeds differ": mixed != other,
            "four": [four, max(four) - min(four)],
            "few": len(few),
            "mixed few": len(mixed_few),
            "refused": problem_of(lambda: prepare_dataframe(self.raw, files=0)),
        }

    def refused(self) -> dict[str, Any]:
        url = self.folder / "refused"
        bad = self.raw.selectExpr("id", "frame", "if(id = 1200, array(1f), pose) as pose", "label")
        facts: dict[str, Any] = {
            "a value": problem_of(lambda: self.write(bad, "refused")),
            "a column": problem_of(lambda: self.write(self.raw.drop("pose"), "refused")),
            "an option": problem_of(
                lambda: self.raw.write.format("petastore").option("rows", "1").mode("append").save(str(url))
            ),
            "nothing there": problem_of(lambda: self.spark.read.format("petastore").load(str(url)).count()),
        }
        facts["seen"] = seen_at(url)
        self.write(self.raw, "refused", rows_per_row_group=None, row_group_size_mb=ROW_GROUP_BYTES / 2**20)
        return facts | {"whole": is_whole(url), "cell bytes": cell_bytes(url)}


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Run the steps."""
    own = Steps(spark, folder)
    steps = (own.session, own.written, own.read, own.appended_and_overwritten, own.inferred, own.prepared, own.refused)
    return {step.__name__: step() for step in steps}
