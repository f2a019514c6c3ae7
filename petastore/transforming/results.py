"""What a transform's function returned, as columns, or an error that says where it is not what the schema promises."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decoded import Decoded, empty_column
from petastore.errors import TransformError
from petastore.once import once
from petastore.schema.field import UnischemaField
from petastore.schema.times import numpy_time
from petastore.schema.unischema import Unischema
from petastore.schema.values import masked_rows
from petastore.transforming.random_generators import RowGenerators, generator_of

__all__ = ["Asked", "columns_of_arrays", "columns_of_frame", "columns_of_rows", "function_name"]

_SHOWN_COLUMNS = 4
_SHOWN_LETTERS = 20
_TEXT_TYPES: dict[Any, tuple[type, ...]] = {np.str_: (str,), np.bytes_: (bytes, bytearray), Decimal: (Decimal,)}


def function_name(func: Any) -> str:
    """What a function is called in messages.

    Example:
        >>> function_name(function_name)
        'petastore.transforming.results.function_name'
    """
    if func is None:
        return "without a function"
    name = getattr(func, "__qualname__", None)
    return repr(func) if name is None else f"{getattr(func, '__module__', None) or '?'}.{name}"


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """What a function was asked: who it is, and the rows that it was given."""

    func: Callable[[Any], Any] | None
    """None where columns only have to be what they are declared."""
    columns: Mapping[str, Decoded]
    first: int
    """The first of its rows in the columns."""
    rows: int
    schema: Unischema
    """What it promises."""
    zones: Mapping[str, str]
    """Time zones that instants have in DataFrames."""
    left_out: frozenset[str] | None = None
    """Columns that it may return besides those it was given and promises, and that are left out; None is any."""
    rng: str | None = None
    """The keyword argument by which the function is given random generators; None where it is given none."""
    keys: NDArray[np.uint64] | None = None
    """The random keys of all rows of the columns, shape (rows, 2), where there is such an argument."""

    def call(self, argument: Any, row: int | None = None) -> Any:
        """What it returns.

        Args:
            argument: What it is given.
            row: The row that it is about, of its rows; None is all.

        Raises:
            TransformError: It raised.
        """
        try:
            return argument if self.func is None else self.func(argument, **self._generators(row))
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # `sys.exit` too: a function ends neither the program nor a worker of it
            raise self.error(f"raised {type(problem).__name__}: {problem}", row) from problem

    def _generators(self, row: int | None) -> dict[str, np.random.Generator | RowGenerators]:
        """The keyword argument that gives the function the generator of a row, or those of all of its rows."""
        if self.rng is None or self.keys is None:
            return {}
        of_rows = self.keys[self.first : self.first + self.rows]
        return {self.rng: RowGenerators(of_rows) if row is None else generator_of(of_rows[row])}

    def error(self, what: str, row: int | None = None) -> TransformError:
        """An error that names the function and, by what is in it, the row."""
        return TransformError(f"the transform {function_name(self.func)} {what}{self._row(row)}")

    def _row(self, row: int | None) -> str:
        """A row as a reader of messages finds it again: its first values, of those that are short."""
        if row is None:
            return ""
        values = [(name, _value(column, self.first + row)) for name, column in self.columns.items()]
        short = [(name, value) for name, value in values if not isinstance(value, (np.ndarray, list, dict))]
        shown = ", ".join(f"{name}={_short(value)}" for name, value in short[:_SHOWN_COLUMNS])
        return f"; the row has {shown}" if shown else f"; it is row {row:,} of {self.rows:,} that it was given"

    def check_names(self, result: Any, row: int | None = None) -> None:
        """Rejects a result without one of the columns, or with one that nobody described or removed."""
        lacking = [field.name for field in self.schema if field.name not in result]
        if lacking:
            raise self.error(
                f"returned {', '.join(map(repr, result)) or 'nothing'}, but the schema after it also has {lacking}; "
                "return them, or name them in removed_fields",
                row,
            )
        if self.left_out is None:
            return
        for name in result:
            if name not in self._known:
                raise self.error(
                    f"returned the column {name!r}, which the schema after it does not have; describe it in "
                    f"edit_fields as ({name!r}, dtype, shape, nullable), or name it in removed_fields",
                    row,
                )

    @once
    def _known(self) -> set[str]:
        """Columns that a result may have."""
        return {*self.schema.fields, *self.columns, *(self.left_out or ())}

    def check_rows(self, rows: int, of: str) -> None:
        """Refuses a result of another length."""
        if rows != self.rows:
            raise self.error(
                f"was given {self.rows:,} rows and returned {rows:,}{of}; it must keep their number, or ranks would "
                "get different numbers of batches"
            )


def _value(column: Decoded, row: int) -> Any:
    return None if column.missing is not None and column.missing[row] else column.values[row]


def _short(value: Any) -> str:
    if isinstance(value, (str, bytes)) and len(value) > _SHOWN_LETTERS:
        return f"{value[:_SHOWN_LETTERS]!r}…"
    return str(value) if isinstance(value, np.generic) else repr(value)


def columns_of_rows(asked: Asked, results: Sequence[Mapping[str, Any]]) -> dict[str, Decoded]:
    """The columns of rows that were returned one by one; their names were checked.

    Raises:
        TransformError: A value is not what its field says.
    """
    return {field.name: _of_values(asked, field, [row[field.name] for row in results]) for field in asked.schema}


def columns_of_arrays(asked: Asked, result: Any) -> dict[str, Decoded]:
    """The columns of a dict of arrays, or of lists; masked, None or NaT where values are missing.

    Raises:
        TransformError: It is no dict, lacks a column, or one is not what its field says.
    """
    if not isinstance(result, dict):
        raise asked.error(f"must return a dict of columns, but it returned {type(result).__name__}")
    asked.check_names(result)
    columns = {}
    for field in asked.schema:
        column = result[field.name]
        if not isinstance(column, (list, tuple)) and not (isinstance(column, np.ndarray) and column.ndim):
            raise asked.error(
                f"gave {field.name!r} as {type(column).__name__}; a column is an array with one entry a row, or a list"
            )
        asked.check_rows(len(column), f" of {field.name!r}")
        columns[field.name] = _of_array(asked, field, column)
    return columns


def columns_of_frame(asked: Asked, result: Any) -> dict[str, Decoded]:
    """The columns of a pandas DataFrame; what pandas takes for missing is missing where a field may be.

    Raises:
        TransformError: It is no DataFrame, lacks a column, or one is not what its field says.
    """
    if not hasattr(result, "columns") or not hasattr(result, "iloc"):
        raise asked.error(f"must return a DataFrame, but it returned {type(result).__name__}")
    asked.check_names(result)
    asked.check_rows(len(result), "")
    for field in asked.schema:
        if result[field.name].ndim != 1:
            raise asked.error(f"returned a DataFrame with several columns {field.name!r}")
    return {
        field.name: _of_array(asked, field, _series_values(asked, result[field.name], field)) for field in asked.schema
    }


def _series_values(asked: Asked, series: Any, field: UnischemaField) -> Any:
    """A Series as an array, masked or with None where it has nothing."""
    zone = getattr(series.dtype, "tz", None)
    if zone is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    missing = series.isna().to_numpy()
    numpy_dtype = getattr(series.dtype, "numpy_dtype", None) or series.dtype
    is_plain = isinstance(numpy_dtype, np.dtype) and numpy_dtype.kind in "biufcmM"
    if not is_plain:
        values = np.empty(len(series), dtype=object)
        values[:] = [None if gone else value for gone, value in zip(missing.tolist(), series, strict=True)]
        return values
    if isinstance(series.dtype, np.dtype):
        if numpy_dtype.kind in "fc":
            missing = missing & _may_be_missing(asked, field)
        return np.ma.MaskedArray(series.to_numpy(), missing)
    values = np.zeros(len(series), dtype=numpy_dtype)
    values[~missing] = series[~missing].to_numpy(dtype=numpy_dtype)
    return np.ma.MaskedArray(values, missing)


def _may_be_missing(asked: Asked, field: UnischemaField) -> bool | NDArray[np.bool_]:
    """Of each row: whether NaN means that a value is missing; else it is a number like others.

    pandas has one word for both. It is missing where it was missing before, and wherever the column is new.
    """
    before = asked.columns.get(field.name)
    if before is None or before.values.dtype.kind not in "fc" or not field.nullable:
        return field.nullable
    return False if before.missing is None else before.missing[asked.first : asked.first + asked.rows]


def _of_array(asked: Asked, field: UnischemaField, column: Any) -> Decoded:
    """A column that was returned in one piece; of one entry a row, that was checked."""
    array = column if isinstance(column, np.ndarray) else None
    if array is None or array.dtype == np.dtype(object) or not field.is_fixed or field.dtype == np.dtype(object):
        return _of_values(asked, field, _entries(column))
    if array.shape[1:] != field.shape or not np.can_cast(array.dtype, field.dtype, casting="same_kind"):
        raise _no_such(asked, field, array.dtype, array.shape[1:])
    values = np.ma.getdata(array).astype(field.dtype, copy=False)
    missing = masked_rows(array)
    if field.dtype.kind in "mM" and field.is_scalar:
        missing = missing | np.isnat(values)
    if not missing.any():
        return Decoded(values if values.flags.writeable else values.copy(), None)
    _refuse_missing(asked, field, missing)
    values = values.copy()
    values[missing] = np.zeros((), values.dtype)
    return Decoded(values, missing)


def _entries(column: Any) -> list[Any]:
    """The entries of a column, None where one is missing; text is Python's."""
    if not isinstance(column, np.ndarray):
        return list(column)
    values = np.ma.getdata(column)
    entries = values.tolist() if values.dtype.kind in "SU" and values.ndim == 1 else list(values)
    for row in np.flatnonzero(masked_rows(column)):
        entries[row] = None
    return entries


