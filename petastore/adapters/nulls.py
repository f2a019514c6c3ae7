"""Missing values (`nulls=`) and times, which tensors cannot store.

Missing values become fill values, with a mask on request. Times become integer nanoseconds.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.adapters.ragged import holds
from petastore.dataset import Dataset
from petastore.errors import DecodeError, InvalidArgumentError, StorageError
from petastore.plan.plan import Plan
from petastore.schema.field import UnischemaField
from petastore.schema.values import ATTOSECONDS, masked_rows
from petastore.storage.footers.chunk_metadata import ChunkContents, chunk_contents

__all__ = ["Fill", "NullColumn", "Nulls", "missing_rows", "nanoseconds", "nulls_of", "present", "refuse_stored_nulls"]


_NANOSECONDS = {unit: size // 10**9 for unit, size in ATTOSECONDS.items() if size >= 10**9}
"""Nanoseconds in each time unit; years, months and units below a nanosecond are missing."""


def present(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """Return the column as a plain array without a copy; raise if values are missing.

    Args:
        name: The column's name, for the message.
        column: An array `(rows, ...)`; in masked arrays and object arrays, values may be missing (masked or None).

    Raises:
        DecodeError: Values are missing, which a tensor cannot hold.

    Example:
        >>> present("age", np.ma.masked_equal([7, -1, 9], -1))
        Traceback (most recent call last):
        petastore.errors.DecodeError: column 'age': nulls= must be set where values are missing, got 'error' and 1 of 3
            values missing. Pass nulls="mask" or nulls={'age': value} to DataLoader, MapDataset or make_tf_dataset, or
            leave out these rows with filters=col('age').is_valid()
        >>> present("age", np.ma.masked_equal([7, 8, 9], -1))
        array([7, 8, 9])
    """
    if column.dtype.kind in "biufc" and not isinstance(column, np.ma.MaskedArray):
        return column  # usual case: numbers without nulls
    missing = int(missing_rows(column).sum())
    if missing:
        raise _values_missing(name, missing, len(column))
    return column.data if isinstance(column, np.ma.MaskedArray) else column


def _values_missing(name: str, missing: int, rows: int) -> DecodeError:
    return DecodeError(
        f"nulls= must be set where values are missing, got 'error' and {missing:,} of {rows:,} values missing. Pass "
        f'nulls="mask" or nulls={{{name!r}: value}} to DataLoader, MapDataset or make_tf_dataset, or leave out these '
        f"rows with filters=col({name!r}).is_valid()",
        column=name,
    )


def missing_rows(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask (rows,) of the rows whose value is missing or partly missing.

    Example:
        >>> missing_rows(np.ma.masked_equal([[1, 2], [0, 3]], 0)), missing_rows(np.array(["a", None], dtype=object))
        (array([False,  True]), array([False,  True]))
    """
    if column.dtype == np.dtype(object) and not isinstance(column, np.ma.MaskedArray):
        has_arrays = column.ndim == 1 and any(issubclass(kind, np.ndarray) for kind in set(map(type, column)))
        is_missing = _is_missing if has_arrays else functools.partial(operator.is_, None)
        return np.fromiter(map(is_missing, column), dtype=np.bool_, count=len(column))
    return masked_rows(column)


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, or is an array with missing items."""
    if not isinstance(value, np.ndarray):
        return value is None
    if value.dtype != np.dtype(object):
        return isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any())
    return any(map(_is_missing, value.flat))


def _without_nulls_inside(value: Any, fill: Any, dimensions: int, dtype: np.dtype[Any]) -> Any:
    """Return one value of a list column, with missing items filled.

    Missing inner lists become empty lists.

    Args:
        value: Array, masked or with None, or an object array of inner lists.
        fill: The value that replaces missing numbers, times or text.
        dimensions: Number of dimensions of the value.
        dtype: Dtype of the column.

    Example:
        >>> _without_nulls_inside(np.ma.masked_equal([7, 0], 0), -1, 1, np.dtype("int64"))
        array([ 7, -1])
    """
    if isinstance(value, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(value), np.asarray(fill, value.dtype), value.data)
    if not _is_missing(value):
        return value
    filled, below = np.empty(value.shape, object), dimensions - value.ndim
    for place, item in enumerate(value.flat):
        if item is None:
            filled.flat[place] = np.empty(0, dtype if below == 1 else object) if below else fill
        else:
            filled.flat[place] = _without_nulls_inside(item, fill, below, dtype) if below else item
    return filled


def nanoseconds(name: str, times: NDArray[Any]) -> NDArray[np.int64]:
    """Return times as integer nanoseconds.

    A `datetime64` counts from 1970-01-01; a `timedelta64` is the duration. NaT becomes the smallest int64, as in NumPy
    itself.

    Raises:
        DecodeError: A value has no whole number of nanoseconds in int64: before 1677-09-21, after 2262-04-11, finer
            than a nanosecond, or a duration in years or months.

    Example:
        >>> nanoseconds("at", np.array(["1970-01-01T00:00:01"], dtype="datetime64[ms]"))
        array([1000000000])
        >>> nanoseconds("at", np.array(["3000-01-01"], dtype="datetime64[D]"))
        Traceback (most recent call last):
        petastore.errors.DecodeError: column 'at': times must be whole nanoseconds that fit into 64 bits, got
            3000-01-01. Leave the column out with schema_fields, or convert it in a transform_spec
    """
    native = times.astype(times.dtype.newbyteorder("="), copy=False)
    counted = _in_fixed_units(name, native)
    unit, count = np.datetime_data(counted.dtype)
    step = count * _NANOSECONDS[unit]
    ticks = counted.view(np.int64)
    if step == 1 and counted is native:
        return ticks
    limit = (2**63 - 1) // step
    # NumPy wraps around silently if a time unit overflows. Converting back and comparing detects this.
    wrong = ((counted.astype(native.dtype) != native) | (ticks > limit) | (ticks < -limit)) & ~np.isnat(native)
    if wrong.any():
        raise DecodeError(
            f"times must be whole nanoseconds that fit into 64 bits, got {native[wrong][0]}. Leave the column out with "
            "schema_fields, or convert it in a transform_spec",
            column=name,
        )
    return np.where(np.isnat(native), ticks, ticks * step)


def _in_fixed_units(name: str, times: NDArray[Any]) -> NDArray[Any]:
    """Return times in a unit that is a fixed number of nanoseconds.

    Years and months become days. Units finer than a nanosecond become nanoseconds, with the rest cut off.

    Raises:
        DecodeError: The times are durations in years or months, which have no fixed length.
    """
    unit, _ = np.datetime_data(times.dtype)
    if unit in _NANOSECONDS:
        return times
    if unit in "YM" and times.dtype.kind == "m":
        raise DecodeError(
            f"durations must have a unit of days or less, got {times.dtype}, which has no fixed length. Convert the "
            "column in a transform_spec, or leave it out with schema_fields",
            column=name,
        )
    return times.astype("datetime64[D]" if unit in "YM" else f"{times.dtype.kind}8[ns]")


NullWord: TypeAlias = Literal["error", "mask"]
"""Names of the treatments of missing values; see `nulls_of`."""

Nulls: TypeAlias = NullWord | Mapping[str, Any] | Any
"""Treatment of missing values: a name, a fill value (text as `Fill`), or a dict by column name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fill:
    """A fill value for missing text, for `nulls=`.

    Other fill values are passed directly. Text needs `Fill`, because `"mask"` and `"error"` are options of `nulls=`.

    Example:
        >>> Fill("unknown")
        Fill(value='unknown')
    """

    value: Any
    """The fill value; the column's dtype must be able to hold it."""


