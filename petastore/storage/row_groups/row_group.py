"""One row group of one file → Arrow tables of the columns asked for."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import Footer, FooterCache
from petastore.storage.requests.failures import raise_alone
from petastore.storage.requests.in_time import in_time
from petastore.storage.requests.under_way import waiting_for
from petastore.storage.row_groups.asked_columns import Part, as_asked, check_rows, leaves_of
from petastore.storage.row_groups.dictionaries import copied_bytes, swelling_leaves
from petastore.storage.row_groups.open_files import OpenFiles, Reading, lent_by
from petastore.storage.row_groups.small_files import in_one, joined, small_file_in_parts, small_files_together
from petastore.storage.row_groups.unread import explained
from petastore.threads import is_daemon_of_ours

__all__ = ["read_row_group", "read_row_group_in_parts", "read_row_groups_together"]


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
        picked from it (`petastore.storage.row_groups.layouts`). It owns its memory.

    Raises:
        RequestError: The file has no such column or row group.
        SchemaError: The column cannot be read, and why.
        DatasetChangedError: The file is not the one that the inventory describes.
        DecodeError: A page is damaged; file, row group and column are named.
        StorageError: The file is missing or cannot be read.
    """
    (table,) = read_row_group_in_parts(location, file, ordinal, [Part(tuple(columns))], footers=footers)
    return table


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


def read_row_groups_together(
    location: Location, asked: Sequence[tuple[DataFile, int]], parts: Sequence[Part], *, footers: FooterCache
) -> Iterator[pa.Table]:
    """Several row groups as one: of each part one table, with the rows of all, one after the other.

    Args:
        location: Where the dataset lies.
        asked: Of each row group: its file, and its number there.
        parts: What is read, whole; at least one.
        footers: Keeps footers from call to call.

    Raises:
        pa.ArrowInvalid: They do not have the same types.
        PetastoreError: One of them cannot be read; as `read_row_group_in_parts`.
    """
    small = small_files_together(location, asked, parts, footers)
    if small is not None:
        return small
    one = [in_one(parts)]
    of_each = (read_row_group_in_parts(location, *group, one, footers=footers) for group in asked)
    return joined(itertools.chain.from_iterable(of_each), parts)


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
    small = small_file_in_parts(location, file, ordinal, parts, footers)
    if small is not None:
        yield from small
        return
    footer = footers.get(location, file)
    leaves = [leaves_of(footer, ordinal, part.columns, footer.metadata.num_row_groups) for part in parts]
    columns: Sequence[str] = ()
    asked = tuple(part.columns for part in parts)
    try:
        whole = any(part.first is None for part in parts)
        with lent_by(files) as lender, lender.reading(location, footer, ordinal, asked, whole=whole) as reading:
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
        raise_alone(explained(problem, location, file, ordinal, columns, footer))


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


def _tables(reader: Any, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> Iterator[pa.Table]:
    rows = footer.metadata.row_group(ordinal).num_rows
    if part.first is not None and 0 < part.first < rows and leaves:
        yield _first_rows(reader, footer, ordinal, part, leaves)
        return
    if part.rows_at_once is None or part.rows_at_once >= rows or not leaves:
        table = reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
        check_rows(table.num_rows, footer, ordinal, part.columns, rows)
        yield as_asked(table, footer, ordinal, part.columns)
        return
    found = 0
    batches = reader.iter_batches(part.rows_at_once, row_groups=[ordinal], column_indices=leaves, use_threads=False)
    for batch in batches:
        found += batch.num_rows
        if found > rows:
            break
        yield as_asked(pa.Table.from_batches([batch]), footer, ordinal, part.columns)
    check_rows(found, footer, ordinal, part.columns, rows)


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
    check_rows(table.num_rows, footer, ordinal, part.columns, footer.metadata.row_group(ordinal).num_rows)
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
    return as_asked(table.cast(pa.schema([(table.schema.names[0], stored)])), footer, ordinal, part.columns)


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
    return as_asked(pa.Table.from_batches([batch]), footer, ordinal, part.columns)
