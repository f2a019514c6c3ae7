"""Batches as tensors that are cut, many at a time, out of the tensors of the columns that a reader made in one go.

Making a tensor of an array takes some microseconds, and a dataset may have a thousand columns: what a batch costs is
kept to one call a stack of columns, in which torch makes the views of all of them. Some batches are cut ahead: this
is the trainer's thread, and what it does at one go it does out of a warm cache.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch

from petastore.adapters.nulls import NullColumn
from petastore.adapters.torch.ragged import RaggedColumn
from petastore.adapters.torch.tensors import is_shareable, tensor_or_list
from petastore.decoding.decoded import Decoded
from petastore.readers.batch import Batch, Columns

__all__ = ["BatchTensors"]

_TENSORS_AT_ONCE = 256
"""Tensors that are cut at one go, but for a batch that has more: some tens of microseconds."""


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
        self, ragged: Mapping[str, RaggedColumn] | None = None, nulls: Mapping[str, NullColumn] | None = None
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
    """The tensors of columns that were made in one go; holds their memory, and not the columns."""

    def __init__(self, columns: Columns, ragged: Mapping[str, RaggedColumn], nulls: Mapping[str, NullColumn]) -> None:
        self._ragged = ragged
        by_name = _filled(columns.by_name, nulls) if nulls else columns.by_name
        self._names = dict.fromkeys(
            made for name in by_name for made in (ragged[name].names if name in ragged else (name,))
        )
        self._stacks = [(names, torch.from_numpy(stack)) for names, stack in columns.stacks if is_shareable(stack)]
        stacked = {name for names, _ in self._stacks for name in names}
        self._single = {
            name: torch.from_numpy(column.values)
            for name, column in by_name.items()
            if name not in stacked and column.missing is None and is_shareable(column.values)
        }
        self._others = {
            name: column for name, column in by_name.items() if name not in stacked and name not in self._single
        }
        self._rows = max((len(column.values) for column in by_name.values()), default=0)

        self._ahead = max(_TENSORS_AT_ONCE // max(len(stacked) + len(self._single), 1), 1)
        self._ready: dict[tuple[int, int], dict[str, Any]] = {}

    def cut(self, batch: Batch) -> dict[str, Any]:
        tensors = self._ready.pop((batch.first, batch.stop), None)
        if tensors is None:
            tensors = self._cut_ahead(batch.first, batch.stop)
        for name, column in self._others.items():
            rows = column.rows(batch.first, batch.stop)
            if name in self._ragged:
                tensors.update(self._ragged[name].tensors(rows))
            else:
                tensors[name] = tensor_or_list(name, rows)
        return tensors

    def _cut_ahead(self, first: int, stop: int) -> dict[str, Any]:
        """The batch [first, stop), and as `_ready` those after it, if they are as large; nearly all are."""
        size = stop - first
        batches = min((self._rows - first) // size, self._ahead) if size else 1
        cut = [self._names.copy() for _ in range(batches)]
        for names, stack in self._stacks:
            for tensors, columns in zip(
                cut, torch.split(stack[:, first : first + batches * size], size, 1), strict=True
            ):
                tensors.update(zip(names, columns.unbind(0), strict=True))
        for name, tensor in self._single.items():
            for tensors, rows in zip(cut, torch.split(tensor[first : first + batches * size], size), strict=True):
                tensors[name] = rows
        self._ready = {(first + place * size, stop + place * size): cut[place] for place in range(1, batches)}
        return cut[0]


def _filled(columns: Mapping[str, Decoded], nulls: Mapping[str, NullColumn]) -> dict[str, Decoded]:
    made: dict[str, Decoded] = {}
    for name, column in columns.items():
        made |= nulls[name].decoded(column) if name in nulls else {name: column}
    return made
