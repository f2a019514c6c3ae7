"""fsspec's file systems for Arrow: as `pyarrow.fs.FSSpecHandler`, but no failure is taken for "there is nothing".

fsspec's `exists`, `isfile`, `isdir` and `walk` answer no, or leave a directory out, whatever it was that went wrong. A
connection that broke would make files disappear without a word.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem
from pyarrow import fs

from petastore.storage.failure_kinds import kind_of

__all__ = ["Handler"]


class Handler(fs.FSSpecHandler):  # type: ignore[misc]
    """Asks `info`, which says why it cannot tell.

    Example:
        >>> import fsspec
        >>> handler = Handler(fsspec.filesystem("memory"))
        >>> fs.PyFileSystem(handler).get_file_info(fs.FileSelector("/nowhere", allow_not_found=True))
        []
    """

    def get_file_info(self, paths: Any) -> list[Any]:
        """What is at each path."""
        return [self._file_info(path) for path in paths]

    def _file_info(self, path: str) -> Any:
        try:
            return self._create_file_info(path, self.fs.info(path))
        except FileNotFoundError as problem:
            _refuse_unless_missing(problem)
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        """What is in a directory.

        Raises:
            FileNotFoundError: There is no such directory, and the selector does not allow that.
            NotADirectoryError: It is a file.
        """
        base = selector.base_dir
        if not self.fs.isdir(base) and not self._is_directory(base, missing_is_fine=selector.allow_not_found):
            return []
        found = self.fs.find(
            base, maxdepth=None if selector.recursive else 1, withdirs=True, detail=True, **self._raising()
        )
        here = base.strip("/")  # which some list too
        return [self._create_file_info(path, info) for path, info in found.items() if path.strip("/") != here]

    def _is_directory(self, path: str, *, missing_is_fine: bool) -> bool:
        try:
            kind = self.fs.info(path)["type"]
        except FileNotFoundError as problem:
            _refuse_unless_missing(problem)
            if missing_is_fine:
                return False
            raise
        if kind != "directory":
            raise NotADirectoryError(path)
        return True

    def _raising(self) -> dict[str, Any]:
        """What makes `find` say that a directory below cannot be listed, where it is the one of fsspec itself."""
        found = getattr(self.fs.find, "__func__", None)
        mirrored = isinstance(self.fs, AsyncFileSystem) and type(self.fs)._find is AsyncFileSystem._find  # noqa: SLF001
        return {"on_error": _unless_gone} if found is AbstractFileSystem.find or mirrored else {}

    def delete_file(self, path: str) -> None:
        """Delete a file.

        Raises:
            FileNotFoundError: There is none.
        """
        self.fs.info(path)
        self.fs.rm(path)

    def open_input_file(self, path: str) -> Any:
        """The file, open for reading at any place.

        Raises:
            FileNotFoundError: There is none.
        """
        return pa.PythonFile(self.fs.open(path, mode="rb"), mode="r")

    def open_input_stream(self, path: str) -> Any:
        """The file, open for reading.

        Raises:
            FileNotFoundError: There is none.
        """
        return self.open_input_file(path)


def _unless_gone(problem: Exception) -> None:
    """Directories may be removed while others are listed."""
    if not isinstance(problem, FileNotFoundError):
        raise problem
    _refuse_unless_missing(problem)


def _refuse_unless_missing(problem: FileNotFoundError) -> None:
    """That of HTTP says that a file is missing where the host is, too."""
    if kind_of(problem)[0] != "missing":
        raise problem
