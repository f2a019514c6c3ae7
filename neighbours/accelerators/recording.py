"""Loaders and readers for dlio-benchmark that record the returned rows in the data folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.accelerators.loaders import PetastoreLoader
from benchmarks.accelerators.readers import RowGroupReader

__all__ = ["RecordedLoader", "RecordedReader"]


class RecordedLoader(PetastoreLoader):
    """Writes the sum of each row of an epoch to `petastore-RANK.json`."""

    def next(self) -> Iterator[dict[str, torch.Tensor]]:
        sums: list[float] = []
        recorded = Path(self._args.data_folder, f"petastore-{self._args.my_rank}.json")
        for batch in super().next():
            (first, *_) = batch.values()
            sums += [float(row.double().sum()) for row in first]
            recorded.write_text(json.dumps(sums))
            yield batch


class RecordedReader(RowGroupReader):
    """Writes the sum of the first column of each sample to `own-PROCESS.json`."""

    def get_sample(self, filename: str, sample_index: int) -> list[np.ndarray[Any, Any]]:
        columns = super().get_sample(filename, sample_index)
        with Path(self._args.data_folder, f"own-{os.getpid()}.json").open("a", encoding="utf-8") as file:
            file.write(json.dumps([self.image_idx, float(columns[0].astype(np.float64).sum())]) + "\n")
        return columns
