"""Input columns from Arrow, pandas, dicts and Arrow C streams.

Columns have types, so the schema can be inferred without inspecting each row. Columns that need no encoding are written
without running Python for each cell.
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
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.codecs import ArrowCodec, NdarrayCodec, ScalarCodec
from petastore.codecs.arrow.arrow_lists import are_arrays
from petastore.codecs.arrow_cells import with_arrow_type
from petastore.codecs.images.image import image_field, is_image_struct
from petastore.errors import EncodeError, InvalidArgumentError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import field_from_arrow
from petastore.schema.values import each_value
from petastore.work import Pool
from petastore.writers.encode import CHUNK_BYTES, CHUNK_ROWS, Column, encode_chunk, encoded_ahead, without_views
from petastore.writers.python_values import arrow_values, conversion_problem

__all__ = ["KINDS", "InputColumns", "Tabular", "columns_of", "encode_columns", "infer_schema"]


class ArrowStream(Protocol):
    """Object with an Arrow C stream.

    Examples are Arrow tables, pandas and Polars DataFrames, and DuckDB relations.
    """

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class HuggingFaceDataset(Protocol):
    """A `datasets.Dataset`."""

    def with_format(self, kind: str, /) -> Any: ...

    def __len__(self) -> int: ...


Tabular: TypeAlias = Mapping[str, Any] | ArrowStream | HuggingFaceDataset
"""Columnar data that `write_dataset` accepts."""

_DECIMAL = pa.decimal128(38, 18)
"""Type of decimals without a declared precision, as in fields without a codec."""

_FREE_IMAGE_BYTES = 64 * 1024
"""Estimated bytes to encode an image of unknown size."""

_LOOKED_AT = 1000
"""Maximum number of values of a column to inspect, if Arrow has no type for them."""

KINDS = "an Arrow table, a pandas or Polars frame, a datasets.Dataset, or a dict of columns"
"""Accepted containers of columns, for messages."""


@dataclasses.dataclass(frozen=True)
class InputColumns:
    """Columns of a DataFrame or a table to write, read in chunks of rows."""

    names: tuple[str, ...]
    """Names of the columns."""

    num_rows: int | None
    """Number of rows; None for a stream, which is not counted, because that may run a query twice."""

    fields: Callable[[], Iterator[UnischemaField]] = dataclasses.field(repr=False)
    """Function that infers the fields one by one, and raises `SchemaError` if a type is unknown."""

    chunks: Callable[[int], Iterator[Mapping[str, Column]]] = dataclasses.field(repr=False)
    """Function that yields the rows, in order, in chunks of at most the given number of rows.

    A stream can be read only once.
    """


def columns_of(data: Any) -> InputColumns | None:
    """Return the columns of some data; None for data without columns.

    A list of rows, for example, does not have columns.

    Args:
        data: A `pyarrow.Table`, `RecordBatch` or `RecordBatchReader`; a pandas DataFrame, whose index is left out;
            a `datasets.Dataset` of Hugging Face; an object with `__arrow_c_stream__`, such as a Polars DataFrame or
            DuckDB relation; a dict of columns by name, each an array of shape (rows, ...) or a sequence of values.

    Raises:
        InvalidArgumentError: Columns are not equally long, or a name is not text.
        SchemaError: A column has values of an unsupported type.
    """
    if isinstance(data, Mapping):
        return _of_dict(data)
    if isinstance(data, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return _of_arrow(data)
    if _is_of("polars", data, "DataFrame"):  # convert to an Arrow table, so that values can be inspected
        return _of_arrow(_imported(data, pa.table))
    if _is_of("pandas", data, "DataFrame"):
        _check_names(data.columns)
        return _of_dict({name: data[name] for name in data.columns})
    if _is_hugging_face(data):
        return _of_hugging_face(data)
    if hasattr(data, "__arrow_c_stream__"):
        return _of_arrow(_imported(data, pa.RecordBatchReader.from_stream))
    return None


def _imported(data: Any, convert: Callable[[Any], Any]) -> Any:
    """Return the result of `convert`, which takes an object with `__arrow_c_stream__`.

    Raises:
        InvalidArgumentError: The object is not a table, or Arrow lacks the type of a column.
    """
    try:
        return convert(data)
    except (pa.ArrowException, TypeError) as problem:
        raise InvalidArgumentError(
            f"data must be a table whose columns Arrow can read, got a {type(data).__name__}: {problem!s:.200}. "
            'Pass one column as {"name": column}'
        ) from problem


def infer_schema(data: Tabular, *, name: str = "inferred") -> Unischema:
    """Infer the schema that `write_dataset` uses for a DataFrame, a table or a dict of columns.

    Print the result and adapt it where needed: give image columns an image codec, and make columns nullable if they may
    have missing values later. Arrays of two or more dimensions get `NdarrayCodec`; lists and one-dimensional arrays
    become Parquet lists. Lists with missing values, nested lists of text, bytes or decimals, and lists of decimals
    outside `decimal(38, 18)` get `ArrowCodec`. A field is nullable if a value is missing, or, for a stream, if the
    stream's schema declares it. NaN is not a missing value.

    Args:
        data: Columns of data, as in `write_dataset`. For a stream, which can be read only once, pass
            `reader.schema.empty_table()`.
        name: Name of the schema.

    Returns:
        A schema with a field for each column.

    Raises:
        InvalidArgumentError: The data has no columns, or its columns have different lengths.
        SchemaError: The type of a column is not supported.

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
        raise InvalidArgumentError(f"data must be {KINDS}, got {type(data).__name__}")
    return Unischema(name, columns.fields())


