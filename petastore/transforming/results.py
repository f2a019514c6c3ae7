"""Convert the results of a transform function to columns, and check them against the schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decode import Decoded, empty_column
from petastore.errors import TransformError
from petastore.lazy import once
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.schema.values import mask_of, masked_rows, numpy_time
from petastore.transforming.casts import first_out_of_range
from petastore.transforming.random_generators import RowGenerators, generator_of

__all__ = [
    "FunctionCall",
    "columns_of_arrays",
    "columns_of_frame",
    "columns_of_rows",
    "function_name",
    "numpy_dtype_of",
]

_SHOWN_COLUMNS = 4
_SHOWN_LETTERS = 20
_TEXT_TYPES: dict[Any, tuple[type, ...]] = {np.str_: (str,), np.bytes_: (bytes, bytearray), Decimal: (Decimal,)}


def function_name(func: Any) -> str:
    """Return the name of a function for messages.

    Example:
        >>> function_name(function_name)
        'petastore.transforming.results.function_name'
    """
    if func is None:
        return "without a function"
    name = getattr(func, "__qualname__", None)
    return repr(func) if name is None else f"{getattr(func, '__module__', None) or '?'}.{name}"


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionCall:
    """One call of a transform's function: its input rows and the schema of its result."""

    func: Callable[..., Any] | None
    """Function of the transform; None if columns are only cast to their declared types."""
    columns: Mapping[str, Decoded]
    first: int
    """Index of the call's first row in the arrays of `columns`."""
    rows: int
    schema: Unischema
    """The schema after the transform."""
    zones: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Time zone of timestamp columns in DataFrames, by column name."""
    left_out: frozenset[str] | None = None
    """Names of columns outside the schema that the function may return, which are dropped; None allows any name."""
    rng: str | None = None
    """Name of the function's keyword argument for random generators; None if the function takes none."""
    keys: NDArray[np.uint64] | None = None
    """Random keys of all rows in `columns`, shape (rows, 2); None if the function takes no random generators."""

    def run(self, argument: Any, row: int | None = None) -> Any:
        """Call the function and return its result; without a function, return the argument.

        Args:
            argument: Argument of the function.
            row: Index of the row in the call, if the function takes single rows; None if it takes all rows at once.

        Raises:
            TransformError: The function raised.
        """
        try:
            return argument if self.func is None else self.func(argument, **self._generators(row))
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # includes `sys.exit`: a function must not end the program or a worker
            raise self.error(f"raised {type(problem).__name__}: {problem}", row) from problem

    def _generators(self, row: int | None) -> dict[str, np.random.Generator | RowGenerators]:
        """Return the keyword argument with random generators, or {} if the function takes none.

        For a single row it is the row's generator; if `row` is None, it is a sequence with one generator per row.
        """
        if self.rng is None or self.keys is None:
            return {}
        of_rows = self.keys[self.first : self.first + self.rows]
        return {self.rng: RowGenerators(of_rows) if row is None else generator_of(of_rows[row])}

    def error(self, what: str, row: int | None = None) -> TransformError:
        """Return an error that names the function and the row.

        Args:
            what: Rest of the message, after the function's name.
            row: Index of the row in the call; None if the error is not about a single row.
        """
        return TransformError(f"the transform {function_name(self.func)} {what}{self._row(row)}")

    def _row(self, row: int | None) -> str:
        """Return text for an error message that identifies a row by its first scalar values; empty for None."""
        if row is None:
            return ""
        values = [(name, column.value(self.first + row)) for name, column in self.columns.items()]
        short = [(name, value) for name, value in values if not isinstance(value, (np.ndarray, list, dict))]
        shown = ", ".join(f"{name}={_short(value)}" for name, value in short[:_SHOWN_COLUMNS])
        return f"; the row has {shown}" if shown else f"; the error is in row {row:,} of {self.rows:,}"

    def check_names(self, result: Any, row: int | None = None) -> None:
        """Raise an error if a result lacks a column of the schema, or has an undeclared column.

        Columns of the argument and removed columns need no declaration: they are dropped if the schema lacks them.
        """
        lacking = [field.name for field in self.schema if field.name not in result]
        if lacking:
            raise self.error(
                f"must return {lacking}, which the schema after the transform has, got "
                f"{list(result) or 'nothing'}. Return them, or name them in removed_fields",
                row,
            )
        if self.left_out is None:
            return
        for name in result:
            if name not in self._known:
                raise self.error(
                    f"must not return the column {name!r}, which the schema after the transform lacks. Declare it in "
                    f"edit_fields as ({name!r}, dtype, shape, nullable), or name it in removed_fields",
                    row,
                )

    @once
    def _known(self) -> set[str]:
        """Names of the columns that a result may have."""
        return {*self.schema.fields, *self.columns, *(self.left_out or ())}

    def check_rows(self, rows: int, of: str) -> None:
        """Raise an error if a result has another number of rows than the argument.

        Args:
            rows: Number of rows of the result.
            of: Text after this number in the message, such as ` of 'column'`, or an empty string.

        Raises:
            TransformError: The numbers of rows differ.
        """
        if rows != self.rows:
            raise self.error(
                f"must return {self.rows:,} rows, as many as it received, got {rows:,}{of}: otherwise ranks would "
                "get different numbers of batches"
            )


