"""Files that are read in the one version whose footer is known, from the first range to the last."""

from __future__ import annotations

from collections.abc import Iterable

from petastore.errors import DatasetChangedError
from petastore.inventory import DataFile
from petastore.storage.ranges.client import FileVersion
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.fetch import FetchedRanges, RangeFetcher

__all__ = ["PinnedFiles"]

_END_BYTES = 8
"""Behind the footer stand its length and the magic."""


class PinnedFiles:
    """Fetches ranges of files, each of the version that was found to have the footer by which it is read. Thread-safe.

    That is found out once a file: its footer is fetched with whatever version the file has, and demanded of that
    version is everything afterwards.

    Args:
        fetcher: Fetches; whoever made it closes it.
    """

    def __init__(self, fetcher: RangeFetcher) -> None:
        self.fetcher = fetcher
        self._versions: dict[DataFile, FileVersion] = {}

    def fetch(self, file: DataFile, footer: bytes, asked: Iterable[ByteRange]) -> FetchedRanges:
        """Ranges of a file.

        Args:
            file: The file.
            footer: The footer by which it is read, as it lies in the file.
            asked: The ranges.

        Raises:
            DatasetChangedError: The file has another footer, or was written to since.
            StorageError: It cannot be read.
        """
        version = self._versions.get(file)
        if version is None:
            # Threads that come here together may each ask; they find the same.
            version = self._versions[file] = self._found(file, footer)
        return self.fetcher.fetch(file.path, version, asked)

    def _found(self, file: DataFile, footer: bytes) -> FileVersion:
        place = ByteRange(file.size - _END_BYTES - len(footer), len(footer))
        now = self.fetcher.newest(file.path, file.size, place)
        if now.read(*place).to_pybytes() != footer:
            raise DatasetChangedError(
                f"{file.path} was rewritten since the dataset was listed: it had {file.size:,} bytes and footer "
                f"{file.digest or '(unknown)'}, and has {now.version} and another footer. Open the dataset again"
            )
        return now.version
