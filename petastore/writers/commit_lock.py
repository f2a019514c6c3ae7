"""Lock of a commit: one writer at a time replaces the manifest of a dataset.

On a local filesystem the lock is `flock` on `_petastore/.lock`: it holds between processes of the host (and over NFS 4)
and ends with its process, however that ends. Elsewhere it holds inside this process only, and writers compare the
manifest before they replace it.
"""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pyarrow import fs

from petastore import forks
from petastore.storage.files.location import Location
from petastore.storage.requests.failures import asking

__all__ = ["LOCK", "committing"]

LOCK = "_petastore/.lock"
"""Path of the empty lock file, relative to the root."""

_guard = forks.Lock()
_in_process: dict[tuple[str, str], forks.Lock] = collections.defaultdict(forks.Lock)


@contextlib.contextmanager
def committing(location: Location) -> Iterator[None]:
    """Hold the commit lock of a dataset; wait while another writer holds it.

    Example:
        >>> from petastore.storage.files.location import open_location
        >>> with committing(open_location("memory://bucket/frames")):
        ...     pass
    """
    with _guard:
        mine = _in_process[(location.url, location.root)]
    with mine, _file_lock(location):
        yield


@contextlib.contextmanager
def _file_lock(location: Location) -> Iterator[None]:
    if not isinstance(location.filesystem, fs.LocalFileSystem):
        yield
        return
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    path = Path(location.join(LOCK))
    with asking(location, "make the lock", LOCK):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with asking(location, "take the lock", LOCK):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
