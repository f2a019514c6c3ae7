"""petastore's Parquet files for Petastorm: links to the files, and a `_common_metadata` that Petastorm can read."""

from __future__ import annotations

import importlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.bench.values import Values
from benchmarks.bench.workloads import JPEG_QUALITY, Column, Workload

__all__ = ["PACKAGES", "write"]

PACKAGES = ("petastorm", "pyarrow", "numpy")

_DTYPES = {"float32": np.float32, "int64": np.int64, "int32": np.int32, "uint8": np.uint8}


def write(workload: Workload, values: Values, folder: Path) -> None:
    """Links each data file, and says what is in them."""
    del values
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for data in sorted((folder.parent / "petastore").glob("*.parquet")):
        (folder / data.name).unlink(missing_ok=True)
        os.link(data, folder / data.name)
        counts[data.name] = pq.read_metadata(data).num_row_groups
    # Petastorm stores its schema as a pickle. This code only writes the pickle, and unpickles nothing.
    metadata = importlib.import_module("petastorm.etl.dataset_metadata")
    stored = pq.read_schema(folder / next(iter(counts))).with_metadata(
        {
            metadata.UNISCHEMA_KEY: pickle.dumps(_unischema(workload)),
            metadata.ROW_GROUPS_PER_FILE_KEY: json.dumps(counts).encode(),
        }
    )
    pq.write_metadata(stored, folder / "_common_metadata")


def _unischema(workload: Workload) -> Any:
    unischema = importlib.import_module("petastorm.unischema")
    fields = [_field(unischema, name, column) for name, column in workload.columns.items()]
    return unischema.Unischema(workload.name, fields)


def _field(unischema: Any, name: str, column: Column) -> Any:
    codecs = importlib.import_module("petastorm.codecs")
    codec = {
        "array": codecs.NdarrayCodec,
        "deflated": codecs.CompressedNdarrayCodec,
        "jpeg": lambda: codecs.CompressedImageCodec("jpeg", JPEG_QUALITY),
        "png": lambda: codecs.CompressedImageCodec("png"),
    }.get(column.kind)
    if column.kind == "text":
        return unischema.UnischemaField(name, np.str_, (), None, False)
    shape = (None, *column.shape[1:3], None) if name == "array_4d" else column.shape
    return unischema.UnischemaField(name, _DTYPES[column.dtype], shape, codec() if codec else None, False)
