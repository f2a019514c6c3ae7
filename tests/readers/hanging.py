"""Filesystem whose requests of one kind hang until the test releases them."""

from __future__ import annotations

import io
import threading
from typing import Any

from fsspec.implementations.local import LocalFileSystem

__all__ = ["HangingFileSystem"]


class HangingFileSystem(LocalFileSystem):  # type: ignore[misc]
    """Local files behind a storage that stops responding.

    Args:
        at: `"look"`, `"open"` or `"read"`: the kind of requests that hang; None if no request hangs yet.
        after: Number of these requests that are answered before one hangs.
    """

    protocol = "hanging"
    cachable = False

    def __init__(self, at: str | None = None, after: int = 0) -> None:
        super().__init__()
        self.at = at
        self.left = after
        self.hangs = threading.Event()
        self.answer = threading.Event()

    def asked(self, kind: str) -> None:
        """Block until `answer` is set, if requests of this kind hang."""
        if kind != self.at:
            return
        self.left -= 1
        if self.left < 0:
            self.hangs.set()
            self.answer.wait()

    def info(self, path: str, **options: Any) -> Any:
        """Return the metadata of one path."""
        self.asked("look")
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        """List a directory."""
        self.asked("look")
        return super().ls(path, detail=detail, **options)

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        """Return a file whose reads may hang."""
        self.asked("open")
        return _Hanging(self, io.FileIO(self._strip_protocol(path), mode.replace("b", "")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        """Return the bytes of a file."""
        self.asked("read")
        return super().cat_file(path, start, end, **options)


class _Hanging(io.BufferedReader):
    def __init__(self, home: HangingFileSystem, raw: io.FileIO) -> None:
        super().__init__(raw)
        self._home = home

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes."""
        self._home.asked("read")
        return super().read(size)
