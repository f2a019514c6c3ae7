"""Column plans: how each column of a reader is converted to NumPy arrays.

A plan is made once for a column, and then converts batch after batch. All adapters use this module for dtypes, padding
and missing values. Each adapter then makes tensors of the arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from petastore.adapters.nulls import NullColumn, Nulls, nanoseconds, nulls_of, present, refuse_stored_nulls
from petastore.adapters.ragged import Form, Padded, RaggedWord, forms_of, lengths_field, refuse_ragged_windows
from petastore.adapters.ragged_arrays import padded, stacked
from petastore.readers.batch import Batch, Columns
from petastore.schema.field import UnischemaField

__all__ = ["ArrayForm", "ColumnPlan", "HostArrays", "Run", "column_plans", "runs_of"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Run:
    """Consecutive batches whose rows are stored one after another in the same columns."""

    source: Columns
    """Columns of which the batches are slices."""

    first: int
    """Index of the first batch's first row in `source`."""

    sizes: tuple[int, ...]
    """Number of rows of each batch."""

    def column(self, name: str) -> NDArray[Any]:
        """Return one column with the rows of all batches, zero-copy.

        The array is masked if numbers or times are missing; object arrays have None instead.
        """
        return self.source.by_name[name].rows(self.first, self.first + sum(self.sizes))

    def single(self) -> Iterator[Run]:
        """Yield each batch as a run of one batch."""
        first = self.first
        for size in self.sizes:
            yield Run(self.source, first, (size,))
            first += size


def runs_of(batches: Iterable[Batch], *, most: int) -> Iterator[Run]:
    """Group batches into runs (consecutive batches of the same columns), in order.

    A batch without rows is a separate run. A run that ends with the last row of its columns is yielded at once, without
    waiting for the next batch.

    Args:
        batches: Batches from `Reader.iter_batches`.
        most: Maximum number of batches in a run.

    Example:
        >>> import numpy as np
        >>> from petastore.decoding.decode import Decoded
        >>> from petastore.plan.cursor import Cursor
        >>> made = [Columns({"id": Decoded(np.arange(rows), None)}) for rows in (2, 5)]
        >>> batches = [Batch(made[0], 0, 2, Cursor()), Batch(made[1], 0, 3, Cursor()), Batch(made[1], 3, 5, Cursor())]
        >>> [(run.column("id").tolist(), run.sizes) for run in runs_of(batches, most=10)]
        [([0, 1], (2,)), ([0, 1, 2, 3, 4], (3, 2))]
    """
    source: Columns | None = None
    first, rows = 0, 0
    sizes: list[int] = []
    for batch in batches:
        if sizes and (batch.source is not source or batch.stop == batch.first):
            yield Run(source or batch.source, first, tuple(sizes))
            sizes = []
        if batch.source is not source:
            source, rows = batch.source, _rows(batch.source)
        if not sizes:
            first = batch.first
        sizes.append(batch.stop - batch.first)
        if batch.stop == rows or len(sizes) == most or batch.stop == batch.first:
            yield Run(source, first, tuple(sizes))
            sizes = []
    if sizes and source is not None:
        yield Run(source, first, tuple(sizes))


def _rows(columns: Columns) -> int:
    return max((len(column.values) for column in columns.by_name.values()), default=0)


ArrayRaggedWord: TypeAlias = Literal["list", "padded"]
"""Names of the forms (representations in a batch) of a column whose shape has None."""

