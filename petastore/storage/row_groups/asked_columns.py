"""Selected columns of a row group: leaf numbers, checks of rows and values, casts, and the layout of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow import conformed_column, numbers_of
from petastore.errors import DecodeError, InvalidArgumentError, SchemaError
from petastore.storage.footers.footer import Footer
from petastore.storage.row_groups.opened_file import pyarrow_wheel

__all__ = [
    "MOST_BYTES",
    "Part",
    "as_asked",
    "check_rows",
    "check_whole_microseconds",
    "divided",
    "in_one",
    "is_as_asked",
    "is_pickable",
    "joined",
    "leaves_of",
    "pickable",
    "with_columns",
]

MOST_BYTES = 1024**3
"""Default maximum decoded bytes of a dictionary-encoded column in a row group."""


def check_whole_microseconds(reading: Any, footer: Footer, ordinal: int, leaves: Iterable[int]) -> None:
    """Raise an error for INT96 timestamps with nanoseconds.

    Row groups that pass the check are recorded in the footer. Arrow converts INT96 to a chosen unit without an error
    for values that do not fit. Nanoseconds wrap around outside the years 1677 to 2262, and microseconds lose the last
    three digits.

    Args:
        reading: The `petastore.storage.row_groups.open_files.Reading`.
        footer: Footer of the file.
        ordinal: Number of the row group.
        leaves: Leaf columns to read.

    Raises:
        DecodeError: A timestamp has nanoseconds, so microseconds cannot hold it.
    """
    for leaf in footer.columns.int96_leaves.intersection(leaves):
        if (ordinal, leaf) in footer.whole_microseconds:
            continue
        exact, cut = (
            _integers(reader.read_row_group(ordinal, column_indices=[leaf], use_threads=False).column(0))
            for reader in (reading.nanoseconds(), reading.reader)
        )
        # Both conversions overflow at 64 bits in the same way, so equal integers mean equal times.
        if not np.array_equal(exact, cut * 1000):
            raise DecodeError(
                "INT96 timestamps must be whole microseconds, as Spark writes them, got nanoseconds or a time out of "
                "range. Write the column as TIMESTAMP(NANOS), or leave it out with schema_fields",
                column=footer.columns.stored.column(leaf).path.partition(".")[0],
                file=footer.file.path,
                row_group=ordinal,
            )
        footer.whole_microseconds.add((ordinal, leaf))


def _integers(column: Any) -> NDArray[np.int64]:
    """Return the non-null integers of a nested column of which one leaf was read."""
    return np.concatenate([np.zeros(0, np.int64), *map(_of_leaf, column.chunks)])


def _of_leaf(array: Any) -> NDArray[np.int64]:
    while pa.types.is_nested(array.type):
        is_struct = isinstance(array, pa.StructArray)
        array = array.flatten()[0] if is_struct else array.keys if isinstance(array, pa.MapArray) else array.flatten()
    return numbers_of(array.drop_null().view(pa.int64()))


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Columns of a row group that are read together, at once or some rows at a time."""

    columns: tuple[str, ...]
    """Distinct names of stored columns."""

    rows_at_once: int | None = None
    """Rows of each table except the last; None means one table with all rows."""

    first: int | None = None
    """Number of rows to read from the first row on, as one table; None means all.

    Only the pages with these rows, and little more, are fetched and decoded.
    """

    most_bytes: int = MOST_BYTES
    """Maximum decoded bytes of a dictionary-encoded column."""

    request_bytes: int | None = None
    """Bytes of a remote column chunk to fetch at a time; None fetches whole chunks.

    For row groups that do not fit in memory. A disk cache stores these byte ranges one by one, not as whole chunks.
    """


def in_one(parts: Sequence[Part]) -> Part:
    """Merge parts (groups of columns read together) into one part with all columns."""
    names = tuple(name for part in parts for name in part.columns)
    return Part(names, most_bytes=min(part.most_bytes for part in parts))


def divided(table: pa.Table, parts: Sequence[Part]) -> Iterator[pa.Table]:
    """Divide the columns of a table; yield a table for each part (group of columns read together)."""
    return iter([table]) if len(parts) == 1 else (table.select(list(part.columns)) for part in parts)


def joined(tables: Iterable[pa.Table], parts: Sequence[Part]) -> Iterator[pa.Table]:
    """Concatenate tables without schema metadata; yield one table for each part (group of columns read together).

    Raises:
        pa.ArrowInvalid: The tables have different types.
    """
    return divided(pa.concat_tables(tables).combine_chunks(), parts)


