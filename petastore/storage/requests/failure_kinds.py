"""Of what kind a failure of storage is, and what to do about it. Pure.

File systems are of many makes, and none is imported to know its errors. Their classes are told apart by the built-ins
that they derive from, by `errno`, by the status and the code of an answer, by the names of the classes that they derive
from, and, where Arrow's own file systems say it in no other way, by the text. What an exception was raised from is
looked at where the exception itself tells nothing.
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
# A fault in code that handles an error is a fault of that code, whatever it was that it handled.
_FAULTS = (LookupError, TypeError, AttributeError, NameError, AssertionError, ArithmeticError)

_TYPES: tuple[tuple[tuple[type[BaseException], ...], Kind], ...] = (
    ((TimeoutError,), "timeout"),
    ((ConnectionError, socket.gaierror, socket.herror, ssl.SSLError), "connection"),
    ((PermissionError,), "access"),
    ((FileNotFoundError,), "missing"),
    ((FileExistsError,), "exists"),
)
_CONNECTION = (
    errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ENOTCONN, errno.ESHUTDOWN,
    errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL,
)  # fmt: skip
_NUMBERS: dict[int, Kind] = {
    **dict.fromkeys(_CONNECTION, "connection"),
    errno.ETIMEDOUT: "timeout",
    errno.EACCES: "access",
    errno.EPERM: "access",
    errno.ENOENT: "missing",
    errno.EEXIST: "exists",
}
_STATUSES: dict[str, Kind] = {
    **dict.fromkeys(("401", "403", "407"), "access"),
    **dict.fromkeys(("404", "410"), "missing"),
    **dict.fromkeys(("408", "504"), "timeout"),
    **dict.fromkeys(("429", "503"), "busy"),
}


def _patterns(*written: tuple[Kind, str]) -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(pattern, re.VERBOSE)) for kind, pattern in written)


# Names of classes, and codes of services, looked at in this order.
_NAMES = _patterns(
    ("timeout", r"Time[dD]?_?[oO]ut | TIMEOUT | DeadlineExceeded | DEADLINE_EXCEEDED"),
    (
        "access",
        r"""Credential | Unauthori[sz]ed | Unauthenticated | UNAUTHENTICATED | Authenticat | Authorization | Forbidden
        | AccessDenied | PermissionDenied | PERMISSION_DENIED | InvalidAccessKeyId | SignatureDoesNotMatch
        | (Expired|Invalid|SSO)Token | TokenRetrieval | TokenRefresh | ^RefreshError$ | UnrecognizedClient | AuthFailure
        | RequestTimeTooSkewed | AccountIsDisabled""",
    ),
    (
        "missing",
        r"^(NoSuch(Key|Bucket|Version) | (Resource|Blob|Container|Path|Filesystem)?NotFound(Error)? | NOT_FOUND)$",
    ),
    (
        "busy",
        r"""SlowDown | Throttl | TooManyRequests | ServiceUnavailable | ServerBusy | ResourceExhausted
        | RESOURCE_EXHAUSTED""",
    ),
    (
        "connection",
        r"""Connect(ion|or|Error|$) | Disconnected | IncompleteRead | ProtocolError | PayloadError | ChunkedEncoding
        | ProxyError | SSLError | SSLCert | TransportError | NameResolution | DNSError | Unreachable | UNAVAILABLE
        | HTTPClientError | Service(Request|Response)Error | ResponseStreaming | NetworkError | BadStatusLine | MaxRetry
        | SSHException""",
    ),
)
_TEXTS = _patterns(
    (
        "timeout",
        r"""curlCode:\ 28\b | \bDEADLINE_EXCEEDED\b | REQUEST_TIMEOUT | HTTP\ status\ (408|504) | [Tt]imed\ out
        | [Tt]imeout\ was\ reached""",
    ),
    (
        "access",
        r"""ACCESS_DENIED | INVALID_ACCESS_KEY_ID | SIGNATURE_DOES_NOT_MATCH | PERMISSION_DENIED | UNAUTHENTICATED
        | INVALID_CLIENT_TOKEN_ID | UNRECOGNIZED_CLIENT | MISSING_AUTHENTICATION_TOKEN | EXPIRED_TOKEN
        | AuthenticationFailed | AuthorizationFailure | HTTP\ status\ 40[13] | ^Forbidden\b | [Pp]ermission\ denied
        | Access\ Denied""",
    ),
    ("busy", r"SLOW_DOWN | THROTTLING | HTTP\ status\ (429|503)"),
    ("missing", r"NO_SUCH_BUCKET | NO_SUCH_KEY | \(NOT_FOUND\b | HTTP\ status\ 404"),
    (
        "connection",
        r"""NETWORK_CONNECTION | curlCode:\ \d+ | \(UNAVAILABLE\b | Could(n't|\ not)\ (resolve|connect)
        | Connection\ (refused|reset) | Cannot\ connect\ to\ host
        | (Session|Event\ loop|Connector|Transport)\ is\ closed""",
    ),
)

_ADVICE: dict[Kind, str] = {
    "timeout": "Try again, or give it longer",
    "connection": "Look at the network and at the address, and try again",
    "access": (
        "These credentials are not known there, or may not do this: give others (storage_options, or the environment)"
    ),
    "exists": "Choose another URL, or remove what is there",
    "busy": "It has too much to do: try again later, or read with fewer workers",
}
_ADVICE_BY_NUMBER = {
    errno.EACCES: "This user may not do that: change the permissions, or run as another",
    errno.EPERM: "This user may not do that: change the permissions, or run as another",
    errno.ENOSPC: "The disk is full: free space there, or use another",
    errno.EDQUOT: "The quota is used up: free space there, or use another place",
    errno.EROFS: "It is read-only: use another place",
    errno.EMFILE: "This process has too many files open: raise the limit (ulimit -n), or close readers",
    errno.ENFILE: "The system has too many files open: close some, or raise its limit",
    errno.ENAMETOOLONG: "The name is too long for this file system: use a shorter path",
    errno.ELOOP: "Symbolic links go round in circles there",
    errno.EFBIG: "The file is too large for this file system: write smaller files (rows_per_file)",
    errno.EIO: "The device, or the server of it, failed: look at its log",
    errno.ESTALE: "The file was replaced on a network file system: open the dataset again",
    errno.EBUSY: "Something else uses it: try again",
    errno.EXDEV: "A file cannot be renamed from one file system to another: put the dataset's directory on one",
    errno.EISDIR: "It is a directory",
    errno.ENOTDIR: "A part of the path is a file, and no directory",
}
_NO_RANGES = re.compile(
    r"(?i)range requests|seek streaming|got more bytes|not seekable|(?:does not|doesn't|without) (?:support )?rang"
)
_NO_CREDENTIALS = re.compile(
    r"NoCredentials|DefaultCredentialsError|Unable to locate credentials|[Aa]nonymous caller|no credentials were found"
)
_GIVE_CREDENTIALS = "It was asked with no credentials: give some (storage_options, or the environment) that may do this"
_NO_HOST = re.compile(
    r"Name or service not known|nodename nor servname|No address associated with hostname|Name does not resolve"
    r"|NXDOMAIN|No such host is known|[Hh]ost not found|Domain name not found"
)
_NO_HOST_NUMBERS = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
_NO_LIBHDFS = re.compile(r"load (libhdfs|libjvm)")
_CLOSED = re.compile(r"(?i)\bclosed\b")


def kind_of(problem: BaseException) -> tuple[Kind, int | None]:
    """The kind of a failure, and the number of the system's error where there is one.

    Example:
        >>> kind_of(ConnectionRefusedError(111, "Connection refused"))
        ('connection', 111)
        >>> kind_of(OSError("AWS Error ACCESS_DENIED during HeadObject operation")), kind_of(KeyError("Contents"))
        (('access', None), ('other', None))
    """
    chain = list(causes(problem))
    number = next((number for one in chain if (number := _number(one)) is not None), None)
    if isinstance(problem, FileNotFoundError) and problem.__cause__ is not None:
        # Some file systems say so of all that they could not get, and why in the cause alone.
        is_of_server = any(status >= _SERVER_FAILED for status in statuses_in(problem))
        chain = [one for one in chain if not isinstance(one, FileNotFoundError)] + [problem] * (not is_of_server)
    kinds = (look(one) for one in chain for look in (_by_type, _by_answer, _by_names, _by_text))
    return next((kind for kind in kinds if kind is not None), "other"), number


def statuses_in(problem: BaseException) -> set[int]:
    """Statuses of the answers of HTTP that a failure, and what it came from, tells of."""
    codes_there: set[int] = set()
    for one in causes(problem):
        answer = attribute(one, "response")
        metadata = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
        codes = (attribute(one, "status"), attribute(one, "code"), attribute(answer, "status_code"))
        codes_there.update(code for code in (*codes, metadata.get("HTTPStatusCode")) if isinstance(code, int))
    return codes_there


def causes(problem: BaseException) -> Iterator[BaseException]:
    """The exception, and what it was raised from; each once, and not without end."""
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
        return None  # those of TLS and of looking up names count in numbers of their own
    number: Any = problem.errno
    return number if isinstance(number, int) and number in errno.errorcode else None


def _by_type(problem: BaseException) -> Kind | None:
    by_class = next((kind for types, kind in _TYPES if isinstance(problem, types)), None)
    return by_class or _NUMBERS.get(_number(problem) or 0)


def _by_answer(problem: BaseException) -> Kind | None:
    """By the status of an HTTP answer, or the code that a service gives its errors."""
    response = attribute(problem, "response")
    codes = [attribute(problem, name) for name in ("status", "status_code", "http_status", "code", "error_code")]
    if isinstance(response, dict):  # as botocore has it
        codes += [_inside(response, "Error", "Code"), _inside(response, "ResponseMetadata", "HTTPStatusCode")]
    else:
        codes += [attribute(response, name) for name in ("status_code", "status")]
    for code in codes:
        if isinstance(code, (int, str)) and not isinstance(code, bool):
            known = _STATUSES.get(str(int(code) if isinstance(code, int) else code)) or _by_pattern(_NAMES, str(code))
            if known is not None:
                return known
    return None


def _inside(answer: dict[Any, Any], *names: str) -> Any:
    inner: Any = answer
    for name in names:
        inner = inner.get(name) if isinstance(inner, dict) else None
    return inner


def class_names(problem: BaseException) -> list[str]:
    """Names of its class and of those that it derives from, without Python's own."""
    return [kind.__name__ for kind in type(problem).__mro__ if kind.__module__ != "builtins"]


def _by_names(problem: BaseException) -> Kind | None:
    return next((kind for name in class_names(problem) if (kind := _by_pattern(_NAMES, name)) is not None), None)


def _by_text(problem: BaseException) -> Kind | None:
    says_no_more = type(problem) in {OSError, RuntimeError, Exception}
    return _by_pattern(_TEXTS, message_of(problem)) if says_no_more else None


def _by_pattern(patterns: tuple[tuple[Kind, re.Pattern[str]], ...], text: str) -> Kind | None:
    return next((kind for kind, pattern in patterns if pattern.search(text)), None)


def advice(problem: BaseException, kind: Kind, number: int | None, *, is_anonymous: bool = False) -> str:
    """What to do, in a sentence; empty where nothing is known to help.

    Args:
        problem: What was raised.
        kind: Of which kind it is.
        number: The number of the system's error.
        is_anonymous: Whether the storage was asked without credentials.
    """
    if kind == "access" and number is None and (is_anonymous or _says_no_credentials(problem)):
        return _GIVE_CREDENTIALS
    if kind == "connection" and is_unknown_host(problem):
        return "There is no host of that name: look at the address"
    known = _ADVICE_BY_NUMBER.get(number or 0) or _ADVICE.get(kind)
    if known is not None:
        return known
    text = " ".join(map(message_of, causes(problem)))
    if _NO_RANGES.search(text):
        return (
            "The server does not give parts of files (HTTP range requests), which reading Parquet takes: copy the "
            "files to a disk, or serve them with one that does"
        )
    if _NO_LIBHDFS.search(text):
        return (
            "HDFS is reached by Hadoop's libhdfs, which takes Java: set HADOOP_HOME, JAVA_HOME, and CLASSPATH to what "
            "`hadoop classpath --glob` prints; or read by a webhdfs:// URL"
        )
    if _CLOSED.search(text):
        return "Something closed it while it was in use: open the dataset again, in each process for itself"
    return ""


def is_unknown_host(problem: BaseException) -> bool:
    """Whether there is no host of the name that was asked for; not so where nobody could tell just now.

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
    """Its text on one line, not yet fit to be shown."""
    try:
        return " ".join(str(problem)[:_MOST_CHARACTERS].split())
    except Exception:  # noqa: BLE001 - somebody else's `__str__` may have a fault of its own
        return "(its message cannot be had)"


def attribute(thing: Any, name: str) -> Any:
    """Of somebody else's object; None where it has none, or having it fails."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - somebody else's property may have a fault of its own
        return None
