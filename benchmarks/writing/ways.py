"""The ways of writing; `benchmarks.writing.writer` runs one, in an environment that may be without petastore."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["SHAPE", "WAYS", "pictures", "tensors"]

SHAPE = (64, 32)
"""Of a tensor of float32: 8 KiB."""

PICTURE = (224, 224, 3)
QUALITY = 90
_POOL = 64


@functools.lru_cache(1)
def _pool() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).random((_POOL, *SHAPE), dtype=np.float32)


def tensors(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The tensors of some rows, no two alike: what repeats, Parquet's dictionaries would store once."""
    found: np.ndarray[Any, Any] = _pool()[numbers % _POOL]
    found[:, 0, 0] = numbers
    return found


@functools.lru_cache(1)
def pictures() -> np.ndarray[Any, Any]:
    """The pictures that rows have in turn: smooth, with some noise, as photographs are."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (_POOL, 8, 8, 3)).repeat(28, 1).repeat(28, 2).astype(np.int16)
    return np.clip(coarse + rng.integers(-8, 9, (_POOL, *PICTURE)), 0, 255).astype(np.uint8)


def row(number: int) -> dict[str, Any]:
    """A row of a tensor."""
    tensor = _pool()[number % _POOL].copy()
    tensor[0, 0] = number
    return {"id": number, "tensor": tensor}


def _petastorms_rows(raw: str, target: str, rows: int) -> Callable[[], None]:
    """As Petastorm's documentation writes: an RDD of dicts, by `dict_to_spark_row`."""
    del raw
    from petastorm.codecs import NdarrayCodec, ScalarCodec
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
    from pyspark.sql import SparkSession
    from pyspark.sql.types import LongType

    schema = Unischema(
        "rows",
        [
            UnischemaField("id", np.int64, (), ScalarCodec(LongType()), False),
            UnischemaField("tensor", np.float32, SHAPE, NdarrayCodec(), False),
        ],
    )
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

    def write() -> None:
        with materialize_dataset(spark, f"file://{target}", schema, 32):
            encoded = (
                spark.sparkContext.parallelize(range(rows), 2)
                .map(row)
                .map(functools.partial(dict_to_spark_row, schema))
            )
            spark.createDataFrame(encoded, schema.as_spark_schema()).write.parquet(f"file://{target}")

    return write


def _schema() -> Any:
    from petastore import Unischema, UnischemaField
    from petastore.codecs import NdarrayCodec

    return Unischema(
        "rows", [UnischemaField("id", "int64"), UnischemaField("tensor", "float32", SHAPE, NdarrayCodec())]
    )


def _rows(raw: str, target: str, rows: int) -> Callable[[], None]:
    """The same program with the imports of petastore."""
    del raw
    from petastore import dict_to_spark_row, materialize_dataset
    from petastore.spark import local_session

    schema, spark = _schema(), local_session()

    def write() -> None:
        with materialize_dataset(spark, target, schema, 32):
            encoded = (
                spark.sparkContext.parallelize(range(rows), 2)
                .map(row)
                .map(functools.partial(dict_to_spark_row, schema))
            )
            spark.createDataFrame(encoded, schema.as_spark_schema()).write.parquet(f"file://{target}")

    return write


def _encoded(kind: str, raw: str, target: str, rows: int) -> Callable[[], None]:
    """A DataFrame of raw values through `encode_dataframe`, written by Spark."""
    del rows
    from petastore import encode_dataframe, materialize_dataset
    from petastore.spark import local_session

    schema, spark = _schema(), local_session()

    def write() -> None:
        with materialize_dataset(spark, target, schema, 32) as writer:
            writer.write(encode_dataframe(spark.read.parquet(f"{raw}/{kind}"), schema))

    return write


def _source(kind: str, raw: str, target: str, rows: int) -> Callable[[], None]:
    """The same DataFrame through the data source."""
    del rows
    from petastore.spark import local_session, register_data_source, write_options

    spark, options = local_session(), write_options(_schema(), row_group_size_mb=32)
    register_data_source(spark)

    def write() -> None:
        frame = spark.read.parquet(f"{raw}/{kind}")
        frame.write.format("petastore").options(**options).mode("append").save(target)

    return write


def _cells(raw: str, target: str, rows: int) -> Callable[[], None]:
    """What Spark takes for cells that are encoded already: it reads them, and writes them."""
    del rows
    from petastore.spark import local_session

    spark = local_session()
    return lambda: spark.read.parquet(f"{raw}/cells").write.parquet(target)


def _handed_over(kind: str, raw: str, target: str, rows: int) -> Callable[[], None]:
    """What Spark takes to read raw values and to hand them to Python, which counts them and writes nothing."""
    del target, rows
    import pyarrow as pa

    from petastore.spark import local_session

    spark = local_session()

    def counted(batches: Iterator[Any]) -> Iterator[Any]:
        yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})

    def read() -> None:
        spark.read.parquet(f"{raw}/{kind}").mapInArrow(counted, "rows long").collect()

    return read


def _in_process(how: str, raw: str, target: str, rows: int) -> Callable[[], None]:
    """`write_dataset`, of rows or of columns."""
    del raw
    from petastore import write_dataset

    schema = _schema()
    columns = {"id": np.arange(rows), "tensor": tensors(np.arange(rows))} if how == "columns" else None

    def write() -> None:
        write_dataset(target, schema, map(row, range(rows)) if columns is None else columns)

    return write


def _pictures(raw: str, target: str, rows: int) -> Callable[[], None]:
    """`write_dataset` of pictures, as JPEG."""
    del raw
    from petastore import Unischema, UnischemaField, write_dataset
    from petastore.codecs import CompressedImageCodec

    schema = Unischema("rows", [UnischemaField("image", "uint8", PICTURE, CompressedImageCodec("jpeg", QUALITY))])

    def images() -> Iterator[dict[str, Any]]:
        return ({"image": pictures()[number % _POOL]} for number in range(rows))

    def write() -> None:
        write_dataset(target, schema, images())

    return write


def _encoder(raw: str, target: str, rows: int) -> Callable[[], None]:
    """The encoder alone, which the codec uses too: pictures are encoded, and dropped."""
    del raw, target
    import cv2

    def encode() -> None:
        for number in range(rows):
            bgr = cv2.cvtColor(pictures()[number % _POOL], cv2.COLOR_RGB2BGR)
            assert cv2.imencode(".jpeg", bgr, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[0]

    return encode


WAYS: dict[str, Callable[[str, str, int], Callable[[], None]]] = {
    "Petastorm, rows": _petastorms_rows,
    "rows": _rows,
    "encode_dataframe, arrays": functools.partial(_encoded, "arrays"),
    "encode_dataframe, bytes": functools.partial(_encoded, "bytes"),
    "data source, arrays": functools.partial(_source, "arrays"),
    "data source, bytes": functools.partial(_source, "bytes"),
    "Spark alone, encoded cells": _cells,
    "Spark alone, arrays handed to Python": functools.partial(_handed_over, "arrays"),
    "Spark alone, bytes handed to Python": functools.partial(_handed_over, "bytes"),
    "write_dataset, rows": functools.partial(_in_process, "rows"),
    "write_dataset, columns": functools.partial(_in_process, "columns"),
    "write_dataset, pictures": _pictures,
    "the encoder alone": _encoder,
}
"""By name; each is given the folder of raw data, where to write, and how many rows, and gives what writes once."""
