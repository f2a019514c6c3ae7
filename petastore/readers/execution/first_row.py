"""Infer the output schema of a transform without `edit_fields` from the first selected row."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.dataset.stored_cells import stored_cells
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded, decode_cells
from petastore.errors import PetastoreError
from petastore.plan.selection import Selection
from petastore.schema.unischema import Unischema
from petastore.transforming.processes import TransformProcesses
from petastore.transforming.transform import (
    SHOWN,
    TransformSpec,
    is_described,
    settled,
    showing,
    takes_frames,
    transform_columns,
)
from petastore.work.pools import Workers

__all__ = ["described"]

_ANY_KEY = np.zeros((1, 2), dtype=np.uint64)
"""Random key of the first row: any key works, because dtypes and shapes must not depend on random numbers."""


def described(
    spec: TransformSpec | None,
    dataset: Dataset,
    selection: Selection | None,
    view: Unischema,
    *,
    workers: Workers,
    batched: bool,
    more: Mapping[str, Decoded] | None = None,
) -> TransformSpec | None:
    """Return the transform with `edit_fields`, inferred from the first row if the user did not pass them.

    The first row is the first selected row in file order, which is the same for all ranks and orders. If the row cannot
    be read, or if the function raises for it, the transform is returned unchanged. The error is then raised when the
    row is read.

    Args:
        spec: Transform, or None.
        dataset: Dataset of the row.
        selection: Selected rows; None means all.
        view: Fields that the function receives.
        workers: Worker options; with a process pool, a worker process calls the function.
        batched: Whether the reader yields batches instead of rows.
        more: Columns of one row that are not in files, such as the source column.
    """
    if spec is None or is_described(spec):
        return spec
    with contextlib.suppress(PetastoreError):
        row = _first_row(dataset, selection, view, workers.max_cell_bytes, more or {})
        if row is not None:
            return settled(spec, view, _shown(spec, row, dataset, workers, batched=batched))
    return spec


def _first_row(
    dataset: Dataset,
    selection: Selection | None,
    view: Unischema,
    max_cell_bytes: int | None,
    more: Mapping[str, Decoded],
) -> dict[str, Decoded] | None:
    """Return the columns of the first selected row, each with one value; None if no row is selected."""
    groups = np.flatnonzero(dataset.inventory.rows if selection is None else selection.counts)
    if not len(groups):
        return None
    group, place = int(groups[0]), np.zeros(1, np.int64)
    if selection is not None:
        place = selection.rows_at(np.array([group], np.int32), place)
    names, row = [field.name for field in view if field.name not in more], int(place[0])
    upto_row = stored_cells(dataset, names, group, partitions=dataset.partition_values(names), first=row + 1)
    cells = {name: column.slice(row) for name, column in upto_row.items()}
    return {
        field.name: more[field.name]
        if field.name in more
        else decode_cells(cells[field.name], field, codec_of(field), max_cell_bytes=max_cell_bytes)
        for field in view
    }


def _shown(spec: TransformSpec, row: dict[str, Decoded], dataset: Dataset, workers: Workers, *, batched: bool) -> str:
    """Call the transform function with one row; return a JSON text with the dtypes and shapes of the values."""
    of_frames = takes_frames(spec, batched=batched)
    shows = showing(spec, spec.takes or ("dataframe" if of_frames else "row"))
    zones = dataset.time_zones if of_frames else {}
    one_call: NDArray[np.int64] = np.array([0, 1], dtype=np.int64)
    if workers.kind != "process":
        made = transform_columns(row, one_call, SHOWN, shows, batched=batched, zones=zones, keys=_ANY_KEY)
    else:
        made = _in_a_process(shows, row, one_call, zones, batched=batched)
    shown: str = made["shown"].values[0]
    return shown


def _in_a_process(
    shows: TransformSpec, row: dict[str, Decoded], calls: NDArray[np.int64], zones: Mapping[str, str], *, batched: bool
) -> dict[str, Decoded]:
    processes = TransformProcesses(1)
    try:
        transform = processes.add(shows, SHOWN, batched=batched, buffers=Buffers(), zones=zones)
        with contextlib.closing(processes.pool()) as pool:
            made = transform(row, calls, keys=_ANY_KEY)
            columns: dict[str, Decoded] = made if isinstance(made, dict) else made.result()
        pool.join()
        return columns
    finally:
        processes.close()
        processes.join()
