"""Encode rows (dicts) as Arrow record batches, column by column."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import NUMBER_DTYPES
from petastore.codecs.arrow_cells import encode_cells
from petastore.codecs.registry import codec_of
from petastore.errors import EncodeError, InvalidArgumentError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.storage.row_groups.asked_columns import is_pickable, pickable
from petastore.work import InlinePool, Pool
from petastore.work.futures import in_order

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_ROWS",
    "Column",
    "check_rows",
    "encode_chunk",
    "encode_chunks",
    "encode_rows",
    "encoded_ahead",
    "in_chunks",
    "without_views",
]

Column: TypeAlias = Any
"""A `pyarrow.Array` or `ChunkedArray`, an array of shape (rows, ...), or a list of values."""

CHUNK_BYTES = 4 * 1024 * 1024
"""Approximate maximum bytes of values that are encoded together, to limit memory."""

CHUNK_ROWS = 4096
"""Maximum number of rows that are encoded together."""

_UNKNOWN_BYTES = 64


def check_rows(rows: Any) -> None:
    """Raise an error if the argument is not an iterable of rows.

    Raises:
        InvalidArgumentError: `rows` is not iterable, or is a single row.
    """
    if not isinstance(rows, Iterable) or isinstance(rows, (Mapping, str, bytes)):
        raise InvalidArgumentError(f"rows must be an iterable of dicts, got {type(rows).__name__}")


def encode_chunks(rows: Iterable[Any], schema: Unischema, pool: Pool | None = None) -> Iterator[pa.RecordBatch]:
    """Encode rows, and yield one record batch of stored cells for each chunk of rows.

    Chunks, which limit memory, are those of `in_chunks`.

    Args:
        rows: Dicts or named tuples, iterated in the caller's thread.
        schema: Schema of the rows.
        pool: Pool that encodes; see `encoded_ahead`.

    Raises:
        EncodeError: As in `encode_rows`; raised by `next` for the chunk with the first invalid row.
    """
    yield from encoded_ahead(_tasks(rows, schema), pool)


def encoded_ahead(tasks: Iterable[Callable[[], pa.RecordBatch]], pool: Pool | None) -> Iterator[pa.RecordBatch]:
    """Run encoding tasks in a pool, several at a time; yield their results in order.

    Args:
        tasks: Iterator of functions that encode one chunk each, advanced in the caller's thread.
        pool: Pool that runs as many tasks ahead as it has workers, plus one; None means the caller's thread.
    """
    for _, batch in in_order(lambda task: task(), tasks, pool or InlinePool()):
        yield batch


def _tasks(rows: Iterable[Any], schema: Unischema) -> Iterator[Callable[[], pa.RecordBatch]]:
    done = 0
    for chunk in in_chunks(rows, schema):
        yield functools.partial(encode_rows, chunk, schema, first_row=done)
        done += len(chunk)


def encode_rows(rows: Sequence[Mapping[str, Any]], schema: Unischema, *, first_row: int = 0) -> pa.RecordBatch:
    """Encode rows, given as dicts, to a record batch of stored cells.

    Args:
        rows: Rows as dicts from field name to value. A nullable field may be missing, None or `numpy.ma.masked`.
        schema: Schema of the rows.
        first_row: Number of the first row, counted over all the data of the write, for messages.

    Returns:
        The stored columns, in the order of the schema, of `petastore.schema.arrow.storage_schema(schema)`.

    Raises:
        EncodeError: A row has a missing or unknown field, None in a field that is not nullable, or a value that its
            codec rejects; the message names field and row.

    Example:
        >>> schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("age", "int32", nullable=True)])
        >>> encode_rows([{"id": 1, "age": 40}, {"id": 2}], schema).to_pydict()
        {'id': [1, 2], 'age': [40, None]}
        >>> encode_rows([{"id": 1}, {"age": 2}], schema)
        Traceback (most recent call last):
        petastore.errors.EncodeError: column 'id', row 1: the row must have this field, because the field is not
            nullable. Add it, or declare nullable=True
    """
    expected = frozenset(schema.fields)
    for number, row in enumerate(rows, first_row):
        if not isinstance(row, Mapping):
            raise EncodeError(f"a row must be a dict or a named tuple, got {type(row).__name__}", row=number)
        if row.keys() != expected:
            _check_keys(row, schema, number)
    return encode_chunk(lambda name: [row.get(name) for row in rows], schema, len(rows), first_row)


def _check_keys(row: Mapping[str, Any], schema: Unischema, number: int) -> None:
    for name in row:
        if name not in schema:
            known = ", ".join(map(repr, schema.fields))
            raise EncodeError(
                f"a row must have only fields of schema {schema.name!r} ({known}), got {name!r}",
                column=str(name),
                row=number,
            )
    for field in schema:
        if field.name not in row and not field.nullable:
            raise EncodeError(
                "the row must have this field, because the field is not nullable. Add it, or declare nullable=True",
                column=field.name,
                row=number,
            )


def encode_chunk(
    column_of: Callable[[str], Column | None], schema: Unischema, rows: int, first_row: int
) -> pa.RecordBatch:
    """Encode some rows, given by column, to a record batch of stored cells.

    Args:
        column_of: Function that returns the column of a field: an Arrow column; an array of shape (rows, ...) or a
            list, in which None and `numpy.ma.masked` are null; None for a nullable field without a column.
        schema: Schema of the rows.
        rows: Number of rows.
        first_row: Number of the first row, counted over all the data of the write, for messages.

    Raises:
        EncodeError: A value does not match its field; the message names field and row.
    """
    stored = storage_schema(schema)
    cells = []
    for field in schema:
        column, kind = column_of(field.name), stored.field(field.name).type
        try:
            cells.append(pa.nulls(rows, kind) if column is None else _encoded(column, field, kind))
        except EncodeError as problem:
            problem.row = None if problem.row is None else problem.row + first_row
            raise problem.at(column=field.name) from problem.__cause__
    return pa.RecordBatch.from_arrays(cells, schema=stored)


def _encoded(column: Column, field: UnischemaField, stored: pa.DataType) -> pa.Array:
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return _encoded_arrow(column, field, stored)
    if not isinstance(column, np.ndarray):
        column = [None if value is np.ma.masked else value for value in column]
        for row, value in enumerate(() if field.nullable else column):
            if value is None:
                raise EncodeError(
                    "the value must not be None, because the field is not nullable. Declare nullable=True", row=row
                )
    cells = codec_of(field).encode_column(column, field)
    _check_cells(cells, field, stored, column)
    return cells


def _encoded_arrow(column: pa.Array | pa.ChunkedArray, field: UnischemaField, stored: pa.DataType) -> pa.Array:
    column = without_views(column)
    cells = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    is_scalar = field.codec is None and field.is_scalar
    is_stored_so = cells.type == stored and is_scalar and _has_only_values_of(stored, field.dtype)
    return cells if is_stored_so and (field.nullable or not cells.null_count) else encode_cells(cells, field)


def without_views(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Convert string and binary views in a column to ordinary types.

    Arrow cannot select values from views.
    """
    return column if is_pickable(column.type) else pickable(pa.table({"": column})).column(0)


