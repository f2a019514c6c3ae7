"""fsspec's file systems for Arrow: as `pyarrow.fs.FSSpecHandler`, but no failure is taken for "there is nothing".

fsspec's `exists`, `isfile`, `isdir` and `walk` answer no, or leave a directory out, whatever it was that went wrong. A
connection that broke would make files disappear without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem
from pyarrow import fs

from petastore.storage.files.fsspec_listings import ListedInfo, etag_in
from petastore.storage.requests.failure_kinds import kind_of

__all__ = ["Files", "Handler"]


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
        return [self._told(path, self.fs.info) for path in paths]

    def _told(self, path: str, look: Callable[[str], Mapping[str, Any]]) -> Any:
        try:
            return self._listed(path, look(path))
        except FileNotFoundError as problem:
            _refuse_unless_missing(problem)
            return fs.FileInfo(path, fs.FileType.NotFound)

    def file_at(self, path: str) -> Any:
        """What is at a path; what is no file may be told as nothing, if to tell more takes more requests."""
        return self._told(path, self.fs.info)

    def has_directory(self, path: str) -> bool:
        """Whether a directory is at a path."""
        return bool(self._told(path, self.fs.info).type == fs.FileType.Directory)

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        """What is in a directory.

        Raises:
            FileNotFoundError: There is no such directory, and the selector does not allow that.
            NotADirectoryError: It is a file.
        """
        base = selector.base_dir
        if not self.fs.isdir(base) and not self._is_directory(base, missing_is_fine=selector.allow_not_found):
            return []
        here = base.strip("/")  # which some list too
        entries = self._walked(base) if selector.recursive and self._walks_itself else self._found(base, selector)
        return [self._listed(path, info) for path, info in entries.items() if path.strip("/") != here]

    def _listed(self, path: str, info: Mapping[str, Any]) -> fs.FileInfo:
        known = self._create_file_info(path, info)
        etag = etag_in(info) if known.is_file else ""
        if not etag:
            return known
        listed = ListedInfo(known.path, known.type, mtime=known.mtime, size=known.size)
        listed.etag = etag
        return listed

    def _found(self, base: str, selector: Any) -> dict[str, Any]:
        if not selector.recursive:
            return {info["name"]: info for info in self.fs.ls(base, detail=True)}
        entries: dict[str, Any] = self.fs.find(base, maxdepth=None, withdirs=True, detail=True)
        return entries

    @property
    def _walks_itself(self) -> bool:
        """Whether `find` is that of fsspec, which leaves out directories that it cannot list."""
        if isinstance(self.fs, AsyncFileSystem):
            return type(self.fs)._find is AsyncFileSystem._find  # noqa: SLF001
        return getattr(self.fs.find, "__func__", None) is AbstractFileSystem.find

    def _walked(self, base: str) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        waiting = [base]
        while waiting:
            try:
                listed = self.fs.ls(waiting.pop(), detail=True)
            except FileNotFoundError as problem:  # it was removed while others were listed
                _refuse_unless_missing(problem)
                continue
            new = [info for info in listed if info["name"] not in entries]
            entries.update({info["name"]: info for info in new})
            waiting += [info["name"] for info in new if info["type"] == "directory"]
        return entries

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

    def delete_file(self, path: str) -> None:
        """Delete a file; some object stores say nothing where there is none.

        Raises:
            FileNotFoundError: There is none.
        """
        try:
            self.fs.rm_file(path)
        except NotImplementedError:
            self.fs.rm(path)

    def move(self, src: str, dest: str) -> None:
        """Give a file or a directory another name."""
        if getattr(self.fs.mv, "__func__", None) is not AbstractFileSystem.mv or self.fs.info(src)["type"] != "file":
            self.fs.mv(src, dest, recursive=True)
            return
        # That of fsspec asks what there is to copy, and copies nothing where it gets no answer.
        self.fs.cp_file(src, dest)
        self.delete_file(src)

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


class Files(fs.PyFileSystem):  # type: ignore[misc]
    """A file system of Arrow's over one of fsspec's, which is asked what there is without Arrow in between.

    A thread that still waits for an answer when the interpreter ends would be unwound through Arrow's frames, and that
    ends the process as a crash.

    Example:
        >>> import fsspec
        >>> Files(Handler(fsspec.filesystem("memory"))).get_file_info("/nowhere").type
        <FileType.NotFound: 0>
    """

    def get_file_info(self, paths_or_selector: Any) -> Any:
        """What is at a path, at each of several, or in a directory."""
        if isinstance(paths_or_selector, fs.FileSelector):
            return self.handler.get_file_info_selector(paths_or_selector)
        if isinstance(paths_or_selector, str):
            return self.handler.get_file_info([paths_or_selector])[0]
        return self.handler.get_file_info(list(paths_or_selector))

    def file_at(self, path: str) -> Any:
        """What is at a path; what is no file may be told as nothing."""
        return self.handler.file_at(path)

    def has_directory(self, path: str) -> bool:
        """Whether a directory is at a path, by as few requests as that takes."""
        return bool(self.handler.has_directory(path))

    def __reduce__(self) -> Any:
        return type(self), (self.handler,)


def _refuse_unless_missing(problem: FileNotFoundError) -> None:
    """That of HTTP says that a file is missing where the host is, too."""
    if kind_of(problem)[0] != "missing":
        raise problem
