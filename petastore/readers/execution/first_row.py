"""The first row of what is read, on which a transform is tried that nobody described by `edit_fields`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import decode_cells
from petastore.decoding.decoded import Decoded
from petastore.errors import PetastoreError
from petastore.plan.selection import Selection
from petastore.schema.unischema import Unischema
from petastore.storage.row_groups.asked_columns import Part
from petastore.transforming.first_row import SHOWN, is_described, settled, showing
from petastore.transforming.processes import TransformProcesses
from petastore.transforming.transform import TransformSpec, takes_frames, transform_columns
from petastore.work.workers import Workers

__all__ = ["described"]

_ANY_KEY = np.zeros((1, 2), dtype=np.uint64)
"""The random key of the row: dtypes and shapes must not depend on random numbers."""


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
    """A transform whose `edit_fields` are known: those that it was given, or what it makes of the first row.

    That is the first row, as files have them, of those that are read: the same for all ranks, in any order. What goes
    wrong with it goes wrong again when it is read, and is told then; it is not known before what the transform makes.

    Args:
        spec: The transform; None where there is none.
        dataset: Where the row is.
        selection: Which rows are read; None is all.
        view: The fields that the function is given.
        workers: Who calls the function: where processes do, one does so here, too.
        batched: Whether the reader gives batches, or else rows.
        more: Columns of one row that are in no file.
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
    """The columns of one row; None where none is read."""
    groups = np.flatnonzero(dataset.inventory.rows if selection is None else selection.counts)
    if not len(groups):
        return None
    group, place = int(groups[0]), np.zeros(1, np.int64)
    if selection is not None:
        place = selection.rows_at(np.array([group], np.int32), place)
    cells = _cells(dataset, group, int(place[0]), [field.name for field in view if field.name not in more])
    return {
        field.name: more[field.name]
        if field.name in more
        else decode_cells(cells[field.name], field, codec_of(field), max_cell_bytes=max_cell_bytes)
        for field in view
    }


def _cells(dataset: Dataset, group: int, row: int, columns: list[str]) -> dict[str, Any]:
    of_groups = dataset.partition_values(columns)
    cells = {name: values.take(arrow_numbers(np.array([group]))) for name, values in of_groups.items()}
    stored = tuple(name for name in columns if name not in cells)
    if stored:
        (upto_row,) = dataset.reading()(*dataset.inventory.place_of(group), [Part(stored, first=row + 1)])
        cells |= {name: upto_row.column(name).slice(row, 1).combine_chunks() for name in stored}
    return cells


def _shown(spec: TransformSpec, row: dict[str, Decoded], dataset: Dataset, workers: Workers, *, batched: bool) -> str:
    """What the function makes of a row, in words."""
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
