"""The layout: which columns of a row group are kept in arrays together, and which as cells.

A *stack* is one array for all columns of a dtype and shape, column after column. What is done with it is done in one
call for all of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from petastore.codecs.registry import codec_of
from petastore.once import once
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema

__all__ = ["Layout", "Stack"]

_PART_BYTES = 2 * 1024 * 1024
"""Decoded bytes that are read in one go: few enough that Arrow's memory for them stays in the processor's cache."""

_PART_COLUMNS = 64
"""Columns that are read in one go; more make reading slower again."""

_CACHE_LINE = 64
"""Bytes that memory gives at a time: rows that are shorter are fetched with their neighbours, wanted or not."""

_SHORT_ROW_BYTES = 16 * 1024
"""Where rows have more bytes, a cache miss a number is nothing beside decoding them; rows stay as in the file."""

_STACKED = "biufcmM"
"""Kinds of dtypes whose values have one size."""


@dataclasses.dataclass(frozen=True)
class Stack:
    """Columns of one dtype and shape that lie in one array `(columns, rows, *shape)`."""

    names: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    in_read_order: bool = False
    """Whether its rows lie in the order in which they are going to be wanted, or else as in the file."""

    @once
    def row_bytes(self) -> int:
        """Bytes of a row of one of the columns."""
        return self.dtype.itemsize * math.prod(self.shape)

    @once
    def rows_at_once(self) -> int | None:
        """Rows that are best read in one go; None for all rows of a row group."""
        return None if self.row_bytes <= _CACHE_LINE else max(_PART_BYTES // self.row_bytes, 1)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which columns are stacked, and which are kept as cells. A value, made once a reader.

    Example:
        >>> fields = [UnischemaField("x", "f4"), UnischemaField("name", str), UnischemaField("y", "f4")]
        >>> layout = Layout.of(Unischema("s", fields), rows=1000)
        >>> layout.stacks[0].names, layout.encoded
        (('x', 'y'), ('name',))
    """

    stacks: tuple[Stack, ...]
    """Those of scalars have as many columns as are best read in one go."""

    encoded: tuple[str, ...]
    """Columns that are kept as cells."""

    @once
    def places(self) -> dict[str, tuple[int, int]]:
        """Of each stacked column: the number of its stack, and its place there."""
        return {
            name: (number, place) for number, stack in enumerate(self.stacks) for place, name in enumerate(stack.names)
        }

    @once
    def reorders_rows(self) -> bool:
        """Whether any stack has its rows in read order."""
        return any(stack.in_read_order for stack in self.stacks)

    @once
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the stacks, those of one dtype and shape together."""
        kinds: dict[tuple[np.dtype[Any], tuple[int, ...]], list[int]] = {}
        for number, stack in enumerate(self.stacks):
            kinds.setdefault((stack.dtype, stack.shape), []).append(number)
        return tuple(map(tuple, kinds.values()))

    @classmethod
    def of(cls, view: Unischema, *, rows: int, apart: AbstractSet[str] = frozenset()) -> Layout:
        """The layout of some fields.

        Args:
            view: The fields.
            rows: Of a large row group.
            apart: Fields that are not to be stacked.
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
    return max(min(_PART_BYTES // max(rows * field.dtype.itemsize, 1), _PART_COLUMNS), 1) if field.is_scalar else 1


def _may_be_stacked(field: UnischemaField) -> bool:
    return field.is_fixed and field.dtype.kind in _STACKED and hasattr(codec_of(field), "viewer")
