"""Small files of a dataset that are read, and put in place, as a whole."""

from __future__ import annotations

import uuid
from typing import Any

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
        store = _store_of(location)
        if store is not None:
            _check_size(int(store.size(location.join(relative))), location, relative, max_bytes)
            return bytes(store.cat_file(location.join(relative)))
        with location.filesystem.open_input_file(location.join(relative)) as source:
            size = source.size()
            _check_size(size, location, relative, max_bytes)
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
        store = _store_of(location)
        if store is not None and aside == relative:
            store.pipe_file(location.join(relative), data)
            return
        with location.filesystem.open_output_stream(location.join(aside)) as sink:
            sink.write(data)
        if aside != relative:
            location.filesystem.move(location.join(aside), location.join(relative))
    except OSError as problem:
        if aside != relative:
            delete_quietly(location, aside)
        raise StorageError(f"{location.url}/{relative} cannot be written: {problem}") from problem


def _check_size(size: int, location: Location, relative: str, max_bytes: int) -> None:
    if size > max_bytes:
        raise MetadataError(f"{location.url}/{relative} has {size:,} bytes; at most {max_bytes:,} are read")


def _store_of(location: Location) -> Any:
    """The fsspec filesystem, which gets and puts whole files; None for those of Arrow.

    Opening a file to write it would show readers an empty one for a while, and open files of some share their place.
    """
    return getattr(getattr(location.filesystem, "handler", None), "fs", None)


def delete_quietly(location: Location, relative: str) -> None:
    """Delete a file if that is possible."""
    try:
        location.filesystem.delete_file(location.join(relative))
    except OSError:
        return
