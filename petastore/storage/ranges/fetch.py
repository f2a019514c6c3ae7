"""Ranges of the files of one dataset, fetched by few requests, several under way at a time, into memory.

All bytes of a file come from the version that was planned. Requests that fail in a way that may pass are made again, to
the deadline; whoever waits goes at the deadline, even if a request hangs.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import operator
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from petastore.errors import DatasetChangedError, DecodeError, ReaderClosedError, StorageError
from petastore.forks import Lock, made_anew_in_children
from petastore.storage.files.location import Location
from petastore.storage.ranges.calls import Calls
from petastore.storage.ranges.client import (
    Answer,
    Client,
    FileVersion,
    NoBucketError,
    NotTheVersionError,
    UnsuitedError,
)
from petastore.storage.ranges.coalesced import ByteRange, coalesced, divided
from petastore.storage.ranges.fetched_ranges import FetchedRanges
from petastore.storage.ranges.line import LearntLine
from petastore.storage.ranges.pacing.allowance import Allowance
from petastore.storage.ranges.pacing.hedges import Hedges
from petastore.storage.ranges.pacing.host_pace import HostPace
from petastore.storage.requests.failure_kinds import kind_of
from petastore.storage.requests.failures import given_up, is_of_storage, raise_alone
from petastore.storage.requests.retries import MOST_ATTEMPTS, GaveUpError, tried
from petastore.storage.requests.under_way import Request, overdue
from petastore.threads import Threads, working

__all__ = ["MOST_BYTES", "MOST_UNDER_WAY", "Counts", "RangeFetcher", "Tally"]

MOST_UNDER_WAY = 16
"""Requests of one dataset at a time."""

MOST_BYTES = 4 * 1024**3
"""Bytes that one fetch may bring, unless asked otherwise."""

_FOREVER_S = 365 * 86400.0
_T = TypeVar("_T")


class Counts(NamedTuple):
    """What was asked of a storage so far."""

    requests: int = 0
    """Requests, those that failed too."""

    bytes: int = 0
    """Bytes of the answers that were taken."""

    again: int = 0
    """Requests that had to be made again."""

    hedged: int = 0
    """Requests that were made a second time, while the first was late."""

    damaged: int = 0
    """Row groups and footers that came damaged, and were asked for once more."""


class Tally:
    """Counts what several fetchers ask of a storage, one after the other or at once. Thread-safe; a copy begins at 0.

    Example:
        >>> tally = Tally()
        >>> tally.add(Counts(requests=2, bytes=10))
        >>> tally.counts
        Counts(requests=2, bytes=10, again=0, hedged=0, damaged=0)
    """

    def __init__(self) -> None:
        self._counts = Counts()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tally, ()

    @property
    def counts(self) -> Counts:
        """What was asked so far."""
        return self._counts

    def add(self, more: Counts) -> None:
        """Counts more."""
        with self._lock:
            self._counts = Counts(*map(operator.add, self._counts, more))


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
        self._location, self._client, self._otherwise = location, client, otherwise
        self._pace = pace or HostPace(None)
        self._hedges = Hedges() if location.hedged else None
        self._line = line or LearntLine()
        self._most_under_way = most_under_way
        self._allowance = Allowance(most_under_way)
        self._threads = Threads("petastore-ranges")
        self._tally = tally or Tally()
        self._closed = False
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Has a lock that nobody holds, and nothing under way."""
        self._lock = threading.Lock()
        self._waiting: collections.deque[_Task] = collections.deque()
        self._working = 0
        self._asked: set[Calls] = set()

    @property
    def location(self) -> Location:
        """Where the files lie."""
        return self._location

    @property
    def system(self) -> str:
        """What asks the storage."""
        return self._client.system

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
            found = problem.found
        else:
            found = version
            if any(answer.version is None for answer in answers):
                # They are of one version if the file has it still.
                found = self.version_of(relative)
            if found.is_same(version):
                pieces = zip(requests, answers, strict=True)
                held = [(one.offset, pa.py_buffer(answer.data)) for one, answer in pieces]
                return FetchedRanges(version.size, version, held)
        raise _changed(relative, version, found or self.version_of(relative))

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
            found = problem.found or self.version_of(relative)
        else:
            answer = answers[0]
            found = answer.version or self.version_of(relative)
            if found.size == size and answer.version is None:
                return self.fetch(relative, found, [one])  # now that it is known which version to ask for
            if found.size == size:
                return FetchedRanges(size, found, [(one.offset, pa.py_buffer(answer.data))])
        raise _changed(relative, FileVersion(size), found)

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
            found = problem.found or self.version_of(relative)
            if found.size:
                raise _changed(relative, FileVersion(0), found) from None
            return FetchedRanges(0, found, [])
        data, found = pa.py_buffer(answers[0].data), answers[0].version or FileVersion(0)
        return FetchedRanges(found.size, found, [(found.size - data.size, data)])

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
            found = answer.version or client.version(path)
            if found.size < one.end or (version is not None and not found.is_same(version)):
                raise NotTheVersionError(found)
            raise ConnectionError(f"{one.length:,} bytes were asked for, and {length:,} came")
        self._took(answer, length)
        return answer

    def _all(self, relative: str, calls: Sequence[Callable[[Client], Any]], lengths: Sequence[int]) -> list[Any]:
        """What all calls return, of which each brings so many bytes; the first that fails ends the others."""
        limit_s = self._location.timeout_s
        request = Request(self._location.url, f"read {relative}", limit_s, time.monotonic())
        line = self._line.line
        asked = Calls(
            [line.seconds(length) for length in lengths],
            time.monotonic() + (_FOREVER_S if limit_s is None else limit_s),
        )
        with self._lock:
            self._refuse_if_closed()
            self._asked.add(asked)
        try:
            self._begin([_Task(asked, number, call) for number, call in enumerate(calls)])
            while not asked.wait(self._hedges):
                self._ask_again(asked, calls)
        finally:
            asked.end()
            self._leave(asked)
        if asked.problem is not None:
            self._raise(asked.problem, relative)
        if not asked.is_complete:
            self._refuse_if_closed()
            raise overdue([request]) or StorageError(f"{request}: it was given up")
        return asked.answers

    def _ask_again(self, asked: Calls, calls: Sequence[Callable[[Client], Any]]) -> None:
        """Makes a second request for each answer that is late, before all that others want."""
        late = [] if self._pace.is_limited or self._hedges is None else asked.late(self._hedges)
        if late:
            with self._lock:
                self._waiting.extendleft(_Task(asked, number, calls[number], is_second=True) for number in late)
            self._have_threads()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ReaderClosedError("what fetches ranges of files was closed; make a new reader")

    def _begin(self, tasks: Sequence[_Task] = ()) -> None:
        """Has tasks done, in order, by as many threads as may be under way."""
        with self._lock:
            self._waiting.extend(tasks)
        if not self._have_threads():
            raise ReaderClosedError("files are not read any more: the interpreter ends")

    def _have_threads(self) -> bool:
        """Has as many threads work as may; False where none will any more."""
        with self._lock:
            new = max(min(len(self._waiting), self._allowance.now - self._working), 0)
            self._working += new
        return all(self._threads.run(self._work) for _ in range(new))

    def _leave(self, asked: Calls) -> None:
        """Nobody waits for these calls any more; those that hang take nobody's place."""
        with self._lock:
            self._asked.discard(asked)
            asked.is_left = True
            self._working -= asked.running
        self._have_threads()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._working > self._allowance.now:
                    self._working -= 1
                    return
                task = self._waiting.popleft()
                asked = task.asked
                if asked.is_left:
                    continue
                asked.running += 1
            self._do(*task)
            del task  # or the thread would keep what came
            with self._lock:
                if asked.is_left:
                    return
                asked.running -= 1
            del asked
            self._have_threads()  # more may be allowed by now

    def _do(self, asked: Calls, number: int, call: Callable[[Client], Any], is_second: bool) -> None:
        """One call, again and again while that may help; what comes of it is noted."""
        attempts, refused, begun = itertools.count(), list[Exception](), time.monotonic()

        def attempt() -> Any:
            if not self._pace.wait(asked.over, asked.deadline):
                problem = refused[-1] if refused else TimeoutError("its turn does not come in time")
                raise GaveUpError(problem, next(attempts), time.monotonic() - begun)
            self._tally.add(Counts(requests=1, again=int(next(attempts) > 0), hedged=int(is_second)))
            began = time.monotonic()
            if not is_second:
                asked.began[number] = began
            try:
                with working():
                    answer = self._by_either(call)
            except Exception as problem:
                if kind_of(problem)[0] == "busy":
                    self._allowance.throttled()
                    self._pace.refused()
                    refused[:] = [problem]
                raise
            self._allowance.answered()
            self._pace.answered()
            if self._hedges is not None:
                self._hedges.answered(asked.expected_s[number], time.monotonic() - began)
            return answer

        most = 1 if is_second else MOST_ATTEMPTS
        try:
            answer = tried(attempt, over=asked.over, deadline=asked.deadline, most=most)
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever waits
            asked.fail(number, problem)
        else:
            asked.note(number, answer)

    def _by_either(self, call: Callable[[Client], _T]) -> _T:
        client = self._client
        try:
            return call(client)
        except UnsuitedError:
            if self._otherwise is None:
                raise
            with self._lock:
                if self._client is client:
                    self._client, self._otherwise = self._otherwise, None
        return call(self._client)

    def _raise(self, problem: BaseException, relative: str) -> None:
        gave_up = problem if isinstance(problem, GaveUpError) else GaveUpError(problem, 1, 0.0)
        said = gave_up.problem
        if isinstance(said, NotTheVersionError) or not is_of_storage(said):
            raise_alone(said)
        place = _Place(self._location, self._client.system)
        raise_alone(given_up(gave_up, place, "read", None if isinstance(said, NoBucketError) else relative))

    def close(self) -> None:
        """Ends what is under way, and lets whoever waits for it go; may be called again."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            asked = list(self._asked)
        for one in asked:
            one.end()
        self._threads.end()


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """A dataset as its client sees it."""

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


class _Task(NamedTuple):
    """One of them."""

    asked: Calls
    number: int
    call: Callable[[Client], Any]
    is_second: bool = False


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


def _changed(relative: str, planned: FileVersion, found: FileVersion) -> DatasetChangedError:
    return DatasetChangedError(
        f"{relative} was rewritten since the dataset was listed: it had {planned}, and has {found}. Open the dataset "
        "again; if its manifest lists the old file, `petastore generate-metadata` lists the new one"
    )
