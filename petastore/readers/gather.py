"""Gather: from row groups at hand, the cells of a span's rows in the order of its batches.

The window holds cells as they are stored: JPEG bytes, not pixels. Plain numbers are gathered as NumPy views of the
Arrow buffers, everything else as Arrow arrays; either way no Python object is made for a cell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.plan.plan import Span
from petastore.storage.layouts import arrow_numbers

__all__ = ["Picks"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Picks:
    """Which rows of which row groups a span takes, worked out once for all of its columns."""

    segments: tuple[tuple[int, NDArray[np.int64]], ...]
    """Row group and rows inside it, row group after row group."""

    permutation: NDArray[np.int64] | None
    """Where each row of the span stands in the segments laid end to end; None where they are in order already."""

    @classmethod
    def of_span(cls, span: Span) -> Picks:
        """The picks of a span."""
        if len(span.needed) == 1:
            return cls(((int(span.needed[0]), span.rows),), None)
        by_group = _stable_order(span.groups)
        borders = np.searchsorted(span.groups[by_group], span.needed)
        parts = np.split(span.rows[by_group], borders[1:])
        segments = tuple(zip(span.needed.tolist(), parts, strict=True))
        if (np.diff(by_group) == 1).all():
            return cls(segments, None)
        permutation = np.empty_like(by_group)
        permutation[by_group] = np.arange(len(by_group))
        return cls(segments, permutation)

    def cells(self, columns: Mapping[int, Any]) -> Any:
        """The cells of one column as one `pyarrow.Array` in the order of the span.

        Args:
            columns: Of each row group: the column, a `pyarrow.Array` of all its rows.
        """
        parts = [_taken(columns[group], rows) for group, rows in self.segments]
        joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return joined if self.permutation is None else joined.take(arrow_numbers(self.permutation))

    def values(self, columns: Mapping[int, NDArray[Any]], out: NDArray[Any]) -> None:
        """The values of one column into `out`, in the order of the span.

        Args:
            columns: Of each row group: the values of all its rows, shape (rows, …).
            out: Shape (rows of the span, …), of the same dtype; written in place.
        """
        gathered = out if self.permutation is None else np.empty_like(out)
        first = 0
        for group, rows in self.segments:
            np.take(columns[group], rows, axis=0, out=gathered[first : first + len(rows)], mode="clip")
            first += len(rows)
        if self.permutation is not None:
            np.take(gathered, self.permutation, axis=0, out=out, mode="clip")


def _stable_order(groups: NDArray[np.int32]) -> NDArray[np.int64]:
    """What `argsort` gives; numbers of 16 bits are sorted by their digits, many times faster than by comparisons."""
    first = int(groups.min())
    if int(groups.max()) - first < 2**16:
        return np.argsort((groups - np.int32(first)).astype(np.uint16), kind="stable")
    return np.argsort(groups, kind="stable")


def _taken(column: Any, rows: NDArray[np.int64]) -> Any:
    first, count = int(rows[0]), len(rows)
    if int(rows[-1]) - first == count - 1 and (count == 1 or bool((np.diff(rows) == 1).all())):
        return column.slice(first, count)
    return column.take(arrow_numbers(rows))
