"""Coalesced range requests: fetch byte ranges of files into memory, concurrently.

Two ranges with a short gap between them are fetched in one request, with the gap. A large request is split among
several connections.

Arrow reads each column chunk with one call of a Python file object, which returns a zero-copy view of the fetched
bytes. Assembling the whole file in memory would need a copy, which takes about as long as decoding numbers.

All bytes of a file come from one version of the file.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

import pyarrow as pa

from petastore.errors import DatasetChangedError, DecodeError, StorageError
from petastore.monitoring.activity import Request, during, overdue
from petastore.storage.files.location import Location
from petastore.storage.ranges.request_counts import RequestCounter, RequestCounts
from petastore.storage.requests.failures import given_up, is_of_storage, raise_alone
from petastore.storage.requests.retries import GaveUpError
from petastore.storage.stores.interface import Answer, FileVersion, NoBucketError, NotTheVersionError, Store, range_file
from petastore.threads import is_daemon_of_ours

if TYPE_CHECKING:
    from petastore.storage.ranges.request_pool import RequestBatch

__all__ = [
    "END_BYTES",
    "MAX_CONCURRENCY",
    "MAX_GAP_BYTES",
    "MAX_REQUEST_BYTES",
    "MIN_GAP_BYTES",
    "MIN_PART_BYTES",
    "ByteRange",
    "FetchedRanges",
    "RangeFetcher",
    "RowGroupChunks",
    "coalesce",
    "in_memory_file",
    "split_large",
]


END_BYTES = 8
"""Bytes after the footer of a Parquet file: the footer's length and the magic."""

MAX_GAP_BYTES = 1024 * 1024
"""Maximum gap between two byte ranges that one request fetches, with the gap.

Fetching the bytes of a longer gap would take longer than another request, and cost money.
"""

MIN_GAP_BYTES = 16 * 1024
"""Gaps of up to this many bytes are always fetched with the ranges around them.

They add at most a few network packets.
"""

MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""Maximum size of a request: a retry repeats at most this many bytes."""

MIN_PART_BYTES = 4 * 1024 * 1024
"""Minimum bytes of a part of a split request; smaller parts are mostly latency."""


class ByteRange(NamedTuple):
    """Range of consecutive bytes of a file."""

    offset: int
    """Position of the first byte, from 0."""

    length: int
    """Number of bytes, at least 1."""

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.offset + self.length


class RowGroupChunks(NamedTuple):
    """Column chunks of one row group that are read together."""

    ordinal: int
    """Number of the row group in its file, from 0."""

    columns: Mapping[ByteRange, str]
    """Dict from the byte range of each chunk to the name of its top-level column."""


def coalesce(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Merge byte ranges into fewer requests, sorted and without overlap.

    Gaps of up to 16 KiB between ranges are always fetched. Longer gaps of up to 1 MiB are fetched, too, shortest first,
    as long as all fetched gaps together are not longer than all ranges together. Gaps of equal length are all fetched
    or none.

    Args:
        ranges: Byte ranges in any order; they may overlap.

    Example:
        >>> coalesce([ByteRange(500_000, 10), ByteRange(0, 10), ByteRange(20, 10)])
        [ByteRange(offset=0, length=30), ByteRange(offset=500000, length=10)]
        >>> coalesce([ByteRange(0, 20_000), ByteRange(50_000, 20_000), ByteRange(110_000, 10)])
        [ByteRange(offset=0, length=70000), ByteRange(offset=110000, length=10)]
    """
    apart = _merge(ranges, 0)
    if len(apart) < 2:
        return apart
    gaps = sorted(after.offset - before.end for before, after in itertools.pairwise(apart))
    total = sum(one.length for one in apart)
    # bytes_up_to[gap]: sum of all gaps up to this length; for equal gaps, `dict` keeps the last and largest sum.
    bytes_up_to = dict(zip(gaps, itertools.accumulate(gaps), strict=True))
    short = [gap for gap, together in bytes_up_to.items() if gap <= MAX_GAP_BYTES and together <= total]
    return _merge(apart, max([MIN_GAP_BYTES, *short]))


def _merge(ranges: Iterable[ByteRange], max_gap: int) -> list[ByteRange]:
    ordered = sorted(ranges)
    if len(ordered) < 2:
        return ordered
    from fsspec.utils import merge_offset_ranges  # imported here, because local files do not need fsspec

    _, starts, ends = merge_offset_ranges(
        [""] * len(ordered), [one.offset for one in ordered], [one.end for one in ordered], max_gap, sort=False
    )
    return [ByteRange(start, end - start) for start, end in zip(starts, ends, strict=True)]


