"""Rows (dicts) → Arrow record batches, column by column through the codecs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.registry import codec_of
from petastore.errors import EncodeError, InvalidArgumentError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.work import InlinePool, Pool
from petastore.work.futures import in_order

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_ROWS",
    "check_rows",
    "encode_chunks",
    "encode_column",
    "encode_rows",
    "encoded_ahead",
    "in_chunks",
]

CHUNK_BYTES = 4 * 1024 * 1024
"""Rows are encoded together up to about this many bytes of values, so that memory stays bounded."""

CHUNK_ROWS = 4096
"""Rows are encoded together up to this many."""

_UNKNOWN_BYTES = 64


def check_rows(rows: Any) -> None:
    """Refuses what is no iterable of rows.

    Raises:
        InvalidArgumentError: It is none, or one row alone.
    """
    if not isinstance(rows, Iterable) or isinstance(rows, (Mapping, str, bytes)):
        raise InvalidArgumentError(f"rows is an iterable of dicts, one a row, but a {type(rows).__name__} was given")


def encode_chunks(rows: Iterable[Any], schema: Unischema, pool: Pool | None = None) -> Iterator[pa.RecordBatch]:
    """Encode any number of rows, `in_chunks`, so that memory stays bounded.

    Args:
        rows: Dicts or named tuples; the caller's thread takes them.
        schema: What the rows are.
        pool: Who encodes; see `encoded_ahead`.

    Raises:
        EncodeError: As `encode_rows`; by `next`, where the first row that does not fit would come.
    """
    yield from encoded_ahead(_tasks(rows, schema), pool)


def encoded_ahead(tasks: Iterable[Callable[[], pa.RecordBatch]], pool: Pool | None) -> Iterator[pa.RecordBatch]:
    """What tasks encode, in their order.

    Args:
        tasks: Each encodes a chunk; the caller's thread takes them.
        pool: Runs as many as it has workers, and one more, ahead of who takes what they give; None is the caller's
            thread.
    """
    for _, batch in in_order(lambda task: task(), tasks, pool or InlinePool()):
        yield batch


def _tasks(rows: Iterable[Any], schema: Unischema) -> Iterator[Callable[[], pa.RecordBatch]]:
    done = 0
    for chunk in in_chunks(rows, schema):
        yield functools.partial(encode_rows, chunk, schema, first_row=done)
        done += len(chunk)


def encode_rows(rows: Sequence[Mapping[str, Any]], schema: Unischema, *, first_row: int = 0) -> pa.RecordBatch:
    """Encode rows to stored columns.

    Args:
        rows: Of each row: field name to value. A nullable field may be left out or None.
        schema: What the rows are.
        first_row: Number of the first of these rows in all the data given, for messages.

    Returns:
        The stored columns, in the order of the schema, of `petastore.schema.arrow.storage_schema(schema)`.

    Raises:
        EncodeError: A row lacks a field, has one that the schema lacks, has None where that is not allowed, or a
            codec refuses a value; field and row are named.

    Example:
        >>> schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("age", "int32", nullable=True)])
        >>> encode_rows([{"id": 1, "age": 40}, {"id": 2}], schema).to_pydict()
        {'id': [1, 2], 'age': [40, None]}
        >>> encode_rows([{"id": 1}, {"age": 2}], schema)
        Traceback (most recent call last):
        petastore.errors.EncodeError: column 'id', row 1: the row has no value for it, and it is not nullable
    """
    expected = frozenset(schema.fields)
    for number, row in enumerate(rows, first_row):
        if not isinstance(row, Mapping):
            raise EncodeError(f"a row is a dict or a named tuple, but a {type(row).__name__} was given", row=number)
        if row.keys() != expected:
            _check_keys(row, schema, number)
    stored = storage_schema(schema)
    columns = [_column(rows, field, stored.field(field.name).type, first_row) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=stored)


def _check_keys(row: Mapping[str, Any], schema: Unischema, number: int) -> None:
    for name in row:
        if name not in schema:
            known = ", ".join(map(repr, schema.fields))
            raise EncodeError(f"schema {schema.name!r} has no such field; it has {known}", column=str(name), row=number)
    for field in schema:
        if field.name not in row and not field.nullable:
            raise EncodeError("the row has no value for it, and it is not nullable", column=field.name, row=number)


def _column(rows: Sequence[Mapping[str, Any]], field: UnischemaField, stored: pa.DataType, first_row: int) -> pa.Array:
    return encode_column([row.get(field.name) for row in rows], field, stored, first_row=first_row)


def encode_column(
    values: Sequence[Any] | NDArray[Any], field: UnischemaField, stored: pa.DataType, *, first_row: int = 0
) -> pa.Array:
    """Encode the values of one field.

    Args:
        values: An array of shape (rows, ...), or a list; None is null.
        field: What they are.
        stored: The type of its stored column.
        first_row: Number of the first of these rows in all the data given, for messages.

    Raises:
        EncodeError: A value does not fit; field and row are named.
    """
    if not field.nullable and not isinstance(values, np.ndarray):
        for number, value in enumerate(values, first_row):
            if value is None:
                raise EncodeError("the value is None, but the field is not nullable", column=field.name, row=number)
    try:
        cells = codec_of(field).encode_column(values, field)
    except EncodeError as problem:
        problem.row = None if problem.row is None else problem.row + first_row
        raise problem.at(column=field.name) from problem.__cause__
    _check_cells(cells, field, stored, values)
    return cells


def _check_cells(
    cells: pa.Array, field: UnischemaField, stored: pa.DataType, values: Sequence[Any] | NDArray[Any]
) -> None:
    nulls = 0 if isinstance(values, np.ndarray) else sum(value is None for value in values)
    if cells.type != stored or len(cells) != len(values) or cells.null_count != nulls:
        raise EncodeError(
            f"the codec {codec_of(field)!r} gave {len(cells):,} cells of {cells.type} with {cells.null_count:,} nulls "
            f"for {len(values):,} values with {nulls:,}; it promised {stored}. This is a defect of the codec",
            column=field.name,
        )


def in_chunks(rows: Iterable[Any], schema: Unischema) -> Iterator[list[Mapping[str, Any]]]:
    """Rows in lists of at most `CHUNK_ROWS` rows and about `CHUNK_BYTES` bytes of values.

    Named tuples become dicts. A chunk is full once it has reached the bytes, so one row may pass them.
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
