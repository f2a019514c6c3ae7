"""LitData: chunks written by `optimize`, read by its streaming dataset and loader."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench.contenders.packed import packed_columns, packed_rows
from benchmarks.bench.contenders.pictures import decoded
from benchmarks.bench.values import Values
from benchmarks.bench.workloads import Workload

__all__ = ["PACKAGES", "batches", "write"]

litdata = importlib.import_module("litdata")

PACKAGES = ("litdata", "numpy", "torch", "simplejpeg")


def write(workload: Workload, values: Values, folder: Path) -> None:
    """Chunks of 64 MB."""
    litdata.optimize(
        fn=functools.partial(_rows, workload, values),
        inputs=[0],
        output_dir=str(folder),
        chunk_bytes="64MB",
        num_workers=1,
        mode="overwrite",
    )


def _rows(workload: Workload, values: Values, part: int) -> Iterator[dict[str, Any]]:
    del part
    columns = packed_columns(workload)
    for row in packed_rows(workload, values):
        yield {
            name: np.ascontiguousarray(value)
            if columns[name].kind in ("array", "deflated")
            else value.decode()
            if columns[name].kind == "text"
            else value
            for name, value in row.items()
        }


def batches(workload: Workload, folder: Path | str, **dataset_options: Any) -> Iterator[dict[str, Any]]:
    """Batches of tensors, collated by its loader's workers.

    Args:
        workload: What is read.
        folder: A local directory, or a URL.
        **dataset_options: Of the dataset.
    """
    if dataset_options.get("storage_options", {}).get("endpoint_url", "").startswith("http://"):
        # LitData's faster client rejects a store without TLS, and has no option to allow it.
        vars(importlib.import_module("litdata.streaming.downloader"))["_OBSTORE_CLIENT_OPTIONS"]["allow_http"] = True
    dataset = _dataset(workload)(str(folder), shuffle=True, seed=1, **dataset_options)
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=workload.batch, num_workers=2, shuffle=True, persistent_workers=True, prefetch_factor=4
    )
    while True:
        yield from loader


def _dataset(workload: Workload) -> Any:
    if not workload.of_kind("jpeg"):
        return litdata.StreamingDataset

    class Pictures(litdata.StreamingDataset):  # type: ignore[name-defined, misc]
        """Decodes in the worker."""

        def __getitem__(self, index: Any) -> Any:
            row = super().__getitem__(index)
            return row | {"image": decoded(row["image"])}

    return Pictures
