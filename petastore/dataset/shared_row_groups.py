"""Cache for remote row groups that several DataLoader workers need.

One worker fetches such a row group, and the other workers read it from the cache.

The last batches of an epoch have rows of all lanes (row sequences that an epoch interleaves), and only some workers
build these batches. A row group may therefore be needed by two workers: by the worker that reads its lane, and by a
worker that builds a last batch. Without sharing, four workers fetch 1.5 times the bytes of 80 row groups. A disk cache
stores only these shared row groups, in a temporary folder that is removed when the last worker of the loop ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from petastore.cache import DiskCache
from petastore.cache.folder import LEAST_LIMIT
from petastore.dataset.dataset import Dataset, ReadInParts
from petastore.inventory import DataFile
from petastore.lazy import once
from petastore.plan.cursor import Cursor
from petastore.plan.workers import WorkerPlan
from petastore.storage.ranges.pinned_files import KeptFiles
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.open_files import OpenFiles

__all__ = ["SharedFolder", "sharing"]

_LEAST_SHARE = 0.02
"""Smallest fraction of a rank's row groups that is worth sharing.

Below this fraction, sharing costs more than it saves.
"""

_ROOM = 2.5
"""Bytes of cache per stored byte of an epoch's shared row groups.

More than 1, because epochs overlap, and files are rounded up to disk blocks.
"""


class SharedFolder:
    """Temporary folder of the worker processes of one dataset.

    The last process that uses the folder removes it.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir(), f"petastore-workers-{os.getpid()}-{os.urandom(6).hex()}")
        # Needed if all workers are killed, because then no worker removes the folder.
        weakref.finalize(self, _remove_in, os.getpid(), self.path)

    @contextlib.contextmanager
    def used(self) -> Iterator[Path]:
        """Context manager: create the folder, and mark it as used by this process.

        It yields the path. At the end of the block, the folder is removed if no other process uses it.

        Raises:
            OSError: The folder cannot be created.
        """
        holder = self._held()
        try:
            yield self.path
        finally:
            with contextlib.suppress(OSError):  # if another worker holds the lock, the folder stays
                fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(self.path, ignore_errors=True)
            os.close(holder)

    def _held(self) -> int:
        while True:
            self.path.mkdir(mode=0o700, exist_ok=True)
            holder = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(holder, fcntl.LOCK_SH)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(holder), self.path.stat()):
                    return holder
            os.close(holder)  # the last worker of the previous loop has removed the folder in the meantime


def _remove_in(process: int, path: Path) -> None:
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def sharing(
    dataset: Dataset, plan: WorkerPlan, batch_size: int, folder: SharedFolder
) -> Iterator[tuple[Dataset, SharedRowGroups | None]]:
    """Context manager: cache the row groups that several workers of a rank need.

    It yields a dataset that reads these row groups through a disk cache, and the row groups. It yields the dataset
    itself and None if the row groups are too few, or if the folder cannot be created.

    Args:
        dataset: A remote dataset without a cache.
        plan: Plan of this worker process.
        batch_size: Number of rows of a batch.
        folder: Folder that the workers share.
    """
    groups = SharedRowGroups(plan, batch_size)
    with contextlib.ExitStack() as stack:
        path = None
        if groups.are_worth_sharing:
            with contextlib.suppress(OSError):
                path = stack.enter_context(folder.used())
        if path is None:
            yield dataset, None
            return
        groups.move_to(plan.begin.epoch)
        cache = DiskCache(path, limit=max(int(_ROOM * groups.stored_bytes), LEAST_LIMIT))
        kept = KeptFiles(cache, dataset.kept.versions, dataset.kept.asked)
        stack.callback(kept.close)
        fields = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(dataset)}
        yield _SharingDataset(**fields, shared=kept, groups=groups), groups


class SharedRowGroups:
    """Row groups that several workers of a rank read in this epoch or the next.

    Args:
        plan: Plan of one of the workers.
        batch_size: Number of rows of a batch.
    """

    def __init__(self, plan: WorkerPlan, batch_size: int) -> None:
        self._plan, self._batch_size = plan, batch_size
        self._places: dict[int, frozenset[tuple[str, int]]] = {}
        self.stored_bytes = 0
        """Stored bytes of the shared row groups of an epoch, all columns."""

    @property
    def are_worth_sharing(self) -> bool:
        """Whether enough of a rank's row groups are shared to make the cache worthwhile."""
        return self._plan.request.order.lanes > _LEAST_SHARE * int(np.count_nonzero(self._plan.rows))

    def __contains__(self, place: object) -> bool:
        return any(place in places for places in self._places.values())

    def move_to(self, epoch: int) -> None:
        """Set the current epoch; compute the shared row groups of this and the next epoch."""
        if epoch + 1 not in self._places:
            self._places = {each: self._places_in(each) for each in (epoch, epoch + 1)}

    def _places_in(self, epoch: int) -> frozenset[tuple[str, int]]:
        if epoch in self._places:
            return self._places[epoch]
        if Cursor.of_epoch(epoch).is_at_end(self._plan.request.epochs):
            return frozenset()
        inventory = self._plan.inventory
        groups = self._plan.shared_row_groups(self._batch_size, epoch)
        self.stored_bytes = max(int(inventory.stored_bytes[groups].sum()), self.stored_bytes)
        return frozenset((file.path, ordinal) for file, ordinal in map(inventory.place_of, groups.tolist()))


@dataclasses.dataclass(frozen=True, repr=False)
class _SharingDataset(Dataset):
    """A dataset that reads shared row groups through a cache."""

    shared: KeptFiles = dataclasses.field(default_factory=KeptFiles, compare=False)
    """File versions and cache for reading the shared row groups."""

    groups: Container[tuple[str, int]] = dataclasses.field(default=(), compare=False)
    """Shared row groups: path of the file, and number in the file."""

    @once
    def _through_cache(self) -> Dataset:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(Dataset)}
        return Dataset(**{**fields, "kept": self.shared})

    def reading(self, files: OpenFiles | None = None) -> ReadInParts:
        alone, shared = super().reading(files), self._through_cache.reading(files)

        def read(file: DataFile, ordinal: int, parts: Sequence[Part]) -> Iterator[pa.Table]:
            return (shared if (file.path, ordinal) in self.groups else alone)(file, ordinal, parts)

        return read

    def fetch_ahead(
        self, file: DataFile, ordinal: int, columns: Sequence[str], files: OpenFiles, *, by_cache: bool = False
    ) -> None:
        if (file.path, ordinal) in self.groups:
            self._through_cache.fetch_ahead(file, ordinal, columns, files, by_cache=True)
        else:
            super().fetch_ahead(file, ordinal, columns, files, by_cache=by_cache)

    def read_together(
        self, asked: Sequence[tuple[DataFile, int]], parts: Sequence[Part], files: OpenFiles | None = None
    ) -> Iterator[pa.Table]:
        is_shared = any((file.path, ordinal) in self.groups for file, ordinal in asked)
        read = self._through_cache.read_together if is_shared else super().read_together
        return read(asked, parts, files)