def _short(value: Any) -> str:
    if isinstance(value, (str, bytes)) and len(value) > _SHOWN_LETTERS:
        return f"{value[:_SHOWN_LETTERS]!r}…"
    return str(value) if isinstance(value, np.generic) else repr(value)


def columns_of_rows(call: FunctionCall, results: Sequence[Mapping[str, Any]]) -> dict[str, Decoded]:
    """Return decoded columns made of the rows (dicts) that a function returned one by one.

    The names in the dicts must have been checked (`FunctionCall.check_names`).

    Raises:
        TransformError: A value does not match its field.
    """
    return {field.name: _of_values(call, field, [row[field.name] for row in results]) for field in call.schema}


def columns_of_arrays(call: FunctionCall, result: Any) -> dict[str, Decoded]:
    """Check the dict of arrays or lists that a function returned, and return decoded columns.

    Missing values are masked entries, None or NaT.

    Raises:
        TransformError: The result is not a dict, lacks a column, or has a column that does not match its field.
    """
    if not isinstance(result, dict):
        raise call.error(f"must return a dict of columns, got {type(result).__name__}")
    call.check_names(result)
    columns = {}
    for field in call.schema:
        column = result[field.name]
        if not isinstance(column, (list, tuple)) and not (isinstance(column, np.ndarray) and column.ndim):
            raise call.error(
                f"must return {field.name!r} as an array with one entry per row, or a list, got {type(column).__name__}"
            )
        call.check_rows(len(column), f" of {field.name!r}")
        columns[field.name] = _of_array(call, field, column)
    return columns


def columns_of_frame(call: FunctionCall, result: Any) -> dict[str, Decoded]:
    """Check the DataFrame that a function returned, and return decoded columns.

    NA, NaT and None are missing values. NaN in a float column may be a number; see `_may_be_missing`.

    Raises:
        TransformError: The result is not a DataFrame, lacks a column, or has a column that does not match its field.
    """
    if not hasattr(result, "columns") or not hasattr(result, "iloc"):
        raise call.error(f"must return a DataFrame, got {type(result).__name__}")
    call.check_names(result)
    call.check_rows(len(result), "")
    for field in call.schema:
        if result[field.name].ndim != 1:
            raise call.error(f"must return a DataFrame with distinct columns, got {field.name!r} several times")
    return {
        field.name: _of_array(call, field, _series_values(call, result[field.name], field)) for field in call.schema
    }


def numpy_dtype_of(series: Any) -> np.dtype[Any] | None:
    """Return the NumPy dtype of a pandas Series of numbers, booleans or times without zone; None for other types.

    Series of pandas' nullable dtypes, such as `Int64`, have one, too.

    Example:
        >>> numpy_dtype_of(np.zeros(2)), numpy_dtype_of(np.array(["a"]))
        (dtype('float64'), None)
    """
    dtype = getattr(series.dtype, "numpy_dtype", None) or series.dtype
    return dtype if isinstance(dtype, np.dtype) and dtype.kind in "biufcmM" else None


def _series_values(call: FunctionCall, series: Any, field: UnischemaField) -> Any:
    """Return a pandas Series as a masked array, or as an object array with None for missing values."""
    zone = getattr(series.dtype, "tz", None)
    if zone is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    missing = series.isna().to_numpy()
    numpy_dtype = numpy_dtype_of(series)
    if numpy_dtype is None:
        values = np.empty(len(series), dtype=object)
        values[:] = [None if gone else value for gone, value in zip(missing.tolist(), series, strict=True)]
        return values
    if isinstance(series.dtype, np.dtype):
        if numpy_dtype.kind in "fc":
            missing = missing & _may_be_missing(call, field)
        return np.ma.MaskedArray(series.to_numpy(), missing)
    values = np.zeros(len(series), dtype=numpy_dtype)
    values[~missing] = series[~missing].to_numpy(dtype=numpy_dtype)
    return np.ma.MaskedArray(values, missing)


