"""Selected columns of a row group: leaf numbers, checks of sizes, and casts.

The decoded size of dictionary-encoded text is computed before memory is allocated. If a million rows have the same text
of one megabyte, it takes one megabyte in the file, but one terabyte in memory. Recent writers store the decoded size in
the footer. If it is missing and the column might be too large, the column is first read as an Arrow dictionary, which
has each text once. The longest text of the dictionary usually shows that the column is small enough; otherwise the
lengths of the texts of all rows are added. The result is cached with the footer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow import conformed_column, flags_of, numbers_of
from petastore.errors import DecodeError, InvalidArgumentError, SchemaError
from petastore.storage.footers.chunk_metadata import ChunkContents
from petastore.storage.footers.footer import Footer
from petastore.storage.row_groups.opened_file import pyarrow_wheel

__all__ = [
    "MOST_BYTES",
    "Part",
    "arranged",
    "check_copies",
    "check_rows",
    "check_whole_microseconds",
    "copied_bytes",
    "divided",
    "in_one",
    "is_pickable",
    "leaves_of",
    "pickable",
    "swelling_leaves",
    "with_distinct_names",
]

MOST_BYTES = 1024**3
"""Default maximum decoded bytes of a dictionary-encoded column in a row group."""

_ROWS_AT_ONCE = 64 * 1024
"""Number of rows whose decoded size is computed at once."""


def swelling_leaves(footer: Footer, ordinal: int, columns: Iterable[str], most: int) -> dict[str, dict[int, str]]:
    """Return the columns whose decoded text may be larger than `most` bytes.

    This is possible if many rows repeat a dictionary value.

    Args:
        footer: Footer of the file.
        ordinal: Number of the row group.
        columns: Names of the columns.
        most: Maximum bytes of a column.

    Returns:
        A dict from column name to the leaves of the column that have a dictionary: a dict from leaf number to path.
    """
    if footer.most_copied_bytes <= most:
        return {}
    chunks = footer.dictionaries[ordinal]
    return {
        name: {leaf: chunks[leaf].path for leaf in footer.leaves[name] if leaf in chunks}
        for name in columns
        if _most_copied_bytes(footer, ordinal, name) > most
    }


def _most_copied_bytes(footer: Footer, ordinal: int, name: str) -> int:
    known = footer.copied_bytes.get((ordinal, name))
    if known is not None:
        return known
    chunks = footer.dictionaries[ordinal]
    return sum(_most_of_chunk(chunks[leaf]) for leaf in footer.leaves[name] if leaf in chunks)


def _most_of_chunk(chunk: ChunkContents) -> int:
    said = chunk.copied_bytes
    return said if said is not None and said >= 0 else chunk.values * chunk.decoded_bytes


def check_copies(reader: Any, footer: Footer, ordinal: int, name: str, leaves: Collection[int], most: int) -> None:
    """Raise an error if a dictionary-encoded column is too large when decoded.

    Decoding copies the dictionary value for each row. The size is cached in the footer.

    Args:
        reader: A `pyarrow.parquet.ParquetReader` that reads `leaves` as dictionaries, and verifies pages.
        footer: Footer of the file.
        ordinal: Number of the row group.
        name: Name of the column.
        leaves: Leaves of the column, from `swelling_leaves`.
        most: Maximum total bytes of the leaves.

    Raises:
        DecodeError: The decoded rows exceed the limit, or the data is damaged.
    """
    size = _most_by_longest_value(reader, footer, ordinal, leaves)
    if size is None or size > most:
        rows = size = 0
        try:
            # Reads some rows at a time, because the indices of all rows may exceed the memory limit.
            for batch in reader.iter_batches(
                _ROWS_AT_ONCE, row_groups=[ordinal], column_indices=list(leaves), use_threads=False
            ):
                rows += batch.num_rows
                size += _copied_bytes(batch.column(0))
        except DecodeError as problem:
            raise problem.at(column=name, file=footer.file.path, row_group=ordinal) from None
        if size > most:
            raise DecodeError(
                f"the {rows:,} decoded rows must take at most {most:,} bytes of memory (a quarter of memory_budget, "
                f"or 1 GiB without one), got {size:,}. Set memory_budget to {4 * size:,} or more, leave the column "
                "out with schema_fields, or write smaller row groups",
                column=name,
                file=footer.file.path,
                row_group=ordinal,
            )
    footer.copied_bytes[ordinal, name] = size


def _most_by_longest_value(reader: Any, footer: Footer, ordinal: int, leaves: Collection[int]) -> int | None:
    """Return an upper bound on the decoded bytes of a column, from its longest value.

    The bound assumes that all rows have the longest value of the dictionary. Only the first row is read, from which
    Arrow usually returns the whole dictionary. Return None if Arrow does not return the dictionary, or if the column
    has several leaves.
    """
    if len(leaves) > 1:
        return None
    batch = next(reader.iter_batches(1, row_groups=[ordinal], column_indices=list(leaves), use_threads=False), None)
    cells = None if batch is None else batch.column(0)
    # For a row in a page without dictionary encoding, Arrow returns a dictionary that has only the value of this row.
    if not isinstance(cells, pa.DictionaryArray) or len(cells.dictionary) < 2:
        return None
    (chunk,) = (footer.dictionaries[ordinal][leaf] for leaf in leaves)
    # The last term covers pages without dictionary encoding.
    return chunk.values * int(_lengths(cells.dictionary).max()) + chunk.decoded_bytes


def copied_bytes(column: Any) -> int:
    """Return the bytes of a decoded dictionary column, with one copy for each row.

    Args:
        column: A `pyarrow.ChunkedArray` that contains dictionaries.

    Raises:
        DecodeError: An index is outside its dictionary.

    Example:
        >>> column = pa.chunked_array([pa.array(["ab", "ab", None, "c"]).dictionary_encode()])
        >>> copied_bytes(column)
        5
    """
    return sum(map(_copied_bytes, column.chunks))


def _copied_bytes(cells: Any) -> int:
    if isinstance(cells, pa.DictionaryArray):
        indices = numbers_of(cells.indices)[flags_of(cells.indices.is_valid())].astype(np.int64)
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < len(cells.dictionary):
            raise DecodeError("the data is damaged: a dictionary index is out of range. Restore the file from a copy")
        return int(_lengths(cells.dictionary)[indices].sum())
    if isinstance(cells, pa.StructArray):
        return sum(map(_copied_bytes, cells.flatten()))
    if isinstance(cells, pa.MapArray):
        return _copied_bytes(cells.keys) + _copied_bytes(cells.items)
    if isinstance(cells, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        return _copied_bytes(cells.flatten())
    return 0


def _lengths(values: Any) -> NDArray[np.int64]:
    return numbers_of(pc.binary_length(values)).astype(np.int64)


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


def leaves_of(footer: Footer, ordinal: int, columns: Sequence[str], groups: int) -> list[int]:
    """Return the leaf column numbers of some columns.

    Check that the columns and the row group exist; `groups` is the number of row groups in the file.

    Raises:
        InvalidArgumentError: The file has no such column or row group.
        SchemaError: The column cannot be read; the message has the reason.
    """
    path = footer.file.path
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


def with_distinct_names(table: pa.Table, footer: Footer, columns: tuple[str, ...]) -> pa.Table:
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


def arranged(table: pa.Table, footer: Footer, ordinal: int, columns: tuple[str, ...]) -> pa.Table:
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
