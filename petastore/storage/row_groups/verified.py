"""What is known of local files: whose pages were found right, in which version of the file, and how long ago.

A version of a file is what changes when somebody writes to it: its inode, size, and the times of its last write and of
its last change, of which `os.utime` can set back only the first. Two things keep a time from telling of a write. Times
are coarse: a write within the same few milliseconds leaves them as they are. And a page of a file that somebody has
mapped into memory tells only of the first write to it, until the kernel has carried it to the disk, which takes it half
a minute. So a version is only believed where it was old when it was verified. File systems that keep no such times, or
those of another machine, are never believed.
"""

from __future__ import annotations

import array
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from petastore.storage.files.whole_files import TICK_NS

__all__ = [
    "BELIEVED_S",
    "SETTLED_S",
    "Asked",
    "Verified",
    "Version",
    "clock_ns",
    "file_system_tells_of_writes",
    "telling_version_of",
    "tells_of_writes",
    "version_of",
]

BELIEVED_S = 600.0
"""Seconds for which what was verified is believed."""

SETTLED_S = 60.0
"""Seconds since the last change of a file after which its times tell of every further one."""

clock_ns: Callable[[], int] = time.time_ns
"""Returns nanoseconds since 1970; the times of files are compared with it."""

_TELLING = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay"})
"""File systems whose times tell of each write. Those in memory do not tell of writes through a mapping."""

_NEVER = -math.inf
_MOUNTS = Path("/proc/self/mountinfo")
_tells: dict[int, bool] = {}

Asked: TypeAlias = tuple[tuple[str, ...], ...]
"""What is read of a row group: of each part its columns."""


class Version(NamedTuple):
    """One version of a local file; another one differs."""

    device: int
    """Number of the file system."""

    inode: int
    """Number of the file in it."""

    size: int
    """Bytes."""

    written_ns: int
    """Time of the last write, nanoseconds since 1970; anybody can set it."""

    changed_ns: int
    """Time of the last change, which nobody can set."""


def version_of(path: str) -> Version | None:
    """The version of a local file; None where there is no file.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     empty = version_of(file.name)
        ...     _ = file.write(b"7"), file.flush()
        ...     version_of(file.name) == empty
        False
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - a row group is read in less time than a `Path` is made a few times
    except OSError:
        return None
    return Version(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def telling_version_of(path: str) -> Version | None:
    """The version of a local file that any further write will change; waits where the last one was just now.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"7"), file.flush()
        ...     before = telling_version_of(file.name)
        ...     _ = file.write(b"8"), file.flush()
        ...     version_of(file.name) == before
        False
    """
    while (version := version_of(path)) is not None:
        left_ns = TICK_NS - time.time_ns() + version.changed_ns
        if not 0 < left_ns <= TICK_NS:
            break
        time.sleep(left_ns / 1e9)
    return version


class _Found:
    """When some columns of each row group of one version of a file were found right, seconds of a clock of our own."""

    __slots__ = ("at", "version")

    def __init__(self, version: Version, groups: int) -> None:
        self.version = version
        self.at = array.array("d", [_NEVER]) * groups


class Verified:
    """Which row groups may be read without verifying the checksums of their pages. Thread-safe, without a lock.

    One belongs to whoever reads the same row groups again and again, and is asked before and told after each reading.

    Args:
        settled_s: Seconds since the last change of a file after which its times tell of every further one; None is
            `SETTLED_S`.
        believed_s: Seconds for which what was verified is believed; None is `BELIEVED_S`.
    """

    def __init__(self, *, settled_s: float | None = None, believed_s: float | None = None) -> None:
        self._settled_ns = int((SETTLED_S if settled_s is None else settled_s) * 1e9)
        self._believed_s = BELIEVED_S if believed_s is None else believed_s
        self._began = time.monotonic()
        self._numbers: dict[Asked, int] = {}
        self._found: dict[tuple[str, int], _Found] = {}
        self._versions: dict[str, Version] = {}

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _key(self, path: str, asked: Asked) -> tuple[str, int]:
        number = self._numbers.get(asked)
        return path, self._numbers.setdefault(asked, len(self._numbers)) if number is None else number

    def is_believed(self, path: str, version: Version, group: int, asked: Asked) -> bool:
        """Whether these columns of a row group were found right in this very version of the file, not long ago."""
        known = self._found.get(self._key(path, asked))
        if known is None or known.version != version:
            return False
        return self._now() - known.at[group] < self._believed_s

    def is_settled(self, version: Version) -> bool:
        """Whether a file has been as it is for so long that its times will tell of every change from now on."""
        return clock_ns() - version.changed_ns > self._settled_ns

    def note(self, path: str, version: Version, group: int, groups: int, asked: Asked) -> None:
        """Columns of a row group, of which the file has `groups`, were found right in a version that was settled."""
        key = self._key(path, asked)
        known = self._found.get(key)
        if known is None or known.version != version:
            known = self._found[key] = _Found(version, groups)
        known.at[group] = self._now()

    def is_known(self, path: str, version: Version) -> bool:
        """Whether a file is in the version in which it was seen last."""
        return self._versions.get(path) == version

    def see(self, path: str, version: Version) -> None:
        """A file was found to be the one that the dataset lists, in this version."""
        self._versions[path] = version


def tells_of_writes(path: str, version: Version) -> bool:
    """Whether a file lies on a file system whose times tell of each write."""
    known = _tells.get(version.device)
    if known is None:
        known = _tells[version.device] = file_system_tells_of_writes(path)
    return known


def file_system_tells_of_writes(path: str, mounts: Path = _MOUNTS) -> bool:
    """Return whether the times of files on the file system of a path change with each write.

    Args:
        path: A file.
        mounts: Mount points in the format of `/proc/self/mountinfo`. Nothing is trusted where it cannot be read.
    """
    return _kind_of_file_system(os.path.realpath(path), _read_mounts(mounts)) in _TELLING


def _read_mounts(mounts: Path) -> Sequence[tuple[str, str]]:
    """Return each mount point with the kind of its file system."""
    try:
        lines = [line.split(" ") for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return []
    return [(_unescaped(words[4]), words[words.index("-", 6) + 1]) for words in lines if "-" in words[6:]]


def _unescaped(place: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place)


def _kind_of_file_system(path: str, mounts: Sequence[tuple[str, str]]) -> str:
    # A later mount hides an earlier one of the same place.
    above = [(len(place), number) for number, (place, _) in enumerate(mounts) if _is_below(path, place)]
    return mounts[max(above)[1]][1] if above else ""


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")
