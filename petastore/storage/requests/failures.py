"""What storage raises → petastore's errors: the one place where failures of file systems are classed.

Each request to storage goes through `answered` (a call that changes nothing there, made again where that may help),
`answered_once` (one that does), or `asking` (a `with` block). Whatever the file system raises there becomes one of the
family, with the address, what was asked, what the file system said, and what to do. Nothing that it raised is chained:
foreign messages hold keys and signed URLs, so what may be shown of them is in the message.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol, TypeVar

from petastore.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    FileMissingError,
    PetastoreError,
    StorageAccessError,
    StorageConnectionError,
    StorageError,
    StorageTimeoutError,
)
from petastore.storage.requests.failure_kinds import Kind, advice, attribute, causes, class_names, kind_of, message_of
from petastore.storage.requests.in_time import in_time
from petastore.storage.requests.retries import GaveUpError, tried
from petastore.storage.requests.shown import shown_text
from petastore.storage.requests.under_way import waiting_for

__all__ = [
    "Place",
    "answered",
    "answered_once",
    "asking",
    "failure",
    "foreign_text",
    "given_up",
    "is_of_storage",
    "raise_alone",
]

_T = TypeVar("_T")
_MOST_CHARACTERS = 600
_MOST_SAID = 3
_ERRORS: dict[Kind, type[StorageError]] = {
    "timeout": StorageTimeoutError,
    "connection": StorageConnectionError,
    "access": StorageAccessError,
    "exists": DatasetExistsError,
}


class Place(Protocol):
    """Where storage is asked: a `petastore.storage.files.location.Location`."""

    @property
    def url(self) -> str:
        """For messages, fit to be shown."""

    @property
    def system(self) -> str:
        """Name of the file system, for messages."""

    @property
    def secrets(self) -> frozenset[str]:
        """What the messages of the file system may hold and must not be seen."""

    @property
    def timeout_s(self) -> float | None:
        """Seconds that a request may take; None is without end."""


def answered(location: Place, call: Callable[[], _T], doing: str = "be reached", path: str | None = None) -> _T:
    """What storage answers to a request that changes nothing there.

    What fails in a way that may pass is asked for again, until the deadline, where `location.is_asked_again`.

    Args:
        location: Where the dataset lies.
        call: Makes the request and returns its answer; what it raises is taken to be the storage's.
        doing: What is done, after "cannot": `"list the directory"`.
        path: Of the file that is meant, relative to the root; None where it is the dataset.

    Raises:
        DatasetNotFoundError: There is no such place; where no `path` is given.
        FileMissingError: There is no such file; where a `path` is given.
        DatasetExistsError: Something is there already.
        StorageTimeoutError: No answer came in time.
        StorageConnectionError: There is no connection, or it broke.
        StorageAccessError: Credentials are missing or not enough.
        StorageError: Anything else, faults in the file system's own code too.

    Example:
        >>> from petastore.storage.files.location import open_location
        >>> location = open_location("memory://bucket/frames")
        >>> answered(location, lambda: location.filesystem.get_file_info("/bucket").is_file, "look at the bucket")
        False
        >>> def call():
        ...     raise PermissionError(13, "Permission denied")
        >>> answered(location, call, "list the directory")
        Traceback (most recent call last):
        petastore.errors.StorageAccessError: memory://bucket/frames: cannot list the directory: MemoryFileSystem
        raised PermissionError: [Errno 13] Permission denied. This user may not do that: change the permissions, or run
        as another
    """
    if not attribute(location, "is_asked_again"):
        return answered_once(location, call, doing, path)
    over, limit_s = threading.Event(), location.timeout_s
    deadline = float("inf") if limit_s is None else time.monotonic() + limit_s

    def made() -> _T:
        try:
            return tried(call, over=over, deadline=deadline)
        except GaveUpError as problem:
            if not is_of_storage(problem.problem):
                raise_alone(problem.problem)
            raise_alone(given_up(problem, location, doing, path))

    try:
        return answered_once(location, made, doing, path)
    finally:
        over.set()  # nobody waits any more


def answered_once(location: Place, call: Callable[[], _T], doing: str, path: str | None = None) -> _T:
    """What storage answers to one request, which is not made again: it may have been done though the answer was lost.

    Args:
        location: As for `answered`.
        call: As for `answered`.
        doing: As for `answered`.
        path: As for `answered`.

    Raises:
        StorageError: As `answered`.
    """

    def made() -> _T:
        with _classed(location, doing, path):
            return call()

    return in_time(made, url=location.url, what=_asked(doing, path), limit_s=location.timeout_s)


@contextlib.contextmanager
def asking(location: Place, doing: str = "be reached", path: str | None = None) -> Iterator[None]:
    """A block that asks storage; what it raises is classed as by `answered`, which also says what the arguments are.

    The calling thread is in it until storage answers: one of ours, for which somebody waits who can go without it.

    Example:
        >>> from petastore.storage.files.location import open_location
        >>> with asking(open_location("memory://bucket/frames"), "read the file", "part-0.parquet"):
        ...     raise FileNotFoundError
        Traceback (most recent call last):
        petastore.errors.FileMissingError: memory://bucket/frames: the file part-0.parquet is missing: MemoryFileSystem
        raised FileNotFoundError
    """
    with _classed(location, doing, path), waiting_for(location.url, _asked(doing, path), location.timeout_s):
        yield


def _asked(doing: str, path: str | None) -> str:
    return doing if path is None or path in doing else f"{doing} {path}"


@contextlib.contextmanager
def _classed(location: Place, doing: str, path: str | None) -> Iterator[None]:
    try:
        yield
    except BaseException as problem:
        if not is_of_storage(problem):
            raise
        raise_alone(failure(problem, location, doing, path))


def raise_alone(error: BaseException) -> NoReturn:
    """Raise it without what it came from: that may hold what must not be seen, and `from None` only looks away."""
    try:
        raise error
    finally:
        error.__context__ = error.__cause__ = None


def is_of_storage(problem: BaseException) -> bool:
    """Whether an exception that came out of a request is the storage's, and not yet one of the family.

    Memory that ran out, Ctrl-C and the end of the program are not.
    """
    if isinstance(problem, (PetastoreError, MemoryError)):
        return False
    # A cancelled request of a file system with an event loop of its own: nobody outside can cancel a call like ours.
    return isinstance(problem, Exception) or "CancelledError" in class_names(problem)


def failure(problem: BaseException, location: Place, doing: str, path: str | None = None) -> StorageError:
    """The error of the family that says what a file system raised; nothing is chained to it."""
    kind, number = kind_of(problem)
    said = f"{location.system} raised {foreign_text(problem, location.secrets)}"
    if kind == "missing":
        what = "there is nothing at that URL" if path is None else f"the file {path} is missing"
        missing = DatasetNotFoundError if path is None else FileMissingError
        return missing(f"{location.url}: {what}: {said}", errno=number)
    what = f"cannot {doing}" if path is None or path in doing else f"cannot {doing} {path}"
    todo = advice(problem, kind, number, is_anonymous=bool(attribute(location, "is_anonymous"))) or _place_of_fault(
        problem
    )
    error = _ERRORS.get(kind, StorageError)
    return error(f"{location.url}: {what}: {said}{'. ' if todo else ''}{todo}", errno=number)


def given_up(problem: GaveUpError, location: Place, doing: str, path: str | None = None) -> StorageError:
    """The error of the family that says what a file system raised in the end, and how often it was asked."""
    error = failure(problem.problem, location, doing, path)
    if problem.attempts == 1:
        return error
    text = f"{error} (it was tried {problem.attempts} times within {problem.seconds:.1f} s)"
    return type(error)(text, errno=error.errno)


def foreign_text(problem: BaseException, secrets: frozenset[str] = frozenset()) -> str:
    """Kind and message of a foreign exception, and of what caused it where it says more; fit to be shown, one line.

    Example:
        >>> foreign_text(OSError("403 for https://host/x?sig=abc"))
        'OSError: 403 for https://host/x'
    """
    texts: list[str] = []
    for one in list(causes(problem))[:_MOST_SAID]:
        message = message_of(one)
        if not texts or (message and not any(message in text for text in texts)):
            texts.append(f"{type(one).__name__}: {message}" if message else type(one).__name__)
    text = shown_text(", caused by ".join(texts), secrets)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …"


def _place_of_fault(problem: BaseException) -> str:
    """Where in somebody's code it was raised, for an exception that no file system should raise."""
    last = None if isinstance(problem, OSError) else problem.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return ""
    code = last.tb_frame.f_code
    file = os.path.basename(code.co_filename)  # noqa: PTH119 - the name of code may be no path
    return f"File systems do not raise that: it looks like a fault in {code.co_name} ({file}, line {last.tb_lineno})"
