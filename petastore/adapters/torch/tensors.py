"""A reader's columns as tensors that share their memory, and rows collated to the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import torch
import torch.utils.data
from numpy.typing import NDArray

from petastore.adapters.columns import missing_rows, nanoseconds, present
from petastore.errors import RequestError
from petastore.once import once

__all__ = [
    "DecodedRows",
    "decimal_friendly_collate",
    "is_shareable",
    "refuse_dtypes",
    "rows_as_dicts",
    "shareable",
    "tensor_or_list",
    "tensors_of",
]

_PROMOTED: Final[dict[np.dtype[Any], np.dtype[Any]]] = {
    np.dtype(np.uint16): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int64),
}


def decimal_friendly_collate(batch: Sequence[Any]) -> Any:
    """One batch from a list of rows: Petastorm's collate function.

    Text, bytes and `Decimal` stay lists; dicts are collated key by key; everything else is what
    `torch.utils.data.default_collate` makes of it. Arrays whose shapes differ become a list of tensors. The rows that
    a `MapDataset` decoded together are handed over as the columns that they are, as `DataLoader` has them.

    Args:
        batch: Rows, each a dict from column name to value; or the values of one column. Not empty.

    Raises:
        DecodeError: A value is None.

    Example:
        >>> rows = [{"id": np.int32(1), "price": Decimal("1.50")}, {"id": np.int32(2), "price": Decimal("2")}]
        >>> decimal_friendly_collate(rows)
        {'id': tensor([1, 2], dtype=torch.int32), 'price': [Decimal('1.50'), Decimal('2')]}
    """
    if isinstance(batch, DecodedRows):
        return batch.tensors()
    first = batch[0]
    if isinstance(first, Mapping):
        return {key: _collated_column(key, [row[key] for row in batch]) for key in first}
    if isinstance(first, (str, bytes, Decimal, list)):
        return list(batch)
    if isinstance(first, (np.ndarray, torch.Tensor)) and len({value.shape for value in batch}) > 1:
        return [torch.as_tensor(value) for value in batch]
    return torch.utils.data.default_collate(list(batch))


def _collated_column(key: Any, values: list[Any]) -> Any:
    if any(value is None for value in values):
        present(str(key), np.array([value is not None or None for value in values], dtype=object))
    return decimal_friendly_collate(values)


class DecodedRows(Sequence[dict[str, Any]]):
    """Rows that were decoded together, as dicts of tensors; made one by one only for those who look at them so."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], num_rows: int) -> None:
        self._columns = dict(columns)
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(self._num_rows))]
        if not -self._num_rows <= index < self._num_rows:
            raise IndexError(index)
        return {name: values[index] for name, values in self._values.items()}

    @once
    def _values(self) -> dict[str, Any]:
        return {name: _row_tensors(name, column) for name, column in self._columns.items()}

    def tensors(self) -> dict[str, Any]:
        """The rows as one batch."""
        return tensors_of(self._columns)


def _row_tensors(name: str, column: NDArray[Any]) -> Any:
    """What has the tensor, or the value, of row i at place i; None where it is missing."""
    missing = missing_rows(column)
    if column.dtype == np.dtype(object) or not missing.any():
        return tensor_or_list(name, column)
    tensors = torch.from_numpy(shareable(name, np.asarray(column)))
    return [None if gone else tensor for gone, tensor in zip(missing.tolist(), tensors, strict=True)]


def rows_as_dicts(batch: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """The rows of a batch as dicts of NumPy values, None where one is missing."""
    names = list(batch)
    columns = [_row_values(name, batch[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _row_values(name: str, column: NDArray[Any]) -> list[Any]:
    """One NumPy value a row, of the dtypes that tensors have; None where it is missing."""
    if column.dtype == np.dtype(object):
        return [shareable(name, cell) if isinstance(cell, np.ndarray) else cell for cell in column]
    missing = missing_rows(column)
    values = list(shareable(name, np.asarray(column)))
    return [None if gone else value for gone, value in zip(missing, values, strict=True)] if missing.any() else values


def tensors_of(batch: Any) -> dict[str, Any]:
    """The columns of a batch as tensors, or lists where no tensor holds them."""
    return {name: tensor_or_list(name, column) for name, column in batch.items()}


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
            raise RequestError(
                f"column {field.name!r} is {field.dtype}, and torch has no extended precision; leave it out with "
                "schema_fields, or convert it in a transform_spec"
            )
