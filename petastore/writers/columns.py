"""Columns of somebody else's: Arrow's, pandas', those of a dict, and of whatever hands out Arrow streams.

What they hold is known without a look at each row, so a schema can be inferred; and where a column is stored as it is,
no cell of it is touched by Python.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from petastore.arrow import compute as pc
from petastore.codecs import ArrowCodec, NdarrayCodec, ScalarCodec
from petastore.codecs.arrow.arrow_lists import are_arrays
from petastore.codecs.arrow_cells import encode_cells
from petastore.codecs.arrow_codec import with_arrow_type
from petastore.codecs.images.image import image_field
from petastore.codecs.images.image_given import is_image_struct
from petastore.errors import EncodeError, InvalidArgumentError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import field_from_arrow, storage_schema
from petastore.work import Pool
from petastore.writers.encode import CHUNK_BYTES, CHUNK_ROWS, encode_column, encoded_ahead

__all__ = ["KINDS", "Columns", "Tabular", "columns_of", "encode_columns", "infer_schema"]

Column: TypeAlias = Any
"""A `pyarrow.Array` or `ChunkedArray`, an array of shape (rows, ...), or a list of values."""


class ArrowStream(Protocol):
    """What hands out its columns as a stream of Arrow's: tables, frames of pandas and Polars, relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class HuggingFaceDataset(Protocol):
    """A `datasets.Dataset`."""

    def with_format(self, kind: str, /) -> Any: ...

    def __len__(self) -> int: ...


Tabular: TypeAlias = Mapping[str, Any] | ArrowStream | HuggingFaceDataset
"""Data in columns, as `write_dataset` takes it."""

_SCALE = 18
"""Digits after the point of decimals without a codec; as many as are left of 38 stand before it."""

_FREE_IMAGE_BYTES = 64 * 1024
"""Estimated bytes to encode an image of unknown size."""

_LOOKED_AT = 1000
"""Values of a column that are looked at, where Arrow has no type for them."""

