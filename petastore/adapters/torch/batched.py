"""Petastorm's `BatchedDataLoader` and `InMemBatchedDataLoader`.

The first converts columns with a `transform_fn`, the second yields all epochs from memory. Both are for programs that
were written for Petastorm, and for data that fits into memory. Otherwise use `DataLoader`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, Unpack

import numpy as np
import torch

from petastore.adapters.nulls import Nulls
from petastore.adapters.torch.loader import DataLoader, LoaderOptions
from petastore.adapters.torch.shared_state import LOADED_LATE
from petastore.adapters.torch.tensors import BatchTensors, torch_plans
from petastore.errors import InvalidArgumentError
from petastore.monitoring.waits import timed
from petastore.plan.order.mix import hashed_permutation, mix
from petastore.plan.request import whole_number
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.reader import Reader

__all__ = ["BatchedDataLoader", "InMemBatchedDataLoader"]

_PLACE = ("first_epoch", "epoch", "batch")
"""Keys of a state that contain the position of the next batch."""


class BatchedDataLoader(DataLoader[dict[str, Any]]):
    """A `DataLoader` that converts each column of a batch with your own function.

    Args:
        reader: As in `DataLoader`.
        batch_size: Rows per batch on this rank.
        transform_fn: Function that receives a column as a NumPy array (zero-copy) and returns its replacement in the
            batch, such as `functools.partial(torch.as_tensor, device="cuda")`. Columns that are lists (of text, or of
            arrays with different shapes) are not passed to it. None and `torch.as_tensor` return the tensors of
            `DataLoader`.
        shuffling_queue_capacity: As in `DataLoader`.
        **options: As in `DataLoader`.

    Raises:
        InvalidArgumentError: As in `DataLoader`.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("x", "float32")])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"x": i} for i in range(3)])
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     [batch["x"] for batch in BatchedDataLoader(reader, 2, transform_fn=lambda x: torch.as_tensor(x + 1))]
        [tensor([1., 2.]), tensor([3.])]
    """

    def __init__(
        self,
        reader: Reader,
        batch_size: int = 1,
        transform_fn: Callable[[Any], Any] | None = torch.as_tensor,
        shuffling_queue_capacity: int = 0,
        **options: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(reader, batch_size, None, shuffling_queue_capacity, **options)
        self.transform_fn = _worth_calling(transform_fn)
        """Function that converts each column; None if the function would not change the tensors."""

    def _batches_of_a_pass(self) -> Iterator[dict[str, Any]]:
        batches = super()._batches_of_a_pass()
        if self.transform_fn is None:
            return batches
        return map(timed(functools.partial(_through, self.transform_fn), self.reader, "transform"), batches)


class InMemBatchedDataLoader:
    """A loader that reads one epoch into memory, and yields all epochs from memory.

    A list column of plain Parquet is one tensor if all its lists in memory have the same length, else a list of
    tensors. Other columns whose shape has None are always lists of tensors. The reader is closed when its rows are in
    memory. Ranks with equal batch sizes have equal numbers of batches. One `for` loop covers `num_epochs` epochs, and
    the next loop continues with further epochs. Without `shuffle`, rows keep the reader's order. With `shuffle`, the
    order depends only on seed and epoch, and is equal on every platform and with every NumPy release:
    `petastore.plan.order.mix.hashed_permutation(mix(seed, epoch), rows)`. Use it from one thread at a time.

    Args:
        reader: The reader that `make_reader` or `make_batch_reader` returned, not yet iterated.
        batch_size: Rows per batch on this rank; the reader's `last_batch` decides the size of the last batch.
        transform_fn: As in `BatchedDataLoader`; called once per column of each batch that is read.
        num_epochs: Number of epochs of one `for` loop; None means endless.
        seed: Seed of the order; any integer.
        rows_capacity: Maximum number of rows in memory. An epoch with more rows raises an error. None means no limit.
        shuffle: Whether to shuffle all rows, in a new order each epoch.
        nulls: As in `DataLoader`.

    Raises:
        InvalidArgumentError: An epoch has more rows than `rows_capacity`, or a number is invalid.
        DecodeError: A column of numbers has missing values and `nulls` is `"error"`.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("x", "int64")])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"x": i} for i in range(5)])
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     loader = InMemBatchedDataLoader(reader, batch_size=3, num_epochs=2)
        >>> len(loader), [batch["x"].tolist() for batch in loader]
        (4, [[0, 1, 2], [3, 4], [0, 1, 2], [3, 4]])
    """

    def __init__(
        self,
        reader: Reader,
        batch_size: int = 1,
        transform_fn: Callable[[Any], Any] | None = None,
        num_epochs: int | None = 1,
        seed: int = 0,
        rows_capacity: int | None = None,
        shuffle: bool = False,
        *,
        nulls: Nulls = "error",
    ) -> None:
        size = whole_number(batch_size, name="batch_size", least=1)
        self._num_epochs = None if num_epochs is None else whole_number(num_epochs, name="num_epochs", least=1)
        self._seed = whole_number(seed, name="seed", least=-(2**63))
        self._shuffle = bool(shuffle)
        _refuse_more_rows(reader, size, rows_capacity)
        make = BatchTensors(torch_plans(reader, "auto", nulls, by_batch=True))
        self._asked = {"seed": self._seed, "shuffle": self._shuffle, "batch_size": size, "reader": reader.state_dict()}
        batches = itertools.islice(reader.iter_batches(size), int(reader.steps_per_epoch(size)))
        function = _worth_calling(transform_fn)
        read = [(batch.num_rows, _through(function, _copied(make(batch)))) for batch in batches]
        reader.close()
        self._borders = np.cumsum([0, *(rows for rows, _ in read)])
        self._columns = {
            name: _joined([columns[name] for _, columns in read])
            for name in dict.fromkeys(name for _, columns in read for name in columns)
        }
        self._first = 0  # first epoch of the current `for`
        self._begun = self._delivered = 0  # batches since epoch 0: before the current `for`, and until now
        self._goes_on = False
        self._loads = 0  # number of loaded states

    @property
    def _steps(self) -> int:
        """Number of batches of an epoch."""
        return len(self._borders) - 1

    def __len__(self) -> int:
        """Return the number of batches of the current `for` loop, or of the next one.

        The number is the same on every rank. A loop covers `num_epochs` epochs; after `load_state_dict`, it has the
        remaining batches.

        Raises:
            TypeError: `num_epochs` is None.
        """
        if self._num_epochs is None:
            raise TypeError(
                "a loader with num_epochs=None is endless and has no length. Count the steps in your loop instead"
            )
        end = (self._first + self._num_epochs) * self._steps
        if self._goes_on:
            return end - self._delivered
        return end - self._begun if self._delivered < end else self._num_epochs * self._steps

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return RaisesAfterErrors(self._batches())

    def _batches(self) -> Iterator[dict[str, Any]]:
        steps, rows = self._steps, int(self._borders[-1])
        if steps and not self._goes_on:
            self._first = -(-self._delivered // steps)
            self._delivered = self._first * steps
        self._goes_on, self._begun, loads = False, self._delivered, self._loads
        end = None if self._num_epochs is None else (self._first + self._num_epochs) * steps
        order: Any = None
        for delivered in itertools.count(self._begun) if end is None else range(self._begun, end):
            if not steps:
                return
            epoch, number = divmod(delivered, steps)
            if order is None or number == 0:
                order = hashed_permutation(mix(self._seed, epoch), rows) if self._shuffle else np.arange(rows)
            picked = torch.from_numpy(order[self._borders[number] : self._borders[number + 1]])
            self._delivered = delivered + 1
            yield {name: _picked(column, picked) for name, column in self._columns.items()}
            if loads != self._loads:
                raise InvalidArgumentError(LOADED_LATE)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last yielded batch, as a small JSON dict.

        The dict is the same on every rank.
        """
        place = (self._first, *divmod(self._delivered, max(self._steps, 1)))
        return {**self._asked, **dict(zip(_PLACE, place, strict=True))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of `state_dict`.

        The next `for` loop yields the remaining batches of the saved loop.

        Raises:
            InvalidArgumentError: The state was saved with other rows or another order; the message names the
                difference.
        """
        for name, ours in self._asked.items():
            if state.get(name) != ours:
                raise InvalidArgumentError(
                    f"the state must be of a loader with {name}={ours!r}, got {name}={state.get(name)!r}. Make the "
                    "loader with the arguments with which the state was saved, or start without a state"
                )
        self._first, epoch, batch = (whole_number(state.get(name), name=name, least=0) for name in _PLACE)
        self._delivered = epoch * self._steps + batch
        self._goes_on = True
        self._loads += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the reader was already closed when its rows were in memory."""


def _refuse_more_rows(reader: Reader, batch_size: int, rows_capacity: int | None) -> None:
    if rows_capacity is None:
        return
    capacity = whole_number(rows_capacity, name="rows_capacity", least=1)
    rows = int(reader.plan.rows_per_epoch(batch_size))
    if rows > capacity:
        raise InvalidArgumentError(
            f"rows_capacity must be at least {rows:,}, the rows of an epoch on this rank, got {capacity:,}. Leave "
            "rows_capacity out to keep all rows, use DataLoader, which keeps few rows in memory, or read fewer rows "
            "with filters="
        )


def _worth_calling(transform_fn: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return None if transform_fn is torch.as_tensor else transform_fn


def _through(function: Callable[[Any], Any] | None, batch: dict[str, Any]) -> dict[str, Any]:
    if function is None:
        return batch
    return {
        name: function(column.numpy()) if isinstance(column, torch.Tensor) else column for name, column in batch.items()
    }


def _copied(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the batch, so that the reader's larger buffer can be freed."""
    return {name: column.clone() if isinstance(column, torch.Tensor) else column for name, column in batch.items()}


def _joined(parts: list[Any]) -> Any:
    """Concatenate the parts of a column, one from each batch.

    Return one tensor, or a list with one tensor per row if shapes differ.
    """
    if all(isinstance(part, torch.Tensor) for part in parts) and len({part.shape[1:] for part in parts}) == 1:
        return torch.cat(parts)
    return [value for part in parts for value in part]


def _picked(column: Any, rows: torch.Tensor) -> Any:
    if isinstance(column, torch.Tensor):
        return column[rows.to(column.device)]
    return [column[row] for row in rows.tolist()]
