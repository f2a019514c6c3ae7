"""Asking a storage: several calls at a time, each again while that may help, and a second time where it is late.

Calls that fail in a way that may pass are made again, to the deadline; whoever waits goes at the deadline, even if a
call hangs.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from petastore.errors import ReaderClosedError, StorageError
from petastore.forks import made_anew_in_children
from petastore.storage.files.location import Location
from petastore.storage.ranges.asking.calls import Calls
from petastore.storage.ranges.asking.tally import Counts, Tally
from petastore.storage.ranges.pacing.allowance import Allowance
from petastore.storage.ranges.pacing.hedges import Hedges
from petastore.storage.ranges.pacing.host_pace import HostPace
from petastore.storage.requests.client import Client, NoBucketError, NotTheVersionError, UnsuitedError
from petastore.storage.requests.failure_kinds import kind_of
from petastore.storage.requests.failures import given_up, is_of_storage, raise_alone
from petastore.storage.requests.retries import MOST_ATTEMPTS, GaveUpError, tried
from petastore.storage.requests.under_way import Request, overdue
from petastore.threads import Threads, working

__all__ = ["Asking"]

_FOREVER_S = 365 * 86400.0
_T = TypeVar("_T")


class Asking:
    """Makes calls of the storage of one place. Thread-safe; a forked child begins with nothing under way.

    Args:
        location: Where the dataset lies.
        client: Asks the storage.
        otherwise: Asks from then on when the first one cannot ask for some file.
        most_under_way: Calls at a time.
        tally: Counts what is asked.
        pace: When calls begin, once the storage has refused some; None shares that with nobody.
    """

    def __init__(
        self,
        location: Location,
        client: Client,
        *,
        otherwise: Client | None,
        most_under_way: int,
        tally: Tally,
        pace: HostPace | None,
    ) -> None:
        self._location, self._client, self._otherwise = location, client, otherwise
        self._pace = pace or HostPace(None)
        self._hedges = Hedges() if location.hedged else None
        self._allowance = Allowance(most_under_way)
        self._threads = Threads("petastore-ranges")
        self._tally = tally
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
    def system(self) -> str:
        """What asks the storage."""
        return self._client.system

    def all_of(self, relative: str, calls: Sequence[Callable[[Client], Any]], expected_s: Sequence[float]) -> list[Any]:
        """What all calls return; the first that fails ends the others.

        Args:
            relative: The file that is asked for.
            calls: What is asked of a client.
            expected_s: Of each: how many seconds it is thought to take.

        Raises:
            StorageTimeoutError: The storage did not answer in time.
            StorageError: It cannot be asked, and why.
            ReaderClosedError: This was closed.
            NotTheVersionError: As the calls raise it, and what else is not of the storage.
        """
        limit_s = self._location.timeout_s
        request = Request(self._location.url, f"read {relative}", limit_s, time.monotonic())
        asked = Calls(expected_s, time.monotonic() + (_FOREVER_S if limit_s is None else limit_s))
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
            self._do(task)
            del task  # or the thread would keep what came
            with self._lock:
                if asked.is_left:
                    return
                asked.running -= 1
            del asked
            self._have_threads()  # more may be allowed by now

    def _do(self, task: _Task) -> None:
        """One call, again and again while that may help; what comes of it is noted."""
        asked, tries = task.asked, _Tries()
        most = 1 if task.is_second else MOST_ATTEMPTS
        try:
            answer = tried(lambda: self._try(task, tries), over=asked.over, deadline=asked.deadline, most=most)
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever waits
            asked.fail(task.number, problem)
        else:
            asked.note(task.number, answer)

    def _try(self, task: _Task, tries: _Tries) -> Any:
        """One call, once, when it may be made."""
        asked, number = task.asked, task.number
        if not self._pace.wait(asked.over, asked.deadline):
            problem = tries.refused or TimeoutError("its turn does not come in time")
            raise GaveUpError(problem, tries.count, time.monotonic() - tries.begun)
        self._tally.add(Counts(requests=1, again=int(tries.count > 0), hedged=int(task.is_second)))
        tries.count += 1
        began = time.monotonic()
        if not task.is_second:
            asked.began[number] = began
        try:
            with working():
                answer = self._by_either(task.call)
        except Exception as problem:
            if kind_of(problem)[0] == "busy":
                self._allowance.throttled()
                self._pace.refused()
                tries.refused = problem
            raise
        self._allowance.answered()
        self._pace.answered()
        if self._hedges is not None:
            self._hedges.answered(asked.expected_s[number], time.monotonic() - began)
        return answer

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
class _Task:
    """One of some calls."""

    asked: Calls
    number: int
    call: Callable[[Client], Any]
    is_second: bool = False


@dataclasses.dataclass(slots=True)
class _Tries:
    """How often a call was made."""

    count: int = 0
    begun: float = dataclasses.field(default_factory=time.monotonic)
    refused: Exception | None = None
    """Why the storage did not take it the last time that it was too busy."""


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
