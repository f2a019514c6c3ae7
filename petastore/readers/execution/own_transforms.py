"""Transforms of a mixture: each source has its own transform for its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded, empty_column, masks_of
from petastore.plan.plan import Span
from petastore.readers.execution.execution import Functions
from petastore.readers.execution.first_row import described
from petastore.readers.execution.mixed_datasets import MixedDatasets, agreed_schema, with_source
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import Transform, TransformSpec
from petastore.work.futures import after
from petastore.work.pools import Workers

__all__ = ["OwnTransforms", "transformed_apart"]

_Piece: TypeAlias = tuple[NDArray[np.int64], "dict[str, Decoded] | Future[dict[str, Decoded]]"]
"""Indices of a source's rows in a span (consecutive batches), shape (n,), and the transformed columns of these rows."""


@dataclasses.dataclass(frozen=True, eq=False)
class OwnTransforms:
    """Transform of a mixture of datasets: each row is transformed by the transform of its dataset."""

    datasets: MixedDatasets
    """Datasets of the mixture, which map a row group to its source."""

    transforms: tuple[Transform | None, ...]
    """Transform of each source, or None."""

    schema: Unischema
    """Output fields, common to all sources."""

    source_column: str | None
    """Name of the column with the source of each row, or None."""

    def __call__(
        self, columns: dict[str, Decoded], span: Span, /, **keys: NDArray[np.uint64]
    ) -> dict[str, Decoded] | Future[dict[str, Decoded]]:
        """Return the transformed columns, or a future of the columns if functions run in processes.

        Args:
            columns: Columns of all rows of the span, before the transforms.
            span: Consecutive batches, which determine the source of each row.
            **keys: `keys`, the random key of each row, shape (rows, 2), if a transform draws random numbers.
        """
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
    """Return one column of a span (consecutive batches): each source's rows, copied to their indices in the span."""
    values = empty_column(field, rows)
    for where, part in pieces:
        values[where] = part.values
    masks = masks_of([part for _, part in pieces])
    if masks is None:
        return Decoded(values, None)
    missing = np.zeros((rows, *masks[0].shape[1:]), np.bool_)
    for (where, _), mask in zip(pieces, masks, strict=True):
        missing[where] = mask
    return Decoded(values, missing)


def transformed_apart(
    mixed: MixedDatasets,
    specs: Sequence[TransformSpec | None],
    buffers: Buffers,
    workers: Workers,
    *,
    batched: bool,
    source_column: str | None,
) -> tuple[Unischema, OwnTransforms, Functions]:
    """Combine the transforms of a mixture's sources into one, which transforms each row by its source's transform.

    Returns the common output schema, the combined transform, and the functions that this transform calls.
    """
    datasets, views = mixed.datasets, mixed.views
    selections = [source.selection for source in mixed.plan.sources]
    of_sources = zip(specs, datasets, selections, views, strict=True)
    each = [described(*of_source, workers=workers, batched=batched) for of_source in of_sources]
    functions = Functions.of(each, workers=workers, batched=batched)
    made = [
        functions.transform(spec, view, dataset, buffers)
        for spec, view, dataset in zip(each, views, datasets, strict=True)
    ]
    schema = with_source(agreed_schema([schema for schema, _ in made], mixed.urls), source_column)
    return schema, OwnTransforms(mixed, tuple(transform for _, transform in made), schema, source_column), functions
