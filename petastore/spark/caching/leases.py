"""Leases: who still uses a directory that a converter wrote, so that a later one can remove what a crash left.

Beside each directory `<name>` lies a file `_<name>.lease` that says which process made it. It is written before the
directory and deleted after it, so what has no lease was not left by a crash, and is never touched. A directory is
abandoned, and may be removed by anyone who uses the same parent, when

* its process ran where this one runs (same machine since the same boot, same container), and is gone; a process of the
  same number that was started at another moment is another process; or
* its process ran elsewhere, and its lease was not renewed for three days. Living processes renew theirs each hour.

What cannot be told, such as a lease that cannot be read, counts as used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyarrow import fs

from petastore import forks
from petastore.errors import FileMissingError, StorageError
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import create_directory, delete_file, write_file
from petastore.storage.requests.failures import answered

__all__ = ["Lease", "Leases", "abandoned_directories", "has_lease", "is_directory_name"]

_RENEWED_EVERY = 60 * 60.0
_ABANDONED_AFTER = 3 * 24 * 60 * 60.0
_MAX_BYTES = 4096
_NAME = r"\d{14}-appid-[A-Za-z0-9_.-]{1,200}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LEASE_FILE = re.compile(rf"_({_NAME})\.lease")


def is_directory_name(name: str) -> bool:
    """Whether a converter would give a directory this name.

    Example:
        >>> is_directory_name("20260102030405-appid-local-1-0b0c5f10-3a52-4a77-9a1e-0d6a1c1f2b3c")
        True
    """
    return re.fullmatch(_NAME, name) is not None


@dataclasses.dataclass(frozen=True)
class Lease:
    """Which process made a directory, and when it last said that it lives."""

    place: str
    """Where its process number means something: host, boot and container. Empty where that cannot be told."""

    pid: int
    """Number of the process."""

    start: int
    """When the process was started, in the kernel's ticks since the boot: tells processes of one number apart."""

    renewed: float
    """When it was last renewed, in seconds since 1970 of that machine's clock."""

    @classmethod
    def of_this_process(cls) -> Lease:
        """The lease of this process, renewed now."""
        return cls(_place(), os.getpid(), _started(os.getpid()) or 0, time.time())

    def is_abandoned(self, *, now: float) -> bool:
        """Whether its process is gone, as the head of this module defines it.

        Args:
            now: Seconds since 1970.

        Example:
            >>> mine = Lease.of_this_process()
            >>> mine.is_abandoned(now=mine.renewed), dataclasses.replace(mine, start=-1).is_abandoned(now=mine.renewed)
            (False, True)
        """
        if self.place and self.place == _place():
            return _started(self.pid) != self.start
        return now - self.renewed > _ABANDONED_AFTER

    def to_json(self) -> bytes:
        """The lease as it lies in its file."""
        return json.dumps({"format": "petastore.lease", "version": 1, **dataclasses.asdict(self)}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Lease | None:
        """The lease in a file, or None where it is none that this release understands.

        Example:
            >>> lease = Lease("host", 7, 8, 9.0)
            >>> Lease.from_json(lease.to_json()) == lease, Lease.from_json(b"{}")
            (True, None)
        """
        try:
            found = json.loads(data)
            if found["format"] != "petastore.lease" or found["version"] != 1:
                return None
            values = (found["place"], found["pid"], found["start"], found["renewed"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        place, pid, start, renewed = values
        whole = all(isinstance(number, int) and not isinstance(number, bool) for number in (pid, start))
        if not isinstance(place, str) or not whole or not isinstance(renewed, (int, float)):
            return None
        return cls(place, pid, start, float(renewed))


class Leases:
    """The leases of this process, renewed by one thread that runs while there are any. Thread-safe.

    A forked child has none: the directories belong to its parent.
    """

    def __init__(self, renewed_every: float = _RENEWED_EVERY) -> None:
        self._every = renewed_every
        self.make_anew()
        forks.made_anew_in_children(self)

    def make_anew(self) -> None:
        """Holds none."""
        self._lock = forks.Lock()
        self._held: dict[tuple[str, str], Location] = {}
        self._ended: threading.Event | None = None

    def take(self, parent: Location, name: str) -> None:
        """Write the lease of a directory that is going to be made, and keep it renewed.

        Args:
            parent: Where the directory is going to lie; made if it does not exist.
            name: Its name.

        Raises:
            StorageError: The storage refused.
        """
        create_directory(parent)
        _write(parent, name)
        with self._lock:
            self._held[parent.url, name] = parent
            if self._ended is None:
                self._ended = threading.Event()
                threading.Thread(target=self._renew, args=(self._ended,), name="petastore-leases", daemon=True).start()

    def give_back(self, parent: Location, name: str) -> None:
        """Delete the lease of a directory that was removed.

        Raises:
            StorageError: The storage refused.
        """
        with self._lock:
            self._held.pop((parent.url, name), None)
            if not self._held and self._ended is not None:
                self._ended.set()
                self._ended = None
        with contextlib.suppress(FileMissingError):  # another process removed what it took for abandoned
            delete_file(parent, _file(name))

    def _renew(self, ended: threading.Event) -> None:
        while not ended.wait(self._every):
            with self._lock:
                held = list(self._held.items())
            for (_, name), parent in held:
                with contextlib.suppress(StorageError):  # the next hour tries again; for three days nobody is misled
                    _write(parent, name)


def has_lease(parent: Location, name: str) -> bool:
    """Whether a converter of any process made this directory."""
    path = parent.join(_file(name))
    return is_directory_name(name) and bool(
        answered(parent, lambda: parent.filesystem.get_file_info(path).is_file, "look at", _file(name))
    )


def abandoned_directories(parent: Location) -> Iterator[str]:
    """Names of the directories in `parent` whose processes are gone; their leases are still there.

    Raises:
        StorageError: The storage refused.
    """
    selector = fs.FileSelector(parent.root, allow_not_found=True)
    listed = answered(parent, lambda: parent.filesystem.get_file_info(selector), "list the directory")
    now = time.time()
    for info in listed:
        matched = _LEASE_FILE.fullmatch(info.base_name)
        if matched is None or not info.is_file:
            continue
        lease = _read(parent, matched[1])
        if lease is not None and lease.is_abandoned(now=now):
            yield matched[1]


def _file(name: str) -> str:
    return f"_{name}.lease"


def _write(parent: Location, name: str) -> None:
    write_file(parent, _file(name), Lease.of_this_process().to_json())


def _read(parent: Location, name: str) -> Lease | None:
    def begin() -> bytes:
        with parent.filesystem.open_input_stream(parent.join(_file(name))) as file:
            data: bytes = file.read(_MAX_BYTES)
            return data

    try:
        return Lease.from_json(answered(parent, begin, "read", _file(name)))
    except FileMissingError:
        return None


def _place() -> str:
    """Host, boot and container; empty where /proc does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        container = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{socket.gethostname()}/{boot}/{container}"


def _started(pid: int) -> int | None:
    """When a process was started, in ticks since the boot; None where there is none."""
    try:
        stat: Any = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The program's name is in parentheses and may hold anything; the 22nd field is the 20th after it.
        fields = stat.rpartition(")")[2].split()
        # A zombie runs no more: it only waits for its parent to ask.
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
