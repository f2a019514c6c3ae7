"""Steps of converting DataFrames to batches and back on a Spark session; `test_frames.py` checks the facts."""

from __future__ import annotations

import concurrent.futures
import datetime as dt
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import NdarrayCodec, VectorCodec
from petastore.spark import (
    SparkDatasetConverter,
    copy_dataset,
    dataset_as_dataframe,
    dataset_as_rdd,
    dict_to_spark_row,
    encode_dataframe,
    make_spark_converter,
    materialize_dataset,
    register_delete_dir_handler,
    rows_to_dataframe,
)
from tests.spark.scenario import SCHEMA, problem_of, row_of

ROWS = 24
CRASHED = "20260102030405-appid-crashed-0b0c5f10-3a52-4a77-9a1e-0d6a1c1f2b3c"
VECTORS = Unischema(
    "vectors",
    [
        UnischemaField("id", "int64"),
        UnischemaField("features", "float32", (3,), VectorCodec()),
        UnischemaField("maybe", "float64", (None,), VectorCodec(), nullable=True),
    ],
)


def vector_of(number: int) -> list[float]:
    return [float(number), 0.0, number / 3]


def mixed_frame(spark: Any, rows: int = ROWS) -> Any:
    """Return a DataFrame of all column types that become tensors, and of some that do not."""
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql import types

    fields = {
        "id": types.LongType(),
        "features": VectorUDT(),
        "maybe": VectorUDT(),
        "x": types.DoubleType(),
        "f": types.FloatType(),
        "even": types.ArrayType(types.DoubleType()),
        "uneven": types.ArrayType(types.DoubleType()),
        "grid.2": types.ArrayType(types.ArrayType(types.DoubleType())),
        "small": types.ByteType(),
        "text": types.StringType(),
        "when": types.TimestampType(),
        "price": types.DecimalType(10, 2),
    }
    values = [
        (
            number,
            Vectors.dense(vector_of(number)) if number % 2 else Vectors.sparse(3, {0: number, 2: number / 3}),
            Vectors.dense([1.0]) if number % 3 else None,
            number / 7,
            float(number),
            [number / 9, 1.0],
            [1.0] * (number % 4),
            [[float(number), 1.0, 2.0], [3.0, 4.0, 5.0]],
            number,
            f"row {number}",
            dt.datetime(1500, 1, 2, tzinfo=dt.UTC) + dt.timedelta(days=number),
            Decimal(number) / 4,
        )
        for number in range(rows)
    ]
    schema = types.StructType([types.StructField(name, kind) for name, kind in fields.items()])
    return spark.createDataFrame(values, schema)


def plain(value: Any) -> Any:
    """Return a value that JSON can represent."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist() if value.dtype.kind not in "mM" else str(value)
    return str(value) if isinstance(value, Decimal) else value


def rows_of(url: str) -> dict[str, list[Any]]:
    """Return all columns of a dataset, in the order of the ids."""
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        rows = sorted(reader, key=lambda row: row.id)
    return {name: [plain(row[name]) for row in rows] for name in rows[0]._asdict()}


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; None equals only None."""
    return one is other if one is None or other is None else bool(np.array_equal(one, other))


