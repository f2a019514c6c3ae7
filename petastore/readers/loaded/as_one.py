"""Columns of numbers in a table of Arrow's, seen as one array: without a Python object for each of hundreds of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.plain import PlainCodec
from petastore.codecs.registry import BoundCodec
from petastore.codecs.scalar import ScalarCodec
from petastore.readers.loaded.layout import Stack

__all__ = ["AsOne"]


class AsOne:
    """Sees the columns of a stack as one array. Thread-safe: what it remembers is the same whoever finds it out.

    Args:
        columns: Each column that the files hold, by name.
    """

    def __init__(self, columns: Mapping[str, BoundCodec]) -> None:
        self._columns = columns
        self._known: dict[Stack, Any] = {}
        """The `pyarrow.Schema` of tables that are known to be just numbers."""

    def values(self, stack: Stack, table: pa.Table) -> NDArray[Any] | None:
        """The values of all columns of a table, shape (columns, rows).

        None where they are not just numbers as they are declared, or where some are missing.

        Example:
            >>> from petastore.schema.field import UnischemaField
            >>> columns = {name: BoundCodec.of(UnischemaField(name, "int64")) for name in "xy"}
            >>> as_one, stack = AsOne(columns), Stack(("x", "y"), np.dtype(np.int64), ())
            >>> as_one.values(stack, pa.table({"x": [1, 2], "y": [3, 4]})).tolist()
            [[1, 2], [3, 4]]
        """
        known = self._known.get(stack)
        if known is None or not table.schema.equals(known):
            if not self._are_numbers(stack, table.schema):
                return None
            self._known[stack] = table.schema
        if table.num_rows == 0:
            return None
        values = _lying_as_one(stack, table)
        if values is None:
            (batch,) = table.to_batches()
            try:
                values = batch.to_tensor(row_major=False).to_numpy().T
            except pa.ArrowException:  # values are missing
                return None
        return values

    def _are_numbers(self, stack: Stack, schema: pa.Schema) -> bool:
        """Whether the columns of a stack are numbers that are stored just as they are declared."""
        if stack.shape or stack.dtype.kind not in "iuf" or schema.names != list(stack.names):
            return False
        stored = pa.from_numpy_dtype(stack.dtype)
        return all(kind == stored for kind in schema.types) and all(
            isinstance(self._columns[name].codec, (PlainCodec, ScalarCodec)) for name in stack.names
        )


def _lying_as_one(stack: Stack, table: pa.Table) -> NDArray[Any] | None:
    """The values of numbers where they are, shape (columns, rows); None where they do not lie column after column."""
    first, size = _address(table.column(0)), table.num_rows * stack.dtype.itemsize
    if first is None:
        return None
    for number in range(1, table.num_columns):  # of a file that is decoded, the second one lies elsewhere
        if _address(table.column(number)) != first + number * size:
            return None
    whole = pa.foreign_buffer(first, table.num_columns * size, base=table)
    return np.frombuffer(whole, stack.dtype).reshape(table.num_columns, table.num_rows)


def _address(column: Any) -> int | None:
    """Where the values of numbers begin that are of one chunk; None where some are missing, or others come before."""
    chunk = column.chunk(0)
    return None if chunk.offset or chunk.null_count else int(chunk.buffers()[1].address)
