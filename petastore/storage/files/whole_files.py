"""Small files of a dataset that are read, and put in place, as a whole; and what else is done to whole files.

fsspec's file systems get and put whole files in one request: opening one to write it would show readers an empty file
for a while, and open files of some share their place.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid

from petastore.errors import DatasetNotFoundError, FileMissingError, MetadataError, StorageError
from petastore.storage.files.fsspec_listings import forget_listings
from petastore.storage.files.location import Location
from petastore.storage.requests.failure_kinds import attribute
from petastore.storage.requests.failures import answered, answered_once, failure, raise_alone
from petastore.storage.requests.under_way import waiting_for

__all__ = [
    "TICK_NS",
    "create_directory",
    "delete_file",
    "delete_quietly",
    "read_range",
    "read_up_to",
    "read_whole",
    "rename",
    "replace_whole",
    "write_file",
]


def read_whole(location: Location, relative: str, *, max_bytes: int) -> bytes | None:
    """The bytes of a file, or None where there is none.

    On an object store it is of one version, though others may replace it meanwhile.

    Raises:
        MetadataError: It is larger than `max_bytes`; no memory was taken for it.
        StorageError: The storage refused.
    """
    path = location.join(relative)

    def get() -> bytes:
        with location.filesystem.open_input_file(path) as source:
            size = source.size()
            _check_size(size, location, relative, max_bytes)
            data: bytes = source.read(size)
            return data

    try:
        if location.store is None:
            return answered(location, get, "read", relative)
        return _of_store(location, relative, max_bytes)
    except FileMissingError:
        return None


def _of_store(location: Location, relative: str, max_bytes: int) -> bytes:
    path, store, data = location.join(relative), location.store, b""
    in_one = attribute(store, "whole")
    told = None if in_one is None else answered(location, lambda: in_one(path, max_bytes), "read", relative)
    if told is not None:
        _check_size(told[0], location, relative, max_bytes)
        return bytes(told[1])
    for _ in range(_TRIES):
        forget_listings(store, path)
        size = answered(location, lambda: int(store.size(path)), "read", relative)
        _check_size(size, location, relative, max_bytes)
        # Without an end some file systems ask for the size once more; a byte more tells whether it is another file.
        data = read_range(location, relative, 0, size + 1) if size else b""
        if len(data) == size:
            break  # nobody has replaced it between the two
    return data


def read_up_to(location: Location, relative: str, size: int) -> bytes:
    """The bytes of a local file; of one that has more than so many, only these.

    Raises:
        FileMissingError: There is no such file.
        StorageError: The storage refused.
    """
    path = location.join(relative)
    try:
        with waiting_for(location.url, f"read {relative}", location.timeout_s):
            return _local_bytes(path, size)  # by the system: all else would cost more than most files
    except OSError as problem:
        raise_alone(failure(problem, location, "read", relative))


def read_range(location: Location, relative: str, offset: int, length: int) -> bytes:
    """Some bytes of a file, with one request where there is a request; fewer where it ends before.

    Raises:
        FileMissingError: There is no such file.
        StorageError: The storage refused, or the file ends before the range begins.
    """
    path, store = location.join(relative), location.store

    def get() -> bytes:
        with location.filesystem.open_input_file(path) as source:
            data: bytes = source.read_at(length, offset)
            return data

    if store is None:
        return answered(location, get, "read", relative)
    return answered(location, lambda: bytes(store.cat_file(path, start=offset, end=offset + length)), "read", relative)


_TRIES = 5
"""How often a file is read that others write to meanwhile; then what was read is held against its digest as it is."""

TICK_NS = 10_000_000
"""Two writes that are no further apart may give a file the same times: systems note them by ticks, of at most that."""


def _local_bytes(path: str, size: int) -> bytes:
    """The bytes of one version of a file, if it has any for as long as it takes to read it."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # who opens a FIFO does not wait for a writer
    try:
        for _ in range(_TRIES):
            before, began = os.fstat(opened), time.time_ns()
            data = os.pread(opened, size, 0)
            while len(data) < size and (more := os.pread(opened, size - len(data), len(data))):
                data += more
            after, age = os.fstat(opened), began - before.st_ctime_ns
            if (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns):
                if not 0 <= age < TICK_NS:
                    break  # nobody wrote meanwhile
                time.sleep((TICK_NS - age) / 1e9)  # or somebody did in the tick of the write before
        return data
    finally:
        os.close(opened)


def replace_whole(location: Location, relative: str, data: bytes) -> None:
    """Put a small file in place in one step: written aside and renamed, or one put on an object store.

    Raises:
        StorageError: The storage refused; the old file still stands.
    """
    directory, _, name = relative.rpartition("/")
    aside = f"{directory}/.{name}.{uuid.uuid4().hex}".lstrip("/") if location.has_cheap_rename else relative
    create_directory(location, directory)
    if location.store is not None and aside == relative:
        answered_once(location, lambda: location.store.pipe_file(location.join(relative), data), "write", relative)
        return
    try:
        write_file(location, aside, data)
        if aside != relative:
            rename(location, aside, relative)
    except BaseException:
        if aside != relative:
            delete_quietly(location, aside)
        raise


def create_directory(location: Location, relative: str = "") -> None:
    """Make a directory, with those around it, if it is not there; in object stores there are none to make.

    Raises:
        DatasetNotFoundError: There is no such bucket; none is ever made.
        StorageError: The storage refused.
    """
    if location.has_buckets:
        bucket = location.missing_bucket
        if bucket is not None:
            raise DatasetNotFoundError(
                f"{location.url}: there is no bucket {bucket!r}, or none that these credentials may see. Make it "
                "first: petastore makes none"
            )
        return
    path = location.join(relative) if relative else location.root
    answered_once(
        location, lambda: location.filesystem.create_dir(path, recursive=True), "make the directory", relative or None
    )


def write_file(location: Location, relative: str, data: bytes) -> None:
    """Write a small file, which others may see half written.

    Raises:
        StorageError: The storage refused.
    """

    def put() -> None:
        with location.filesystem.open_output_stream(location.join(relative)) as sink:
            sink.write(data)

    answered_once(location, put, "write", relative)


def rename(location: Location, old: str, new: str) -> None:
    """Give a file another name, in place of one that has it.

    Raises:
        StorageError: The storage refused.
    """
    start, end = location.join(old), location.join(new)
    answered_once(location, lambda: location.filesystem.move(start, end), f"rename {old} to {new}", old)


def delete_file(location: Location, relative: str) -> None:
    """Delete a file.

    Raises:
        FileMissingError: There is none.
        StorageError: The storage refused.
    """
    answered_once(location, lambda: location.filesystem.delete_file(location.join(relative)), "delete", relative)


def _check_size(size: int, location: Location, relative: str, max_bytes: int) -> None:
    if size > max_bytes:
        raise MetadataError(f"{location.url}/{relative} has {size:,} bytes; at most {max_bytes:,} are read")


def delete_quietly(location: Location, relative: str) -> None:
    """Delete a file if that is possible; one that stays is read by nobody."""
    with contextlib.suppress(StorageError):
        delete_file(location, relative)
