"""Petastorm's two other loaders: whole columns through a function of the user's, and all rows kept in memory.

`DataLoader` gives whole columns by itself; these are for code that names them, and for data so small that reading it
once will do.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from petastore.adapters.torch.loader import DataLoader
from petastore.adapters.torch.tensors import refuse_dtypes, tensors_of
from petastore.errors import RequestError
from petastore.plan.mix import hashed_permutation, mix
from petastore.plan.request import whole_number

__all__ = ["BatchedDataLoader", "InMemBatchedDataLoader"]


class BatchedDataLoader(DataLoader):
    """A `DataLoader` with a function that makes tensors of columns.

    Args:
        reader: What `make_reader` or `make_batch_reader` gave. The caller stops it; the loader never does.
        batch_size: Rows of a batch on this rank.
        transform_fn: Is given each column of a batch that is a tensor, as a NumPy array over its memory, and returns
            what stands for it in the batch, as `functools.partial(torch.as_tensor, device="cuda")` does. Lists, of text
            or of shapes that differ, stay as they are. None, and `torch.as_tensor` itself, leave the tensors.
        shuffling_queue_capacity: As for `DataLoader`.
        **options: As for `DataLoader`.

    Raises:
        RequestError: As `DataLoader`.

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
        reader: Any,
        batch_size: int = 1,
        transform_fn: Callable[[Any], Any] | None = None,
        shuffling_queue_capacity: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(reader, batch_size, None, shuffling_queue_capacity, **options)
        self.transform_fn = _worth_calling(transform_fn)
        """The function that was given; None where it would change nothing."""

    def __iter__(self) -> Any:
        batches = super().__iter__()
        if self.transform_fn is None:
            return batches
        return (_through(self.transform_fn, batch) for batch in batches)


class InMemBatchedDataLoader:
    """All rows of one epoch of a reader, read at once and kept; each epoch gives them anew, in an order of its own.

    The reader is stopped when its rows are there. Ranks that give the same batch size have the same number of batches.
    One `for` gives all epochs, and the next `for` goes on with further ones. Use it from one thread at a time.

    Args:
        reader: What `make_reader` or `make_batch_reader` gave, from its beginning.
        batch_size: Rows of a batch on this rank; the reader's `tail` decides about the last one.
        transform_fn: As for `BatchedDataLoader`; called once for each column of each batch that is read.
        num_epochs: Epochs of one `for`; None is without end.
        seed: Decides the orders; any integer.
        rows_capacity: At most so many rows are kept, rounded down to whole batches, and a warning says how many are
            not. None keeps all.
        shuffle: Permute the rows, anew in each epoch; all that were kept, whichever batch they came in.

    Raises:
        RequestError: `rows_capacity` holds no batch, or a number is none.
        DecodeError: A column of numbers has missing values.

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
        reader: Any,
        batch_size: int = 1,
        transform_fn: Callable[[Any], Any] | None = None,
        num_epochs: int | None = 1,
        seed: int = 0,
        rows_capacity: int | None = None,
        shuffle: bool = False,
    ) -> None:
        size = whole_number(batch_size, name="batch_size", least=1)
        self._num_epochs = None if num_epochs is None else whole_number(num_epochs, name="num_epochs", least=1)
        self._seed = whole_number(seed, name="seed", least=-(2**63))
        self._shuffle = bool(shuffle)
        self._begun_epochs = 0
        refuse_dtypes(reader)
        batches = itertools.islice(reader.batches(size), _steps_kept(reader, size, rows_capacity))
        function = _worth_calling(transform_fn)
        read = [(batch.num_rows, _through(function, _copied(tensors_of(batch)))) for batch in batches]
        reader.stop()
        reader.join()
        self._borders = np.cumsum([0, *(rows for rows, _ in read)])
        self._columns = {
            name: _joined([columns[name] for _, columns in read])
            for name in dict.fromkeys(name for _, columns in read for name in columns)
        }

    def __len__(self) -> int:
        """Batches of one `for`; the same on every rank.

        Raises:
            TypeError: `num_epochs` is None.
        """
        if self._num_epochs is None:
            raise TypeError("a loader with num_epochs=None is endless and has no length; count steps yourself")
        return (len(self._borders) - 1) * self._num_epochs

    def __iter__(self) -> Iterator[dict[str, Any]]:
        epochs = itertools.count() if self._num_epochs is None else range(self._num_epochs)
        for _ in epochs:
            number, self._begun_epochs = self._begun_epochs, self._begun_epochs + 1
            rows = int(self._borders[-1])
            order = hashed_permutation(mix(self._seed, number), rows) if self._shuffle else np.arange(rows)
            for first, end in itertools.pairwise(self._borders.tolist()):
                picked = torch.from_numpy(order[first:end])
                yield {name: _picked(column, picked) for name, column in self._columns.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open: the reader was stopped when its rows were there."""


def _steps_kept(reader: Any, batch_size: int, rows_capacity: int | None) -> int:
    """Batches of an epoch that are kept, the same on every rank."""
    steps = int(reader.steps_per_epoch(batch_size))
    if rows_capacity is None:
        return steps
    kept = whole_number(rows_capacity, name="rows_capacity", least=1) // batch_size
    if kept == 0:
        raise RequestError(f"rows_capacity={rows_capacity} is less than one batch of {batch_size} rows")
    if kept < steps:
        warnings.warn(
            f"rows_capacity={rows_capacity:,} keeps {kept:,} of the {steps:,} batches of an epoch, and the rows of the "
            "others will not be trained on; leave it out to keep all",
            UserWarning,
            stacklevel=3,
        )
    return min(kept, steps)


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
    if all(isinstance(part, torch.Tensor) for part in parts) and parts:
        return torch.cat(parts)
    return [value for part in parts for value in part]


def _picked(column: Any, rows: torch.Tensor) -> Any:
    if isinstance(column, torch.Tensor):
        return column[rows.to(column.device)]
    return [column[row] for row in rows.tolist()]
