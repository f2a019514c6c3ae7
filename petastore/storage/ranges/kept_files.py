"""What is kept of the files of a dataset from pass to pass: which version of each is read, and where its bytes are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.ranges.client import FileVersion
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.requests.failure_kinds import attribute
from petastore.storage.requests.shown import shown_url, without_query

if TYPE_CHECKING:
    from petastore.cache import DiskCache

__all__ = ["KeptFiles", "keys_of"]

_SERVERS = ("endpoint_url", "endpoint", "endpoint_override", "account_name", "account_host", "host", "port")
"""Options of file systems that say which of several servers is asked, where URLs do not."""


@dataclasses.dataclass(frozen=True, eq=False)
class KeptFiles:
    """What is kept of the files of a dataset as long as it is open. Thread-safe, and pickles."""

    cache: DiskCache | None = None
    """Keeps column chunks on the local disk; None keeps none."""

    versions: dict[DataFile, FileVersion] = dataclasses.field(default_factory=dict, repr=False)
    """Of files that were asked for: the version that has the footer by which it is read."""

    def close(self) -> None:
        """Gives open files of the cache back; it opens them again when it is used again."""
        if self.cache is not None:
            self.cache.close()


def keys_of(location: Location, file: DataFile, version: FileVersion, ranges: Sequence[ByteRange]) -> list[str] | None:
    """Under which keys a cache has ranges of a file; None where nothing tells this version of it from another.

    Whoever may read the file by other credentials, or by a signed URL, finds the same.

    Args:
        location: Where the dataset lies.
        file: The file.
        version: Which of its versions.
        ranges: The ranges.
    """
    told = version.strong_etag or f"{version.etag}, {version.modified}".strip(", ")
    if not told:
        return None
    path = shown_url(without_query(location.join(file.path)))
    of_file = (_server(location.store), path, version.size, told, file.digest)
    return [repr((*of_file, *one)) for one in ranges]


def _server(store: Any) -> tuple[str, ...]:
    """The kind of a file system, and what says which server it asks."""
    options = attribute(store, "storage_options") or {}
    places = [*options.items(), *(options.get("client_kwargs") or {}).items()]
    told = [f"{name}={shown_url(str(value))}" for name, value in places if name in _SERVERS and value is not None]
    return (str(attribute(store, "protocol")), str(attribute(store, "account_name")), *sorted(told))
