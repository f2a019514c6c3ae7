"""Open file pool: keep files open between row groups, and verify checksums once.

Opening a file and creating its page reader takes several short calls into Arrow. Each call releases and reacquires the
GIL, which takes longer than the call itself if several threads run. Verifying page checksums costs more than decoding,
if cells are not compressed; therefore each row group is verified only once.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import pyarrow as pa

from petastore.errors import DecodeError, PetastoreError, ReaderClosedError
from petastore.forks import made_anew_in_children
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import Footer, check_unchanged
from petastore.storage.footers.footers import read_footer
from petastore.storage.footers.tails import LocalVersion, Tail, version_fields
from petastore.storage.ranges.fetch import RangeFetcher
from petastore.storage.ranges.pinned_files import KeptFiles, PinnedFiles
from petastore.storage.requests.failure_kinds import kind_of
from petastore.storage.requests.failures import failure, raise_alone
from petastore.storage.row_groups.fetched_ahead import FetchedAhead
from petastore.storage.row_groups.opened_file import Asked, LocalFile, OpenedFile
from petastore.storage.row_groups.page_headers import refuse_damaged_pages

if TYPE_CHECKING:
    from petastore.storage.row_groups.fetched_row_group import FetchedRowGroup

__all__ = ["SETTLED_NS", "OpenFiles", "Reading", "VerifiedRowGroups", "explained"]

SETTLED_NS = 100_000_000
"""Age of a file in nanoseconds from which verified data stays verified.

Such data is not verified again in later epochs. A younger file may still change without a new modification time. Linux
sets the time before it copies the bytes, and a busy machine may stop the writer in between. A reader then sees the new
time with the old bytes. Two writes within one tick of the clock have the same time, too.
"""

_MOST_IDLE = 8
"""Default maximum number of idle files that stay open."""

_Place: TypeAlias = tuple[int, str]


def _place(location: Location, file: DataFile) -> _Place:
    """Return a key of a file that is unique over all datasets.

    It is unique even if file names and footers of two datasets are equal.
    """
    return id(location), file.path


class VerifiedRowGroups:
    """Row groups whose checksums were verified, by file version. Thread-safe.

    Example:
        >>> verified, version = VerifiedRowGroups(), LocalVersion(1, 2, 3, 4, 5)
        >>> verified.add("a.parquet", version, 0, (("id",),))
        >>> verified.has("a.parquet", version, 0, (("id",),))
        True
        >>> verified.has("a.parquet", version._replace(written_ns=6), 0, (("id",),))
        False
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, Asked], tuple[LocalVersion, set[int]]] = {}

    def has(self, path: str, version: LocalVersion, ordinal: int, asked: Asked) -> bool:
        """Return whether these columns were verified in this version of the file."""
        known = self._groups.get((path, asked))
        return known is not None and known[0] == version and ordinal in known[1]

    def add(self, path: str, version: LocalVersion, ordinal: int, asked: Asked) -> None:
        """Record that these columns of a row group were verified."""
        known = self._groups.get((path, asked))
        if known is None or known[0] != version:
            known = self._groups[path, asked] = version, set()
        known[1].add(ordinal)


