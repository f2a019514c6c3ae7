"""The smallest work item of a reader. Pure."""

from __future__ import annotations

import dataclasses

from petastore.inventory import DataFile

__all__ = ["ReadUnit"]


@dataclasses.dataclass(frozen=True, slots=True)
class ReadUnit:
    """Read these columns of this row group. Small, picklable, and meaningful on any host that reaches the dataset."""

    group: int
    """Number of the row group in the whole dataset."""

    file: DataFile
    """Its file, with the version that is meant."""

    row_group: int
    """Its ordinal inside the file."""

    rows: tuple[int, int]
    """Rows of the row group that are meant: half-open, in rows."""

    columns: tuple[str, ...]
    """Columns, in the order wanted."""
