"""Read small files whole, in one request each, and decode their row groups.

Reading and verifying a whole small file takes less time than requesting its footer and then its pages, even if the file
is read repeatedly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import DatasetChangedError, DecodeError, MetadataError, StorageError
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import read_up_to
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.ranges.pinned_files import PinnedFiles
from petastore.storage.requests.failures import raise_alone
from petastore.storage.row_groups.asked_columns import Part, check_rows, in_one, leaves_of, swelling_leaves
from petastore.storage.row_groups.open_files import explained
from petastore.storage.row_groups.opened_file import check_decoder
from petastore.storage.row_groups.page_headers import has_checksums, refuse_damaged_pages

__all__ = ["SMALL_FILE_BYTES", "SmallFiles", "request_whole_columns", "small_file"]


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


def small_file(
    location: Location,
    file: DataFile,
    ordinal: int,
    parts: Sequence[Part],
    footers: FooterCache,
    pinned: PinnedFiles | None = None,
) -> tuple[pa.Table, Footer] | None:
    """Return columns of a row group of a small file as a table, and the file's footer.

    The table has the columns of all parts. Return None if the row group must be read in another way:

    * The file is not small, or is a local file with several row groups.
    * The parts do not read all rows of their columns, or repeat a column.
    * The row group may be large when decoded, or the file has INT96 timestamps.

    Args:
        location: Location of the dataset.
        file: File of the inventory.
        ordinal: Number of the row group in its file, from 0.
        parts: Parts (groups of columns that are read together) to read.
        footers: Cache of footers.
        pinned: Range fetcher; None for local files.

    Raises:
        InvalidArgumentError: The file has no such column or row group.
        SchemaError: The column cannot be read; the message has the reason.
        DatasetChangedError: The file differs from the inventory.
        DecodeError: A page is damaged.
        StorageError: The file is missing or cannot be read.
    """
    small = SmallFiles(location, footers, pinned)
    if not request_whole_columns(parts) or not small.has(file):
        return None
    known = footers.kept(location, file)
    if location.is_local and known is not None and known.metadata.num_row_groups > 1:
        return None  # keeping a file open between row groups is faster than reading the whole file for each row group
    part = in_one(parts)
    fetched = small.fetch(file)
    table = small.table(file, ordinal, part, fetched)
    return None if table is None else (table, fetched[1])


def request_whole_columns(parts: Sequence[Part]) -> bool:
    """Return whether the parts have all rows of their columns, and each column is in only one part.

    Return False without parts, or if a part has no columns.
    """
    names = [name for part in parts for name in part.columns]
    return bool(parts) and len(set(names)) == len(names) and all(part.first is None and part.columns for part in parts)


@dataclasses.dataclass(frozen=True, slots=True)
class SmallFiles:
    """Small files of a dataset, read whole."""

    location: Location
    footers: FooterCache
    pinned: PinnedFiles | None

    def has(self, file: DataFile) -> bool:
        """Return whether a file and its footer are small, as far as known."""
        if file.size > SMALL_FILE_BYTES:
            return False
        known = self.footers.kept(self.location, file)
        return known is None or len(known.encoded) <= _SMALL_FOOTER_BYTES

    def fetch(self, file: DataFile, *, is_last: bool = False) -> tuple[bytes, Footer]:
        """Fetch a whole file, and return its bytes and its footer.

        Args:
            file: File to fetch.
            is_last: Whether to raise an error if the file is damaged. If False, a damaged remote file is fetched once
                more.

        Raises:
            DatasetChangedError: The file differs from the inventory.
            MetadataError: The file is not Parquet, or its footer is damaged.
            StorageError: The file cannot be read.
        """
        if self.pinned is None:
            whole = read_up_to(self.location, file.path, file.size + 1)
            return whole, self.footers.found(self.location, file, whole)
        known = self.footers.kept(self.location, file)
        fetched = self.pinned.whole(file, None if known is None else known.version)
        whole = fetched.read(0, file.size).to_pybytes()
        try:
            version = fetched.version if fetched.version.tells else None
            footer = self.footers.found(self.location, file, whole, version)
        except (MetadataError, DatasetChangedError):  # a damaged file has another digest than the inventory
            if is_last:
                raise
            found = self.fetch(file, is_last=True)
            self.pinned.fetcher.note_damaged()
            return found
        if self.pinned.settled(file, fetched.version).is_same(fetched.version):
            return whole, footer
        return self.fetch(file)  # another thread has already found another version

    def table(self, file: DataFile, ordinal: int, part: Part, fetched: tuple[bytes, Footer]) -> pa.Table | None:
        """Return columns of a row group as a table.

        Return None if the row group may be large when decoded, or if the file has INT96 timestamps. A damaged remote
        file is fetched again once, because a bit may have flipped during the transfer.

        Args:
            file: File of the row group.
            ordinal: Number of the row group in its file.
            part: Columns to read.
            fetched: Bytes and footer of the file, from `fetch`.
        """
        try:
            return _decoded(ordinal, part, *fetched)
        except (pa.ArrowException, OSError, DecodeError) as problem:
            if self.pinned is None or isinstance(problem, StorageError):
                raise_alone(explained(problem, self.location, file, ordinal, part.columns, fetched[1]))
        self.pinned.fetcher.note_damaged()
        fetched = self.fetch(file)
        try:
            return _decoded(ordinal, part, *fetched)
        except (pa.ArrowException, OSError, DecodeError) as problem:
            raise_alone(explained(problem, self.location, file, ordinal, part.columns, fetched[1]))


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
    leaves = leaves_of(footer, ordinal, part.columns, groups)
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
        refuse_damaged_pages(lambda size, at: whole[at : at + size], footer, [ordinal], leaves)
    return table
