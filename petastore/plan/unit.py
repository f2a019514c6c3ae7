"""The smallest work item of a reader. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from petastore.inventory import DataFile, Inventory

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

    @classmethod
    def whole(cls, inventory: Inventory, group: int, columns: Iterable[str]) -> ReadUnit:
        """All rows of a row group, given by its number in the dataset.

        Example:
            >>> unit = ReadUnit.whole(Inventory.of_rows([3, 5]), 1, ["id"])
            >>> unit.row_group, unit.rows, unit.columns
            (1, (0, 5), ('id',))
        """
        file, ordinal = inventory.place_of(group)
        return cls(group, file, ordinal, (0, int(inventory.rows[group])), tuple(columns))
