"""Coalesced range requests: byte ranges of the files of one dataset, fetched concurrently into memory.

All bytes of a file come from one version of it.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, cast

import pyarrow as pa

from petastore.errors import DatasetChangedError, DecodeError, StorageError
from petastore.storage.files.location import Location
from petastore.storage.ranges.coalesced import ByteRange, coalesce, split_large
from petastore.storage.ranges.fetched_ranges import FetchedRanges
from petastore.storage.ranges.request_counts import RequestCounter, RequestCounts
from petastore.storage.ranges.request_pool import RequestBatch, RequestPool
from petastore.storage.requests.client import (
    Answer,
    Client,
    FileVersion,
    NoBucketError,
    NotTheVersionError,
    UnsuitedError,
)
from petastore.storage.requests.failures import given_up, is_of_storage, raise_alone
from petastore.storage.requests.retries import GaveUpError
from petastore.storage.requests.under_way import Request, overdue

__all__ = ["MAX_BYTES", "MAX_CONCURRENCY", "RangeFetcher"]

MAX_CONCURRENCY = 16
"""Requests of one dataset that run at a time."""

MAX_BYTES = 4 * 1024**3
"""Bytes that one fetch may bring, unless asked otherwise."""

_FOREVER_S = 365 * 86400.0


class RangeFetcher:
    """Fetches byte ranges of the files of one location. Thread-safe; in a forked child no request is running.

    Args:
        location: The dataset.
        client: Makes the requests.
        fallback: Makes the requests for each file that `client` cannot read.
        concurrency: Requests that run at a time.
        counter: Counts requests, with those of other fetchers; None counts these alone.
    """

    def __init__(
        self,
        location: Location,
        client: Client,
        *,
        fallback: Client | None = None,
        concurrency: int = MAX_CONCURRENCY,
        counter: RequestCounter | None = None,
    ) -> None:
        self._location, self._client, self._fallback = location, client, fallback
        self._read_by_fallback: set[str] = set()
        self._concurrency = concurrency
        self._counter = counter or RequestCounter()
        self._pool = RequestPool(concurrency)

    @property
    def location(self) -> Location:
        """Where the files lie."""
        return self._location

    def client_of(self, relative: str) -> Client:
        """Return the client that makes the requests for a file."""
        return self._fallback if self._fallback and relative in self._read_by_fallback else self._client

    @property
    def counts(self) -> RequestCounts:
        """The requests made so far."""
        return self._counter.counts

    def note_damaged(self) -> None:
        """Count a row group, or a footer, that arrived damaged and is read a second time."""
        self._counter.add(RequestCounts(damaged=1))

    def version_of(self, relative: str) -> FileVersion:
        """The version that a file of the dataset has now; one request.

        Raises:
            FileMissingError: There is no such file.
            StorageError: The storage cannot be asked, and why.
            ReaderClosedError: This was closed.
        """
        path = self._location.join(relative)
        answers = self._gather(relative, [lambda client: Answer(b"", client.version(path))])
        return cast("FileVersion", answers[0].version)

    def fetch(
        self, relative: str, version: FileVersion, asked: Iterable[ByteRange], *, most_bytes: int = MAX_BYTES
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
        requests = split_large(coalesce(asked), self._concurrency)
        _check_bytes(requests, relative, version, most_bytes)
        path = self._location.join(relative)
        try:
            answers = self._gather(relative, [functools.partial(_get, path, version, one) for one in requests])
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
            answers = self._gather(relative, [functools.partial(_get, path, None, one)])
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
            answers = self._gather(relative, [functools.partial(_get_tail, path, length)])
        except NotTheVersionError as problem:
            now = problem.now or self.version_of(relative)
            if now.size:
                raise _changed(relative, FileVersion(0), now) from None
            return FetchedRanges(0, now, [])
        data, now = pa.py_buffer(answers[0].data), answers[0].version or FileVersion(0)
        return FetchedRanges(now.size, now, [(now.size - data.size, data)])

    def _gather(self, relative: str, requests: Sequence[Callable[[Client], Answer]]) -> list[Answer]:
        """Return the answers to all requests for a file, in order; the first that fails ends the others."""
        limit_s, now = self._location.timeout_s, time.monotonic()
        calls = [functools.partial(self._ask, relative, request) for request in requests]
        batch = RequestBatch(calls, now + (_FOREVER_S if limit_s is None else limit_s))
        try:
            self._pool.run(batch)
        finally:
            self._counter.add(batch.counts)
        if batch.problem is not None:
            self._raise(batch.problem, relative)
        answers = [answer for answer in batch.answers if answer is not None]
        if len(answers) < len(requests):
            late = Request(self._location.url, f"read {relative}", limit_s, now)
            raise overdue([late]) or StorageError(f"{late}: it was given up")
        return answers

    def _ask(self, relative: str, request: Callable[[Client], Answer]) -> Answer:
        """Make a request by the client of a file."""
        client = self.client_of(relative)
        try:
            return request(client)
        except UnsuitedError:
            # Other requests for the file may have moved it to the fallback since this one began.
            if self._fallback is None or client is self._fallback:
                raise
            self._read_by_fallback.add(relative)
        return request(self._fallback)

    def _raise(self, problem: BaseException, relative: str) -> NoReturn:
        gave_up = problem if isinstance(problem, GaveUpError) else GaveUpError(problem, 1, 0.0)
        reason = gave_up.problem
        if isinstance(reason, NotTheVersionError) or not is_of_storage(reason):
            raise_alone(reason)
        place = _Requested(self._location, self.client_of(relative).system)
        raise_alone(given_up(gave_up, place, "read", None if isinstance(reason, NoBucketError) else relative))

    def close(self) -> None:
        """End all requests; their callers raise ReaderClosedError. May be called again."""
        self._pool.close()


@dataclasses.dataclass(frozen=True, slots=True)
class _Requested:
    """A location, and the client that was asked there, for messages."""

    location: Location
    system: str

    @property
    def url(self) -> str:
        return self.location.url

    @property
    def secrets(self) -> frozenset[str]:
        return self.location.secrets

    @property
    def timeout_s(self) -> float | None:
        return self.location.timeout_s


def _get(path: str, version: FileVersion | None, one: ByteRange, client: Client) -> Answer:
    """Request one range; check its version and length."""
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
    return answer


def _get_tail(path: str, length: int, client: Client) -> Answer:
    """Request the end of a file; check its length."""
    answer = client.tail(path, length)
    got, size = memoryview(answer.data).nbytes, 0 if answer.version is None else answer.version.size
    if got != min(length, size):
        raise ConnectionError(f"the last {min(length, size):,} bytes were asked for, and {got:,} came")
    return answer


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
