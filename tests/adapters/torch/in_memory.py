"""Reader in memory: the attributes and methods that loaders use, over arrays of any dtype and layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.adapters.torch import DataLoader
from petastore.decoding.decode import Decoded
from petastore.inventory import Inventory
from petastore.monitoring.waits import WaitMeter
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest, Shard
from petastore.readers.batch import Batch, Columns
from petastore.schema import Unischema, UnischemaField


class InMemory:
    """The part of a reader that adapters use, over columns in memory."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], *, num_epochs: int | None = 1) -> None:
        self.columns = columns
        self.num_rows = len(next(iter(columns.values())))
        self.num_epochs = num_epochs
        self.schema = Unischema("columns", [UnischemaField(name, column.dtype) for name, column in columns.items()])
        order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
        self.plan = Plan(Inventory.of_rows([self.num_rows]), ReadRequest(tuple(columns), order, Shard(), num_epochs))
        self.last_row_consumed = False
        self.cursor = Cursor()
        self.resets = 0
        self.calls: list[int] = []
        self.meter = WaitMeter()

    def steps_per_epoch(self, batch_size: int) -> int:
        return self.plan.steps_per_epoch(batch_size)

    def iter_batches(self, n: int) -> Iterator[Batch]:
        self.calls.append(n)
        for epoch in range(1_000_000 if self.num_epochs is None else self.num_epochs):
            for first in range(0, self.num_rows, n):
                part = {name: column[first : first + n] for name, column in self.columns.items()}
                columns = Columns({name: decoded(column) for name, column in part.items()})
                yield Batch(columns, 0, len(next(iter(part.values()))), Cursor(epoch, first))

    def replan(self, plan: Plan, begin: Cursor) -> None:
        self.plan, self.cursor = plan, begin
        self.resets += 1


ReaderInMemory: Any = InMemory  # typed as Any, because it has only those methods of a reader that loaders use


def decoded(column: NDArray[Any]) -> Decoded:
    """Return a column in the form that readers deliver."""
    if isinstance(column, np.ma.MaskedArray):
        return Decoded(column.data, np.ma.getmaskarray(column))
    return Decoded(column, None)


def only_batch(**columns: NDArray[Any]) -> dict[str, Any]:
    """Return the only batch of a reader over these columns."""
    reader = ReaderInMemory(columns)
    (batch,) = DataLoader(reader, batch_size=reader.num_rows)
    assert isinstance(batch, dict)
    return batch


def objects(*values: Any) -> NDArray[Any]:
    """Return an object array of these values."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


SAME_DTYPE = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
]
