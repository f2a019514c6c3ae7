"""Rows as dicts of tensors or NumPy values, and their collation into batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import torch
import torch.utils.data
from numpy.typing import NDArray

from petastore.adapters.column_plans import ColumnPlan
from petastore.adapters.nulls import present
from petastore.adapters.torch.tensors import shareable, tensor_or_list, tensors_of
from petastore.lazy import once
from petastore.schema.values import mask_of

__all__ = ["DecodedRows", "decimal_friendly_collate", "rows_as_dicts"]


def decimal_friendly_collate(batch: Sequence[Any]) -> Any:
    """Collate a list of rows into one batch, for `collate_fn=`.

    Dicts are collated key by key; tuples, named tuples and lists are collated item by item. Text, bytes and `Decimal`
    stay Python objects. Arrays of different shapes become a list of tensors, and values that are lists stay lists.
    torch's `default_collate` handles everything else. Rows that `MapDataset` returned together become the tensors of
    `DataLoader`, zero-copy. Petastorm has a function of this name.

    Args:
        batch: A non-empty list of rows (dicts, tuples or lists), or of the values of one column.

    Raises:
        DecodeError: A row is a dict, and one of its values is None.

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
    """Collate a list of rows, or of the values of one column, into one value of the batch.

    Args:
        values: Rows or values of the same type, one per row.

    Returns:
        Numbers and arrays of equal shapes become a tensor, arrays of different shapes a list of tensors. Dicts and
        tuples are collated item by item. Text, bytes, `Decimal` and lists are returned as they are.
    """
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
    """Sequence of rows that were decoded together.

    Each row is a dict of tensors, created on access.
    """

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], num_rows: int, plans: Mapping[str, ColumnPlan] | None = None
    ) -> None:
        self._columns = dict(columns)
        self._num_rows = num_rows
        self._plans = plans or {}

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
        """Return the rows as one batch: a dict from column name to tensor or list."""
        made: dict[str, Any] = {}
        for name, column in self._columns.items():
            plan = self._plans.get(name)
            made |= {name: tensor_or_list(name, column)} if plan is None else tensors_of(plan, column)
        return made


def _row_tensors(name: str, column: NDArray[Any]) -> Any:
    """Return one tensor or Python value per row; None if the value is missing."""
    missing = mask_of(column)
    if column.dtype == np.dtype(object) or not missing.any():
        return tensor_or_list(name, column)
    if missing.ndim > 1:
        present(name, column)  # raises an error: a row with some missing items cannot become None
    tensors = torch.from_numpy(shareable(name, np.asarray(column)))
    return [None if gone else tensor for gone, tensor in zip(missing.tolist(), tensors, strict=True)]


def rows_as_dicts(batch: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Return the rows of a batch as dicts of NumPy values; missing values are None."""
    names = list(batch)
    columns = [_row_values(name, batch[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _row_values(name: str, column: NDArray[Any]) -> list[Any]:
    """Return one NumPy value per row, of a dtype that torch supports; None if missing."""
    if column.dtype == np.dtype(object):
        return [_shareable_cell(name, cell) for cell in column]
    missing = mask_of(column)
    if missing.ndim > 1:
        present(name, column)
    values = list(shareable(name, np.asarray(column)))
    return [None if gone else value for gone, value in zip(missing, values, strict=True)] if missing.any() else values


def _shareable_cell(name: str, cell: Any) -> Any:
    if not isinstance(cell, np.ndarray):
        return cell
    return shareable(name, present(name, cell) if isinstance(cell, np.ma.MaskedArray) else cell)
