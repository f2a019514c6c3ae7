"""Columns of somebody else's: Arrow's, pandas', those of a dict, and of whatever hands out Arrow streams.

What they hold is known without a look at each row, so a schema can be inferred; and where a column is stored as it is,
no cell of it is touched by Python.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from petastore.codecs import NdarrayCodec
from petastore.errors import EncodeError, RequestError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import field_from_arrow, storage_schema
from petastore.work import Pool
from petastore.writers.encode import CHUNK_BYTES, CHUNK_ROWS, encode_column, encoded_ahead

__all__ = ["Columns", "Tabular", "columns_of", "encode_columns", "infer_schema"]

Column: TypeAlias = Any
"""A `pyarrow.Array` or `ChunkedArray`, an array of shape (rows, ...), or a list of values."""


class ArrowStream(Protocol):
    """What hands out its columns as a stream of Arrow's: tables, frames of pandas and Polars, relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Tabular: TypeAlias = Mapping[str, Any] | ArrowStream
"""Data in columns, as `write_dataset` takes it."""

_LOOKED_AT = 1000
"""Values of a column that are looked at, where Arrow has no type for them."""

_KINDS = "an Arrow table, a pandas or Polars frame, or a dict of columns"


@dataclasses.dataclass(frozen=True)
class Columns:
    """Columns in chunks of rows."""

    names: tuple[str, ...]
    """What they are called."""

    fields: Callable[[], Iterator[UnischemaField]] = dataclasses.field(repr=False)
    """Infers what they hold, one after the other; raises `SchemaError` where that cannot be told."""

    chunks: Callable[[int], Iterator[Mapping[str, Column]]] = dataclasses.field(repr=False)
    """Gives at most so many rows at a time, in order; a stream gives them once."""

    rows: int | None = None
    """How many there are; None of a stream."""

    between: Callable[[int, int], Columns] | None = dataclasses.field(default=None, repr=False)
    """Gives the rows `[first, stop)`, in any order and as often as asked; None of a stream."""


