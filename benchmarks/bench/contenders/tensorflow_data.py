"""tf.data: TFRecord files of `tf.train.Example`, shuffled, batched and parsed on two threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.bench.contenders.compiled_loop import rows_of_steps
from benchmarks.bench.contenders.packed import packed_columns, packed_rows
from benchmarks.bench.values import Values
from benchmarks.bench.workloads import Column, Workload

__all__ = ["PACKAGES", "batches", "write"]

PACKAGES = ("tensorflow-cpu", "numpy")
_FILES = 16
_BUFFER = 4096
_THREADS = 2


def write(workload: Workload, values: Values, folder: Path) -> None:
    """Sixteen files; integers and floats are features, other cells are raw bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = packed_columns(workload)
    a_file = -(-workload.rows // _FILES)
    rows = packed_rows(workload, values)
    for number in range(_FILES):
        with tf.io.TFRecordWriter(str(folder / f"{number:04}.tfrecord")) as writer:
            for _, row in zip(range(a_file), rows, strict=False):
                features = {name: _feature(columns[name], value) for name, value in row.items()}
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())


def _feature(column: Column, value: Any) -> Any:
    if column.kind == "key":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    cell = bytes(value) if column.kind in ("jpeg", "text") else np.ascontiguousarray(value).tobytes()
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[cell]))


def batches(workload: Workload, folder: Path, *, loop: str = "Python") -> Iterator[Any]:
    """Batches of TensorFlow's tensors; or how many rows they have, where TensorFlow takes them: loop="compiled"."""
    columns = packed_columns(workload)
    options = tf.data.Options()
    options.threading.private_threadpool_size = _THREADS
    options.deterministic = False
    files = tf.data.Dataset.from_tensor_slices(sorted(map(str, folder.glob("*.tfrecord"))))
    rows = (
        files.shuffle(_FILES, reshuffle_each_iteration=True)
        .interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=_THREADS)
        .shuffle(_BUFFER, reshuffle_each_iteration=True)
        .apply(lambda rows: _batched(workload, columns, rows))
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )
    if loop == "compiled":
        yield from rows_of_steps(rows.repeat(), workload)
    while True:
        yield from rows


def _batched(workload: Workload, columns: dict[str, Column], rows: Any) -> Any:
    """Pictures are decoded one by one and batched then; anything else is parsed a batch at a time."""

    def parsed(example: Any) -> Any:
        return _parsed(columns, example)

    if workload.of_kind("jpeg"):
        return rows.map(parsed, num_parallel_calls=_THREADS).batch(workload.batch)
    return rows.batch(workload.batch).map(parsed, num_parallel_calls=_THREADS)


def _parsed(columns: dict[str, Column], examples: Any) -> dict[str, Any]:
    features = {
        name: tf.io.FixedLenFeature([], tf.int64 if column.kind == "key" else tf.string)
        for name, column in columns.items()
    }
    parsed = (tf.io.parse_example if examples.shape.rank else tf.io.parse_single_example)(examples, features)
    return {name: _column(column, parsed[name]) for name, column in columns.items()}


def _column(column: Column, cells: Any) -> Any:
    if column.kind == "jpeg":
        return tf.ensure_shape(tf.io.decode_jpeg(cells, channels=3), column.shape)
    if column.kind in ("key", "text"):
        return cells
    return tf.reshape(tf.io.decode_raw(cells, column.dtype), (-1, *column.shape))
