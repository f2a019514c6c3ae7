"""One row group of one file → Arrow tables of the columns asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from petastore.arrow.memory import only_chunk
from petastore.errors import DatasetChangedError, DecodeError, StorageError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import Footer
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.fetched_ranges import FetchedRanges
from petastore.storage.ranges.kept_files import KeptFiles
from petastore.storage.requests.failures import raise_alone
from petastore.storage.requests.in_time import in_time
from petastore.storage.requests.under_way import waiting_for
from petastore.storage.row_groups.asked_columns import Part, as_asked, check_rows, leaves_of
from petastore.storage.row_groups.dictionaries import check_copies, swelling_leaves
from petastore.storage.row_groups.fetched_ahead import KeptIn, place_of
from petastore.storage.row_groups.open_files import OpenFiles, Reading
from petastore.storage.row_groups.small.small_files import (
    SMALL_FILE_BYTES,
    in_one,
    joined,
    small_file_in_parts,
    small_files_together,
)
from petastore.storage.row_groups.unread import explained
from petastore.threads import is_daemon_of_ours

if TYPE_CHECKING:
    from petastore.storage.row_groups.long_lists import LongLists

__all__ = ["fetch_ahead", "read_row_group", "read_row_group_in_parts", "read_row_groups_together"]

_TRIES = 5
"""How often a row group is read of a file that is the same afterwards, but to which somebody wrote meanwhile."""


def read_row_group(
    location: Location,
    file: DataFile,
    ordinal: int,
    columns: Sequence[str],
    *,
    footers: FooterCache,
    kept: KeptFiles | None = None,
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
        kept: What is kept of the files from call to call, where they are read by ranges; None is nothing.

    Returns:
        A table of exactly these columns in this order, without metadata, one chunk each, laid out so that rows can be
        picked from it (`petastore.storage.row_groups.layouts`). It owns its memory.

    Raises:
        InvalidArgumentError: The file has no such column or row group.
        SchemaError: The column cannot be read, and why.
        DatasetChangedError: The file is not the one that the inventory describes.
        DecodeError: A page is damaged; file, row group and column are named.
        StorageError: The file is missing or cannot be read.
    """
    (table,) = read_row_group_in_parts(location, file, ordinal, [Part(tuple(columns))], footers=footers, kept=kept)
    if all(column.num_chunks == 1 for column in table.columns):
        return table
    return pa.Table.from_arrays(list(map(only_chunk, table.columns)), names=table.column_names)  # beyond 2 GiB


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
        kept: What is kept of the files from call to call, where they are read by ranges; None is nothing.

    Returns:
        Of each part one table at least, and all its rows in the order of the file.

    Raises:
        InvalidArgumentError: The file has no such column or row group; said before anything is read.
        SchemaError: The column cannot be read, and why; as early.
        DatasetChangedError: The file is not the one that the inventory describes.
        DecodeError: A page is damaged; file, row group and column are named.
        StorageTimeoutError: Storage did not answer in time; where a thread of ours reads, who waits for it is told.
        StorageError: The file is missing or cannot be read.
    """
    tables = _tables_of_parts(location, file, ordinal, parts, footers, files, kept)
    while (table := _in_time(location, file, tables)) is not None:
        yield table
        del table  # what it lies in is used again for the next one, here and wherever tables come through


def read_row_groups_together(
    location: Location,
    asked: Sequence[tuple[DataFile, int]],
    parts: Sequence[Part],
    *,
    footers: FooterCache,
    files: OpenFiles | None = None,
    kept: KeptFiles | None = None,
) -> Iterator[pa.Table]:
    """Several row groups as one: of each part one table, with the rows of all, one after the other.

    Args:
        location: Where the dataset lies.
        asked: Of each row group: its file, and its number there.
        parts: What is read, whole; at least one.
        footers: Keeps footers from call to call.
        files: As for `read_row_group_in_parts`.
        kept: As for `read_row_group_in_parts`.

    Raises:
        pa.ArrowInvalid: They do not have the same types.
        PetastoreError: One of them cannot be read; as `read_row_group_in_parts`.
    """
    pinned = None if files is None else files.pinned(location, kept)
    are_together = (pinned is not None or location.is_local) and not _keeps_chunks(kept)
    small = small_files_together(location, asked, parts, footers, pinned) if are_together else None
    if small is not None:
        return small
    one = [in_one(parts)]
    of_each = (
        read_row_group_in_parts(location, *group, one, footers=footers, files=files, kept=kept) for group in asked
    )
    return joined(itertools.chain.from_iterable(of_each), parts)


def fetch_ahead(
    location: Location,
    file: DataFile,
    ordinal: int,
    columns: Sequence[str],
    *,
    footers: FooterCache,
    files: OpenFiles,
    kept: KeptFiles | None = None,
    kept_in: KeptIn = KeptIn.MEMORY,
) -> None:
    """Has the column chunks of a row group fetched that is going to be read through `files`. Does not wait.

    Nothing is fetched of files that are opened, or that are fetched whole since they are small, nor what a cache has:
    who reads it finds it there. What fails is asked for again by who reads it, and raised there.

    Args:
        location: Where the dataset lies.
        file: The file, as the inventory describes it.
        ordinal: The row group's number in its file, from 0.
        columns: All columns that are going to be read.
        footers: Keeps footers from call to call.
        files: Keeps what is fetched, until it is dropped there.
        kept: What is kept of the files from call to call.
        kept_in: Where it is kept until it is read.
    """
    pinned = files.pinned(location, kept)
    if pinned is None or (file.size <= SMALL_FILE_BYTES and not _keeps_chunks(kept)):
        return

    def fetch() -> tuple[frozenset[ByteRange], FetchedRanges]:
        from petastore.storage.row_groups.fetched_row_group import fetch_chunks  # local files do without

        footer = files.footer_of(location, file) or footers.get(location, file, pinned)
        by_cache = kept_in is not KeptIn.CACHE_WHEN_READ
        return fetch_chunks(pinned, footer, ordinal, columns, kept, by_cache=by_cache)

    files.ahead.begin(place_of(location, file, ordinal), fetch, kept_in)


def _in_time(location: Location, file: DataFile, tables: Iterator[pa.Table]) -> pa.Table | None:
    """The next table; None after the last one.

    A local file is read by the calling thread, whoever that is: a daemon would cost more than most row groups.
    """
    if location.is_local or is_daemon_of_ours():
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
    kept: KeptFiles | None,
) -> Iterator[pa.Table]:
    lender = files or OpenFiles(most_idle=0)
    try:
        pinned = lender.pinned(location, kept)
        is_small = file.size <= SMALL_FILE_BYTES and not _keeps_chunks(kept)
        small = small_file_in_parts(location, file, ordinal, parts, footers, pinned) if is_small else None
        if small is None:
            footer = lender.footer_of(location, file) or footers.get(location, file, pinned)
            small = _tables_of_large(location, footer, ordinal, parts, lender, kept)
        yield from small
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
    leaves = [leaves_of(footer, ordinal, part.columns, footer.metadata.num_row_groups) for part in parts]
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
            pinned.fetcher.note_damaged()  # a bit may have flipped on its way, in a header too, and the file be well
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
    """The tables of all parts; in `at` is noted which one is being read."""
    all_leaves = [leaf for of_part in leaves for leaf in of_part]
    reading.check_pages_before(all_leaves)
    for part, leaves_of_part in zip(parts, leaves, strict=True):
        at.append(part)
        if footer.most_copied_bytes > part.most_bytes:
            _check_copies(reading, footer, ordinal, part)
        if footer.columns.int96_leaves:
            from petastore.storage.row_groups.int96 import check_whole_microseconds  # which only old files need

            check_whole_microseconds(reading, footer, ordinal, leaves_of_part)
        yield from _right_tables(reading, footer, ordinal, part, leaves_of_part)
    if any(part.first is None for part in parts):
        reading.check_pages_after(all_leaves)
        reading.found_right()


def _keeps_chunks(kept: KeptFiles | None) -> bool:
    """Whether column chunks are kept on the local disk: small files, too, are read by these then."""
    return kept is not None and kept.cache is not None


def _check_copies(reading: Reading, footer: Footer, ordinal: int, part: Part) -> None:
    for name, leaves in swelling_leaves(footer, ordinal, part.columns, part.most_bytes).items():
        reader = reading.dictionaries(list(leaves.values()))
        check_copies(reader, footer, ordinal, name, leaves, part.most_bytes)


def _right_tables(reading: Reading, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> Iterator[pa.Table]:
    """The tables of a part; one that was read while somebody wrote to the file is read again, and verified."""
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
        reading.check_pages_before(leaves)
    raise DatasetChangedError(
        f"{footer.file.path} was written to each of the {_TRIES} times that row group {ordinal} was read. Open the "
        "dataset again when it is written"
    )


def _tables(reading: Reading, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> Iterator[pa.Table]:
    """The tables of a part: of what a cache had decoded, and of what is decoded now."""
    if not any(name in reading.decoded for name in part.columns):
        yield from _decoded_now(reading, footer, ordinal, part, leaves)
        return
    rest = dataclasses.replace(part, columns=tuple(name for name in part.columns if name not in reading.decoded))
    first = 0
    for length, table in _rest(reading, footer, ordinal, rest):
        columns = [
            reading.decoded[name].slice(first, length) if name in reading.decoded else table.column(name)
            for name in part.columns
        ]
        first += length
        yield as_asked(pa.Table.from_arrays(columns, names=part.columns), footer, ordinal, part.columns)


def _rest(reading: Reading, footer: Footer, ordinal: int, rest: Part) -> Iterator[tuple[int, Any]]:
    """Rows of each table of a part, and the table of those columns of it that are not decoded yet, if there are any."""
    if rest.columns:
        leaves = [leaf for name in rest.columns for leaf in footer.leaves[name]]
        for table in _decoded_now(reading, footer, ordinal, rest, leaves):
            yield table.num_rows, table
        return
    rows = footer.metadata.row_group(ordinal).num_rows
    wanted = rows if rest.first is None else min(rest.first, rows)
    at_once = wanted if rest.first is not None or rest.rows_at_once is None else rest.rows_at_once
    for start in range(0, wanted, max(at_once, 1)):
        yield min(at_once, wanted - start), None


def _decoded_now(reading: Reading, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> Iterator[pa.Table]:
    rows = footer.metadata.row_group(ordinal).num_rows
    if part.first is not None and 0 < part.first < rows and leaves:
        yield _first_rows(reading.reader, footer, ordinal, part, leaves)
        return
    if part.rows_at_once is None or not leaves:
        yield _whole(reading.reader, footer, ordinal, part, leaves)
        return
    lists = reading.long_lists(part.columns[0]) if len(leaves) == len(part.columns) == 1 else None
    given = 0
    if lists is not None:
        for table in _of_long_lists(lists, reading.reader, footer, ordinal, part, leaves):
            given += table.num_rows
            yield table
            del table
    if given < max(rows, 1):
        by_arrow = _by_arrow(reading.reader, footer, ordinal, part, leaves)
        yield from itertools.islice(by_arrow, given // part.rows_at_once, None)


def _whole(reader: Any, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> pa.Table:
    table = reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
    check_rows(table.num_rows, footer, ordinal, part.columns, footer.metadata.row_group(ordinal).num_rows)
    return as_asked(table, footer, ordinal, part.columns)


def _by_arrow(reader: Any, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> Iterator[pa.Table]:
    """Tables of so many rows each, but for the last."""
    rows = footer.metadata.row_group(ordinal).num_rows
    if part.rows_at_once is None or part.rows_at_once >= rows:
        yield _whole(reader, footer, ordinal, part, leaves)
        return
    read = 0
    batches = reader.iter_batches(part.rows_at_once, row_groups=[ordinal], column_indices=leaves, use_threads=False)
    for batch in batches:
        read += batch.num_rows
        if read > rows:
            break
        yield as_asked(pa.Table.from_batches([batch]), footer, ordinal, part.columns)
    check_rows(read, footer, ordinal, part.columns, rows)


def _of_long_lists(
    lists: LongLists, reader: Any, footer: Footer, ordinal: int, part: Part, leaves: list[int]
) -> Iterator[pa.Table]:
    """The same tables, up to where a page is not plain; the first ones, whose numbers lie in a dictionary, by Arrow."""
    from petastore.storage.row_groups.long_lists import NotPlainError

    at_once = part.rows_at_once or 1
    with contextlib.suppress(NotPlainError):
        by_arrow = -(-lists.first_row // at_once)
        yield from itertools.islice(_by_arrow(reader, footer, ordinal, part, leaves), by_arrow)
        for array in lists.arrays(by_arrow * at_once, at_once):
            table = pa.Table.from_arrays([array], names=part.columns)
            yield as_asked(table, footer, ordinal, part.columns)


def _first_rows(reader: Any, footer: Footer, ordinal: int, part: Part, leaves: list[int]) -> pa.Table:
    batches = reader.iter_batches(part.first, row_groups=[ordinal], column_indices=leaves, use_threads=False)
    batch = next(batches, None)
    if batch is None or batch.num_rows != part.first:
        raise DecodeError(
            f"the pages hold less than the first {part.first:,} rows", file=footer.file.path, row_group=ordinal
        )
    return as_asked(pa.Table.from_batches([batch]), footer, ordinal, part.columns)