def _may_be_missing(call: FunctionCall, field: UnischemaField) -> bool | NDArray[np.bool_]:
    """Return where NaN in a returned float column means a missing value: a mask of shape (rows,), or a bool for all.

    pandas uses NaN both as a number and for missing values. If the field is not nullable, NaN is a number. If it is
    nullable, NaN is a missing value if the function added the column or changed it to floats, or if the value was
    missing in the argument.
    """
    before = call.columns.get(field.name)
    if before is None or before.values.dtype.kind not in "fc" or not field.nullable:
        return field.nullable
    return False if before.missing is None else before.missing[call.first : call.first + call.rows]


@np.errstate(over="ignore")
def _of_array(call: FunctionCall, field: UnischemaField, column: Any) -> Decoded:
    """Convert one returned column, an array or list with one entry per row, to the dtype of its field.

    Raises:
        TransformError: The dtype or shape does not match the field, or a value is missing but the field is not
            nullable.
    """
    array = column if isinstance(column, np.ndarray) else None
    if array is None or array.dtype == np.dtype(object) or not field.is_fixed or field.dtype == np.dtype(object):
        return _of_values(call, field, _entries(column))
    if array.shape[1:] != field.shape or not np.can_cast(array.dtype, field.dtype, casting="same_kind"):
        raise _no_such(call, field, array.dtype, array.shape[1:])
    values = np.ma.getdata(_cast(call, field, array))
    missing = mask_of(array)
    if field.dtype.kind in "mM" and field.is_scalar:
        missing = missing | np.isnat(values)
    if not missing.any():
        return Decoded(values if values.flags.writeable else values.copy(), None)
    _refuse_missing(call, field, np.logical_and.reduce(missing, axis=tuple(range(1, missing.ndim)), dtype=np.bool_))
    values = values.copy()
    values[missing] = np.zeros((), values.dtype)
    return Decoded(values, missing)


def _entries(column: Any) -> list[Any]:
    """Return the entries of a column as a list: None for missing values, Python str or bytes for text."""
    if not isinstance(column, np.ndarray):
        return list(column)
    values = np.ma.getdata(column)
    entries = values.tolist() if values.dtype.kind in "SU" and values.ndim == 1 else list(values)
    for row in np.flatnonzero(masked_rows(column)):
        entries[row] = None
    return entries


@np.errstate(over="ignore")  # once per column, because it takes as long as the cast of a small array
def _of_values(call: FunctionCall, field: UnischemaField, values: list[Any]) -> Decoded:
    """Convert a list of returned values, one per row, to the dtype of the field.

    None, NaT and `numpy.ma.masked`, which an item of a masked array may be, are missing values.

    Raises:
        TransformError: A dtype or shape does not match the field, or a value is missing but the field is not nullable.
    """
    is_time = field.dtype.kind in "mM" and field.is_scalar
    if is_time:
        values = [_time_or_none(value) for value in values]
    masked = np.ma.masked
    missing = np.fromiter((value is None or value is masked for value in values), dtype=np.bool_, count=len(values))
    if missing.any():
        _refuse_missing(call, field, missing)
        values = [None if value is masked else value for value in values]
    out = empty_column(field, len(values))
    alike = _alike(field, values, missing)
    if alike is not None:
        out[:] = _cast(call, field, alike)
        return Decoded(out, missing if missing.any() else None)
    if out.dtype == np.dtype(object):
        for row, value in enumerate(values):
            out[row] = None if value is None else _checked_object(call, field, value, row)
        return Decoded(out, None)
    for row, value in enumerate(values):
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype == out.dtype and value.shape == out.shape[1:]:
            out[row] = value
        elif value is not None:
            out[row] = _checked_array(call, field, value, row)
    missing = _with_masks(missing, values, out)
    out[missing] = np.zeros((), out.dtype)
    return Decoded(out, missing if missing.any() else None)


