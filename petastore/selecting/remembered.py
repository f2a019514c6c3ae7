"""Selection cache: files that store the rows that filters select.

There is one file for each filter and dataset version, named by a digest of both. Many processes may share the
directory. If the directory is not writable, a warning is logged and the filter is evaluated without the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.cache.folder import user_cache_directory
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.inventory import DataFile
from petastore.plan.selection import Pruned, RowBitmaps, Selection
from petastore.schema.field import UnischemaField

__all__ = [
    "RememberedSelections",
    "read_selection_file",
    "selection_bytes",
    "selection_directory",
    "selections_of",
    "write_aside",
]

_FORMAT = b"petastore.selection/3\n"
_DIGEST = 64
_MOST_BYTES = 1 << 30


def selection_bytes(key: str, selection: Selection, rows: NDArray[np.int64]) -> bytes:
    """Return the content of a file of the selection cache.

    Args:
        key: Cache key of the filter and the dataset version.
        selection: The rows that the filter selects.
        rows: Number of rows of each row group of the dataset, shape (groups,).
    """
    partial = np.isin(np.arange(len(rows)), selection.packed.groups)
    flags = [np.packbits(of_groups).tobytes() for of_groups in (partial, (selection.counts > 0) & ~partial)]
    content = b"".join([_header(key, rows, selection.pruned), *flags, selection.packed.packed.tobytes()])
    return _FORMAT + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _header(key: str, rows: NDArray[np.int64], pruned: Sequence[Pruned]) -> bytes:
    steps = [dataclasses.astuple(step) for step in pruned]
    return json.dumps({"key": key, "row_groups": len(rows), "pruned": steps}).encode() + b"\n"


def write_aside(path: Path, data: bytes) -> None:
    """Write a file and replace the old one atomically.

    Raises:
        OSError: The file cannot be written; no partial file remains.
    """
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".aside")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def read_selection_file(path: Path, key: str, rows: NDArray[np.int64]) -> Selection | None:
    """Read a file of the selection cache; return None if no valid file exists.

    Args:
        path: The file.
        key: Cache key, which the file must contain.
        rows: Rows of each row group of the dataset.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        return _decoded(path.read_bytes(), key, rows)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _decoded(data: bytes, key: str, rows: NDArray[np.int64]) -> Selection | None:
    """Decode the bytes of a selection file.

    Return None if they are damaged, or belong to another key or dataset. The header is followed by two masks of row
    groups (partly selected, fully selected), packed to bits, and by the bitmaps of selected rows in partly selected row
    groups.
    """
    content = data[len(_FORMAT) + _DIGEST + 1 :]
    if data[: len(_FORMAT) + _DIGEST] != _FORMAT + hashlib.sha256(content).hexdigest().encode():
        return None
    header, _, packed = content.partition(b"\n")
    pruned = _pruned(json.loads(header)["pruned"])
    if header + b"\n" != _header(key, rows, pruned):
        return None
    size = -(-len(rows) // 8)
    flags = [np.frombuffer(packed[first : first + size], np.uint8) for first in (0, size)]
    partial, whole = (np.unpackbits(of_groups, count=len(rows)).view(np.bool_) for of_groups in flags)
    groups = np.flatnonzero(partial)
    sizes, packed = rows[groups], packed[2 * size :]
    if (partial & whole).any() or (sizes < 2).any() or len(packed) != (-(-sizes // 8)).sum():
        return None
    bitmaps = RowBitmaps(groups, sizes, packed)
    # The unused bits of the last byte must be zero.
    spare = bitmaps.packed[bitmaps.offsets[1:] - 1].astype(np.int64) << (sizes - 1) % 8 + 1 & 0xFF
    if spare.any() or ((bitmaps.counts == 0) | (bitmaps.counts == sizes)).any():
        return None
    counts = np.where(whole, rows, 0)
    counts[groups] = bitmaps.counts
    selection = Selection(counts, bitmaps, pruned)
    return selection if int(counts.sum()) + sum(step.rows for step in pruned) <= int(rows.sum()) else None


def _pruned(steps: Any) -> tuple[Pruned, ...]:
    if not isinstance(steps, list) or not all(map(_is_step, steps)):
        raise ValueError(
            f"the cached selection must list [cause, row groups, rows] for skipped rows, got {steps!r:.100}"
        )
    return tuple(Pruned(*step) for step in steps)


def _is_step(step: Any) -> bool:
    return isinstance(step, list) and [type(part) for part in step] == [str, int, int]


_LEFT_BEHIND_S = 24 * 3600
_log = logging.getLogger(__name__)


def selection_directory(filter_cache: str | os.PathLike[str] | bool) -> Path | None:
    """Return the directory of cached selections.

    Args:
        filter_cache: Local directory; True for `selections` in the directory of `PETASTORE_CACHE`, or else in the
            user's cache directory; False for no cache.

    Raises:
        InvalidArgumentError: `filter_cache` is not a local directory, True or False.

    Example:
        >>> selection_directory("/scratch/selections"), selection_directory(False)
        (PosixPath('/scratch/selections'), None)
    """
    if isinstance(filter_cache, bool):
        return user_cache_directory() / "selections" if filter_cache else None
    if (
        not isinstance(filter_cache, (str, os.PathLike))
        or not os.fspath(filter_cache)
        or "://" in os.fspath(filter_cache)
    ):
        raise InvalidArgumentError(f"filter_cache must be a local directory, True or False, got {filter_cache!r}")
    return Path(filter_cache)


@dataclasses.dataclass(frozen=True)
class RememberedSelections:
    """Directory of cached selections, shared by processes and threads."""

    directory: Path
    """Path of the directory; created at the first write."""

    version: str = ""
    """Version of the dataset: a part of each key."""

    max_bytes: int = 256 * 1024 * 1024
    """Maximum bytes of all files; least recently used files are evicted. A larger selection is not cached."""

    def key(self, question: Any, fields: Iterable[UnischemaField] = ()) -> str:
        """Return the key of a selection: hexadecimal digits.

        Args:
            question: JSON values that describe the selected rows.
            fields: Fields of the columns on which the selection depends.
        """
        text = json.dumps([self.version, question, [repr(field) for field in fields]])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def load(self, key: str, rows: NDArray[np.int64]) -> Selection | None:
        """Return the cached selection of a filter, or None if it is not cached.

        Args:
            key: Key in hexadecimal digits.
            rows: Rows of each row group of the dataset.
        """
        found = read_selection_file(self._path(key), key, rows)
        if found is None:
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path(key))
        return found

    def save(self, key: str, selection: Selection, rows: NDArray[np.int64]) -> None:
        """Write a selection to the cache, and evict the least recently used selections.

        Log a warning if this fails.
        """
        data = selection_bytes(key, selection, rows)
        try:
            if len(data) <= self.max_bytes:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._make_room(len(data))
                write_aside(self._path(key), data)
        except OSError as problem:
            _log.warning(
                "the rows that a filter selects are not cached, because %s cannot be written: %s. Pass another "
                "filter_cache",
                self.directory,
                problem,
            )

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.selection"

    def _make_room(self, size: int) -> None:
        entries = []
        for path in self.directory.iterdir():
            with contextlib.suppress(OSError):
                found = path.stat()
                if path.suffix == ".selection":
                    entries.append((found.st_mtime, found.st_size, path))
                elif path.suffix == ".aside" and time.time() - found.st_mtime > _LEFT_BEHIND_S:
                    path.unlink()
        for _, of_entry, path in sorted(entries, reverse=True):
            size += of_entry
            if size > self.max_bytes:
                path.unlink(missing_ok=True)


def selections_of(dataset: Dataset, filter_cache: str | os.PathLike[str] | bool) -> RememberedSelections | None:
    """Return the cached selections of this version of a dataset; None without a cache.

    The version consists of the fingerprint, which includes sizes and footers, and of the times or etags of all files: a
    rewritten file may have an equal footer.

    Args:
        dataset: The dataset. Without digests of its footers, two versions could look equal, and the result is None.
        filter_cache: As in `selection_directory`.

    Raises:
        InvalidArgumentError: As `selection_directory`.
    """
    directory, inventory = selection_directory(filter_cache), dataset.inventory
    if directory is None or not all(file.digest for file in inventory.files):
        return None
    of_file = _times_ns if dataset.location.is_local else _etag_or_time
    version = repr([inventory.fingerprint, *(of_file(dataset, file) for file in inventory.files)])
    return RememberedSelections(directory, hashlib.sha256(version.encode()).hexdigest())


def _times_ns(dataset: Dataset, file: DataFile) -> tuple[int, ...]:
    try:
        status = os.stat(dataset.location.join(file.path))  # noqa: PTH116 - faster than `Path`
    except OSError:
        return ()  # reading the file raises the error; row groups without matching rows are never read
    # Files that are extracted from an archive may all have one modification time. Inodes may differ between hosts.
    return status.st_mtime_ns, status.st_ctime_ns


def _etag_or_time(dataset: Dataset, file: DataFile) -> str:
    """Return the etag or the time of a remote file, as far as known without a request."""
    footer = dataset.footers.kept(dataset.location, file)
    version = dataset.kept.versions.get(file) or (None if footer is None else footer.version)
    return file.etag if version is None else version.etag or version.modified
