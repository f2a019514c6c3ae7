"""Locked files: a lock between threads and processes that goes when whoever holds it is killed.

Each lock has an open file of its own, so that threads exclude each other as processes do. A forked child holds none of
them: it closes what it inherited, else a lock would outlive its holder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from petastore.forks import made_anew_in_children

__all__ = ["LockedFile", "locked"]

_FIRST_WAIT_S = 0.00005
_LONGEST_WAIT_S = 0.002


class LockedFile:
    """A file that is open and locked. Its lock goes with `close`, with the process, and never to a child."""

    __slots__ = ("__weakref__", "fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Lets go without unlocking: the lock is the parent's."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def is_in_place(self) -> bool:
        """Whether its name still leads to it: it was neither removed nor renamed nor replaced."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        mine = os.fstat(self.fd)
        return (found.st_ino, found.st_dev) == (mine.st_ino, mine.st_dev)

    def close(self) -> None:
        """Unlocks and closes; again does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would leave it locked as long as a child has it open, too
            os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def locked(path: Path, *, patience: float | None) -> LockedFile | None:
    """The file of that name, made where there is none, locked by the caller.

    Args:
        path: Where.
        patience: Seconds to wait for whoever holds it; 0 asks once, None waits without end.

    Returns:
        None where somebody else holds it for longer.

    Raises:
        OSError: It can be neither opened nor made.

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
        file.close()  # it was removed while we waited; there may be another of that name


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