def split_large(requests: Sequence[ByteRange], concurrency: int) -> list[ByteRange]:
    """Split long requests into parts of nearly equal size, in the same order.

    Parts have 4 to 16 MiB; requests of less than 8 MiB are not split. If possible, there are about as many parts in
    total as concurrent requests.

    Args:
        requests: Byte ranges without overlap.
        concurrency: Number of concurrent requests, at least 1.

    Example:
        >>> split_large([ByteRange(0, 9_000_000)], concurrency=8)
        [ByteRange(offset=0, length=4500000), ByteRange(offset=4500000, length=4500000)]
        >>> split_large([ByteRange(0, 9_000_000)], concurrency=1)
        [ByteRange(offset=0, length=9000000)]
    """
    if all(one.length < 2 * MIN_PART_BYTES for one in requests):
        return list(requests)
    share = max(MIN_PART_BYTES, -(-sum(one.length for one in requests) // concurrency))

    def parts(one: ByteRange) -> Iterator[ByteRange]:
        count = max(one.length // share, -(-one.length // MAX_REQUEST_BYTES))
        cuts = [one.offset + one.length * number // count for number in range(count + 1)]
        return (ByteRange(start, end - start) for start, end in itertools.pairwise(cuts))

    return [part for one in requests for part in parts(one)]


class FetchedRanges:
    """Fetched byte ranges of one file in memory. Immutable, thread-safe.

    Args:
        size: Size of the file.
        version: Version of the file.
        pieces: Start and bytes of each range, sorted. A read may extend over adjacent ranges. If ranges overlap, a read
            uses the last range that starts at or before its first byte.
    """

    def __init__(self, size: int, version: FileVersion, pieces: Iterable[tuple[int, pa.Buffer]]) -> None:
        self.size = size
        self.version = version
        held = list(pieces)
        self._starts = [start for start, _ in held]
        self._buffers = [buffer for _, buffer in held]

    @property
    def nbytes(self) -> int:
        """Total bytes of the fetched ranges in memory."""
        return sum(buffer.size for buffer in self._buffers)

    def read(self, offset: int, length: int) -> pa.Buffer:
        """Return a byte range of the file as a zero-copy view.

        If several requests have fetched parts of the range, the parts are copied into one buffer.

        Raises:
            LookupError: The bytes were not fetched.
        """
        data = self.read_up_to(offset, length)
        if data.size != length:
            raise LookupError(f"internal error: of the {length:,} bytes at {offset:,} only {data.size:,} were fetched")
        return data

    def read_up_to(self, offset: int, length: int) -> pa.Buffer:
        """Return the bytes of a range up to the first byte that was not fetched.

        Raises:
            LookupError: The first byte was not fetched.
        """
        at = bisect.bisect_right(self._starts, offset) - 1
        skipped = offset - self._starts[at] if at >= 0 else -1
        if at < 0 or skipped >= self._buffers[at].size:
            raise LookupError(f"internal error: the bytes at {offset:,} were not fetched")
        if skipped + length <= self._buffers[at].size:
            return self._buffers[at].slice(skipped, length)
        pieces = [memoryview(self._buffers[at])[skipped:]]
        left = length - len(pieces[0])
        while left and at + 1 < len(self._starts) and self._starts[at + 1] == self._starts[at] + self._buffers[at].size:
            at += 1
            pieces.append(memoryview(self._buffers[at])[:left])
            left -= len(pieces[-1])
        return pa.py_buffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def in_memory_file(fetched: FetchedRanges) -> pa.PythonFile:
    """Return a file object of the fetched bytes at their offsets; for one thread.

    A read stops at the end of the fetched bytes. It raises `OSError` if its first byte was not fetched. Do not use
    Arrow's `pre_buffer` and `buffer_size` with this file, because they request more than the column chunks and copy the
    bytes.
    """

    def read(offset: int, length: int) -> pa.Buffer:
        try:
            return fetched.read_up_to(offset, length)
        except LookupError as problem:
            raise OSError(str(problem)) from None

    return range_file(fetched.size, read)


MAX_CONCURRENCY = 16
"""Maximum concurrent requests of one dataset."""

MAX_BYTES = 4 * 1024**3
"""Default maximum bytes of one fetch."""

_FOREVER_S = 365 * 86400.0


class RangeFetcher:
    """Fetches byte ranges of the files of one dataset. Thread-safe.

    A forked child starts without running requests.

    Args:
        location: Location of the dataset.
        client: Store that makes the requests; None means the location's store.
        concurrency: Maximum concurrent requests.
        counter: Request counter shared with other fetchers; None creates one.
    """

    def __init__(
        self,
        location: Location,
        client: Store | None = None,
        *,
        concurrency: int = MAX_CONCURRENCY,
        counter: RequestCounter | None = None,
    ) -> None:
        self.location, self.client = location, client or location.store
        self._concurrency = concurrency
        self._counter = counter or RequestCounter()
        from petastore.storage.ranges.request_pool import RequestPool  # imported here: local files do not need the pool

        self._pool = RequestPool(concurrency)

    @property
    def counts(self) -> RequestCounts:
        """Number of requests made so far."""
        return self._counter.counts

    def note_damaged(self) -> None:
        """Count one damaged row group or footer that is fetched a second time."""
        self._counter.add(RequestCounts(damaged=1))

    def version_of(self, relative: str) -> FileVersion:
        """Request the current version of a file.

        Raises:
            FileMissingError: The file does not exist.
            StorageError: The request failed; the message has the reason.
            ReaderClosedError: The fetcher was closed.
        """
        path = self.location.join(relative)
        answers = self._gather(relative, [lambda: Answer(b"", self.client.version(path))])
        return cast("FileVersion", answers[0].version)

    def fetch(
        self, relative: str, version: FileVersion, asked: Iterable[ByteRange], *, most_bytes: int = MAX_BYTES
    ) -> FetchedRanges:
        """Fetch byte ranges of a file into memory, with concurrent requests.

        Args:
            relative: Path of the file, relative to the root.
            version: Required version of the file.
            asked: Ranges inside the file, in any order.
            most_bytes: Maximum total bytes; if the ranges have more, an error is raised before memory is allocated.

        Raises:
            DatasetChangedError: The file no longer has that version.
            DecodeError: The ranges exceed `most_bytes`.
            FileMissingError: The file no longer exists.
            StorageTimeoutError: The request exceeded its timeout.
            StorageError: The request failed; the message has the reason.
            ReaderClosedError: The fetcher was closed.
        """
        requests = split_large(coalesce(asked), self._concurrency)
        _check_bytes(requests, relative, version, most_bytes)
        path = self.location.join(relative)
        try:
            gets = [functools.partial(_get, self.client, path, version, one) for one in requests]
            answers = self._gather(relative, gets)
        except NotTheVersionError as problem:
            now = problem.now
        else:
            now = version
            if any(answer.version is None for answer in answers):
                # If responses do not contain the version, compare the version of the file after all requests.
                now = self.version_of(relative)
            if now.is_same(version):
                pieces = zip(requests, answers, strict=True)
                held = [(one.offset, pa.py_buffer(answer.data)) for one, answer in pieces]
                return FetchedRanges(version.size, version, held)
        raise _changed(relative, version, now or self.version_of(relative))

    def newest(self, relative: str, size: int, one: ByteRange) -> FetchedRanges:
        """Fetch a byte range of a file in its current version; the result has the version.

        Args:
            relative: Path of the file, relative to the root.
            size: Required size of the file.
            one: Range to fetch.

        Raises:
            DatasetChangedError: The file has another size.
            StorageError: As `fetch`.
        """
        path = self.location.join(relative)
        try:
            answers = self._gather(relative, [functools.partial(_get, self.client, path, None, one)])
        except NotTheVersionError as problem:
            now = problem.now or self.version_of(relative)
        else:
            answer = answers[0]
            now = answer.version or self.version_of(relative)
            if now.size == size and answer.version is None:
                return self.fetch(relative, now, [one])  # fetch again, and require this version
            if now.size == size:
                return FetchedRanges(size, now, [(one.offset, pa.py_buffer(answer.data))])
        raise _changed(relative, FileVersion(size), now)

    def tail(self, relative: str, length: int) -> FetchedRanges:
        """Fetch the last bytes of a file in its current version; usually one request.

        The result has the version.

        Args:
            relative: Path of the file, relative to the root.
            length: Number of bytes, at least 1; a shorter file is returned whole.

        Raises:
            FileMissingError: The file does not exist.
            StorageError: As `fetch`.
        """
        path = self.location.join(relative)
        try:
            answers = self._gather(relative, [functools.partial(_get_tail, self.client, path, length)])
        except NotTheVersionError as problem:
            now = problem.now or self.version_of(relative)
            if now.size:
                raise _changed(relative, FileVersion(0), now) from None
            return FetchedRanges(0, now, [])
        data, now = pa.py_buffer(answers[0].data), answers[0].version or FileVersion(0)
        return FetchedRanges(now.size, now, [(now.size - data.size, data)])

    def _gather(self, relative: str, requests: Sequence[Callable[[], Answer]]) -> list[Answer]:
        """Make requests for a file concurrently, and return their results in order.

        The first failure cancels the other requests, and is raised.
        """
        limit_s, now = self.location.timeout_s, time.monotonic()
        deadline = now + (_FOREVER_S if limit_s is None else limit_s)
        with Request(self.location.url, f"read {relative}", limit_s), during("storage"):
            batch = self._run(requests, deadline)
        if batch.problem is not None:
            self._raise(batch.problem, relative)
        answers = [answer for answer in batch.answers if answer is not None]
        if len(answers) < len(requests):
            late = Request(self.location.url, f"read {relative}", limit_s, now)
            raise overdue([late]) or StorageError(
                f"{late}: no answer arrived before the reader was closed or the time limit passed"
            )
        return answers

    def _run(self, requests: Sequence[Callable[[], Answer]], deadline: float) -> RequestBatch:
        """Make requests, wait until they have ended, and count them."""
        # A thread of petastore's pools may make a request itself, because its consumer watches the timeout. Any other
        # caller must be able to stop waiting, so its requests run in threads of the request pool.
        if len(requests) == 1 and self.client.ends_its_requests and is_daemon_of_ours():
            batch = self._pool.run_here(requests[0], deadline)
            if batch is not None:
                self._counter.add(batch.counts)
                return batch
        from petastore.storage.ranges.request_pool import RequestBatch

        batch = RequestBatch(requests, deadline)
        try:
            self._pool.run(batch)
        finally:
            self._counter.add(batch.counts)
        return batch

    def _raise(self, problem: BaseException, relative: str) -> NoReturn:
        gave_up = problem if isinstance(problem, GaveUpError) else GaveUpError(problem, 1, 0.0)
        reason = gave_up.problem
        if isinstance(reason, NotTheVersionError) or not is_of_storage(reason):
            raise_alone(reason)
        raise_alone(given_up(gave_up, self.location, "read", None if isinstance(reason, NoBucketError) else relative))

    def close(self) -> None:
        """Cancel all requests; waiting callers get ReaderClosedError. May be called again."""
        self._pool.close()


def _get(client: Store, path: str, version: FileVersion | None, one: ByteRange) -> Answer:
    """Request one range, and check the version and length of the response."""
    answer = client.get(path, one.offset, one.length, version)
    if version is not None and answer.version is not None and not answer.version.is_same(version):
        raise NotTheVersionError(answer.version)
    length = memoryview(answer.data).nbytes
    if length > one.length:
        raise OSError(
            f"{one.length:,} bytes were requested, but {length:,} were received: the server does not support range "
            "requests"
        )
    if length < one.length:
        now = answer.version or client.version(path)
        if now.size < one.end or (version is not None and not now.is_same(version)):
            raise NotTheVersionError(now)
        raise ConnectionError(f"{one.length:,} bytes were requested, but only {length:,} were received")
    return answer


def _get_tail(client: Store, path: str, length: int) -> Answer:
    """Request the end of a file, and check the length of the response."""
    answer = client.tail(path, length)
    got, size = memoryview(answer.data).nbytes, 0 if answer.version is None else answer.version.size
    if got != min(length, size):
        raise ConnectionError(f"the last {min(length, size):,} bytes were requested, but {got:,} were received")
    return answer


def _check_bytes(requests: Sequence[ByteRange], relative: str, version: FileVersion, most_bytes: int) -> None:
    wanted = sum(one.length for one in requests)
    if wanted > most_bytes:
        raise DecodeError(
            f"the columns of a row group must have at most {most_bytes:,} stored bytes, got {wanted:,}. Read fewer "
            "columns with schema_fields, or write smaller row groups",
            file=relative,
        )
    if requests and (requests[-1].end > version.size or requests[0].offset < 0):
        raise ValueError(
            f"byte ranges must lie within {relative}, which has {version.size:,} bytes, got {requests[-1]}"
        )


def _changed(relative: str, planned: FileVersion, now: FileVersion) -> DatasetChangedError:
    return DatasetChangedError(
        f"{relative} was rewritten since the dataset was listed: it had {planned}, and has {now}. Open the dataset "
        "again; if its manifest lists the old file, `petastore generate-metadata` lists the new one"
    )
