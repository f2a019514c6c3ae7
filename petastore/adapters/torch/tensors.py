"""Batches as tensors of the columns that a reader made in one go.

The tensors share the memory of the reader's arrays wherever torch can. They are made of arrays that NumPy has cut, a
tensor a microsecond or less. To cut tensors takes as long, and each call of torch lets go of the interpreter lock,
which the trainer's thread then waits for while workers have it: of batches every 145 ms, cut by torch, one in three
came late by 1 to 6 ms. Many columns that lie in one array are the exception: one call makes the tensors of all of them,
each in a sixth of a microsecond.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from petastore.adapters.columns import nanoseconds, present
from petastore.adapters.nulls import NullColumn
from petastore.decoding.decoded import Decoded
from petastore.errors import InvalidArgumentError
from petastore.readers.batch import Batch, Columns

__all__ = ["BatchTensors", "ColumnForm", "is_shareable", "refuse_dtypes", "shareable", "tensor_or_list"]

_MANY: Final = 8
"""Columns of one array for which one call of torch takes less than one of each."""

_PROMOTED: Final[dict[np.dtype[Any], np.dtype[Any]]] = {
    np.dtype(np.uint16): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int64),
}


class ColumnForm(Protocol):
    """What a column becomes that comes as other tensors than its own array."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are made."""

    def tensors(self, column: NDArray[Any]) -> dict[str, torch.Tensor]:
        """What becomes of the column of a batch."""


class BatchTensors:
    """Makes dicts of tensors of batches. One for each loop; not thread-safe.

    Args:
        ragged: By name, columns of free shape that come in another form than a list.
        nulls: By name, columns whose missing values have something in their place.

    Example:
        >>> import numpy as np
        >>> from petastore.plan.cursor import Cursor
        >>> from petastore.decoding.decode import Decoded
        >>> columns = Columns({"id": Decoded(np.arange(5), None), "word": Decoded(np.array(["a"] * 5, object), None)})
        >>> BatchTensors()(Batch(columns, 2, 4, Cursor()))
        {'id': tensor([2, 3]), 'word': ['a', 'a']}
    """

    def __init__(
        self, ragged: Mapping[str, ColumnForm] | None = None, nulls: Mapping[str, NullColumn] | None = None
    ) -> None:
        self._ragged = ragged or {}
        self._nulls = nulls or {}
        # Weak, so that what was cut up is not kept any longer than its batches.
        self._tensors: weakref.WeakKeyDictionary[Columns, _Tensors] = weakref.WeakKeyDictionary()

    def __call__(self, batch: Batch) -> dict[str, Any]:
        """Column name to tensor, or to a list where no tensor holds the column; see `DataLoader`."""
        tensors = self._tensors.get(batch.source)
        if tensors is None:
            tensors = self._tensors[batch.source] = _Tensors(batch.source, self._ragged, self._nulls)
        return tensors.cut(batch)


class _Tensors:
    """Columns that were made in one go, by what becomes of them; holds their memory, and not the columns."""

    def __init__(self, columns: Columns, ragged: Mapping[str, ColumnForm], nulls: Mapping[str, NullColumn]) -> None:
        self._ragged = ragged
        by_name = _filled(columns.by_name, nulls) if nulls else columns.by_name
        self._names: dict[str, Any] = dict.fromkeys(
            made for name in by_name for made in (ragged[name].names if name in ragged else (name,))
        )
        self._stacks = [(names, stack) for names, stack in columns.stacks if is_shareable(stack)]
        stacked = {name for names, _ in self._stacks for name in names}
        self._single = {
            name: column.values
            for name, column in by_name.items()
            if name not in stacked and column.missing is None and is_shareable(column.values)
        }
        self._others = {
            name: column for name, column in by_name.items() if name not in stacked and name not in self._single
        }

    def cut(self, batch: Batch) -> dict[str, Any]:
        tensors, where = self._names.copy(), slice(batch.first, batch.stop)
        for names, stack in self._stacks:
            columns = stack[:, where]
            of_names = torch.from_numpy(columns).unbind() if len(names) >= _MANY else map(torch.from_numpy, columns)
            tensors.update(zip(names, of_names, strict=True))
        for name, values in self._single.items():
            tensors[name] = torch.from_numpy(values[where])
        for name, column in self._others.items():
            rows = column.rows(batch.first, batch.stop)
            if name in self._ragged:
                tensors.update(self._ragged[name].tensors(rows))
            else:
                tensors[name] = tensor_or_list(name, rows)
        return tensors


def _filled(columns: Mapping[str, Decoded], nulls: Mapping[str, NullColumn]) -> dict[str, Decoded]:
    made: dict[str, Decoded] = {}
    for name, column in columns.items():
        made |= nulls[name].decoded(column) if name in nulls else {name: column}
    return made


def tensor_or_list(name: str, column: NDArray[Any]) -> Any:
    """A column as one tensor over its memory, or as a list where no tensor holds it."""
    if column.dtype == np.dtype(object):
        return [_cell(name, cell) for cell in column]
    return torch.from_numpy(shareable(name, present(name, column)))


def _cell(name: str, cell: Any) -> Any:
    if not isinstance(cell, np.ndarray):
        return cell
    if cell.dtype.kind == "O" and cell.ndim:  # rows of a window
        return [_cell(name, value) for value in cell]
    if cell.dtype.kind in "OSU":
        return cell.tolist()
    return torch.from_numpy(shareable(name, present(name, cell) if cell.ndim else cell))


def is_shareable(array: NDArray[Any]) -> bool:
    """Whether torch can share the array as it is: `shareable` gives it back."""
    if array.dtype.kind not in "biufc" or not array.dtype.isnative or array.dtype in _PROMOTED:
        return False
    steps_backwards = any(step < 0 or step % array.itemsize for step in array.strides)
    return bool(array.flags.behaved) and not steps_backwards


def shareable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in a dtype and layout that torch can share; itself wherever it can."""
    if array.dtype.kind in "mM":
        array = nanoseconds(name, array)
    if is_shareable(array):
        return array
    native = array.dtype.newbyteorder("=")
    return array.astype(_PROMOTED.get(native, native), order="C", copy=True)


def refuse_dtypes(reader: Any) -> None:
    """Refuses readers with columns of a dtype that torch lacks."""
    for field in reader.schema:
        if field.dtype.char in "gG":
            raise InvalidArgumentError(
                f"column {field.name!r} is {field.dtype}, and torch has no extended precision; leave it out with "
                "schema_fields, or convert it in a transform_spec"
            )
