"""Ranges of bytes by Arrow's own file systems: HDFS, and whatever somebody gives as `filesystem=`."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from typing import Any

from pyarrow import fs

from petastore.storage.files.clouds import has_buckets
from petastore.storage.requests.client import Answer, FileVersion, tail_between_looks
from petastore.storage.requests.failure_kinds import attribute

__all__ = ["ArrowClient"]


class ArrowClient:
    """Opens a file for each range. Its answers do not tell of which version they are.

    Args:
        filesystem: A `pyarrow.fs.FileSystem`.
    """

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    @property
    def system(self) -> str:
        """The class of the file system, or of who handles it."""
        return type(attribute(self._filesystem, "handler") or self._filesystem).__name__

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:  # noqa: ARG002 - it cannot be demanded
        """Some bytes of a file, of the version that it has now."""
        with self._filesystem.open_input_file(path) as source:
            source.seek(offset)
            data = source.read_buffer(length)
        return Answer(data, None)

    def tail(self, path: str, length: int) -> Answer:
        """The last bytes of a file, between two looks at its version."""
        return tail_between_looks(self, path, length)

    def version(self, path: str) -> FileVersion:
        """The version that a file has now: of an object by its etag, and else by when it was written."""
        info = self._filesystem.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return FileVersion(info.size or 0, self._etag(path), _written(info.mtime_ns))

    def _etag(self, path: str) -> str:
        if not has_buckets(self._filesystem):
            return ""
        with self._filesystem.open_input_file(path) as source:
            told = {name.decode().lower(): value.decode() for name, value in (source.metadata() or {}).items()}
        return told.get("etag", "")


def _written(time_ns: int | None) -> str:
    """To the last digit: who writes twice in a second writes two versions."""
    if time_ns is None:
        return ""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:09}"