def encode_columns(columns: InputColumns, schema: Unischema, pool: Pool | None = None) -> Iterator[pa.RecordBatch]:
    """Encode columns to stored cells, and yield record batches of some rows each.

    Args:
        columns: Columns to encode. Unknown columns raise an error; columns of nullable fields may be missing.
        schema: Schema of the columns.
        pool: Pool that encodes; see `petastore.writers.encode.encoded_ahead`.

    Raises:
        EncodeError: A value does not match its field; raised by `next` for its chunk; the message names field and row.
    """
    _check_fields(columns.names, schema)
    yield from encoded_ahead(_tasks(columns, schema), pool)


def _tasks(columns: InputColumns, schema: Unischema) -> Iterator[Callable[[], pa.RecordBatch]]:
    done = 0
    for chunk in columns.chunks(_rows_at_once(schema)):
        rows = len(next(iter(chunk.values()))) if chunk else 0
        yield functools.partial(encode_chunk, chunk.get, schema, rows, done)
        done += rows


def _check_fields(names: Sequence[str], schema: Unischema) -> None:
    for name in names:
        if name not in schema:
            known = ", ".join(map(repr, schema.fields))
            raise EncodeError(f"columns must be fields of schema {schema.name!r} ({known}), got {name!r}", column=name)
    for field in schema:
        if field.name not in names and not field.nullable:
            raise EncodeError(
                "the column must be given, because the field is not nullable, got none. Add the column, or declare "
                "nullable=True",
                column=field.name,
            )


