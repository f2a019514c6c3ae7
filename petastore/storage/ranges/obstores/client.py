"""Ranges of bytes by obstore: object stores and web servers, for less processor time than Python's clients take."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from petastore.forks import made_anew_in_children
from petastore.storage.ranges.client import Answer, FileVersion, NoBucketError, NotTheVersionError, UnsuitedError
from petastore.storage.ranges.obstore_settings import HttpSettings, S3Settings, http_place
from petastore.storage.requests.shown import shown_text

__all__ = ["ObstoreClient", "http_stores", "is_usable", "s3_stores"]

_SYSTEM = "obstore"
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_REDIRECTED = re.compile(r"(?i)redirect|PermanentRedirect|AuthorizationHeaderMalformed")
_LATE = re.compile(r"(?i)timed ?out|deadline")
_NETWORK = re.compile(
    r"(?i)error sending request|hyper|reqwest|connect|broken pipe|dns|decoding response body|incomplete|reset|eof"
)
_NO_CREDENTIALS = "no credentials were found"
_ACCESS, _SERVER = {"401", "403", "407"}, {"500", "502"}
_CHANGED = {"412", "416"}
"""Another etag; or the file has become so short that the range lies behind its end."""
_REFRESHED_EVERY = dt.timedelta(minutes=10)
_CONNECT_S, _READ_S = 10.0, 30.0

Store = Any
Stores = Callable[[str], tuple[Store, str]]
"""The store of a path of the file system, and the path in it."""

_used_in: int | None = None
"""The process that began to use obstore."""


def is_usable() -> bool:
    """Whether obstore is installed and works here.

    Its threads are not in a child that was forked after they had been started, and whoever asks there waits for ever.
    """
    if _used_in is not None and _used_in != os.getpid():
        return False
    try:
        import obstore  # noqa: F401 - whether it is there is what is asked
    except ImportError:
        return False
    return True


class ObstoreClient:
    """Asks obstore, which does not try again by itself.

    Args:
        stores: Of each path: its store, and the path there.
    """

    system = _SYSTEM

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:
        """Some bytes of a file, of a version.

        Raises:
            NotTheVersionError: The file has another version.
            UnsuitedError: obstore cannot ask for such a path, or in that region.
            OSError: Anything else.
        """
        began = time.perf_counter()
        options: dict[str, Any] = {"range": (offset, offset + length)}
        if version is not None and version.strong_etag:
            options["if_match"] = version.strong_etag
        with _translated():
            store, key = self._stores(path)
            result = _obstore().get(store, key, options=options)
            found = _version_of(result.meta)
            if result.range != (offset, offset + length):
                if found.size < offset + length or (version is not None and found.size != version.size):
                    raise NotTheVersionError(found)
                raise ConnectionError(f"bytes {offset:,} to {offset + length:,} were asked for, {result.range} came")
            first = time.perf_counter()
            data = result.bytes()
        return Answer(data, found, first - began, time.perf_counter() - first)

    def version(self, path: str) -> FileVersion:
        """The version that a file has now.

        Raises:
            UnsuitedError: obstore cannot ask for such a path, or in that region.
            OSError: Anything else.
        """
        with _translated():
            store, key = self._stores(path)
            try:
                # Not by HEAD: where that fails, its answer may not say why.
                return _version_of(_obstore().get(store, key, options={"range": (0, 1)}).meta)
            except Exception as problem:
                if not isinstance(_as_builtin(problem), NotTheVersionError):
                    raise
                return _version_of(_obstore().head(store, key))  # it has no first byte


def _obstore() -> Any:
    global _used_in
    import obstore

    if _used_in is None:
        _used_in = os.getpid()
    elif _used_in != os.getpid():
        raise UnsuitedError("obstore was used before this process was forked")
    return obstore


def _version_of(meta: Mapping[str, Any]) -> FileVersion:
    return FileVersion(int(meta["size"]), meta.get("e_tag") or "", str(meta.get("last_modified") or ""))


class _Credentials(Protocol):
    def __call__(self) -> dict[str, Any]: ...


class _Kept:
    """Stores by name, each made when it is first asked for. Thread-safe."""

    def __init__(self, make: Callable[[str], Store]) -> None:
        self._make = make
        self._stores: dict[str, Store] = {}
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Has a lock that nobody holds."""
        self._lock = threading.Lock()

    def __call__(self, name: str) -> Store:
        with self._lock:
            store = self._stores.get(name)
            if store is None:
                store = self._stores[name] = self._make(name)
        return store


