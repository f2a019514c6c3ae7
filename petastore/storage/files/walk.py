"""What lies below a directory: every file under one name, however links lead around.

On local file systems links are followed, to files and to directories, but for a link that leads back: to a directory
around the one that is walked, or to one inside it that is entered anyway. What lies there has a name already.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyarrow import fs

from petastore.errors import StorageError
from petastore.storage.files.fsspec_listings import listed_etag

__all__ = ["Enter", "Entry", "Tree", "entry_at", "local_path", "trees_at", "walk"]

_MOST_VISITS = 100
"""How often links may lead to one directory from where other links led: there may be more ways than can be walked."""

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

Enter = Callable[[str], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """Something below a directory."""

    path: str
    """Path relative to that directory, with `/`."""

    size: int | None
    """Bytes of a file, or of the one that a link leads to; None where they are not known."""

    is_directory: bool = False
    """Whether it is a directory, or a link to one."""

    oddity: str = ""
    """What it is where it is no file and no directory, such as `a FIFO`; such a thing is never opened."""

    etag: str = ""
    """What the storage calls the version that it has; empty where a listing does not say."""

    links_to: str = ""
    """Real path of the local file that a link leads to; empty if it is not a link to a file."""

    @property
    def is_file(self) -> bool:
        """Whether it is a file, or a link to one."""
        return not self.is_directory and not self.oddity


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """A local directory that is walked: by its real path, and by what it is called in the walk."""

    real: str
    called: str

    def has(self, real: str, enter: Enter) -> bool:
        """Whether a directory is this one, around it, or inside it and entered anyway."""
        if self.is_in(real):
            return True
        inside = real.removeprefix(self.real.rstrip("/") + "/")
        if inside == real:
            return False
        parts = inside.split("/")
        return all(enter(posixpath.join(self.called, *parts[:depth])) for depth in range(1, len(parts) + 1))

    def is_in(self, real: str) -> bool:
        """Whether it is a directory, or inside it."""
        return real == self.real or self.real.startswith(real.rstrip("/") + "/")


def trees_at(filesystem: Any, paths: Iterable[str]) -> list[Tree]:
    """Directories of a local filesystem, as starts of walks."""
    return [Tree(os.path.realpath(str(local_path(filesystem, path))), "") for path in paths]


def local_path(filesystem: Any, path: str) -> str | None:
    """Where something in a `pyarrow.fs.FileSystem` lies for the operating system; None where that is no local one."""
    if isinstance(filesystem, fs.SubTreeFileSystem):
        return local_path(filesystem.base_fs, filesystem.base_path.rstrip("/") + "/" + path.lstrip("/"))
    return (path or "/") if isinstance(filesystem, fs.LocalFileSystem) else None


def entry_at(filesystem: Any, path: str) -> Entry | None:
    """What is at a path, itself called `""`; None where nothing is."""
    local = local_path(filesystem, path)
    if local is not None:
        try:
            return _local_entry("", local, is_link=os.path.islink(local))  # noqa: PTH114 - as for `os.stat`
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
) -> Iterator[Entry]:
    """Everything below a directory, in no order; nothing where there is no directory.

    Args:
        filesystem: A `pyarrow.fs.FileSystem`.
        start: Path of the directory in it.
        enter: Whether to look into a directory, given its path relative to `start`. Where one request lists all that is
            below a directory, it is not asked.
        trees: All directories that are walked, where there are several: no link is followed to one of them.
        by_level: List directory after directory, where one request could list them all.

    Raises:
        OSError: The storage refused.
        StorageError: Links lead from one to another in more ways than can be walked.
    """
    local = local_path(filesystem, start)
    if local is not None:
        yield from _walk_local(local, enter, trees or (lambda: trees_at(filesystem, [start])))
        return
    waiting = [start]
    while waiting:
        # An object store has no directories: asking for one that holds objects may find nothing.
        selector = fs.FileSelector(waiting.pop(), recursive=not by_level, allow_not_found=True)
        for info in filesystem.get_file_info(selector):
            entry = _entry(_relative(info.path, start), info)
            yield entry
            if by_level and entry.is_directory and enter(entry.path):
                waiting.append(info.path)


def _relative(path: str, start: str) -> str:
    start, path = start.strip("/"), path.lstrip("/")
    return path[len(start) :].lstrip("/") if start and path.startswith(start) else path


def _entry(path: str, info: Any) -> Entry:
    is_directory = info.type == fs.FileType.Directory
    odd = info.type not in (fs.FileType.Directory, fs.FileType.File)
    return Entry(path, info.size, is_directory, "neither a file nor a directory" if odd else "", listed_etag(info))


def _walk_local(start: str, enter: Enter, homes: Callable[[], Sequence[Tree]]) -> Iterator[Entry]:
    visits: collections.Counter[str] = collections.Counter()
    waiting: list[tuple[str, str, tuple[Tree, ...]]] = [(start, "", ())]
    while waiting:
        directory, called, linked = waiting.pop()
        for name, path, is_link in _scanned(directory):
            relative = f"{called}/{name}" if called else name
            try:
                entry = _local_entry(relative, path, is_link=is_link)
            except (FileNotFoundError, NotADirectoryError):  # somebody deleted it meanwhile
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
                        f"{start}: links lead to {real} in more than {_MOST_VISITS:,} ways, {relative} among them; "
                        "remove those that are not needed"
                    )
                waiting.append((real, relative, (*linked, Tree(real, relative))))


def _scanned(directory: str) -> list[tuple[str, str, bool]]:
    """Name, path, and whether it is a link, of each thing in a directory."""
    try:
        with os.scandir(directory) as entries:
            return [(entry.name, entry.path, entry.is_symlink()) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):  # it is none, or somebody deleted it meanwhile
        return []


def _local_entry(relative: str, path: str, *, is_link: bool) -> Entry:
    try:
        status = os.stat(path)  # noqa: PTH116 - there are many files, and `Path` takes longer than the call
    except OSError as problem:
        if problem.errno in _NOWHERE and stat.S_ISLNK(os.lstat(path).st_mode):
            return Entry(relative, None, oddity="a link that leads nowhere")
        raise
    if stat.S_ISREG(status.st_mode):
        return Entry(relative, status.st_size, links_to=os.path.realpath(path) if is_link else "")
    if stat.S_ISDIR(status.st_mode):
        return Entry(relative, None, is_directory=True)
    return Entry(relative, None, oddity=_KINDS.get(stat.S_IFMT(status.st_mode), "no file"))
