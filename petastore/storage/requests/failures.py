"""Convert exceptions of filesystems to petastore's errors, without secrets in URLs and messages.

Make every storage request with `answered` (reads, with retries), `answered_once` (writes, without retries), or `asking`
(a `with` block). Each filesystem exception becomes a petastore error with the URL, the request, the filesystem's
message and advice. The original exception is not chained, because its message may contain keys and signed URLs; the new
message contains its text after redaction. Redaction hides users, passwords, signatures and keys.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, Protocol, TypeVar
from urllib.parse import quote, quote_plus, unquote

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

__all__ = [
    "HIDDEN",
    "answered",
    "answered_once",
    "asking",
    "failure",
    "foreign_text",
    "given_up",
    "is_of_storage",
    "raise_alone",
    "secrets_in_options",
    "secrets_in_url",
    "shown_text",
    "shown_url",
    "without_query",
]

HIDDEN = "***"
"""Text that replaces a secret."""

_SCHEME = r"(?:(?<![A-Za-z0-9+.-])|(?<=::))[A-Za-z][A-Za-z0-9+.-]*:/{2,}"
_URL = re.compile(rf"({_SCHEME})(.*)", re.DOTALL)
# Separator of the URLs of a chain such as `simplecache::s3://…`, in which all but the last may be only a scheme. It is
# not just `::`, because a password may contain `::`.
_LINK = r"::(?=(?:[A-Za-z][A-Za-z0-9+.-]*::){0,8}[A-Za-z][A-Za-z0-9+.-]*:/{2,})"
# A URL inside a sentence ends at white space, a quote, or the next URL of a chain.
_URL_IN_TEXT = re.compile(rf"({_SCHEME})((?:(?!{_LINK})[^\s'\"<>`])*)(?<![,.;:)\]])")
_LOCAL = {"file", "local", "memory"}
# For these schemes the part before `@` is a container, not a user.
_CONTAINERS = {"abfs", "abfss", "wasb", "wasbs", "az", "adl"}
_PORT = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::[0-9]*)?")
_ARN = re.compile(r"arn:[a-z-]+:")
# Matches only the end of a name, such as `token` in `spark.my.token`: a prefix as `[\w.]*` would take quadratic time.
_NAME = (
    r"(?:signature|token|secret|passw(?:or)?d|pwd|credential|api[_-]?key|access[_-]?key(?:[_-]?id)?"
    r"|account[_-]?key|private[_-]?key|(?<!\w)(?:sig|sas|authorization))"
)
_SPELLED = re.compile(
    rf"(?i)(?P<name>{_NAME}(?:[_-]?id)?)(?P<between>['\"]?\s*(?:=|:(?!/))\s*)(?P<quote>(?:b(?=['\"]))?['\"]?)"
    r"(?P<value>(?:(?:bearer|basic|negotiate)\s+)?[^\s'\"&,;)}\]]+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+(?=[A-Za-z0-9._~+/=-]{8,})[A-Za-z0-9._~+/=-]+")
_PAIRS = re.compile(r"[\w.%~-]+=[^&]*(?:&[\w.%~-]+=[^&]*)*")
# Values of these options name a place, not a user.
_HARMLESS = {
    "account_name", "addressing_style", "block_size", "bucket", "cache_regions", "cache_storage", "consistency",
    "container", "container_name", "default_block_size", "default_cache_type", "endpoint", "endpoint_override",
    "endpoint_url", "fo", "host", "hostname", "location", "mode", "path", "port", "project", "protocol", "region",
    "region_name", "scheme", "signature_version", "target_protocol", "version",
}  # fmt: skip
_SHORTEST = 4
_DEEPEST = 6


def shown_url(url: str) -> str:
    """Return a URL without user, password, query and fragment.

    A plain path is unchanged. In local paths, `#` and `?` are part of the name and stay, unless `name=value` pairs
    follow. The container of Azure URLs stays.

    Example:
        >>> shown_url("https://me:secret@host/a.parquet?sig=abc")
        'https://***@host/a.parquet'
        >>> shown_url("simplecache::s3://bucket/a?b"), shown_url("file:///data/what?.parquet")
        ('simplecache::s3://bucket/a?***', 'file:///data/what?.parquet')
        >>> shown_url("abfs://container@account.dfs.core.windows.net/frames")
        'abfs://container@account.dfs.core.windows.net/frames'
    """
    return "::".join(_shown_link(link) for link in re.split(_LINK, url))


def shown_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a message of another library with secrets redacted, also in its URLs.

    Args:
        text: Message that may contain secrets.
        secrets: Secrets to redact, from `secrets_in_url` and `secrets_in_options`.

    Example:
        >>> shown_text("GET https://host/a?sig=abc failed for key S3CR3T", {"S3CR3T"})
        'GET https://host/a failed for key ***'
    """
    for secret in sorted(set(secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _URL_IN_TEXT.sub(lambda match: _shown_link(match[0]), text)
    text = _SPELLED.sub(lambda match: f"{match['name']}{match['between']}{match['quote']}{HIDDEN}", text)
    return _BEARER.sub(rf"\1 {HIDDEN}", text)


def without_query(path: str) -> str:
    """Return a path in a filesystem without the query of a web address or signed URL.

    In other paths `?` and `#` are part of the name, unless `name=value` pairs follow.

    Example:
        >>> without_query("https://host/a.parquet?sig=a/b"), without_query("bucket/a.parquet#token=abc")
        ('https://host/a.parquet', 'bucket/a.parquet')
        >>> without_query("bucket/what?.parquet"), without_query("/data/a?b=c.parquet")
        ('bucket/what?.parquet', '/data/a?b=c.parquet')
    """
    if path.startswith("/"):
        return path
    mark = re.search("[?#]", path)
    if mark is None or not (path.startswith(("http://", "https://")) or _PAIRS.fullmatch(path[mark.end() :])):
        return path
    return path[: mark.start()]


def secrets_in_url(url: str) -> frozenset[str]:
    """Return the secret parts of a URL, both encoded and decoded.

    These are users, passwords, queries and fragments.

    Example:
        >>> {"s%40cret", "s@cret", "abcd"} <= secrets_in_url("https://me:s%40cret@host/a?sig=abcd")
        True
    """
    secrets: set[str] = set()
    for link in re.split(_LINK, url):
        match = _URL.match(link)
        if match is None:
            continue
        user, _, rest = _parts(match[1], match[2])
        query = rest.removeprefix("?").removeprefix("#")
        values = [value.partition("=")[2] for value in re.split("[&#?]", query)]
        secrets.update([user, user.partition(":")[2], query, *values])
    return _spelled(secrets)


def secrets_in_options(options: Any) -> frozenset[str]:
    """Return the secrets among a filesystem's keyword arguments.

    All values are treated as secrets, except the values of options that are known to be harmless.

    Example:
        >>> sorted(secrets_in_options({"key": "AKIA", "client_kwargs": {"region_name": "eu", "token": b"t0ken"}}))
        ['AKIA', 't0ken']
    """
    return _spelled(_texts(options, _DEEPEST))


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value, *(word for word in value.split() if len(word) > 2 * _SHORTEST))
        yield from secrets_in_url(value)
    elif isinstance(value, (bytes, bytearray)):
        yield bytes(value).decode("utf-8", "replace")
    elif depth and isinstance(value, Mapping):
        for name, inner in value.items():
            if str(name).lower() not in _HARMLESS:
                yield from _texts(inner, depth - 1)
            elif isinstance(inner, str):
                yield from secrets_in_url(inner)
    elif depth and isinstance(value, (tuple, list, set, frozenset)):
        for inner in value:
            yield from _texts(inner, depth - 1)
    elif depth and not isinstance(value, (type, int, float)) and hasattr(value, "__dict__"):
        # Objects may hold credentials, such as the credential classes of Azure.
        yield from _texts({name: inner for name, inner in vars(value).items() if isinstance(inner, (str, bytes))}, 1)


def _spelled(secrets: Iterable[str]) -> frozenset[str]:
    """Return the secrets in each encoding that messages may use.

    Very short texts are omitted, because they occur in many words.
    """
    texts = {text for text in secrets if len(text) >= _SHORTEST}
    ways = (quote, quote_plus, unquote, lambda text: quote(text, safe=""), lambda text: repr(text)[1:-1])
    texts |= {way(text) for text in texts for way in ways}
    return frozenset(text for text in texts if len(text) >= _SHORTEST)


def _shown_link(link: str) -> str:
    match = _URL.match(link)
    if match is None:
        return link
    user, place, rest = _parts(match[1], match[2])
    # In web addresses a query is not part of a name; elsewhere it may be, so the omission is marked.
    mark = f"{rest[0]}{HIDDEN}" if rest and not match[1].lower().startswith("http") else ""
    return f"{match[1]}{HIDDEN + '@' if user else ''}{place}{mark}"


def _parts(start: str, rest: str) -> tuple[str, str, str]:
    """Split a URL; return (credentials, host and path, query and fragment).

    The credentials are the user and password before `@`. A missing part is an empty string.

    Args:
        start: The scheme with `://`.
        rest: Text of the URL after `start`.
    """
    scheme = start.partition(":")[0].lower()
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user = ""
    cut = rest.rfind("@", 0, len(authority))
    if not _PORT.fullmatch(authority[cut + 1 :]) and not _ARN.match(authority):
        cut = max(cut, rest.rfind("@"))  # the password has an unescaped `/`, `?` or `#`
    if cut >= 0 and not (scheme in _CONTAINERS and ":" not in rest[:cut]):
        user, rest = rest[:cut], rest[cut + 1 :]
    end = re.search("[?]" if scheme in _LOCAL else "[?#]", rest)
    if end is None or (scheme in _LOCAL and not _PAIRS.fullmatch(rest[end.end() :])):
        return user, rest, ""
    return user, rest[: end.start()], rest[end.start() :]


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
