"""Row groups of small files, each read whole with one request: one by one, or many of them as one table.

To ask for the footer first and for the pages then takes longer than to read and verify them all, however often. With
thousands of such files most of the time is Python's: what can be done once for many of them is done once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import DatasetChangedError, DecodeError, MetadataError, StorageError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import read_up_to
from petastore.storage.footers.alike_footers import FEWEST
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import Footer
from petastore.storage.pages.damage import refuse_damaged_pages
from petastore.storage.requests.at_once import at_once
from petastore.storage.requests.failures import raise_alone
from petastore.storage.row_groups.asked_columns import Part, as_asked, check_rows, is_as_asked, leaves_of
from petastore.storage.row_groups.dictionaries import swelling_leaves
from petastore.storage.row_groups.small.joined_files import joined_files
from petastore.storage.row_groups.unread import explained

if TYPE_CHECKING:
    from petastore.storage.ranges.pinned_files import PinnedFiles

__all__ = ["SMALL_FILE_BYTES", "in_one", "joined", "small_file_in_parts", "small_files_together"]

SMALL_FILE_BYTES = 256 * 1024
"""Files of so many bytes are read whole."""

_SMALL_FOOTER_BYTES = 16 * 1024
"""Of larger footers the file is not parsed for each row group anew."""

_MOST_DECODED_BYTES = 4 * 1024 * 1024
"""Row groups of such files that have more bytes once decompressed, as the footer says, are read column by column."""


def small_file_in_parts(
    location: Location,
    file: DataFile,
    ordinal: int,
    parts: Sequence[Part],
    footers: FooterCache,
    pinned: PinnedFiles | None = None,
) -> Iterator[pa.Table] | None:
    """One table of each part of a row group; None where it is not to be read in this way.

    Args:
        location: Where the dataset lies.
        file: The file, as the inventory describes it.
        ordinal: The row group's number in its file, from 0.
        parts: What is read.
        footers: Keeps footers from call to call.
        pinned: Fetches the file; None where it is local, and opened.

    Raises:
        InvalidArgumentError: The file has no such column or row group.
        SchemaError: The column cannot be read, and why.
        DatasetChangedError: The file is not the one that the inventory describes.
        DecodeError: A page is damaged.
        StorageError: The file is missing or cannot be read.
    """
    if not _are_for_one_go(parts) or not _is_small(location, file, footers):
        return None
    known = footers.kept(location, file)
    if location.is_local and known is not None and known.metadata.num_row_groups > 1:
        return None  # it stays open from one to the next, which is cheaper than to read all of it for each
    part = in_one(parts)
    whole, footer = _fetched(location, footers, pinned, file)
    again = None if pinned is None else functools.partial(_fetched_again, location, footers, pinned, file)
    table = _right(location, file, ordinal, part, (whole, footer), again)
    if table is None:
        return None
    return _divided(as_asked(table, footer, ordinal, part.columns), parts)


def small_files_together(
    location: Location,
    asked: Sequence[tuple[DataFile, int]],
    parts: Sequence[Part],
    footers: FooterCache,
    pinned: PinnedFiles | None = None,
) -> Iterator[pa.Table] | None:
    """The row groups of several small files: of each part one table, with the rows of all, one after the other.

    None where one of them is not to be read in this way, or has other types.

    Args:
        location: Where the dataset lies.
        asked: Of each row group: its file, and its number there.
        parts: What is read.
        footers: Keeps footers from call to call.
        pinned: Fetches the files, several at a time; None where they are local, and opened.

    Raises:
        PetastoreError: One cannot be read; as `small_file_in_parts`.
    """
    if not _are_for_one_go(parts) or not all(_is_small(location, file, footers) for file, _ in asked):
        return None
    part = in_one(parts)
    tables: list[pa.Table] = []
    schema, is_plain = pa.schema([]), True
    files = list(dict.fromkeys(file for file, _ in asked))
    fetch = functools.partial(_fetched, location, footers, pinned)
    fetched = dict(zip(files, map(fetch, files) if pinned is None else at_once(fetch, files), strict=True))
    whole = _decoded_as_one(asked, fetched, part)
    if whole is not None:
        return _divided(whole, parts)
    for file, ordinal in asked:
        again = None if pinned is None else functools.partial(_fetched_again, location, footers, pinned, file)
        table, footer = _right(location, file, ordinal, part, fetched[file], again), fetched[file][1]
        if table is None:
            return None
        if not tables:
            schema, is_plain = table.schema, is_as_asked(table.schema, part.columns)
        if not is_plain:
            table = as_asked(table, footer, ordinal, part.columns)
        elif not table.schema.equals(schema):
            return None
        tables.append(table)
    return joined(tables, parts)


def in_one(parts: Sequence[Part]) -> Part:
    """All columns of some parts, at least one, as one part that is read whole."""
    names = tuple(name for part in parts for name in part.columns)
    return Part(names, most_bytes=min(part.most_bytes for part in parts))


def _are_for_one_go(parts: Sequence[Part]) -> bool:
    names = [name for part in parts for name in part.columns]
    return bool(parts) and len(set(names)) == len(names) and all(part.first is None and part.columns for part in parts)


def joined(tables: Iterable[pa.Table], parts: Sequence[Part]) -> Iterator[pa.Table]:
    """Of each part one table: its columns of some tables, one after the other.

    Raises:
        pa.ArrowInvalid: The tables do not have the same types.
    """
    return _divided(pa.concat_tables(tables).replace_schema_metadata().combine_chunks(), parts)


def _divided(table: pa.Table, parts: Sequence[Part]) -> Iterator[pa.Table]:
    return iter([table]) if len(parts) == 1 else (table.select(list(part.columns)) for part in parts)


def _is_small(location: Location, file: DataFile, footers: FooterCache) -> bool:
    known = footers.kept(location, file) if file.size <= SMALL_FILE_BYTES else None
    return file.size <= SMALL_FILE_BYTES and (known is None or len(known.encoded) <= _SMALL_FOOTER_BYTES)


def _fetched(
    location: Location, footers: FooterCache, pinned: PinnedFiles | None, file: DataFile, *, again: bool = True
) -> tuple[bytes, Footer]:
    if pinned is None:
        whole = read_up_to(location, file.path, file.size + 1)
        return whole, footers.found(location, file, whole)
    known = footers.kept(location, file)
    fetched = pinned.whole(file, None if known is None else known.version)
    whole = fetched.read(0, file.size).to_pybytes()
    try:
        footer = footers.found(location, file, whole, fetched.version if fetched.version.tells else None)
    except (MetadataError, DatasetChangedError):  # by the digest of the inventory, a damaged one is another file's
        if not again:
            raise
        found = _fetched(location, footers, pinned, file, again=False)
        pinned.fetcher.note_damaged()
        return found
    if pinned.settled(file, fetched.version).is_same(fetched.version):
        return whole, footer
    return _fetched(location, footers, pinned, file)  # another thread was first, and found another version


def _fetched_again(
    location: Location, footers: FooterCache, pinned: PinnedFiles, file: DataFile
) -> tuple[bytes, Footer]:
    pinned.fetcher.note_damaged()
    return _fetched(location, footers, pinned, file)


def _right(
    location: Location,
    file: DataFile,
    ordinal: int,
    part: Part,
    fetched: tuple[bytes, Footer],
    again: Callable[[], tuple[bytes, Footer]] | None,
) -> pa.Table | None:
    """What `_decoded` gives, of what is fetched again where it came damaged: a bit may have flipped on its way."""
    whole, footer = fetched
    try:
        return _decoded(file, ordinal, part, whole, footer)
    except (pa.ArrowException, OSError, DecodeError) as problem:
        if again is None or isinstance(problem, StorageError):
            raise_alone(explained(problem, location, file, ordinal, part.columns, footer))
    return _right(location, file, ordinal, part, again(), None)


def _decoded(file: DataFile, ordinal: int, part: Part, whole: bytes, footer: Footer) -> pa.Table | None:
    """Columns of a row group as Arrow reads them; None where the little that is in the file may be much in memory."""
    reader = pq.ParquetReader()
    reader.open(pa.BufferReader(whole), page_checksum_verification=True)
    metadata = reader.metadata
    groups = metadata.num_row_groups
    leaves = leaves_of(footer, ordinal, part.columns, groups)
    group = metadata.row_group(ordinal)
    rows = group.num_rows
    if _may_be_large(footer, ordinal, part, rows, group.total_byte_size):
        return None
    table = _table(reader, ordinal, leaves, groups)
    check_rows(table.num_rows, footer, ordinal, part.columns, rows)
    refuse_damaged_pages(lambda size, at: whole[at : at + size], metadata, leaves, file=file, ordinal=ordinal)
    return table


def _decoded_as_one(
    asked: Sequence[tuple[DataFile, int]], fetched: Mapping[DataFile, tuple[bytes, Footer]], part: Part
) -> pa.Table | None:
    """Columns of many row groups, decoded in one call; None where they have to be decoded one by one.

    So they are where one of them is damaged: it is found then, and named.
    """
    if len(fetched) < FEWEST:
        return None
    number_of = {file: number for number, file in enumerate(fetched)}
    encoded = [footer.encoded for _, footer in fetched.values()]
    places = [(number_of[file], ordinal) for file, ordinal in asked]
    joined_ones = joined_files([data for data, _ in fetched.values()], encoded, places)
    if joined_ones is None or fetched[asked[0][0]][1].columns.int96_leaves:
        return None
    (_, footer), data = fetched[asked[0][0]], joined_ones.data
    leaves = leaves_of(footer, 0, part.columns, len(asked))
    try:
        reader = pq.ParquetReader()
        reader.open(pa.BufferReader(data), page_checksum_verification=True)
        metadata = reader.metadata
        are_flat = all(metadata.schema.column(leaf).max_repetition_level == 0 for leaf in leaves)
        sizes = [metadata.row_group(number).total_byte_size for number in range(len(asked))]
        may_swell = sum(map(operator.mul, joined_ones.chunks.rows.tolist(), sizes)) > part.most_bytes
        if may_swell or not are_flat or sum(sizes) > _MOST_DECODED_BYTES or not joined_ones.have_a_page_each(leaves):
            return None
        table = reader.read_all(column_indices=leaves, use_threads=False)
        if table.num_rows != metadata.num_rows or not is_as_asked(table.schema, part.columns):
            return None
        for number, (file, _) in enumerate(asked):
            refuse_damaged_pages(lambda size, at: data[at : at + size], metadata, leaves, file=file, ordinal=number)
    except (pa.ArrowException, OSError, DecodeError):
        return None
    return table.replace_schema_metadata().combine_chunks()


def _may_be_large(footer: Footer, ordinal: int, part: Part, rows: int, size: int) -> bool:
    if size > _MOST_DECODED_BYTES:
        return True
    if footer.columns.int96_leaves:
        return True  # they are checked where a file stays open
    may_swell = rows * size > part.most_bytes or footer.columns.are_nested
    return may_swell and bool(swelling_leaves(footer, ordinal, part.columns, part.most_bytes))


def _table(reader: Any, ordinal: int, leaves: list[int], groups: int) -> pa.Table:
    if groups == 1:  # which takes a third less than to read the one there is
        return reader.read_all(column_indices=leaves, use_threads=False)
    return reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
