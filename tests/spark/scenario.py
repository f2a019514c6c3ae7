"""Steps of writing with every kind of Spark session; `test_session.py` checks the results."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import petastore
from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastore.errors import PetastoreError
from petastore.indexing import SingleFieldIndexer, get_row_group_indexes
from petastore.schema import Unischema, UnischemaField
from petastore.spark import (
    dict_to_spark_row,
    encode_dataframe,
    materialize_dataset,
    rows_to_dataframe,
)
from petastore.storage.metadata.manifest import MANIFEST

ROWS = 900
ROWS_PER_ROW_GROUP = 300
APPENDED = 40

SCHEMA = Unischema(
    "everything",
    [
        UnischemaField("id", np.int64),
        UnischemaField("flag", np.bool_),
        UnischemaField("i8", np.int8),
        UnischemaField("i16", np.int16),
        UnischemaField("i32", np.int32, nullable=True),
        UnischemaField("u8", np.uint8),
        UnischemaField("u16", np.uint16),
        UnischemaField("u32", np.uint32),
        UnischemaField("u64", np.uint64),
        UnischemaField("f16", np.float16),
        UnischemaField("f32", np.float32),
        UnischemaField("f64", np.float64, nullable=True),
        UnischemaField("text", np.str_),
        UnischemaField("maybe.text", np.str_, nullable=True),
        UnischemaField("blob", np.bytes_),
        UnischemaField("day", "datetime64[D]"),
        UnischemaField("when", "datetime64[us]"),
        UnischemaField("zoned", "datetime64[us]", (), ScalarCodec("timestamp")),
        UnischemaField("price", Decimal, (), ScalarCodec("decimal(10,4)")),
        UnischemaField("small", np.uint8, (), ScalarCodec("smallint")),
        UnischemaField("vector", np.float32, (4,)),
        UnischemaField("grid", np.uint8, (None, 3)),
        UnischemaField("matrix", np.float32, (3, 4), NdarrayCodec()),
        UnischemaField("ragged", np.int16, (None, 2, None), NdarrayCodec(), nullable=True),
        UnischemaField("packed", np.float64, (8,), CompressedNdarrayCodec()),
        UnischemaField("png", np.uint8, (16, 16, 3), CompressedImageCodec("png")),
        UnischemaField("jpeg", np.uint8, (16, 16, 3), CompressedImageCodec("jpeg", quality=90)),
        UnischemaField("depth", np.uint16, (None, 8), CompressedImageCodec("png")),
    ],
)

RAW_SCHEMA = (
    "id long, flag boolean, i8 byte, i16 short, i32 int, u8 short, u16 int, u32 long, u64 decimal(20,0), f16 float, "
    "f32 float, f64 double, text string, `maybe.text` string, blob binary, day date, when timestamp_ntz, "
    "zoned timestamp, price decimal(10,4), small int, vector array<float>, grid array<array<short>>, "
    "matrix array<array<float>>, ragged array<array<array<short>>>, packed binary, png binary, jpeg array<short>, "
    "depth binary"
)
_AS_BYTES = {"packed", "png", "depth"}
_FLAT = {"jpeg"}


def row_of(number: int) -> dict[str, Any]:
    """Return the row with an id, which is the same in every process."""
    rng = np.random.default_rng(number)
    start = np.datetime64("2024-02-28T23:59:58.123456", "us")
    return {
        "id": number,
        "flag": number % 3 == 0,
        "i8": number % 256 - 128,
        "i16": -number,
        "i32": None if number % 5 == 0 else -(2**31) + number,
        "u8": number % 256,
        "u16": 65_535 - number,
        "u32": 2**32 - 1 - number,
        "u64": 2**64 - 1 - number,
        "f16": np.float16(number / 8 % 100),
        "f32": np.float32(number) / 3,
        "f64": None if number % 7 == 0 else number / 7,
        "text": f"row {number} – ñ",
        "maybe.text": None if number % 2 else "",
        "blob": rng.bytes(number % 9),
        "day": np.datetime64("1969-12-30") + number,
        "when": start + np.timedelta64(number * 1_000_001, "us"),
        "zoned": start - np.timedelta64(number * 1_000_001, "us"),
        "price": Decimal(number) / Decimal(10_000),
        "small": number % 200,
        "vector": rng.random(4, np.float32),
        "grid": rng.integers(0, 256, (number % 4, 3), np.uint8),
        "matrix": rng.random((3, 4), np.float32),
        "ragged": None if number % 11 == 0 else rng.integers(-9, 9, (1 + number % 3, 2, 1 + number % 2), np.int16),
        "packed": rng.random(8),
        "png": rng.integers(0, 256, (16, 16, 3), np.uint8),
        "jpeg": np.full((16, 16, 3), number % 256, np.uint8),
        "depth": rng.integers(0, 65_536, (1 + number % 3, 8), np.uint16),
    }


def as_spark_has_it(name: str, value: Any) -> Any:
    """Return a value in the form of a raw DataFrame column."""
    if value is None:
        return None
    if name in _AS_BYTES:
        return value.astype(value.dtype.newbyteorder("<")).tobytes()
    if name in _FLAT:
        return value.reshape(-1)
    if isinstance(value, np.datetime64):
        moment = value.item()
        return moment.replace(tzinfo=dt.UTC) if name == "zoned" else moment
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def raw_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert ids to raw rows, in Spark's workers."""
    for batch in batches:
        rows = [row_of(number) for number in batch.column(0).to_pylist()]
        types = {"zoned": pa.timestamp("us", "UTC"), "day": pa.date32(), "jpeg": pa.list_(pa.int16())}
        types |= {"u64": pa.decimal128(20, 0), "price": pa.decimal128(10, 4), "f32": pa.float32(), "f16": pa.float32()}
        types |= {"i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "u8": pa.int16(), "u16": pa.int32()}
        types |= {"small": pa.int32(), "vector": pa.list_(pa.float32()), "grid": pa.list_(pa.list_(pa.int16()))}
        types |= {"matrix": pa.list_(pa.list_(pa.float32())), "ragged": pa.list_(pa.list_(pa.list_(pa.int16())))}
        names = list(SCHEMA.fields)
        columns = [
            pa.array([as_spark_has_it(name, row[name]) for row in rows], types.get(name, None)) for name in names
        ]
        yield pa.RecordBatch.from_arrays(columns, names)


def raw_dataframe(spark: Any, rows: int = ROWS, partitions: int = 2) -> Any:
    return spark.range(0, rows, 1, partitions).mapInArrow(raw_batches, RAW_SCHEMA)


class Kept(logging.Handler):
    """Log handler that collects records."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


def ids_once_told(spark: Any, mark: Path) -> Any:
    """Return twenty ids in four tasks that last until progress was reported, so that it is reported while they run."""
    awaited = str(mark)

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            wait_for(awaited)
            yield batch

    return spark.range(0, 20, 1, 4).mapInArrow(wait, "id long")


def wait_for(mark: str) -> None:
    """Wait in a task until the driver creates a file; tasks can only communicate through files."""
    while not Path(mark).exists():
        time.sleep(0.05)


def problem_of(action: Callable[[], Any]) -> str:
    """Return the message of the exception that an action raises."""
    try:
        action()
    except PetastoreError as problem:
        return f"{type(problem).__name__}: {problem}"
    except Exception as problem:  # noqa: BLE001 - Spark wraps what its workers raise in many types
        return str(problem)
    return ""


class Scenario:
    """The steps of each kind of session; every method returns facts for the JSON file."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def url(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def configuration(self) -> dict[str, str]:
        return dict(self.spark.conf.getAll)

    def write_everything(self) -> dict[str, Any]:
        self.spark.conf.set("parquet.block.size", "77777777")
        before = self.configuration()
        with materialize_dataset(
            self.spark, self.url("everything"), SCHEMA, rows_per_row_group=ROWS_PER_ROW_GROUP
        ) as writer:
            inside = self.configuration()
            encode_dataframe(raw_dataframe(self.spark), SCHEMA).write.parquet(self.url("everything"))
        after = self.configuration()
        self.spark.conf.unset("parquet.block.size")
        return {
            "changed inside": inside != before,
            "restored": after == before,
            "committed rows": writer.inventory.num_rows if writer.inventory else None,
        }

    def append_rows(self) -> dict[str, Any]:
        """Append through the two other ways: rows encoded in the driver as columns, and Petastorm's row by row."""
        rows = [row_of(number) for number in range(APPENDED)]
        half = APPENDED // 2
        with materialize_dataset(self.spark, self.url("appended"), SCHEMA) as writer:
            writer.write(rows_to_dataframe(self.spark, SCHEMA, rows[:half]).coalesce(1))
        cells = [dict_to_spark_row(SCHEMA, row) for row in rows[half:]]
        with materialize_dataset(self.spark, self.url("appended"), SCHEMA) as writer:
            df = self.spark.createDataFrame(cells, SCHEMA.as_spark_schema())
            df.coalesce(1).write.mode("append").parquet(self.url("appended"))
        return {"committed rows": writer.inventory.num_rows if writer.inventory else None}

    def map_rows(self) -> dict[str, Any]:
        """Write in Petastorm's way on classic Spark: workers encode row by row."""
        context = self.spark.sparkContext
        with materialize_dataset(self.spark, self.url("mapped"), SCHEMA) as writer:
            rows = context.parallelize(range(APPENDED), 2).map(row_of).map(lambda row: dict_to_spark_row(SCHEMA, row))
            self.spark.createDataFrame(rows, SCHEMA.as_spark_schema()).write.parquet(writer.url)
        return {"committed rows": writer.inventory.num_rows if writer.inventory else None}

    def raise_inside(self) -> dict[str, Any]:
        url, manifest = self.url("raised"), self.folder / "raised" / MANIFEST

        def write(number: int) -> Any:
            with materialize_dataset(self.spark, url, SCHEMA, row_group_size_mb=1) as writer:
                writer.write(rows_to_dataframe(self.spark, SCHEMA, [row_of(number)]).coalesce(1), "append")
                if number == 1:
                    raise KeyError("the user's own problem")
            return writer.inventory

        write(0)
        before, stood = self.configuration(), manifest.read_bytes()
        facts: dict[str, Any] = {
            "raised": problem_of(lambda: write(1)),
            "restored": self.configuration() == before,
            "manifest kept": manifest.read_bytes() == stood,
            "files": len(list((self.folder / "raised").glob("*.parquet"))),
        }
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            facts["rows after the next block"] = write(2).num_rows
        facts["said"] = [str(warning.message) for warning in said]
        return facts

    def take_turns(self) -> dict[str, Any]:
        return self._two_writers(session_settings=True)

    def write_at_once(self) -> dict[str, Any]:
        return self._two_writers(session_settings=False)

    def _two_writers(self, *, session_settings: bool) -> dict[str, Any]:
        """Write from two threads of one session with different row groups, started at the same moment."""
        schema = Unischema("ids", [UnischemaField("id", np.int64)])
        together = threading.Barrier(2, timeout=300)
        problems: list[str] = []
        before = self.configuration()

        def write(rows: int) -> None:
            url = self.url(f"rows-{rows}-{session_settings}")
            together.wait()
            with materialize_dataset(
                self.spark, url, schema, rows_per_row_group=rows, session_settings=session_settings
            ) as writer:
                df = encode_dataframe(self.spark.range(0, 2000, 1, 1), schema)
                if session_settings:
                    df.write.parquet(url)
                else:
                    together.wait()  # both threads are inside their blocks
                    writer.write(df)

        threads = [
            threading.Thread(target=lambda rows=rows: problems.append(problem_of(lambda: write(rows))))
            for rows in (300, 700)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"problems": [problem for problem in problems if problem], "restored": self.configuration() == before}

    def small_blocks(self) -> dict[str, Any]:
        """Write incompressible images of 256 KiB with row groups of one MiB."""
        schema = Unischema("frames", [UnischemaField("frame", np.uint8, (256, 1024), NdarrayCodec())])
        with materialize_dataset(self.spark, self.url("frames"), schema, row_group_size_mb=1) as writer:
            rows = [{"frame": np.random.default_rng(n).integers(0, 256, (256, 1024), np.uint8)} for n in range(12)]
            writer.write(rows_to_dataframe(self.spark, schema, rows).coalesce(1))
        return {"rows": writer.inventory.rows.tolist() if writer.inventory else None}

    def tell_and_index(self) -> dict[str, Any]:
        """Report progress while Spark writes, and write an index with the data."""
        told: list[tuple[int, int]] = []
        mark, again = self.folder / "was told", self.folder / "was told again"

        def tell(done: int, tasks: int) -> None:
            told.append((done, tasks))
            mark.touch()

        def fail(done: int, tasks: int) -> None:
            again.touch()
            raise ZeroDivisionError

        asked: dict[str, Any] = {
            "progress": tell,
            "indexers": [SingleFieldIndexer("by", "id")],
        }
        schema = Unischema("ids", [UnischemaField("id", np.int64)])
        with materialize_dataset(self.spark, self.url("told"), schema, rows_per_row_group=5, **asked) as writer:
            writer.write(encode_dataframe(ids_once_told(self.spark, mark), schema))
        logged: list[logging.LogRecord] = []
        log = logging.getLogger("petastore.spark.writing.task_progress")
        log.propagate, log.handlers = False, [Kept(logged)]
        (index,) = get_row_group_indexes(petastore.open_dataset(self.url("told"))).values()
        with materialize_dataset(self.spark, self.url("not told"), schema, progress=fail) as writer:
            writer.write(encode_dataframe(ids_once_told(self.spark, again), schema))
        return {
            "last": told[-1],
            "grows": sorted(told) == told,
            "index": {number: sorted(index.get_row_group_indexes(number)) for number in (0, 19)},
            "rows in spite of a bar that fails": writer.inventory.num_rows if writer.inventory else None,
            "logged": [record.getMessage().partition(" raised an error; ")[2] for record in logged],
            "unknown field": problem_of(
                lambda: materialize_dataset(
                    self.spark, self.url("x"), schema, indexers=[SingleFieldIndexer("by", "name")]
                )
            ),
            "threads": [thread.name for thread in threading.enumerate() if "progress" in thread.name],
        }

    def hive_partitions(self) -> dict[str, Any]:
        schema = Unischema("days", [UnischemaField("id", np.int64), UnischemaField("day", np.str_)])
        rows = [{"id": number, "day": f"day {number % 3}"} for number in range(9)]
        with materialize_dataset(self.spark, self.url("days"), schema) as writer:
            writer.write(rows_to_dataframe(self.spark, schema, rows).coalesce(1), partition_by=["day"])
        return {"files": len(writer.inventory.files) if writer.inventory else None}

    def bad_values(self) -> dict[str, Any]:
        schema = Unischema("pixels", [UnischemaField("pixel value", np.uint8), UnischemaField("v", np.int64, (2,))])
        range_ = encode_dataframe(
            self.spark.range(0, 300, 1, 1).selectExpr("id as `pixel value`", "array(id, id) as v"), schema
        )
        null = encode_dataframe(self.spark.sql("select 1 as `pixel value`, array(1, null) as v"), schema)
        shape = encode_dataframe(self.spark.sql("select 1 as `pixel value`, array(1, 2, 3) as v"), schema)
        return {
            "range": problem_of(range_.collect),
            "null": problem_of(null.collect),
            "shape": problem_of(shape.collect),
        }

    def refusals(self) -> dict[str, Any]:
        ids = Unischema("ids", [UnischemaField("id", np.int64)])

        def refused(*arguments: Any, schema: Unischema = ids, **named: Any) -> str:
            return problem_of(lambda: materialize_dataset(self.spark, self.url("refused"), schema, *arguments, **named))

        def column(select: str, *arguments: Any) -> str:
            schema = Unischema("one", [UnischemaField("x", *arguments)])
            return problem_of(lambda: encode_dataframe(self.spark.sql(f"select {select}"), schema))

        return {
            "both": refused(1, rows_per_row_group=5),
            "zero": refused(0),
            "rows": refused(rows_per_row_group=-1),
            "url": problem_of(lambda: materialize_dataset(self.spark, "nosuchscheme://x", ids)),
            "schema": problem_of(lambda: materialize_dataset(self.spark, self.url("refused"), [1])),  # type: ignore[arg-type]
            "ns": refused(schema=Unischema("t", [UnischemaField("t", "datetime64[ns]")])),
            "complex": refused(schema=Unischema("t", [UnischemaField("c", np.complex64)])),
            "empty": refused(schema=Unischema("t", [])),
            "case": refused(schema=Unischema("t", [UnischemaField("a", np.int8), UnischemaField("A", np.int8)])),
            "zone": refused(
                schema=Unischema("t", [UnischemaField("t", "datetime64[us]", (), ScalarCodec("timestamp"))]),
                session_settings=False,
            ),
            "filesystems": refused(filesystem_factory=lambda: None, filesystem=object()),
            "missing column": column("1 as y", np.int64),
            "text as number": column("'a' as x", np.int64),
            "depth": column("array(array(1)) as x", np.int64, (2, 2, 2), NdarrayCodec()),
            "free": column("array(1) as x", np.int64, (None, None), NdarrayCodec()),
            "scalar for a tensor": column("1 as x", np.int64, (2,), NdarrayCodec()),
            "nothing written": problem_of(self._write_nothing),
        }

    def _write_nothing(self) -> None:
        with materialize_dataset(self.spark, self.url("nothing"), Unischema("ids", [UnischemaField("id", np.int64)])):
            pass

    def run(self, kind: str) -> dict[str, Any]:
        """Run the steps that may differ between kinds; the others run on one session of each API."""
        steps = [self.write_everything, self.append_rows]
        if kind in ("classic", "local-cluster"):
            steps += [self.map_rows]
        steps += [self.raise_inside, self.take_turns, self.write_at_once]
        if kind in ("classic", "connect"):
            steps += [self.small_blocks, self.tell_and_index, self.hive_partitions, self.bad_values, self.refusals]
        return {"session": type(self.spark).__module__, **{step.__name__: step() for step in steps}}


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Run the steps of a kind of session."""
    return Scenario(spark, folder).run(kind)
