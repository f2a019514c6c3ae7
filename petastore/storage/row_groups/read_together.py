"""Read several small row groups as one Arrow table.

The row groups are in a local file, or in small files. A call into Arrow takes about 30 µs for any number of rows, and
petastore's code around the call takes equally long. For a row group of 50 rows, this is many times longer than
decoding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from petastore.inventory import DataFile
from petastore.monitoring.activity import Request, reads_local_file
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.ranges.pinned_files import KeptFiles, PinnedFiles
from petastore.storage.requests.retries import at_once
from petastore.storage.row_groups.asked_columns import Part, check_rows, divided, in_one, leaves_of, swelling_leaves
from petastore.storage.row_groups.open_files import OpenFiles, Reading
from petastore.storage.row_groups.row_group import as_asked, is_as_asked, read_row_group_in_parts
from petastore.storage.row_groups.small_files import SmallFiles, request_whole_columns

__all__ = ["joined", "read_row_groups_together", "read_run", "small_files_together"]


def read_row_groups_together(
    location: Location,
    asked: Sequence[tuple[DataFile, int]],
    parts: Sequence[Part],
    *,
    footers: FooterCache,
    files: OpenFiles | None = None,
    kept: KeptFiles | None = None,
) -> Iterator[pa.Table]:
    """Read several row groups; yield one table with all their rows for each part.

    A part is a group of columns that are read together (`Part`).

    Args:
        location: Location of the dataset.
        asked: File of each row group, and its number in the file.
        parts: Parts to read as whole tables; at least one.
        footers: Cache of footers.
        files: Pool of open files and verified row groups; None closes each file after reading it.
        kept: File versions and cached chunks of remote files, or None.

    Raises:
        pa.ArrowInvalid: The row groups have different types.
        PetastoreError: A row group cannot be read; as in `read_row_group_in_parts`.
    """
    pinned = None if files is None else files.pinned(location, kept)
    are_together = location.is_local if pinned is None else pinned.cache is None
    small = small_files_together(location, asked, parts, footers, pinned) if are_together else None
    if small is not None:
        return small
    one = in_one(parts)

    def tables() -> Iterator[pa.Table]:
        for file, places in itertools.groupby(asked, key=lambda place: place[0]):
            ordinals = [ordinal for _, ordinal in places]
            table = _run(location, file, ordinals, one, footers, files) if location.is_local and files else None
            if table is not None:
                yield table
                continue
            for ordinal in ordinals:
                yield from read_row_group_in_parts(
                    location, file, ordinal, [one], footers=footers, files=files, kept=kept
                )

    return joined(tables(), parts)


def _run(
    location: Location, file: DataFile, ordinals: Sequence[int], part: Part, footers: FooterCache, files: OpenFiles
) -> pa.Table | None:
    footer = files.footer_of(location, file) or footers.get(location, file, local_tail=files.tail)
    with Request(location.url, f"read {file.path}", location.timeout_s):
        reads_local_file()
        return read_run(location, footer, ordinals, part, files)


def read_run(
    location: Location, footer: Footer, ordinals: Sequence[int], part: Part, files: OpenFiles
) -> pa.Table | None:
    """Return columns of several row groups of a file as one table, in the order given.

    Return None if the row groups must be read separately, because they have INT96 timestamps or large dictionaries, or
    because the file is being written. Errors name the first row group; to find the damaged one, read the row groups one
    by one.

    Args:
        location: Location of the dataset; local.
        footer: Footer of the file.
        ordinals: Numbers of the row groups in the file, at least one.
        part: Columns, at least one, which are read whole.
        files: Pool of open files.

    Raises:
        InvalidArgumentError: The file has no such column or row group.
        SchemaError: The column cannot be read.
        DatasetChangedError: The file has another footer.
        DecodeError: A page is damaged, or rows are missing.
        pa.ArrowException: Pages cannot be decoded.
        OSError: The file cannot be read.
    """
    metadata, first = footer.metadata, ordinals[0]
    for ordinal in (min(ordinals), max(ordinals)):
        leaves = leaves_of(footer, ordinal, part.columns, metadata.num_row_groups)
    swells = footer.most_copied_bytes > part.most_bytes and any(
        swelling_leaves(footer, ordinal, part.columns, part.most_bytes) for ordinal in ordinals
    )
    if not leaves or footer.columns.int96_leaves or swells:
        return None
    with Reading(files, location, footer, ordinals, (part.columns,)) as reading:
        reading.check_pages(leaves)
        table = reading.reader.read_row_groups(list(ordinals), column_indices=leaves, use_threads=False)
        if reading.is_in_doubt:
            return None
        rows = sum(metadata.row_group(ordinal).num_rows for ordinal in ordinals)
        check_rows(table.num_rows, footer, first, part.columns, rows)
        table = as_asked(table, footer, first, part.columns)
        reading.note_verified()
    return table


def small_files_together(
    location: Location,
    asked: Sequence[tuple[DataFile, int]],
    parts: Sequence[Part],
    footers: FooterCache,
    pinned: PinnedFiles | None = None,
) -> Iterator[pa.Table] | None:
    """Read row groups of small files; yield one table with all rows for each part.

    Return None if the row groups must be read in another way: a file is not small, a row group may be large when
    decoded, the parts do not read whole columns, or the types differ.

    Args:
        location: Location of the dataset.
        asked: File of each row group, and its number in the file.
        parts: Parts (groups of columns that are read together) to read.
        footers: Cache of footers.
        pinned: Range fetcher for concurrent requests; None for local files.

    Raises:
        PetastoreError: A row group cannot be read; as in `read_row_group_in_parts`.
    """
    small = SmallFiles(location, footers, pinned)
    if not request_whole_columns(parts) or not all(small.has(file) for file, _ in asked):
        return None
    part = in_one(parts)
    tables: list[pa.Table] = []
    schema, is_plain = pa.schema([]), True
    files = list(dict.fromkeys(file for file, _ in asked))
    found = map(small.fetch, files) if pinned is None else at_once(small.fetch, files)
    fetched = dict(zip(files, found, strict=True))
    for file, ordinal in asked:
        table, footer = small.table(file, ordinal, part, fetched[file]), fetched[file][1]
        if table is None:
            return None
        if not tables:
            is_plain = is_as_asked(table.schema, part.columns)
        if not is_plain or footer.columns.casts or footer.columns.is_renamed:
            table = as_asked(table, footer, ordinal, part.columns)
        schema = schema if tables else table.schema
        if is_plain and not table.schema.equals(schema):
            return None
        tables.append(table)
    return joined(tables, parts)


def joined(tables: Iterable[pa.Table], parts: Sequence[Part]) -> Iterator[pa.Table]:
    """Concatenate tables; yield one table for each part (group of columns read together).

    Raises:
        pa.ArrowInvalid: The tables have different types.
    """
    return divided(pa.concat_tables(tables).replace_schema_metadata().combine_chunks(), parts)
