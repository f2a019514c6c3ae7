"""The footprint of windows: what the rows that they are made of take, and the same laid side by side."""

from __future__ import annotations

import dataclasses

import numpy as np

from petastore.once import once
from petastore.plan.batches.budget import Needs
from petastore.plan.windows.ngram import NGram
from petastore.plan.windows.windows import Windows
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.windows.assemble_windows import HEADS_BYTES
from petastore.work.workers import Workers

__all__ = ["footprint_of_windows"]

_COVERED_ROW_BYTES = 56
"""What a row of a window takes besides its values: which it is, and where it stands among those of its span."""


def footprint_of_windows(
    rows: Footprint, ngram: NGram, windows: Windows | None = None, *, workers: Workers
) -> Footprint:
    """What windows take, given what their rows would.

    Args:
        rows: Of a reader of the rows.
        ngram: What a window is.
        windows: Which rows each window covers; None is consecutive rows.
        workers: Who does the work, and shares the beginnings of row groups.
    """
    inventory, more = rows.inventory, ngram.length - 1 if windows is None else windows.most_following
    row_bytes = -(-int(inventory.decoded_bytes.sum()) // max(inventory.num_rows, 1))
    extended = dataclasses.replace(
        inventory, rows=inventory.rows + more, decoded_bytes=inventory.decoded_bytes + more * row_bytes
    )
    heads = min(HEADS_BYTES, int(np.broadcast_to(more, inventory.rows.shape).sum()) * row_bytes)
    of_each = heads // max(workers.at_a_time, 1)
    return _WindowFootprint(rows.view, rows.stored, rows.layout, extended, len(ngram.fields), of_each)


@dataclasses.dataclass(frozen=True)
class _WindowFootprint(Footprint):
    """What windows take: the rows that they are made of, and the same laid side by side."""

    rows_of_window: int

    head_bytes: int
    """One worker's part of the beginnings of row groups that all of them share."""

    @once
    def row_bytes(self) -> int:
        return 2 * self.rows_of_window * super().row_bytes

    @property
    def needs(self) -> Needs:
        needs = super().needs
        joined = int(
            self._encoded_bytes.max(initial=0)
        )  # a row group's cells lie twice while others are put behind them
        return dataclasses.replace(
            needs,
            work_bytes=needs.work_bytes + joined + self.head_bytes,
            plan_row_bytes=needs.plan_row_bytes + self.rows_of_window * _COVERED_ROW_BYTES,
        )
