"""Petastorm's two other loaders: whole columns through a function of the user's, and all rows kept in memory.

`DataLoader` gives whole columns by itself; these are for code that names them, and for data so small that reading it
once will do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
import torch

from petastore.adapters.nulls import Nulls, nulls_of_reader
from petastore.adapters.stored_nulls import refuse_stored_nulls
from petastore.adapters.torch.loader import DataLoader, LoaderOptions
from petastore.adapters.torch.ragged import ragged_columns
from petastore.adapters.torch.shared_state import LOADED_LATE
from petastore.adapters.torch.tensors import BatchTensors, refuse_dtypes
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.order.mix import hashed_permutation, mix
from petastore.plan.request import whole_number
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.reader import Reader

__all__ = ["BatchedDataLoader", "InMemBatchedDataLoader"]

_PLACE = ("first_epoch", "epoch", "batch")
"""What a state says of the next batch."""


class BatchedDataLoader(DataLoader[dict[str, Any]]):
    """A `DataLoader` with a function that makes tensors of columns.

    Args:
        reader: As for `DataLoader`.
        batch_size: Rows of a batch on this rank.
        transform_fn: Is given each column of a batch that is a tensor, as a NumPy array over its memory, and returns
            what stands for it in the batch, as `functools.partial(torch.as_tensor, device="cuda")` does. Lists, of text
            or of shapes that differ, stay as they are. None, and `torch.as_tensor` itself, leave the tensors.
        shuffling_queue_capacity: As for `DataLoader`.
        **options: As for `DataLoader`.

    Raises:
        InvalidArgumentError: As `DataLoader`.

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
        """The function that was given; None where it would change nothing."""

    def _batches_of_a_pass(self) -> Iterator[dict[str, Any]]:
        batches = super()._batches_of_a_pass()
        if self.transform_fn is None:
            return batches
        return (_through(self.transform_fn, batch) for batch in batches)