def check_rows(read: int, footer: Footer, ordinal: int, columns: Sequence[str], rows: int) -> None:
    """Raise an error if the number of rows that were read differs from the footer.

    Args:
        read: Number of rows that were read.
        footer: Footer of the file, for the message.
        ordinal: Number of the row group, for the message.
        columns: Columns that were read; without columns, nothing is checked.
        rows: Number of rows that the footer declares.

    Raises:
        DecodeError: The numbers differ.
    """
    if columns and read != rows:
        raise DecodeError(
            f"the pages must have {rows:,} rows, as the footer declares, got {read:,}. Either the file is damaged, or "
            f"{pyarrow_wheel()} drops rows",
            column=columns[0] if len(columns) == 1 else None,
            file=footer.file.path,
            row_group=ordinal,
        )


def leaves_of(footer: Footer, ordinal: int, columns: Sequence[str]) -> list[int]:
    """Return the leaf column numbers of some columns.

    Check that the columns and the row group exist.

    Raises:
        InvalidArgumentError: The file has no such column or row group.
        SchemaError: The column cannot be read; the message has the reason.
    """
    path, groups = footer.file.path, footer.metadata.num_row_groups
    if not 0 <= ordinal < groups:
        raise InvalidArgumentError(
            f"row group must be below {groups:,}, the number of row groups in {path}, got {ordinal:,}"
        )
    known = footer.columns.leaves_of.get(tuple(columns))
    if known is not None:
        return known
    missing = [name for name in columns if name not in footer.leaves]
    for name in missing:
        if name in footer.unreadable:
            raise SchemaError(f"{footer.unreadable[name]}. Leave it out with schema_fields")
    if missing:
        raise InvalidArgumentError(
            f"columns must be columns of {path} ({', '.join(map(repr, footer.arrow_schema.names))}), got {missing[0]!r}"
        )
    if len(set(columns)) != len(columns):
        raise InvalidArgumentError(f"columns must be distinct, got {list(columns)}")
    return footer.columns.leaves_of.setdefault(
        tuple(columns), list(dict.fromkeys(leaf for name in columns for leaf in footer.leaves[name]))
    )


_CHECKED_COLUMNS = 8
"""Maximum number of columns whose chunks are counted, to avoid `combine_chunks`.

With more columns, `combine_chunks` is faster than counting.
"""

_MOST_OFFSET = 2**31 - 1
"""Maximum bytes of text or bytes in one chunk; a larger column has several chunks."""


def as_asked(table: pa.Table, footer: Footer, ordinal: int, columns: tuple[str, ...]) -> pa.Table:
    """Return a table with exactly these columns, in order, with one chunk each.

    Schema metadata is removed. Text or bytes of more than 2 GiB have several chunks.

    Args:
        table: Table that was read.
        footer: Footer of the file; caches the layout of its tables.
        ordinal: Number of the row group.
        columns: Requested columns.

    Raises:
        DecodeError: A column has a dictionary index out of range.
    """
    if not columns:
        return _without_columns(footer.metadata.row_group(ordinal).num_rows)
    return _in_one_chunk(with_columns(table, footer, ordinal, columns))


def with_columns(table: pa.Table, footer: Footer, ordinal: int, columns: tuple[str, ...]) -> pa.Table:
    """Return a table as `as_asked`, but with the chunks as they were read; at least one column.

    Raises:
        DecodeError: A column has a dictionary index out of range.
    """
    if footer.columns.is_renamed:
        table = _with_distinct_names(table, footer, columns)
    # The table layout of a file is computed once: with a thousand columns it would cost more than decoding them.
    known, schema = footer.columns.as_asked.get(columns), table.schema
    if known is None or not schema.equals(known, check_metadata=True):
        if is_as_asked(schema, columns) and footer.columns.casts.keys().isdisjoint(columns):
            footer.columns.as_asked[columns] = schema
        else:
            table = _arranged(table, footer, ordinal, columns)
    return table if schema.metadata is None else table.replace_schema_metadata()


def _in_one_chunk(table: pa.Table) -> pa.Table:
    """Return a table whose columns have one chunk each.

    Text or bytes of more than 2 GiB keep several chunks.
    """
    if table.num_columns > _CHECKED_COLUMNS:
        return table.combine_chunks()
    is_one = all(column.num_chunks == 1 for column in table.itercolumns())
    return table if is_one or table.nbytes > _MOST_OFFSET else table.combine_chunks()


def is_as_asked(schema: pa.Schema, columns: tuple[str, ...]) -> bool:
    """Return whether tables of this schema need no conversion in `as_asked`.

    Schema metadata is ignored. The column names must be equal; no column may have field metadata, a dictionary type, or
    a type without `take`.
    """
    return schema.names == list(columns) and all(
        field.metadata is None and not pa.types.is_dictionary(field.type) and is_pickable(field.type)
        for field in schema
    )


def _without_columns(rows: int) -> pa.Table:
    return pa.table({"": pa.nulls(rows)}).select([])


