"""Files that stay open from one row group to the next, and are read without verifying what was found right before.

Opening a file and making a reader of its pages are a handful of short calls into Arrow, each of which lets go of the
interpreter lock and has to get it again: with several threads at work that costs more than what they do. Verifying the
checksums of pages costs more than decoding them, where cells are not compressed.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import pyarrow as pa

from petastore.errors import DecodeError, ReaderClosedError
from petastore.forks import made_anew_in_children
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import Footer
from petastore.storage.pages.damage import refuse_damaged_pages
from petastore.storage.ranges.kept_files import KeptFiles
from petastore.storage.row_groups.fetched_ahead import FetchedAhead
from petastore.storage.row_groups.opened_file import OpenedFile, Settings, check_footer, open_local
from petastore.storage.row_groups.verified import (
    Asked,
    Verified,
    Version,
    telling_version_of,
    tells_of_writes,
    version_of,
)

if TYPE_CHECKING:
    from petastore.storage.ranges.pinned_files import PinnedFiles
    from petastore.storage.row_groups.fetched_row_group import FetchedRowGroup
    from petastore.storage.row_groups.long_lists import LongLists

__all__ = ["OpenFiles", "Reading"]

_MAY_BE_LISTS = {pa.list_(pa.int8(), 1).id, pa.fixed_shape_tensor(pa.int8(), [1]).id}
"""Numbers of the types of fixed-size lists, and of what may be stored as such."""

_MOST_IDLE = 8
"""Files that stay open while nobody reads them, unless asked otherwise."""


class OpenFiles:
    """Lends readers of files, each to one thread at a time, and keeps the last ones open. Thread-safe.

    Only files of the local file system are opened, and believed. One that was written to meanwhile is opened anew, and
    refused unless its footer is the same. Of any other file the ranges that are read are fetched, of the version that
    has the footer.

    Args:
        most_idle: Files that stay open while nobody reads them; each as often as it was read at a time.
        verified: What was found right before; outlives this, where files are read again.
    """

    def __init__(self, *, most_idle: int = _MOST_IDLE, verified: Verified | None = None) -> None:
        self._most_idle = most_idle
        self._verified = Verified() if verified is None else verified
        self._closed = False
        self._files: collections.OrderedDict[_Place, _File] = collections.OrderedDict()
        self._pinned: dict[tuple[int, int], tuple[Location, KeptFiles | None, PinnedFiles]] = {}
        self.ahead = FetchedAhead()
        """Row groups that are fetched before they are read."""
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Nobody holds the lock."""
        self._lock = threading.Lock()

    def footer_of(self, location: Location, file: DataFile) -> Footer | None:
        """The footer of a file of a dataset, where one of its row groups was read before and it is still open."""
        kept = self._files.get(_place(location, file))
        return kept.footer if kept is not None and kept.footer.file == file else None

    def reading(
        self,
        location: Location,
        footer: Footer,
        ordinal: int,
        asked: Asked,
        *,
        whole: bool = True,
        kept: KeptFiles | None = None,
    ) -> Reading:
        """A file that is read by the calling thread alone, in a `with` block.

        Args:
            location: Where the dataset lies.
            footer: Of the file; the one of each call for a file has to be the same object for it to be found open.
            ordinal: The row group that is read.
            asked: What is read of it.
            whole: Whether most of each column chunk is going to be read.
            kept: What is kept of the files of the dataset from pass to pass.

        Raises:
            DatasetChangedError: The file is not the one that the footer is of.
            FileMissingError: It is missing.
            StorageError: It cannot be opened, or read; reading may raise what Arrow raises, too.
        """
        file = self._files.get(_place(location, footer.file))
        if file is None or file.footer is not footer:
            file = _File(location, footer, location.join(footer.file.path), location.is_local, kept)
        return Reading(self, self._verified, file, ordinal, asked, whole=whole)

    def found(self, file: _File, version: Version | None, settings: Settings) -> OpenedFile | None:
        """A file that nobody reads, to be read as asked; what is open of an older version of it is closed."""
        with self._lock:
            stale = [opened for opened in file.idle if opened.version != version]
            fitting = [opened for opened in file.idle if opened.version == version and opened.settings == settings]
            for opened in (*stale, *fitting[-1:]):
                file.idle.remove(opened)
        for opened in stale:
            opened.source.close()
        return fitting[-1] if fitting else None

    def keep(self, file: _File, opened: OpenedFile) -> None:
        """Takes back a file that was lent."""
        with self._lock:
            dropped = [opened] if opened.version is None or self._closed else self._kept(file, opened)
        for one in dropped:
            one.source.close()

    def _kept(self, file: _File, opened: OpenedFile) -> list[OpenedFile]:
        """Keeps a file open; what has to be closed for it."""
        place, dropped = _place(file.location, file.footer.file), list[OpenedFile]()
        kept = self._files.setdefault(place, file)
        if kept.footer is not file.footer:
            dropped = kept.given_up()
            kept = self._files[place] = file
        kept.idle.append(opened)
        self._files.move_to_end(place)
        if len(self._files) > self._most_idle:
            dropped += self._files.popitem(last=False)[1].given_up()
        return dropped

    def close(self) -> None:
        """Closes what nobody reads, and from now on what comes back."""
        with self._lock:
            self._closed = True
            dropped = [opened for file in self._files.values() for opened in file.given_up()]
            self._files.clear()
            pinned, self._pinned = self._pinned, {}
        for opened in dropped:
            opened.source.close()
        self.ahead.close()
        for _, _, files in pinned.values():
            files.fetcher.close()

    def pinned(self, location: Location, kept: KeptFiles | None) -> PinnedFiles | None:
        """What fetches ranges of the files of a dataset; None where they are local, and opened.

        Raises:
            ReaderClosedError: This was closed.
        """
        if location.is_local:
            return None
        key = id(location), id(kept)
        with self._lock:
            pinned = self._pinned.get(key)
            if pinned is None:
                if self._closed:
                    raise ReaderClosedError("what fetches ranges of files was closed; make a new reader")
                pinned = self._pinned[key] = location, kept, _pinned_files(location, kept)
            return pinned[-1]


