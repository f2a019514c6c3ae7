"""Kinds of storage failures, and the advice for each. No I/O.

No filesystem library is imported for its exception classes. Exceptions are classified by built-in base class, `errno`,
status and code of the response, names of base classes and, for Arrow's filesystems, the message. If the exception
itself is not conclusive, its causes are used.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

__all__ = [
    "Kind",
    "advice",
    "attribute",
    "causes",
    "class_names",
    "is_unknown_host",
    "kind_of",
    "message_of",
    "statuses_in",
]

Kind: TypeAlias = Literal["timeout", "connection", "access", "missing", "exists", "busy", "other"]

_MOST_CAUSES = 8
_SERVER_FAILED = 500
_MOST_CHARACTERS = 4096
# These exceptions are bugs in the code that raised them, even if the code was handling a storage failure.
_FAULTS = (LookupError, TypeError, AttributeError, NameError, AssertionError, ArithmeticError)

_TYPES: tuple[tuple[tuple[type[BaseException], ...], Kind], ...] = (
    ((TimeoutError,), "timeout"),
    ((ConnectionError, socket.gaierror, socket.herror, ssl.SSLError), "connection"),
    ((PermissionError,), "access"),
    ((FileNotFoundError,), "missing"),
    ((FileExistsError,), "exists"),
)
_UNREACHABLE = {
    errno.ENOTCONN, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    errno.EADDRNOTAVAIL,
}  # fmt: skip
_IN_ANSWERS = (("Error", "Code"), ("ResponseMetadata", "HTTPStatusCode"))
_STATUSES: dict[str, Kind] = {
    **dict.fromkeys(("401", "403", "407"), "access"),
    **dict.fromkeys(("404", "410"), "missing"),
    **dict.fromkeys(("408", "504"), "timeout"),
    **dict.fromkeys(("429", "503"), "busy"),
}


# The patterns are searched in this order in class names, service codes and generic texts.
_PATTERNS: dict[Kind, str] = {
    "timeout": r"time[d]?[_\s]?out | deadline_?exceeded | curlCode:\ 28\b | HTTP\ status\ (408|504)",
    "access": r"""credential | unauthori[sz]ed | authenticat | authorization | forbidden | access[_\s]?denied
        | permission[_\s]?denied | invalid_?access_?key | signature_?does_?not_?match | (expired|invalid|sso)_?token
        | token_?(retrieval|refresh) | ^RefreshError$ | unrecognized_?client | client_token_id | AuthFailure
        | RequestTimeTooSkewed | AccountIsDisabled | HTTP\ status\ 40[13]""",
    "missing": r"""^(Resource|Blob|Container|Path|Filesystem)?NotFound(Error)?$ | no_?such_?(key|bucket|version)
        | ^NOT_FOUND$ | \(NOT_FOUND\b | HTTP\ status\ 404""",
    "busy": r"""slow_?down | throttl | too_?many_?requests | service_?unavailable | ServerBusy | resource_?exhausted
        | HTTP\ status\ (429|503)""",
    "connection": r"""connect(ion|or|Error|$) | could(n't|\ not)\ (resolve|connect) | cannot\ connect | curlCode:\ \d+
        | disconnected | IncompleteRead | ProtocolError | PayloadError | ChunkedEncoding | ProxyError | SSLError
        | SSLCert | TransportError | NameResolution | DNSError | unreachable | \bUNAVAILABLE\b | HTTPClientError
        | Service(Request|Response)Error | ResponseStreaming | NetworkError | BadStatusLine | MaxRetry | SSHException
        | (session|event\ loop|transport)\ is\ closed""",
}
_KINDS = {kind: re.compile(pattern, re.VERBOSE | re.IGNORECASE) for kind, pattern in _PATTERNS.items()}

_ADVICE: dict[Kind, str] = {
    "timeout": "Try again, or increase the timeout",
    "connection": "Check the network and the address, and try again",
    "access": (
        "The storage does not accept these credentials, or they do not allow this. Pass others (storage_options, or "
        "the environment)"
    ),
    "exists": "Choose another URL, or delete the existing files",
    "busy": "The storage throttles requests. Try again later, or use fewer workers",
}
_ADVICE_BY_NUMBER = {
    errno.EACCES: "This user does not have permission. Change the permissions, or run as another user",
    errno.EPERM: "This user does not have permission. Change the permissions, or run as another user",
    errno.ENOSPC: "The disk is full. Free space, or use another disk",
    errno.EDQUOT: "The quota is exceeded. Free space, or use another directory",
    errno.EROFS: "The file system is read-only. Use another directory",
    errno.EMFILE: "This process has too many files open: raise the limit (ulimit -n), or close readers",
    errno.ENFILE: "The system has too many files open: close some, or raise its limit",
    errno.ENAMETOOLONG: "The name is too long for this file system: use a shorter path",
    errno.ELOOP: "The path has a cycle of symbolic links",
    errno.EFBIG: "The file is too large for this file system: write smaller files (rows_per_file)",
    errno.EIO: "The device or its server failed. Check its log",
    errno.ESTALE: "The file was replaced on a network file system: open the dataset again",
    errno.EBUSY: "Another process uses it. Try again",
    errno.EXDEV: "A file cannot be renamed from one file system to another: put the dataset's directory on one",
    errno.EISDIR: "It is a directory",
    errno.ENOTDIR: "A part of the path is a file instead of a directory",
}
_ADVICE_BY_TEXT = {
    r"(?i)range requests|seek streaming|got more bytes|not seekable|(?:does not|doesn't|without) (?:support )?rang": (
        "The server does not support HTTP range requests, which Parquet needs. Copy the files to a disk, or use "
        "another server"
    ),
    r"load (libhdfs|libjvm)": (
        "HDFS needs Hadoop's libhdfs and Java. Set HADOOP_HOME, JAVA_HOME, and CLASSPATH to what "
        "`hadoop classpath --glob` prints; or use a webhdfs:// URL"
    ),
    r"(?i)\bclosed\b": "The connection was closed during use. Open the dataset again, separately in each process",
}
"""Advice by patterns of messages, which are searched in this order."""

_NO_CREDENTIALS = re.compile(
    r"NoCredentials|DefaultCredentialsError|Unable to locate credentials|[Aa]nonymous caller|no credentials were found"
)
_GIVE_CREDENTIALS = "No credentials were sent. Pass credentials (storage_options, or the environment) that allow this"
_NO_HOST = re.compile(
    r"Name or service not known|nodename nor servname|No address associated with hostname|Name does not resolve"
    r"|NXDOMAIN|No such host is known|[Hh]ost not found|Domain name not found"
)
_NO_HOST_NUMBERS = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def kind_of(problem: BaseException) -> tuple[Kind, int | None]:
    """Return the kind of a failure, and its `errno` or None.

    Example:
        >>> kind_of(ConnectionRefusedError(111, "Connection refused"))
        ('connection', 111)
        >>> kind_of(OSError("AWS Error ACCESS_DENIED during HeadObject operation")), kind_of(KeyError("Contents"))
        (('access', None), ('other', None))
    """
    chain = list(causes(problem))
    number = next((number for one in chain if (number := _number(one)) is not None), None)
    if isinstance(problem, FileNotFoundError) and problem.__cause__ is not None:
        # Some filesystems raise one class for all failures, with the reason only in the cause.
        is_of_server = any(status >= _SERVER_FAILED for status in statuses_in(problem))
        chain = [one for one in chain if not isinstance(one, FileNotFoundError)] + [problem] * (not is_of_server)
    kinds = (look(one) for one in chain for look in (_by_type, _by_answer, _by_names, _by_text))
    return next((kind for kind in kinds if kind is not None), "other"), number


def statuses_in(problem: BaseException) -> set[int]:
    """Return the HTTP statuses of a failure and its causes."""
    return {code for one in causes(problem) for code in _codes_in(one) if isinstance(code, int)}


def causes(problem: BaseException) -> Iterator[BaseException]:
    """Yield the exception and its causes, each once."""
    seen: set[int] = set()
    waiting: list[Any] = [problem]
    while waiting and len(seen) < _MOST_CAUSES:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, attribute(one, "reason"), attribute(one, "os_error")]
        waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        waiting += one.args
        waiting += [] if one.__suppress_context__ or isinstance(one, _FAULTS) else [one.__context__]


def _number(problem: BaseException) -> int | None:
    if not isinstance(problem, OSError) or isinstance(problem, (ssl.SSLError, socket.gaierror, socket.herror)):
        return None  # TLS and DNS errors have number ranges of their own
    number: Any = problem.errno
    return number if isinstance(number, int) and number in errno.errorcode else None


def _by_type(problem: BaseException) -> Kind | None:
    number = _number(problem) or 0
    # Python maps most errno values to an exception class, but a library's exception may not derive from this class.
    alike = (problem, OSError(number, ""))
    known = next((kind for types, kind in _TYPES if any(isinstance(one, types) for one in alike)), None)
    return known or ("connection" if number in _UNREACHABLE else None)


def _by_answer(problem: BaseException) -> Kind | None:
    """Classify by the status of an HTTP response, or by the service's error code."""
    known = (_STATUSES.get(str(code)) or _by_pattern(str(code)) for code in _codes_in(problem))
    return next((kind for kind in known if kind is not None), None)


def _codes_in(problem: BaseException) -> Iterator[int | str]:
    """Yield the status and error codes of an exception, or of its response.

    The response may have botocore's form.
    """
    answer = attribute(problem, "response")
    said = answer if isinstance(answer, dict) else {}
    codes = [attribute(problem, name) for name in ("status", "status_code", "http_status", "code", "error_code")]
    codes += [(said.get(part) or {}).get(name) for part, name in _IN_ANSWERS]
    codes += [attribute(answer, name) for name in ("status_code", "status")]
    for code in codes:
        if isinstance(code, (int, str)) and not isinstance(code, bool):
            yield int(code) if isinstance(code, int) else code


def class_names(problem: BaseException) -> list[str]:
    """Return the class names of an exception and its bases, without built-ins."""
    return [kind.__name__ for kind in type(problem).__mro__ if kind.__module__ != "builtins"]


def _by_names(problem: BaseException) -> Kind | None:
    return next((kind for name in class_names(problem) if (kind := _by_pattern(name)) is not None), None)


def _by_text(problem: BaseException) -> Kind | None:
    says_no_more = type(problem) in {OSError, RuntimeError, Exception}
    return _by_pattern(message_of(problem)) if says_no_more else None


def _by_pattern(text: str) -> Kind | None:
    return next((kind for kind, pattern in _KINDS.items() if pattern.search(text)), None)


def advice(problem: BaseException, kind: Kind, number: int | None, *, is_anonymous: bool = False) -> str:
    """Return advice for a failure as a sentence; may be empty.

    Args:
        problem: Exception that was raised.
        kind: Kind of the failure.
        number: The `errno`, or None.
        is_anonymous: Whether the request was unsigned.
    """
    if kind == "access" and number is None and (is_anonymous or _says_no_credentials(problem)):
        return _GIVE_CREDENTIALS
    if kind == "connection" and is_unknown_host(problem):
        return "The host name does not exist. Check the address"
    known = _ADVICE_BY_NUMBER.get(number or 0) or _ADVICE.get(kind)
    if known is not None:
        return known
    text = " ".join(map(message_of, causes(problem)))
    return next((todo for pattern, todo in _ADVICE_BY_TEXT.items() if re.search(pattern, text)), "")


def is_unknown_host(problem: BaseException) -> bool:
    """Return whether a host name does not exist; False for a temporary DNS failure.

    Example:
        >>> is_unknown_host(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
        True
        >>> is_unknown_host(socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
        False
    """
    return any(
        one.errno in _NO_HOST_NUMBERS if isinstance(one, socket.gaierror) else _NO_HOST.search(message_of(one))
        for one in causes(problem)
    )


def _says_no_credentials(problem: BaseException) -> bool:
    return any(_NO_CREDENTIALS.search(f"{type(one).__name__}: {message_of(one)}") for one in causes(problem))


def message_of(problem: BaseException) -> str:
    """Return the message of an exception in one line, not yet redacted."""
    try:
        return " ".join(str(problem)[:_MOST_CHARACTERS].split())
    except Exception:  # noqa: BLE001 - `__str__` of a library's exception may raise anything
        return "(its message cannot be read)"


def attribute(thing: Any, name: str) -> Any:
    """Return an attribute of any object; None if it is missing or raises an error."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a property of a library's object may raise anything
        return None
