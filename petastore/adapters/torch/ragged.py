"""Columns of arrays whose shapes may differ as tensors: of one shape, padded, with lengths, or nested."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from petastore.adapters.columns import padded, ragged_cells, stacked
from petastore.adapters.ragged import Form, Padded, forms_of, lengths_field, refuse_ragged_windows
from petastore.adapters.torch.tensors import shareable, tensor_or_list
from petastore.dataset import Dataset
from petastore.errors import FileMissingError
from petastore.schema.field import UnischemaField
from petastore.storage.row_groups.asked_columns import Part

__all__ = ["RaggedColumn", "TorchForm", "TorchRaggedWord", "ragged_columns"]

_SAMPLED_ROWS = 1024
"""Rows whose lengths tell whether lists without a declared length are all of one."""

TorchRaggedWord: TypeAlias = Literal["auto", "list", "dense", "padded", "nested"]
"""What becomes of shapes with None, in a word; see `DataLoader`."""

TorchForm: TypeAlias = TorchRaggedWord | Padded
"""What becomes of a column whose shape has None."""


def ragged_columns(
    reader: Any, ragged: TorchForm | Mapping[str, TorchForm], *, by_batch: bool = False
) -> dict[str, RaggedColumn]:
    """The columns of a reader for which a form was asked, and those that come in one unasked.

    Args:
        reader: The reader, or whatever has its `schema`, `dataset` and `transform`.
        ragged: A form, or a mapping from column name to form: see `DataLoader`.
        by_batch: Whether each batch decides what `"auto"` makes of a plain list, or else the first rows of the dataset,
            for all batches.

    Raises:
        InvalidArgumentError: No such form or column, or a column that cannot have it.
    """
    forms = forms_of(ragged, reader.schema, known=get_args(TorchRaggedWord))
    refuse_ragged_windows(reader, [name for name, form in forms.items() if form != "list"], instead="take it as a list")
    asked = {name: RaggedColumn(reader.schema[name], form) for name, form in forms.items()}
    if getattr(reader, "ngram", None) is not None:
        return asked
    unasked = [field for field in reader.schema if _is_plain_list(field) and field.name not in asked]
    dense = set() if by_batch else _lists_of_one_length(reader, [field.name for field in unasked])
    forms_unasked: dict[str, Form] = {
        field.name: "auto" if by_batch else "dense" if field.name in dense else "list" for field in unasked
    }
    settled = {field.name: RaggedColumn(field, forms_unasked[field.name], is_asked_for=False) for field in unasked}
    return settled | asked


def _lists_of_one_length(reader: Any, names: list[str]) -> set[str]:
    """Return the columns of lists whose first rows all have one length, in each of the datasets that are read.

    What a transform's function returns is not known before it is called: none of its columns is among them.
    """
    if not names or (reader.transform is not None and reader.transform.func is not None):
        return set()
    lengths: dict[str, set[int | None]] = {name: set() for name in names}
    for dataset in reader.dataset.datasets:
        for table in _first_tables(dataset, names):
            for name in names:
                lengths[name] |= set(pc.list_value_length(table.column(name)).unique().to_pylist())
    return {name for name, found in lengths.items() if len(found) == 1 and None not in found}


def _first_tables(dataset: Dataset, names: list[str]) -> list[pa.Table]:
    """Return first rows of a dataset, of the first file that is here: others may be on the hosts of other ranks."""
    inventory = dataset.inventory
    groups = np.flatnonzero(inventory.rows)
    for group in groups[np.unique(inventory.file[groups], return_index=True)[1]].tolist():
        rows = min(int(inventory.rows[group]), _SAMPLED_ROWS)
        try:
            tables = list(dataset.reading()(*inventory.place_of(group), [Part(tuple(names), first=rows)]))
        except FileMissingError:
            continue
        return [table.slice(0, rows) for table in tables]
    return []


def _is_plain_list(field: UnischemaField) -> bool:
    """Whether it is a list as plain Parquet has them, which does not say whether all are of one length."""
    return field.codec is None and field.shape == (None,) and field.dtype != np.dtype(object)


@dataclasses.dataclass(frozen=True)
class RaggedColumn:
    """A column of free shape that becomes tensors. A value; picklable.

    Example:
        >>> column = np.array([np.array([1, 2]), np.array([3])], dtype=object)
        >>> RaggedColumn(UnischemaField("words", "int32", (None,)), Padded()).tensors(column)
        {'words': tensor([[1, 2], [3, 0]], dtype=torch.int32), 'words_lengths': tensor([2, 1])}
    """

    field: UnischemaField
    """What the schema says."""

    form: Form
    """`Padded`, or a word; `"auto"` is one tensor where all cells of a batch have one length, and else a list."""

    is_asked_for: bool = True
    """Whether somebody asked for the form."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are made."""
        name = self.field.name
        return (name, lengths_field(self.field).name) if isinstance(self.form, Padded) else (name,)

    def tensors(self, column: NDArray[Any]) -> dict[str, Any]:
        """What becomes of the column of a batch, in memory of its own; lists are of tensors in the reader's memory.

        Args:
            column: One array a row, object array (rows,).

        Raises:
            DecodeError: A value is missing, or of another shape than the schema says; lists have None for the former.
        """
        name = self.field.name
        if self.form == "list" or (self.form == "auto" and not _are_of_one_length(column)):
            return {name: tensor_or_list(name, column)}
        if self.form in ("auto", "dense"):
            return {name: torch.from_numpy(shareable(name, stacked(self.field, column)))}
        if isinstance(self.form, Padded):
            values, lengths = padded(self.field, column, self.form.value)
            made = (torch.from_numpy(shareable(name, values)), torch.from_numpy(np.ascontiguousarray(lengths)))
            return dict(zip(self.names, made, strict=True))
        free = [axis for axis, size in enumerate(self.field.shape) if size is None]
        return {name: self._jagged(column, free[0]) if len(free) == 1 else self._strided(column)}

    def _jagged(self, column: NDArray[Any], axis: int) -> torch.Tensor:
        """All cells side by side along their free dimension, in one tensor that is cut by offsets."""
        cells, shapes = ragged_cells(self.field, column)
        nothing: Any = np.empty([size or 0 for size in self.field.shape], self.field.dtype)
        packed = np.concatenate([nothing, *cells], axis=axis, dtype=self.field.dtype, casting="same_kind")
        offsets = np.concatenate([[0], np.cumsum(shapes[:, axis])])
        values = torch.from_numpy(shareable(self.field.name, packed))
        return torch.nested.nested_tensor_from_jagged(values, torch.from_numpy(offsets), jagged_dim=axis + 1)

    def _strided(self, column: NDArray[Any]) -> torch.Tensor:
        cells, _ = ragged_cells(self.field, column)
        name = self.field.name
        return torch.nested.nested_tensor(
            [torch.from_numpy(shareable(name, np.asarray(cell, self.field.dtype))) for cell in cells]
        )


def _are_of_one_length(column: NDArray[Any]) -> bool:
    lengths = {-1 if cell is None else len(cell) for cell in column}
    return len(lengths) == 1 and -1 not in lengths
