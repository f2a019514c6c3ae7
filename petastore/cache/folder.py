"""Cache directory: default location and limit, file locks, and kinds of files.

```text
petastore-cache-1/
├─ lock          empty file; locked while the table is changed
├─ ledger        the table
├─ entries/ab/   one file per entry, named by the digest of its key, which begins with ab
├─ writing/      entries that are being fetched or written, each locked by its writer
└─ futures/      order in which each open reader will use entries; locked by the reader
```

The kernel releases the lock of a killed process. Each lock opens its file separately, so that a lock also excludes
other threads of the same process. A forked child closes the inherited lock files; otherwise a lock would still be held
after the parent ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from petastore.byte_sizes import ByteSize, byte_size
from petastore.cache.entry_file import blocks
from petastore.cache.table import FUTURE, KEPT, WRITING, Rows
from petastore.errors import InvalidArgumentError
from petastore.forks import made_anew_in_children

__all__ = [
    "LEAST_LIMIT",
    "Folder",
    "LockedFile",
    "cache_location",
    "limit_of_free_disk",
    "locked",
    "names_in",
    "user_cache_directory",
    "verified_limit",
]

_FIRST_WAIT_S = 0.00005
_LONGEST_WAIT_S = 0.002


class LockedFile:
    """Open and locked file.

    The lock ends with `close` or with the process. A child process never inherits it.
    """

    __slots__ = ("__weakref__", "fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Close the file in a forked child, without releasing the lock.

        The parent still holds the lock.
        """
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def is_in_place(self) -> bool:
        """Whether the file is still at its path, and was not removed, renamed or replaced."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        mine = os.fstat(self.fd)
        return (found.st_ino, found.st_dev) == (mine.st_ino, mine.st_dev)

    def close(self) -> None:
        """Unlock and close the file. May be called again."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            # Without an explicit unlock, the lock would stay while a child process has the file open.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def locked(path: Path, *, patience: float | None) -> LockedFile | None:
    """Open and lock a file, which is created if missing.

    Args:
        path: Path of the lock file.
        patience: Seconds to wait for the lock; 0 tries once, None waits without limit.

    Returns:
        The locked file; None if another owner holds the lock for longer.

    Raises:
        OSError: The file cannot be opened or created.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with locked(Path(folder, "lock"), patience=None):
        ...         print(locked(Path(folder, "lock"), patience=0))
        None
    """
    deadline = None if patience is None else time.monotonic() + patience
    while True:
        file = LockedFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        try:
            if not _lock(file.fd, deadline):
                file.close()
                return None
            if file.is_in_place:
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # the file was removed during the wait; there may be another of that name


def _lock(fd: int, deadline: float | None) -> bool:
    if deadline is None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        return True
    wait = _FIRST_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
        else:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(wait)
        wait = min(wait * 1.5, _LONGEST_WAIT_S)


LEAST_LIMIT = 1 << 16
"""Smallest allowed limit of a cache in bytes."""

_SHARE = 4

_NAME = re.compile(r"[0-9a-f]{32}")


class Folder:
    """Files and directories of one cache.

    Args:
        root: Path of the cache's folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = root / "lock"
        self.ledger = root / "ledger"
        self.writing = root / "writing"
        self.futures = root / "futures"
        self._entries = f"{root}/entries/"

    def make(self) -> None:
        """Create the directories, readable only by the user."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.root / "entries", self.writing, self.futures):
            folder.mkdir(mode=0o700, exist_ok=True)

    def entry(self, name: str) -> str:
        """Return the path of an entry; a string, because it is computed for every hit."""
        return f"{self._entries}{name[:2]}/{name}"

    def rename(self, path: Path, target: Path) -> None:
        """Rename a file atomically inside the folder.

        The target directory is created if it is missing.
        """
        try:
            path.rename(target)
        except FileNotFoundError:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            path.rename(target)

    def remove_entry(self, name: str) -> None:
        """Remove an entry file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            Path(self.entry(name)).unlink()

    def files(self) -> Rows:
        """Return the files of the cache as table rows; remove foreign and leftover files.

        Leftover files are those of killed processes. Files that are renamed during the listing are not missed, because
        the directory `writing`, from which they are renamed, is listed first.
        """
        found: dict[str, tuple[int, int, int]] = {}
        found.update(self._held(self.writing, WRITING))
        found.update(self._held(self.futures, FUTURE))
        found.update(self._kept())
        digests = np.frombuffer(bytes.fromhex("".join(found)), np.dtype("<u8")).reshape(-1, 2)
        numbers = np.array(list(found.values()), np.int64).reshape(-1, 3)
        return Rows(digests, numbers[:, 0], numbers[:, 1], numbers[:, 2])

    def _kept(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        for path in _scanned(self._entries):
            if not path.is_dir(follow_symlinks=False):
                Path(path).unlink()
                continue
            for file in _scanned(path.path):
                with contextlib.suppress(FileNotFoundError):  # the file is being removed
                    found = file.stat(follow_symlinks=False)
                    if _NAME.fullmatch(file.name) and file.name[:2] == path.name and stat.S_ISREG(found.st_mode):
                        yield file.name, (blocks(found.st_size), KEPT, found.st_mtime_ns)
                    elif not stat.S_ISDIR(found.st_mode):
                        Path(file).unlink()

    @staticmethod
    def _held(folder: Path, state: int) -> Iterator[tuple[str, tuple[int, int, int]]]:
        for file in _scanned(folder):
            held = locked(Path(file.path), patience=0)
            if held is not None:
                with held:
                    Path(file).unlink()
            elif _NAME.fullmatch(file.name):
                with contextlib.suppress(FileNotFoundError):  # the process that created the file may have removed it
                    size = blocks(file.stat(follow_symlinks=False).st_size)
                    if size:
                        yield file.name, (size, state, 0)


def names_in(folder: Path) -> set[str]:
    """Return the names of all files in a folder."""
    return {file.name for file in _scanned(folder)}


def _scanned(folder: Path | str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def user_cache_directory() -> Path:
    """Return `$PETASTORE_CACHE`, or else `petastore` in the user's cache directory.

    Example:
        >>> user_cache_directory().is_absolute()
        True
    """
    named = os.environ.get("PETASTORE_CACHE")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path("~/Library/Caches/petastore").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "petastore"


def cache_location(asked: str | os.PathLike[str] | None) -> Path:
    """Return the directory of a cache.

    Args:
        asked: Local directory; None means the user's cache directory.

    Raises:
        InvalidArgumentError: `asked` is not a local directory.

    Example:
        >>> cache_location("/scratch")
        PosixPath('/scratch')
    """
    if asked is None:
        return user_cache_directory()
    if not isinstance(asked, (str, os.PathLike)) or not os.fspath(asked) or "://" in os.fspath(asked):
        raise InvalidArgumentError(
            f"cache_location must be a local directory, or None for the user's cache directory, got {asked!r}"
        )
    return Path(asked)


def verified_limit(asked: ByteSize | None) -> int | None:
    """Check the limit of a cache, and return it in bytes; None stays None.

    Raises:
        InvalidArgumentError: The limit is not a size in bytes, or is below the minimum.
    """
    return None if asked is None else byte_size(asked, name="cache_size_limit", least=LEAST_LIMIT)


def limit_of_free_disk(directory: Path) -> int:
    """Return a quarter of the free disk space in bytes, at least `LEAST_LIMIT`.

    Example:
        >>> limit_of_free_disk(Path("/")) >= LEAST_LIMIT
        True
    """
    return max(shutil.disk_usage(directory).free // _SHARE, LEAST_LIMIT)
