"""Read one row group of one file as Arrow tables of the selected columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from petastore.arrow import only_chunk
from petastore.errors import DatasetChangedError, DecodeError, StorageError
from petastore.inventory import DataFile
from petastore.monitoring.activity import Request, reads_local_file
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.ranges.fetch import ByteRange, FetchedRanges
from petastore.storage.ranges.pinned_files import KeptFiles
from petastore.storage.requests.failures import raise_alone
from petastore.storage.requests.retries import in_time
from petastore.storage.row_groups.asked_columns import (
    Part,
    arranged,
    check_copies,
    check_rows,
    check_whole_microseconds,
    divided,
    in_one,
    is_pickable,
    leaves_of,
    swelling_leaves,
    with_distinct_names,
)
from petastore.storage.row_groups.fetched_ahead import place_of
from petastore.storage.row_groups.open_files import OpenFiles, Reading, explained
from petastore.storage.row_groups.small_files import SMALL_FILE_BYTES, small_file

__all__ = ["as_asked", "fetch_ahead", "is_as_asked", "read_row_group", "read_row_group_in_parts"]

_TRIES = 5
"""Maximum reads of a row group whose file is being written with the same footer."""


def read_row_group(
    location: Location,
    file: DataFile,
    ordinal: int,
    columns: Sequence[str],
    *,
    footers: FooterCache,
    kept: KeptFiles | None = None,
) -> pa.Table:
    """Read columns of one row group as one table, with one chunk per column.

    Args:
        location: Location of the dataset.
        file: File of the inventory.
        ordinal: Number of the row group in its file, from 0.
        columns: Names of the columns to read.
        footers: Cache of footers.
        kept: File versions and cached chunks of remote files, or None.

    Raises:
        PetastoreError: The row group cannot be read; as in `read_row_group_in_parts`.
    """
    (table,) = read_row_group_in_parts(location, file, ordinal, [Part(tuple(columns))], footers=footers, kept=kept)
    if all(column.num_chunks == 1 for column in table.columns):
        return table
    # Columns above 2 GiB have several chunks.
    return pa.Table.from_arrays(list(map(only_chunk, table.columns)), names=table.column_names)


def read_row_group_in_parts(
    location: Location,
    file: DataFile,
    ordinal: int,
    parts: Sequence[Part],
    *,
    footers: FooterCache,
    files: OpenFiles | None = None,
    kept: KeptFiles | None = None,
) -> Iterator[pa.Table]:
    """Read columns of one row group part by part, opening the file only once.

    A part is a group of columns that are read together (`Part`). If the caller copies the data of a table before it
    requests the next table, the whole row group is never in Arrow's memory. Arrow's memory then stays in the CPU cache.

    Args:
        location: Location of the dataset.
        file: File of the inventory.
        ordinal: Number of the row group in its file, from 0.
        parts: Parts to read, in order.
        footers: Cache of footers.
        files: Pool of open files and verified row groups; None closes the file after the last part, and verifies all
            page checksums.
        kept: File versions and cached chunks of remote files, or None.

    Returns:
        At least one table for each part, with all its rows in file order.

    Raises:
        InvalidArgumentError: The file does not have the column or row group; raised before anything is read.
        SchemaError: The column cannot be read; raised before anything is read, with the reason.
        DatasetChangedError: The file is not the one that the inventory describes.
        DecodeError: A page is damaged; the message names file, row group and column.
        StorageTimeoutError: Storage did not answer in time; if a pool thread reads, the error is raised in the thread
            that waits for it.
        StorageError: The file is missing or cannot be read.
    """
    tables = _tables_of_parts(location, file, ordinal, parts, footers, files, kept)
    while (table := _in_time(location, file, tables)) is not None:
        yield table
        del table  # drop the reference, so that the memory is reused for the next table


def fetch_ahead(
    location: Location,
    file: DataFile,
    ordinal: int,
    columns: Sequence[str],
    *,
    footers: FooterCache,
    files: OpenFiles,
    kept: KeptFiles | None = None,
    by_cache: bool = False,
) -> None:
    """Start to prefetch the column chunks of a row group, without waiting.

    The row group will be read with `files`. Local files, small files that are fetched whole, and cached chunks are not
    prefetched. If the prefetch fails, the thread that reads the row group makes the request again and gets the error.

    Args:
        location: Location of the dataset.
        file: File of the inventory.
        ordinal: Number of the row group in its file, from 0.
        columns: All columns that will be read.
        footers: Cache of footers.
        files: Pool of open files, which also keeps the prefetched bytes in memory.
        kept: File versions and cached chunks of remote files.
        by_cache: Whether the cache stores the bytes at once. Otherwise it stores them when they are read, because
            eviction depends on the order of use.
    """
    pinned = files.pinned(location, kept)
    if pinned is None or (file.size <= SMALL_FILE_BYTES and pinned.cache is None):
        return

    def fetch() -> tuple[frozenset[ByteRange], FetchedRanges]:
        footer = files.footer_of(location, file) or footers.get(location, file, pinned)
        from petastore.storage.row_groups.fetched_row_group import fetch_chunks  # local files do not need it

        return fetch_chunks(pinned, footer, ordinal, columns, by_cache=by_cache)

    files.ahead.begin(place_of(location, file, ordinal), fetch, for_cache=pinned.cache is not None and not by_cache)


def _in_time(location: Location, file: DataFile, tables: Iterator[pa.Table]) -> pa.Table | None:
    """Return the next table, within the storage timeout; None after the last table.

    The calling thread reads local files itself, because starting a daemon thread takes longer than reading most row
    groups.
    """
    what = f"read {file.path}"
    if not location.is_local:
        return in_time(lambda: next(tables, None), url=location.url, what=what, limit_s=location.timeout_s)
    with Request(location.url, what, location.timeout_s):
        reads_local_file()
        return next(tables, None)


def _tables_of_parts(
    location: Location,
    file: DataFile,
    ordinal: int,
    parts: Sequence[Part],
    footers: FooterCache,
    files: OpenFiles | None,
    kept: KeptFiles | None,
) -> Iterator[pa.Table]:
    lender = files or OpenFiles(most_idle=0)
    try:
        pinned = lender.pinned(location, kept)
        is_small = file.size <= SMALL_FILE_BYTES and (pinned is None or pinned.cache is None)
        small = small_file(location, file, ordinal, parts, footers, pinned) if is_small else None
        if small is not None:
            yield from divided(as_asked(*small, ordinal, in_one(parts).columns), parts)
            return
        footer = lender.footer_of(location, file)
        if footer is None:
            footer = footers.get(location, file, pinned, local_tail=lender.tail)
        yield from _tables_of_large(location, footer, ordinal, parts, lender, kept)
    finally:
        if files is None:
            lender.close()


def _tables_of_large(
    location: Location,
    footer: Footer,
    ordinal: int,
    parts: Sequence[Part],
    lender: OpenFiles,
    kept: KeptFiles | None,
) -> Iterator[pa.Table]:
    groups, known = footer.metadata.num_row_groups, footer.columns.leaves_of if ordinal >= 0 else {}
    leaves = [
        (ordinal < groups and known.get(part.columns)) or leaves_of(footer, ordinal, part.columns, groups)
        for part in parts
    ]
    pinned, given = lender.pinned(location, kept), 0
    for is_last in (pinned is None, True):
        at: list[Part] = []
        try:
            with lender.reading(
                location,
                footer,
                ordinal,
                tuple(part.columns for part in parts),
                whole=any(part.first is None for part in parts),
                request_bytes=parts[0].request_bytes if parts else None,
                kept=kept,
            ) as reading:
                for table in itertools.islice(_of_reading(reading, footer, ordinal, parts, leaves, at), given, None):
                    given += 1
                    yield table
                    del table
        except (pa.ArrowException, OSError, DecodeError) as problem:
            if pinned is None or is_last or isinstance(problem, StorageError):
                columns = at[-1].columns if at else [name for part in parts for name in part.columns]
                raise_alone(explained(problem, location, footer.file, ordinal, list(dict.fromkeys(columns)), footer))
            lender.ahead.drop(place_of(location, footer.file, ordinal))
            pinned.fetcher.note_damaged()  # a bit may have flipped in transit, while the file is intact
        else:
            return


def _of_reading(
    reading: Reading,
    footer: Footer,
    ordinal: int,
    parts: Sequence[Part],
    leaves: Sequence[list[int]],
    at: list[Part],
) -> Iterator[pa.Table]:
    """Yield the Arrow tables of a row group, one for each part (a set of columns).

    Each part is appended to `at` before it is read, so that the caller's error message names its columns.
    """
    are_whole = any(part.first is None for part in parts)
    if are_whole or reading.opened.is_large:
        reading.check_pages([leaf for of_part in leaves for leaf in of_part])
    for part, leaves_of_part in zip(parts, leaves, strict=True):
        at.append(part)
        if footer.most_copied_bytes > part.most_bytes:
            _check_copies(reading, footer, ordinal, part)
        if footer.columns.int96_leaves:
            check_whole_microseconds(reading, footer, ordinal, leaves_of_part)
        yield from _right_tables(reading, footer, ordinal, part, leaves_of_part)
    if are_whole:
        reading.note_verified()


def _check_copies(reading: Reading, footer: Footer, ordinal: int, part: Part) -> None:
    for name, leaves in swelling_leaves(footer, ordinal, part.columns, part.most_bytes).items():
        reader = reading.dictionaries(list(leaves.values()))
        check_copies(reader, footer, ordinal, name, leaves, part.most_bytes)


def _right_tables(reading: Reading, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> Iterator[pa.Table]:
    """Yield the tables of a part (columns that are read together), all from one version of the file.

    If the file was written during the read, it is reopened and read again, with verification of checksums.
    """
    given = 0
    for _ in range(_TRIES):
        for table in itertools.islice(_tables(reading, footer, ordinal, part, leaves), given, None):
            if reading.is_in_doubt:
                break
            given += 1
            yield table
            del table
        else:
            return
        reading.verify()
        reading.check_pages(leaves)
    raise DatasetChangedError(
        f"{footer.file.path} was rewritten during each of {_TRIES} attempts to read row group {ordinal}. Open the "
        "dataset again after the write"
    )


def _tables(reading: Reading, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> Iterator[pa.Table]:
    """Yield the tables of a part (columns that are read together) of a row group.

    The part decides whether this is one table with all rows, one table with the first rows, or several tables of a few
    rows each.
    """
    rows, reader = footer.metadata.row_group(ordinal).num_rows, reading.reader
    if leaves and part.first is not None and 0 < part.first < rows:
        yield _first_rows(reader, footer, ordinal, part, leaves)
        return
    if not leaves or part.rows_at_once is None or part.rows_at_once >= rows:
        table = reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
        if table.num_rows != rows:
            check_rows(table.num_rows, footer, ordinal, part.columns, rows)
        if part.first is not None:  # columns that the file lacks become null columns of this length
            table = table.slice(0, part.first)
        yield as_asked(table, footer, ordinal, part.columns)
        return
    read = 0
    batches = reader.iter_batches(part.rows_at_once, row_groups=[ordinal], column_indices=leaves, use_threads=False)
    for batch in batches:
        read += batch.num_rows
        if read > rows:
            break
        table = as_asked(pa.Table.from_batches([batch]), footer, ordinal, part.columns)
        del batch  # its memory is free before the next rows are decoded
        yield table
        del table
    if read != rows:
        check_rows(read, footer, ordinal, part.columns, rows)


def _first_rows(reader: Any, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> pa.Table:
    batches = reader.iter_batches(part.first, row_groups=[ordinal], column_indices=leaves, use_threads=False)
    batch = next(batches, None)
    if batch is None or batch.num_rows != part.first:
        raise DecodeError(
            f"the pages must have at least {part.first:,} rows, as the footer declares, got fewer. The file is "
            "damaged: restore it from a copy",
            file=footer.file.path,
            row_group=ordinal,
        )
    return as_asked(pa.Table.from_batches([batch]), footer, ordinal, part.columns)


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
    if footer.columns.is_renamed:
        table = with_distinct_names(table, footer, columns)
    # The table layout of a file is computed once: with a thousand columns it would cost more than decoding them.
    known, schema = footer.columns.as_asked.get(columns), table.schema
    if known is None or not schema.equals(known, check_metadata=True):
        if is_as_asked(schema, columns) and footer.columns.casts.keys().isdisjoint(columns):
            footer.columns.as_asked[columns] = schema
        else:
            table = arranged(table, footer, ordinal, columns)
    table = table if schema.metadata is None else table.replace_schema_metadata()
    return _in_one_chunk(table)


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
