"""Memory layout of a row group: which columns share one array, and which stay encoded cells.

A *stack* is one array for all columns of a dtype and shape, column after column, so that one call processes all of
them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.plain import PlainCodec
from petastore.codecs.registry import BoundCodec, codec_of
from petastore.codecs.scalar import ScalarCodec
from petastore.lazy import once
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema

__all__ = ["Layout", "Stack", "needs_decoding", "stacked_array"]

_PART_BYTES = 2 * 1024 * 1024
"""Decoded bytes that are read at once: few enough that Arrow's memory for them stays in the CPU cache."""

_PART_COLUMNS = 64
"""Maximum number of columns that are read at once; more are slower."""

_CACHE_LINE = 64
"""Bytes of a CPU cache line: reading a shorter row also fetches its neighbors."""

_SHORT_ROW_BYTES = 16 * 1024
"""Maximum bytes of a row for which stacks (arrays of columns) are stored in read order.

Decoding a longer row takes much longer than the cache misses that this order avoids."""

_STACKED = "biufcmM"
"""NumPy dtype kinds whose values have a fixed size."""


@dataclasses.dataclass(frozen=True)
class Stack:
    """Columns of one dtype and shape, stored in one array `(columns, rows, *shape)`."""

    names: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    in_read_order: bool = False
    """Whether the rows are stored in the order in which the epoch reads them, instead of file order."""

    @once
    def row_bytes(self) -> int:
        """Bytes of one value: of one row in one column."""
        return self.dtype.itemsize * math.prod(self.shape)

    @once
    def rows_at_once(self) -> int | None:
        """Number of rows to read at a time; None to read all rows of a row group."""
        return None if self.row_bytes <= _CACHE_LINE else max(_PART_BYTES // self.row_bytes, 1)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Memory layout of row groups: columns that are stored in arrays (stacks), and columns that stay encoded cells.

    Immutable; one per reader.

    Example:
        >>> fields = [UnischemaField("x", "f4"), UnischemaField("name", str), UnischemaField("y", "f4")]
        >>> layout = Layout.of(Unischema("s", fields), rows=1000)
        >>> layout.stacks[0].names, layout.encoded
        (('x', 'y'), ('name',))
    """

    stacks: tuple[Stack, ...]
    """Arrays of columns (stacks). Scalars of one dtype are divided into several stacks if reading all of them at once
    is slower."""

    encoded: tuple[str, ...]
    """Names of columns that stay encoded cells."""

    @once
    def places(self) -> dict[str, tuple[int, int]]:
        """Stack number (array of columns of one dtype and shape) and index in the stack, by name of stacked column."""
        return {
            name: (number, place) for number, stack in enumerate(self.stacks) for place, name in enumerate(stack.names)
        }

    @once
    def reorders_rows(self) -> bool:
        """Whether any stack (array of columns) stores its rows in read order instead of file order."""
        return any(stack.in_read_order for stack in self.stacks)

    @once
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of stacks (arrays of columns), one tuple for each dtype and shape, which may need several stacks."""
        kinds: dict[tuple[np.dtype[Any], tuple[int, ...]], list[int]] = {}
        for number, stack in enumerate(self.stacks):
            kinds.setdefault((stack.dtype, stack.shape), []).append(number)
        return tuple(map(tuple, kinds.values()))

    @classmethod
    def of(cls, view: Unischema, *, rows: int, apart: AbstractSet[str] = frozenset()) -> Layout:
        """Return the memory layout of these fields: which are stored in arrays, and which stay encoded cells.

        Args:
            view: Fields to read.
            rows: Number of rows of a large row group.
            apart: Names of fields that must not be stacked.
        """
        names: dict[tuple[np.dtype[Any], tuple[Any, ...]], list[list[str]]] = {}
        for field in view:
            if field.name in apart or not _may_be_stacked(field):
                continue
            of_kind = names.setdefault((field.dtype, field.shape), [[]])
            if len(of_kind[-1]) == _columns_at_once(field, rows):
                of_kind.append([])
            of_kind[-1].append(field.name)
        are_short = sum(field.decoded_bytes or 0 for field in view) <= _SHORT_ROW_BYTES
        stacks = tuple(
            Stack(tuple(together), dtype, shape, are_short and dtype.itemsize * math.prod(shape) <= _CACHE_LINE)
            for (dtype, shape), of_kind in names.items()
            for together in of_kind
        )
        stacked = {name for stack in stacks for name in stack.names}
        return cls(stacks, tuple(field.name for field in view if field.name not in stacked))


def _columns_at_once(field: UnischemaField, rows: int) -> int:
    """Return how many columns of a field's type one array may hold; 1 for fields that are arrays.

    Args:
        field: Field of one of the columns.
        rows: Number of rows of a large row group.
    """
    return max(min(_PART_BYTES // max(rows * field.dtype.itemsize, 1), _PART_COLUMNS), 1) if field.is_scalar else 1


def _may_be_stacked(field: UnischemaField) -> bool:
    return field.is_fixed and field.dtype.kind in _STACKED and hasattr(codec_of(field), "viewer")


def needs_decoding(field: UnischemaField) -> bool:
    """Return whether decoding a cell takes memory besides its value; False for cells that are only copied."""
    return not isinstance(codec_of(field), (PlainCodec, ScalarCodec))


def stacked_array(stack: Stack, table: pa.Table, columns: Mapping[str, BoundCodec]) -> NDArray[Any] | None:
    """Return columns of numbers as one array, without a Python object for each column.

    Args:
        stack: Names, dtype and shape of the columns.
        table: Table with the columns that the files store; each column has a single chunk.
        columns: Codec of each column that the files store, by name.

    Returns:
        A new array of shape (columns, rows). None if it is impossible, for example because a column has nulls or
        another type than declared.

    Example:
        >>> from petastore.schema.field import UnischemaField
        >>> columns = {name: BoundCodec.of(UnischemaField(name, "int64")) for name in "xy"}
        >>> stacked_array(Stack(("x", "y"), np.dtype(np.int64), ()), pa.table({"x": [1, 2], "y": [3, 4]}), columns)
        array([[1, 2],
               [3, 4]])
    """
    schema = table.schema
    if table.num_rows == 0 or stack.shape or stack.dtype.kind not in "iuf" or schema.names != list(stack.names):
        return None
    stored = pa.from_numpy_dtype(stack.dtype)
    codecs = (columns[name].codec for name in stack.names)
    if any(kind != stored for kind in schema.types) or not all(
        isinstance(codec, (PlainCodec, ScalarCodec)) for codec in codecs
    ):
        return None
    (batch,) = table.to_batches()
    try:
        values: NDArray[Any] = batch.to_tensor(row_major=False).to_numpy().T
    except pa.ArrowException:  # Arrow raises it if a column has nulls
        return None
    return values
