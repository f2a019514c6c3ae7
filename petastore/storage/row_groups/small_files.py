"""Read small files whole, in one request each, and decode their row groups.

Reading and verifying a whole small file takes less time than requesting its footer and then its pages, even if the file
is read repeatedly.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import DatasetChangedError, DecodeError, MetadataError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import read_up_to
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.ranges.pinned_files import PinnedFiles
from petastore.storage.requests.failures import raise_alone
from petastore.storage.requests.retries import at_once, read_right
from petastore.storage.row_groups.asked_columns import Part, check_rows, in_one, joined, leaves_of, with_columns
from petastore.storage.row_groups.dictionaries import swelling_leaves
from petastore.storage.row_groups.open_files import explained
from petastore.storage.row_groups.opened_file import check_decoder
from petastore.storage.row_groups.page_headers import has_checksums, refuse_damaged_pages

__all__ = ["SMALL_FILE_BYTES", "SmallFiles"]


SMALL_FILE_BYTES = 256 * 1024
"""Maximum size of a file that is read whole."""

_SMALL_FOOTER_BYTES = 16 * 1024
"""Maximum footer size of a file that is read whole.

Reading a file whole parses its footer again for each row group.
"""

_MOST_DECODED_BYTES = 4 * 1024 * 1024
"""Maximum uncompressed bytes of a row group of a small file.

