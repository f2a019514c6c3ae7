"""Filesystems in memory that count requests, and fail at the n-th request or at requests of one kind."""

from __future__ import annotations

import contextlib
import io
import posixpath
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from fsspec.spec import AbstractFileSystem
from pyarrow import fs


class FailingFiles(AbstractFileSystem):  # type: ignore[misc]
    """In-memory filesystem of fsspec that counts requests and fails at a chosen one; thread-safe.

    Attributes:
        files: Content by path, without leading and trailing slashes.
        asked: Kind of each request so far, such as `"read"`.
        open_files: Files that were opened and not closed.
        make: Function that returns the exception to raise.
        fails_at: Number of the first request that fails, from 0; None if no request fails.
        goes_on: Whether all later requests fail, too.
    """

    protocol = "failing"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Condition()
        self.files: dict[str, bytes] = {}
        self.open_files: set[int] = set()
        self.heal()

    def heal(self) -> None:
        """Stop failing, and count requests from 0 again."""
        self.asked: list[str] = []
        self.fails_at: int | None = None
        self.goes_on = False
        self.make: Callable[[], BaseException] = OSError
        self.raised: list[str] = []

    def fail(self, at: int, make: Callable[[], BaseException], *, goes_on: bool = False) -> None:
        """Raise the exception of `make` at request number `at`, and at all later requests if `goes_on`."""
        self.heal()
        self.fails_at, self.make, self.goes_on = at, make, goes_on

    def are_closed(self, seconds: float) -> bool:
        """Return whether all files are closed, after waiting up to `seconds` for threads that still read."""
        with self._guard:
            return self._guard.wait_for(lambda: not self.open_files, seconds)

    def closes(self, file: int) -> None:
        """Record that a file was closed."""
        with self._guard:
            self.open_files.discard(file)
            self._guard.notify_all()

    def request(self, kind: str) -> None:
        """Count a request, and raise if it is the one to fail."""
        with self._guard:
            number = len(self.asked)
            self.asked.append(kind)
            fails = self.fails_at is not None and (number >= self.fails_at if self.goes_on else number == self.fails_at)
            if fails:
                self.raised.append(kind)
        if fails:
            raise self.make()

    def _directories(self) -> set[str]:
        found = {""}
        for path in self.files:
            parts = path.split("/")
            found.update("/".join(parts[:level]) for level in range(1, len(parts)))
        return found

    def _found(self, path: str) -> dict[str, Any]:
        path = path.strip("/")
        with self._guard:
            if path in self.files:
                return {"name": path, "size": len(self.files[path]), "type": "file"}
            if path in self._directories():
                return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def info(self, path: str, **_more: Any) -> Any:
        self.request("info")
        return self._found(self._strip_protocol(path))

    def isdir(self, path: str) -> bool:
        # fsspec's own `isdir` also treats a failed request as False.
        with contextlib.suppress(OSError):
            self.request("isdir")
            return bool(self._found(self._strip_protocol(path))["type"] == "directory")
        return False

    def ls(self, path: str, detail: bool = True, **_more: Any) -> Any:
        self.request("ls")
        path = self._strip_protocol(path).strip("/")
        if self._found(path)["type"] == "file":
            found = [self._found(path)]
        else:
            with self._guard:
                names = {*self.files, *self._directories()} - {path, ""}
                found = [self._found(name) for name in sorted(names) if posixpath.dirname(name) == path]
        return found if detail else [one["name"] for one in found]

    def _open(self, path: str, mode: str = "rb", **_more: Any) -> Any:
        self.request("open" if "r" in mode else "create")
        path = path.strip("/")
        if "r" in mode:
            return _File(self, path, self.files[path]) if self._found(path)["type"] == "file" else None
        return _File(self, path, None)

    def cp_file(self, path1: str, path2: str, **_more: Any) -> None:
        self.request("copy")
        self.files[path2.strip("/")] = self.files[self._found(path1)["name"]]

    def _rm(self, path: str) -> None:
        self.request("delete")
        del self.files[self._found(path)["name"]]

    def mkdir(self, path: str, create_parents: bool = True, **_more: Any) -> None:  # noqa: ARG002 - fsspec's interface
        self.request("mkdir")


class _File(io.BytesIO):
    """In-memory file object: open for reading if it has content, otherwise open for writing."""

    def __init__(self, files: FailingFiles, path: str, content: bytes | None) -> None:
        super().__init__(content or b"")
        self._files, self._path, self._is_written = files, path, content is None
        files.open_files.add(id(self))

    def read(self, size: int | None = -1, /) -> bytes:
        self._files.request("read")
        return super().read(size)

    def write(self, data: Any, /) -> int:
        self._files.request("write")
        return super().write(data)

    def seek(self, place: int, whence: int = 0, /) -> int:
        self._files.request("seek")
        return super().seek(place, whence)

    def close(self) -> None:
        if self.closed:
            return
        content = self.getvalue()
        self._files.closes(id(self))
        super().close()
        self._files.request("close" if self._is_written else "close what was read")
        if self._is_written:
            self._files.files[self._path] = content


class OwnHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """pyarrow `FileSystemHandler` over the same files, as a user could write one."""

    def __init__(self, files: FailingFiles) -> None:
        self.files = files

    def get_type_name(self) -> str:
        return "own"

    def normalize_path(self, path: str) -> str:
        return path

    def _info(self, found: dict[str, Any]) -> Any:
        kind = fs.FileType.File if found["type"] == "file" else fs.FileType.Directory
        return fs.FileInfo(found["name"], kind, size=found["size"] if kind == fs.FileType.File else None)

    def get_file_info(self, paths: list[str]) -> list[Any]:
        found = []
        for path in paths:
            try:
                found.append(self._info(self.files.info(path)))
            except FileNotFoundError:
                found.append(fs.FileInfo(path, fs.FileType.NotFound))
        return found

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        waiting, found = [selector.base_dir], []
        while waiting:
            try:
                listed = self.files.ls(waiting.pop())
            except FileNotFoundError:
                if not selector.allow_not_found:
                    raise
                continue
            found += listed
            waiting += [one["name"] for one in listed if one["type"] == "directory" and selector.recursive]
        return [self._info(one) for one in found]

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: ARG002 - Arrow's interface
        self.files.mkdir(path)

    def delete_dir(self, path: str) -> None:
        self.files.rm(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self.files._rm(path)

    def move(self, src: str, dest: str) -> None:
        self.files.cp_file(src, dest)
        self.files._rm(src)

    def copy_file(self, src: str, dest: str) -> None:
        self.files.cp_file(src, dest)

    def open_input_stream(self, path: str) -> Any:
        return pa.PythonFile(self.files._open(path), mode="r")

    open_input_file = open_input_stream

    def open_output_stream(self, path: str, metadata: Any) -> Any:  # noqa: ARG002 - Arrow's interface
        return pa.PythonFile(self.files._open(path, "wb"), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError
