"""Convert obstore's exceptions to built-in exceptions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from petastore.storage.requests.failures import shown_text
from petastore.storage.stores.interface import NoBucketError, NotTheVersionError, WrongRegionError

__all__ = ["as_builtin", "with_builtins"]

_T = TypeVar("_T")

_FROM_RUST = re.compile(r"\n\nDebug source:|^Could not parse path")
"""Pattern in messages of built-in exceptions that come from obstore.

It matches Rust debug text, or an invalid path.
"""
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_REDIRECTED = re.compile(r"(?i)redirect|PermanentRedirect|AuthorizationHeaderMalformed")
_LATE = re.compile(r"(?i)timed ?out|deadline")
_NETWORK = re.compile(
    r"(?i)error sending request|hyper|reqwest|connect|broken pipe|dns|decoding response body|incomplete|reset|eof"
)
_NO_CONTAINER = {"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"}
_ACCESS, _SERVER = {"401", "403", "407"}, {"500", "502"}
_ACCESS_BY_CODE = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired"}
"""Error codes of HTTP status 400 that mean invalid or expired credentials."""
_CHANGED = {"412", "416"}
"""HTTP statuses of a changed file.

They mean another etag, or a range beyond the end of a file that is now shorter.
"""


def with_builtins(call: Callable[..., _T], *args: object) -> _T:
    """Call obstore and return the result; raise its exceptions as built-in exceptions."""
    try:
        return call(*args)
    except Exception as problem:
        known = as_builtin(problem)
        if known is problem:
            raise
    # Raised outside `except`, so that it does not refer to obstore's exception, whose text may contain a signature.
    raise known


def as_builtin(problem: BaseException) -> BaseException:
    """Return the built-in equivalent of an obstore exception; return other exceptions unchanged."""
    name, text = type(problem).__name__, str(problem)
    if not type(problem).__module__.startswith("obstore") and not _FROM_RUST.search(text):
        return problem
    code, message = _CODE.search(text), _MESSAGE.search(text)
    detail = ": ".join(" ".join(match[1].split()) for match in (code, message) if match is not None)
    match = _STATUS.search(text)
    status = "" if match is None else match[1]
    said = f"HTTP status {status}{f' ({detail})' if detail else ''}" if status else _first_line(text)
    if name == "PreconditionError" or status in _CHANGED:
        return NotTheVersionError(None)
    if (code or status == "301") and _REDIRECTED.search(text):
        return WrongRegionError(said)
    if status == "404" or isinstance(problem, FileNotFoundError):
        return NoBucketError(said) if code is not None and code[1] in _NO_CONTAINER else FileNotFoundError(said)
    if _is_refusal(name, status, "" if code is None else code[1], text):
        return PermissionError(said)
    if status == "504" or (not status and _LATE.search(text)):
        return TimeoutError(said)
    if status in _SERVER or (not status and _NETWORK.search(text)):
        return ConnectionError(said)
    return OSError(said)  # `is_transient` recognizes status 429 and 503 in the text


def _is_refusal(name: str, status: str, code: str, text: str) -> bool:
    named = name in {"PermissionDeniedError", "UnauthenticatedError"}
    return named or status in _ACCESS or code in _ACCESS_BY_CODE or (not status and "credential" in text.lower())


def _first_line(text: str) -> str:
    first = text.partition("\n")[0].strip()
    causes = re.findall(r'(?:message: "|Custom \{ kind: \w+, error: "|: )([^"\n]{3,120})"', text.partition("\n")[2])
    return shown_text(f"{first} ({causes[-1]})" if causes else first)
