"""Loaders and datasets for torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from petastore import make_reader
from petastore.adapters.torch import BatchedDataLoader, DataLoader, MapDataset, Padded, ReaderDataset


def count(rows: Sequence[dict[str, Any]]) -> int:
    return len(rows)


with make_reader("users", num_epochs=None) as reader:
    for batch in DataLoader(reader, batch_size=64, ragged={"track": Padded(-1)}, nulls="mask", num_workers=0):
        total: torch.Tensor = batch["x"].sum()
        batch.nosuch  # type: ignore[attr-defined]
    for number in DataLoader(reader, 64, count):
        print(number + 1)
        number.nosuch  # type: ignore[attr-defined]
    DataLoader(reader, ragged="paded")  # type: ignore[arg-type]
    DataLoader(reader, ragged={"track": "ragged"})  # type: ignore[dict-item]
    DataLoader(reader, bach_size=64)  # type: ignore[call-arg]
    DataLoader("users", 64)  # type: ignore[arg-type]
    for batch in BatchedDataLoader(reader, 64, torch.as_tensor, nulls={"age": 0}):
        print(batch["x"])
    BatchedDataLoader(reader, 64, raged="list")  # type: ignore[call-arg]
ReaderDataset("users", batch_size=64, last_batch="evn")  # type: ignore[arg-type]
ReaderDataset("users", batch_size=64, reshuffle_each_epoch=False).set_epoch(1)
ReaderDataset("users", batch_size=64, cache_type="local-disc")  # type: ignore[arg-type]
MapDataset("users", filters=[("id", "<", 7)], cache_type="local-disk")
MapDataset("users", filters=7)  # type: ignore[arg-type]
MapDataset("users")[0]["x"]
