"""Position of a reader and provenance of its rows: file, row group and row number."""

from __future__ import annotations

import dataclasses
import functools
from concurrent.futures import Future
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decode import Decoded
from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan.batches.spans import Span
from petastore.plan.cursor import Cursor
from petastore.plan.rank_plan import RankPlan
from petastore.readers.assembly.assemble import SpanTransform
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.work.futures import then

__all__ = ["LastRows", "Position", "places_of_rows", "position_of", "with_provenance", "with_provenance_fields"]


LastRows: TypeAlias = "tuple[Span, int, int]"
"""Span (consecutive batches), first row and end row: the half-open range of the span's rows that were returned last."""


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """Position of a reader: epoch and step of the next batch, and the rows of the last batch.

    Example:
        >>> Position(epoch=2, step=17, rows=(("part-0.parquet", 3, 41),)).step
        17
    """

    epoch: int
    """Epoch of the next batch, from 0."""

    step: int
    """Number of the next batch in its epoch, from 0, if all batches of the epoch have the current size.

    If rows are iterated, it is the number of the next row."""

    rows: tuple[tuple[str, int, int], ...]
    """Rows of this rank's last batch, or the last row: `(file, row group, row)`, as `exclude_rows` takes them. Empty
    before the first batch, and after a state was loaded. A window is named by its first row."""


def position_of(plan: RankPlan, inventory: Inventory, cursor: Cursor, size: int, last: LastRows | None) -> Position:
    """Return the position of a reader: the next step, and the rows that were returned last.

    Args:
        plan: The plan.
        inventory: Files and row groups, with paths for display.
        cursor: Position after the last row or batch.
        size: Rows per batch.
        last: Rows that were returned last; None if no row was returned.
    """
    step = 0
    if cursor.position:
        whole = Cursor(cursor.epoch, 0, cursor.first_epoch)
        step = plan.steps_of_epoch_after(size, whole) - plan.steps_of_epoch_after(size, cursor)
    if last is None:
        return Position(cursor.epoch, step, ())
    span, first, stop = last
    files, ordinals = inventory.places_of(span.groups[first:stop])
    places = zip(files.tolist(), ordinals.tolist(), span.rows[first:stop].tolist(), strict=True)
    return Position(cursor.epoch, step, tuple(places))


PROVENANCE_FIELDS = (
    UnischemaField("source_file", str),
    UnischemaField("source_row_group", "int32"),
    UnischemaField("source_row", "int64"),
)
"""Columns of `provenance=True`: path of the file, row group in the file, row in the row group."""


def with_provenance(
    schema: Unischema, transform: SpanTransform | None, inventory: Inventory
) -> tuple[Unischema, SpanTransform]:
    """Return schema and transform of a reader, both with the columns of `provenance=True`.

    Args:
        schema: Output schema without these columns.
        transform: Transform of the columns that are read, or None.
        inventory: Inventory of the dataset.

    Raises:
        InvalidArgumentError: The schema already has a column of that name.
    """
    extended = with_provenance_fields(schema)

    def added(span: Span, columns: dict[str, Decoded]) -> dict[str, Decoded]:
        return {**columns, **places_of_rows(inventory, span.groups, span.rows)}

    def transformed(
        columns: dict[str, Decoded], span: Span, **keys: NDArray[np.uint64]
    ) -> dict[str, Decoded] | Future[dict[str, Decoded]]:
        made = columns if transform is None else transform(columns, span, **keys)
        return then(made, functools.partial(added, span))

    return extended, transformed


def with_provenance_fields(schema: Unischema) -> Unischema:
    """Return a schema with the columns of `provenance=True`.

    Raises:
        InvalidArgumentError: The schema already has a column of that name.
    """
    for field in PROVENANCE_FIELDS:
        if field.name in schema:
            raise InvalidArgumentError(
                f"provenance must be False if the dataset has the column {field.name!r}, which provenance=True adds. "
                "Leave that column out with schema_fields, or set provenance=False"
            )
    return Unischema(schema.name, [*schema, *PROVENANCE_FIELDS])


def places_of_rows(inventory: Inventory, groups: NDArray[Any], rows: NDArray[np.int64]) -> dict[str, Decoded]:
    """Return the columns of `provenance=True` by name: file, row group in the file, and row in the row group.

    Args:
        inventory: Inventory of the dataset.
        groups: Row group of each row, shape (rows,).
        rows: Row in the row group, shape (rows,).
    """
    places: tuple[NDArray[Any], ...] = (*inventory.places_of(groups), rows)
    return {field.name: Decoded(values, None) for field, values in zip(PROVENANCE_FIELDS, places, strict=True)}
