"""Small files of a dataset, read and replaced as a whole, with a checksum inside.

A whole file is read or written in one request. If the file were opened for writing instead, readers could see an empty
file for a while. On some filesystems, threads that open the same file share one file position.

The checksum of an Arrow IPC file is text in its metadata, `petastore.digest`. It is the SHA-256 of the whole file, with
zeros in place of these 64 digits. The digits occur several times, because an IPC file repeats its schema. The file
stays a normal IPC file. Older releases read it without a check; newer releases verify all bytes before they parse the
file.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from petastore.errors import DatasetNotFoundError, FileMissingError, MetadataError, PetastoreError, StorageError
from petastore.monitoring.activity import Request
from petastore.storage.files.location import Location
from petastore.storage.requests.failures import answered, answered_once, failure, raise_alone
from petastore.storage.requests.retries import MOST_REREADS

__all__ = [
    "NewerFormatError",
    "create_directory",
    "delete_file",
    "delete_quietly",
    "is_sealed",
    "opened_table",
    "read_at",
    "read_range",
    "read_up_to",
    "read_whole",
    "rename",
    "replace_whole",
    "sealed",
    "sealed_table",
    "write_file",
]


def read_whole(location: Location, relative: str, *, max_bytes: int) -> bytes | None:
    """Return the bytes of a file; None if it is missing.

    On an object store, all bytes are of one version, even if the file is replaced during the read.

    Raises:
        MetadataError: The file is larger than `max_bytes`; no memory was allocated for it.
        StorageError: A storage operation failed.
    """
    store, path = location.store, location.join(relative)
    try:
        size, data = answered(location, lambda: store.read_whole(path, max_bytes), "read", relative)
    except FileMissingError:
        return None
    if size > max_bytes:
        raise MetadataError(
            f"{location.url}/{relative} must have at most {max_bytes:,} bytes, got {size:,}. Restore "
            "the file from a copy, or write the metadata again"
        )
    return bytes(data)


def read_up_to(location: Location, relative: str, size: int) -> bytes:
    """Return the first `size` bytes of a local file, or all bytes of a shorter file.

    Raises:
        FileMissingError: The file does not exist.
        StorageError: A storage operation failed.
    """
    path = location.join(relative)
    try:
        with Request(location.url, f"read {relative}", location.timeout_s):
            # Uses system calls, because a library call takes longer than reading most files.
            return _local_bytes(path, size)
    except OSError as problem:
        raise_alone(failure(problem, location, "read", relative))


def read_range(location: Location, relative: str, offset: int, length: int) -> bytes:
    """Read a byte range of a file with one request.

    If the file ends before the range does, some storages return fewer bytes, and others raise an error.

    Raises:
        FileMissingError: The file does not exist.
        StorageError: A storage operation failed, or the file ends before the range does.
    """
    store, path = location.store, location.join(relative)
    return answered(location, lambda: bytes(store.get(path, offset, length, None).data), "read", relative)


TICK_NS = 10_000_000
"""Coarsest clock tick of file times, in nanoseconds.

Two writes within one tick may have equal times.
"""


def read_at(opened: int, length: int, offset: int) -> bytes:
    """Read a byte range of an open local file; fewer bytes only at the file's end."""
    data = os.pread(opened, length, offset)
    while len(data) < length and (more := os.pread(opened, length - len(data), offset + len(data))):
        data += more
    return data


