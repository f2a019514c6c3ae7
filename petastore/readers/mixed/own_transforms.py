"""Functions that sources of a mixture have for themselves: each makes of the rows of its own source what comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decode import Decoded, empty_column
from petastore.plan.plan import Span
from petastore.readers.mixed.mixed_datasets import MixedDatasets
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import Transform
from petastore.work.futures import after

__all__ = ["OwnTransforms"]

_Piece: TypeAlias = tuple[NDArray[np.int64], "dict[str, Decoded] | Future[dict[str, Decoded]]"]
"""Where the rows of a source stand in a span, and what is made of them."""


@dataclasses.dataclass(frozen=True, eq=False)
class OwnTransforms:
    """Makes of the columns of a span those after the transforms of its sources; a `SpanTransform`."""

    datasets: MixedDatasets
    """Say which source a row group is of."""

    transforms: tuple[Transform | None, ...]
    """One for each source."""

    schema: Unischema
    """The fields that come out, of all sources."""

    source_column: str | None
    """The column that says which source a row is of."""

    def __call__(
        self, columns: dict[str, Decoded], span: Span, /, **keys: NDArray[np.uint64]
    ) -> dict[str, Decoded] | Future[dict[str, Decoded]]:
        """The columns that come out; a future of them where functions run in processes."""
        sources = self.datasets.source_of(span.groups)
        present = np.unique(sources).tolist()
        pieces = [self._piece(source, np.flatnonzero(sources == source), columns, span, keys) for source in present]
        futures = [made for _, made in pieces if isinstance(made, Future)]
        return after(futures, lambda: self._merged(sources, pieces)) if futures else self._merged(sources, pieces)

    def _piece(
        self,
        source: int,
        where: NDArray[np.int64],
        columns: dict[str, Decoded],
        span: Span,
        keys: Mapping[str, NDArray[np.uint64]],
    ) -> _Piece:
        own = {name: _rows_of(columns[name], where) for name in self.datasets.views[source].fields}
        transform = self.transforms[source]
        if transform is None:
            return where, own
        of_own = {name: of_rows[where] for name, of_rows in keys.items()}
        return where, transform(own, np.searchsorted(where, span.offsets), **of_own)

    def _merged(self, sources: NDArray[np.int64], pieces: Sequence[_Piece]) -> dict[str, Decoded]:
        made = [(where, piece.result() if isinstance(piece, Future) else piece) for where, piece in pieces]
        merged = {
            field.name: _put_together(field, len(sources), [(where, columns[field.name]) for where, columns in made])
            for field in self.schema
            if field.name != self.source_column
        }
        if self.source_column is not None:
            merged[self.source_column] = Decoded(sources.astype(np.int32), None)
        return merged


def _rows_of(column: Decoded, where: NDArray[np.int64]) -> Decoded:
    missing = None if column.missing is None else column.missing[where]
    return Decoded(column.values[where], missing if missing is not None and missing.any() else None)


def _put_together(field: UnischemaField, rows: int, pieces: Sequence[tuple[NDArray[np.int64], Decoded]]) -> Decoded:
    """The rows of several sources, where they stand in the span."""
    values = empty_column(field, rows)
    missing = None if all(part.missing is None for _, part in pieces) else np.zeros(rows, dtype=np.bool_)
    for where, part in pieces:
        values[where] = part.values
        if missing is not None and part.missing is not None:
            missing[where] = part.missing
    return Decoded(values, missing)
