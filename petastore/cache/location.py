"""Where a user's caches lie on the local disk, and how much a cache may take there."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from petastore.errors import InvalidArgumentError

__all__ = ["LEAST_LIMIT", "cache_location", "limit_of_free_disk", "user_cache_directory", "verified_limit"]

LEAST_LIMIT = 1 << 16
"""A cache has room for this many bytes at least."""

_SHARE = 4


def user_cache_directory() -> Path:
    """The directory that `PETASTORE_CACHE` names, else `petastore` in the user's cache directory.

    Example:
        >>> user_cache_directory().is_absolute()
        True
    """
    named = os.environ.get("PETASTORE_CACHE")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path("~/Library/Caches/petastore").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "petastore"


def cache_location(asked: str | os.PathLike[str] | None) -> Path:
    """The directory in which a cache lies.

    Args:
        asked: A local directory; None for the user's.

    Raises:
        InvalidArgumentError: It is neither.

    Example:
        >>> cache_location("/scratch")
        PosixPath('/scratch')
    """
    if asked is None:
        return user_cache_directory()
    if not isinstance(asked, (str, os.PathLike)) or not os.fspath(asked) or "://" in os.fspath(asked):
        raise InvalidArgumentError(f"cache location {asked!r}: it is a local directory, or None for the user's own")
    return Path(asked)


def verified_limit(asked: int | None) -> int | None:
    """The limit that was asked for.

    Raises:
        InvalidArgumentError: It is no number of bytes, or too small for any cache.
    """
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int) or asked < LEAST_LIMIT):
        raise InvalidArgumentError(
            f"cache limit {asked!r}: it is a number of bytes, {LEAST_LIMIT:,} at least, or None for a share of the disk"
        )
    return asked


def limit_of_free_disk(directory: Path) -> int:
    """A quarter of the disk space that is free where a directory lies, in bytes.

    Example:
        >>> limit_of_free_disk(Path("/")) >= LEAST_LIMIT
        True
    """
    return max(shutil.disk_usage(directory).free // _SHARE, LEAST_LIMIT)
