"""Rows in the layout that is best for formats of whole samples: all numbers of one dtype as one array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.bench.values import Values
from benchmarks.bench.workloads import Column, Workload

__all__ = ["packed_columns", "packed_rows"]

_CHUNK = 4096


def packed_columns(workload: Workload) -> dict[str, Column]:
    """The columns after packing: `float32` and `int64` hold all numbers of that dtype."""
    packed = {name: column for name, column in workload.columns.items() if column.kind != "number"}
    for dtype in ("float32", "int64"):
        names = _numbers(workload, dtype)
        if names:
            packed[dtype] = Column("array", dtype, (len(names),))
    return packed


def packed_rows(workload: Workload, values: Values) -> Iterator[dict[str, Any]]:
    """Rows as dicts: keys are integers, texts and pictures bytes, the rest arrays."""
    columns = {name: values.column(name) for name in workload.columns}
    for first in range(0, workload.rows, _CHUNK):
        rows = range(first, min(first + _CHUNK, workload.rows))
        yield from _packed_chunk(workload, columns, rows)


def _packed_chunk(workload: Workload, columns: dict[str, Any], rows: range) -> Iterator[dict[str, Any]]:
    packed = packed_columns(workload)
    stacked = {
        dtype: np.stack([columns[name][rows.start : rows.stop] for name in _numbers(workload, dtype)], axis=1)
        for dtype in ("float32", "int64")
        if dtype in packed
    }
    for place, row in enumerate(rows):
        cells: dict[str, Any] = {}
        for name, column in packed.items():
            if name in stacked:
                cells[name] = stacked[name][place]
            elif column.kind == "key":
                cells[name] = int(columns[name][row])
            else:
                cells[name] = columns[name][row]
        yield cells


def _numbers(workload: Workload, dtype: str) -> list[str]:
    return [name for name in workload.of_kind("number") if workload.columns[name].dtype == dtype]
