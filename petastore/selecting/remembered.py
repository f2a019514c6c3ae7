"""Remembered selections: what a filter kept is written down, and not worked out again.

A directory holds one file for each selection, named by a key over the version of the dataset and the question. Many
processes may share it. Where there is no directory to write to, nothing is remembered, a warning is logged, and the
answer is the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from petastore.cache.location import user_cache_directory
from petastore.errors import InvalidArgumentError
from petastore.plan.selection import Pruned, Selection
from petastore.selecting.selection_file import Kept, read_pruned_selection_file, selection_bytes, write_aside
from petastore.selecting.shared_scan import SharedScan

__all__ = ["RememberedSelections", "selection_directory", "selection_of"]

_LEFT_BEHIND_S = 24 * 3600
_log = logging.getLogger(__name__)


def selection_directory(asked: str | os.PathLike[str] | bool) -> Path | None:
    """Where selections are remembered.

    Args:
        asked: A local directory; True for `selections` in the directory that `PETASTORE_CACHE` names, else in the
            user's cache; False for nowhere.

    Raises:
        InvalidArgumentError: It is none of these.

    Example:
        >>> selection_directory("/scratch/selections"), selection_directory(False)
        (PosixPath('/scratch/selections'), None)
    """
    if isinstance(asked, bool):
        return user_cache_directory() / "selections" if asked else None
    if not isinstance(asked, (str, os.PathLike)) or not os.fspath(asked) or "://" in os.fspath(asked):
        raise InvalidArgumentError(f"filter_cache={asked!r}, but it is a local directory, True or False")
    return Path(asked)


def selection_of(kept: dict[int, Kept], rows: NDArray[np.int64], pruned: tuple[Pruned, ...] = ()) -> Selection:
    """The selection that keeps this of some row groups and nothing of the others.

    Args:
        kept: By row group.
        rows: Rows of each row group of the dataset.
        pruned: What left the other rows out, as far as that is known.
    """
    counts = np.zeros(len(rows), dtype=np.int64)
    bitmaps = {}
    for group, of_group in kept.items():
        if isinstance(of_group, bool):
            counts[group] = rows[group] if of_group else 0
        else:
            counts[group] = of_group.sum()
            bitmaps[group] = of_group
    return Selection(counts, bitmaps, pruned)


@dataclasses.dataclass(frozen=True)
class RememberedSelections:
    """A directory of selections. Processes and threads may share it."""

    directory: Path
    """Where; made when something is written."""

    max_bytes: int = 256 * 1024 * 1024
    """Bytes of all files; what has not been used for longest goes first. A larger selection is not remembered."""

    def load(self, key: str, rows: NDArray[np.int64]) -> Selection | None:
        """The selection under a key, or None.

        Args:
            key: Hexadecimal digits.
            rows: Rows of each row group of the dataset.
        """
        found = read_pruned_selection_file(self._path(key), key, rows)
        if found is None:
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path(key))
        kept, pruned = found
        return selection_of(kept, rows, pruned)

    def save(self, key: str, selection: Selection, rows: NDArray[np.int64]) -> None:
        """Writes a selection down, and forgets the parts that led to it."""
        kept = {group: selection.bitmaps.get(group, True) for group in np.flatnonzero(selection.counts).tolist()}
        data = selection_bytes(key, kept, rows, selection.pruned)
        try:
            if len(data) <= self.max_bytes:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._make_room(len(data))
                write_aside(self._path(key), data)
        except OSError as problem:
            _log.warning("the selection is not remembered: %s cannot be written: %s", self.directory, problem)
        shutil.rmtree(self._parts(key), ignore_errors=True)

    def share(self, key: str, groups: NDArray[np.int64], rows: NDArray[np.int64]) -> SharedScan:
        """The work of finding the selection under a key, shared with whoever else looks for it now.

        Args:
            key: As for `load`.
            groups: The row groups that have to be looked at; the same for whoever asks under this key.
            rows: Rows of each row group of the dataset.
        """
        return SharedScan(self._parts(key), key, groups, rows, done=self._path(key))

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.selection"

    def _parts(self, key: str) -> Path:
        return self.directory / f"{key}.parts"

    def _make_room(self, size: int) -> None:
        entries = []
        for path in self.directory.iterdir():
            with contextlib.suppress(OSError):
                found = path.stat()
                if path.suffix == ".selection":
                    entries.append((found.st_mtime, found.st_size, path))
                elif path.suffix in (".parts", ".aside") and time.time() - found.st_mtime > _LEFT_BEHIND_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        for _, of_entry, path in sorted(entries, reverse=True):
            size += of_entry
            if size > self.max_bytes:
                path.unlink(missing_ok=True)