def _of_arrow(data: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> InputColumns:
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

    return InputColumns(tuple(data.schema.names), None if is_stream else data.num_rows, fields, chunks)


def _is_hugging_face(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("with_format", "features", "data", "iter"))


def _of_hugging_face(data: Any) -> InputColumns:
    """Return the columns of a `datasets.Dataset`.

    Rows are selected and ordered by the indices of the dataset.
    """
    table, indices = data.data.table, data._indices  # noqa: SLF001 - other libraries also read it
    _check_names(table.column_names)

    def fields() -> Iterator[UnischemaField]:
        for name, column in zip(table.column_names, table.columns, strict=True):
            field = _field_of_arrow(name, column)
            if field.nullable and indices is not None and field.codec != ArrowCodec(pa.null()):
                is_missing = column.is_null().take(indices.column(0))
                field = dataclasses.replace(field, nullable=bool(pc.any(is_missing).as_py()))
            yield field

    def chunks(rows: int) -> Iterator[Mapping[str, Column]]:
        # `iter` copies a few rows at a time, whereas `take` with the indices would copy all rows, which may be large.
        fitting = CHUNK_BYTES * len(table) // max(1, table.nbytes)
        for part in data.with_format("arrow").iter(batch_size=max(1, min(rows, fitting))):
            yield dict(zip(part.column_names, part.columns, strict=True))

    return InputColumns(tuple(table.column_names), len(data), fields, chunks)


def _field_of_arrow(name: str, column: pa.Array | pa.ChunkedArray) -> UnischemaField:
    """Infer the field of an Arrow column from its type and values."""
    kind = column.type
    declared = pa.field(name, kind, column.null_count > 0 or pa.types.is_null(kind))
    if is_image_struct(kind):
        image = image_field(name, column.drop_null().slice(0, _LOOKED_AT).to_pylist())
        if image is not None:
            return dataclasses.replace(image, nullable=declared.nullable)
    field = _field_of_type(declared)
    if field.shape and not are_arrays(without_views(column), field):
        return UnischemaField(name, object, (), ArrowCodec(kind), declared.nullable)
    return field


def _field_of_type(declared: pa.Field) -> UnischemaField:
    # The field comes from Arrow's declared type and nullability, not from the values.
    field = dataclasses.replace(field_from_arrow(declared), nullable=declared.nullable)
    field = with_arrow_type(field, declared.type)
    kind = declared.type.value_type if pa.types.is_dictionary(declared.type) else declared.type
    if field.numpy_dtype is Decimal and field.is_scalar and kind != _DECIMAL and not _is_only_castable(kind):
        codec = ScalarCodec(f"decimal({kind.precision},{kind.scale})") if kind.precision <= 38 else ArrowCodec(kind)
        field = UnischemaField(field.name, Decimal if kind.precision <= 38 else object, (), codec, field.nullable)
    if field.shape and not _holds_items(field, declared.type):
        return UnischemaField(field.name, object, (), ArrowCodec(declared.type), field.nullable)
    return dataclasses.replace(field, codec=NdarrayCodec()) if len(field.shape) > 1 else field


def _holds_items(field: UnischemaField, kind: pa.DataType) -> bool:
    """Return whether an array field holds all values of a list type.

    Decimals in lists are stored as `decimal(38, 18)`. Nested lists are stored by `NdarrayCodec`, which Arrow's text,
    bytes and decimals do not fit.
    """
    while hasattr(kind, "value_type"):
        kind = kind.value_type
    is_within = not pa.types.is_decimal(kind) or _is_within(kind)
    return is_within and not (len(field.shape) > 1 and field.dtype.hasobject)


def _is_only_castable(kind: pa.DataType) -> bool:
    """Return whether a decimal type must be stored as `decimal(38, 18)`.

    The values of such a type fit into `decimal(38, 18)`. Parquet or Spark does not support the type itself, because its
    scale is negative or exceeds the precision.
    """
    return _is_within(kind) and not 0 <= kind.scale <= kind.precision


def _is_within(kind: pa.DataType) -> bool:
    return bool(kind.scale <= _DECIMAL.scale and kind.precision - kind.scale <= _DECIMAL.precision - _DECIMAL.scale)


def _of_dict(data: Mapping[Any, Any]) -> InputColumns:
    _check_names(data)
    columns = {name: _column(name, values) for name, values in data.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name!r} has {rows:,}" for name, rows in lengths.items())
        raise InvalidArgumentError(f"columns must have equal lengths, got {said}")
    rows = max(lengths.values(), default=0)

    def chunks(step: int) -> Iterator[Mapping[str, Column]]:
        for first in range(0, rows, step):
            yield {name: column[first : first + step] for name, column in columns.items()}

    return InputColumns(tuple(columns), rows, lambda: itertools.starmap(_field_of, columns.items()), chunks)


def _column(name: str, values: Any) -> Column:
    """Return values as an Arrow array, or unchanged if Arrow lacks a type for them."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    is_known = isinstance(values, np.ndarray) or _is_of("pandas", values) or hasattr(values, "__arrow_c_stream__")
    if hasattr(values, "__array__") and not is_known:
        values = _as_array(name, values)
    if isinstance(values, np.ma.MaskedArray) and values.ndim > 1:
        values = list(each_value(values))
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return values
    if _is_hugging_face(values):
        raise InvalidArgumentError(
            f"column {name!r} must be an array or a list, got a dataset. Write each split by itself"
        )
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
        raise InvalidArgumentError(
            f"column {name!r} must be an array or a list, got {type(values).__name__}. Put a dict that is one row "
            "into a list of rows"
        )
    if hasattr(values, "__arrow_c_stream__") and not _is_of("pandas", values):
        return pa.chunked_array(values)
    column = arrow_values(values)
    if isinstance(column, list):
        return column
    # Rows that are appended later may have more digits than these values.
    is_inferred = pa.types.is_decimal(column.type) and not hasattr(getattr(values, "dtype", None), "pyarrow_dtype")
    return column.cast(_DECIMAL) if is_inferred and _is_within(column.type) else column


def _as_array(name: str, values: Any) -> NDArray[Any]:
    """Convert an array of another library, such as torch, JAX or h5py, to NumPy.

    Raises:
        InvalidArgumentError: The library refuses, for example because the array is on a GPU.
    """
    try:
        return np.asarray(values)
    except Exception as problem:
        raise InvalidArgumentError(
            f"column {name!r} must be convertible to NumPy, got {type(values).__name__}: {problem!s:.200}. "
            "Convert it to a NumPy array"
        ) from problem


def _field_of(name: str, column: Column) -> UnischemaField:
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return _field_of_arrow(name, column)
    if isinstance(column, np.ndarray):
        return UnischemaField(name, column.dtype, column.shape[1:], NdarrayCodec() if column.ndim > 2 else None)
    return _field_of_values(name, column)


def _field_of_values(name: str, values: Sequence[Any]) -> UnischemaField:
    present = [value for value in values[:_LOOKED_AT] if value is not None]
    if present and all(isinstance(value, uuid.UUID) for value in present):  # pyarrow < 21 infers no type
        return UnischemaField(name, bytes, (), None, any(value is None for value in values))
    known = [np.asarray(value) for value in present]
    kinds = {(value.dtype, value.ndim) for value in known}
    if len(kinds) != 1 or next(iter(kinds))[0].kind not in "biuf":
        kinds_of_python = ", ".join(sorted({type(value).__name__ for value in values[:_LOOKED_AT]}))
        raise SchemaError(
            f"column {name!r} must have values of one type that Arrow supports, got {kinds_of_python} "
            f"({conversion_problem(values)}). Convert them, or write rows with your own schema"
        )
    ((dtype, _),) = kinds
    sizes = zip(*(value.shape for value in known), strict=True)
    shape = tuple(of_axis[0] if len(set(of_axis)) == 1 else None for of_axis in sizes)
    codec = NdarrayCodec() if len(shape) > 1 else None
    return UnischemaField(name, dtype, shape, codec, any(value is None for value in values))


def _rows_at_once(fields: Iterable[UnischemaField]) -> int:
    """Return the number of rows to encode together, to limit memory.

    The values of these rows take about `CHUNK_BYTES`. Values of fixed shape count with their size, and images of
    variable shape with an estimate. Other values are not counted.
    """
    fixed = sum(
        field.decoded_bytes or (_FREE_IMAGE_BYTES if hasattr(field.codec, "decode_bytes") else 0) for field in fields
    )
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, fixed)))


def _check_names(names: Any) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"names of columns must be str, got {name!r}. Rename it")
        if name in seen:
            raise InvalidArgumentError(
                f"names of columns must differ, got {name!r} twice. Rename or drop one of the columns"
            )
        seen.add(name)


def _is_of(package: str, data: Any, kind: str | None = None) -> bool:
    """Return whether a package defines the class of `data`, without importing the package.

    Args:
        package: Name of the top-level package.
        data: Any object.
        kind: Required name of the class; None accepts all classes of the package.
    """
    found = type(data)
    return found.__module__.partition(".")[0] == package and kind in (None, found.__name__)
