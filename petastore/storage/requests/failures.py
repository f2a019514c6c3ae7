"""Convert exceptions of filesystems to petastore's errors.

Make every storage request with `answered` (reads, with retries), `answered_once` (writes, without retries), or `asking`
(a `with` block). Each filesystem exception becomes a petastore error with the URL, the request, the filesystem's
message and advice. The original exception is not chained, because its message may contain keys and signed URLs; the new
message contains its text after redaction.
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
from petastore.monitoring.activity import Request
from petastore.storage.requests.failure_kinds import Kind, advice, attribute, causes, class_names, kind_of, message_of
from petastore.storage.requests.retries import GaveUpError, in_time, tried
from petastore.storage.requests.shown import shown_text

__all__ = ["answered", "answered_once", "asking", "failure", "foreign_text", "given_up", "is_of_storage", "raise_alone"]

_T = TypeVar("_T")
_MOST_CHARACTERS = 600
_MOST_SAID = 3
_ERRORS: dict[Kind, type[StorageError]] = {
    "timeout": StorageTimeoutError,
    "connection": StorageConnectionError,
    "access": StorageAccessError,
    "exists": DatasetExistsError,
}


class RequestLocation(Protocol):
    """Interface of the location of a storage request.

    `petastore.storage.files.location.Location` has this interface.
    """

    @property
    def url(self) -> str:
        """URL for messages, without secrets."""

    @property
    def system(self) -> str:
        """Name of the file system, for messages."""

    @property
    def secrets(self) -> frozenset[str]:
        """Secrets that messages of the filesystem may contain."""

    @property
    def timeout_s(self) -> float | None:
        """Timeout of a request in seconds; None means no timeout."""


def answered(
    location: RequestLocation, call: Callable[[], _T], doing: str = "be reached", path: str | None = None
) -> _T:
    """Make a read-only storage request with retries, and return its result.

    Transient errors are retried until the deadline, if `location.is_asked_again`.

    Args:
        location: Location of the dataset.
        call: Function that makes the request; its exceptions are classified as storage failures.
        doing: Description of the request, after "cannot" in messages: `"list the directory"`.
        path: Path of the file, relative to the root; None means the dataset.

    Raises:
        DatasetNotFoundError: The dataset does not exist; if `path` is None.
        FileMissingError: The file does not exist; if `path` is given.
        DatasetExistsError: The path already exists.
        StorageTimeoutError: The request exceeded its timeout.
        StorageConnectionError: The connection failed or broke.
        StorageAccessError: Credentials are missing or lack permissions.
        StorageError: Any other failure, including bugs of the filesystem.

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
        raised PermissionError: [Errno 13] Permission denied. This user does not have permission. Change the
        permissions, or run as another user
    """
    if not attribute(location, "is_asked_again"):
        return answered_once(location, call, doing, path)
    over, limit_s = threading.Event(), location.timeout_s
    deadline = float("inf") if limit_s is None else time.monotonic() + limit_s
    try:
        return answered_once(location, lambda: tried(call, over=over, deadline=deadline), doing, path)
    finally:
        over.set()  # the caller has stopped waiting


def answered_once(location: RequestLocation, call: Callable[[], _T], doing: str, path: str | None = None) -> _T:
    """Make a storage request without retries, and return its result.

    For requests that must not be executed twice, such as writes.

    Args:
        location: Location of the dataset.
        call: Function that makes the request; its exceptions are classified as storage failures.
        doing: Description of the request, after "cannot" in messages: `"write the file"`.
        path: Path of the file, relative to the root; None means the dataset.

    Raises:
        StorageError: As `answered`.
    """

    def made() -> _T:
        with asking(location, doing, path):
            return call()

    if attribute(location, "is_local"):
        # For local disks, make the call in this thread: starting another thread takes longer than most calls, and could
        # not end a hanging call.
        return made()
    return in_time(made, url=location.url, what=_asked(doing, path), limit_s=location.timeout_s)


@contextlib.contextmanager
def asking(location: RequestLocation, doing: str = "be reached", path: str | None = None) -> Iterator[None]:
    """Context manager for a storage request: convert exceptions to petastore's errors.

    The errors are those of `answered`. The context manager neither retries the request nor ends it at the timeout: the
    calling thread blocks until storage responds. Therefore use it only in pool threads, whose waiting consumer checks
    the timeout and can abandon the thread.

    Args:
        location: Location of the dataset.
        doing: Description of the request, after "cannot" in messages: `"list the directory"`.
        path: Path of the file, relative to the root; None means the dataset.

    Raises:
        StorageError: As `answered`.

    Example:
        >>> from petastore.storage.files.location import open_location
        >>> with asking(open_location("memory://bucket/frames"), "read the file", "part-0.parquet"):
        ...     raise FileNotFoundError
        Traceback (most recent call last):
        petastore.errors.FileMissingError: memory://bucket/frames: the file part-0.parquet is missing: MemoryFileSystem
        raised FileNotFoundError
    """
    try:
        with Request(location.url, _asked(doing, path), location.timeout_s):
            yield
    except GaveUpError as problem:
        if not is_of_storage(problem.problem):
            raise_alone(problem.problem)
        raise_alone(given_up(problem, location, doing, path))
    except BaseException as problem:
        if not is_of_storage(problem):
            raise
        raise_alone(failure(problem, location, doing, path))


def _asked(doing: str, path: str | None) -> str:
    return doing if path is None or path in doing else f"{doing} {path}"


def raise_alone(error: BaseException) -> NoReturn:
    """Raise an error without its context, which may contain secrets.

    `from None` would only hide the context.
    """
    try:
        raise error
    finally:
        error.__context__ = error.__cause__ = None


def is_of_storage(problem: BaseException) -> bool:
    """Return whether an exception is an unconverted failure of the storage.

    Running out of memory, Ctrl-C and program exit are not failures of the storage.
    """
    if isinstance(problem, (PetastoreError, MemoryError)):
        return False
    # A filesystem with its own event loop has cancelled its request.
    return isinstance(problem, Exception) or "CancelledError" in class_names(problem)


def failure(problem: BaseException, location: RequestLocation, doing: str, path: str | None = None) -> StorageError:
    """Return the petastore error for a filesystem exception, without chaining."""
    kind, number = kind_of(problem)
    said = f"{location.system} raised {foreign_text(problem, location.secrets)}"
    if kind == "missing":
        what = "there is nothing at that URL" if path is None else f"the file {path} is missing"
        missing = DatasetNotFoundError if path is None else FileMissingError
        return missing(f"{location.url}: {what}: {said}", errno=number)
    what = f"cannot {_asked(doing, path)}"
    todo = advice(problem, kind, number, is_anonymous=bool(attribute(location, "is_anonymous"))) or _place_of_fault(
        problem
    )
    error = _ERRORS.get(kind, StorageError)
    return error(f"{location.url}: {what}: {said}{'. ' if todo else ''}{todo}", errno=number)


def given_up(problem: GaveUpError, location: RequestLocation, doing: str, path: str | None = None) -> StorageError:
    """Return the petastore error for a request that is not retried any more.

    The message has the number of attempts.
    """
    error = failure(problem.problem, location, doing, path)
    if problem.attempts == 1:
        return error
    text = f"{error} (it was tried {problem.attempts} times within {problem.seconds:.1f} s)"
    return type(error)(text, errno=error.errno)


def foreign_text(problem: BaseException, secrets: frozenset[str] = frozenset()) -> str:
    """Return class and message of an exception and its causes, redacted, in one line.

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
    """Return a sentence that names the code which raised an unexpected exception.

    Return `""` for an OSError, which filesystems may raise.
    """
    last = None if isinstance(problem, OSError) else problem.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return ""
    code = last.tb_frame.f_code
    file = os.path.basename(code.co_filename)  # noqa: PTH119 - the file name of code may not be a path
    return (
        f"File systems do not raise this error. It looks like a bug in {code.co_name} ({file}, line {last.tb_lineno})"
    )