class OpenFiles:
    """Pool of open local files. Thread-safe.

    Each open file is used by one thread at a time; recently used files stay open. If a file was written in the
    meantime, it is reopened, and a changed footer raises an error. Remote files are not opened: their byte ranges are
    fetched from the file version of the footer.

    Args:
        most_idle: Maximum number of idle open files; a file read by several threads counts several times.
        verified: Row groups that were verified before; later pools share this object.
    """

    def __init__(self, *, most_idle: int = _MOST_IDLE, verified: VerifiedRowGroups | None = None) -> None:
        self._most_idle = most_idle
        self.verified = VerifiedRowGroups() if verified is None else verified
        """Verified row groups."""
        self._closed = False
        self._idle: collections.OrderedDict[_Place, list[LocalFile]] = collections.OrderedDict()
        self._pinned: dict[tuple[int, int], PinnedFiles] = {}
        self._locations: dict[int, Location] = {}  # keeps the location alive, so that its id is not reused
        self.ahead = FetchedAhead()
        """Prefetched row groups."""
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Reset the lock in a forked child."""
        self._lock = threading.Lock()

    def footer_of(self, location: Location, file: DataFile) -> Footer | None:
        """Return the footer of a local file that is still open; otherwise None."""
        idle = self._idle.get(_place(location, file))
        footer = idle[-1].footer if idle else None
        return footer if footer is not None and footer.file == file else None

    def tail(self, location: Location, file: DataFile) -> Tail:
        """Read the end of a local file, which stays open for its row groups.

        Raises:
            FileMissingError: The file is missing.
            StorageError: The file cannot be read.
            MetadataError: The file is not Parquet.
        """
        opened, tail = LocalFile.open(location, file)
        self.keep(location, opened)
        return tail

    def reading(
        self,
        location: Location,
        footer: Footer,
        ordinal: int,
        asked: Asked,
        *,
        whole: bool = True,
        request_bytes: int | None = None,
        kept: KeptFiles | None = None,
    ) -> Reading:
        """Return a context manager that opens a file to read a row group in this thread.

        Args:
            location: Location of the dataset.
            footer: Footer of the file.
            ordinal: Number of the row group.
            asked: Columns to read.
            whole: Whether most of each column chunk will be read. If False, only the needed byte ranges of a remote
                file are fetched, unless there is a disk cache.
            request_bytes: Bytes of a remote column chunk that are fetched at a time; None fetches whole chunks.
            kept: File versions and cached chunks of the dataset.

        Raises:
            DatasetChangedError: The file does not have this footer.
            FileMissingError: The file is missing.
            StorageError: The file cannot be opened or read. Reading may also raise Arrow's exceptions.
        """
        pinned = self.pinned(location, kept)
        if pinned is None:
            return Reading(self, location, footer, (ordinal,), asked)
        from petastore.storage.row_groups.fetched_row_group import FetchedRowGroup  # local files do not need it

        fetched = FetchedRowGroup(pinned, self.ahead, location, footer, ordinal, asked)
        return Reading(self, location, footer, (ordinal,), asked, fetched, whole=whole, request_bytes=request_bytes)

    def lent(self, location: Location, footer: Footer) -> LocalFile:
        """Take an open local file with this footer from the pool, or open the file.

        The calling thread uses the file, and returns it with `keep`.

        Raises:
            DatasetChangedError: The file has another footer.
            StorageError: The file is missing, or cannot be read.
        """
        with self._lock:
            idle = self._idle.get(_place(location, footer.file))
            found = idle.pop() if idle else None
        if found is None or found.footer is footer:
            return found or LocalFile.open_with(location, footer)
        if found.footer is None and found.version == footer.local:
            found.footer = footer
            return found
        found.source.close()
        return LocalFile.open_with(location, footer)

    def keep(self, location: Location, opened: LocalFile) -> None:
        """Return an open file to the pool, for the next reader."""
        dropped: list[LocalFile] = []
        with self._lock:
            if self._closed:
                dropped.append(opened)
            else:
                place = _place(location, opened.file)
                self._locations[id(location)] = location
                self._idle.setdefault(place, []).append(opened)
                self._idle.move_to_end(place)
                if len(self._idle) > self._most_idle:
                    dropped += self._idle.popitem(last=False)[1]
        for one in dropped:
            one.source.close()

    def close(self) -> None:
        """Close idle files; files that are returned later are closed, too."""
        with self._lock:
            self._closed = True
            dropped = [opened for idle in self._idle.values() for opened in idle]
            self._idle.clear()
            pinned, self._pinned = self._pinned, {}
        for opened in dropped:
            opened.source.close()
        self.ahead.close()
        for files in pinned.values():
            files.fetcher.close()

    def pinned(self, location: Location, kept: KeptFiles | None) -> PinnedFiles | None:
        """Return the range fetcher of a dataset's files; None if they are local.

        Raises:
            ReaderClosedError: The pool was closed.
        """
        if location.is_local:
            return None
        key = id(location), id(kept)
        with self._lock:
            pinned = self._pinned.get(key)
            if pinned is None:
                if self._closed:
                    raise ReaderClosedError("the reader was closed. Open a new reader")
                fetcher = RangeFetcher(location, counter=None if kept is None else kept.asked)
                pinned = self._pinned[key] = PinnedFiles(fetcher, kept)
            return pinned


class Reading:
    """Context manager for reading row groups of one file.

    It detects whether the file is written during the read. At the end of the block, a local file returns to the pool.
    After an error, it is closed, and fetched bytes are discarded.

    Args:
        files: Pool of local files.
        location: Location of the dataset.
        footer: Footer of the file.
        ordinals: Numbers of the row groups; a single one if ranges are fetched.
        asked: Columns to read from each row group, one tuple for each part (columns that are read together).
        fetched: Fetched ranges of the row group; None for a local file.
        whole: Whether most of each column chunk will be read. If False, only the needed byte ranges of a remote file
            are fetched, unless there is a disk cache.
        request_bytes: Bytes of a column chunk that are fetched at a time; None fetches whole chunks.
    """

    def __init__(
        self,
        files: OpenFiles,
        location: Location,
        footer: Footer,
        ordinals: Sequence[int],
        asked: Asked,
        fetched: FetchedRowGroup | None = None,
        *,
        whole: bool = True,
        request_bytes: int | None = None,
    ) -> None:
        self._files, self._location, self._footer = files, location, footer
        self._ordinals, self._asked, self._fetched = ordinals, asked, fetched
        self._local = files.lent(location, footer) if fetched is None else None
        self._is_settled = False
        self.opened = self._opened() if fetched is None else fetched.open(whole=whole, request_bytes=request_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, *__: object) -> None:
        if isinstance(error, Exception):
            self.opened.source.close()
            if self._fetched is not None:
                self._fetched.discard()
        if self._local is not None and not self._local.source.closed:
            self._files.keep(self._location, self._local)

    def _opened(self, *, may_trust: bool = True) -> OpenedFile:
        local = self._local
        assert local is not None  # noqa: S101 - only called for local files
        self._is_settled = time.time_ns() - local.version.changed_ns > SETTLED_NS
        has, asked = self._files.verified.has, self._asked
        verify = not (may_trust and all(has(local.path, local.version, ordinal, asked) for ordinal in self._ordinals))
        opened = local.opened.get(verify)
        if opened is None:
            opened = local.opened[verify] = OpenedFile(local.source, self._footer, verify=verify)
        return opened

    @property
    def reader(self) -> Any:
        """A `pyarrow.parquet.ParquetReader`."""
        return self.opened.reader

    def dictionaries(self, paths: Sequence[str]) -> Any:
        """Return a `ParquetReader` that reads some leaf columns as dictionaries.

        `paths` are the paths of these leaf columns. The reader verifies checksums.
        """
        return self.opened.reader_of(self._footer, paths)

    def nanoseconds(self) -> Any:
        """Return a `ParquetReader` that reads INT96 timestamps in nanoseconds.

        They may wrap around.
        """
        return self.opened.reader_of(self._footer, int96_unit="ns")

    @property
    def is_in_doubt(self) -> bool:
        """Whether the file was written since its footer was read.

        Checksums do not detect this, because newly written pages also have valid checksums.
        """
        local = self._local
        return local is not None and version_fields(os.fstat(local.source.fileno())) != local.version

    def verify(self) -> None:
        """Reopen the file, and verify checksums in all following reads.

        Raises:
            DatasetChangedError: The file no longer has this footer.
            StorageError: The file is missing, or cannot be opened.
        """
        self.opened.source.close()
        self._local = LocalFile.open_with(self._location, self._footer, is_new=True)
        self.opened = self._opened(may_trust=False)

    def check_pages(self, leaves: Sequence[int]) -> None:
        """Check page headers before Arrow reads the pages and allocates memory.

        Raises:
            DecodeError: A page header contradicts the footer or another header.
        """
        opened = self.opened
        if not (opened.is_near and opened.verify):
            return
        try:
            read = opened.source.read_at
            refuse_damaged_pages(read, self._footer, self._ordinals, leaves, unchecked=opened.is_large)
        except DecodeError:
            if not self.is_in_doubt:  # if in doubt, the headers may be of another version, and are read again
                raise

    def note_verified(self) -> None:
        """Record that the row groups were read and verified in this version of the file."""
        if self._local is not None and self._is_settled and self.opened.verify:
            for ordinal in self._ordinals:
                self._files.verified.add(self._local.path, self._local.version, ordinal, self._asked)


def explained(
    problem: Exception, location: Location, file: DataFile, ordinal: int, columns: Sequence[str], footer: Footer
) -> Exception:
    """Return the error that explains a failed read.

    It is a storage error or an error about a damaged page. If the file was rewritten, DatasetChangedError is raised.
    """
    is_ours = isinstance(problem, PetastoreError)
    if is_ours and not (location.is_local and isinstance(problem, DecodeError)):
        return problem
    if _is_of_storage(problem):
        return failure(problem, location, "read", file.path)
    check_unchanged(read_footer(location, file.path).file, footer.file)
    if is_ours:
        return problem
    if isinstance(problem, pa.ArrowNotImplementedError):
        # The row group is not read again to find the damaged column, because this takes as long as the first read.
        # Columns that are not stacked are read one at a time anyway.
        return DecodeError(
            f"Apache Arrow cannot read the column: {problem}. Leave the column out with schema_fields",
            column=columns[0] if len(columns) == 1 else None,
            file=file.path,
            row_group=ordinal,
        )
    column = _first_damaged(location, ordinal, columns, footer)
    if column is None and not location.is_local:
        # The second read succeeded, so the file is intact.
        return failure(problem, location, "read", file.path)
    return DecodeError(
        f"the data is damaged: {problem}. Restore the file from a copy, or leave the column out with schema_fields",
        column=column,
        file=file.path,
        row_group=ordinal,
    )


def _is_of_storage(problem: Exception) -> bool:
    """Return whether an exception comes from the storage and not from a decoder."""
    return isinstance(problem, OSError) and kind_of(problem) != ("other", None)


def _first_damaged(location: Location, ordinal: int, columns: Sequence[str], footer: Footer) -> str | None:
    with (
        contextlib.closing(OpenFiles(most_idle=0)) as files,
        files.reading(location, footer, ordinal, (tuple(columns),)) as reading,
    ):
        for name in columns:
            leaves = list(footer.leaves[name])
            try:
                # Arrow allocates the size that a header declares before it detects missing bytes: headers are checked
                # first.
                reading.check_pages(leaves)
                reading.reader.read_row_group(ordinal, column_indices=leaves, use_threads=False)
            except (pa.ArrowException, OSError, DecodeError) as problem:
                if _is_of_storage(problem):
                    raise_alone(failure(problem, location, "read", footer.file.path))
                return name
    return None
