"""Read columns with petastore, check each row, and return the counters of the reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import petastore
from benchmarks.bench.workloads import Workload

__all__ = ["Reading", "batches", "value_of"]

_FACTOR = 0x5851F42D4C957F2D


def value_of(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value that belongs to each id."""
    return (ids.astype(np.uint64) * np.uint64(_FACTOR)).view(np.int64)


class Reading:
    """An endless epoch of a reader.

    Args:
        place: The dataset.
        **options: Of `make_batch_reader`.
    """

    def __init__(self, place: str, **options: Any) -> None:
        self._reader = petastore.make_batch_reader(place, **{"num_epochs": None, "workers_count": 2, **options})
        self._batches = iter(self._reader)
        self._wrong = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        batch: dict[str, Any] = next(self._batches)._asdict()
        if "value" in batch:
            self._wrong += int(np.count_nonzero(value_of(batch["id"]) != batch["value"]))
        return batch

    def told(self) -> dict[str, Any]:
        """Rows that were wrong, and counters, so far."""
        return {"wrong": self._wrong, "diagnostics": dict(self._reader.diagnostics)}

    def close(self) -> None:
        """Ends the reader."""
        self._reader.stop()
        self._reader.join()


def batches(workload: Workload, place: str, **options: Any) -> Reading:
    """Batches of columns, as large as row groups."""
    del workload
    return Reading(place, **options)