def _local_bytes(path: str, size: int) -> bytes:
    """Read the first bytes of a local file, all of one version.

    If the file is written during the read, it is read again, at most five times in total.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not block on a FIFO without a writer
    try:
        for _ in range(MOST_REREADS):
            before, began = os.fstat(opened), time.time_ns()
            data = read_at(opened, size, 0)
            after, age = os.fstat(opened), began - before.st_ctime_ns
            if (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns):
                if not 0 <= age < TICK_NS:
                    break  # the file was not written while it was read
                # Wait for the next clock tick: a second write in the same tick would not change mtime.
                time.sleep((TICK_NS - age) / 1e9)
        return data
    finally:
        os.close(opened)


def replace_whole(location: Location, relative: str, data: bytes) -> None:
    """Replace a small file atomically.

    A temporary file is written and renamed; on an object store, one write replaces the object.

    Raises:
        StorageError: A storage operation failed; the old file is unchanged.
    """
    directory, _, name = relative.rpartition("/")
    aside = f"{directory}/.{name}.{uuid.uuid4().hex}".lstrip("/") if location.store.has_cheap_rename else relative
    create_directory(location, directory)
    try:
        write_file(location, aside, data)
        if aside != relative:
            rename(location, aside, relative)
    except BaseException:
        if aside != relative:
            delete_quietly(location, aside)
        raise


def create_directory(location: Location, relative: str = "") -> None:
    """Create a directory and its parents if missing.

    Object stores do not need directories; there, only check that the bucket exists.

    Raises:
        DatasetNotFoundError: The bucket does not exist; buckets are never created.
        StorageError: A storage operation failed.
    """
    if location.store.has_buckets:
        bucket = location.missing_bucket
        if bucket is not None:
            raise DatasetNotFoundError(
                f"{location.url}: the bucket {bucket!r} does not exist, or these credentials do not allow access. "
                "Create it first; petastore does not create buckets"
            )
        return
    path = location.join(relative) if relative else location.root
    answered_once(
        location, lambda: location.filesystem.create_dir(path, recursive=True), "make the directory", relative or None
    )


def write_file(location: Location, relative: str, data: bytes) -> None:
    """Write a small file; atomically only on object stores.

    Raises:
        StorageError: A storage operation failed.
    """
    answered_once(location, lambda: location.store.put(location.join(relative), data), "write", relative)


def rename(location: Location, old: str, new: str) -> None:
    """Rename a file, and replace an existing file of the new name.

    Raises:
        StorageError: A storage operation failed.
    """
    start, end = location.join(old), location.join(new)
    answered_once(location, lambda: location.filesystem.move(start, end), f"rename {old} to {new}", old)


def delete_file(location: Location, relative: str) -> None:
    """Delete a file.

    Raises:
        FileMissingError: The file does not exist.
        StorageError: A storage operation failed.
    """
    answered_once(location, lambda: location.filesystem.delete_file(location.join(relative)), "delete", relative)


def delete_quietly(location: Location, relative: str) -> None:
    """Delete a file if possible; errors are ignored."""
    with contextlib.suppress(StorageError):
        delete_file(location, relative)


SEAL_KEY = "petastore.digest"
"""Key of the digest in the metadata of the file's schema."""

_KIND = b"sha256:"
_ZEROS = b"0" * 64
UNSEALED = (_KIND + _ZEROS).decode()
"""Placeholder under `SEAL_KEY`, which `sealed` replaces by the digest."""

_DIGEST = re.compile(rb"[0-9a-f]{64}")
_INVALID = (LookupError, ValueError, TypeError, ArithmeticError)  # raised while content of another format is parsed
_TIMES = 2  # an IPC file has its schema at the start and at the end
_MOST_TEXTS = 16


def sealed_table(table: pa.Table, form: str, version: int, metadata: Mapping[str, str], source: str) -> bytes:
    """Return a table as the bytes of an Arrow IPC file that contains its own digest.

    Args:
        table: Table to store.
        form: Format of the file.
        version: Version of the format.
        metadata: Further metadata of the table's schema.
        source: Name of the file, for messages.

    Raises:
        MetadataError: The table contains `UNSEALED`, the placeholder that the digest replaces.
    """
    named = {"petastore.format": form, "petastore.version": str(version), "petastore.needs": "petastore 0.1.0"}
    table, sink = table.replace_schema_metadata({**named, **metadata, SEAL_KEY: UNSEALED}), pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sealed(sink.getvalue().to_pybytes(), source)


class NewerFormatError(MetadataError):
    """The file is intact, but reading it needs a newer release of petastore."""


