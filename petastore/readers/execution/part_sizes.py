"""Division of huge row groups into parts, so that reading in file order stays within the memory budget."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.errors import LargeRowGroupWarning
from petastore.plan.plan import Plan
from petastore.plan.row_group_parts import RowGroupParts, rows_of_part
from petastore.readers.loaded.footprint import Footprint

__all__ = ["STREAMED_COLUMN_BYTES", "page_bytes_of", "parts_of", "warn_of_huge_row_groups"]

_HUGE_SHARE = 4
"""Divisor of the budget: row groups that take more than a quarter of it are divided into parts."""

_PART_SHARE = 24
"""Divisor of the budget: a part takes a 24th of it, because two parts are decoded at a time, and several more are in
memory for the batches being assembled."""

STREAMED_COLUMN_BYTES = 2_500_000
"""Memory of a streamed column: a page of 1 MiB, as most writers make them, compressed and decoded, and a buffer."""


def parts_of(plan: Plan, footprint: Footprint, limit: int) -> RowGroupParts | None:
    """Divide row groups that are larger than a quarter of the budget into parts; return None if no row group is larger.

    If rows are shuffled, row groups are not divided.

    Args:
        plan: Plan of the rows.
        footprint: Memory of its row groups.
        limit: Value of `memory_budget`.
    """
    is_huge = _are_huge(plan, footprint, limit)
    if plan.parts is not None or not is_huge.any() or not plan.reads_in_file_order:
        return None
    sizes, rows = footprint.group_bytes, plan.inventory.rows
    # Decoding in parts keeps pages of all columns in memory. With many columns, they may take as much memory as the
    # whole row group.
    is_huge &= sizes > 2 * len(footprint.view.fields) * STREAMED_COLUMN_BYTES
    of_parts = np.where(is_huge, rows_of_part(sizes, rows, limit // _PART_SHARE), np.maximum(rows, 1))
    return RowGroupParts.of(rows, of_parts) if (of_parts < rows).any() else None


def page_bytes_of(dataset: Dataset, plan: Plan, footprint: Footprint, limit: int) -> int:
    """Return the bytes of pages that are in memory while the largest row group is decoded; 0 for remote files."""
    if not dataset.location.is_local:
        return 0
    from petastore.storage.row_groups.streamed_pages import page_bytes  # only needed for huge row groups

    is_huge = _are_huge(plan, footprint, limit)
    file, ordinal = plan.inventory.place_of(int(np.where(is_huge, footprint.group_bytes, 0).argmax()))
    return page_bytes(dataset.location, dataset.footers.get(dataset.location, file), ordinal, footprint.view.fields)


def _are_huge(plan: Plan, footprint: Footprint, limit: int) -> NDArray[np.bool_]:
    """Return a mask of the row groups that are read and take more than a quarter of the budget, shape (groups,)."""
    return (footprint.group_bytes > limit // _HUGE_SHARE) & (plan.rows > 0)


def warn_of_huge_row_groups(plan: Plan, footprint: Footprint, limit: int) -> None:
    """Issue a warning if a row group takes more than a quarter of the budget and cannot be divided.

    Args:
        plan: Plan of the rows, which are loaded by whole row groups.
        footprint: Memory of its row groups.
        limit: Value of `memory_budget`.
    """
    is_huge = _are_huge(plan, footprint, limit)
    if not is_huge.any() or plan.reads_in_file_order:
        return
    group = int(np.where(is_huge, footprint.group_bytes, 0).argmax())
    size = int(footprint.group_bytes[group])
    file, ordinal = plan.inventory.place_of(group)
    smaller = max(limit // _HUGE_SHARE // 2**20 // 2, 1)
    warnings.warn(
        f"row group {ordinal} of {file.path} takes {size:,} bytes of memory_budget={limit:,}, and is loaded whole "
        "because its rows are shuffled or interleaved. Read in file order (shuffle_rows=False, interleave=None), which "
        f"loads it in parts; write smaller row groups (petastore copy --row-group-size-mb {smaller}); or raise "
        "memory_budget",
        LargeRowGroupWarning,
        stacklevel=2,
    )