KINDS = "an Arrow table, a pandas or Polars frame, a datasets.Dataset, or a dict of columns"
"""Accepted containers of columns, for messages."""


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
            a `datasets.Dataset` of Hugging Face; whatever has `__arrow_c_stream__`, as frames of Polars and relations
            of DuckDB do; a dict of columns by name, each an array of shape (rows, ...) or a sequence of values.

    Raises:
        InvalidArgumentError: Columns are not equally long, or a name is no text.
        SchemaError: A column holds what no field can be.
    """
    if isinstance(data, Mapping):
        return _of_dict(data)
    if isinstance(data, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return _of_arrow(data)
    if _is_of("polars", data, "DataFrame"):  # in memory, as a table is: its values can be looked at
        return _of_arrow(pa.table(data))
    if _is_of("pandas", data, "DataFrame"):
        _check_names(data.columns)
        return _of_dict({name: data[name] for name in data.columns})
    if _is_hugging_face(data):
        return _of_hugging_face(data)
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
        InvalidArgumentError: The data has no columns, or unequal ones.
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
        raise InvalidArgumentError(f"a schema is inferred from {KINDS}, but a {type(data).__name__} was given")
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
    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        return encode_column(column, field, stored, first_row=first_row)
    cells = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    is_stored_so = cells.type == stored and field.codec is None and field.is_scalar
    if is_stored_so and (field.nullable or not cells.null_count):
        return cells
    try:
        return encode_cells(cells, field)
    except EncodeError as problem:
        problem.row = None if problem.row is None else problem.row + first_row
        raise problem.at(column=field.name) from problem.__cause__


def _check_fields(names: Sequence[str], schema: Unischema) -> None:
    for name in names:
        if name not in schema:
            known = ", ".join(map(repr, schema.fields))
            raise EncodeError(f"schema {schema.name!r} has no such field; it has {known}", column=name)
    for field in schema:
        if field.name not in names and not field.nullable:
            raise EncodeError("there is no such column, and the field is not nullable", column=field.name)


def _of_arrow(data: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> Columns:
    is_stream = isinstance(data, pa.RecordBatchReader)
    _check_names(data.schema.names)

    def fields() -> Iterator[UnischemaField]:
        for number, declared in enumerate(data.schema):
            yield _field_of_type(declared) if is_stream else _field_of_arrow(declared.name, data.column(number))

    def chunks(rows: int) -> Iterator[Mapping[str, Column]]:
        batches = data if is_stream else pa.table(data).to_batches()
        for batch in batches:
            for first in range(0, batch.num_rows, rows):
                part = batch.slice(first, rows)
                yield dict(zip(part.schema.names, part.columns, strict=True))

    names = tuple(data.schema.names)
    if is_stream:
        return Columns(names, fields, chunks)
    return Columns(names, fields, chunks, data.num_rows, lambda first, stop: _of_arrow(data[first:stop]))


def _is_hugging_face(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("with_format", "features", "data", "iter"))


def _of_hugging_face(data: Any) -> Columns:
    """A `datasets.Dataset`: a table, of which indices may pick the rows and say their order."""
    table, indices = data.data.table, data._indices  # noqa: SLF001 - as other libraries find them
    _check_names(table.column_names)

    def fields() -> Iterator[UnischemaField]:
        for name, column in zip(table.column_names, table.columns, strict=True):
            field = _field_of_arrow(name, column)
            if field.nullable and indices is not None and field.codec != ArrowCodec(pa.null()):
                is_missing = column.is_null().take(indices.column(0))
                field = dataclasses.replace(field, nullable=bool(pc.any(is_missing).as_py()))
            yield field

    def chunks(rows: int) -> Iterator[Mapping[str, Column]]:
        # Copies, if there are indices: of rows that may be large.
        fitting = CHUNK_BYTES * len(table) // max(1, table.nbytes)
        for part in data.with_format("arrow").iter(batch_size=max(1, min(rows, fitting))):
            yield dict(zip(part.column_names, part.columns, strict=True))

    return Columns(tuple(table.column_names), fields, chunks, len(data))


def _field_of_arrow(name: str, column: pa.Array | pa.ChunkedArray) -> UnischemaField:
    """The field of a column whose values can be looked at."""
    kind = column.type
    declared = pa.field(name, kind, column.null_count > 0 or pa.types.is_null(kind))
    if is_image_struct(kind):
        image = image_field(name, column.drop_null().slice(0, _LOOKED_AT).to_pylist())
        if image is not None:
            return dataclasses.replace(image, nullable=declared.nullable)
    field = _field_of_type(declared)
    if field.shape and not are_arrays(column, field):
        return UnischemaField(name, object, (), ArrowCodec(kind), declared.nullable)
    return field


def _field_of_type(declared: pa.Field) -> UnischemaField:
    field = with_arrow_type(field_from_arrow(declared), declared.type)
    kind = declared.type
    if (
        field.numpy_dtype is Decimal
        and field.is_scalar
        and (kind.scale > _SCALE or kind.precision - kind.scale > 38 - _SCALE)
    ):
        codec = ScalarCodec(f"decimal({kind.precision},{kind.scale})") if kind.precision <= 38 else ArrowCodec(kind)
        field = UnischemaField(field.name, Decimal if kind.precision <= 38 else object, (), codec, field.nullable)
    return dataclasses.replace(field, codec=NdarrayCodec()) if len(field.shape) > 1 else field


def _of_dict(data: Mapping[Any, Any]) -> Columns:
    _check_names(data)
    columns = {name: _column(name, values) for name, values in data.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name!r} has {rows:,}" for name, rows in lengths.items())
        raise InvalidArgumentError(f"columns of one dataset are equally long, but {said}")

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
    if _is_hugging_face(values):
        raise InvalidArgumentError(
            f"column {name!r} must be an array or a list, got a dataset. Write each split by itself"
        )
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
        raise InvalidArgumentError(
            f"column {name!r} is a {type(values).__name__}; a dict of columns has an array or a list of values for "
            "each. A dict that is one row goes into a list of rows"
        )
    if hasattr(values, "__arrow_c_stream__") and not _is_of("pandas", values):
        return pa.chunked_array(values)
    try:
        # Among Python's objects pandas writes NaN for what is missing; in an array of numbers it is a number.
        return pa.array(values, from_pandas=getattr(values, "dtype", None) == np.dtype(object))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return list(values)


def _field_of(name: str, column: Column) -> UnischemaField:
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return _field_of_arrow(name, column)
    if isinstance(column, np.ndarray):
        return UnischemaField(name, column.dtype, column.shape[1:], NdarrayCodec() if column.ndim > 2 else None)
    return _field_of_values(name, column)


def _field_of_values(name: str, values: Sequence[Any]) -> UnischemaField:
    present = [value for value in values[:_LOOKED_AT] if value is not None]
    if present and all(isinstance(value, uuid.UUID) for value in present):  # Arrow has no type for them before 21
        return UnischemaField(name, bytes, (), None, any(value is None for value in values))
    known = [np.asarray(value) for value in present]
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
    fixed = sum(
        field.decoded_bytes or (_FREE_IMAGE_BYTES if hasattr(field.codec, "decode_bytes") else 0) for field in fields
    )
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, fixed)))


def _check_names(names: Any) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"names of columns are texts, but one is {name!r}; rename it")
        if name in seen:
            raise InvalidArgumentError(
                f"names of columns must differ, got {name!r} twice. Rename or drop one of the columns"
            )
        seen.add(name)


def _is_of(package: str, data: Any, kind: str | None = None) -> bool:
    """Whether data is of a class of a package that need not be installed; of one with a name, where it is given."""
    found = type(data)
    return found.__module__.partition(".")[0] == package and kind in (None, found.__name__)