class InMemBatchedDataLoader:
    """All rows of one epoch of a reader, read at once and kept; each epoch gives them anew, in an order of its own.

    Columns whose shapes have None are one tensor where all rows that are kept have one shape, else lists of tensors.
    The reader is stopped when its rows are there. Ranks that give the same batch size have the same number of batches.
    One `for` gives all epochs, and the next `for` goes on with further ones. Without `shuffle` rows stay in the order
    in which the reader gave them; with it, epoch e has them in the order
    `petastore.plan.order.mix.hashed_permutation(mix(seed, e), rows)`, on every platform and with every release of
    NumPy. Use it from one thread at a time.

    Args:
        reader: What `make_reader` or `make_batch_reader` gave, from its beginning.
        batch_size: Rows of a batch on this rank; the reader's `last_batch` decides about the last one.
        transform_fn: As for `BatchedDataLoader`; called once for each column of each batch that is read.
        num_epochs: Epochs of one `for`; None is without end.
        seed: Decides the orders; any integer.
        rows_capacity: At most so many rows may be kept. It is a bound, and leaves out none: an epoch with more rows is
            refused. None is without bound.
        shuffle: Permute the rows, anew in each epoch, whichever batch they came in.
        nulls: As for `DataLoader`.

    Raises:
        InvalidArgumentError: An epoch has more rows than `rows_capacity`, or a number is none.
        DecodeError: A column of numbers has missing values, and `nulls` says nothing about it.

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
        refuse_dtypes(reader)
        _refuse_more_rows(reader, size, rows_capacity)
        filled = nulls_of_reader(nulls, reader)
        refuse_stored_nulls(reader, filled)
        make = BatchTensors(ragged_columns(reader, "auto", by_batch=True), filled)
        self._asked = {"seed": self._seed, "shuffle": self._shuffle, "batch_size": size, "reader": reader.state_dict()}
        batches = itertools.islice(reader.iter_batches(size), int(reader.steps_per_epoch(size)))
        function = _worth_calling(transform_fn)
        read = [(batch.num_rows, _through(function, _copied(make(batch)))) for batch in batches]
        reader.stop()
        reader.join()
        self._borders = np.cumsum([0, *(rows for rows, _ in read)])
        self._columns = {
            name: _joined([columns[name] for _, columns in read])
            for name in dict.fromkeys(name for _, columns in read for name in columns)
        }
        self._next = self._begin = Cursor()  # before the next batch, and before its `for`; positions are batches
        self._goes_on = False
        self._loads = 0  # states that were loaded

    @property
    def _steps(self) -> int:
        """Batches of an epoch."""
        return len(self._borders) - 1

    def __len__(self) -> int:
        """Return the number of batches of the `for` under way, or of the next one; the same on every rank.

        A `for` gives all epochs; after `load_state_dict`, the batches that are left.

        Raises:
            TypeError: `num_epochs` is None.
        """
        if self._num_epochs is None:
            raise TypeError("a loader with num_epochs=None is endless and has no length; count steps yourself")
        is_resumed = self._goes_on or not self._next.is_at_end(self._num_epochs)
        begin = (self._next if self._goes_on else self._begin) if is_resumed else Cursor()
        return self._steps * (begin.first_epoch + self._num_epochs - begin.epoch) - begin.position

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return RaisesAfterErrors(self._batches())

    def _batches(self) -> Iterator[dict[str, Any]]:
        if not self._goes_on:
            self._next = self._next.next_pass()
        self._goes_on, self._begin, loads = False, self._next, self._loads
        first, begin = self._next.first_epoch, self._next
        epochs = itertools.count() if self._num_epochs is None else range(first + self._num_epochs)
        for epoch in itertools.islice(epochs, begin.epoch, None):
            if not self._steps:
                return
            for batch in self._epoch(first, epoch, begin.position if epoch == begin.epoch else 0):
                yield batch
                if loads != self._loads:
                    raise InvalidArgumentError(LOADED_LATE)

    def _epoch(self, first_epoch: int, epoch: int, batch: int) -> Iterator[dict[str, Any]]:
        """What an epoch has from a batch on."""
        rows = int(self._borders[-1])
        order = hashed_permutation(mix(self._seed, epoch), rows) if self._shuffle else np.arange(rows)
        for number in range(batch, self._steps):
            picked = torch.from_numpy(order[self._borders[number] : self._borders[number + 1]])
            is_last = number + 1 == self._steps
            self._next = Cursor(epoch + is_last, 0 if is_last else number + 1, first_epoch)
            yield {name: _picked(column, picked) for name, column in self._columns.items()}

    def state_dict(self) -> dict[str, Any]:
        """Where training stands: after the last batch that was handed out. Small, JSON, and the same on every rank."""
        place = (self._next.first_epoch, self._next.epoch, self._next.position)
        return {**self._asked, **dict(zip(_PLACE, place, strict=True))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next `for` goes on where `state_dict` was called, and ends where that one would have ended.

        Raises:
            InvalidArgumentError: The state is of a loader with other rows or another order; the message names the
                difference.
        """
        for name, ours in self._asked.items():
            if state.get(name) != ours:
                raise InvalidArgumentError(
                    f"the state is of a loader with {name}={state.get(name)!r}, but this one has {name}={ours!r}"
                )
        first_epoch, epoch, batch = (whole_number(state.get(name), name=name, least=0) for name in _PLACE)
        self._next = Cursor(epoch, batch, first_epoch)
        self._goes_on = True
        self._loads += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open: the reader was stopped when its rows were there."""


def _refuse_more_rows(reader: Reader, batch_size: int, rows_capacity: int | None) -> None:
    if rows_capacity is None:
        return
    capacity = whole_number(rows_capacity, name="rows_capacity", least=1)
    rows = int(reader.plan.rows_per_epoch(batch_size))
    if rows > capacity:
        raise InvalidArgumentError(
            f"an epoch has {rows:,} rows on this rank, and rows_capacity={capacity:,} would leave out "
            f"{rows - capacity:,} of them; leave rows_capacity out to keep all rows, take DataLoader, which keeps few "
            "of them in memory, or ask the reader for fewer rows by filters="
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
    """The batch without the reader's memory, which is much more than the batch."""
    return {name: column.clone() if isinstance(column, torch.Tensor) else column for name, column in batch.items()}


def _joined(parts: list[Any]) -> Any:
    """One tensor, unless cells of some rows have other shapes: then a list of each row's."""
    if all(isinstance(part, torch.Tensor) for part in parts) and len({part.shape[1:] for part in parts}) == 1:
        return torch.cat(parts)
    return [value for part in parts for value in part]


def _picked(column: Any, rows: torch.Tensor) -> Any:
    if isinstance(column, torch.Tensor):
        return column[rows.to(column.device)]
    return [column[row] for row in rows.tolist()]
