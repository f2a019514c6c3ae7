"""Ways to write; `benchmarks.writing.writer` runs one, in an environment that may not have petastore."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from benchmarks.writing.data import FIELDS, JPEG_QUALITY, Kind, encoded_picture, picture_row, tensor_row, tensors

__all__ = ["IN_TURNS", "PICTURES", "WAYS", "Way"]

Way: TypeAlias = Callable[[str, str, int], Callable[[], None]]
"""Is given the folder of raw data, where to write, and how many rows, and gives what writes once."""

_ROWS: dict[Kind, Callable[[int], dict[str, Any]]] = {"tensor": tensor_row, "image": picture_row}


def _petastorms_session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()


def _petastorms_schema(kind: Kind) -> Any:
    from petastorm.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
    from petastorm.unischema import Unischema, UnischemaField
    from pyspark.sql.types import LongType

    codec = NdarrayCodec() if kind == "tensor" else CompressedImageCodec("jpeg", JPEG_QUALITY)
    return Unischema(
        "rows",
        [
            UnischemaField("id", np.int64, (), ScalarCodec(LongType()), False),
            UnischemaField(kind, *FIELDS[kind], codec, False),
        ],
    )


def _petastorms_rows(kind: Kind, raw: str, target: str, rows: int) -> Callable[[], None]:
    """As Petastorm's documentation writes: an RDD of dicts, by `dict_to_spark_row`."""
    del raw
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm.unischema import dict_to_spark_row

    spark, schema = _petastorms_session(), _petastorms_schema(kind)

    def write() -> None:
        with materialize_dataset(spark, f"file://{target}", schema, 32):
            encoded = (
                spark.sparkContext.parallelize(range(rows), 2)
                .map(_ROWS[kind])
                .map(functools.partial(dict_to_spark_row, schema))
            )
            spark.createDataFrame(encoded, schema.as_spark_schema()).write.parquet(f"file://{target}")

    return write


def _row_of_frame(kind: Kind, row: Any) -> dict[str, Any]:
    dtype, shape = FIELDS[kind]
    is_bytes = isinstance(row[kind], (bytes, bytearray))
    values: Any = np.frombuffer(row[kind], dtype) if is_bytes else np.array(row[kind], dtype)
    return {"id": row["id"], kind: values.reshape(shape)}


def _petastorms_frame(kind: Kind, stored: str, raw: str, target: str, rows: int) -> Callable[[], None]:
    """What Petastorm's users do with a DataFrame: each of its rows through `dict_to_spark_row`."""
    del rows
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm.unischema import dict_to_spark_row

    spark, schema = _petastorms_session(), _petastorms_schema(kind)

    def write() -> None:
        with materialize_dataset(spark, f"file://{target}", schema, 32):
            frame = spark.read.parquet(f"{raw}/{kind}/{stored}")
            encoded = frame.rdd.map(functools.partial(_row_of_frame, kind)).map(
                functools.partial(dict_to_spark_row, schema)
            )
            spark.createDataFrame(encoded, schema.as_spark_schema()).write.parquet(f"file://{target}")

    return write


def _schema(kind: Kind) -> Any:
    from petastore import Unischema, UnischemaField
    from petastore.codecs import CompressedImageCodec, NdarrayCodec

    codec = NdarrayCodec() if kind == "tensor" else CompressedImageCodec("jpeg", JPEG_QUALITY)
    return Unischema("rows", [UnischemaField("id", "int64"), UnischemaField(kind, *FIELDS[kind], codec)])


def _rows(kind: Kind, raw: str, target: str, rows: int) -> Callable[[], None]:
    """Petastorm's program with the imports of petastore."""
    del raw
    from petastore import dict_to_spark_row, materialize_dataset
    from petastore.spark import local_session

    schema, spark = _schema(kind), local_session()

    def write() -> None:
        with materialize_dataset(spark, target, schema, 32):
            encoded = (
                spark.sparkContext.parallelize(range(rows), 2)
                .map(_ROWS[kind])
                .map(functools.partial(dict_to_spark_row, schema))
            )
            spark.createDataFrame(encoded, schema.as_spark_schema()).write.parquet(f"file://{target}")

    return write


def _in_workers(
    kind: Kind, write: Callable[[Any, str, int], None], raw: str, target: str, rows: int
) -> Callable[[], None]:
    """What the writer of a block does in Spark's workers: cells do not go back to Java, or never pass through it."""
    from petastore import materialize_dataset
    from petastore.spark import local_session

    schema, spark = _schema(kind), local_session()

    def write_once() -> None:
        with materialize_dataset(spark, target, schema, 32) as writer:
            write(writer, f"{raw}/{kind}", rows)

    return write_once


def _made_rows(kind: Kind, writer: Any, raw: str, rows: int) -> None:
    del raw
    writer.write_rows(_ROWS[kind], range(rows), partitions=2, mode="overwrite")


def _columns(stored: str, writer: Any, raw: str, rows: int) -> None:
    del rows
    from petastore.spark import local_session

    writer.write_columns(local_session().read.parquet(f"{raw}/{stored}"), mode="overwrite")


def _files(stored: str, writer: Any, raw: str, rows: int) -> None:
    del rows
    writer.write_files(f"{raw}/{stored}", mode="overwrite")


