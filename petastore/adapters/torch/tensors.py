"""Convert columns of a reader to batches of PyTorch tensors; also ragged columns.

Tensors share the memory of the reader's arrays wherever torch allows it. NumPy slices the arrays, and each slice
becomes a tensor in a microsecond or less. Slicing tensors takes equally long, but every call of torch releases the GIL,
and the training thread then waits for worker threads that hold the GIL: with a batch every 145 ms, every third batch
was 1 to 6 ms late. If many columns share one array, one call makes the tensors of all columns, which takes 0.17 µs per
column.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.autograd.profiler
from numpy.typing import NDArray

from petastore.adapters.column_plans import ColumnPlan, column_plans
from petastore.adapters.nulls import Nulls, nanoseconds, present
from petastore.adapters.ragged import Form, Padded
from petastore.adapters.ragged_arrays import ragged_cells
from petastore.dataset import Dataset
from petastore.decoding.decode import Decoded
from petastore.errors import FileMissingError, InvalidArgumentError
from petastore.readers.batch import Batch, Columns
from petastore.schema.field import UnischemaField
from petastore.storage.row_groups.asked_columns import Part

__all__ = [
    "RANGE",
    "BatchTensors",
    "TorchForm",
    "next_in_profile",
    "refuse_dtypes",
    "refuse_forms_of_rows",
    "shareable",
    "tensor_or_list",
    "tensors_of",
    "torch_plans",
]


_MANY: Final = 8
"""Minimum number of columns in one array for which one torch call for all columns is faster than one per column."""

_PROMOTED: Final[dict[np.dtype[Any], np.dtype[Any]]] = {
    np.dtype(np.uint16): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int64),
}

RANGE: Final = "enumerate(DataLoader)#petastore.DataLoader.__next__"
"""Name of a batch's range in torch's profiler, in the form of torch's own loaders: profiler views sum such ranges as
time of the data loader."""


def next_in_profile(batches: Iterator[Any]) -> Any:
    """Return the next batch; if a torch profiler runs, record this as a range."""
    profiler = torch.autograd.profiler
    if profiler._is_profiler_enabled:  # noqa: SLF001 - torch's own modules also use this attribute
        with profiler.record_function(RANGE):
            return next(batches)
    return next(batches)


class BatchTensors:
    """Converts batches to dicts of tensors. Not thread-safe.

    Args:
        plans: Conversion of each column, by name; columns without a conversion are unchanged.

    Example:
        >>> import numpy as np
        >>> from petastore.plan.cursor import Cursor
        >>> from petastore.decoding.decode import Decoded
        >>> columns = Columns({"id": Decoded(np.arange(5), None), "word": Decoded(np.array(["a"] * 5, object), None)})
        >>> BatchTensors()(Batch(columns, 2, 4, Cursor()))
        {'id': tensor([2, 3]), 'word': ['a', 'a']}
    """

    def __init__(self, plans: Mapping[str, ColumnPlan] | None = None) -> None:
        self._plans = plans or {}
        # Weak keys, so that this cache does not keep columns in memory after their batches are deleted.
        self._tensors: weakref.WeakKeyDictionary[Columns, _Tensors] = weakref.WeakKeyDictionary()

    def __call__(self, batch: Batch) -> dict[str, Any]:
        """Return a dict from column name to tensor; see `DataLoader`.

        A column that a tensor cannot hold is a list.
        """
        tensors = self._tensors.get(batch.source)
        if tensors is None:
            tensors = self._tensors[batch.source] = _Tensors(batch.source, self._plans)
        return tensors.cut(batch)


class _Tensors:
    """Arrays of one `Columns` object, grouped by their conversion to tensors.

    It does not reference the `Columns` object, so that the cache can drop it.
    """

    def __init__(self, columns: Columns, plans: Mapping[str, ColumnPlan]) -> None:
        by_name: dict[str, Decoded] = {}
        self._formed: dict[str, ColumnPlan] = {}
        self._names: dict[str, Any] = {}
        for name, column in columns.by_name.items():
            plan = plans.get(name)
            made = {name: column}
            if plan is not None and plan.null is not None:
                filled = plan.filled(column.rows(0, len(column.values)))
                made = {each: Decoded(values, None) for each, values in filled.items()}
            by_name |= made
            if plan is not None and plan.form not in (None, "list"):
                self._formed[name] = plan
                self._names |= dict.fromkeys(plan.names)
            self._names |= dict.fromkeys(made)
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
            if name in self._formed:
                tensors.update(tensors_of(self._formed[name], rows))
            else:
                tensors[name] = tensor_or_list(name, rows)
        return tensors


def tensors_of(plan: ColumnPlan, column: NDArray[Any]) -> dict[str, Any]:
    """Return the tensors of a column by name, in the form that its plan defines.

    Padded, stacked and nested tensors are in new memory. Other columns and lists share the reader's memory if torch
    supports their dtype.

    Args:
        plan: Conversion of the column.
        column: One array per row, an object array (rows,), or numbers; missing values are filled already, if there is a
            fill value.

    Raises:
        DecodeError: A value is missing and the form is not `"list"`, or a value has another shape than declared.

    Example:
        >>> from petastore.adapters.ragged import Padded
        >>> column = np.array([np.array([1, 2]), np.array([3])], dtype=object)
        >>> tensors_of(ColumnPlan(UnischemaField("words", "int32", (None,)), Padded()), column)
        {'words': tensor([[1, 2], [3, 0]], dtype=torch.int32), 'words_lengths': tensor([2, 1])}
    """
    if plan.form == "nested":
        return {plan.field.name: _nested(plan.field, column)}
    return {name: tensor_or_list(name, values) for name, values in plan.shaped(column).items()}


def _nested(field: UnischemaField, column: NDArray[Any]) -> torch.Tensor:
    """Return a column as a nested tensor.

    The layout is jagged for one variable dimension, else strided.
    """
    cells, shapes = ragged_cells(field, column)
    free = [axis for axis, size in enumerate(field.shape) if size is None]
    if len(free) > 1:
        return torch.nested.nested_tensor(
            [torch.from_numpy(shareable(field.name, np.asarray(cell, field.dtype))) for cell in cells]
        )
    (axis,) = free
    # The jagged layout needs all cells in one tensor, concatenated along the variable dimension, and their offsets.
    nothing: Any = np.empty([size or 0 for size in field.shape], field.dtype)
    packed = np.concatenate([nothing, *cells], axis=axis, dtype=field.dtype, casting="same_kind")
    offsets = np.concatenate([[0], np.cumsum(shapes[:, axis])])
    values = torch.from_numpy(shareable(field.name, packed))
    return torch.nested.nested_tensor_from_jagged(values, torch.from_numpy(offsets), jagged_dim=axis + 1)


def tensor_or_list(name: str, column: NDArray[Any]) -> Any:
    """Return a column as one tensor, or as a list if a tensor cannot hold it.

    The tensor is zero-copy if torch supports the dtype and the memory layout.
    """
    if column.dtype == np.dtype(object):
        return [_cell(name, cell) for cell in column]
    return torch.from_numpy(shareable(name, present(name, column)))


def _cell(name: str, cell: Any) -> Any:
    if not isinstance(cell, np.ndarray):
        return cell
    if cell.dtype.kind == "O" and cell.ndim:  # object array of a window's rows
        return [_cell(name, value) for value in cell]
    if cell.dtype.kind in "OSU":
        return cell.tolist()
    return torch.from_numpy(shareable(name, present(name, cell) if cell.ndim else cell))


def is_shareable(array: NDArray[Any]) -> bool:
    """Return whether torch can share the array without a copy.

    `shareable` returns such an array unchanged.
    """
    if array.dtype.kind not in "biufc" or not array.dtype.isnative or array.dtype in _PROMOTED:
        return False
    steps_backwards = any(step < 0 or step % array.itemsize for step in array.strides)
    return bool(array.flags.behaved) and not steps_backwards


def shareable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in a dtype and layout that torch can share, copied if needed."""
    if array.dtype.kind in "mM":
        array = nanoseconds(name, array)
    if is_shareable(array):
        return array
    native = array.dtype.newbyteorder("=")
    return array.astype(_PROMOTED.get(native, native), order="C", copy=True)


