"""Files that are read in the one version whose footer is known, from the first range to the last."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from petastore.errors import DatasetChangedError, DecodeError
from petastore.inventory import DataFile
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.column_chunks import END_BYTES
from petastore.storage.ranges.fetch import RangeFetcher
from petastore.storage.ranges.fetched_ranges import FetchedRanges
from petastore.storage.ranges.kept_chunks import KeptChunks, PlannedChunks, entry_of
from petastore.storage.ranges.kept_files import KeptFiles, announced_keys, keys_of
from petastore.storage.requests.client import FileVersion

if TYPE_CHECKING:
    from petastore.cache import DiskCache, Key

__all__ = ["Ahead", "PinnedFiles"]

Ahead: TypeAlias = Callable[[Sequence[ByteRange]], FetchedRanges | None]
"""Gives ranges that were fetched before they are read."""

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
        self._stale_etags: set[DataFile] = set()
        self._has_fresh_etag = False
        self._finding: dict[DataFile, Future[FileVersion]] = {}  # which version it has, by who finds that out

    def trusts_etag(self, file: DataFile) -> bool:
        """Return whether a file is first requested by the etag in the manifest.

        One stale etag says nothing of other files. But all etags of a copied dataset are stale, and each would cost a
        request: after a stale one they are trusted again when the version of another file was found to have its etag.
        """
        if not file.etag or file in self._stale_etags:
            return False
        return self._has_fresh_etag or not self._stale_etags

    def compare_etag(self, file: DataFile, version: FileVersion) -> None:
        """Trust the etags in the manifest again where the version that a file has is the one in the manifest."""
        if file.etag and version.etag and version.is_same(FileVersion(file.size, file.etag)):
            self._has_fresh_etag = True

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
        *,
        ahead: Ahead | None = None,
        by_cache: bool = True,
    ) -> FetchedRanges:
        """Ranges of a file.

        Args:
            file: The file.
            footer: The footer by which it is read, as it lies in the file.
            asked: The ranges.
            planned: Which chunks of a plan they are; None is none.
            seen: The version of the file in which that footer was found, where that is known.
            ahead: Gives ranges that a cache does not have and that were fetched already; None where they were not.
            by_cache: What a cache has is not fetched, and what is fetched it may keep.

        Raises:
            DatasetChangedError: The file has another footer, or was written to since.
            StorageError: It cannot be read.
        """
        ranges = list(asked)

        def of(version: FileVersion) -> FetchedRanges:
            cache = self._kept.cache if by_cache else None
            keys = None if cache is None else self._keys(file, version, _kept(ranges, planned), planned)
            if cache is None or keys is None:
                return self.fetcher.fetch(file.path, version, ranges)
            return self._of(cache, keys, file, version, ranges, planned, ahead)

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
        if not self.trusts_etag(file):
            return None
        told = FileVersion(file.size, file.etag)
        try:
            answer = of(told)
        except DatasetChangedError:
            if file in self._kept.versions:
                return of(self._kept.versions[file])  # another thread has found out meanwhile
            self._stale_etags.add(file)
            return None
        self._has_fresh_etag = True
        version = self.settled(file, told)
        return answer if version.is_same(told) else of(version)

    def settled(self, file: DataFile, version: FileVersion) -> FileVersion:
        """From now on a file is read in this version, or in the one that was found first."""
        return self._kept.versions.setdefault(file, version)

    def _of(
        self,
        cache: DiskCache,
        keys: Sequence[str | Key],
        file: DataFile,
        version: FileVersion,
        asked: Sequence[ByteRange],
        planned: PlannedChunks | None,
        ahead: Ahead | None,
    ) -> FetchedRanges:
        kept = _kept(asked, planned)
        entries, was_asked = self._through(cache, keys, file, version, kept, planned, ahead)
        if not was_asked and file not in self._kept.versions:
            self._confirm(file, version)
        stored = ((one.ranges[0], entry) for one, entry in entries if one.kind is None)
        pieces = [(place.offset, entry) for place, entry in sorted(stored, key=lambda one: one[0])]
        return FetchedRanges(version.size, version, pieces, _columns(file, entries, planned))

    def missing(self, file: DataFile, planned: PlannedChunks, seen: FileVersion | None = None) -> list[ByteRange]:
        """Those chunks of a plan that a cache does not have in the version that is read; nothing is asked for.

        Args:
            file: The file.
            planned: The chunks.
            seen: As for `fetch`.
        """
        cache, version = self._kept.cache, self._kept.versions.get(file) or seen
        if version is None and self.trusts_etag(file):
            version = FileVersion(file.size, file.etag)
        keys = None if cache is None or version is None else self._keys(file, version, planned.kept, planned)
        if cache is None or keys is None:
            return list(planned.columns)
        return [
            place for one, key in zip(planned.kept, keys, strict=True) if not cache.has([key]) for place in one.ranges
        ]

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
        kept: Sequence[KeptChunks],
        planned: PlannedChunks | None,
        ahead: Ahead | None,
    ) -> tuple[list[tuple[KeptChunks, pa.Buffer]], bool]:
        """What a cache has of chunks; and whether some were fetched, as it did not have them."""
        asked: list[ByteRange] = []

        def fetch(missing: Sequence[int]) -> list[pa.Buffer]:
            wanted = [kept[number] for number in missing]
            columns = self._elsewhere(cache, file, version, wanted, planned)
            asked.extend(sorted(place for one in wanted for place in one.ranges if place not in columns))
            there = None if ahead is None or columns else ahead(asked)
            is_there = there is not None and there.version.is_same(version)
            fetched = there if there is not None and is_there else self.fetcher.fetch(file.path, version, asked)
            if planned is not None and planned.decode is not None:
                meant = [place for one in wanted if one.kind for place in one.ranges if place not in columns]
                columns |= zip(meant, planned.decode(fetched, meant) if meant else (), strict=True)
            return [
                fetched.read(*one.ranges[0])
                if one.kind is None
                else entry_of([columns[place] for place in one.ranges], one.kind)
                for one in wanted
            ]

        sizes, into = [one.size for one in kept], _memory_for(file, kept)
        with cache.entries(keys, fetch, sizes=sizes, into=into) as views:
            # The memory of a view stays as long as a buffer refers to it.
            entries = [(one, pa.py_buffer(view)) for one, view in zip(kept, views, strict=True)]
        return entries, bool(asked)

    def _elsewhere(
        self,
        cache: DiskCache,
        file: DataFile,
        version: FileVersion,
        wanted: Sequence[KeptChunks],
        planned: PlannedChunks | None,
    ) -> dict[ByteRange, pa.Array]:
        """Columns of missing entries that the cache has in others, by themselves or with their neighbours."""
        others = list(dict.fromkeys(other for one in wanted for other in one.others))
        keys = self._keys(file, version, others, planned) if others else None
        there = () if keys is None else zip(others, cache.there(keys), strict=True)
        return _columns(file, [(one, pa.py_buffer(view)) for one, view in there if view is not None], planned)

    def discard(self, file: DataFile, asked: Iterable[ByteRange], planned: PlannedChunks | None = None) -> None:
        """Keeps ranges no longer that could not be decoded: they may have been damaged on their way here."""
        cache, version = self._kept.cache, self._kept.versions.get(file)
        if cache is not None and version is not None:
            kept = _kept(asked, planned)
            everywhere = [*kept, *(other for one in kept for other in one.others)]
            cache.discard(self._keys(file, version, everywhere, planned) or [])

    def _keys(
        self, file: DataFile, version: FileVersion, kept: Sequence[KeptChunks], planned: PlannedChunks | None
    ) -> Sequence[str | Key] | None:
        location = self.fetcher.location
        names = keys_of(location, file, version, kept)
        return (
            names if names is None or planned is None else announced_keys(location, file, names, kept, planned.ordinal)
        )

    def _found_once(self, file: DataFile, footer: bytes) -> FileVersion:
        """The version in which a file has a footer; who comes while another thread finds that out waits for it."""
        own: Future[FileVersion] = Future()
        finding = self._finding.setdefault(file, own)
        if finding is not own:
            with contextlib.suppress(Exception):
                return finding.result()
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


def _kept(asked: Iterable[ByteRange], planned: PlannedChunks | None) -> Sequence[KeptChunks]:
    """As what a cache keeps ranges; those that are of no plan each as it is stored."""
    return [KeptChunks((one,), size=one.length) for one in sorted(set(asked))] if planned is None else planned.kept


def _columns(
    file: DataFile, entries: Iterable[tuple[KeptChunks, pa.Buffer]], planned: PlannedChunks | None
) -> dict[ByteRange, pa.Array]:
    """The columns that are in entries which are kept decoded, by their ranges.

    Raises:
        DecodeError: An entry has another size.
    """
    columns = dict[ByteRange, pa.Array]()
    try:
        for one, entry in entries:
            if one.kind is not None:
                columns |= zip(one.ranges, one.arrays(entry), strict=True)
    except DecodeError as problem:
        raise problem.at(file=file.path, row_group=None if planned is None else planned.ordinal) from None
    return columns


def _memory_for(file: DataFile, kept: Sequence[KeptChunks]) -> list[memoryview | None]:
    """Into which memory of Arrow's entries are read from a cache; the large ones that are kept as stored into none.

    Decoded columns of one type lie side by side: a stack of them takes no copy. Arrow's memory is used again. Small
    entries are copied, too: to map one takes the lock of the interpreter and that of all memory of the process, so that
    threads that map small ones wait for each other more than they work.
    """
    sizes = [one.size or 0 for one in kept]
    if sum(sizes) > _MOST_TIMES * file.size:  # the footer is wrong
        return [None] * len(kept)
    places: list[memoryview | None] = []
    for kind, run in itertools.groupby(zip(kept, sizes, strict=True), key=lambda one: one[0].kind):
        if kind is None:
            places += [_allocated(size) if size < _MAPPED_BYTES else None for _, size in run]
            continue
        of_run = [size for _, size in run]
        block, ends = _allocated(sum(of_run)), list(itertools.accumulate(of_run))
        places += [block[end - size : end] for size, end in zip(of_run, ends, strict=True)]
    return places


def _allocated(size: int) -> memoryview:
    return memoryview(pa.allocate_buffer(size))
