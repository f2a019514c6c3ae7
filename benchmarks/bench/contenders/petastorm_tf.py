"""Petastorm's `make_petastorm_dataset`, batched by tf.data."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.bench.contenders.compiled_loop import rows_of_steps
from benchmarks.bench.workloads import Workload

warnings.filterwarnings("ignore")
petastorm = importlib.import_module("petastorm")
tf_utils = importlib.import_module("petastorm.tf_utils")

__all__ = ["PACKAGES", "batches"]

PACKAGES = ("petastorm", "pyarrow", "numpy", "tensorflow-cpu", "opencv-python-headless")


def batches(
    workload: Workload, folder: Path, *, reader: str, loop: str = "Python", **reader_options: Any
) -> Iterator[Any]:
    """Batches of TensorFlow's tensors; or how many rows they have, where TensorFlow itself takes them.

    Args:
        workload: What is read.
        folder: The dataset.
        reader: `make_reader`, whose dataset has rows, or `make_batch_reader`, whose dataset has row groups.
        loop: `"Python"`, or `"compiled"` as in `fit`.
        **reader_options: Of the reader.
    """
    options = {"shuffle_rows": True, "shuffle_row_groups": True, "seed": 1, "workers_count": 2, "num_epochs": None}
    with getattr(petastorm, reader)(folder.absolute().as_uri(), **options | reader_options) as opened:
        dataset = tf_utils.make_petastorm_dataset(opened)
        # `rebatch` cuts row groups into batches many times faster than `unbatch().batch()`, as its converter does.
        batched = dataset.batch(workload.batch) if reader == "make_reader" else dataset.rebatch(workload.batch)
        named = batched.map(_named)
        yield from rows_of_steps(named, workload) if loop == "compiled" else named


def _named(batch: Any) -> Any:
    return batch._asdict()
