"""Work unit: a row group, or a part of one, for a reader to load. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from petastore.inventory import DataFile, Inventory

__all__ = ["ReadUnit"]


@dataclasses.dataclass(frozen=True, slots=True)
class ReadUnit:
    """Columns of one row group to read. Small, picklable, and valid on any host that can access the dataset."""

    group: int
    """Number of the row group in the whole dataset."""

    file: DataFile
    """File of the row group, with its expected version."""

    row_group: int
    """Number of the row group in the file."""

    rows: tuple[int, int]
    """Half-open range of rows to read in the row group."""

    columns: tuple[str, ...]
    """Columns to read, in order."""

    @classmethod
    def whole(cls, inventory: Inventory, group: int, columns: Iterable[str]) -> ReadUnit:
        """Return the unit of all rows of a row group, given its number in the dataset.

        Example:
            >>> unit = ReadUnit.whole(Inventory.of_rows([3, 5]), 1, ["id"])
            >>> unit.row_group, unit.rows, unit.columns
            (1, (0, 5), ('id',))
        """
        file, ordinal = inventory.place_of(group)
        return cls(group, file, ordinal, (0, int(inventory.rows[group])), tuple(columns))