def columns_of(data: Any) -> Columns | None:
    """The columns of some data; None where it has none, as a list of rows.

    Args:
        data: A `pyarrow.Table`, `RecordBatch` or `RecordBatchReader`; a pandas DataFrame, whose index is left out;
            whatever has `__arrow_c_stream__`, as frames of Polars and relations of DuckDB do; a dict of columns by
            name, each an array of shape (rows, ...) or a sequence of values.

    Raises:
        RequestError: Columns are not equally long, or a name is no text.
        SchemaError: A column holds what no field can be.
    """
    if isinstance(data, Mapping):
        return _of_dict(data)
    if isinstance(data, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return _of_arrow(data)
    if _is_pandas(data):
        _check_names(data.columns)
        return _of_dict({name: data[name] for name in data.columns})
    if hasattr(data, "__arrow_c_stream__"):
        return _of_arrow(pa.RecordBatchReader.from_stream(data))
    return None


def infer_schema(data: Tabular, *, name: str = "inferred") -> Unischema:
    """The schema under which `write_dataset` writes columns that come without one.

    Print it, and change what should be otherwise: give images a codec for images, say what may be missing later. Arrays
    of two dimensions and more get `NdarrayCodec`; lists, and arrays of one, are lists in the file. A field is nullable
    where a value is missing; of a stream, where its schema says so. NaN is a number, and stays one.

    Args:
        data: As `write_dataset` takes it. A stream can be read once: infer from `reader.schema.empty_table()`.
        name: The schema's name.

    Returns:
        A schema with a field for each column.

    Raises:
        RequestError: The data has no columns, or unequal ones.
        SchemaError: A column holds what no field can be.

    Example:
        >>> infer_schema({"id": np.arange(3), "word": ["a", None, "b"], "image": np.zeros((3, 28, 28), np.uint8)})
        Unischema('inferred', [
          UnischemaField('id', int64),
          UnischemaField('word', str, nullable=True),
          UnischemaField('image', uint8, (28, 28), NdarrayCodec()),
        ])
    """
    columns = columns_of(data)
    if columns is None:
        raise RequestError(f"a schema is inferred from {_KINDS}, but a {type(data).__name__} was given")
    return Unischema(name, columns.fields())


def encode_columns(
    columns: Columns, schema: Unischema, pool: Pool | None = None, *, first_row: int = 0
) -> Iterator[pa.RecordBatch]:
    """Columns as they are stored, chunk by chunk.

    Args:
        columns: What is encoded; columns that the schema lacks are refused, nullable ones may be missing.
        schema: What they are to be.
        pool: Who encodes; see `petastore.writers.encode.encoded_ahead`.
        first_row: Number of the first of these rows in all the data given, for messages.

    Raises:
        EncodeError: A value does not fit; by `next`, where it would come. Field and row are named.
    """
    _check_fields(columns.names, schema)
    yield from encoded_ahead(_tasks(columns, schema, first_row), pool)


def _tasks(columns: Columns, schema: Unischema, first_row: int) -> Iterator[Callable[[], pa.RecordBatch]]:
    done = first_row
    for chunk in columns.chunks(_rows_at_once(schema)):
        rows = len(next(iter(chunk.values()))) if chunk else 0
        yield functools.partial(_encoded_chunk, chunk, schema, rows, done)
        done += rows


def _encoded_chunk(chunk: Mapping[str, Column], schema: Unischema, rows: int, first_row: int) -> pa.RecordBatch:
    stored = storage_schema(schema)
    columns = ((chunk.get(field.name), field, stored.field(field.name).type) for field in schema)
    cells = [_encoded(column, field, kind, rows, first_row) for column, field, kind in columns]
    return pa.RecordBatch.from_arrays(cells, schema=stored)


def _encoded(column: Column | None, field: UnischemaField, stored: pa.DataType, rows: int, first_row: int) -> pa.Array:
    if column is None:
        return pa.nulls(rows, stored)
    is_arrow = isinstance(column, (pa.Array, pa.ChunkedArray))
    is_stored_so = is_arrow and column.type == stored and field.codec is None and field.is_scalar
    if is_stored_so and (field.nullable or not column.null_count):
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return encode_column(_values(column) if is_arrow else column, field, stored, first_row=first_row)


def _values(column: Any) -> Any:
    """The values of a column of Arrow's: an array where all are numbers, or equally many, else a list."""
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        one = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return one.to_numpy_ndarray() if not one.null_count else column.to_pylist()
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and not column.null_count:
        return column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    return column.to_pylist()


def _check_fields(names: Sequence[str], schema: Unischema) -> None:
    for name in names:
        if name not in schema:
            known = ", ".join(map(repr, schema.fields))
            raise EncodeError(f"schema {schema.name!r} has no such field; it has {known}", column=name)
    for field in schema:
        if field.name not in names and not field.nullable:
            raise EncodeError("there is no such column, and the field is not nullable", column=field.name)


def _of_arrow(data: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> Columns:
    def fields() -> Iterator[UnischemaField]:
        for number, declared in enumerate(data.schema):
            is_stream = isinstance(data, pa.RecordBatchReader)
            may_miss = declared.nullable if is_stream else data.column(number).null_count > 0
            yield _field_from_arrow(declared.with_nullable(may_miss))

    def chunks(rows: int) -> Iterator[Mapping[str, Column]]:
        batches = data if isinstance(data, pa.RecordBatchReader) else pa.table(data).to_batches()
        for batch in batches:
            for first in range(0, batch.num_rows, rows):
                part = batch.slice(first, rows)
                yield dict(zip(part.schema.names, part.columns, strict=True))

    if isinstance(data, pa.RecordBatchReader):
        return Columns(tuple(data.schema.names), fields, chunks)
    return Columns(
        tuple(data.schema.names), fields, chunks, data.num_rows, lambda first, stop: _of_arrow(data[first:stop])
    )


def _field_from_arrow(declared: pa.Field) -> UnischemaField:
    if pa.types.is_null(declared.type):
        raise SchemaError(
            f"column {declared.name!r} has no values, so nothing tells its type; give a schema of your own"
        )
    field = field_from_arrow(declared)
    return dataclasses.replace(field, codec=NdarrayCodec()) if len(field.shape) > 1 else field


def _of_dict(data: Mapping[Any, Any]) -> Columns:
    _check_names(data)
    columns = {name: _column(name, values) for name, values in data.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name!r} has {rows:,}" for name, rows in lengths.items())
        raise RequestError(f"columns of one dataset are equally long, but {said}")

    return _of_equal(columns)


def _of_equal(columns: Mapping[str, Column]) -> Columns:
    rows = max(map(len, columns.values()), default=0)

    def between(first: int, stop: int) -> Mapping[str, Column]:
        return {name: column[first:stop] for name, column in columns.items()}

    def chunks(step: int) -> Iterator[Mapping[str, Column]]:
        return (between(first, first + step) for first in range(0, rows, step))

    return Columns(
        tuple(columns),
        lambda: itertools.starmap(_field_of, columns.items()),
        chunks,
        rows,
        lambda first, stop: _of_equal(between(first, stop)),
    )


def _column(name: str, values: Any) -> Column:
    """Values as Arrow has them where it has a type for them, else as they are."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return values
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
        raise RequestError(
            f"column {name!r} is a {type(values).__name__}; a dict of columns has an array or a list of values for "
            "each. A dict that is one row goes into a list of rows"
        )
    try:
        # Among Python's objects pandas writes NaN for what is missing; in an array of numbers it is a number.
        return pa.array(values, from_pandas=getattr(values, "dtype", None) == np.dtype(object))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return list(values)


def _field_of(name: str, column: Column) -> UnischemaField:
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return _field_from_arrow(pa.field(name, column.type, column.null_count > 0 or column.type == pa.null()))
    if isinstance(column, np.ndarray):
        return UnischemaField(name, column.dtype, column.shape[1:], NdarrayCodec() if column.ndim > 2 else None)
    return _field_of_values(name, column)


def _field_of_values(name: str, values: Sequence[Any]) -> UnischemaField:
    known = [np.asarray(value) for value in values[:_LOOKED_AT] if value is not None]
    kinds = {(value.dtype, value.ndim) for value in known}
    if len(kinds) != 1 or next(iter(kinds))[0].kind not in "biuf":
        kinds_of_python = ", ".join(sorted({type(value).__name__ for value in values[:_LOOKED_AT]}))
        raise SchemaError(
            f"column {name!r} has values of no single type that a field can have ({kinds_of_python}); convert them, or "
            "write rows with a schema of your own"
        )
    ((dtype, _),) = kinds
    sizes = zip(*(value.shape for value in known), strict=True)
    shape = tuple(of_axis[0] if len(set(of_axis)) == 1 else None for of_axis in sizes)
    codec = NdarrayCodec() if len(shape) > 1 else None
    return UnischemaField(name, dtype, shape, codec, any(value is None for value in values))


def _rows_at_once(fields: Iterable[UnischemaField]) -> int:
    """Rows that are encoded together: few enough for the values of fixed shapes to stay small."""
    fixed = sum(field.decoded_bytes or 0 for field in fields)
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, fixed)))


def _check_names(names: Any) -> None:
    for name in names:
        if not isinstance(name, str):
            raise RequestError(f"names of columns are texts, but one is {name!r}; rename it")


def _is_pandas(data: Any) -> bool:
    kind = type(data)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"
