"""Ranges of bytes by obstore: object stores and web servers, for less processor time than Python's clients take."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from petastore.storage.obstores.failures import as_builtin, translated
from petastore.storage.obstores.kept_stores import Store, Stores
from petastore.storage.requests.client import Answer, FileVersion, NoBucketError, NotTheVersionError, UnsuitedError

__all__ = ["ObstoreClient", "is_usable", "obstore_here"]

_SYSTEM = "obstore"
_T = TypeVar("_T")

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
        by_generation: Whether versions are told apart, and demanded, by the number that the store gives each; else by
            etags.
    """

    system = _SYSTEM

    def __init__(self, stores: Stores, *, by_generation: bool = False) -> None:
        self._stores = stores
        self._by_generation = by_generation

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:
        """Some bytes of a file, of a version.

        Raises:
            NotTheVersionError: The file has another version.
            UnsuitedError: obstore cannot ask for such a path, or in that region.
            OSError: Anything else.
        """
        options: dict[str, Any] = {"range": (offset, offset + length)}
        if version is not None and version.strong_etag:
            options["version" if self._by_generation else "if_match"] = version.strong_etag

        def ask(store: Store, key: str) -> Answer:
            result = obstore_here().get(store, key, options=options)
            now = self._version_of(result.meta)
            if result.range != (offset, offset + length):
                if now.size < offset + length or (version is not None and now.size != version.size):
                    raise NotTheVersionError(now)
                raise ConnectionError(f"bytes {offset:,} to {offset + length:,} were asked for, {result.range} came")
            return Answer(result.bytes(), now)

        if not self._by_generation:
            return self.asked(path, ask)
        with self._telling_generations(path, version):
            return self.asked(path, ask)

    def tail(self, path: str, length: int) -> Answer:
        """The last bytes of a file, in the version that it has now.

        Raises:
            NotTheVersionError: The file has no bytes.
            UnsuitedError: obstore cannot ask for such a path, in that region, or by the end of a file.
            OSError: Anything else.
        """

        def ask(store: Store, key: str) -> Answer | FileVersion:
            try:
                result = obstore_here().get(store, key, options={"range": {"suffix": length}})
            except Exception as problem:
                if type(problem).__name__ != "NotSupportedError":
                    raise
                return self._version_of(obstore_here().head(store, key))  # Azure counts from the begin alone
            return Answer(result.bytes(), self._version_of(result.meta))

        answer = self.asked(path, ask)
        if isinstance(answer, Answer):
            return answer
        if not answer.size:
            raise NotTheVersionError(answer)
        return self.get(path, max(answer.size - length, 0), min(length, answer.size), answer)

    def version(self, path: str) -> FileVersion:
        """The version that a file has now.

        Raises:
            UnsuitedError: obstore cannot ask for such a path, or in that region.
            OSError: Anything else.
        """

        def ask(store: Store, key: str) -> FileVersion:
            try:
                # Not by HEAD: where that fails, its answer may not say why.
                return self._version_of(obstore_here().get(store, key, options={"range": (0, 1)}).meta)
            except Exception as problem:
                if not isinstance(as_builtin(problem), NotTheVersionError):
                    raise
                return self._version_of(obstore_here().head(store, key))  # it has no first byte

        return self.asked(path, ask)

    def asked(self, path: str, ask: Callable[[Store, str], _T]) -> _T:
        """What the store of a path answers; who is refused asks once more if what signs requests is other by now."""
        store, key = self._stores(path)
        try:
            with translated():
                return ask(store, key)
        except PermissionError:
            if not self._stores.refused(path, store):
                raise
        with translated():
            return ask(*self._stores(path))

    def _version_of(self, meta: Mapping[str, Any]) -> FileVersion:
        name = meta.get("version") if self._by_generation else meta.get("e_tag")
        return FileVersion(int(meta["size"]), name or "", str(meta.get("last_modified") or ""))

    @contextlib.contextmanager
    def _telling_generations(self, path: str, version: FileVersion | None) -> Iterator[None]:
        """Who asks for a generation that is no more is told that there is nothing, also where there is another one."""
        try:
            yield
        except FileNotFoundError as problem:
            if version is None or isinstance(problem, NoBucketError):
                raise
            raise NotTheVersionError(self.version(path)) from None


def obstore_here() -> Any:
    """The module, in the process that began to use it.

    Raises:
        UnsuitedError: It was used before this process was forked.
    """
    global _used_in
    import obstore

    if _used_in is None:
        _used_in = os.getpid()
    elif _used_in != os.getpid():
        raise UnsuitedError("obstore was used before this process was forked")
    return obstore
