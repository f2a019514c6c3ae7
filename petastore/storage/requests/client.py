"""Who asks a storage for ranges of bytes: what every client does, whatever stands behind it."""

from __future__ import annotations

import dataclasses
import errno
import os
from typing import Any, NamedTuple, Protocol

from petastore.storage.requests.retries import FinalError

__all__ = [
    "Answer",
    "Client",
    "FileVersion",
    "NoBucketError",
    "NotTheVersionError",
    "UnsuitedError",
    "tail_between_looks",
]


@dataclasses.dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file, as far as its storage tells versions apart.

    Example:
        >>> FileVersion(1024, '"9a0364b9"'), str(FileVersion(1024, '"9a0364b9"'))
        (FileVersion(size=1024, etag='"9a0364b9"', modified=''), '1,024 bytes, etag "9a0364b9"')
    """

    size: int
    """Bytes."""

    etag: str = ""
    """The storage's name of these very bytes, or the generation; empty where it has none."""

    modified: str = ""
    """When it was written last, as the storage says it; empty where it does not."""

    @property
    def tells(self) -> bool:
        """Whether there is more to it than a size, which other bytes may have, too."""
        return bool(self.etag or self.modified)

    @property
    def strong_etag(self) -> str:
        """An etag that can be demanded; empty where the storage gives none, or a weak one."""
        return "" if self.etag.startswith("W/") else self.etag

    def is_same(self, other: FileVersion) -> bool:
        """Whether both are one version: by the etag, or else by size and time as far as they are known.

        Example:
            >>> FileVersion(7, '"a"', "monday").is_same(FileVersion(7, '"a"', "tuesday"))
            True
            >>> FileVersion(7, "", "monday").is_same(FileVersion(7, "", "tuesday"))
            False
        """
        if self.size != other.size:
            return False
        if self.etag and other.etag:
            return self.etag.removeprefix("W/") == other.etag.removeprefix("W/")
        return not (self.modified and other.modified) or self.modified == other.modified

    def __str__(self) -> str:
        name = f", etag {self.etag}" if self.etag else f", written {self.modified}" if self.modified else ""
        return f"{self.size:,} bytes{name}"


class Answer(NamedTuple):
    """What came of one request."""

    data: Any
    """The bytes, as something that gives a buffer."""

    version: FileVersion | None
    """Of which version they are; None where the answer does not tell."""


class Client(Protocol):
    """Makes one request at a time, once, in the calling thread. Thread-safe.

    What goes wrong is raised as the built-in that it is (`TimeoutError`, `ConnectionError`, `PermissionError`,
    `FileNotFoundError`), or as the file system raises it, without keys in its text where that can be helped.
    """

    @property
    def system(self) -> str:
        """What it is, for messages."""

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:
        """Some bytes of a file.

        Args:
            path: In the file system of the dataset.
            offset: Where they begin.
            length: How many; no more of an answer is taken into memory, where the client can help it.
            version: Of which version they have to be; None is of any.

        Raises:
            NotTheVersionError: The file has another version.
            UnsuitedError: This client cannot ask for such a file; another one may.
        """

    def tail(self, path: str, length: int) -> Answer:
        """The last bytes of a file, in the version that it has now, which the answer tells.

        Args:
            path: In the file system of the dataset.
            length: How many, at least 1; all of a file that has fewer.

        Raises:
            NotTheVersionError: The file has no bytes.
            UnsuitedError: This client cannot ask for such a file, or not by its end; another one may.
        """

    def version(self, path: str) -> FileVersion:
        """The version that a file has now."""


def tail_between_looks(client: Client, path: str, length: int) -> Answer:
    """The last bytes of a file, of a client whose answers do not tell of which version they are.

    Args:
        client: Asks.
        path: In the file system of the dataset.
        length: How many, at least 1.

    Raises:
        NotTheVersionError: The file has no bytes.
        ConnectionError: It was written to meanwhile.
    """
    version = client.version(path)
    if not version.size:
        raise NotTheVersionError(version)
    answer = client.get(path, max(version.size - length, 0), min(length, version.size), None)
    if not client.version(path).is_same(version):
        raise ConnectionError("the file was written to while its end was read")
    return answer._replace(version=version)


class NotTheVersionError(FinalError):
    """A file has another version than the one that was asked for; it never leaves `petastore.storage`.

    Args:
        now: The version that it has; None where the storage does not say.
    """

    def __init__(self, now: FileVersion | None) -> None:
        super().__init__(str(now))
        self.now = now


class UnsuitedError(FinalError):
    """A client cannot ask for such a file; it never leaves `petastore.storage`."""


class NoBucketError(FileNotFoundError):
    """It is not the file alone that is missing, but all that it could lie in."""

    def __init__(self, said: str) -> None:
        super().__init__(errno.ENOENT, os.strerror(errno.ENOENT), said)
        self._said = said

    def __str__(self) -> str:
        return self._said
