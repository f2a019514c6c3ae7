"""Files that are read in the one version whose footer is known, from the first range to the last."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pyarrow as pa

from petastore.errors import DatasetChangedError
from petastore.inventory import DataFile
from petastore.storage.ranges.client import FileVersion
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.column_chunks import END_BYTES
from petastore.storage.ranges.fetch import RangeFetcher
from petastore.storage.ranges.fetched_ranges import FetchedRanges
from petastore.storage.ranges.kept_files import KeptFiles, PlannedChunks, announced_keys, keys_of

if TYPE_CHECKING:
    from petastore.cache import DiskCache, Key

__all__ = ["PinnedFiles"]

_MAPPED_BYTES = 512 * 1024
"""Entries of so many bytes that are kept as they are stored are looked at where they lie."""

_MOST_TIMES = 3
"""What is kept decoded takes twice the bytes that are stored, and bits that say what is missing."""


class PinnedFiles:
    """Fetches ranges of files, each of the version that was found to have the footer by which it is read. Thread-safe.

    Which version that is, whoever read the footer has seen, or the manifest tells by an etag. Else it is found out,
    once a file: the footer is fetched with whatever version the file has. Demanded of that version is everything
    afterwards. What a cache has of that version is not fetched.

    Args:
        fetcher: Fetches; whoever made it closes it.
        kept: What is known of the files already, and where ranges are kept; None begins anew, and keeps none.
    """

    def __init__(self, fetcher: RangeFetcher, kept: KeptFiles | None = None) -> None:
        self.fetcher = fetcher
        self._kept = kept or KeptFiles()
        self._etags_hold = True
        self._finding: dict[DataFile, Future[FileVersion]] = {}  # which version it has, by who finds that out

    @property
    def etags_hold(self) -> bool:
        """Whether no etag that the manifest tells was found to be another yet."""
        return self._etags_hold

    @property
    def cache(self) -> DiskCache | None:
        """Where ranges are kept."""
        return self._kept.cache

    @property
    def footers(self) -> DiskCache | None:
        """Where footers are kept."""
        return self._kept.footers

    def fetch(
        self,
        file: DataFile,
        footer: bytes,
        asked: Iterable[ByteRange],
        planned: PlannedChunks | None = None,
        seen: FileVersion | None = None,
    ) -> FetchedRanges:
        """Ranges of a file.

        Args:
            file: The file.
            footer: The footer by which it is read, as it lies in the file.
            asked: The ranges.
            planned: Which chunks of a plan they are; None is none.
            seen: The version of the file in which that footer was found, where that is known.

        Raises:
            DatasetChangedError: The file has another footer, or was written to since.
            StorageError: It cannot be read.
        """
        ranges = list(asked)

        def of(version: FileVersion) -> FetchedRanges:
            return self._of(file, version, ranges, planned)

        told = self.as_told(file, of, seen)
        return of(self._found_once(file, footer)) if told is None else told

    def whole(self, file: DataFile, seen: FileVersion | None = None) -> FetchedRanges:
        """All bytes of a file, in the version that is read, or else in whatever version it has.

        Who has looked at the footer in them says so by `settled`.

        Raises:
            DatasetChangedError: The file was written to since, or has another size.
            StorageError: It cannot be read.
        """
        everything = [ByteRange(0, file.size)]

        def of(version: FileVersion) -> FetchedRanges:
            return self.fetcher.fetch(file.path, version, everything)

        told = self.as_told(file, of, seen)
        return self.fetcher.newest(file.path, file.size, *everything) if told is None else told

    def as_told(
        self, file: DataFile, of: Callable[[FileVersion], FetchedRanges], seen: FileVersion | None = None
    ) -> FetchedRanges | None:
        """What is fetched of a file in the version that is read; None where nobody knows which one that is.

        An etag that the manifest tells is believed for as long as what it tells is there. A copy of a dataset has other
        etags, and so has a file that was put there anew: then the footer says whether it is the file that is meant.

        Args:
            file: The file.
            of: Fetches something of a version, and raises DatasetChangedError where the file has another one.
            seen: As for `fetch`.
        """
        version = self._kept.versions.get(file)
        if version is None and seen is not None:
            version = self.settled(file, seen)
        if version is not None:
            return of(version)
        if not file.etag or not self._etags_hold:
            return None
        told = FileVersion(file.size, file.etag)
        try:
            found = of(told)
        except DatasetChangedError:
            if file in self._kept.versions:
                return of(self._kept.versions[file])  # another thread has found out meanwhile
            self._etags_hold = False
            return None
        version = self.settled(file, told)
        return found if version.is_same(told) else of(version)

    def settled(self, file: DataFile, version: FileVersion) -> FileVersion:
        """From now on a file is read in this version, or in the one that was found first."""
        return self._kept.versions.setdefault(file, version)

    def _of(
        self, file: DataFile, version: FileVersion, asked: Sequence[ByteRange], planned: PlannedChunks | None
    ) -> FetchedRanges:
        cache = self._kept.cache
        if cache is None:
            return self.fetcher.fetch(file.path, version, asked)
        ranges = sorted(set(asked))
        keys = self._keys(file, version, ranges, planned)
        if keys is None:
            return self.fetcher.fetch(file.path, version, ranges)
        found, was_asked = self._through(cache, keys, file, version, ranges, planned)
        if not was_asked and file not in self._kept.versions:
            self._confirm(file, version)
        are_decoded = {} if planned is None else planned.decoded
        pieces = [(one.offset, buffer) for one, buffer in found.items() if one not in are_decoded]
        return FetchedRanges(version.size, version, pieces, {one: found[one] for one in are_decoded if one in found})

    def _confirm(self, file: DataFile, version: FileVersion) -> None:
        """Asks whether a file still has the version that the manifest tells; the cache had all that was wanted."""
        now = self.fetcher.version_of(file.path)
        if not now.is_same(version):
            raise DatasetChangedError(f"{file.path} was rewritten: it had {version}, and has {now}")

    def _through(
        self,
        cache: DiskCache,
        keys: Sequence[str | Key],
        file: DataFile,
        version: FileVersion,
        ranges: Sequence[ByteRange],
        planned: PlannedChunks | None,
    ) -> tuple[dict[ByteRange, pa.Buffer], bool]:
        """What a cache has of ranges; and whether some were fetched, as it did not have them."""
        asked: list[int] = []

        def fetch(missing: Sequence[int]) -> list[pa.Buffer]:
            asked.extend(missing)
            wanted = [ranges[number] for number in missing]
            fetched = self.fetcher.fetch(file.path, version, wanted)
            decoded = dict[ByteRange, pa.Buffer]()
            if planned is not None and planned.decode is not None:
                meant = [one for one in wanted if one in planned.decoded]
                decoded.update(zip(meant, planned.decode(fetched, meant) if meant else (), strict=True))
            return [decoded[one] if one in decoded else fetched.read(*one) for one in wanted]

        places = _memory_for(file, ranges, planned)
        into = [places.get(one) for one in ranges]
        are_decoded = {} if planned is None else planned.decoded
        sizes = [None if one in are_decoded else one.length for one in ranges]
        with cache.entries(keys, fetch, sizes=sizes, into=into) as views:
            # The memory of a view stays as long as a buffer refers to it.
            found = {one: pa.py_buffer(view) for one, view in zip(ranges, views, strict=True)}
        return found, bool(asked)

    def discard(self, file: DataFile, asked: Iterable[ByteRange], planned: PlannedChunks | None = None) -> None:
        """Keeps ranges no longer that could not be decoded: they may have been damaged on their way here."""
        cache, version = self._kept.cache, self._kept.versions.get(file)
        if cache is not None and version is not None:
            cache.discard(self._keys(file, version, sorted(set(asked)), planned) or [])

    def _keys(
        self, file: DataFile, version: FileVersion, ranges: Sequence[ByteRange], planned: PlannedChunks | None
    ) -> Sequence[str | Key] | None:
        location = self.fetcher.location
        names = keys_of(location, file, version, ranges)
        return names if names is None or planned is None else announced_keys(location, file, names, ranges, planned)

    def _found_once(self, file: DataFile, footer: bytes) -> FileVersion:
        """The version in which a file has a footer; who comes while another thread finds that out waits for it."""
        own: Future[FileVersion] = Future()
        found = self._finding.setdefault(file, own)
        if found is not own:
            with contextlib.suppress(Exception):
                return found.result()
        try:
            version = self.settled(file, self._found(file, footer))
        except BaseException as problem:
            own.set_exception(problem)
            raise
        finally:
            self._finding.pop(file, None)
        own.set_result(version)
        return version

    def _found(self, file: DataFile, footer: bytes) -> FileVersion:
        place = ByteRange(file.size - END_BYTES - len(footer), len(footer))
        now = self.fetcher.newest(file.path, file.size, place)
        if now.read(*place).to_pybytes() != footer:
            raise DatasetChangedError(
                f"{file.path} was rewritten since the dataset was listed: it had {FileVersion(file.size, file.etag)} "
                f"and footer {file.digest or '(unknown)'}, and has {now.version} and another footer. Open the dataset "
                "again"
            )
        return now.version


def _memory_for(
    file: DataFile, ranges: Sequence[ByteRange], planned: PlannedChunks | None
) -> dict[ByteRange, memoryview]:
    """Into which memory of Arrow's ranges are read from a cache; the large ones that are kept as stored into none.

    Decoded columns that are read in one go lie side by side, those of one width without a gap: a stack of them takes no
    copy. Arrow's memory is used again. Small entries are copied, too: to map one takes the lock of the interpreter and
    that of all memory of the process, so that threads that map small ones wait for each other more than they work.
    """
    decoded = {} if planned is None else planned.decoded
    places = {one: _allocated(one.length) for one in ranges if one not in decoded and one.length < _MAPPED_BYTES}
    for together in () if planned is None else planned.together:
        starts, end = dict[ByteRange, int](), 0
        for one in together:
            starts[one] = -(-end // decoded[one].width) * decoded[one].width
            end = starts[one] + decoded[one].size
        if end <= _MOST_TIMES * file.size:  # or the footer is wrong
            block = _allocated(end)
            places |= {one: block[start : start + decoded[one].size] for one, start in starts.items()}
    return places


def _allocated(size: int) -> memoryview:
    return memoryview(pa.allocate_buffer(size))