def refuse_dtypes(reader: Any) -> None:
    """Raise an error if a column of a reader has a dtype that torch does not support."""
    for field in reader.schema:
        if field.dtype.char in "gG":
            raise InvalidArgumentError(
                f"column {field.name!r} must have a dtype that torch supports, got {field.dtype}. Leave the column out "
                "with schema_fields, or convert it in a transform_spec"
            )


_SAMPLED_ROWS = 1024
"""Maximum number of rows whose list lengths decide whether `ragged="auto"` means `"dense"`."""

_SAMPLED_ROW_GROUPS = 8
"""Maximum number of row groups from which these rows come."""

TorchRaggedWord: TypeAlias = Literal["auto", "list", "dense", "padded", "nested"]
"""Names of the forms (representations in a batch) of a column whose shape has None; see `DataLoader`."""

TorchForm: TypeAlias = TorchRaggedWord | Padded
"""Form (representation in a batch) of a column whose shape has None."""


def torch_plans(
    reader: Any,
    ragged: TorchForm | Mapping[str, TorchForm],
    nulls: Nulls,
    *,
    by_batch: bool = False,
    is_checked: bool = True,
) -> dict[str, ColumnPlan]:
    """Return how each column of a reader is converted to tensors, by name.

    Args:
        reader: The reader, or an object with its `schema`, `dataset`, `plan` and `transform`.
        ragged: Form, or mapping from column name to form; see `DataLoader`.
        nulls: Treatment of missing values; see `DataLoader`.
        by_batch: Whether `"auto"` chooses the form of plain lists for each batch; otherwise the first rows of the
            dataset determine the form of all batches.
        is_checked: Whether to raise an error now if null counts in the footers show missing values without a fill
            value.

    Raises:
        InvalidArgumentError: The form or column does not exist, the column does not support the form, or torch lacks
            its dtype.
        DecodeError: `is_checked` is set, and a column without a fill value has missing values.
    """
    refuse_dtypes(reader)
    plans = column_plans(reader, ragged, nulls, known=get_args(TorchRaggedWord), is_checked=is_checked)
    if getattr(reader, "ngram", None) is not None:
        return plans
    unasked = [name for name, plan in plans.items() if plan.form is None and _is_plain_list(plan.field)]
    dense = set() if by_batch else _lists_of_one_length(reader, unasked)
    for name in unasked:
        form: Form = "auto" if by_batch else "dense" if name in dense else "list"
        plans[name] = dataclasses.replace(plans[name], form=form, is_asked_for=False)
    return plans