def _has_only_values_of(stored: pa.DataType, dtype: np.dtype[Any]) -> bool:
    """Return whether all values of the Arrow type `stored` are values of `dtype`.

    Values then need no range check. The result is False, for example, if `uint8` is stored as int16.
    """
    if dtype.kind in "iuf":
        return NUMBER_DTYPES.get(stored) == dtype
    if dtype.kind == "M":
        return pa.types.is_date32(stored) or f"datetime64[{stored.unit}]" == str(dtype)
    return True


def _check_cells(
    cells: pa.Array, field: UnischemaField, stored: pa.DataType, values: Sequence[Any] | NDArray[Any]
) -> None:
    nulls = 0 if isinstance(values, np.ndarray) else len([value for value in values if value is None])
    if cells.type != stored or len(cells) != len(values) or cells.null_count != nulls:
        raise EncodeError(
            f"the codec {codec_of(field)!r} must return {stored}, got {len(cells):,} cells of {cells.type} with "
            f"{cells.null_count:,} nulls for {len(values):,} values with {nulls:,}. This is a defect of the codec",
            column=field.name,
        )


def in_chunks(rows: Iterable[Any], schema: Unischema) -> Iterator[list[Mapping[str, Any]]]:
    """Yield rows in chunks (lists), which limit the memory for encoding.

    A chunk has at most `CHUNK_ROWS` rows and about `CHUNK_BYTES` bytes of values: it ends with the row that reaches
    `CHUNK_BYTES`. Named tuples become dicts.
    """
    fixed = sum(field.decoded_bytes or 0 for field in schema)
    free = [field.name for field in schema if field.decoded_bytes is None]
    chunk: list[Mapping[str, Any]] = []
    held = 0
    for row in rows:
        named = row._asdict() if hasattr(row, "_asdict") else row
        chunk.append(named)
        held += fixed + (_bytes_of(named, free) if free else 0)
        if held >= CHUNK_BYTES or len(chunk) >= CHUNK_ROWS:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


def _bytes_of(row: Any, names: Sequence[str]) -> int:
    if not isinstance(row, Mapping):
        return _UNKNOWN_BYTES
    return sum(_size(row.get(name)) for name in names)


def _size(value: Any) -> int:
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    return len(value) if isinstance(value, (str, bytes)) else _UNKNOWN_BYTES
