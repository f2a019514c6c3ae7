"""Ends of files that are kept on the local disk, by the version that a storage tells beforehand.

Each is fetched once for all processes of a host, and found there by whoever opens the dataset later. What is found is
believed no more than what a storage sends: it is parsed and checked as that is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from petastore.storage.files.location import Location
from petastore.storage.footers.tails import MAX_FOOTER_BYTES, Tail
from petastore.storage.ranges.kept_files import footer_key
from petastore.storage.requests.client import FileVersion
from petastore.storage.requests.under_way import waiting_for

if TYPE_CHECKING:
    from petastore.cache import DiskCache

__all__ = ["KeptTails"]

_MOST_ETAG_BYTES = 1024


@dataclasses.dataclass(frozen=True)
class KeptTails:
    """Keeps the ends of the files of a dataset. Thread-safe."""

    cache: DiskCache
    """Where."""

    location: Location
    """Where the dataset lies."""

    told: Mapping[str, FileVersion]
    """Of files: the version that they have, as a listing or a manifest told. Of others nothing is kept."""

    def tail(self, path: str, fetch: Callable[[], Tail]) -> Tail:
        """The end of a file, from the cache, or else fetched and kept.

        Another process that is fetching it is waited for. What is fetched of another version than was told is not kept,
        nor is a version that only size and time tell: two may be written in one tick of a storage's clock.

        Args:
            path: The file, relative to the root.
            fetch: Fetches it.

        Raises:
            StorageError: As `fetch` does.
            MetadataError: As `fetch` does.
        """
        key = self._key(path)
        if key is None:
            return fetch()
        version, others = self.told[path], list[Tail]()

        def entry() -> bytes:
            tail = fetch()
            if not _is_told(tail, version):
                others.append(tail)
                raise _AnotherVersionError
            return _packed(tail)

        try:
            with (
                waiting_for(self.location.url, f"read the footer of {path}", self.location.timeout_s),
                self.cache.entry(key, entry) as view,
            ):
                tail = _unpacked(bytes(view), version)
        except _AnotherVersionError:
            return others[0]
        if tail is None:  # it is whole, but none that is written here
            self.forget(path)
            return fetch()
        return tail

    def forget(self, *paths: str) -> None:
        """Keeps ends of files no longer: what one of them says cannot be, so it may be damaged since it was sent."""
        self.cache.discard([key for key in map(self._key, paths) if key is not None])

    def _key(self, path: str) -> str | None:
        return footer_key(self.location, path, self.told[path]) if path in self.told else None


class _AnotherVersionError(Exception):
    """What was fetched is not to be kept."""


def _is_told(tail: Tail, version: FileVersion) -> bool:
    kept = tail.version
    return (
        kept is not None
        and kept.size == tail.size == version.size
        and bool(kept.strong_etag)
        and _bare(kept.etag) == _bare(version.etag)
    )


def _bare(etag: str) -> str:
    """An etag without its quotes: some listings leave them out."""
    return etag.strip('"')


def _packed(tail: Tail) -> bytes:
    """The etag, as it has to be demanded, and the footer behind it."""
    etag = b"" if tail.version is None else tail.version.etag.encode("utf-8", "surrogatepass")
    return len(etag).to_bytes(4, "little") + etag + tail.footer


def _unpacked(entry: bytes, version: FileVersion) -> Tail | None:
    """What was packed; None where that cannot have been, of this version."""
    length = int.from_bytes(entry[:4], "little")
    etag, footer = entry[4 : 4 + length], entry[4 + length :]
    if length > _MOST_ETAG_BYTES or not 0 < len(footer) <= min(MAX_FOOTER_BYTES, version.size):
        return None
    tail = Tail(version.size, footer, FileVersion(version.size, etag.decode("utf-8", "replace")))
    return tail if _is_told(tail, version) else None
