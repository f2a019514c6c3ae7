"""petastore as a `tf.data.Dataset`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import petastore
from benchmarks.bench.contenders.compiled_loop import rows_of_steps
from benchmarks.bench.workloads import Workload
from petastore.adapters.tensorflow import make_tf_dataset

__all__ = ["PACKAGES", "batches"]

PACKAGES = ("petastore", "pyarrow", "numpy", "tensorflow-cpu")


def batches(
    workload: Workload, folder: Path, *, shuffled: bool = True, loop: str = "Python", **reader_options: Any
) -> Iterator[Any]:
    """Batches of TensorFlow's tensors; or how many rows they have, where TensorFlow itself takes them.

    Args:
        workload: What is read.
        folder: Where it lies.
        shuffled: Whether rows are shuffled.
        loop: `"Python"`, or `"compiled"` as in `fit`.
        reader_options: Of `make_reader`.
    """
    order: dict[str, Any] = {"shuffle_rows": shuffled, "shuffle_row_groups": shuffled, "seed": 1}
    with petastore.make_reader(folder, workers_count=2, num_epochs=None, **order, **reader_options) as reader:
        dataset = make_tf_dataset(reader, batch_size=workload.batch)
        yield from rows_of_steps(dataset, workload) if loop == "compiled" else dataset
