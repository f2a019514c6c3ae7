"""Missing values: what a tensor has in their place, which somebody has to say. Knows no framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.adapters.columns import missing_rows
from petastore.adapters.ragged import holds
from petastore.decoding.decoded import Decoded
from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField

__all__ = ["Fill", "NullColumn", "NullWord", "Nulls", "nulls_of", "nulls_of_reader"]

NullWord: TypeAlias = Literal["error", "mask"]
"""What becomes of missing values, in a word; see `nulls_of`."""

Nulls: TypeAlias = NullWord | Mapping[str, Any] | Any
"""A word, or a value of any type but text; or one of them for each column by name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fill:
    """A value that stands where a value is missing, for `nulls=`.

    Text needs it, so that it is not taken for a word such as `"mask"`; other values may be given as they are.

    Example:
        >>> Fill("unknown")
        Fill(value='unknown')
    """

    value: Any
    """The value that replaces missing values; the column must be able to hold it."""


_TEXTS: dict[Any, Any] = {np.str_: "", np.bytes_: b"", Decimal: Decimal(0)}
"""What is nothing, of each dtype whose arrays hold Python objects."""


@dataclasses.dataclass(frozen=True, eq=False)
class NullColumn:
    """A column whose missing values have something in their place.

    Example:
        >>> age = UnischemaField("age", "int64", nullable=True)
        >>> column = np.ma.masked_equal([7, -1, 9], -1)
        >>> NullColumn(age, np.int64(0)).filled(column), NullColumn(age, np.int64(0)).valid(column)
        (array([7, 0, 9]), array([ True, False,  True]))
    """

    field: UnischemaField
    """What the schema says of the column; of windows, of the rows in them."""

    value: Any
    """What stands where a value is missing: of the field's shape, each free dimension as long as it is here."""

    mask: str | None = None
    """The name of a column of booleans that is added, True where a value is there; None adds none."""

    is_windows: bool = False
    """Whether each row of the column is a window of rows, each of which may be missing."""

    def filled(self, column: NDArray[Any]) -> NDArray[Any]:
        """The column of a batch without missing values; itself where none is missing.

        Args:
            column: `(rows, ...)`, masked where values are missing; object arrays, `(rows,)` or of windows
                `(rows, length)`, have None.
        """
        if column.dtype != np.dtype(object):
            if not isinstance(column, np.ma.MaskedArray):
                return column
            return np.where(np.ma.getmaskarray(column), np.asarray(self.value, column.dtype), column.data)
        return self._without_none(column.reshape(-1)).reshape(column.shape)

    def _without_none(self, values: NDArray[Any]) -> NDArray[Any]:
        gone = np.flatnonzero(missing_rows(values))
        if len(gone):
            values = values.copy()
            for place in gone:
                values[place] = self.value
        return values

    def valid(self, column: NDArray[Any]) -> NDArray[np.bool_]:
        """Which values are there: `(rows,)`, or of windows `(rows, length)`."""
        if not self.is_windows:
            return ~missing_rows(column)
        if column.dtype == np.dtype(object):
            return ~missing_rows(column.reshape(-1)).reshape(column.shape)
        inner = tuple(range(2, column.ndim))
        return ~np.logical_or.reduce(np.ma.getmaskarray(column), axis=inner, dtype=np.bool_)

    def decoded(self, column: Decoded) -> dict[str, Decoded]:
        """The columns that are made of a reader's column, by name."""
        made = self.columns(column.rows(0, len(column.values)))
        return {name: Decoded(values, None) for name, values in made.items()}

    def columns(self, column: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The column of a batch without missing values, and the mask where one is added, by name."""
        made = {self.field.name: self.filled(column)}
        return made if self.mask is None else made | {self.mask: self.valid(column)}


def nulls_of_reader(nulls: Nulls, reader: Any) -> dict[str, NullColumn]:
    """`nulls_of` the columns of a reader, or of whatever has its `schema`."""
    return nulls_of(nulls, reader.schema, are_windows=getattr(reader, "ngram", None) is not None)


def nulls_of(nulls: Nulls, fields: Iterable[UnischemaField], *, are_windows: bool = False) -> dict[str, NullColumn]:
    """The columns whose missing values have something in their place.

    Args:
        nulls: `"error"`, `"mask"` or a value, for all nullable columns; or a mapping from column name to one of them,
            where what is not named is `"error"`. A value that is text is given as `Fill(text)`.
        fields: The columns; of windows, with the length of windows as their first dimension.
        are_windows: Whether rows are windows.

    Raises:
        InvalidArgumentError: There is no such column, a value that it does not hold, or a column that has the name of a
            mask.

    Example:
        >>> fields = [UnischemaField("id", "int32"), UnischemaField("age", "int64", nullable=True)]
        >>> nulls_of("mask", fields)["age"].mask
        'age_valid'
        >>> nulls_of({"age": "old"}, fields)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: nulls= puts 'old' in the place of missing values of 'age', which is no
        int64; say
            nulls={'age': …} with a value that is, "mask" or "error"
    """
    by_name = {field.name: field for field in fields}
    if isinstance(nulls, Mapping):
        unknown = [name for name in nulls if name not in by_name]
        if unknown:
            raise InvalidArgumentError(
                f"nulls= names the column {unknown[0]!r}, which there is not; there are "
                f"{', '.join(map(repr, by_name)) or 'none'}"
            )
        asked = dict(nulls)
    else:
        asked = {field.name: nulls for field in by_name.values() if field.nullable}
    return {
        name: _null_column(by_name[name], policy, by_name, are_windows=are_windows)
        for name, policy in asked.items()
        if not _is_word(policy, "error")
    }


def _is_word(policy: Any, word: NullWord) -> bool:
    return isinstance(policy, str) and policy == word


def _null_column(
    field: UnischemaField, policy: Any, fields: Mapping[str, UnischemaField], *, are_windows: bool
) -> NullColumn:
    inner = dataclasses.replace(field, shape=field.shape[1:], codec=None) if are_windows else field
    if not _is_word(policy, "mask"):
        value = _value(inner, policy.value if isinstance(policy, Fill) else policy)
        if isinstance(policy, str):
            raise InvalidArgumentError(
                f"nulls must be 'error', 'mask' or a value for {field.name!r}, got {policy!r}. Write Fill({policy!r}) "
                "from petastore.adapters.nulls to put this text in the place of missing values"
            )
        return NullColumn(inner, value, None, are_windows)
    mask = f"{field.name}_valid"
    if mask in fields:
        raise InvalidArgumentError(
            f"nulls='mask' of {field.name!r} adds a column {mask!r}, but there is one already; leave it out with "
            "schema_fields, or rename it in a transform_spec"
        )
    if inner.numpy_dtype is np.object_ and inner.is_scalar:
        return NullColumn(inner, None, mask, are_windows)  # a struct or map: it is in a list, where None is None
    return NullColumn(inner, _value(inner, _TEXTS.get(field.numpy_dtype, 0), is_empty=True), mask, are_windows)


def _value(field: UnischemaField, value: Any, *, is_empty: bool = False) -> Any:
    """What stands for a missing value of a field; `is_empty` makes free dimensions 0 long."""
    if field.dtype != np.dtype(object):
        array = _array(field, value, field.dtype)
    elif field.numpy_dtype is np.object_ and field.is_scalar:
        return value
    elif field.is_scalar:
        return _text(field, value)
    else:
        array = _array(field, value, np.dtype(object))
        for one in array.flat:
            _text(field, one)
    if is_empty and None in field.shape:
        return np.zeros([size or 0 for size in field.shape], array.dtype)
    if None in field.shape:
        fits = array.ndim == len(field.shape) and all(
            declared in (None, size) for declared, size in zip(field.shape, array.shape, strict=True)
        )
        if not fits:
            raise _no_such(field, value)
        return array
    shape = tuple(size for size in field.shape if size is not None)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise _no_such(field, value) from None


def _array(field: UnischemaField, value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    values = np.asarray(value, dtype=object)
    if dtype != np.dtype(object) and not all(holds(dtype, one) for one in values.flat):
        raise _no_such(field, value)
    return values.astype(dtype)


def _text(field: UnischemaField, value: Any) -> Any:
    kind = type(_TEXTS.get(field.numpy_dtype, value))
    if not isinstance(value, kind):
        raise _no_such(field, value)
    return value


def _no_such(field: UnischemaField, value: Any) -> InvalidArgumentError:
    what = f"{field.dtype_name}{list(field.shape) or ''}"
    return InvalidArgumentError(
        f"nulls= puts {value!r} in the place of missing values of {field.name!r}, which is no {what}; say "
        f'nulls={{{field.name!r}: …}} with a value that is, "mask" or "error"'
    )
