"""A file that is read through Arrow, and remembers what of the failures was the storage's.

Arrow reads files of Python through C++ and gives the same kinds of errors for a broken connection and for a damaged
page. What a file system raises while Arrow reads leaves it as a `RaisedByStorage`, which no decoder raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import fs

from petastore.storage.files.location import Location
from petastore.storage.requests.failures import RaisedByStorage, answered, is_of_storage

__all__ = ["open_to_read"]


def open_to_read(location: Location, relative: str) -> Any:
    """A file of the dataset, a `pyarrow.NativeFile` open for reading at any place.

    Those of Arrow's own file systems are as they are: nothing of Python stands between storage and decoder.

    Raises:
        FileMissingError: There is no such file.
        StorageError: The storage refused; reading may raise `RaisedByStorage` and what Arrow raises.

    Example:
        >>> from petastore.storage.files.location import open_location
        >>> open_to_read(open_location("memory://bucket/frames"), "part-0.parquet")
        Traceback (most recent call last):
        petastore.errors.FileMissingError: memory://bucket/frames: the file part-0.parquet is missing: MemoryFileSystem
        raised FileNotFoundError: /bucket/frames/part-0.parquet
    """
    path, store, filesystem = location.join(relative), location.store, location.filesystem
    if not isinstance(filesystem, fs.PyFileSystem):
        return answered(location, lambda: filesystem.open_input_file(path), "open", relative)
    opening = (lambda: store.open(path, mode="rb")) if store is not None else lambda: filesystem.open_input_file(path)
    return pa.PythonFile(_WatchedFile(answered(location, opening, "open", relative)), mode="r")


class _WatchedFile:
    """What Arrow asks of a file of Python that is read."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int = -1) -> Any:
        return _watched(self._file.read, size)

    def seek(self, place: int, whence: int = 0) -> Any:
        return _watched(self._file.seek, place, whence)

    def tell(self) -> Any:
        return _watched(self._file.tell)

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        # What was to be read was read: nothing is lost with a file that cannot be thrown away.
        with contextlib.suppress(RaisedByStorage):
            _watched(self._file.close)


def _watched(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except BaseException as problem:
        if not is_of_storage(problem):
            raise
        raise RaisedByStorage(problem) from None
