"""Further faces of a codec, which readers use where a codec has them; what they give equals what `Codec` gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from petastore.schema.field import Codec, JsonValue, UnischemaField

__all__ = [
    "AlikeCodec",
    "ArrowCellsCodec",
    "BytesCodec",
    "Codec",
    "JsonValue",
    "MeasuringCodec",
    "Viewer",
    "ViewingCodec",
]

Viewer: TypeAlias = Callable[[Any], "NDArray[Any] | None"]
"""Gives the values of a column; see `ViewingCodec.viewer`."""


@runtime_checkable
class ViewingCodec(Codec, Protocol):
    """A codec some of whose columns need no decoding: their bytes are the values, looked at in another way.

    A third face, which readers use where a codec has it: what it gives must equal what `decode_column` gives.
    """

    def viewer(self, field: UnischemaField) -> Viewer:
        """What gives the values of the columns of a field as arrays over Arrow's memory, without a copy.

        A reader asks for it once, and calls it with every column from any of its threads.

        Args:
            field: What was declared; of fixed shape, and not of dtype object.

        Returns:
            A function of a `pyarrow.Array` (not chunked; its offset may be > 0), possibly with nulls. It gives shape
            `(rows, *field.shape)`, read-only, of `field.dtype` in any byte order, with any strides; values under nulls
            are arbitrary. None wherever that is not all there is to do, and `decode_column` has to: for nulls that
            leave no room for a value, for cells that differ in form, and for whatever has to be refused.
        """
        ...


@runtime_checkable
class AlikeCodec(Codec, Protocol):
    """A codec that sees arrays of a free shape as one array, where all cells of a column have the same.

    A further face, which readers use where a codec has it: rows of many row groups are then copied once, to where they
    belong. What it gives must equal what `decode_column` gives.
    """

    def alike_viewer(self, field: UnischemaField) -> Viewer:
        """As `ViewingCodec.viewer`, for a field whose shape is free, and which is not of dtype object.

        The shape that its function gives is `(rows, *shape)` with a shape that the field allows; None also where the
        shapes of cells differ, and for columns with nulls.
        """
        ...


@runtime_checkable
class BytesCodec(Codec, Protocol):
    """A codec whose cells are files of bytes, each decoded for itself.

    A third face, which readers use where a codec has it: cells are decoded where they lie, however far apart. What it
    gives must equal what `decode_column` gives.
    """

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """Cells into one preallocated array.

        Args:
            cells: The bytes of each cell, read-only arrays of uint8.
            field: What was declared.
            out: As in `decode_column`.

        Raises:
            DecodeError: As `decode`, with `row` set to the position in `cells`.
        """
        ...


@runtime_checkable
class MeasuringCodec(Codec, Protocol):
    """A codec that tells how large values become before it makes them: a cell of some bytes may hold many gigabytes.

    A further face, which readers use to keep to `max_cell_bytes` and `memory_budget`. What a codec tells binds it: a
    cell that holds more than it says of itself is refused, and not decoded as far as it goes.
    """

    def decoded_sizes(self, cells: Any, field: UnischemaField) -> NDArray[np.int64] | None:
        """Bytes of each value once it is decoded, by what the cells say of themselves; takes no memory for values.

        Where more than the value has to be decoded, such as the whole of an image of which a part is wanted, that is
        counted. Decoding a cell may take up to twice as much besides, while it lasts.

        Args:
            cells: A `pyarrow.Array` (not chunked; its offset may be > 0) without nulls.
            field: What was declared.

        Returns:
            Shape `(rows,)`. Anything for cells that have to be refused, if that takes no memory. None where each cell
            takes what the field declares, and no more. Nothing is raised for the sake of a cell.
        """
        ...


@runtime_checkable
class ArrowCellsCodec(Codec, Protocol):
    """A codec some of whose values come in Arrow columns that hold its cells already, such as the bytes of image files.

    A further face, which writers use where a codec has it, before they decode the column to values.
    """

    def encode_arrow(self, values: Any, field: UnischemaField) -> Any | None:
        """The stored cells of an Arrow column.

        Args:
            values: A `pyarrow.Array` (not chunked; its offset may be > 0) without nulls.
            field: What was declared.

        Returns:
            A `pyarrow.Array` of `storage_type(field)`; None where the column holds values, for `encode_column`.

        Raises:
            EncodeError: A cell does not fit the field; `row` is set.
        """
        ...
