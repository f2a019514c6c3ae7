"""What file systems of fsspec list: names of files' versions, and that they list anew. Local files need no fsspec."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from pyarrow import fs

__all__ = ["ListedInfo", "etag_in", "forget_listings", "listed_etag"]

_ETAGS = ("generation", "ETag", "etag", "e_tag", "md5Hash", "content_md5", "blob_id", "sha", "hex")


def etag_in(info: Mapping[str, Any]) -> str:
    """What a file system of fsspec's calls this version of a file; empty where it has no name for it.

    Args:
        info: What it says of the file.

    Example:
        >>> etag_in({"name": "a", "size": 7, "ETag": '"9a0364b9"'}), etag_in({"name": "a", "size": 7})
        ('"9a0364b9"', '')
    """
    return next((str(info[name]) for name in _ETAGS if info.get(name) is not None), "")


def forget_listings(store: Any, path: str | None = None) -> None:
    """Has a file system of fsspec's ask again what is there: some remember listings for ever, and others write too.

    Args:
        store: The file system.
        path: What is asked for next; None is anything.
    """
    if path is not None:
        with contextlib.suppress(TypeError):  # some forget all or nothing
            store.invalidate_cache(path)
            return
    store.invalidate_cache()


class ListedInfo(fs.FileInfo):  # type: ignore[misc]
    """What was listed of a file, with the name of its version, for which Arrow has no place."""

    etag = ""


def listed_etag(info: fs.FileInfo) -> str:
    """The name of the version that was listed; empty where there is none, or the file system is another."""
    return str(getattr(info, "etag", ""))
