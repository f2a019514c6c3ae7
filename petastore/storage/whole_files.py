"""Small files of a dataset that are read, and put in place, as a whole."""

from __future__ import annotations

import uuid

from petastore.errors import MetadataError, StorageError
from petastore.storage.location import Location

__all__ = ["delete_quietly", "read_whole", "replace_whole"]


def read_whole(location: Location, relative: str, *, max_bytes: int) -> bytes | None:
    """The bytes of a file, or None where there is none.

    Raises:
        MetadataError: It is larger than `max_bytes`; no memory was taken for it.
        StorageError: The storage refused.
    """
    try:
        with location.filesystem.open_input_file(location.join(relative)) as source:
            size = source.size()
            if size > max_bytes:
                raise MetadataError(f"{location.url}/{relative} has {size:,} bytes; at most {max_bytes:,} are read")
            data: bytes = source.read(size)
            return data
    except FileNotFoundError:
        return None
    except MetadataError:
        raise
    except OSError as problem:
        raise StorageError(f"{location.url}/{relative} cannot be read: {problem}") from problem


def replace_whole(location: Location, relative: str, data: bytes) -> None:
    """Put a small file in place in one step: written aside and renamed, or one put on an object store.

    Raises:
        StorageError: The storage refused; the old file still stands.
    """
    directory, _, name = relative.rpartition("/")
    aside = f"{directory}/.{name}.{uuid.uuid4().hex}".lstrip("/") if location.has_cheap_rename else relative
    try:
        location.filesystem.create_dir(location.join(directory) if directory else location.root, recursive=True)
        with location.filesystem.open_output_stream(location.join(aside)) as sink:
            sink.write(data)
        if aside != relative:
            location.filesystem.move(location.join(aside), location.join(relative))
    except OSError as problem:
        if aside != relative:
            delete_quietly(location, aside)
        raise StorageError(f"{location.url}/{relative} cannot be written: {problem}") from problem


def delete_quietly(location: Location, relative: str) -> None:
    """Delete a file if that is possible."""
    try:
        location.filesystem.delete_file(location.join(relative))
    except OSError:
        return
