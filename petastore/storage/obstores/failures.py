"""What obstore raises, as the built-in that it is."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from petastore.storage.requests.client import NoBucketError, NotTheVersionError, UnsuitedError
from petastore.storage.requests.shown import shown_text

__all__ = ["as_builtin", "translated"]

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
"""With status 400."""
_CHANGED = {"412", "416"}
"""Another etag; or the file has become so short that the range lies behind its end."""


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """What obstore raises in a block, as the built-in that it is.

    Raises:
        NotTheVersionError: A file has another version than the one that was demanded.
        NoBucketError: There is no such bucket or container.
        UnsuitedError: obstore cannot ask so.
    """
    try:
        yield
    except (OSError, UnsuitedError, NotTheVersionError) as problem:
        if type(problem).__module__ == "builtins" and isinstance(problem, FileNotFoundError):
            raise as_builtin(problem) from None
        raise
    except Exception as problem:
        if not type(problem).__module__.startswith(("obstore", "builtins")):
            raise  # of who looks for credentials
        raise as_builtin(problem) from None


def as_builtin(problem: Exception) -> Exception:
    """What an exception of obstore's is."""
    name, text = type(problem).__name__, str(problem)
    code, message = _CODE.search(text), _MESSAGE.search(text)
    detail = ": ".join(" ".join(match[1].split()) for match in (code, message) if match is not None)
    match = _STATUS.search(text)
    status = "" if match is None else match[1]
    said = f"HTTP status {status}{f' ({detail})' if detail else ''}" if status else _first_line(text)
    if name == "PreconditionError" or status in _CHANGED:
        return NotTheVersionError(None)
    if name in {"InvalidPathError", "NotSupportedError"} or "parse path" in text:
        return UnsuitedError(said)
    if (code or status == "301") and _REDIRECTED.search(text):
        return UnsuitedError(said)
    if status == "404" or isinstance(problem, FileNotFoundError):
        return NoBucketError(said) if code is not None and code[1] in _NO_CONTAINER else FileNotFoundError(said)
    if _is_refusal(name, status, "" if code is None else code[1], text):
        return PermissionError(said)
    if status == "504" or (not status and _LATE.search(text)):
        return TimeoutError(said)
    if status in _SERVER or (not status and _NETWORK.search(text)):
        return ConnectionError(said)
    return OSError(said)  # of which one with status 429 or 503 is known by that


def _is_refusal(name: str, status: str, code: str, text: str) -> bool:
    named = name in {"PermissionDeniedError", "UnauthenticatedError"}
    return named or status in _ACCESS or code in _ACCESS_BY_CODE or (not status and "credential" in text.lower())


def _first_line(text: str) -> str:
    first = text.partition("\n")[0].strip()
    causes = re.findall(r'(?:message: "|Custom \{ kind: \w+, error: "|: )([^"\n]{3,120})"', text.partition("\n")[2])
    return shown_text(f"{first} ({causes[-1]})" if causes else first)
