"""Ranges of the files of one dataset, fetched by few requests, several under way at a time, into memory.

All bytes of a file come from the version that was planned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from petastore.errors import DatasetChangedError, DecodeError
from petastore.storage.files.location import Location
from petastore.storage.ranges.asking.asking import Asking
from petastore.storage.ranges.asking.tally import Counts, Tally
from petastore.storage.ranges.coalesced import ByteRange, coalesced, divided
from petastore.storage.ranges.fetched_ranges import FetchedRanges
from petastore.storage.ranges.line import LearntLine
from petastore.storage.ranges.pacing.host_pace import HostPace
from petastore.storage.requests.client import Answer, Client, FileVersion, NotTheVersionError

__all__ = ["MOST_BYTES", "MOST_UNDER_WAY", "RangeFetcher"]

MOST_UNDER_WAY = 16
"""Requests of one dataset at a time."""

MOST_BYTES = 4 * 1024**3
"""Bytes that one fetch may bring, unless asked otherwise."""


class RangeFetcher:
    """Fetches ranges of the files of one place. Thread-safe; a forked child begins with nothing under way.

    Args:
        location: Where the dataset lies.
        client: Asks the storage.
        otherwise: Asks from then on when the first one cannot ask for some file.
        line: What requests cost, as it was learnt so far.
        most_under_way: Requests at a time.
        tally: Counts what is asked, with that of others; None counts it alone.
        pace: When requests begin, once the storage has refused some; None shares that with nobody.
    """

    def __init__(
        self,
        location: Location,
        client: Client,
        *,
        otherwise: Client | None = None,
        line: LearntLine | None = None,
        most_under_way: int = MOST_UNDER_WAY,
        tally: Tally | None = None,
        pace: HostPace | None = None,
    ) -> None:
        self._location, self._line, self._most_under_way = location, line or LearntLine(), most_under_way
        self._tally = tally or Tally()
        self._asking = Asking(
            location, client, otherwise=otherwise, most_under_way=most_under_way, tally=self._tally, pace=pace
        )

    @property
    def location(self) -> Location:
        """Where the files lie."""
        return self._location

    @property
    def system(self) -> str:
        """What asks the storage."""
        return self._asking.system

    @property
    def counts(self) -> Counts:
        """What was asked of the storage so far."""
        return self._tally.counts

    @property
    def line(self) -> LearntLine:
        """What requests cost, as it was learnt so far."""
        return self._line

    def note_damaged(self) -> None:
        """Counts a row group, or a footer, that came damaged, and is asked for once more."""
        self._tally.add(Counts(damaged=1))

    def version_of(self, relative: str) -> FileVersion:
        """The version that a file of the dataset has now; one request.

        Raises:
            FileMissingError: There is no such file.
            StorageError: The storage cannot be asked, and why.
            ReaderClosedError: This was closed.
        """
        path = self._location.join(relative)
        versions: list[FileVersion] = self._all(relative, [lambda client: client.version(path)], [0])
        return versions[0]

    def fetch(
        self, relative: str, version: FileVersion, asked: Iterable[ByteRange], *, most_bytes: int = MOST_BYTES
    ) -> FetchedRanges:
        """Ranges of a file of the dataset.

        Args:
            relative: The file.
            version: The version of which they have to be.
            asked: The ranges, in any order; all lie within the file.
            most_bytes: No memory is taken for more.

        Raises:
            DatasetChangedError: The file is not in that version any more.
            DecodeError: There are more bytes than `most_bytes`.
            FileMissingError: There is no such file any more.
            StorageTimeoutError: The storage did not answer in time.
            StorageError: It cannot be asked, and why.
            ReaderClosedError: This was closed.
        """
        line = self._line.line
        requests = divided(coalesced(asked, line), line, self._most_under_way)
        _check_bytes(requests, relative, version, most_bytes)
        path = self._location.join(relative)
        try:
            answers: list[Answer] = self._all(
                relative,
                [functools.partial(self._got, path, version, one) for one in requests],
                [one.length for one in requests],
            )
        except NotTheVersionError as problem:
            now = problem.now
        else:
            now = version
            if any(answer.version is None for answer in answers):
                # They are of one version if the file has it still.
                now = self.version_of(relative)
            if now.is_same(version):
                pieces = zip(requests, answers, strict=True)
                held = [(one.offset, pa.py_buffer(answer.data)) for one, answer in pieces]
                return FetchedRanges(version.size, version, held)
        raise _changed(relative, version, now or self.version_of(relative))

    def newest(self, relative: str, size: int, one: ByteRange) -> FetchedRanges:
        """A range of a file in whatever version it has now, which the result tells.

        Args:
            relative: The file.
            size: Bytes that the file has to have.
            one: The range.

        Raises:
            DatasetChangedError: The file has another size.
            StorageError: As `fetch`.
        """
        path = self._location.join(relative)
        try:
            answers: list[Answer] = self._all(relative, [functools.partial(self._got, path, None, one)], [one.length])
        except NotTheVersionError as problem:
            now = problem.now or self.version_of(relative)
        else:
            answer = answers[0]
            now = answer.version or self.version_of(relative)
            if now.size == size and answer.version is None:
                return self.fetch(relative, now, [one])  # now that it is known which version to ask for
            if now.size == size:
                return FetchedRanges(size, now, [(one.offset, pa.py_buffer(answer.data))])
        raise _changed(relative, FileVersion(size), now)

    def tail(self, relative: str, length: int) -> FetchedRanges:
        """The last bytes of a file in whatever version it has now, which the result tells; one request as a rule.

        Args:
            relative: The file.
            length: How many, at least 1; all of a file that has fewer.

        Raises:
            FileMissingError: There is no such file.
            StorageError: As `fetch`.
        """
        path = self._location.join(relative)
        try:
            answers: list[Answer] = self._all(relative, [functools.partial(self._ending, path, length)], [length])
        except NotTheVersionError as problem:
            now = problem.now or self.version_of(relative)
            if now.size:
                raise _changed(relative, FileVersion(0), now) from None
            return FetchedRanges(0, now, [])
        data, now = pa.py_buffer(answers[0].data), answers[0].version or FileVersion(0)
        return FetchedRanges(now.size, now, [(now.size - data.size, data)])

    def _ending(self, path: str, length: int, client: Client) -> Answer:
        """The end of a file, checked."""
        answer = client.tail(path, length)
        got, size = memoryview(answer.data).nbytes, 0 if answer.version is None else answer.version.size
        if got != min(length, size):
            raise ConnectionError(f"the last {min(length, size):,} bytes were asked for, and {got:,} came")
        self._took(answer, got)
        return answer

    def _took(self, answer: Answer, length: int) -> None:
        self._line.note(answer.wait_s, answer.body_s, length)
        self._tally.add(Counts(bytes=length))

    def _got(self, path: str, version: FileVersion | None, one: ByteRange, client: Client) -> Answer:
        """One range, checked."""
        answer = client.get(path, one.offset, one.length, version)
        if version is not None and answer.version is not None and not answer.version.is_same(version):
            raise NotTheVersionError(answer.version)
        length = memoryview(answer.data).nbytes
        if length > one.length:
            raise OSError(f"{one.length:,} bytes were asked for, and {length:,} came: it knows no range requests")
        if length < one.length:
            now = answer.version or client.version(path)
            if now.size < one.end or (version is not None and not now.is_same(version)):
                raise NotTheVersionError(now)
            raise ConnectionError(f"{one.length:,} bytes were asked for, and {length:,} came")
        self._took(answer, length)
        return answer

    def _all(self, relative: str, calls: Sequence[Callable[[Client], Any]], lengths: Sequence[int]) -> list[Any]:
        """What all calls return, of which each brings so many bytes; the first that fails ends the others."""
        line = self._line.line
        return self._asking.all_of(relative, calls, [line.seconds(length) for length in lengths])

    def close(self) -> None:
        """Ends what is under way, and lets whoever waits for it go; may be called again."""
        self._asking.close()


def _check_bytes(requests: Sequence[ByteRange], relative: str, version: FileVersion, most_bytes: int) -> None:
    wanted = sum(one.length for one in requests)
    if wanted > most_bytes:
        raise DecodeError(
            f"{wanted:,} bytes of it are needed at once, and at most {most_bytes:,} may be taken. Read fewer columns "
            "(schema_fields), or write smaller row groups",
            file=relative,
        )
    if requests and (requests[-1].end > version.size or requests[0].offset < 0):
        raise ValueError(f"{relative} has {version.size:,} bytes, and {requests[-1]} is not among them")


def _changed(relative: str, planned: FileVersion, now: FileVersion) -> DatasetChangedError:
    return DatasetChangedError(
        f"{relative} was rewritten since the dataset was listed: it had {planned}, and has {now}. Open the dataset "
        "again; if its manifest lists the old file, `petastore generate-metadata` lists the new one"
    )