def _of_values(asked: Asked, field: UnischemaField, values: list[Any]) -> Decoded:
    """A column that was returned as one value a row, None or NaT where it is missing."""
    is_time = field.dtype.kind in "mM" and field.is_scalar
    if is_time:
        values = [_time_or_none(value) for value in values]
    missing = np.fromiter((value is None for value in values), dtype=np.bool_, count=len(values))
    if missing.any():
        _refuse_missing(asked, field, missing)
    out = empty_column(field, len(values))
    alike = None if missing.any() else _alike(field, values)
    if alike is not None:
        out[:] = alike
        return Decoded(out, None)
    if out.dtype == np.dtype(object):
        for row, value in enumerate(values):
            out[row] = None if value is None else _checked_object(asked, field, value, row)
        return Decoded(out, None)
    for row, value in enumerate(values):
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype == out.dtype and value.shape == out.shape[1:]:
            out[row] = value
        elif value is not None:
            out[row] = _checked_array(asked, field, value, row)
    out[missing] = np.zeros((), out.dtype)
    return Decoded(out, missing if missing.any() else None)


def _alike(field: UnischemaField, values: list[Any]) -> NDArray[Any] | None:
    """Numbers of one type that their field takes, as an array; None for all else, which is looked at one by one."""
    if not field.is_scalar or field.dtype.kind not in "biuf" or len(kinds := set(map(type, values))) != 1:
        return None
    if not issubclass(kinds.pop(), (np.number, np.bool_, bool, int, float)):
        return None
    array = np.array(values)
    return array if np.can_cast(array.dtype, field.dtype, casting="same_kind") else None


