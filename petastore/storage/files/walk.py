"""Directory walk: all files below a directory, each once; and glob patterns.

On local filesystems, links to files and directories are followed. A link to a parent of the listed directory, or to a
directory inside it, is not followed, because its files are listed under another path.

Glob patterns in paths are as in fsspec and the shell. The directory before the first wildcard is the *fixed* directory.
Partition keys are the `key=value` directories below it, for any pattern. An existing path with `*`, `?` or `[` in its
name is not a pattern.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import functools
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyarrow import fs

from petastore.errors import InvalidArgumentError, StorageError
from petastore.storage.stores.interface import listed_etag, store_of

__all__ = ["DirectoryEntry", "Enter", "Tree", "entry_at", "local_path", "pattern_at", "trees_at", "walk"]


_MOST_VISITS = 100
"""Maximum number of different chains of links through which a directory is listed.

Links to directories with further links may form exponentially many chains.
"""

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

Enter = Callable[[str], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """Entry below a directory."""

    path: str
    """Path relative to the listed directory, separated by `/`."""

    size: int | None
    """Size of the file, or of the link's target, in bytes; None if unknown."""

    is_directory: bool = False
    """Whether the entry is a directory, or a link to a directory."""

    oddity: str = ""
    """Kind of an entry that is not a file or directory, such as `a FIFO`; else empty.

    Such an entry is never opened.
    """

    etag: str = ""
    """Version name in the storage; empty if the listing has none."""

    links_to: str = ""
    """Real path of the local file to which a link leads; empty for other entries."""

    @property
    def is_file(self) -> bool:
        """Whether the entry is a file, or a link to a file."""
        return not self.is_directory and not self.oddity


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """Local directory of a walk: its real path, and its path in the walk."""

    real: str
    called: str

    def has(self, real: str, enter: Enter) -> bool:
        """Return whether a walk must not follow a link to a directory, given its real path.

        Following the link would list files twice. True if the directory is this directory or a parent of it, or if the
        walk lists the directory inside this directory anyway.

        Args:
            real: Real path of the directory.
            enter: Function that returns whether the walk lists a directory, given its path in the walk.
        """
        if self.is_in(real):
            return True
        inside = real.removeprefix(self.real.rstrip("/") + "/")
        if inside == real:
            return False
        parts = inside.split("/")
        return all(enter(posixpath.join(self.called, *parts[:depth])) for depth in range(1, len(parts) + 1))

    def is_in(self, real: str) -> bool:
        """Return whether this directory is the directory `real`, or is inside it."""
        return real == self.real or self.real.startswith(real.rstrip("/") + "/")


def trees_at(filesystem: Any, paths: Iterable[str]) -> list[Tree]:
    """Return the trees, with real paths, of directories in a local filesystem."""
    return [Tree(os.path.realpath(str(local_path(filesystem, path))), "") for path in paths]


def local_path(filesystem: Any, path: str) -> str | None:
    """Return the operating system's path of a path in a filesystem; None if not local."""
    if isinstance(filesystem, fs.SubTreeFileSystem):
        return local_path(filesystem.base_fs, filesystem.base_path.rstrip("/") + "/" + path.lstrip("/"))
    return (path or "/") if isinstance(filesystem, fs.LocalFileSystem) else None


def entry_at(filesystem: Any, path: str) -> DirectoryEntry | None:
    """Return the entry at a path; None if the path does not exist.

    The relative path of the entry is `""`.
    """
    local = local_path(filesystem, path)
    if local is not None:
        try:
            return _local_entry("", local, is_link=os.path.islink(local))  # noqa: PTH114 - faster than `Path`
        except (FileNotFoundError, NotADirectoryError):
            return None
    info = filesystem.get_file_info(path)
    return None if info.type == fs.FileType.NotFound else _entry("", info)


def walk(
    filesystem: Any,
    start: str,
    *,
    enter: Enter,
    trees: Callable[[], Sequence[Tree]] | None = None,
    by_level: bool = False,
) -> Iterator[DirectoryEntry]:
    """Yield all entries below a directory, in any order; none if it does not exist.

    Args:
        filesystem: A `pyarrow.fs.FileSystem`.
        start: Path of the directory in it.
        enter: Function that returns whether to list a directory, given its path relative to `start`. Not called if one
            request lists everything below a directory.
        trees: Function that returns all directories of the caller's walks; links to these directories are not followed.
            None means only `start`.
        by_level: Whether to list directory by directory even if one request could list everything.

    Raises:
        OSError: A storage operation failed.
        StorageError: Links form too many paths.
    """
    local = local_path(filesystem, start)
    if local is not None:
        yield from _walk_local(local, enter, trees or (lambda: trees_at(filesystem, [start])))
        return
    waiting = [start]
    while waiting:
        # A missing directory is not an error: an object store has no directories, so a request for a directory may fail
        # although objects are below it.
        selector = fs.FileSelector(waiting.pop(), recursive=not by_level, allow_not_found=True)
        try:
            infos = filesystem.get_file_info(selector)
        except NotADirectoryError:
            continue
        for info in infos:
            entry = _entry(_relative(info.path, start), info)
            yield entry
            if by_level and entry.is_directory and enter(entry.path):
                waiting.append(info.path)


