"""Batches as dicts of NumPy arrays, for frameworks that take these: nothing is missing, and times are nanoseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from petastore.adapters.columns import nanoseconds, padded, present
from petastore.adapters.nulls import NullColumn, Nulls, nulls_of_reader
from petastore.adapters.ragged import Form, Padded, forms_of, lengths_field, refuse_ragged_windows
from petastore.adapters.stored_nulls import refuse_stored_nulls
from petastore.readers.batch import Batch

__all__ = ["ArrayForm", "HostArrays"]

ArrayRaggedWord: TypeAlias = Literal["list", "padded"]
"""What becomes of shapes with None, in a word."""

ArrayForm: TypeAlias = ArrayRaggedWord | Padded
"""What becomes of a column whose shape has None."""

_Convert: TypeAlias = Callable[[NDArray[Any]], dict[str, NDArray[Any]]]


class HostArrays:
    """Makes dicts of arrays of the batches of a reader. Immutable; thread-safe.

    Numbers and booleans keep their dtype, and share the reader's memory; text, bytes, `Decimal` and, where they are
    `"list"`, cells of free shape are object arrays `(rows,)`.

    Args:
        reader: Whose batches they are.
        ragged: What becomes of shapes with None: `"list"`, or `"padded"` and `Padded(value)`.
        nulls: What stands where a value is missing.

    Raises:
        InvalidArgumentError: `ragged` or `nulls` cannot be.

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
        forms = forms_of(ragged, reader.schema, known=get_args(ArrayRaggedWord))
        refuse_ragged_windows(reader, forms, instead="take it as a list")
        self.padded = frozenset(forms)
        """Names of columns whose shape depends on what is in the batch."""
        filled = nulls_of_reader(nulls, reader)
        refuse_stored_nulls(reader, filled)
        self._conversions: dict[str, _Convert] = {
            field.name: _conversion(field, forms.get(field.name), filled.get(field.name)) for field in reader.schema
        }

    def __call__(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """The columns of a batch.

        Raises:
            DecodeError: A value is missing, and nothing was said to stand there.
        """
        made: dict[str, NDArray[Any]] = {}
        for name, column in batch.columns.items():
            convert = self._conversions.get(name)  # `valid` of last_batch="pad" is no field of the reader
            made |= {name: column} if convert is None else convert(column)
        return made


def _conversion(field: Any, form: Form | None, null: NullColumn | None) -> _Convert:
    def convert(column: NDArray[Any]) -> dict[str, NDArray[Any]]:
        values = column if null is None else null.filled(column)
        if isinstance(form, Padded):
            filled, lengths = padded(field, values, form.value)
            made = {field.name: filled, lengths_field(field).name: np.ascontiguousarray(lengths)}
        else:
            made = {field.name: _plain(field.name, values)}
        if null is not None and null.mask is not None:
            made[null.mask] = null.valid(column)
        return made

    return convert


def _plain(name: str, column: NDArray[Any]) -> NDArray[Any]:
    values = present(name, column)
    if values.dtype.kind in "mM":
        return nanoseconds(name, values)
    return values.astype(values.dtype.newbyteorder("="), copy=False)