def _time_or_none(value: Any) -> Any:
    """A moment or duration as NumPy has it, in UTC; None where it is NaT."""
    if value is None or value != value:
        return None
    time = numpy_time(value)
    return value if time is None else time


def _refuse_missing(asked: Asked, field: UnischemaField, missing: NDArray[np.bool_]) -> None:
    if not field.nullable:
        row = int(np.flatnonzero(missing)[0])
        nothing = "NaT" if field.dtype.kind in "mM" else "nothing"
        raise asked.error(
            f"gave None or {nothing} for {field.name!r}, which the schema after it says is not nullable; describe the "
            "change in edit_fields",
            row,
        )


def _checked_object(asked: Asked, field: UnischemaField, value: Any, row: int) -> Any:
    if not field.is_scalar:
        return _checked_array(asked, field, value, row)
    kinds = _TEXT_TYPES.get(field.numpy_dtype)
    if kinds is not None and not isinstance(value, kinds):
        raise asked.error(
            f"gave {field.name!r} as {type(value).__name__}, but the schema after it says {field.dtype_name}; describe "
            "the change in edit_fields",
            row,
        )
    return value


def _checked_array(asked: Asked, field: UnischemaField, value: Any, row: int) -> NDArray[Any]:
    array = np.asarray(value)
    dtype = field.dtype
    is_object = dtype == np.dtype(object)
    if not field.fits(array.shape) or not (is_object or np.can_cast(array.dtype, dtype, casting="same_kind")):
        raise _no_such(asked, field, array.dtype, array.shape, row)
    return array if is_object else array.astype(dtype, copy=False)


def _no_such(
    asked: Asked, field: UnischemaField, dtype: np.dtype[Any], shape: tuple[int, ...], row: int | None = None
) -> TransformError:
    return asked.error(
        f"gave {field.name!r} as {dtype}{list(shape)}, but the schema after it says "
        f"{field.dtype_name}{list(field.shape)}; describe the change in edit_fields",
        row,
    )
