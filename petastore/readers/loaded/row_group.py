"""A loaded row group: the columns of a row group at hand, from being fetched to the last batch that needs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_views import ByteCells
from petastore.once import once
from petastore.plan.order.mix import counting
from petastore.readers.loaded.arena import Place

__all__ = ["LoadedRowGroup"]


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedRowGroup:
    """The columns of one row group. Read-only once it is made."""

    rows: int
    """How many it has."""

    read_order: NDArray[np.int64] | None
    """Its rows in the order in which the plan comes to them, each once; None is the order of the file."""

    stacks: tuple[NDArray[Any], ...]
    """Of each stack of the layout: `(columns, rows, *shape)`; columns that are in `cells` are arbitrary there."""

    missing: Mapping[str, NDArray[np.bool_]]
    """Of stacked columns with missing values: which rows, shape (rows,)."""

    cells: Mapping[str, Any]
    """Of the other columns: a `pyarrow.Array` of all rows."""

    files: Mapping[str, ByteCells]
    """Of those of them whose codec decodes cells wherever they lie: where each lies. Not of columns with nulls."""

    sizes: Mapping[str, NDArray[np.int64]]
    """Of those whose values differ in size: bytes of each once decoded, shape (rows,)."""

    place: Place | None = None
    """Where the stacks stand in an arena; None where they are arrays of their own."""

    alike: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    """Of those of them whose arrays may have any shape and all have one: the values over the memory of the cells, shape
    (rows, *shape)."""

    @once
    def largest(self) -> Mapping[str, int]:
        """Of those columns whose values differ in size: bytes of the largest one."""
        return {name: int(sizes.max(initial=0)) for name, sizes in self.sizes.items()}

    @once
    def total_bytes(self) -> Mapping[str, int]:
        """Of those columns whose values differ in size: bytes of all of them."""
        return {name: int(sizes.sum()) for name, sizes in self.sizes.items()}

    @once
    def places(self) -> NDArray[np.int32] | None:
        """Where each row of the file lies in stacks in read order, shape (rows,); None where it is as in the file.

        It is -1 for rows that nobody wants.

        Worked out when somebody asks: most plans ask for runs of the read order. In an arena it stands there, too.
        """
        in_arena = None if self.place is None or not len(self.place.places()) else self.place.places()
        if self.read_order is None:
            if in_arena is not None:
                in_arena[:] = counting(self.rows)
            return None
        places = np.full(self.rows, -1, np.int32)
        places[self.read_order] = counting(len(self.read_order))
        if in_arena is None:
            return places
        in_arena[:] = places  # at one go: who reads it while somebody else writes it finds what is right
        return in_arena
