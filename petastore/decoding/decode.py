"""Decode stored cells of one column to an array and a mask of missing values.

If a codec can compute decoded sizes in advance (`petastore.schema.field.MeasuringCodec`), the sizes are checked before
memory is allocated. A decoded value of another size then raises an error. With other codecs, sizes are checked after
decoding. Memory for the first values is then already used, but an error stops decoding before the next values.

Codecs never receive nulls. A `DecodeError` of this module has the column and the position of the cell in its input. The
caller, which knows the origin of each cell, adds file, row group and row.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.buffers import Buffers
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.schema.field import Codec, MeasuringCodec, UnischemaField
from petastore.schema.unischema import Unischema

__all__ = [
    "DEFAULT_MAX_CELL_BYTES",
    "Decoded",
    "decode_cells",
    "decode_into",
    "decoded_sizes",
    "empty_column",
    "empty_missing",
    "mask_of_shape",
    "masks_of",
    "may_hold_nulls",
    "measuring_face",
    "refuse_large_cells",
    "refuse_large_fields",
    "refuse_large_values",
    "row_ranges",
]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Decoded:
    """Decoded values of one column, with a mask of missing values."""

    values: NDArray[Any]
    """Shape (rows, *shape) for fields of fixed shape, else (rows,) of dtype object."""

    missing: NDArray[np.bool_] | None
    """Mask of missing values: shape (rows,), or (rows, length) for windows.

    If lists of a fixed size contain nulls, the mask has the shape of `values`. None if no value is missing, and for all
    object columns."""

    def rows(self, first: int, stop: int) -> NDArray[Any]:
        """Return the rows [first, stop) as a view; a masked array if values are missing."""
        values = self.values[first:stop]
        if self.missing is None or not self.missing[first:stop].any():
            return values
        missing = mask_of_shape(self.missing[first:stop], values.ndim)
        return np.ma.MaskedArray(values, mask=np.broadcast_to(missing, values.shape))

    def mask(self, dimensions: int) -> NDArray[np.bool_]:
        """Return a mask of missing values for the first `dimensions` dimensions.

        The mask is `missing`, broadcast to these dimensions of `values`; all False if `missing` is None.
        """
        if self.missing is not None and self.missing.ndim == dimensions:
            return self.missing
        mask = np.zeros(self.values.shape[:dimensions], np.bool_)
        if self.missing is not None:
            mask |= mask_of_shape(self.missing, dimensions)
        return mask

    def value(self, row: int) -> Any:
        """Return the value of a row; None if it is missing.

        If only a part of the value is missing, it is a masked array.
        """
        missing = None if self.missing is None else self.missing[row]
        if missing is None or not missing.any():
            return self.values[row]
        return None if missing.all() else np.ma.MaskedArray(self.values[row], missing)

    def each(self, first: int, stop: int) -> Sequence[Any] | NDArray[Any]:
        """Return the value of each row in [first, stop), as `value` does."""
        values = self.values[first:stop]
        if self.missing is None:
            return values
        if self.missing.ndim > 1:
            return [self.value(row) for row in range(first, stop)]
        missing = self.missing[first:stop].tolist()
        return [None if is_missing else value for is_missing, value in zip(missing, values, strict=True)]

    def without_idle_mask(self) -> Decoded:
        """Return the column, with the mask replaced by None if no value is missing."""
        return self if self.missing is None or self.missing.any() else Decoded(self.values, None)


def masks_of(parts: Sequence[Decoded]) -> list[NDArray[np.bool_]] | None:
    """Return the masks of the parts of a column; None if no part has a mask.

    All masks have the same number of dimensions.
    """
    dimensions = max((part.missing.ndim for part in parts if part.missing is not None), default=0)
    return [part.mask(dimensions) for part in parts] if dimensions else None


def empty_missing(field: UnischemaField, rows: int, *, inside: bool = False) -> NDArray[np.bool_] | None:
    """Return an all-False mask for values of a field.

    Return None for object columns, which need no mask.

    Args:
        field: The field.
        rows: Number of values.
        inside: Whether values of fixed size may contain nulls, so that the mask needs the shape of the values.
    """
    if not field.is_fixed or field.dtype.hasobject:
        return None
    shape: tuple[Any, ...] = (rows, *field.shape) if inside else (rows,)
    return np.zeros(shape, np.bool_)


def mask_of_shape(missing: NDArray[np.bool_], dimensions: int) -> NDArray[np.bool_]:
    """Return a mask with dimensions of size 1 appended, up to `dimensions` dimensions.

    It then broadcasts against the values.
    """
    return missing.reshape(missing.shape + (1,) * (dimensions - missing.ndim))


def empty_column(
    field: UnischemaField, rows: int, buffers: Buffers | None = None, *, most_rows: int = 0
) -> NDArray[Any]:
    """Return an uninitialized array for values of a field.

    Args:
        field: The field.
        rows: Number of values.
        buffers: Allocator of the array; None allocates with NumPy.
        most_rows: Number of rows for which `buffers` reserves memory, so that larger arrays can reuse it later.
    """
    if not field.is_fixed or field.dtype.hasobject:
        return np.empty(rows, dtype=object)
    shape: tuple[Any, ...] = (rows, *field.shape)
    if buffers is None:
        return np.empty(shape, field.dtype)
    return buffers.empty(shape, field.dtype, room=most_rows * math.prod(shape[1:]) * field.dtype.itemsize)


DEFAULT_MAX_CELL_BYTES = 256 * 1024 * 1024
"""Default maximum bytes of one decoded cell.