class Frames:
    """Each public method is a step; it returns facts for the JSON file."""

    def __init__(self, kind: str, spark: Any, folder: Path) -> None:
        self.kind = kind
        self.spark = spark
        self.folder = folder
        self.parent = folder / "parent"
        self.frame = mixed_frame(spark)

    def no_parent(self) -> str:
        return problem_of(lambda: make_spark_converter(self.frame))

    def petastorms_key(self) -> bool:
        other = self.folder / "other parent"
        self.spark.conf.set("petastorm.spark.converter.parentCacheDirUrl", other.as_uri().replace("%20", " "))
        made = make_spark_converter(self.spark.range(3))
        self.spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, str(self.parent))
        lies_there = [path.name for path in other.iterdir() if path.is_dir()] == [made.cache_dir_url.rpartition("/")[2]]
        made.delete()
        return lies_there and not list(other.iterdir())

    def what_a_crash_left(self) -> dict[str, Any]:
        """Kill a process with a converter directory; the next converter of that parent removes the directory."""
        left = self.parent / CRASHED
        code = f"""if True:
            import os, pathlib, signal
            from petastore.spark.caching.leases import Leases
            from petastore.storage.files.location import open_location
            Leases().take(open_location({str(self.parent)!r}), {CRASHED!r})
            pathlib.Path({str(left)!r}).mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
        """
        ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        (self.parent / "somebody's").mkdir()
        was_there = left.exists()
        made = make_spark_converter(self.spark.range(2))
        found = {path.name for path in self.parent.iterdir()}
        made.delete()
        return {"was there": was_there, "removed": not {CRASHED, f"_{CRASHED}.lease"} & found,
                "others stay": "somebody's" in found}  # fmt: skip

    def stored(self) -> dict[str, Any]:
        made = make_spark_converter(self.frame)
        dataset = petastore.open_dataset(made.cache_dir_url)
        again = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own bytes
        with again.make_torch_dataloader(batch_size=ROWS, num_epochs=1, schema_fields=["id", "features"]) as loader:
            (batch,) = list(loader)
        by_id = np.argsort(batch["id"])
        files = [pq.read_metadata(url.removeprefix("file://")).row_group(0).column(0) for url in made.file_urls]
        return {
            "len": len(made),
            "url": made.cache_dir_url.startswith(self.parent.as_uri()),
            "name": Path(made.cache_dir_url).name,
            "fields": {field.name: [field.dtype_name, list(field.shape)] for field in dataset.schema},
            "declared": dataset.has_schema_document,
            "rows": rows_of(made.cache_dir_url),
            "tensor": [str(batch["features"].dtype), batch["features"][by_id].tolist()],
            "compression": sorted({file.compression for file in files}),
        }

    def dtypes(self) -> dict[str, Any]:
        """Return the dtypes of float columns for each `dtype` option."""
        frame = self.frame.select("id", "features", "x", "f", "even", "`grid.2`")
        facts = {}
        for dtype in (None, "float64"):
            made = make_spark_converter(frame, dtype=dtype, compression_codec="SNAPPY")  # type: ignore[arg-type]
            schema = petastore.open_dataset(made.cache_dir_url).schema
            facts[str(dtype)] = {field.name: field.dtype_name for field in schema}
            made.delete()
        return facts

    def reuse(self) -> dict[str, Any]:
        """Convert equal plans over the same files: rows are stored once per set of storage options."""
        source = (self.folder / "source").as_uri()
        self.spark.range(5).write.parquet(source)

        def read() -> Any:
            return self.spark.read.parquet(source)

        first, second = make_spark_converter(read()), make_spark_converter(read())
        others = [
            make_spark_converter(read(), dtype=None),
            make_spark_converter(read(), compression_codec="gzip"),
            make_spark_converter(read(), parquet_row_group_size_bytes=1 << 20),
            make_spark_converter(read().where("id > 1")),
        ]
        self.spark.range(7).write.mode("append").parquet(source)
        changed = make_spark_converter(read())
        directory = Path(first.cache_dir_url.removeprefix("file://"))
        first.delete()
        still_there = directory.exists()
        second.delete()
        facts = {
            "same": first.cache_dir_url == second.cache_dir_url,
            "others": len({made.cache_dir_url for made in [first, *others, changed]}),
            "rows": [len(made) for made in [first, *others, changed]],
            "shared one outlives the first delete": still_there and not directory.exists(),
            "stored again": self._stored_again(),
            "threads": self._stored_by_threads(),
        }
        for made in [*others, changed]:
            made.delete()
        return facts

    def _stored_by_threads(self) -> int:
        """Return the number of directories that four concurrent threads create for one plan."""
        frame = self.spark.range(8)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda _: make_spark_converter(frame), range(4)))
        for converter in made:
            converter.delete()
        return len({converter.cache_dir_url for converter in made})

    def _stored_again(self) -> list[bool]:
        """Convert after `delete`, and after another process removed the directory."""
        frame = self.spark.range(6)
        deleted = make_spark_converter(frame)
        deleted.delete()
        removed = make_spark_converter(frame)
        shutil.rmtree(removed.cache_dir_url.removeprefix("file://"))
        last = make_spark_converter(frame)
        with last.make_torch_dataloader(num_epochs=1) as loader:
            rows = sum(len(batch["id"]) for batch in loader)
        leases = [path.name for path in self.parent.iterdir() if removed.cache_dir_url.rpartition("/")[2] in path.name]
        return [len({made.cache_dir_url for made in (deleted, removed, last)}) == 3, rows == 6, not leases]

    def kinds_of_columns(self) -> dict[str, Any]:
        """Convert columns that cannot become tensors, zero rows, and only such columns."""
        from pyspark.ml.linalg import Matrices, MatrixUDT
        from pyspark.sql import types

        mapped = make_spark_converter(self.spark.sql("select map('a', 1) as m, 7 as id"))
        empty = make_spark_converter(self.frame.where("id < 0"))
        matrix = types.StructType([types.StructField("m", MatrixUDT())])
        frame = self.spark.createDataFrame([(Matrices.dense(1, 1, [1.0]),)], matrix)
        return {
            "map": [len(mapped), petastore.open_dataset(mapped.cache_dir_url).has_schema_document],
            "map's rows": rows_of(mapped.cache_dir_url)["id"],
            "empty": [len(empty), [*petastore.open_dataset(empty.cache_dir_url).schema["features"].shape]],
            "matrix": problem_of(lambda: make_spark_converter(frame)),
        }

    def vectors(self) -> dict[str, Any]:
        """Write vectors by each writer, without a converter, into fields with a vector codec."""
        from pyspark.ml.linalg import Vectors

        url = (self.folder / "vectors").as_uri()
        frame = self.frame.select("id", "features", "maybe")
        more = [
            {"id": 100, "features": np.ones(3, "float32"), "maybe": Vectors.sparse(2, [1], [5.0])},
            {"id": 101, "features": Vectors.dense([1, 2, 3]), "maybe": None},
        ]
        with materialize_dataset(self.spark, url, VECTORS) as writer:
            writer.write(encode_dataframe(frame, VECTORS))
        with materialize_dataset(self.spark, url, VECTORS) as writer:
            writer.write(rows_to_dataframe(self.spark, VECTORS, more[:1]), "append")
        with materialize_dataset(self.spark, url, VECTORS) as writer:
            rows = [dict_to_spark_row(VECTORS, more[1])]
            writer.write(self.spark.createDataFrame(rows, VECTORS.as_spark_schema()), "append")
        unfit = frame.where("id = 4").selectExpr("id", "features", "features as maybe")
        one = Unischema(
            "one",
            [VECTORS.fields["id"], VECTORS.fields["features"], UnischemaField("maybe", "float64", (1,), VectorCodec())],
        )
        return {
            "rows": rows_of(url),
            "size": problem_of(encode_dataframe(unfit, one).collect),
            "no vectors": problem_of(lambda: encode_dataframe(self.frame.selectExpr("id", "x as features"), VECTORS)),
        }

    def decoded(self) -> dict[str, Any]:
        """Read a dataset of all types as a DataFrame and write it again; read it as an RDD if the session has RDDs."""
        from pyspark.sql.functions import spark_partition_id

        written, again = self.folder / "everything", (self.folder / "again").as_uri()
        schema = Unischema("everything", [field for field in SCHEMA if field.name != "jpeg"])
        petastore.write_dataset(written, SCHEMA, map(row_of, range(ROWS)), rows_per_row_group=7)
        df = dataset_as_dataframe(self.spark, written.as_uri(), list(schema))
        with materialize_dataset(self.spark, again, schema) as writer:
            writer.write(encode_dataframe(df, schema))
        some = dataset_as_dataframe(self.spark, written, ["id", "depth"]).where("id = 5")
        complex_ = Unischema("c", [UnischemaField("c", "complex64", (2,), NdarrayCodec())])
        petastore.write_dataset(self.folder / "complex", complex_, [])
        return {
            "types": {field.name: field.dataType.simpleString() for field in df.schema},
            "partitions": df.select(spark_partition_id().alias("p")).distinct().count(),
            "some": some.columns,
            "depth": some.collect()[0]["depth"],
            "complex": problem_of(lambda: dataset_as_dataframe(self.spark, self.folder / "complex")),
            "arguments": problem_of(lambda: dataset_as_dataframe(written, self.spark)),
        }

    def as_rdd(self) -> dict[str, Any]:
        written = self.folder / "everything"
        if self.kind == "connect":
            return {"refused": problem_of(lambda: dataset_as_rdd(written, self.spark))}
        rows = dataset_as_rdd(
            written, self.spark, ["id", "i32", "matrix", "ragged", "maybe.text"], "libhdfs3"
        ).collect()
        expected = [row_of(number) for number in range(ROWS)]
        return {
            "names": [type(rows[0]).__name__, list(rows[0]._asdict())],
            "ids": [int(row.id) for row in rows],
            "same": [same(row[name], expected[row.id][name]) for row in rows for name in row._asdict()],
            "types": [type(rows[1].i32).__name__, str(rows[0].matrix.dtype)],
        }

    def copies(self) -> dict[str, Any]:
        written, target = (self.folder / "everything").as_uri(), (self.folder / "copy").as_uri()
        days = Unischema("days", [UnischemaField("id", "int64"), UnischemaField("day", str)])
        with materialize_dataset(self.spark, (self.folder / "days").as_uri(), days) as writer:
            rows = [{"id": number, "day": f"00{number % 2}"} for number in range(6)]
            writer.write(rows_to_dataframe(self.spark, days, rows), partition_by=["day"])
        copy_dataset(self.spark, self.folder / "days", self.folder / "copied days", partitions_count=1)
        fields, filled = ["id", "ra.*", "maybe[.]text"], ["i32", "maybe.text"]
        inventory = copy_dataset(self.spark, written, target, fields, filled, False, 1, rows_per_row_group=5)

        def refused(*arguments: Any) -> str:
            return problem_of(lambda: copy_dataset(self.spark, *arguments))

        self.spark.range(3).write.parquet((self.folder / "plain").as_uri())
        facts = {
            "row groups": inventory.rows.tolist(),
            "files": len(inventory.files),
            "rows": rows_of(target),
            "days": rows_of((self.folder / "copied days").as_uri()),
            "there already": refused(written, target, ["id"]),
            "into itself": refused(written, written + "/inside"),
            "unknown": refused(written, target + "2", ["no such.*"]),
            "unknown filled": refused(written, target + "2", None, ["nothing"]),
            "plain": refused((self.folder / "plain").as_uri(), target + "2"),
            "count": refused(written, target + "2", None, None, False, 0),
        }
        copy_dataset(self.spark, written, target, ["id"], None, True)
        return {**facts, "overwritten": rows_of(target)}

    def a_job_that_fails(self) -> dict[str, Any]:
        """Let conversion jobs fail: they leave no files, and the next converter of the plan runs a new job."""
        before = set(self.parent.iterdir())
        # One partition: a second task could still write into the directory after its removal.
        frame = self.spark.range(0, 3, 1, 1).selectExpr("raise_error('the user''s own problem') as x", "id")
        problems = [problem_of(lambda: make_spark_converter(frame)) for _ in range(2)]
        return {
            "raised": ["the user's own problem" in problem for problem in problems],
            "left": [path.name for path in set(self.parent.iterdir()) - before],
        }

    def refusals(self) -> dict[str, str]:
        return {
            "dtype": problem_of(lambda: make_spark_converter(self.frame, dtype="float16")),  # type: ignore[arg-type]
            "bzip2": problem_of(lambda: make_spark_converter(self.frame, compression_codec="bzip2")),  # type: ignore[arg-type]
            "codec": problem_of(lambda: make_spark_converter(self.frame, compression_codec="best")),  # type: ignore[arg-type]
            "size": problem_of(lambda: make_spark_converter(self.frame, parquet_row_group_size_bytes=0)),
        }

    def another_way_to_delete(self) -> bool:
        asked: list[str] = []
        made = make_spark_converter(self.spark.range(4))
        register_delete_dir_handler(asked.append)
        made.delete()
        register_delete_dir_handler(None)
        return asked == [made.cache_dir_url]

    def steps(self) -> Iterator[Any]:
        """Yield the steps of every kind of session, in order."""
        yield from (self.no_parent, self.petastorms_key, self.what_a_crash_left, self.stored, self.dtypes, self.reuse)
        yield from (self.kinds_of_columns, self.a_job_that_fails, self.refusals, self.another_way_to_delete)
        yield from (self.vectors, self.decoded, self.as_rdd, self.copies)


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Run the steps, then create a converter that exists until the process ends."""
    frames = Frames(kind, spark, folder)
    facts = {"session": type(spark).__module__, **{step.__name__: step() for step in frames.steps()}}
    kept = make_spark_converter(spark.range(9))
    facts["kept until the end"] = kept.cache_dir_url.removeprefix("file://")
    assert Path(facts["kept until the end"]).exists()
    child = os.fork()
    if child == 0:
        sys.exit(0)  # exits normally, with atexit handlers, and must remove nothing
    os.waitpid(child, 0)
    facts["a fork removes nothing"] = Path(facts["kept until the end"]).exists()
    return facts
