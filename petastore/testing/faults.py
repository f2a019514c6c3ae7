"""fsspec filesystem that simulates storage faults in tests, reproducibly by seed.

Pass `FaultyFileSystem` as `filesystem=` to test how your training run reacts to failing storage. The seed, the request,
and the number of earlier equal requests decide about each fault; the order of threads does not matter.

Example:
    >>> import tempfile, petastore
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = petastore.write_dataset(folder + "/users", {"id": list(range(100))})
    ...     files = FaultyFileSystem(Faults(throttled=0.3, short=0.1), seed=7)
    ...     with petastore.make_reader(folder + "/users", filesystem=files) as reader:
    ...         sorted(int(row.id) for row in reader) == list(range(100))
    True
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import io
import threading
from typing import Any, Final

import fsspec
from fsspec.spec import AbstractFileSystem

from petastore import forks
from petastore.errors import InvalidArgumentError

__all__ = ["Faults", "FaultyFileSystem"]

_NAMES: Final = ("slow", "throttled", "failed", "hung", "short", "flipped", "changed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faults:
    """Fraction of requests with each fault, from 0 to 1; the sum is at most 1.

    Example:
        >>> Faults(slow=0.5, flipped=0.6)
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: shares of faults must be from 0 to 1, and together at most 1, got
            slow=0.5, flipped=0.6. Lower them
    """

    slow: float = 0.0
    """Fraction of requests that are answered after `slow_s` seconds."""

    throttled: float = 0.0
    """Fraction of requests that raise `OSError`, as object stores do for too many requests (`503 SlowDown`)."""

    failed: float = 0.0
    """Fraction of requests that raise `ConnectionResetError`."""

    hung: float = 0.0
    """Fraction of requests that hang until `FaultyFileSystem.release`."""

    short: float = 0.0
    """Fraction of reads that return half of the bytes."""

    flipped: float = 0.0
    """Fraction of reads that return bytes with one bit flipped."""

    changed: float = 0.0
    """Fraction of file lookups that return another size and time, as if the file had been overwritten."""

    slow_s: float = 0.1
    """Duration of a slow request in seconds."""

    def __post_init__(self) -> None:
        shares = {name: getattr(self, name) for name in _NAMES}
        if not all(0 <= share <= 1 for share in shares.values()) or sum(shares.values()) > 1:
            given = ", ".join(f"{name}={share}" for name, share in shares.items() if share)
            raise InvalidArgumentError(
                f"shares of faults must be from 0 to 1, and together at most 1, got {given}. Lower them"
            )


class FaultyFileSystem(AbstractFileSystem):  # type: ignore[misc] # fsspec has no types
    """Filesystem that simulates storage faults in reads. Thread-safe.

    Writes do not have faults.

    Args:
        faults: Fraction of requests with each fault; None means no faults. You may replace the attribute at any time.
        filesystem: The fsspec filesystem with the files; None means the local filesystem.
        seed: Seed of the faults.
    """

    protocol = "faulty"
    cachable = False

    faults: Faults
    """Fraction of requests with each fault; may be replaced at any time."""

    counts: collections.Counter[str]
    """Number of requests with each fault so far; requests without a fault count as `"none"`."""

    def __init__(self, faults: Faults | None = None, filesystem: Any = None, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.faults, self.counts, self._seed = faults or Faults(), collections.Counter(), seed
        self._files = fsspec.filesystem("file") if filesystem is None else filesystem
        self._requests: collections.Counter[tuple[Any, ...]] = collections.Counter()
        self._guard, self._released = forks.Lock(), threading.Event()

    def release(self) -> None:
        """Let all hanging requests finish; later requests do not hang."""
        self._released.set()

    def _fault(self, *request: Any, of: tuple[str, ...]) -> str:
        """Return the name of the fault that a request gets, or `"none"`; count it.

        Faults that delay or fail the request take effect here: the call waits or raises an error.

        Args:
            *request: Kind and arguments of the request; equal requests are numbered.
            of: Names of the faults that this kind of request can have.
        """
        with self._guard:
            self._requests[request] += 1
            text = f"{self._seed} {request} {self._requests[request]}"
        chance = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big") / 2**48
        found = "none"
        for name in _NAMES:
            chance -= getattr(self.faults, name)
            if chance < 0:
                found = name if name in of else "none"
                break
        with self._guard:
            self.counts[found] += 1
        self._wait_or_raise(found)
        return found

    def _wait_or_raise(self, fault: str) -> None:
        if fault == "slow":
            self._released.wait(self.faults.slow_s)
        elif fault == "hung":
            self._released.wait()
        elif fault == "throttled":
            raise OSError("503 SlowDown: a fault that petastore.testing injected")
        elif fault == "failed":
            raise ConnectionResetError("connection reset: a fault that petastore.testing injected")

    def _damaged(self, data: bytes, *request: Any) -> bytes:
        fault = self._fault("read", *request, of=("slow", "throttled", "failed", "hung", "short", "flipped"))
        if fault == "short":
            return data[: len(data) // 2]
        if fault == "flipped" and data:
            flipped = bytearray(data)
            flipped[len(data) // 2] ^= 1
            return bytes(flipped)
        return data

    def _with_version(self, info: Any) -> Any:
        if info["type"] != "file":
            return info
        fault = self._fault("info", info["name"], of=("slow", "throttled", "failed", "hung", "changed"))
        if fault != "changed":
            return info
        return {**info, "size": info["size"] + 1, "mtime": (info.get("mtime") or 0) + 1}

    def info(self, path: str, **options: Any) -> Any:
        """Return size and modification time of a file.

        After a `changed` fault, they are those of another version of the file.
        """
        path = self._strip_protocol(path)
        return self._with_version({**self._files.info(path, **options), "name": path})

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """Return the entries of a directory; names begin with the path that was passed."""
        path = self._strip_protocol(path)
        absolute = len(self._files._strip_protocol(path).rstrip("/"))  # noqa: SLF001 - fsspec has no public name for it
        entries = [
            {**entry, "name": path + entry["name"][absolute:]} for entry in self._files.ls(path, detail=True, **options)
        ]
        return entries if detail else [entry["name"] for entry in entries]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return a byte range of a file; the request may have a fault."""
        data = self._files.cat_file(self._strip_protocol(path), start=start, end=end, **options)
        return self._damaged(data, path, start, end)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        """Open a file; each of its reads may have a fault."""
        file = self._files.open(self._strip_protocol(path), mode, **options)
        return _FaultyFile(self, path, file) if mode == "rb" else file

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        """Write a whole file."""
        self._files.pipe_file(self._strip_protocol(path), value, **options)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Create a directory."""
        self._files.mkdir(self._strip_protocol(path), create_parents=create_parents, **options)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """Rename a file or directory."""
        self._files.mv(self._strip_protocol(path1), self._strip_protocol(path2), **options)

    def rm(self, path: Any, **options: Any) -> None:
        """Delete files."""
        self._files.rm(path, **options)

    def rm_file(self, path: str) -> None:
        """Delete a file."""
        self._files.rm_file(self._strip_protocol(path))


class _FaultyFile(io.RawIOBase):
    """Open file whose reads have faults."""

    def __init__(self, system: FaultyFileSystem, path: str, file: Any) -> None:
        super().__init__()
        self._system, self._path, self._file = system, path, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return int(self._file.seek(offset, whence))

    def readinto(self, buffer: Any, /) -> int:
        at = self._file.tell()
        data = self._system._damaged(self._file.read(len(buffer)), self._path, at, len(buffer))  # noqa: SLF001
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
