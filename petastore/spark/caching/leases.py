"""Lease files of Spark converters: each names the process that uses a directory.

Leases make it possible to clean up after crashes.

Next to each directory `<name>` is a file `_<name>.lease`, which identifies the process that created the directory. The
lease is written before the directory and deleted after it. A directory without a lease is never deleted. A directory is
abandoned, and any process with the same parent directory may delete it, if

* its process ran on this machine (same boot, same container) and has ended (a new process with the same id has another
  start time); or
* its process ran elsewhere, and the lease was not renewed for three days. Running processes renew their leases every
  hour.

A directory whose lease cannot be read counts as being in use.
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
    """Return whether a name has the form of converter directories.

    The form is a time, the Spark application and a UUID.

    Example:
        >>> is_directory_name("20260102030405-appid-local-1-0b0c5f10-3a52-4a77-9a1e-0d6a1c1f2b3c")
        True
    """
    return re.fullmatch(_NAME, name) is not None


@dataclasses.dataclass(frozen=True)
class Lease:
    """Content of a lease file: the process that created a directory, and a time.

    The time is that of the last renewal of the lease.
    """

    place: str
    """Host, boot and container, inside which a process number is unique. Empty if unknown."""

    pid: int
    """Process number."""

    start: int
    """Start time of the process, in kernel ticks since boot; distinguishes processes with the same number."""

    renewed: float
    """Time of the last renewal, in seconds since 1970 on that machine's clock."""

    @classmethod
    def of_this_process(cls) -> Lease:
        """Return a lease that names this process, with the current time."""
        return cls(_place(), os.getpid(), _started(os.getpid()) or 0, time.time())

    def is_abandoned(self, *, now: float) -> bool:
        """Return whether the directory is abandoned, by the rules in the module docstring.

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
        """Return the content of the lease file, as JSON."""
        return json.dumps({"format": "petastore.lease", "version": 1, **dataclasses.asdict(self)}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Lease | None:
        """Parse a lease file; None if this release does not understand it.

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
    """Lease files that this process has written for its directories. Thread-safe.

    A thread renews the leases. A forked child has no leases: the directories belong to its parent.
    """

    def __init__(self, renewed_every: float = _RENEWED_EVERY) -> None:
        self._every = renewed_every
        self.make_anew()
        forks.made_anew_in_children(self)

    def make_anew(self) -> None:
        """Forget all leases, in a new object or a forked child."""
        self._lock = forks.Lock()
        self._held: dict[tuple[str, str], Location] = {}
        self._ended: threading.Event | None = None

    def take(self, parent: Location, name: str) -> None:
        """Write the lease file of a directory that will be created.

        A thread renews the lease until `give_back`.

        Args:
            parent: Parent of the directory; created if missing.
            name: Name of the directory.

        Raises:
            StorageError: A storage operation failed.
        """
        create_directory(parent)
        _write(parent, name)
        with self._lock:
            self._held[parent.url, name] = parent
            if self._ended is None:
                self._ended = threading.Event()
                threading.Thread(target=self._renew, args=(self._ended,), name="petastore-leases", daemon=True).start()

    def give_back(self, parent: Location, name: str) -> None:
        """Delete the lease file of a directory that was deleted.

        Raises:
            StorageError: A storage operation failed.
        """
        with self._lock:
            self._held.pop((parent.url, name), None)
            if not self._held and self._ended is not None:
                self._ended.set()
                self._ended = None
        with contextlib.suppress(FileMissingError):  # another process considered the directory abandoned and removed it
            delete_file(parent, _file(name))

    def _renew(self, ended: threading.Event) -> None:
        while not ended.wait(self._every):
            with self._lock:
                held = list(self._held.items())
            for (_, name), parent in held:
                with contextlib.suppress(StorageError):  # retried in an hour; the lease is valid for three days
                    _write(parent, name)


def has_lease(parent: Location, name: str) -> bool:
    """Return whether a directory has a lease file: a converter of any process made it."""
    path = parent.join(_file(name))
    return is_directory_name(name) and bool(
        answered(parent, lambda: parent.filesystem.get_file_info(path).is_file, "look at", _file(name))
    )


def abandoned_directories(parent: Location) -> Iterator[str]:
    """Yield the name of each abandoned directory in `parent`, found by its lease file.

    See `Lease.is_abandoned` for the rules. The directory itself may be missing.

    Raises:
        StorageError: A storage operation failed.
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
    """Return an identifier of host, boot and container; empty without /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        container = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{socket.gethostname()}/{boot}/{container}"


def _started(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot; None if it has ended."""
    try:
        stat: Any = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The program's name, in parentheses, may contain spaces. Fields are therefore counted after it: the start time,
        # the 22nd field of the line, is the 20th field there.
        fields = stat.rpartition(")")[2].split()
        # A zombie has ended: it only waits to be reaped by its parent.
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
