"""Columns that are asked for: where they lie in a file, and their tables as everybody expects them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from petastore.errors import DecodeError, InvalidArgumentError, SchemaError
from petastore.storage.footers.footers import Footer
from petastore.storage.row_groups.dictionaries import MOST_BYTES
from petastore.storage.row_groups.layouts import is_pickable, pickable

__all__ = ["Part", "as_asked", "check_rows", "is_as_asked", "leaves_of"]

_CHECKED_COLUMNS = 8
"""For so few columns it is faster to look at the chunks of each than to ask Arrow to put them together."""

_MOST_OFFSET = 2**31 - 1
"""Bytes of text or bytes that one chunk holds; a column with more stays in several."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Some columns of a row group, read in one go or a few rows at a time."""

    columns: tuple[str, ...]
    """Stored columns, each once."""

    rows_at_once: int | None = None
    """Rows of each table but the last; None is all of them in one."""

    first: int | None = None
    """How many rows are read, from the first row on, in one table; None is all. Of a column chunk little more than
    these rows is fetched and decoded."""

    most_bytes: int = MOST_BYTES
    """What the rows of one of the columns may take that the file holds as a dictionary, each value once."""


def check_rows(read: int, footer: Footer, ordinal: int, columns: Sequence[str], rows: int) -> None:
    """Refuse a table that has other rows than the footer says.

    Raises:
        DecodeError: It has.
    """
    if columns and read != rows:
        raise DecodeError(
            f"the pages hold {read:,} rows, but the footer says {rows:,}", file=footer.file.path, row_group=ordinal
        )


def leaves_of(footer: Footer, ordinal: int, columns: Sequence[str], groups: int) -> list[int]:
    """The numbers of the leaf columns that some columns have in a file with so many row groups.

    Raises:
        InvalidArgumentError: The file has no such column or row group.
        SchemaError: The column cannot be read, and why.
    """
    path = footer.file.path
    if not 0 <= ordinal < groups:
        raise InvalidArgumentError(f"{path} has {groups:,} row groups, so it has no row group {ordinal:,}")
    known = footer.columns.leaves_of.get(tuple(columns))
    if known is not None:
        return known
    missing = [name for name in columns if name not in footer.leaves]
    for name in missing:
        if name in footer.unreadable:
            raise SchemaError(f"{footer.unreadable[name]}; leave it out with schema_fields")
    if missing:
        raise InvalidArgumentError(f"{path} has no column {missing[0]!r}; it has {', '.join(map(repr, footer.leaves))}")
    if len(set(columns)) != len(columns):
        raise InvalidArgumentError(f"the columns {list(columns)} name one column twice")
    return footer.columns.leaves_of.setdefault(
        tuple(columns), [leaf for name in columns for leaf in footer.leaves[name]]
    )


def as_asked(table: pa.Table, footer: Footer, ordinal: int, columns: tuple[str, ...]) -> pa.Table:
    """A table that was read, with exactly these columns in this order, without metadata, one chunk each.

    Text or bytes of more than 2 GiB come in several chunks.

    Args:
        table: What was read.
        footer: Of the file; remembers what its tables are like.
        ordinal: The row group.
        columns: What was asked for.

    Raises:
        DecodeError: A column holds what cannot be followed.
    """
    if not columns:
        return pa.table({"": pa.nulls(footer.metadata.row_group(ordinal).num_rows)}).select([])
    # What a file's tables are like is found out once: with a thousand columns it would cost more than decoding them.
    known, schema = footer.columns.as_asked.get(columns), table.schema
    if known is None or not schema.equals(known, check_metadata=True):
        if is_as_asked(schema, columns):
            footer.columns.as_asked[columns] = schema
        else:
            table = _arranged(table, footer, ordinal, columns)
    table = table if schema.metadata is None else table.replace_schema_metadata()
    return _in_one_chunk(table)


def _in_one_chunk(table: pa.Table) -> pa.Table:
    if table.num_columns > _CHECKED_COLUMNS:
        return table.combine_chunks()
    is_one = all(table.column(number).num_chunks == 1 for number in range(table.num_columns))
    return table if is_one or table.nbytes > _MOST_OFFSET else table.combine_chunks()


def is_as_asked(schema: pa.Schema, columns: tuple[str, ...]) -> bool:
    """Whether tables with a schema are as asked, but for what Arrow says of the whole table."""
    return schema.names == list(columns) and all(
        field.metadata is None and not pa.types.is_dictionary(field.type) and is_pickable(field.type)
        for field in schema
    )


def _arranged(table: pa.Table, footer: Footer, ordinal: int, columns: tuple[str, ...]) -> pa.Table:
    for name in columns:
        _check_indices(table.column(name), name, footer.file.path, ordinal)
    fields = [table.schema.field(name).remove_metadata() for name in columns]
    return pickable(pa.Table.from_arrays([table.column(name) for name in columns], schema=pa.schema(fields)))


def _check_indices(column: pa.ChunkedArray, name: str, path: str, ordinal: int) -> None:
    """Refuse indices outside their dictionary, which a damaged page may hold and Arrow would follow anywhere."""
    if not pa.types.is_dictionary(column.type):
        return
    try:
        column.validate(full=True)
    except pa.ArrowException as problem:
        raise DecodeError(f"the data is damaged: {problem}", column=name, file=path, row_group=ordinal) from problem
