"""Loaded row group: columns that stay in memory until the last batch that needs them is assembled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.arrow import has_nulls_inside
from petastore.codecs.arrow.arrow_views import ByteCells
from petastore.lazy import once
from petastore.readers.loaded.arena import Place

__all__ = ["LoadedRowGroup"]


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedRowGroup:
    """Columns of one row group, or of several row groups that were loaded together. Immutable."""

    rows: int
    """Number of rows."""

    place: Place
    """Memory of the stacks; in it, the values of columns that are in `cells` are arbitrary."""

    missing: Mapping[str, NDArray[np.bool_]]
    """Masks of missing rows of stacked columns, shape (rows,)."""

    cells: Mapping[str, Any]
    """Encoded columns: a `pyarrow.Array` of all rows."""

    files: Mapping[str, ByteCells]
    """Bytes of each cell, for columns without nulls whose codec decodes bytes directly into the batch (images)."""

    sizes: Mapping[str, NDArray[np.int64]]
    """Decoded bytes of each value in variable-size columns, shape (rows,)."""

    alike: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    """Free-shape columns whose values all have one shape: a view of the cells' memory, shape (rows, *shape)."""

    in_file_order: bool = True
    """Whether the plan reads the rows in file order."""

    members: Mapping[int, int] | None = None
    """First row of each row group, by row group number, ascending by row, if several row groups were loaded together;
    None for one row group."""

    @once
    def _nulls_inside(self) -> dict[str, bool]:
        """Cached results of `has_nulls_inside`, by column name."""
        return {}

    def has_nulls_inside(self, name: str) -> bool:
        """Return whether the lists of an encoded column contain nulls; False for other columns."""
        known = self._nulls_inside.get(name)
        if known is None:
            known = self._nulls_inside[name] = name in self.cells and has_nulls_inside(self.cells[name])
        return known

    @once
    def largest(self) -> Mapping[str, int]:
        """Bytes of the largest value of each variable-size column."""
        return {name: int(sizes.max(initial=0)) for name, sizes in self.sizes.items()}

    @once
    def total_bytes(self) -> Mapping[str, int]:
        """Bytes of all values of each variable-size column."""
        return {name: int(sizes.sum()) for name, sizes in self.sizes.items()}
