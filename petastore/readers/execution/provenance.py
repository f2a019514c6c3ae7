"""Provenance: columns that say from which file, row group and row of it each row of a batch comes."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decoded import Decoded
from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan.batches.spans import Span
from petastore.readers.assembly.assemble import SpanTransform
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.work.futures import after

__all__ = ["PROVENANCE_FIELDS", "with_provenance"]

PROVENANCE_FIELDS = (
    UnischemaField("source_file", str),
    UnischemaField("source_row_group", "int32"),
    UnischemaField("source_row", "int64"),
)
"""Columns of `provenance=True`: path of the file, row group in the file, row in the row group."""


def with_provenance(
    schema: Unischema, transform: SpanTransform | None, inventory: Inventory
) -> tuple[Unischema, SpanTransform]:
    """The schema and the transform of a reader whose batches say where rows come from.

    Args:
        schema: What comes out without.
        transform: What makes it of the columns that are read; None where it is these.
        inventory: What exists.

    Raises:
        InvalidArgumentError: A column has the name of one that is added.
    """
    for field in PROVENANCE_FIELDS:
        if field.name in schema:
            raise InvalidArgumentError(
                f"provenance must be False where there is a column {field.name!r}, which it would add. Leave that "
                "column out with schema_fields"
            )
    paths = np.array([file.path for file in inventory.files], object)

    def added(columns: dict[str, Decoded], span: Span) -> dict[str, Decoded]:
        places: tuple[NDArray[Any], ...] = (
            paths[inventory.file[span.groups]],
            inventory.ordinal[span.groups].astype(np.int32),
            span.rows,
        )
        made = zip(PROVENANCE_FIELDS, places, strict=True)
        return {**columns, **{field.name: Decoded(values, None) for field, values in made}}

    def transformed(columns: dict[str, Decoded], span: Span) -> dict[str, Decoded] | Future[dict[str, Decoded]]:
        made = columns if transform is None else transform(columns, span)
        return after([made], lambda: added(made.result(), span)) if isinstance(made, Future) else added(made, span)

    return Unischema(schema.name, [*schema, *PROVENANCE_FIELDS]), transformed