def _with_masks(missing: NDArray[np.bool_], values: list[Any], out: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the mask of missing values, extended by the masks of masked arrays among the values.

    The shape is (rows,), or the shape of `out` if some values are masked arrays.

    Args:
        missing: Whether each value is missing as a whole, shape (rows,).
        values: Returned values, one per row.
        out: Output column, with the values of all rows.
    """
    masked = [row for row, value in enumerate(values) if isinstance(value, np.ma.MaskedArray) and value.ndim]
    if not masked:
        return missing
    missing = Decoded(out, missing).mask(out.ndim)
    for row in masked:
        missing[row] = np.ma.getmaskarray(values[row])
    return missing


def _alike(field: UnischemaField, values: list[Any], missing: NDArray[np.bool_]) -> NDArray[Any] | None:
    """Return the values as one array if all are numbers of one type that the field can hold, otherwise None.

    Args:
        field: Field of the values.
        values: Returned values, one per row; None for missing values, which are zero in the array.
        missing: Whether each value is missing, shape (rows,).
    """
    present = [value for value in values if value is not None] if missing.any() else values
    if not field.is_scalar or field.dtype.kind not in "biuf" or len(kinds := set(map(type, present))) != 1:
        return None
    if not issubclass(kinds.pop(), (np.number, np.bool_, bool, int, float)):
        return None
    numbers = np.array(present)
    if not np.can_cast(numbers.dtype, field.dtype, casting="same_kind"):
        return None
    if len(present) == len(values):
        return numbers
    array = np.zeros(len(values), numbers.dtype)
    array[~missing] = numbers
    return array


def _time_or_none(value: Any) -> Any:
    """Return a timestamp (in UTC) or duration as a NumPy scalar; None for None and NaT; other values unchanged."""
    if value is None or value != value:
        return None
    time = numpy_time(value)
    return value if time is None else time


def _refuse_missing(call: FunctionCall, field: UnischemaField, missing: NDArray[np.bool_]) -> None:
    if not field.nullable and missing.any():
        row = int(np.flatnonzero(missing)[0])
        nothing = "NaT" if field.dtype.kind in "mM" else "nothing"
        raise call.error(
            f"must not return None or {nothing} for {field.name!r}, which is not nullable. Declare it in edit_fields "
            "as nullable",
            row,
        )


def _checked_object(call: FunctionCall, field: UnischemaField, value: Any, row: int) -> Any:
    if not field.is_scalar:
        return _checked_array(call, field, value, row)
    kinds = _TEXT_TYPES.get(field.numpy_dtype)
    if kinds is not None and not isinstance(value, kinds):
        raise call.error(
            f"must return {field.name!r} as {field.dtype_name}, got {type(value).__name__}. Declare the change in "
            "edit_fields",
            row,
        )
    return value


def _checked_array(call: FunctionCall, field: UnischemaField, value: Any, row: int) -> NDArray[Any]:
    array = value if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    dtype = field.dtype
    if array.dtype.hasobject and array.ndim == 1 < len(field.shape) and field.shape[0] in (None, len(array)):
        inner = dataclasses.replace(field, shape=field.shape[1:], codec=None)
        for item in array:
            if item is not None:
                _checked_array(call, inner, item, row)
        return array  # a list of inner lists of different lengths stays an object array
    is_object = dtype == np.dtype(object)
    has_shape = array.shape == field.shape or field.fits(array.shape)
    if not has_shape or not (is_object or np.can_cast(array.dtype, dtype, casting="same_kind")):
        if has_shape and isinstance(value, int) and array.dtype.hasobject and dtype.kind in "iu":
            raise _out_of_range(call, field, value, row)  # NumPy has no dtype for integers of more than 64 bits
        raise _no_such(call, field, array.dtype, array.shape, row)
    return array if is_object else _cast(call, field, array, row)


def _cast(call: FunctionCall, field: UnischemaField, array: NDArray[Any], row: int | None = None) -> NDArray[Any]:
    """Return an array cast to the dtype of its field, of the same kind; floats and times may be rounded.

    Args:
        call: Call of the function.
        field: Field of the values.
        array: Returned values; masked values may be out of range.
        row: Index of the row with this value; None if the array has one value per row.

    Raises:
        TransformError: An integer or time is out of range of the dtype, or a finite number becomes infinite.
    """
    cast = array.astype(field.dtype, copy=False)
    place = None if cast is array else first_out_of_range(array, cast)
    if place is None:
        return cast
    raise _out_of_range(call, field, np.ma.getdata(array)[place], place[0] if row is None else row)


def _out_of_range(call: FunctionCall, field: UnischemaField, value: Any, row: int) -> TransformError:
    return call.error(
        f"must return {field.name!r} in the range of {field.dtype_name}, got {value}. Declare another dtype in "
        "edit_fields",
        row,
    )


def _no_such(
    call: FunctionCall, field: UnischemaField, dtype: np.dtype[Any], shape: tuple[int, ...], row: int | None = None
) -> TransformError:
    return call.error(
        f"must return {field.name!r} as {field.dtype_name} of shape {field.shape}, got {dtype} of shape {shape}. "
        "Declare the change in edit_fields",
        row,
    )
