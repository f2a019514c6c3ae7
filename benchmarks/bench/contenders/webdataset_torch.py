"""WebDataset: tar shards that are decoded, shuffled and batched in the workers of its loader."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.bench.contenders.packed import packed_columns, packed_rows
from benchmarks.bench.contenders.pictures import decoded_batch
from benchmarks.bench.values import Values
from benchmarks.bench.workloads import Column, Workload

__all__ = ["PACKAGES", "batches", "write"]

wds = importlib.import_module("webdataset")

PACKAGES = ("webdataset", "numpy", "torch", "simplejpeg")
_SHARDS = 16
_BUFFER = 1000


def write(workload: Workload, values: Values, folder: Path) -> None:
    """Sixteen shards; each column is a member of raw bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    columns = packed_columns(workload)
    a_shard = -(-workload.rows // _SHARDS)
    with wds.ShardWriter(str(folder / "%04d.tar"), maxcount=a_shard, maxsize=1 << 40, verbose=0) as writer:
        for number, row in enumerate(packed_rows(workload, values)):
            members = {f"{name}.bin": _member(columns[name], value) for name, value in row.items()}
            writer.write({"__key__": f"{number:08}", **members})


def _member(column: Column, value: Any) -> bytes:
    if column.kind in ("jpeg", "text"):
        return bytes(value)
    return np.ascontiguousarray(value, dtype=column.dtype).tobytes()


def batches(workload: Workload, folder: Path) -> Iterator[dict[str, Any]]:
    """Batches of tensors."""
    columns = packed_columns(workload)
    convert = _Convert(columns)
    rows = (
        wds.WebDataset(sorted(map(str, folder.glob("*.tar"))), shardshuffle=_SHARDS, seed=1)
        .shuffle(_BUFFER)
        .to_tuple(*(f"{name}.bin" for name in columns))
        .batched(workload.batch, collation_fn=convert)
    )
    loader = wds.WebLoader(rows, batch_size=None, num_workers=2, persistent_workers=True, prefetch_factor=4)
    while True:
        yield from loader


class _Convert:
    """Members of a batch of rows as tensors, each column at once."""

    def __init__(self, columns: dict[str, Column]) -> None:
        self.columns = columns

    def __call__(self, rows: list[tuple[bytes, ...]]) -> dict[str, Any]:
        cells = zip(*rows, strict=True)
        return {name: self._column(self.columns[name], cell) for name, cell in zip(self.columns, cells, strict=True)}

    def _column(self, column: Column, cells: tuple[bytes, ...]) -> Any:
        if column.kind == "jpeg":
            return decoded_batch(cells, column.shape)
        if column.kind == "text":
            return [cell.decode() for cell in cells]
        joined = np.frombuffer(bytearray(b"".join(cells)), column.dtype)
        return torch.from_numpy(joined.reshape(len(cells), *column.shape))
