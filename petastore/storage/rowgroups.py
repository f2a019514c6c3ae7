"""One row group of one file → Arrow tables of the columns asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import DecodeError, PetastoreError, RequestError, SchemaError
from petastore.inventory import DataFile
from petastore.storage.dictionaries import MOST_BYTES, copied_bytes, swelling_leaves
from petastore.storage.failure_kinds import kind_of
from petastore.storage.failures import RaisedByStorage, failure, raise_alone
from petastore.storage.footers import Footer, FooterCache, check_unchanged, read_footer
from petastore.storage.in_time import in_time
from petastore.storage.layouts import is_pickable, pickable
from petastore.storage.location import Location
from petastore.storage.open_files import OpenFiles, Reading, refuse_damaged_pages
from petastore.storage.under_way import waiting_for
from petastore.storage.whole_files import read_up_to
from petastore.threads import is_daemon_of_ours

_CHECKED_COLUMNS = 8
"""For so few columns it is faster to look at the chunks of each than to ask Arrow to put them together."""

SMALL_FILE_BYTES = 256 * 1024
"""Files of so many bytes are read whole."""

_MOST_DECODED_BYTES = 4 * 1024 * 1024
"""Row groups of such files that have more bytes once decompressed, as the footer says, are read column by column."""

__all__ = ["Part", "read_row_group", "read_row_group_in_parts"]


def read_row_group(
    location: Location, file: DataFile, ordinal: int, columns: Sequence[str], *, footers: FooterCache
) -> pa.Table:
    """Read columns of one row group, in the calling thread.

    Columns are named by their top-level name, taken literally (dots too); nested columns are read whole. The GIL is
    let go while pages are decompressed and decoded. Thread-safe: each call opens the file for itself.

    Args:
        location: Where the dataset lies.
        file: The file, as the inventory describes it.
        ordinal: The row group's number in its file, from 0.
        columns: Stored columns, each once; none gives a table without columns whose `num_rows` is right.
        footers: Keeps footers from call to call.

    Returns:
        A table of exactly these columns in this order, without metadata, one chunk each, laid out so that rows can be
        picked from it (`petastore.storage.layouts`). It owns its memory.

    Raises:
        RequestError: The file has no such column or row group.
        SchemaError: The column cannot be read, and why.
        DatasetChangedError: The file is not the one that the inventory describes.
        DecodeError: A page is damaged; file, row group and column are named.
        StorageError: The file is missing or cannot be read.
    """
    (table,) = read_row_group_in_parts(location, file, ordinal, [Part(tuple(columns))], footers=footers)
    return table


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


def read_row_group_in_parts(
    location: Location,
    file: DataFile,
    ordinal: int,
    parts: Sequence[Part],
    *,
    footers: FooterCache,
    files: OpenFiles | None = None,
) -> Iterator[pa.Table]:
    """`read_row_group`, part after part: the file is opened once.

    Who copies what it needs of a table before it asks for the next one never has the whole row group in Arrow's memory,
    and the little that Arrow uses stays in the processor's cache.

    Args:
        location: Where the dataset lies.
        file: The file, as the inventory describes it.
        ordinal: The row group's number in its file, from 0.
        parts: What is read, in this order.
        footers: Keeps footers from call to call.
        files: Keeps files open from call to call, and knows which checksums of pages were found right; None closes the
            file after the last part, and all checksums are verified, where pages have any.

    Returns:
        Of each part one table at least, and all its rows in the order of the file.

    Raises:
        RequestError: The file has no such column or row group; said before anything is read.
        SchemaError: The column cannot be read, and why; as early.
        DatasetChangedError: The file is not the one that the inventory describes.
        DecodeError: A page is damaged; file, row group and column are named.
        StorageTimeoutError: Storage did not answer in time; where a thread of ours reads, who waits for it is told.
        StorageError: The file is missing or cannot be read.
    """
    tables = _tables_of_parts(location, file, ordinal, parts, footers, files)
    while (table := _in_time(location, file, tables)) is not None:
        yield table


def _in_time(location: Location, file: DataFile, tables: Iterator[pa.Table]) -> pa.Table | None:
    """The next table; None after the last one.

    A local file is read by the calling thread, whoever that is: a daemon would cost more than most row groups.
    """
    if is_daemon_of_ours() or str(location.filesystem.type_name) == "local":
        with waiting_for(location.url, f"read {file.path}", location.timeout_s):
            return next(tables, None)
    what = f"read {file.path}"
    return in_time(lambda: next(tables, None), url=location.url, what=what, limit_s=location.timeout_s)


def _tables_of_parts(
    location: Location,
    file: DataFile,
    ordinal: int,
    parts: Sequence[Part],
    footers: FooterCache,
    files: OpenFiles | None,
) -> Iterator[pa.Table]:
    if file.size <= SMALL_FILE_BYTES and _are_for_one_go(parts) and footers.knows_small_footer(location, file):
        table = _of_small_file(location, file, ordinal, _in_one(parts), footers)
        if table is not None:
            yield from [table] if len(parts) == 1 else (table.select(list(part.columns)) for part in parts)
            return
    footer = footers.get(location, file)
    leaves = [_leaves(footer, ordinal, part.columns, footer.metadata.num_row_groups) for part in parts]
    columns: Sequence[str] = ()
    asked = tuple(part.columns for part in parts)
    try:
        whole = any(part.first is None for part in parts)
        with _lender(files) as lender, lender.reading(location, footer, ordinal, asked, whole=whole) as reading:
            for part, leaves_of_part in zip(parts, leaves, strict=True):
                columns = part.columns
                swelling = swelling_leaves(footer, ordinal, leaves_of_part, part.most_bytes)
                if swelling:
                    of_dictionaries = lender.reading(
                        location, footer, ordinal, (columns,), whole=whole, dictionaries=tuple(swelling.values())
                    )
                    copied = _right_copy(of_dictionaries, footer, ordinal, part, leaves_of_part, swelling)
                    if copied is not None:
                        yield from _pieces(copied, part.rows_at_once)
                        continue
                yield from _right_tables(reading, footer, ordinal, part, leaves_of_part)
            if whole:
                reading.check_pages(leaf for of_part in leaves for leaf in of_part)
                reading.found_right()
    except (pa.ArrowException, OSError) as problem:
        raise_alone(_explained(problem, location, file, ordinal, columns, footer))


def _right_tables(reading: Reading, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> Iterator[pa.Table]:
    """The tables of a part; one that was read while somebody wrote to the file is read again, and verified."""
    given = 0
    for table in _tables(reading.reader, footer, ordinal, part, leaves):
        if reading.is_in_doubt:
            break
        given += 1
        yield table
    else:
        return
    reading.verify()
    yield from itertools.islice(_tables(reading.reader, footer, ordinal, part, leaves), given, None)


def _are_for_one_go(parts: Sequence[Part]) -> bool:
    names = [name for part in parts for name in part.columns]
    return bool(parts) and len(set(names)) == len(names) and all(part.first is None and part.columns for part in parts)


def _in_one(parts: Sequence[Part]) -> Part:
    return Part(
        tuple(name for part in parts for name in part.columns), most_bytes=min(part.most_bytes for part in parts)
    )


def _of_small_file(
    location: Location, file: DataFile, ordinal: int, part: Part, footers: FooterCache
) -> pa.Table | None:
    """Columns of a row group of a file that is read whole, with one request: the file that is described, all of it.

    To ask for the footer first and for the pages then takes longer than to read and verify them all, however often.
    None where the little that is in the file may be much in memory.
    """
    columns = part.columns
    whole = read_up_to(location, file.path, file.size + 1)
    footer = footers.found(location, file, whole)
    try:
        reader = pq.ParquetReader()
        reader.open(pa.BufferReader(whole), page_checksum_verification=True)
        metadata = reader.metadata
        leaves = _leaves(footer, ordinal, columns, metadata.num_row_groups)
        group = metadata.row_group(ordinal)
        rows, size = group.num_rows, group.total_byte_size
        if size > _MOST_DECODED_BYTES or (
            (rows * size > part.most_bytes or footer.columns.are_nested)
            and swelling_leaves(footer, ordinal, leaves, part.most_bytes)
        ):
            return None
        if metadata.num_row_groups == 1:  # which takes a third less than to read the one there is
            table = reader.read_all(column_indices=leaves, use_threads=False)
        else:
            table = reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
        _check_rows(table.num_rows, footer, ordinal, columns, rows)
        table = _as_asked(table.combine_chunks(), footer, ordinal, columns, are_one=True)
        refuse_damaged_pages(lambda size, at: whole[at : at + size], metadata, leaves, file=file, ordinal=ordinal)
    except (pa.ArrowException, OSError) as problem:
        raise_alone(_explained(problem, location, file, ordinal, columns, footer))
    return table


def _tables(reader: Any, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> Iterator[pa.Table]:
    rows = footer.metadata.row_group(ordinal).num_rows
    if part.first is not None and 0 < part.first < rows and leaves:
        yield _first_rows(reader, footer, ordinal, part, leaves)
        return
    if part.rows_at_once is None or part.rows_at_once >= rows or not leaves:
        table = reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
        _check_rows(table.num_rows, footer, ordinal, part.columns, rows)
        yield _as_asked(table, footer, ordinal, part.columns)
        return
    found = 0
    batches = reader.iter_batches(part.rows_at_once, row_groups=[ordinal], column_indices=leaves, use_threads=False)
    for batch in batches:
        found += batch.num_rows
        if found > rows:
            break
        yield _as_asked(pa.Table.from_batches([batch]), footer, ordinal, part.columns)
    _check_rows(found, footer, ordinal, part.columns, rows)


def _right_copy(
    of_dictionaries: AbstractContextManager[Reading],
    footer: Footer,
    ordinal: int,
    part: Part,
    leaves: list[int],
    swelling: Collection[int],
) -> pa.Table | None:
    """`_copied`; what was read while somebody wrote to the file is read again, and verified."""
    with of_dictionaries as reading:
        copied = _copied(reading.reader, footer, ordinal, part, leaves, swelling)
        if reading.is_in_doubt:
            reading.verify()
            copied = _copied(reading.reader, footer, ordinal, part, leaves, swelling)
        reading.check_pages(leaves)
        reading.found_right()
    return copied


def _copied(
    reader: Any, footer: Footer, ordinal: int, part: Part, leaves: list[int], swelling: Collection[int]
) -> pa.Table | None:
    """The rows of a column of text or bytes, copied out of its dictionary; None where others have to be read as usual.

    Raises:
        DecodeError: They take more than they may.
    """
    table = reader.read_row_group(ordinal, column_indices=list(swelling), use_threads=False)
    _check_rows(table.num_rows, footer, ordinal, part.columns, footer.metadata.row_group(ordinal).num_rows)
    for name in table.schema.names:
        try:
            size = copied_bytes(table.column(name))
        except DecodeError as problem:
            raise problem.at(column=name, file=footer.file.path, row_group=ordinal) from None
        if size > part.most_bytes:
            raise DecodeError(
                f"its {table.num_rows:,} rows take {size:,} bytes of memory, though the file has each value once; at "
                f"most {part.most_bytes:,} may be taken (1 GiB, or a quarter of memory_budget). Leave the column out "
                "by schema_fields, or write smaller row groups",
                column=name,
                file=footer.file.path,
                row_group=ordinal,
            )
    is_flat = len(leaves) == 1 and pa.types.is_dictionary(table.schema.types[0])
    if not is_flat or part.first is not None:
        return None
    stored = table.schema.types[0].value_type
    return _as_asked(table.cast(pa.schema([(table.schema.names[0], stored)])), footer, ordinal, part.columns)


def _pieces(table: pa.Table, rows_at_once: int | None) -> Iterator[pa.Table]:
    """The table, so many rows at a time."""
    at_once = rows_at_once or max(table.num_rows, 1)
    for first in range(0, max(table.num_rows, 1), at_once):
        yield table.slice(first, at_once)


def _first_rows(reader: Any, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> pa.Table:
    batches = reader.iter_batches(part.first, row_groups=[ordinal], column_indices=leaves, use_threads=False)
    batch = next(batches, None)
    if batch is None or batch.num_rows != part.first:
        raise DecodeError(
            f"the pages hold less than the first {part.first:,} rows", file=footer.file.path, row_group=ordinal
        )
    return _as_asked(pa.Table.from_batches([batch]), footer, ordinal, part.columns)


def _check_rows(found: int, footer: Footer, ordinal: int, columns: Sequence[str], rows: int) -> None:
    if columns and found != rows:
        raise DecodeError(
            f"the pages hold {found:,} rows, but the footer says {rows:,}", file=footer.file.path, row_group=ordinal
        )


def _leaves(footer: Footer, ordinal: int, columns: Sequence[str], groups: int) -> list[int]:
    path = footer.file.path
    if not 0 <= ordinal < groups:
        raise RequestError(f"{path} has {groups:,} row groups, so it has no row group {ordinal:,}")
    known = footer.columns.leaves_of.get(tuple(columns))
    if known is not None:
        return known
    missing = [name for name in columns if name not in footer.leaves]
    for name in missing:
        if name in footer.unreadable:
            raise SchemaError(f"{footer.unreadable[name]}; leave it out with schema_fields")
    if missing:
        raise RequestError(f"{path} has no column {missing[0]!r}; it has {', '.join(map(repr, footer.leaves))}")
    if len(set(columns)) != len(columns):
        raise RequestError(f"the columns {list(columns)} name one column twice")
    return footer.columns.leaves_of.setdefault(
        tuple(columns), [leaf for name in columns for leaf in footer.leaves[name]]
    )


@contextlib.contextmanager
def _lender(files: OpenFiles | None) -> Iterator[OpenFiles]:
    lender = files or OpenFiles()
    try:
        yield lender
    finally:
        if files is None:
            lender.close()


def _as_asked(
    table: pa.Table, footer: Footer, ordinal: int, columns: tuple[str, ...], *, are_one: bool = False
) -> pa.Table:
    if not columns:
        return pa.table({"": pa.nulls(footer.metadata.row_group(ordinal).num_rows)}).select([])
    # What a file's tables are like is found out once: with a thousand columns it would cost more than decoding them.
    known, schema = footer.as_asked.get(columns), table.schema
    if known is None or not schema.equals(known, check_metadata=True):
        if _is_as_asked(schema, columns):
            footer.as_asked[columns] = schema
        else:
            table = _arranged(table, footer, ordinal, columns)
    table = table if schema.metadata is None else table.replace_schema_metadata()
    return table if are_one else _in_one_chunk(table)


def _in_one_chunk(table: pa.Table) -> pa.Table:
    if table.num_columns > _CHECKED_COLUMNS:
        return table.combine_chunks()
    is_one = all(table.column(number).num_chunks == 1 for number in range(table.num_columns))
    return table if is_one else table.combine_chunks()


def _is_as_asked(schema: pa.Schema, columns: tuple[str, ...]) -> bool:
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


def _explained(
    problem: Exception, location: Location, file: DataFile, ordinal: int, columns: Sequence[str], footer: Footer
) -> Exception:
    """What a failed read means: the storage refused, the file was rewritten meanwhile, or a page is damaged."""
    if isinstance(problem, PetastoreError):
        return problem
    if _is_of_storage(problem):
        return failure(problem, location, "read", file.path)
    check_unchanged(read_footer(location, file.path).file, footer.file)
    if isinstance(problem, pa.ArrowNotImplementedError):
        # Whatever is done again would take as long and as much memory; columns that are not plain come one by one.
        return DecodeError(
            f"Apache Arrow does not read it: {problem}; leave the column out with schema_fields",
            column=columns[0] if len(columns) == 1 else None,
            file=file.path,
            row_group=ordinal,
        )
    column = _first_damaged(location, ordinal, columns, footer)
    if column is None and str(location.filesystem.type_name) != "local":
        return failure(problem, location, "read", file.path)  # the second time it gave what it should
    return DecodeError(f"the data is damaged: {problem}", column=column, file=file.path, row_group=ordinal)


def _is_of_storage(problem: Exception) -> bool:
    """Whether the storage could not be read; what decoders raise has neither a number nor words of a network."""
    if isinstance(problem, RaisedByStorage):
        return True
    return isinstance(problem, OSError) and kind_of(problem) != ("other", None)


def _first_damaged(location: Location, ordinal: int, columns: Sequence[str], footer: Footer) -> str | None:
    with _lender(None) as lender, lender.reading(location, footer, ordinal, (tuple(columns),), whole=False) as reading:
        for name in columns:
            try:
                reading.reader.read_row_group(ordinal, column_indices=list(footer.leaves[name]), use_threads=False)
            except (pa.ArrowException, OSError) as problem:
                if _is_of_storage(problem):
                    raise_alone(failure(problem, location, "read", footer.file.path))
                return name
    return None
