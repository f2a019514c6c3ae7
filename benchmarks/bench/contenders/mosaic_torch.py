"""Mosaic Streaming: MDS shards, read by its streaming dataset and torch's loader."""

from __future__ import annotations

import importlib
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.bench.contenders.packed import packed_columns, packed_rows
from benchmarks.bench.contenders.pictures import decoded
from benchmarks.bench.values import Values
from benchmarks.bench.workloads import Column, Workload

__all__ = ["PACKAGES", "batches", "write"]


def _imported() -> Any:
    """The package. It imports torchvision, and PyPI's, beside a torch without CUDA, lacks its operators.

    Nothing here uses them, so each that is missed is declared.
    """
    while True:
        try:
            return importlib.import_module("streaming")
        except RuntimeError as error:
            missed = re.match(r"operator (torchvision::\w+) does not exist", str(error))
            if missed is None:
                raise
            torch.library.define(missed[1], "(Tensor _) -> Tensor")


streaming = _imported()
logging.getLogger("streaming").setLevel(logging.ERROR)

PACKAGES = ("mosaicml-streaming", "numpy", "torch", "simplejpeg")


def write(workload: Workload, values: Values, folder: Path) -> None:
    """Shards of 64 MB, which is the default."""
    shutil.rmtree(folder, ignore_errors=True)
    columns = packed_columns(workload)
    encodings = {name: _encoding(column) for name, column in columns.items()}
    with streaming.MDSWriter(out=str(folder), columns=encodings) as writer:
        for row in packed_rows(workload, values):
            writer.write(
                {name: value.decode() if columns[name].kind == "text" else value for name, value in row.items()}
            )


def _encoding(column: Column) -> str:
    if column.kind == "text":
        return "str"
    if column.kind == "jpeg":
        return "bytes"
    if column.kind == "key":
        return "int"
    return f"ndarray:{column.dtype}:{','.join(map(str, column.shape))}"


def batches(workload: Workload, folder: Path | str, **dataset_options: Any) -> Iterator[dict[str, Any]]:
    """Batches of tensors, collated by the loader's workers.

    Args:
        workload: What is read.
        folder: A local directory: of the shards, or where those of `remote` are kept.
        **dataset_options: Of the dataset.
    """
    # Remove leftovers of a killed process, which would stop the next one.
    importlib.import_module("streaming.base.util").clean_stale_shared_memory()
    dataset = _dataset()(
        local=str(folder),
        shuffle=True,
        shuffle_seed=1,
        batch_size=workload.batch,
        num_canonical_nodes=1,
        **dataset_options,
    )
    loader = DataLoader(dataset, batch_size=workload.batch, num_workers=2, persistent_workers=True, prefetch_factor=4)
    while True:
        yield from loader


def _dataset() -> Any:
    class Rows(streaming.StreamingDataset):  # type: ignore[name-defined, misc]
        """Decodes in the worker."""

        def __getitem__(self, index: Any) -> Any:
            row = super().__getitem__(index)
            if "image" in row:
                row["image"] = decoded(row["image"])
            return {name: _tensor(value) for name, value in row.items()}

    return Rows


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value.copy()) if hasattr(value, "dtype") and hasattr(value, "ctypes") else value