def _encoded(kind: Kind, stored: str, raw: str, target: str, rows: int) -> Callable[[], None]:
    """A DataFrame of raw values through `encode_dataframe`, written by Spark."""
    del rows
    from petastore import encode_dataframe, materialize_dataset
    from petastore.spark import local_session

    schema, spark = _schema(kind), local_session()

    def write() -> None:
        with materialize_dataset(spark, target, schema, 32) as writer:
            writer.write(encode_dataframe(spark.read.parquet(f"{raw}/{kind}/{stored}"), schema))

    return write


def _source(kind: Kind, stored: str, raw: str, target: str, rows: int) -> Callable[[], None]:
    """The same DataFrame through the data source."""
    del rows
    from petastore.spark import local_session, register_data_source, write_options

    spark, options = local_session(), write_options(_schema(kind), row_group_size_mb=32)
    register_data_source(spark)

    def write() -> None:
        frame = spark.read.parquet(f"{raw}/{kind}/{stored}")
        frame.write.format("petastore").options(**options).mode("append").save(target)

    return write


def _cells(kind: Kind, raw: str, target: str, rows: int) -> Callable[[], None]:
    """What Spark takes for cells that are encoded already: it reads them, and writes them."""
    del rows
    from petastore.spark import local_session

    spark = local_session()
    return lambda: spark.read.parquet(f"{raw}/{kind}/cells").write.parquet(target)


def _handed_over(stored: str, raw: str, target: str, rows: int) -> Callable[[], None]:
    """What Spark takes to read raw values and to hand them to Python, which counts them and writes nothing."""
    del target, rows
    import pyarrow as pa

    from petastore.spark import local_session
    from petastore.spark.settings import batch_settings

    spark = local_session()
    # The same settings as in a block and in the data source; otherwise this would not be a limit for them.
    for name, value in batch_settings({}).items():
        spark.conf.set(name, value)

    def counted(batches: Iterator[Any]) -> Iterator[Any]:
        yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})

    def read() -> None:
        spark.read.parquet(f"{raw}/tensor/{stored}").mapInArrow(counted, "rows long").collect()

    return read


def _in_process(kind: Kind, how: str, raw: str, target: str, rows: int) -> Callable[[], None]:
    """`write_dataset`, of rows or of columns."""
    del raw
    from petastore import write_dataset

    schema = _schema(kind)
    columns = {"id": np.arange(rows), "tensor": tensors(np.arange(rows))} if how == "columns" else None

    def write() -> None:
        write_dataset(target, schema, map(_ROWS[kind], range(rows)) if columns is None else columns)

    return write


def _encoder(raw: str, target: str, rows: int) -> Callable[[], None]:
    """The encoder alone, which the codec uses too: pictures are encoded, and dropped."""
    del raw, target

    def encode() -> None:
        for number in range(rows):
            encoded_picture(number)

    return encode


ROWS: dict[str, Way] = {
    "Petastorm, rows": functools.partial(_petastorms_rows, "tensor"),
    "rows": functools.partial(_rows, "tensor"),
    "write_rows": functools.partial(_in_workers, "tensor", functools.partial(_made_rows, "tensor")),
    "Spark alone, encoded cells": functools.partial(_cells, "tensor"),
    "write_dataset, rows": functools.partial(_in_process, "tensor", "rows"),
    "write_dataset, columns": functools.partial(_in_process, "tensor", "columns"),
}
"""Of rows of tensors, by name."""


def _of_a_frame(stored: str) -> dict[str, Way]:
    """Of tensors that a DataFrame holds as arrays or as bytes, beside Petastorm's rows."""
    return {
        "Petastorm, rows": ROWS["Petastorm, rows"],
        f"Petastorm, DataFrame of {stored}": functools.partial(_petastorms_frame, "tensor", stored),
        f"encode_dataframe, {stored}": functools.partial(_encoded, "tensor", stored),
        f"data source, {stored}": functools.partial(_source, "tensor", stored),
        f"write_columns, {stored}": functools.partial(_in_workers, "tensor", functools.partial(_columns, stored)),
        f"write_files, {stored}": functools.partial(_in_workers, "tensor", functools.partial(_files, stored)),
        f"Spark alone, {stored} handed to Python": functools.partial(_handed_over, stored),
    }


PICTURES: dict[str, Way] = {
    "Petastorm, rows of pictures": functools.partial(_petastorms_rows, "image"),
    "rows of pictures": functools.partial(_rows, "image"),
    "write_rows, pictures": functools.partial(_in_workers, "image", functools.partial(_made_rows, "image")),
    "Petastorm, DataFrame of pictures": functools.partial(_petastorms_frame, "image", "bytes"),
    "encode_dataframe, pictures": functools.partial(_encoded, "image", "bytes"),
    "data source, pictures": functools.partial(_source, "image", "bytes"),
    "write_files, pictures": functools.partial(_in_workers, "image", functools.partial(_files, "bytes")),
    "Spark alone, encoded pictures": functools.partial(_cells, "image"),
    "write_dataset, pictures": functools.partial(_in_process, "image", "rows"),
    "the encoder alone": _encoder,
}
"""Of pictures, by name."""

IN_TURNS = (ROWS, _of_a_frame("arrays"), _of_a_frame("bytes"), PICTURES)
"""Ways that are measured in turns: as many at a time as have room, each with a Java of its own."""

WAYS = {name: way for together in IN_TURNS for name, way in together.items()}