def refuse_forms_of_rows(plans: Mapping[str, ColumnPlan], why: str) -> None:
    """Raise an error if `ragged=` or `nulls=` is set although rows are yielded singly.

    Args:
        plans: Conversion of each column, by name.
        why: End of the error message: the reason, and the advice.

    Raises:
        InvalidArgumentError: A column has a requested ragged form or a treatment of missing values.
    """
    for name, plan in plans.items():
        if plan.form is not None and plan.is_asked_for:
            raise InvalidArgumentError(f"ragged must be left out, got {plan.form!r} for column {name!r}: {why}")
    for name, plan in plans.items():
        if plan.null is not None:
            given = plan.null.value if plan.null.mask is None else "mask"
            raise InvalidArgumentError(f"nulls must be left out, got {given!r} for column {name!r}: {why}")


def _lists_of_one_length(reader: Any, names: list[str]) -> set[str]:
    """Return the list columns whose first rows have equal lengths in all datasets.

    With a transform function, the result is empty, because lengths are not known before the function is called.
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
    """Return tables with the first rows: up to 1,024 rows of up to 8 row groups, in file order.

    Files that are missing on this host are skipped, because they may be on other hosts.
    """
    inventory, reading = dataset.inventory, dataset.reading()
    tables: list[pa.Table] = []
    missing: set[int] = set()
    sampled, left = 0, _SAMPLED_ROWS
    for group in np.flatnonzero(inventory.rows).tolist():
        if left == 0 or sampled == _SAMPLED_ROW_GROUPS:
            break
        if int(inventory.file[group]) in missing:
            continue
        rows = min(int(inventory.rows[group]), left)
        try:
            found = list(reading(*inventory.place_of(group), [Part(tuple(names), first=rows)]))
        except FileMissingError:
            missing.add(int(inventory.file[group]))
            continue
        tables += [table.slice(0, rows) for table in found]
        sampled, left = sampled + 1, left - rows
    return tables


def _is_plain_list(field: UnischemaField) -> bool:
    """Return whether a field is a list column of plain Parquet with variable lengths."""
    return field.codec is None and field.shape == (None,) and field.dtype != np.dtype(object)