This is enough for a volume of 512 × 512 × 512 numbers of 16 bits, or a photograph of 89 megapixels. Larger cells are
rare in training data, and each worker may have one in memory.
"""


def measuring_face(codec: Codec) -> MeasuringCodec | None:
    """Return the codec if it can compute decoded sizes (`MeasuringCodec`), or None."""
    return cast("MeasuringCodec", codec) if hasattr(codec, "decoded_sizes") else None


def decoded_sizes(cells: Any, field: UnischemaField, codec: Codec) -> NDArray[np.int64] | None:
    """Return the decoded bytes of each value, shape (rows,); 0 for a missing value.

    No memory is allocated for the values. Return None if all values have the size that the field declares, or if the
    codec cannot compute sizes.

    Args:
        cells: A `pyarrow.Array`, possibly with nulls.
        field: Declared field.
        codec: The field's codec.

    Example:
        >>> import pyarrow as pa
        >>> from petastore.codecs import VectorCodec
        >>> field = UnischemaField("v", "float32", (None,), VectorCodec(), nullable=True)
        >>> cells = field.codec.encode_column([np.zeros(2, "f4"), None, np.zeros(5, "f4")], field)
        >>> decoded_sizes(cells, field, field.codec)
        array([ 8,  0, 20])
    """
    measuring = measuring_face(codec)
    if measuring is None:
        return None
    if cells.null_count == 0:
        return measuring.decoded_sizes(cells, field)
    of_present = measuring.decoded_sizes(cells.drop_null(), field)
    if of_present is None:
        return None
    # Imported here, because it imports pyarrow, which worker processes do not need.
    from petastore.arrow import flags_of

    sizes = np.zeros(len(cells), np.int64)
    sizes[flags_of(cells.is_valid())] = of_present
    return sizes


def refuse_large_cells(sizes: NDArray[np.int64] | None, field: UnischemaField, most: int | None) -> None:
    """Raise an error for cells whose decoded size exceeds the limit.

    Args:
        sizes: Decoded bytes of each cell, shape (rows,); None if unknown.
        field: Declared field.
        most: `max_cell_bytes`; None is no limit.

    Raises:
        DecodeError: A cell exceeds the limit; `row` is the position of the first such cell.
    """
    if sizes is None or most is None or int(sizes.max(initial=0)) <= most:
        return
    row = int(np.argmax(sizes > most))
    raise DecodeError(
        f"the decoded cell must take at most max_cell_bytes={most:,}, got {int(sizes[row]):,} bytes. If you trust "
        "the data, pass a larger max_cell_bytes=, or None for no limit",
        column=field.name,
        row=row,
    )


def refuse_large_values(values: NDArray[Any], field: UnischemaField, most: int | None) -> None:
    """Raise an error for decoded values above the limit.

    For codecs that cannot compute decoded sizes in advance (`decoded_sizes`).

    Args:
        values: Decoded values, shape (rows,), of dtype object.
        field: Declared field.
        most: `max_cell_bytes`; None is no limit.

    Raises:
        DecodeError: A value exceeds the limit; `row` is the position of the first such value.
    """
    if most is not None:
        sizes = (getattr(value, "nbytes", 0) for value in values)
        refuse_large_cells(np.fromiter(sizes, np.int64, count=len(values)), field, most)


def refuse_large_fields(view: Unischema, most: int | None) -> None:
    """Raise an error for fields whose declared values exceed the limit.

    Raises:
        InvalidArgumentError: A field exceeds the limit; the message names the first one.
    """
    for field in view:
        if most is None or field.decoded_bytes is None:
            continue
        # NumPy computes the size of an array as if dimensions of 0 were 1.
        size = math.prod(max(length or 0, 1) for length in field.shape) * field.dtype.itemsize
        if size > most:
            raise InvalidArgumentError(
                f"max_cell_bytes must be at least {size:,} for field {field.name!r} ({field.dtype_name} of shape "
                f"{field.shape}), got {most:,}. Leave the field out with schema_fields, or, if you trust the data, "
                "pass a larger max_cell_bytes=, or None for no limit"
            )


def decode_cells(cells: Any, field: UnischemaField, codec: Codec, *, max_cell_bytes: int | None) -> Decoded:
    """Return the decoded values of stored cells.

    Args:
        cells: A `pyarrow.Array`, possibly with nulls.
        field: Declared field.
        codec: The field's codec.
        max_cell_bytes: Maximum decoded bytes of a cell; None means no limit.

    Raises:
        DecodeError: A cell does not match the field, or is too large; `row` is its position in `cells`.
    """
    from petastore.arrow import has_nulls_inside

    refuse_large_cells(None if max_cell_bytes is None else decoded_sizes(cells, field, codec), field, max_cell_bytes)
    out = empty_column(field, len(cells))
    inside = may_hold_nulls(field) and has_nulls_inside(cells)
    missing = empty_missing(field, len(cells), inside=inside) if cells.null_count or inside else None
    decode_into(cells, field, codec, Decoded(out, missing), max_cell_bytes=max_cell_bytes)
    return Decoded(out, missing)


def decode_into(cells: Any, field: UnischemaField, codec: Codec, out: Decoded, *, max_cell_bytes: int | None) -> None:
    """Decode stored cells, whose size was checked, into existing arrays.

    Args:
        cells: A `pyarrow.Array`, possibly with nulls.
        field: Declared field.
        codec: The field's codec.
        max_cell_bytes: Maximum bytes of a value whose codec cannot measure it before decoding; None means no limit.
        out: Output column. A missing value is 0 in `values` and True in `missing`. In an object column it is None in
            `values`, and `missing` may be None. Nulls inside lists of fixed size need a mask of the shape of `values`.

    Raises:
        DecodeError: A cell is not what the field declares; `row` is its position in `cells`.
    """
    if cells.null_count == 0:
        _decode(cells, field, codec, out, max_cell_bytes)
        return
    from petastore.arrow import flags_of

    missing = flags_of(cells.is_null())
    present = np.flatnonzero(~missing)
    if not field.nullable:
        row = int(np.flatnonzero(missing)[0])
        raise DecodeError(
            "the value must not be null, because the schema says nullable=False. Declare the field nullable=True",
            column=field.name,
            row=row,
        )
    mask = None if out.missing is None else np.zeros((len(present), *out.missing.shape[1:]), np.bool_)
    values = Decoded(empty_column(field, len(present)), mask)
    try:
        _decode(cells.drop_null(), field, codec, values, max_cell_bytes)
    except DecodeError as problem:
        problem.row = None if problem.row is None else int(present[problem.row])
        raise
    is_object = out.values.dtype == np.dtype(object)
    out.values.fill(None if is_object else np.zeros((), out.values.dtype)[()])
    out.values[present] = values.values
    if out.missing is not None:
        out.missing[:] = True
        out.missing[present] = mask


def may_hold_nulls(field: UnischemaField) -> bool:
    """Return whether values of a fixed size may contain nulls, as in lists of numbers."""
    return bool(field.codec is None and field.shape and field.is_fixed)


def _decode(cells: Any, field: UnischemaField, codec: Codec, out: Decoded, max_cell_bytes: int | None) -> None:
    is_masked = out.missing is not None and out.missing.ndim > 1
    values: Any = np.ma.MaskedArray(out.values, cast("Any", out.missing)) if is_masked else out.values
    try:
        codec.decode_column(cells, field, values)
        if values.dtype.hasobject and measuring_face(codec) is None:
            refuse_large_values(values, field, max_cell_bytes)
    except DecodeError as problem:
        raise problem.at(column=field.name) from problem.__cause__


def row_ranges(sizes: NDArray[np.int64], most_bytes: int, most_rows: int) -> list[tuple[int, int]]:
    """Divide rows into half-open ranges of bounded size; return (first, stop) of each.

    Args:
        sizes: Decoded bytes of each row, shape (rows,).
        most_bytes: Approximate maximum bytes of a range: all rows of a range after its first row have fewer bytes.
        most_rows: Maximum rows of a range.

    Example:
        >>> row_ranges(np.array([5, 5, 1, 30, 1, 1]), 10, 3)
        [(0, 1), (1, 3), (3, 6)]
        >>> row_ranges(np.zeros(5, np.int64), 10, 2)
        [(0, 2), (2, 4), (4, 5)]
    """
    by_bytes = np.diff(np.cumsum(sizes) // most_bytes) > 0
    borders: list[int] = [0]
    for stop in [*(np.flatnonzero(by_bytes) + 1).tolist(), len(sizes)]:
        borders += [*range(borders[-1] + most_rows, stop, most_rows), stop]
    return [(first, stop) for first, stop in itertools.pairwise(borders) if first < stop]
