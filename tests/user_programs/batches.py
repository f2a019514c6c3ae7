"""Batches, cursors and rows of a reader."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from petastore import Batch, Reader, make_reader


def ids(batch: Batch) -> NDArray[np.int64]:
    return np.asarray(batch["id"], dtype=np.int64)


def all_of(reader: Reader) -> dict[str, int]:
    return {name: len(column) for batch in reader.iter_batches(64) for name, column in batch.items()}


with make_reader("users") as reader:
    for batch in reader.iter_batches(64):
        print(batch.num_rows, ids(batch).shape, batch.cursor.position, batch["name"].tolist())
        print(batch.nosuch)  # type: ignore[attr-defined]
        print(batch[0])  # type: ignore[index]
    reader.iter_batches("64")  # type: ignore[arg-type]
    reader.nosuch  # type: ignore[attr-defined]
    for row in reader:
        row + 1  # type: ignore[operator]
        row()  # type: ignore[operator]
