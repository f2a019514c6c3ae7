"""The one write job of a block: it begins with the first rows that tasks write, and is committed at its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, get_args

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.spark.writing.write_job import Part, WriteJob
from petastore.writers.layout import Layout
from petastore.writers.target import Mode

__all__ = ["BlockJob"]


@dataclasses.dataclass
class BlockJob:
    """Writes of one block, which are committed together. For one thread."""

    url: str
    schema: Unischema
    """The schema of the rows."""
    layout: Layout
    compression: str
    writer: str
    """Who writes, for people."""
    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    filesystem: Any = dataclasses.field(default=None, repr=False)
    _job: WriteJob | None = dataclasses.field(default=None, init=False)
    _parts: list[Part] = dataclasses.field(default_factory=list, init=False)
    _has_written: bool = dataclasses.field(default=False, init=False)

    @property
    def has_written(self) -> bool:
        """Whether a write has ended well, though it may have had no rows."""
        return self._has_written

    def write(self, mode: Mode, parts_of: Callable[[WriteJob, int], list[Part]]) -> None:
        """Adds rows.

        Args:
            mode: What becomes of rows that were there before the block; the same for all writes of it.
            parts_of: Lets Spark write, given the job and the number of the next part.

        Raises:
            InvalidArgumentError: The mode is not known, or another one than before.
            DatasetExistsError, SchemaError, StorageError: As `WriteJob.begin`.
        """
        if mode not in get_args(Mode):
            raise InvalidArgumentError(
                f"mode={mode!r} is not known; choose one of {', '.join(map(repr, get_args(Mode)))}"
            )
        if self._job is None:
            self._job = WriteJob.begin(
                self.url,
                self.schema,
                self.layout,
                compression=self.compression,
                mode=mode,
                writer=self.writer,
                storage_options=self.storage_options,
                filesystem=self.filesystem,
            )
        elif mode != self._job.mode:
            raise InvalidArgumentError(
                f"this block began with mode={self._job.mode!r}, and mode={mode!r} was asked for; the mode says what "
                "becomes of what was there before the block, so give all of its writes the same"
            )
        self._parts += parts_of(self._job, len(self._parts))
        self._has_written = True

    def commit(self) -> Inventory:
        """Makes all that was written the dataset, or a part of it; as `WriteJob.commit`."""
        assert self._job is not None  # noqa: S101 - something was written
        return self._job.commit(self._parts)

    def abort(self) -> None:
        """Deletes what was written; as `WriteJob.abort`."""
        if self._job is not None:
            self._job.abort()
