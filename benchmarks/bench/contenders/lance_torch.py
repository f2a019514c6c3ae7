"""Lance: its own columnar files, read in order by its torch dataset, or at random by `take`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# Two workers; Lance's own threads would take every CPU.
os.environ.setdefault("LANCE_CPU_THREADS", "2")

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from benchmarks.bench.contenders.pictures import decoded_batch
from benchmarks.bench.values import Values
from benchmarks.bench.workloads import Workload

__all__ = ["PACKAGES", "batches", "write"]

lance = importlib.import_module("lance")
lance_torch = importlib.import_module("lance.torch.data")

PACKAGES = ("pylance", "pyarrow", "numpy", "torch", "simplejpeg")
_AHEAD = 4


def write(workload: Workload, values: Values, folder: Path) -> None:
    """One dataset; arrays are fixed-size lists."""
    lance.write_dataset(
        pa.table({name: _array(values.column(name)) for name in workload.columns}), str(folder), mode="overwrite"
    )


def _array(column: Any) -> pa.Array:
    if not isinstance(column, np.ndarray):
        return pa.array(column, pa.binary())
    flat = pa.array(np.ascontiguousarray(column).reshape(-1))
    if column.ndim == 1:
        return flat
    return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(column.shape[1:])))


def batches(workload: Workload, folder: Path, *, way: str) -> Iterator[dict[str, Any]]:
    """Batches of tensors.

    Args:
        workload: What is read.
        folder: The dataset.
        way: Lance's torch dataset `"scan"`s in order, or reads whole `"batches"` in random order; random rows are taken
            in two worker processes (`"workers"`) or two threads (`"threads"`).
    """
    convert = _Convert(workload)
    if way in ("scan", "batches"):
        sampler = None if way == "scan" else importlib.import_module("lance.sampler").ShardedBatchSampler(0, 1, True)
        scanned = lance_torch.LanceDataset(
            str(folder), batch_size=workload.batch, to_tensor_fn=convert, auto_detect_rank=False, sampler=sampler
        )
        while True:
            yield from scanned
    rows = _Rows(str(folder), convert)
    order = BatchSampler(RandomSampler(range(workload.rows)), workload.batch, drop_last=False)
    if way == "workers":
        loader = DataLoader(
            rows, sampler=order, batch_size=None, num_workers=2, persistent_workers=True, prefetch_factor=_AHEAD,
            multiprocessing_context="forkserver",
        )  # fmt: skip
        while True:
            yield from loader
    with ThreadPoolExecutor(2) as pool:
        while True:
            pending: list[Any] = []
            for indices in order:
                pending.append(pool.submit(rows.__getitem__, indices))
                if len(pending) > _AHEAD:
                    yield pending.pop(0).result()
            for future in pending:
                yield future.result()


class _Rows(Dataset[dict[str, Any]]):
    """Rows by their numbers, a batch at a time; opened where it is used first."""

    def __init__(self, uri: str, convert: _Convert) -> None:
        self.uri, self.convert = uri, convert
        self.dataset: Any = None

    def __getitem__(self, indices: Sequence[int]) -> dict[str, Any]:
        if self.dataset is None:
            self.dataset = lance.dataset(self.uri)
        return self.convert(self.dataset.take(indices).combine_chunks().to_batches()[0])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"dataset": None}


class _Convert:
    """A record batch as tensors."""

    def __init__(self, workload: Workload) -> None:
        self.columns = workload.columns

    def __call__(self, batch: pa.RecordBatch, **_: Any) -> dict[str, Any]:
        return {name: self._column(name, batch.column(name)) for name in batch.schema.names}

    def _column(self, name: str, array: Any) -> Any:
        column = self.columns[name]
        if column.kind == "jpeg":
            return decoded_batch(array.to_pylist(), column.shape)
        if column.kind == "text":
            return array.cast(pa.string()).to_pylist()
        if column.shape:
            flat = array.flatten().to_numpy(zero_copy_only=False)
            return torch.from_numpy(flat).view(-1, *column.shape)
        return torch.from_numpy(array.to_numpy(zero_copy_only=False))
