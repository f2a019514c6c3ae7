"""Rows as dicts of tensors or NumPy values, and collated to the batches that `DataLoader` has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import torch
import torch.utils.data
from numpy.typing import NDArray

from petastore.adapters.columns import missing_rows, present
from petastore.adapters.torch.tensors import ColumnForm, shareable, tensor_or_list
from petastore.once import once

__all__ = ["DecodedRows", "decimal_friendly_collate", "rows_as_dicts"]


def decimal_friendly_collate(batch: Sequence[Any]) -> Any:
    """One batch from a list of rows: Petastorm's collate function.

    Text, bytes and `Decimal` stay as they are; dicts are collated key by key, and tuples and lists place by place, to a
    list, or to a named tuple where they are named; everything else is what `torch.utils.data.default_collate` makes of
    it. Arrays whose shapes differ become a list of tensors, and values that are lists stay lists: only rows are taken
    apart. The rows that a `MapDataset` decoded together are handed over as the columns that they are, as `DataLoader`
    has them.

    Args:
        batch: Rows, each a dict from column name to value, a tuple or a list; or the values of one column. Not empty.

    Raises:
        DecodeError: A value is None.

    Example:
        >>> rows = [{"id": np.int32(1), "price": Decimal("1.50")}, {"id": np.int32(2), "price": Decimal("2")}]
        >>> decimal_friendly_collate(rows)
        {'id': tensor([1, 2], dtype=torch.int32), 'price': [Decimal('1.50'), Decimal('2')]}
    """
    if isinstance(batch, DecodedRows):
        return batch.tensors()
    if isinstance(batch[0], list):
        return _by_place(batch)
    return _collated(batch)


def _collated(values: Sequence[Any]) -> Any:
    """The values of one place of the rows."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: _collated_column(key, [row[key] for row in values]) for key in first}
    if isinstance(first, (str, bytes, Decimal, list)):
        return values
    if isinstance(first, tuple):
        parts = _by_place(values)
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    if isinstance(first, (np.ndarray, torch.Tensor)) and len({value.shape for value in values}) > 1:
        return [torch.as_tensor(value) for value in values]
    return torch.utils.data.default_collate(list(values))


def _by_place(rows: Sequence[Any]) -> list[Any]:
    return [_collated(values) for values in zip(*rows, strict=True)]


def _collated_column(key: Any, values: list[Any]) -> Any:
    if any(value is None for value in values):
        present(str(key), np.array([value is not None or None for value in values], dtype=object))
    return _collated(values)


class DecodedRows(Sequence[dict[str, Any]]):
    """Rows that were decoded together, as dicts of tensors; made one by one only for those who look at them so."""

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], num_rows: int, ragged: Mapping[str, ColumnForm] | None = None
    ) -> None:
        self._columns = dict(columns)
        self._num_rows = num_rows
        self._ragged = ragged or {}

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
        made: dict[str, Any] = {}
        for name, column in self._columns.items():
            made |= self._ragged[name].tensors(column) if name in self._ragged else {name: tensor_or_list(name, column)}
        return made


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
