"""Sizes of the row groups and files that a write creates, and the division of its rows into row groups. No I/O."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from petastore.errors import InvalidArgumentError

__all__ = ["Layout", "row_groups"]

_DEFAULT_ROW_GROUP_MB = 32
_FILE_BYTES = 256 * 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Layout:
    """Requested sizes of files and row groups.

    Example:
        >>> Layout.of(rows_per_row_group=1500, row_group_size_mb=None, rows_per_file=None).rows_per_row_group
        1500
    """

    rows_per_row_group: int | None
    """Number of rows of each row group except the last of a file; None if determined by bytes."""

    row_group_bytes: int
    """Approximate Arrow bytes of the encoded columns of a row group; used if `rows_per_row_group` is None."""

    rows_per_file: int | None
    """Number of rows of each file except the last; None if determined by bytes."""

    file_bytes: int = _FILE_BYTES
    """Stored bytes after which a file is complete and the next one begins; used if `rows_per_file` is None."""

    @classmethod
    def of(cls, *, rows_per_row_group: Any, row_group_size_mb: Any, rows_per_file: Any) -> Layout:
        """Return the layout for these parameters of `write_dataset`.

        Raises:
            InvalidArgumentError: A value is not a number above 0, or both rows and bytes of a row group are given.
        """
        if rows_per_row_group is not None and row_group_size_mb is not None:
            raise InvalidArgumentError(
                f"rows_per_row_group and row_group_size_mb must not both be given, got {rows_per_row_group!r} and "
                f"{row_group_size_mb!r}. Pass one of them"
            )
        for name, rows in (("rows_per_row_group", rows_per_row_group), ("rows_per_file", rows_per_file)):
            if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
                raise InvalidArgumentError(f"{name} must be an int of at least 1, got {rows!r}")
        size = _DEFAULT_ROW_GROUP_MB if row_group_size_mb is None else row_group_size_mb
        if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 < size < math.inf:
            raise InvalidArgumentError(f"row_group_size_mb must be a number of MiB above 0, got {size!r}")
        return cls(rows_per_row_group, max(1, int(size * 1024 * 1024)), rows_per_file)


def row_groups(batches: Iterable[pa.RecordBatch], layout: Layout) -> Iterator[pa.Table]:
    """Cut a stream of batches into row groups, across the borders of batches.

    A row group also ends where `rows_per_file` ends a file, so whole row groups fill whole files.

    Example:
        >>> batches = [pa.record_batch({"id": list(range(n))}) for n in (4, 3, 2)]
        >>> layout = Layout.of(rows_per_row_group=5, row_group_size_mb=None, rows_per_file=7)
        >>> [group.num_rows for group in row_groups(batches, layout)]
        [5, 2, 2]
    """
    held: list[pa.RecordBatch] = []
    rows = size = in_file = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            room = _room(rest, layout, rows, size, in_file)
            part, rest = rest.slice(0, room), rest.slice(room)
            held.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if part.num_rows == room:
                yield pa.Table.from_batches(held)
                in_file = (in_file + rows) % layout.rows_per_file if layout.rows_per_file else 0
                held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _room(batch: pa.RecordBatch, layout: Layout, rows: int, size: int, in_file: int) -> int:
    """Return the number of rows until the row group is full, at least 1."""
    if layout.rows_per_row_group is not None:
        room = layout.rows_per_row_group - rows
    else:
        room = max(1, math.ceil((layout.row_group_bytes - size) * batch.num_rows / max(1, batch.nbytes)))
    return room if layout.rows_per_file is None else min(room, layout.rows_per_file - in_file - rows)
