"""Read row groups of files as Arrow tables of the selected columns.

Several small row groups are read as one table. A call into Arrow takes about 30 µs for any number of rows, and
petastore's code around the call takes equally long. For a row group of 50 rows, this is many times longer than
decoding.
"""

from __future__ import annotations

import dataclasses
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
from petastore.storage.ranges.pinned_files import KeptFiles, PinnedFiles
from petastore.storage.requests.failures import raise_alone
from petastore.storage.requests.retries import in_time
from petastore.storage.row_groups.asked_columns import (
    Part,
    as_asked,
    check_rows,
    check_whole_microseconds,
    in_one,
    joined,
    leaves_of,
)
from petastore.storage.row_groups.dictionaries import check_copies, swelling_leaves
from petastore.storage.row_groups.fetched_ahead import place_of
from petastore.storage.row_groups.open_files import OpenFiles, Reading, explained
from petastore.storage.row_groups.small_files import SMALL_FILE_BYTES, SmallFiles

__all__ = ["StoredRowGroups"]

_TRIES = 5
"""Maximum reads of a row group whose file is being written with the same footer."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredRowGroups:
    """Row groups of a dataset's files, which are read as Arrow tables.

    A part is a group of columns that are read together (`Part`). All methods raise the errors of `read_in_parts`.
    """

    location: Location
    """Location of the dataset."""

    footers: FooterCache
    """Cache of footers."""

    files: OpenFiles | None = None
    """Pool of open files, verified row groups and prefetched bytes.

    None closes each file after it was read, and verifies all page checksums.
    """

    kept: KeptFiles | None = None
    """File versions and cached chunks of remote files, or None."""

    def read(self, file: DataFile, ordinal: int, columns: Sequence[str]) -> pa.Table:
        """Read columns of one row group as one table, with one chunk per column.

        Args:
            file: File of the inventory.
            ordinal: Number of the row group in its file, from 0.
            columns: Names of the columns to read.
        """
        (table,) = self.read_in_parts(file, ordinal, [Part(tuple(columns))])
        if all(column.num_chunks == 1 for column in table.columns):
            return table
        # Columns above 2 GiB have several chunks.
        return pa.Table.from_arrays(list(map(only_chunk, table.columns)), names=table.column_names)

    def read_in_parts(self, file: DataFile, ordinal: int, parts: Sequence[Part]) -> Iterator[pa.Table]:
        """Read columns of one row group part by part, opening the file only once.

        If the caller copies the data of a table before it requests the next table, the whole row group is never in
        Arrow's memory. Arrow's memory then stays in the CPU cache.

        Args:
            file: File of the inventory.
            ordinal: Number of the row group in its file, from 0.
            parts: Parts to read, in order.

        Returns:
            At least one table for each part, with all its rows in file order.

        Raises:
            InvalidArgumentError: The file does not have the column or row group; raised before anything is read.
            SchemaError: The column cannot be read; raised before anything is read, with the reason.
            DatasetChangedError: The file is not the one that the inventory describes.
            DecodeError: A page is damaged; the message names file, row group and column.
            StorageTimeoutError: Storage did not answer in time; if a pool thread reads, the error is raised in the
                thread that waits for it.
            StorageError: The file is missing or cannot be read.
        """
        tables = self._tables_of_parts(file, ordinal, parts)
        while (table := self._in_time(file, tables)) is not None:
            yield table
            del table  # drop the reference, so that the memory is reused for the next table

    def read_together(self, places: Sequence[tuple[DataFile, int]], parts: Sequence[Part]) -> Iterator[pa.Table]:
        """Read several row groups; yield one table with all their rows for each part.

        Args:
            places: File of each row group, and its number in the file.
            parts: Parts to read as whole tables; at least one.

        Raises:
            pa.ArrowInvalid: The row groups have different types.
        """
        pinned = self._pinned
        if self.location.is_local or pinned is not None:
            small = SmallFiles(self.location, self.footers, pinned).read(places, parts)
            if small is not None:
                return small
        return joined(self._tables_of_files(places, in_one(parts)), parts)

    def fetch_ahead(self, file: DataFile, ordinal: int, columns: Sequence[str], *, by_cache: bool = False) -> None:
        """Start to prefetch the column chunks of a row group into `files`, without waiting.

        Local files, small files that are fetched whole, and cached chunks are not prefetched. If the prefetch fails,
        the thread that reads the row group makes the request again and gets the error.

        Args:
            file: File of the inventory.
            ordinal: Number of the row group in its file, from 0.
            columns: All columns that will be read.
            by_cache: Whether the cache stores the bytes at once. Otherwise it stores them when they are read, because
                eviction depends on the order of use.
        """
        files, pinned = self.files, self._pinned
        if files is None or pinned is None or (file.size <= SMALL_FILE_BYTES and pinned.cache is None):
            return

        def fetch() -> tuple[frozenset[ByteRange], FetchedRanges]:
            footer = self._footer(files, file, pinned)
            from petastore.storage.row_groups.fetched_row_group import fetch_chunks  # local files do not need it

            return fetch_chunks(pinned, footer, ordinal, columns, by_cache=by_cache)

        place = place_of(self.location, file, ordinal)
        files.ahead.begin(place, fetch, for_cache=pinned.cache is not None and not by_cache)

    def read_run(self, file: DataFile, ordinals: Sequence[int], part: Part) -> pa.Table | None:
        """Return columns of several row groups of a local file as one table, in the order given.

        Return None if the row groups must be read separately, because they have INT96 timestamps or large dictionaries,
        or because the file is remote or being written. Errors name the first row group; to find the damaged one, read
        the row groups one by one.

        Args:
            file: File of the inventory.
            ordinals: Numbers of the row groups in the file, at least one.
            part: Columns, at least one, which are read whole.

        Raises:
            pa.ArrowException: Pages cannot be decoded.
            OSError: The file cannot be read.
        """
        if not self.location.is_local or self.files is None:
            return None
        footer, first = self._footer(self.files, file, None), ordinals[0]
        with Request(self.location.url, f"read {file.path}", self.location.timeout_s):
            reads_local_file()
            for ordinal in (min(ordinals), max(ordinals)):
                leaves = leaves_of(footer, ordinal, part.columns)
            swells = any(swelling_leaves(footer, ordinal, part.columns, part.most_bytes) for ordinal in ordinals)
            if not leaves or footer.columns.int96_leaves or swells:
                return None
            with Reading(self.files, self.location, footer, ordinals, (part.columns,)) as reading:
                reading.check_pages(leaves)
                table = reading.reader.read_row_groups(list(ordinals), column_indices=leaves, use_threads=False)
                if reading.is_in_doubt:
                    return None
                rows = sum(footer.metadata.row_group(ordinal).num_rows for ordinal in ordinals)
                check_rows(table.num_rows, footer, first, part.columns, rows)
                table = as_asked(table, footer, first, part.columns)
                reading.note_verified()
            return table

    @property
    def _pinned(self) -> PinnedFiles | None:
        return None if self.files is None else self.files.pinned(self.location, self.kept)

    def _footer(self, files: OpenFiles, file: DataFile, pinned: PinnedFiles | None) -> Footer:
        footer = files.footer_of(self.location, file)
        return footer or self.footers.get(self.location, file, pinned, local_tail=files.tail)

    def _in_time(self, file: DataFile, tables: Iterator[pa.Table]) -> pa.Table | None:
        """Return the next table, within the storage timeout; None after the last table.

        The calling thread reads local files itself, because starting a daemon thread takes longer than reading most row
        groups.
        """
        location, what = self.location, f"read {file.path}"
        if not location.is_local:
            return in_time(lambda: next(tables, None), url=location.url, what=what, limit_s=location.timeout_s)
        with Request(location.url, what, location.timeout_s):
            reads_local_file()
            return next(tables, None)

    def _tables_of_files(self, places: Sequence[tuple[DataFile, int]], part: Part) -> Iterator[pa.Table]:
        for file, of_file in itertools.groupby(places, key=lambda place: place[0]):
            ordinals = [ordinal for _, ordinal in of_file]
            table = self.read_run(file, ordinals, part)
            if table is not None:
                yield table
                continue
            for ordinal in ordinals:
                yield from self.read_in_parts(file, ordinal, [part])

    def _tables_of_parts(self, file: DataFile, ordinal: int, parts: Sequence[Part]) -> Iterator[pa.Table]:
        files = self.files or OpenFiles(most_idle=0)
        try:
            pinned = files.pinned(self.location, self.kept)
            small = SmallFiles(self.location, self.footers, pinned).read([(file, ordinal)], parts)
            if small is not None:
                yield from small
                return
            footer = self._footer(files, file, pinned)
            yield from self._tables_of_large(files, pinned, footer, ordinal, parts)
        finally:
            if self.files is None:
                files.close()

    def _tables_of_large(
        self, files: OpenFiles, pinned: PinnedFiles | None, footer: Footer, ordinal: int, parts: Sequence[Part]
    ) -> Iterator[pa.Table]:
        leaves = [leaves_of(footer, ordinal, part.columns) for part in parts]
        given = 0
        for is_last in (pinned is None, True):
            at: list[Part] = []
            try:
                with files.reading(
                    self.location,
                    footer,
                    ordinal,
                    tuple(part.columns for part in parts),
                    whole=any(part.first is None for part in parts),
                    request_bytes=parts[0].request_bytes if parts else None,
                    kept=self.kept,
                ) as reading:
                    for table in itertools.islice(
                        _of_reading(reading, footer, ordinal, parts, leaves, at), given, None
                    ):
                        given += 1
                        yield table
                        del table
            except (pa.ArrowException, OSError, DecodeError) as problem:
                if pinned is None or is_last or isinstance(problem, StorageError):
                    columns = at[-1].columns if at else dict.fromkeys(name for part in parts for name in part.columns)
                    raise_alone(explained(problem, self.location, ordinal, list(columns), footer))
                files.ahead.drop(place_of(self.location, footer.file, ordinal))
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
