"""Columns of raw values, as Spark hands them over in Arrow → columns of stored cells. Runs in Spark's workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from petastore.codecs.arrow_cells import encode_cells
from petastore.errors import EncodeError
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema

__all__ = ["encode_batch", "encode_batches"]

_SLICE_BYTES = 16 * 1024 * 1024


def encode_batches(batches: Iterable[pa.RecordBatch], schema: Unischema) -> Iterator[pa.RecordBatch]:
    """Encode batches one after another, in slices of some megabytes; their rows are counted on.

    Raises:
        EncodeError: As `encode_batch`; by `next`.

    Example:
        >>> from petastore import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> [cells.num_rows for cells in encode_batches([pa.record_batch({"id": [1, 2]})] * 2, schema)]
        [2, 2]
    """
    done = 0
    for batch in batches:
        # Cells may be larger than values and are held beside them; slices bound both.
        step = max(1, _SLICE_BYTES * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            yield encode_batch(batch.slice(start, step), schema, first_row=done + start)
        done += batch.num_rows


def encode_batch(batch: pa.RecordBatch, schema: Unischema, *, first_row: int = 0) -> pa.RecordBatch:
    """Encode the columns of a batch.

    Args:
        batch: Raw values; a nullable field may have no column.
        schema: What the rows are.
        first_row: Number of the batch's first row, for messages.

    Returns:
        Stored cells, of `petastore.schema.arrow.storage_schema(schema)`.

    Raises:
        EncodeError: A value does not fit its field; field and row are named.

    Example:
        >>> from petastore import UnischemaField
        >>> schema = Unischema("step", [UnischemaField("grid", "uint8", (2, 2), nullable=True)])
        >>> batch = pa.record_batch({"grid": [[1, 2, 3, 4], None]})
        >>> encode_batch(batch, schema).to_pydict()
        {'grid': [[[1, 2], [3, 4]], None]}
    """
    stored = storage_schema(schema)
    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        try:
            if position < 0:
                columns.append(pa.nulls(batch.num_rows, stored.field(field.name).type))
            else:
                columns.append(encode_cells(batch.column(position), field))
        except EncodeError as problem:
            problem.row = None if problem.row is None else problem.row + first_row
            raise problem.at(column=field.name) from problem.__cause__
    return pa.RecordBatch.from_arrays(columns, schema=stored)
