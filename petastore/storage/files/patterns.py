"""Patterns in place of paths: `part-*.parquet`, `day=*/x?`, `**/*.parquet`, as fsspec and the shell know them.

The directory before the first wildcard is the *fixed* one: what is found below it has its partition keys from there on,
whatever else is found. A path that exists with `*`, `?` or `[` in its name is no pattern.
"""

from __future__ import annotations

import dataclasses
import functools
import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pyarrow import fs

from petastore.errors import InvalidArgumentError
from petastore.storage.files.fsspec_listings import forget_listings
from petastore.storage.files.walk import Entry, entry_at, local_path, trees_at, walk

__all__ = ["Pattern", "pattern_at"]

_WILDCARD = re.compile(r"[*?\[]")
_WEB_ADDRESS = re.compile(r"https?://[^/]*/")


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """Which paths of a filesystem are meant."""

    fixed: str
    """The directory before the first wildcard, in the filesystem."""

    wild: str
    """The rest, relative to it."""

    def matches(self, filesystem: Any) -> list[str]:
        """Paths that match, relative to the fixed directory, sorted; none that lies in a directory that matches too.

        A name that begins with `.` or `_` is found only where a part of the pattern begins so, too; `_key=value` is a
        partition, and found always.

        Args:
            filesystem: A `pyarrow.fs.FileSystem`.

        Raises:
            InvalidArgumentError: `**` stands beside something else between two slashes.
            OSError: The storage refused.
        """
        handler = getattr(filesystem, "handler", None)
        try:
            regex = _regex(self.wild)
        except ValueError as problem:
            raise InvalidArgumentError(f"the pattern {self.wild} cannot be understood: {problem}") from None
        if isinstance(handler, fs.FSSpecHandler):
            entries: Iterable[Entry] = self._found_by(handler.fs)
        else:
            entries = walk(filesystem, self.fixed, enter=self._is_entered, by_level=True)
            entries = (entry for entry in entries if regex.match(entry.path))
        entries = _outermost(entry for entry in entries if entry.path and self._may_be(entry.path))
        return [entry.path for entry in _each_once(filesystem, self.fixed, entries)]

    def _found_by(self, store: Any) -> list[Entry]:
        import glob  # local patterns are walked by ours

        forget_listings(store)
        infos = store.glob(f"{glob.escape(self.fixed.rstrip('/'))}/{self.wild}", detail=True)
        start = len(self.fixed.strip("/"))
        return [
            Entry(path.strip("/")[start:].strip("/"), info.get("size"), info.get("type") == "directory")
            for path, info in infos.items()
        ]

    def _is_entered(self, directory: str) -> bool:
        """Whether there may be a match below a directory."""
        names, wild = directory.split("/"), self.wild.split("/")
        for name, part in zip(names, wild, strict=False):
            if part == "**":
                return self._may_be(directory)
            if not _regex(part).match(name):
                return False
        return len(names) < len(wild) and self._may_be(directory)

    def _may_be(self, path: str) -> bool:
        hidden = [name for name in path.split("/") if name.startswith(".") or (name[:1] == "_" and "=" not in name)]
        wild = self.wild.split("/")
        return all(any(part[:1] == name[:1] and _regex(part).match(name) for part in wild) for name in hidden)


@functools.lru_cache(maxsize=64)
def _regex(wild: str) -> re.Pattern[str]:
    from fsspec.utils import glob_translate

    return re.compile(glob_translate(wild))


def _outermost(entries: Iterable[Entry]) -> list[Entry]:
    kept: list[Entry] = []
    directory: str | None = None
    for entry in sorted(entries, key=lambda entry: entry.path.split("/")):
        if directory is None or not entry.path.startswith(directory):
            kept.append(entry)
            directory = f"{entry.path}/" if entry.is_directory else directory
    return sorted(kept, key=lambda entry: entry.path)


def _each_once(filesystem: Any, fixed: str, entries: Sequence[Entry]) -> list[Entry]:
    """Without links that lead back: to a directory around them, or to one that was found, too, or inside such a one."""
    directories = [posixpath.join(fixed, entry.path) for entry in entries if entry.is_directory]
    if local_path(filesystem, fixed) is None:
        return list(entries)
    trees = dict(zip(directories, trees_at(filesystem, directories), strict=True))
    above = dict(zip(directories, trees_at(filesystem, map(posixpath.dirname, directories)), strict=True))
    links = {
        path for path, tree in trees.items() if tree.real != posixpath.join(above[path].real, posixpath.basename(path))
    }
    others = [tree for path, tree in trees.items() if path not in links]
    back = {
        path
        for path in links
        if above[path].is_in(trees[path].real) or any(tree.has(trees[path].real, _is_any) for tree in others)
    }
    return [entry for entry in entries if posixpath.join(fixed, entry.path) not in back]


def _is_any(_: str) -> bool:
    return True


def pattern_at(filesystem: Any, path: str) -> Pattern | None:
    """The pattern that a path in a filesystem is; None where it has no wildcard, or exists as it is.

    In web addresses `?` begins the query.

    Raises:
        OSError: The storage refused.
    """
    address = _WEB_ADDRESS.match(path)
    if address and "?" in path:
        return None
    parts = path.split("/")
    first = address[0].count("/") if address else 0
    wild = [number for number in range(first, len(parts)) if _WILDCARD.search(parts[number])]
    if not wild or entry_at(filesystem, path) is not None:
        return None
    for number in wild:
        if number + 1 == len(parts) or entry_at(filesystem, "/".join(parts[: number + 1])) is None:
            return Pattern("/".join(parts[:number]) or ("/" if path.startswith("/") else ""), "/".join(parts[number:]))
    return None
