"""Hugging Face datasets: memory-mapped Arrow, random rows batch by batch, converted to tensors by its formatter."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from benchmarks.bench.contenders.pictures import decoded_batch
from benchmarks.bench.values import Values
from benchmarks.bench.workloads import Column, Workload

__all__ = ["PACKAGES", "batches", "write"]

datasets = importlib.import_module("datasets")
datasets.disable_progress_bars()

PACKAGES = ("datasets", "pyarrow", "numpy", "torch", "simplejpeg")


def write(workload: Workload, values: Values, folder: Path) -> None:
    """Arrow files, by `save_to_disk`."""
    features = datasets.Features({name: _feature(column) for name, column in workload.columns.items()})
    table = pa.table({name: _array(features[name], values.column(name)) for name in workload.columns})
    datasets.Dataset(table.cast(features.arrow_schema), fingerprint=workload.name).save_to_disk(str(folder))


def _feature(column: Column) -> Any:
    if column.kind in ("jpeg", "text"):
        return datasets.Value("binary" if column.kind == "jpeg" else "string")
    if len(column.shape) == 2:
        return datasets.Array2D(column.shape, column.dtype)
    return datasets.Value(column.dtype)


def _array(feature: Any, column: Any) -> Any:
    if not isinstance(column, np.ndarray):
        return pa.array(column, pa.binary()).cast(feature.pa_type)
    if column.ndim == 3:
        rows, high, wide = column.shape
        inner = pa.ListArray.from_arrays(_offsets(rows * high, wide), column.reshape(-1))
        outer = pa.ListArray.from_arrays(_offsets(rows, high), inner)
        return pa.ExtensionArray.from_storage(feature(), outer)
    return pa.array(column)


def _offsets(lists: int, length: int) -> Any:
    return pa.array(np.arange(lists + 1, dtype=np.int32) * np.int32(length))


def batches(workload: Workload, folder: Path) -> Iterator[dict[str, Any]]:
    """Batches of tensors."""
    rows = datasets.load_from_disk(str(folder))
    if workload.of_kind("jpeg"):
        rows = rows.with_transform(_Pictures(workload.columns["image"].shape))
    else:
        rows = rows.with_format("torch")
    order = BatchSampler(RandomSampler(range(workload.rows)), workload.batch, drop_last=False)
    loader = DataLoader(rows, sampler=order, batch_size=None, num_workers=2, persistent_workers=True, prefetch_factor=4)
    while True:
        yield from loader


class _Pictures:
    """Decodes a batch of cells."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        import torch

        return {"image": decoded_batch(batch["image"], self.shape), "label": torch.tensor(batch["label"])}