def _relative(path: str, start: str) -> str:
    start, path = start.strip("/"), path.lstrip("/")
    return path[len(start) :].lstrip("/") if start and path.startswith(start) else path


def _entry(path: str, info: Any) -> DirectoryEntry:
    is_directory = info.type == fs.FileType.Directory
    odd = info.type not in (fs.FileType.Directory, fs.FileType.File)
    return DirectoryEntry(
        path, info.size, is_directory, "neither a file nor a directory" if odd else "", listed_etag(info)
    )


def _walk_local(start: str, enter: Enter, homes: Callable[[], Sequence[Tree]]) -> Iterator[DirectoryEntry]:
    visits: collections.Counter[str] = collections.Counter()
    waiting: list[tuple[str, str, tuple[Tree, ...]]] = [(start, "", ())]
    while waiting:
        directory, called, linked = waiting.pop()
        for name, path, is_link in _scanned(directory):
            relative = f"{called}/{name}" if called else name
            try:
                entry = _local_entry(relative, path, is_link=is_link)
            except (FileNotFoundError, NotADirectoryError):  # deleted after the directory was listed
                continue
            yield entry
            if not entry.is_directory or not enter(relative):
                continue
            if not is_link:
                waiting.append((path, relative, linked))
                continue
            real = os.path.realpath(path)
            if not any(tree.has(real, enter) for tree in (*homes(), *linked)):
                visits[real] += bool(linked)
                if visits[real] > _MOST_VISITS:
                    raise StorageError(
                        f"{start}: symbolic links must lead to a directory in at most {_MOST_VISITS:,} ways, got more "
                        f"for {real}, such as {relative}. Remove links that are not needed"
                    )
                waiting.append((real, relative, (*linked, Tree(real, relative))))


def _scanned(directory: str) -> list[tuple[str, str, bool]]:
    """Return name and path of each entry of a directory, and whether it is a link."""
    try:
        with os.scandir(directory) as entries:
            return [(entry.name, entry.path, entry.is_symlink()) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):  # not a directory, or deleted in the meantime
        return []


def _local_entry(relative: str, path: str, *, is_link: bool) -> DirectoryEntry:
    try:
        status = os.stat(path)  # noqa: PTH116 - faster than `Path`, and called for many files
    except OSError as problem:
        if problem.errno in _NOWHERE and stat.S_ISLNK(os.lstat(path).st_mode):
            return DirectoryEntry(relative, None, oddity="a link that leads nowhere")
        raise
    if stat.S_ISREG(status.st_mode):
        return DirectoryEntry(relative, status.st_size, links_to=os.path.realpath(path) if is_link else "")
    if stat.S_ISDIR(status.st_mode):
        return DirectoryEntry(relative, None, is_directory=True)
    return DirectoryEntry(relative, None, oddity=_KINDS.get(stat.S_IFMT(status.st_mode), "no file"))


_WILDCARD = re.compile(r"[*?\[]")
_WEB_ADDRESS = re.compile(r"https?://[^/]*/")


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """Glob pattern for the paths of a filesystem."""

    fixed: str
    """The directory before the first wildcard, in the filesystem."""

    wild: str
    """Rest of the pattern, relative to `fixed`."""

    def matches(self, filesystem: Any) -> list[str]:
        """Return the sorted paths that match the pattern, relative to `fixed`.

        Paths inside a matching directory are omitted. A name that begins with `.` or `_` matches only a part of the
        pattern that begins with the same character. `_key=value` is a partition and matches any part.

        Args:
            filesystem: A `pyarrow.fs.FileSystem`.

        Raises:
            InvalidArgumentError: `**` is combined with other characters between two slashes.
            OSError: A storage operation failed.
        """
        try:
            regex = _regex(self.wild)
        except ValueError as problem:
            raise InvalidArgumentError(f"the URL must have a valid pattern, got {self.wild}: {problem}") from None
        store_of(filesystem).forget_listings()
        found = walk(filesystem, self.fixed, enter=self._is_entered, by_level=True)
        entries = _outermost(entry for entry in found if regex.match(entry.path) and self._may_be(entry.path))
        return [entry.path for entry in _each_once(filesystem, self.fixed, entries)]

    def _is_entered(self, directory: str) -> bool:
        """Return whether a match is possible below a directory."""
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


def _outermost(entries: Iterable[DirectoryEntry]) -> list[DirectoryEntry]:
    kept: list[DirectoryEntry] = []
    directory: str | None = None
    for entry in sorted(entries, key=lambda entry: entry.path.split("/")):
        if directory is None or not entry.path.startswith(directory):
            kept.append(entry)
            directory = f"{entry.path}/" if entry.is_directory else directory
    return sorted(kept, key=lambda entry: entry.path)


def _each_once(filesystem: Any, fixed: str, entries: Sequence[DirectoryEntry]) -> list[DirectoryEntry]:
    """Return the entries that match a pattern, without links that would list files twice.

    Such a link leads to a parent directory, to another matching directory, or to a directory inside one.

    Args:
        filesystem: Filesystem of the entries.
        fixed: Directory before the first wildcard of the pattern.
        entries: Entries that match the pattern.
    """
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
    """Return the pattern in a path; None without a wildcard, or if the path exists.

    In web addresses `?` begins the query.

    Raises:
        OSError: A storage operation failed.
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