ArrayForm: TypeAlias = ArrayRaggedWord | Padded
"""Form (representation in a batch) of a column whose shape has None."""


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnPlan:
    """Conversion of one column of a reader's batches to NumPy arrays. Picklable.

    Example:
        >>> column = np.array([np.array([1, 2]), np.array([3])], dtype=object)
        >>> ColumnPlan(UnischemaField("words", "int32", (None,)), Padded()).arrays(column)
        {'words': array([[1, 2],
               [3, 0]], dtype=int32), 'words_lengths': array([2, 1])}
    """

    field: UnischemaField
    """Field of the column in the schema."""

    form: Form | None = None
    """Form (representation in a batch) of a ragged column, whose arrays differ in shape.

    `"auto"` stacks the cells of a batch if all have the same length, otherwise leaves them unchanged. None leaves the
    cells unchanged; the adapter then applies the default form of its framework.
    """

    null: NullColumn | None = None
    """Fill value for missing values; None leaves them, and a conversion to a dense tensor then raises an error."""

    is_asked_for: bool = True
    """Whether the caller chose the form with `ragged=`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the output columns without the mask: the column, and for a padded column also its lengths."""
        name = self.field.name
        return (name, lengths_field(self.field).name) if isinstance(self.form, Padded) else (name,)

    def arrays(self, column: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Convert one column of a batch; return its output columns as a dict by name.

        Missing values are replaced by the fill value, and ragged values are padded or stacked. The dict also has the
        mask and the lengths, if the plan has them.

        Args:
            column: Array `(rows, ...)`, masked or with None for missing values.

        Raises:
            DecodeError: A value that is padded or stacked has another shape than the schema, or is missing without a
                fill value.
        """
        made = self.filled(column)
        return self.shaped(made.pop(self.field.name)) | made

    def filled(self, column: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Fill missing values; return the column, and its mask if the plan has one, as a dict by name."""
        if self.null is None:
            return {self.field.name: column}
        made = {self.field.name: self.null.filled(column)}
        return made if self.null.mask is None else made | {self.null.mask: self.null.valid(column)}

    def shaped(self, column: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Convert values without nulls; return the output columns as a dict by name.

        Values are padded, with a column of lengths; or stacked in one array; or unchanged.

        Raises:
            DecodeError: A value that is padded or stacked is missing, or has another shape than the schema.
        """
        name = self.field.name
        if isinstance(self.form, Padded):
            values, lengths = padded(self.field, column, self.form.value)
            return dict(zip(self.names, (values, np.ascontiguousarray(lengths)), strict=True))
        if self.form == "dense" or (self.form == "auto" and _are_of_one_length(column)):
            return {name: stacked(self.field, column)}
        return {name: column}


def _are_of_one_length(column: NDArray[Any]) -> bool:
    lengths = {-1 if cell is None else len(cell) for cell in column}
    return len(lengths) == 1 and -1 not in lengths


def column_plans(
    reader: Any,
    ragged: Form | Mapping[str, Form],
    nulls: Nulls,
    *,
    known: Sequence[RaggedWord],
    fields: Iterable[UnischemaField] | None = None,
    is_checked: bool = True,
) -> dict[str, ColumnPlan]:
    """Return a dict from column name to the conversion of the column for a framework.

    Args:
        reader: The reader, or an object with its `schema`, `dataset`, `plan` and `transform`.
        ragged: The form of columns whose shape has None, or forms by column name.
        nulls: Treatment of missing values, or a dict of treatments by column name; see `nulls_of`.
        known: Names of the forms that the framework supports, the default first.
        fields: Columns that are passed to the framework; None means all.
        is_checked: Whether to raise an error now if null counts in the footers show missing values without a fill
            value.

    Raises:
        InvalidArgumentError: `ragged` or `nulls` does not fit the columns.
        DecodeError: `is_checked` is set, and a column has missing values but no fill value.
    """
    columns = list(reader.schema if fields is None else fields)
    forms = forms_of(ragged, columns, known=known)
    refuse_ragged_windows(reader, {name: form for name, form in forms.items() if form != "list"}, default=known[0])
    filled = nulls_of(nulls, reader.schema, are_windows=getattr(reader, "ngram", None) is not None)
    if is_checked:
        refuse_stored_nulls(reader, filled)
    return {field.name: ColumnPlan(field, forms.get(field.name), filled.get(field.name)) for field in columns}


class HostArrays:
    """Conversion of a reader's batches to dicts of arrays. Immutable; thread-safe.

    Numbers and booleans keep their dtype and share the reader's memory. Text, bytes, `Decimal` and, with
    `ragged="list"`, arrays of variable shape are object arrays `(rows,)`.

    Args:
        reader: Reader of the batches.
        ragged: Form of columns whose shape has None: `"list"`, `"padded"` or `Padded(value)`.
        nulls: Treatment of missing values: `"error"`, `"mask"` or a fill value; see `nulls_of`.

    Raises:
        InvalidArgumentError: `ragged` or `nulls` does not fit the columns.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("words", [petastore.UnischemaField("words", "int32", (None,))])
        >>> url = tempfile.mkdtemp() + "/words"
        >>> _ = petastore.write_dataset(url, schema, [{"words": np.arange(n, dtype="int32")} for n in (2, 1)])
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     made = HostArrays(reader, ragged="padded")
        ...     [made(batch) for batch in reader.iter_batches(2)]
        [{'words': array([[0, 1], [0, 0]], dtype=int32), 'words_lengths': array([2, 1])}]
    """

    def __init__(
        self, reader: Any, *, ragged: ArrayForm | Mapping[str, ArrayForm] = "list", nulls: Nulls = "error"
    ) -> None:
        self._plans = column_plans(reader, ragged, nulls, known=get_args(ArrayRaggedWord))
        self.padded = frozenset(name for name, plan in self._plans.items() if plan.form is not None)
        """Names of padded columns, whose shape depends on the rows of the batch."""

    def __call__(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """Return the converted columns of a batch, by name.

        Raises:
            DecodeError: A value is missing, and has no fill value.
        """
        made: dict[str, NDArray[Any]] = {}
        for name, column in batch.columns.items():
            plan = self._plans.get(name)  # the column `valid` of last_batch="pad" has no field in the schema
            made |= {name: column} if plan is None else plan.arrays(column)
        return {name: _plain(name, column) for name, column in made.items()}


def _plain(name: str, column: NDArray[Any]) -> NDArray[Any]:
    values = present(name, column)
    if values.dtype.kind in "mM":
        return nanoseconds(name, values)
    return values.astype(values.dtype.newbyteorder("="), copy=False)