def _pinned_files(location: Location, kept: KeptFiles | None) -> PinnedFiles:
    from petastore.storage.ranges.open_fetcher import open_fetcher  # all that fetches, which local files do without
    from petastore.storage.ranges.pinned_files import PinnedFiles

    return PinnedFiles(open_fetcher(location, counter=None if kept is None else kept.asked), kept)


_Place: TypeAlias = tuple[int, str]


def _place(location: Location, file: DataFile) -> _Place:
    """Tells files of several datasets apart: names and footers may be the same. A `_File` keeps its location alive."""
    return id(location), file.path


@dataclasses.dataclass(eq=False, slots=True)
class _File:
    """A file that is read again and again: what is known of it without looking at it."""

    location: Location
    footer: Footer
    path: str
    is_local: bool
    kept: KeptFiles | None
    idle: list[OpenedFile] = dataclasses.field(default_factory=list)
    """What is open of it and read by nobody, the one read last at the end; changed under the lock of all files."""

    def given_up(self) -> list[OpenedFile]:
        """What was open of it; it is nobody's any more, and to be closed."""
        idle, self.idle = self.idle, []
        return idle


class Reading:
    """One row group of a file that is being read: by whom it was found right, and whether somebody writes to it."""

    def __init__(
        self, files: OpenFiles, verified: Verified, file: _File, ordinal: int, asked: Asked, *, whole: bool
    ) -> None:
        self._files, self._verified, self._file, self._whole = files, verified, file, whole
        self._ordinal, self._asked = ordinal, asked
        # Nothing tells whether a file elsewhere was written to: it is opened anew each time, and verified.
        self._version = telling_version_of(file.path) if file.is_local else None
        self._is_settled = False
        self._fetched: FetchedRowGroup | None = None
        self.decoded: dict[str, pa.Array] = {}
        """Columns that a cache had decoded."""
        self.opened = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            if self.opened is not None:
                self.opened.source.close()
            if self._fetched is not None:
                self._fetched.discard()
        if self.opened is not None and not self.opened.source.closed:
            self._files.keep(self._file, self.opened)

    def _open(self, *, believe: bool = True) -> OpenedFile | None:
        """The file, opened; None where all that is asked for is there already."""
        version, file = self._version, self._file
        if version is not None:
            if not self._verified.is_known(file.path, version):
                check_footer(file.location, file.footer, version)
                self._verified.see(file.path, version)
            believe = believe and self._verified.is_believed(file.path, version, self._ordinal, self._asked)
            self._is_settled = not believe and self._verified.is_settled(version)
        settings = Settings(version is None or not believe, self._whole)
        opened = self._files.found(file, version, settings) if file.idle else None
        if opened is not None:
            return opened
        self._fetched = self._fetched_row_group()
        if self._fetched is None:
            source = open_local(file.location, file.path, file.footer.file)
            return OpenedFile(source, file.footer, settings, version=version)
        opened, self.decoded = self._fetched.open(settings)
        return opened

    def _fetched_row_group(self) -> FetchedRowGroup | None:
        file = self._file
        pinned = self._files.pinned(file.location, file.kept)
        if pinned is None:
            return None
        from petastore.storage.row_groups.fetched_row_group import FetchedRowGroup  # local files do without

        return FetchedRowGroup(
            pinned, self._files.ahead, file.location, file.footer, self._ordinal, self._asked, file.kept
        )

    @property
    def reader(self) -> Any:
        """A `pyarrow.parquet.ParquetReader` of what is not decoded yet; None where there is nothing such."""
        return None if self.opened is None else self.opened.reader

    def dictionaries(self, paths: Sequence[str]) -> Any:
        """A `ParquetReader` of the same that gives some leaves, by their paths, as Arrow's dictionaries, and verifies.

        They are none of the columns that a cache had decoded.
        """
        opened = self.opened
        assert opened is not None  # noqa: S101 - some columns are not decoded
        return opened.reader_of(self._file.footer, paths)

    def nanoseconds(self) -> Any:
        """A `ParquetReader` of the same that gives INT96 timestamps in nanoseconds, which may wrap around."""
        opened = self.opened
        assert opened is not None  # noqa: S101 - no cache keeps them decoded
        return opened.reader_of(self._file.footer, int96_unit="ns")

    def long_lists(self, name: str) -> LongLists | None:
        """A column of one leaf, where it is read page by page; None where it is not, or bytes are far away."""
        opened, footer = self.opened, self._file.footer
        kind = footer.columns.arrow_schema.field(name).type
        if opened is None or not opened.is_near or kind.id not in _MAY_BE_LISTS:
            return None
        from petastore.storage.row_groups.long_lists import LongLists  # few datasets have any

        leaf = footer.leaves[name][0]
        footer.check_chunks([self._ordinal], [leaf])
        return LongLists.of(opened.source, footer.metadata, self._ordinal, leaf, kind, verify=opened.settings.verify)

    @property
    def is_in_doubt(self) -> bool:
        """Whether somebody has written to the file since it was looked at before; looks at it again.

        Right checksums do not help: pages that were written meanwhile have them as well.
        """
        return self._version is not None and version_of(self._file.path) != self._version

    def verify(self) -> None:
        """Opens the file anew, to verify what is read from now on.

        Raises:
            DatasetChangedError: The file is not the one that the footer is of any more.
            StorageError: It is gone, or cannot be opened.
        """
        if self.opened is not None:
            self.opened.source.close()
        self._version = telling_version_of(self._file.path)
        self.opened = self._open(believe=False)

    def check_pages_before(self, leaves: Sequence[int]) -> None:
        """Checks page headers before Arrow takes memory for what they say: of files that are streamed and verified.

        Raises:
            DecodeError: One contradicts the footer, or itself.
        """
        if self.opened is None or not (self.opened.is_streamed and self.opened.settings.verify):
            return
        try:
            self._file.footer.check_chunks([self._ordinal], leaves)
            self._check_pages(leaves)
        except DecodeError:
            if not self.is_in_doubt:  # else the headers are of another version, and are read again
                raise

    def check_pages_after(self, leaves: Sequence[int]) -> None:
        """Checks page headers of what was read and verified, where they were not checked before and take no requests.

        Raises:
            DecodeError: One contradicts the footer, or itself.
        """
        if self.opened is not None and not self.opened.is_streamed:
            self._check_pages(leaves)

    def _check_pages(self, leaves: Iterable[int]) -> None:
        opened = self.opened
        if opened is None or not opened.is_near or not opened.settings.verify:
            return
        footer, ordinal = self._file.footer, self._ordinal
        decoded = {footer.leaves[name][0] for name in self.decoded}
        refuse_damaged_pages(
            opened.source.read_at,
            footer.metadata,
            [leaf for leaf in leaves if leaf not in decoded],
            file=footer.file,
            ordinal=ordinal,
            unchecked=opened.is_streamed,
        )

    def found_right(self) -> None:
        """Says that all that was asked for was read; if it was verified in a version that tells, that is noted."""
        version, file = self._version, self._file
        if not self._is_settled or version is None or version_of(file.path) != version:
            return
        if tells_of_writes(file.path, version):
            groups = file.footer.metadata.num_row_groups
            self._verified.note(file.path, version, self._ordinal, groups, self._asked)