def s3_stores(settings: S3Settings, timeout_s: float | None) -> Stores:
    """Stores of buckets, for paths such as `bucket/a/b.parquet`.

    Args:
        settings: How they are reached.
        timeout_s: Seconds that a request may take; None is as long as bytes come.
    """
    if settings.anonymous:
        signed: dict[str, Any] = {"skip_signature": True}
    else:
        signed = {"credential_provider": _given(*settings.keys) if settings.keys else _looked_for(settings.profile)}

    def make(bucket: str) -> Store:
        from obstore.store import S3Store

        options: Any = {**settings.client_options, **_time_limits(timeout_s)}
        config: Any = settings.config
        return S3Store(bucket, config=config, **signed, client_options=options, retry_config={"max_retries": 0})

    kept = _Kept(make)

    def of_path(path: str) -> tuple[Store, str]:
        bucket, _, key = path.partition("/")
        return kept(bucket), key

    return of_path


def http_stores(settings: HttpSettings, timeout_s: float | None) -> Stores:
    """Stores of web servers, for paths that are addresses.

    Args:
        settings: How they are reached.
        timeout_s: Seconds that a request may take; None is as long as bytes come.
    """

    def make(server: str) -> Store:
        from obstore.store import HTTPStore

        options: Any = {**settings.client_options, **_time_limits(timeout_s)}
        return HTTPStore(server, client_options=options, retry_config={"max_retries": 0})

    kept = _Kept(make)

    def of_path(path: str) -> tuple[Store, str]:
        place = http_place(path)
        if place is None:
            raise UnsuitedError("an address with a query, or one that is not written in the usual way")
        return kept(place[0]), place[1]

    return of_path


def _time_limits(timeout_s: float | None) -> dict[str, Any]:
    """A request that hangs ends while there is time for another one."""
    whole = timeout_s or 86400.0
    times = {"timeout": whole, "connect_timeout": min(_CONNECT_S, whole / 4), "read_timeout": min(_READ_S, whole / 4)}
    return {name: dt.timedelta(seconds=value) for name, value in times.items()}


def _given(key: str, secret: str, token: str | None) -> _Credentials:
    """Credentials that somebody gave; as a function, for obstore shows its settings to everybody."""

    def credentials() -> dict[str, Any]:
        return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}

    return credentials


def _looked_for(profile: str | None) -> _Credentials:
    """Credentials from where Amazon's tools have them: the environment, files, the machine; refreshed in time."""
    found: list[Any] = []

    def credentials() -> dict[str, Any]:
        try:
            from botocore.session import Session
        except ImportError:
            raise UnsuitedError("credentials are looked for by botocore, which is not installed") from None
        if not found:
            found.append(Session(profile=profile).get_credentials())
        if found[0] is None:
            found.clear()
            raise PermissionError(_NO_CREDENTIALS)
        frozen = found[0].get_frozen_credentials()
        expires = dt.datetime.now(dt.UTC) + _REFRESHED_EVERY
        keys = {"access_key_id": frozen.access_key, "secret_access_key": frozen.secret_key, "token": frozen.token}
        return {**keys, "expires_at": expires}

    return credentials


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """What obstore raises, as the built-in that it is."""
    try:
        yield
    except (OSError, UnsuitedError, NotTheVersionError) as problem:
        if type(problem).__module__ == "builtins" and isinstance(problem, FileNotFoundError):
            raise _as_builtin(problem) from None
        raise
    except Exception as problem:  # noqa: BLE001 - all of obstore's derive from nothing else
        raise _as_builtin(problem) from None


def _as_builtin(problem: Exception) -> Exception:
    name, text = type(problem).__name__, str(problem)
    code, message = _CODE.search(text), _MESSAGE.search(text)
    detail = ": ".join(match[1] for match in (code, message) if match is not None)
    match = _STATUS.search(text)
    status = "" if match is None else match[1]
    said = f"HTTP status {status}{f' ({detail})' if detail else ''}" if status else _first_line(text)
    if name == "PreconditionError" or status in _CHANGED:
        return NotTheVersionError(None)
    if name in {"InvalidPathError", "NotSupportedError"} or "parse path" in text:
        return UnsuitedError(said)
    if (code or status == "301") and _REDIRECTED.search(text):
        return UnsuitedError(said)
    if _NO_CREDENTIALS in text or (not status and "credential" in text.lower()):
        return PermissionError(f"{_NO_CREDENTIALS} in the environment, in files, or by the machine")
    if status == "404" or isinstance(problem, FileNotFoundError):
        return NoBucketError(said) if "NoSuchBucket" in text else FileNotFoundError(said)
    if status in _ACCESS or name in {"PermissionDeniedError", "UnauthenticatedError"}:
        return PermissionError(said)
    if status == "504" or (not status and _LATE.search(text)):
        return TimeoutError(said)
    if status in _SERVER or (not status and _NETWORK.search(text)):
        return ConnectionError(said)
    return OSError(said)  # of which one with status 429 or 503 is known by that


def _first_line(text: str) -> str:
    first = text.partition("\n")[0].strip()
    causes = re.findall(r'(?:message: "|Custom \{ kind: \w+, error: "|: )([^"\n]{3,120})"', text.partition("\n")[2])
    return shown_text(f"{first} ({causes[-1]})" if causes else first)