_TEXTS: dict[Any, Any] = {np.str_: "", np.bytes_: b"", Decimal: Decimal(0)}
"""Fill value of `nulls="mask"` for text, bytes and decimals, by dtype."""


@dataclasses.dataclass(frozen=True, eq=False)
class NullColumn:
    """Treatment of one column's missing values: a fill value, and optionally a mask.

    Example:
        >>> age = UnischemaField("age", "int64", nullable=True)
        >>> column = np.ma.masked_equal([7, -1, 9], -1)
        >>> NullColumn(age, np.int64(0)).filled(column), NullColumn(age, np.int64(0)).valid(column)
        (array([7, 0, 9]), array([ True, False,  True]))
    """

    field: UnischemaField
    """Field of the column in the schema; for a column of windows (sequences of rows), the field of one row."""

    value: Any
    """Fill value with the field's shape; variable dimensions have the sizes of this value."""

    inside: Any = None
    """Fill value of nulls inside lists; None leaves them, and a conversion to tensors then raises an error."""

    mask: str | None = None
    """Name of a bool column to add, True for present values; None adds none."""

    is_windows: bool = False
    """Whether each row of the column is a window of rows, each of which may be missing."""

    def filled(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return the column of a batch, with missing values replaced by the fill value.

        Args:
            column: Array `(rows, ...)`, masked where values are missing. An object array `(rows,)`, or of windows
                `(rows, length)`, has None instead.
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
                if values[place] is None:
                    values[place] = self.value
                elif self.inside is not None:
                    dimensions, dtype = len(self.field.shape), self.field.dtype
                    values[place] = _without_nulls_inside(values[place], self.inside, dimensions, dtype)
        return values

    def valid(self, column: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the present values: `(rows,)`, or for windows `(rows, length)`."""
        if not self.is_windows:
            return ~missing_rows(column)
        if column.dtype == np.dtype(object):
            return ~missing_rows(column.reshape(-1)).reshape(column.shape)
        inner = tuple(range(2, column.ndim))
        return ~np.logical_or.reduce(np.ma.getmaskarray(column), axis=inner, dtype=np.bool_)


def nulls_of(nulls: Nulls, fields: Iterable[UnischemaField], *, are_windows: bool = False) -> dict[str, NullColumn]:
    """Return the columns for which `nulls=` fills missing values, as a dict by name.

    Args:
        nulls: `"error"`, `"mask"` or a value, for all nullable columns; or a mapping from column name to one of these,
            where other columns get `"error"`. A text value is passed as `Fill(text)`.
        fields: The columns; for windows, their first dimension is the length of windows.
        are_windows: Whether rows are windows.

    Raises:
        InvalidArgumentError: A column does not exist or cannot hold the fill value, or a column has the name of a mask.

    Example:
        >>> fields = [UnischemaField("id", "int32"), UnischemaField("age", "int64", nullable=True)]
        >>> nulls_of("mask", fields)["age"].mask
        'age_valid'
        >>> nulls_of({"age": "old"}, fields)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: nulls must have a value that 'age' (int64) can hold, got 'old'. Write
            nulls={'age': …} with such a value, "mask" or "error"
    """
    by_name = {field.name: field for field in fields}
    if isinstance(nulls, Mapping):
        unknown = [name for name in nulls if name not in by_name]
        if unknown:
            raise InvalidArgumentError(
                f"nulls must name nullable columns of the reader ({', '.join(map(repr, by_name)) or 'it has none'}), "
                f"got {unknown[0]!r}"
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
                f"nulls must be 'error', 'mask' or a value for {field.name!r}, got {policy!r}. To use "
                f"this text for missing values, pass petastore.adapters.nulls.Fill({policy!r})"
            )
        return NullColumn(inner, value, _inside(inner, policy), None, are_windows)
    mask = f"{field.name}_valid"
    if mask in fields:
        raise InvalidArgumentError(
            f"the name {mask!r} must be free, because nulls='mask' adds a column of this name for {field.name!r}, but "
            "it exists. Leave that column out with schema_fields, or rename it in a transform_spec"
        )
    if inner.numpy_dtype is np.object_ and inner.is_scalar:
        return NullColumn(
            inner, None, None, mask, are_windows
        )  # structs and maps become lists of objects, which can hold None
    empty = _TEXTS.get(field.numpy_dtype, 0)
    return NullColumn(inner, _value(inner, empty, is_empty=True), empty, mask, are_windows)


def _inside(field: UnischemaField, policy: Any) -> Any:
    """Return the fill value for nulls inside lists.

    Return None if the column has no lists, or if the user's fill value is an array.

    Args:
        field: Field of the column.
        policy: Fill value of the user; text may be wrapped in `Fill`.
    """
    value = policy.value if isinstance(policy, Fill) else policy
    return value if field.shape and np.ndim(value) == 0 else None


def _value(field: UnischemaField, value: Any, *, is_empty: bool = False) -> Any:
    """Return the fill value for missing values, with the dtype and shape of the field.

    For a field with variable dimensions, a scalar fills only nulls inside lists; a missing value then becomes an empty
    array.

    Args:
        field: Field of the column.
        value: Fill value of the user, or the empty value of `nulls="mask"`.
        is_empty: Whether a field with variable dimensions gets an empty array, whatever `value` is.

    Raises:
        InvalidArgumentError: The field cannot hold the value.
    """
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
    if None in field.shape and (is_empty or array.ndim == 0):
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
        f"nulls must have a value that {field.name!r} ({what}) can hold, got {value!r}. Write "
        f'nulls={{{field.name!r}: …}} with such a value, "mask" or "error"'
    )


_MOST_FILES = 256
"""Maximum number of files whose footers are checked when a loader is created.

Nulls in other files raise an error when a batch with them is converted.
"""


def refuse_stored_nulls(reader: Any, filled: Collection[str]) -> None:
    """Raise an error now if footers show missing values that have no fill value.

    Columns of numbers and times are checked, unless a transform may fill them. Footers of remote files are checked only
    if they are cached. Missing values that this check does not find raise an error when their batch is converted.

    Args:
        reader: A reader, or an object with its `dataset`, `plan`, `schema` and `transform`.
        filled: Names of the columns for which `nulls=` sets a fill value.

    Raises:
        DecodeError: Values are missing in a row group of which all rows are read; the message names the row group.
    """
    # A mixture is not checked, because its footers also count rows that are not read.
    plan, dataset = reader.plan, getattr(reader, "dataset", None)
    if not isinstance(plan, Plan) or not isinstance(dataset, Dataset):
        return
    if reader.transform is not None or getattr(reader, "ngram", None) is not None:
        return
    fields = [
        field
        for field in reader.schema
        if field.nullable and field.is_scalar and field.dtype.kind != "O" and field.name not in filled
    ]
    if not fields:
        return
    inventory, rows = plan.inventory, plan.inventory.rows
    is_whole = np.ones(len(rows), np.bool_) if plan.selection is None else plan.selection.counts == rows
    for number, groups in itertools.islice(_by_file(inventory.file, is_whole), _MOST_FILES):
        file = inventory.files[number]
        footer = dataset.footers.kept(dataset.location, file)
        if footer is None:
            if dataset.is_fetched:
                continue
            try:
                footer = dataset.footers.get(dataset.location, file)
            except StorageError:
                # The file may be on the host of another rank. If this rank needs the file, reading it raises the error.
                continue
        leaves = {field.name: footer.leaves.get(field.name, range(0)) for field in fields}
        wanted = {own[0] for own in leaves.values() if len(own) == 1}
        known = chunk_contents(footer.encoded, wanted, source=file.path)
        for group, field in itertools.product(groups, fields):
            ordinal, own = int(inventory.ordinal[group]), leaves[field.name]
            nulls = known[ordinal].get(own[0], ChunkContents()).nulls if len(own) == 1 else None
            nulls = int(rows[group]) if footer.columns.lacks(field.name) else nulls
            if nulls:
                problem = _values_missing(field.name, nulls, int(rows[group]))
                raise problem.at(file=file.path, row_group=ordinal)


def _by_file(files: Any, is_whole: Any) -> Any:
    """Yield (file number, iterator of row group numbers) for each file, in ascending order.

    Only row groups of which all rows are read are included.

    Args:
        files: File number of each row group, shape (row groups,).
        is_whole: Whether all rows of each row group are read, shape (row groups,).
    """
    whole = np.flatnonzero(is_whole).tolist()
    return itertools.groupby(whole, key=lambda group: int(files[group])) if whole else iter(())