A larger row group is read column by column.
"""


def _request_whole_columns(parts: Sequence[Part]) -> bool:
    """Return whether the parts have all rows of their columns, and each column is in only one part.

    Return False without parts, or if a part has no columns.
    """
    names = [name for part in parts for name in part.columns]
    return bool(parts) and len(set(names)) == len(names) and all(part.first is None and part.columns for part in parts)


@dataclasses.dataclass(frozen=True, slots=True)
class SmallFiles:
    """Small files of a dataset, read whole."""

    location: Location
    """Location of the dataset."""

    footers: FooterCache
    """Cache of footers."""

    pinned: PinnedFiles | None = None
    """Range fetcher; None for local files."""

    def read(self, places: Sequence[tuple[DataFile, int]], parts: Sequence[Part]) -> Iterator[pa.Table] | None:
        """Read row groups of small files; yield one table with all rows for each part.

        Return None if the row groups must be read in another way:

        * A file is not small, or a disk cache stores its column chunks.
        * The only row group is one of several in a local file.
        * The parts do not read all rows of their columns, or repeat a column.
        * A row group may be large when decoded, or a file has INT96 timestamps.
        * The row groups have different types.

        Args:
            places: File of each row group, and its number in the file.
            parts: Parts (groups of columns that are read together) to read.

        Raises:
            InvalidArgumentError: A file has no such column or row group.
            SchemaError: A column cannot be read; the message has the reason.
            DatasetChangedError: A file differs from the inventory.
            DecodeError: A page is damaged.
            StorageError: A file is missing or cannot be read.
        """
        files = list(dict.fromkeys(file for file, _ in places))
        if not all(map(self._has, files)) or (len(places) == 1 and self._stays_open(files[0])):
            return None
        if not _request_whole_columns(parts):
            return None
        part, tables = in_one(parts), list[pa.Table]()
        found = map(self._fetch, files) if self.pinned is None else at_once(self._fetch, files)
        fetched = dict(zip(files, found, strict=True))
        columns = fetched[files[0]][1].columns
        for file, ordinal in places:
            whole, footer = fetched[file]
            table = self._table(file, ordinal, part, whole, footer)
            if table is None or (footer.columns is not columns and not table.schema.equals(tables[0].schema)):
                return None
            tables.append(table)
        return joined(tables, parts)

    def _has(self, file: DataFile) -> bool:
        """Return whether a file and its footer are small, as far as known, and are not cached on disk."""
        if file.size > SMALL_FILE_BYTES or (self.pinned is not None and self.pinned.cache is not None):
            return False
        known = self.footers.kept(self.location, file)
        return known is None or len(known.encoded) <= _SMALL_FOOTER_BYTES

    def _stays_open(self, file: DataFile) -> bool:
        """Return whether a file stays open between row groups, which is faster than reading it for each of them."""
        known = self.footers.kept(self.location, file)
        return self.location.is_local and known is not None and known.metadata.num_row_groups > 1

    def _fetch(self, file: DataFile) -> tuple[bytes, Footer]:
        """Fetch a whole file, and return its bytes and its footer; fetch a damaged remote file once more.

        Raises:
            DatasetChangedError: The file differs from the inventory.
            MetadataError: The file is not Parquet, or its footer is damaged.
            StorageError: The file cannot be read.
        """
        pinned = self.pinned
        if pinned is None:
            whole = read_up_to(self.location, file.path, file.size + 1)
            return whole, self.footers.found(self.location, file, whole)

        def again() -> tuple[bytes, Footer]:
            found = self._fetch_pinned(pinned, file)
            pinned.fetcher.note_damaged()
            return found

        # A damaged file has another digest than the inventory.
        refused = MetadataError, DatasetChangedError
        return read_right(functools.partial(self._fetch_pinned, pinned, file), again, refused=refused)

    def _fetch_pinned(self, pinned: PinnedFiles, file: DataFile) -> tuple[bytes, Footer]:
        known = self.footers.kept(self.location, file)
        fetched = pinned.whole(file, None if known is None else known.version)
        whole = fetched.read(0, file.size).to_pybytes()
        version = fetched.version if fetched.version.tells else None
        footer = self.footers.found(self.location, file, whole, version)
        if pinned.settled(file, fetched.version).is_same(fetched.version):
            return whole, footer
        return self._fetch_pinned(pinned, file)  # another thread has already found another version

    def _table(self, file: DataFile, ordinal: int, part: Part, whole: bytes, footer: Footer) -> pa.Table | None:
        """Return columns of a row group as a table, given the bytes and the footer of the file.

        Return None if the row group may be large when decoded, or if the file has INT96 timestamps. A damaged remote
        file is fetched again once, because a bit may have flipped during the transfer.
        """
        pinned = self.pinned

        def again() -> pa.Table | None:
            if pinned is not None:
                pinned.fetcher.note_damaged()
            return _decoded(ordinal, part, *self._fetch(file))

        decode = functools.partial(_decoded, ordinal, part, whole, footer)
        try:
            return read_right(decode, None if pinned is None else again, refused=_DAMAGE)
        except _DAMAGE as problem:
            raise_alone(explained(problem, self.location, ordinal, part.columns, footer))


_DAMAGE = pa.ArrowException, OSError, DecodeError


def _decoded(ordinal: int, part: Part, whole: bytes, footer: Footer) -> pa.Table | None:
    """Return columns of a row group as a table, given all bytes of the file.

    Return None if the row group is larger than 4 MiB or may be much larger when decoded, or if the file has INT96
    timestamps.
    """
    check_decoder()
    reader = pq.ParquetReader()
    metadata = footer.metadata
    reader.open(pa.BufferReader(whole), metadata=metadata, page_checksum_verification=True)
    groups = metadata.num_row_groups
    leaves = leaves_of(footer, ordinal, part.columns)
    group = metadata.row_group(ordinal)
    rows, size = group.num_rows, group.total_byte_size
    if size > _MOST_DECODED_BYTES or footer.columns.int96_leaves:  # INT96 is checked only in files that stay open
        return None
    may_swell = rows * size > part.most_bytes or footer.columns.are_nested
    if may_swell and swelling_leaves(footer, ordinal, part.columns, part.most_bytes):
        return None
    if groups == 1:  # `read_all` is a third faster
        table = reader.read_all(column_indices=leaves, use_threads=False)
    else:
        table = reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
    check_rows(table.num_rows, footer, ordinal, part.columns, rows)
    if leaves and has_checksums(whole, group.column(leaves[0])):
        refuse_damaged_pages(lambda size, at: whole[at : at + size], footer, ordinal, leaves)
    return with_columns(table, footer, ordinal, part.columns)