def _with_distinct_names(table: pa.Table, footer: Footer, columns: tuple[str, ...]) -> pa.Table:
    """Give the columns of a table the distinct names that petastore uses (`FileColumns`).

    This is needed if several columns of the file have the same name. Arrow then returns all of them under this name.

    Args:
        table: Table that Arrow read.
        footer: Footer of the file.
        columns: Names that were requested, in order.
    """
    stored = (name for name in columns if not footer.columns.lacks(name))
    # Arrow returns columns in the order in which their first leaves were requested.
    return table.rename_columns(list(dict.fromkeys(footer.columns.members.get(name, (name,))[0] for name in stored)))


def _arranged(table: pa.Table, footer: Footer, ordinal: int, columns: tuple[str, ...]) -> pa.Table:
    """Return a table with exactly these columns, cast to the types of the dataset."""
    casts, members = footer.columns.casts, footer.columns.members
    arrays, fields = [], []
    for name in columns:
        if footer.columns.lacks(name):
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, casts[name].type)]))
            fields.append(casts[name])
            continue
        if name in members:
            column = pc.struct_field(table.column(members[name][0]), members[name][1:])
            field = pa.field(name, column.type)
        else:
            column, field = table.column(name), table.schema.field(name).remove_metadata()
        _check_indices(column, name, footer.file.path, ordinal)
        if name in casts:
            column, field = _cast(column, casts[name], footer.file.path, ordinal), casts[name]
        arrays.append(column)
        fields.append(field)
    return pickable(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))


def _cast(column: pa.ChunkedArray, wanted: pa.Field, path: str, ordinal: int) -> pa.ChunkedArray:
    try:
        return conformed_column(column, wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise DecodeError(
            f"values must fit in {wanted.type}, the type of the column in the dataset, got a value of {column.type} "
            f"that does not: {problem}. Declare another type with schema=Unischema(…)",
            column=wanted.name,
            file=path,
            row_group=ordinal,
        ) from problem


def _check_indices(column: pa.ChunkedArray, name: str, path: str, ordinal: int) -> None:
    """Raise an error for dictionary indices outside their dictionary.

    Arrow does not check the indices in damaged pages.
    """
    if not pa.types.is_dictionary(column.type):
        return
    try:
        column.validate(full=True)
    except pa.ArrowException as problem:
        raise DecodeError(
            f"the data is damaged: {problem}. Restore the file from a copy, or leave the column out with schema_fields",
            column=name,
            file=path,
            row_group=ordinal,
        ) from problem


def pickable(table: pa.Table) -> pa.Table:
    """Convert columns of a table to types that Arrow's `take` supports.

    Other columns are unchanged. String views and binary views are converted, also inside list views. Dictionaries get
    32-bit indices, because each row group has its own categories, and together they may be too many for 8 bits.

    Example:
        >>> pickable(pa.table({"word": pa.array(["a"], pa.string_view()), "id": [1]})).schema.types
        [DataType(large_string), DataType(int64)]
    """
    wanted = [field.with_type(_pickable_type(field.type)) for field in table.schema]
    if all(field.type == old.type for field, old in zip(wanted, table.schema, strict=True)):
        return table
    # Table.cast raises for required members of null structs
    columns = [conformed_column(column, field.type) for column, field in zip(table.columns, wanted, strict=True)]
    return pa.table(columns, schema=pa.schema(wanted))


def is_pickable(stored: pa.DataType) -> bool:
    """Return whether `take` supports columns of a type.

    Example:
        >>> is_pickable(pa.int64()), is_pickable(pa.list_(pa.string_view()))
        (True, False)
    """
    return bool(_pickable_type(stored) == stored)


def _pickable_type(stored: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(stored):
        return pa.dictionary(pa.int32(), _pickable_type(stored.value_type))
    if types.is_string_view(stored):
        return pa.large_string()
    if types.is_binary_view(stored):
        return pa.large_binary()
    if types.is_struct(stored):
        return pa.struct([field.with_type(_pickable_type(field.type)) for field in stored])
    if types.is_map(stored):
        pickable_map: pa.DataType = pa.map_(
            _pickable_field(stored.key_field), _pickable_field(stored.item_field), stored.keys_sorted
        )
        return pickable_map
    if types.is_large_list(stored):
        return pa.large_list(_pickable_field(stored.value_field))
    if types.is_fixed_size_list(stored):
        return pa.list_(_pickable_field(stored.value_field), stored.list_size)
    if types.is_list(stored):
        return pa.list_(_pickable_field(stored.value_field))
    if (types.is_list_view(stored) or types.is_large_list_view(stored)) and not is_pickable(stored.value_type):
        return pa.large_list(_pickable_field(stored.value_field))
    return stored


def _pickable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_pickable_type(field.type))