@contextlib.contextmanager
def opened_table(
    data: bytes, source: str, form: str, newest: int, *, again: str
) -> Iterator[tuple[bool, Any, dict[str, str]]]:
    """Context manager that verifies and opens an Arrow IPC file.

    It yields three values: whether the file has a digest (bool), a `pyarrow.ipc.RecordBatchFileReader`, and the
    metadata of the schema (dict).

    Args:
        data: Bytes of the file, not trusted.
        source: Origin of the file, for messages.
        form: Format that the file must have.
        newest: Newest version of the format that this release reads.
        again: Advice to recreate the file, for messages.

    Raises:
        NewerFormatError: The file is intact, but needs a newer release.
        MetadataError: The digest or the format does not match, or the block raised an error because the content is
            invalid.
    """
    seal = is_sealed(data, source, again=again)
    try:
        reader = ipc.open_file(pa.BufferReader(data))
        metadata = {key.decode(): value.decode() for key, value in (reader.schema.metadata or {}).items()}
        _check_format(metadata, source, form, newest, again)
        yield seal, reader, metadata
    except PetastoreError:
        raise
    except (pa.ArrowException, OSError, MemoryError, RecursionError, *_INVALID) as problem:
        raise MetadataError(f"{source} is damaged: {problem}; {again}") from problem


def _check_format(metadata: Mapping[str, str], source: str, form: str, newest: int, again: str) -> None:
    if metadata.get("petastore.format") != form:
        raise MetadataError(
            f"the metadata of {source} must have petastore.format={form!r}, got "
            f"{metadata.get('petastore.format', 'none')!r:.80}; {again}"
        )
    text = metadata.get("petastore.version", "")
    version = int(text) if re.fullmatch("[1-9][0-9]{0,8}", text) else 0
    if version < 1:
        raise MetadataError(f"the version of {source} must be an integer of at least 1, got {text!r:.80}; {again}")
    if version > newest:
        needed = metadata.get("petastore.needs", "a newer release of petastore")
        raise NewerFormatError(
            f"{source} has version {version}, but this release of petastore reads only up to {newest}; install {needed}"
        )


def sealed(data: bytes, source: str) -> bytes:
    """Return an Arrow IPC file in which `UNSEALED` is replaced by the file's digest.

    The digest is in the metadata `SEAL_KEY`.

    Args:
        data: Bytes of the file.
        source: Name of the file, for messages.

    Raises:
        MetadataError: The file contains `UNSEALED` at another place, which would be replaced, too.
    """
    if data.count(UNSEALED.encode()) != _TIMES:
        raise MetadataError(
            f"{source} must not contain the text {UNSEALED!r}, which is reserved for the digest. Rename the column, "
            "file or value with this text"
        )
    return data.replace(UNSEALED.encode(), _KIND + hashlib.sha256(data).hexdigest().encode())


def is_sealed(data: bytes, source: str, *, again: str) -> bool:
    """Verify the digest in a file; return False if the file does not have a digest.

    Files of older releases do not have a digest.

    Args:
        data: Bytes of the file, not trusted.
        source: Origin of the file, for messages.
        again: Advice to recreate the file, for messages.

    Raises:
        MetadataError: The file's digest does not match its bytes.
    """
    if SEAL_KEY.encode() not in data:
        return False
    if any(_is_digest(data, text) for text in itertools.islice(_texts(data), _MOST_TEXTS)):
        return True
    raise MetadataError(f"{source} is damaged: its {len(data):,} bytes do not match the digest stored in it; {again}")


def _texts(data: bytes) -> Iterator[bytes]:
    """Yield the distinct texts in a file that look like a digest."""
    seen: set[bytes] = set()
    at = data.find(_KIND)
    while at >= 0:
        digest = _DIGEST.match(data, at + len(_KIND))
        if digest is not None and digest[0] not in seen:
            seen.add(digest[0])
            yield digest[0]
        at = data.find(_KIND, at + 1)


def _is_digest(data: bytes, text: bytes) -> bool:
    """Return whether `text` is the digest of the file.

    The digest is computed with zeros in place of `text`.
    """
    digest, written, whole = hashlib.sha256(), _KIND + text, memoryview(data)
    begin = 0
    while (at := data.find(written, begin)) >= 0:
        digest.update(whole[begin:at])
        digest.update(_KIND + _ZEROS)
        begin = at + len(written)
    digest.update(whole[begin:])
    return digest.hexdigest().encode() == text
