"""Decode an Arrow column of lists to NumPy arrays.

The values inside the lists are decoded once, as one flat array, which is then split by row. A value becomes an array if
all lists of the same nesting level have the same length. An array with null numbers becomes a masked array. A value
with null lists, or with lists of different lengths, becomes a one-dimensional object array of its inner lists. Each
inner list is converted by the same rules.

A column of Arrow's fixed-shape tensor type stores lists of flat values; the type contains the shape and the order of
the axes.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import arrow_numbers, flags_of, numbers_of
from petastore.arrow import compute as pc
from petastore.codecs.arrow.arrow_to_numpy import decode_scalars, plain_layout, refuse_nulls
from petastore.errors import DecodeError
from petastore.schema.arrow import axes_in_storage, tensor_shape
from petastore.schema.field import UnischemaField
from petastore.schema.values import with_missing

__all__ = ["are_arrays", "decode_lists", "nothing_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class _Level:
    """The lists of one nesting level of a column."""

    starts: NDArray[np.int64]
    """List i holds the items `[starts[i], starts[i + 1])` of the level below; shape (lists + 1,)."""
    is_null: NDArray[np.bool_] | None
    """True for null lists, shape (lists,); None if no list is null."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Rectangles:
    """List column as one flat array of values (leaves), with range and shape per row."""

    leaves: pa.Array
    starts: NDArray[np.int64]
    """Row r has the leaves `[starts[r], starts[r + 1])`; shape (rows + 1,)."""
    shapes: NDArray[np.int64]
    """Shape of each value, (rows, dimensions); a ragged value has the shape (leaves, 1, ...) of its flat leaves."""
    is_ragged: NDArray[np.bool_]
    """True for values with inner lists that are null or differ in length, which are not arrays."""
    has_null_list: NDArray[np.bool_]
    """True for values with a null inner list."""
    levels: tuple[_Level, ...]
    """The lists of each level, from the outermost on."""


def decode_lists(cells: pa.Array, field: UnischemaField, out: NDArray[Any], *, only_arrays: bool = False) -> None:
    """Decode a column of lists into `out`.

    Args:
        cells: Lists of any layout, with as many levels as the field has dimensions; nulls only inside the lists.
        field: Field with at least one dimension.
        out: For a fixed shape, `(rows, *shape)` of `field.dtype`; a masked array if nulls inside lists may be masked.
            Otherwise an object array `(rows,)`. Each value becomes an array, which is a view of one array for the whole
            column. A value with null lists or lists of different lengths becomes an object array of its inner lists.
        only_arrays: Whether values with nulls inside, or with lists of several lengths, are rejected.

    Raises:
        DecodeError: A value is null, is not an array with `only_arrays`, or has another shape than declared; or as
            `decode_scalars`.
    """
    refuse_nulls(cells, field)
    found = _rectangles(cells, field, len(field.shape))
    _refuse_ragged(found, field, found.is_ragged if only_arrays or field.is_fixed else _misfits(found, field))
    _check_shapes(found, field)
    flat = _flat_target(field, out)
    takes_nulls = not only_arrays and (flat is None or isinstance(out, np.ma.MaskedArray))
    try:
        if not takes_nulls:
            refuse_nulls(found.leaves, field, inside=True)
        decoded = np.empty(len(found.leaves), field.dtype) if flat is None else flat
        is_null = _decode_leaves(found.leaves, dataclasses.replace(field, shape=(), codec=None), decoded)
    except DecodeError as problem:
        if problem.row is not None:
            problem.row = int(np.searchsorted(found.starts, problem.row, side="right")) - 1
        raise
    if flat is None:
        _cut(decoded, is_null, found, out)
    elif is_null is not None:
        np.ma.getmaskarray(out)[...] = is_null.reshape(out.shape)


def _decode_leaves(leaves: pa.Array, field: UnischemaField, out: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Decode the values inside the lists into `out`, and return a mask of the nulls.

    Nulls become None, NaN, NaT or 0 in `out`. The mask is None if no value is null, and for Python
    objects, where None marks the nulls.
    """
    if not leaves.null_count:
        decode_scalars(leaves, field, out)
        return None
    is_null = flags_of(leaves.is_null())
    present = np.flatnonzero(~is_null)
    values = np.empty(len(present), field.dtype)
    try:
        decode_scalars(leaves.drop_null(), field, values)
    except DecodeError as problem:
        problem.row = None if problem.row is None else int(present[problem.row])
        raise
    out[:] = nothing_of(out.dtype)
    out[present] = values
    return None if out.dtype.kind == "O" else is_null


def nothing_of(dtype: np.dtype[Any]) -> Any:
    """Return the value that replaces a null inside a list: None, NaN, NaT or 0."""
    # Masked values are set to NaN or NaT, so that missing values stay visible if the caller drops the mask.
    nothing: dict[str, Any] = {"O": None, "f": np.nan, "m": np.timedelta64("NaT"), "M": np.datetime64("NaT")}
    return nothing.get(dtype.kind, 0)


def are_arrays(cells: pa.Array | pa.ChunkedArray, field: UnischemaField) -> bool:
    """Return whether every value of a list column can be decoded to an array.

    A value can be decoded if it contains no nulls, and if its lists of the same nesting level have equal lengths. Null
    rows are ignored.

    Example:
        >>> field = UnischemaField("x", "int64", (None, None))
        >>> are_arrays(pa.array([[[1, 2], [3, 4]], None]), field), are_arrays(pa.array([[[1, 2], [3]]]), field)
        (True, False)
    """
    for chunk in cells.chunks if isinstance(cells, pa.ChunkedArray) else [cells]:
        found = _rectangles(chunk.drop_null(), field, len(field.shape))
        if found.leaves.null_count or found.is_ragged.any():
            return False
    return True


def _flat_target(field: UnischemaField, out: NDArray[Any]) -> NDArray[Any] | None:
    """Return `out` as one flat view, or None.

    None means that the shape is variable, or that `out` is not contiguous.
    """
    return np.ma.getdata(out).reshape(-1) if field.is_fixed and out.flags.c_contiguous else None


def _cut(decoded: NDArray[Any], is_null: NDArray[np.bool_] | None, found: _Rectangles, out: NDArray[Any]) -> None:
    """Split flat values by row, and write one value per row to `out`.

    A row with nulls becomes a masked array; a row whose lists differ in length becomes an object array.

    Args:
        decoded: Decoded values of all rows, shape (leaves,).
        is_null: Mask of the null values; None if no value is null.
        found: Range of flat values and shape for each row.
        out: As in `decode_lists`. Rows of an object array become views of `decoded`.
    """
    if out.ndim > 1:
        np.ma.getdata(out)[:] = decoded.reshape(out.shape)
        if is_null is not None:
            np.ma.getmaskarray(out)[...] = is_null.reshape(out.shape)
        return
    bounds = found.starts.tolist()
    for row, shape in enumerate(found.shapes.tolist()):
        out[row] = decoded[bounds[row] : bounds[row + 1]].reshape(shape)
    if is_null is not None:
        for row in np.flatnonzero(_any_inside(found.starts, is_null) & ~found.is_ragged).tolist():
            out[row] = np.ma.MaskedArray(out[row], is_null[bounds[row] : bounds[row + 1]].reshape(out[row].shape))
    for row in np.flatnonzero(found.is_ragged).tolist():
        out[row] = _inner_lists(found.levels, row, decoded, is_null)


def _inner_lists(
    levels: tuple[_Level, ...], index: int, decoded: NDArray[Any], is_null: NDArray[np.bool_] | None
) -> NDArray[Any]:
    """Return one list as an object array of its inner lists, recursively.

    Innermost lists become arrays, and null lists become None.

    Args:
        levels: Nesting levels, from the level of the list to the innermost one.
        index: Number of the list in its level.
        decoded: Decoded values of all innermost lists, one after the other.
        is_null: Mask of the null values in `decoded`; None if no value is null.
    """
    first, stop = levels[0].starts[index : index + 2].tolist()
    if len(levels) == 1:
        return with_missing(decoded[first:stop], None if is_null is None else is_null[first:stop])
    below = levels[1].is_null
    lists = np.empty(stop - first, object)
    for place in range(first, stop):
        if below is None or not below[place]:
            lists[place - first] = _inner_lists(levels[1:], place, decoded, is_null)
    return lists


def _rectangles(cells: pa.Array, field: UnischemaField, depth: int) -> _Rectangles:
    if isinstance(cells, pa.ExtensionArray) and isinstance(cells.type, pa.FixedShapeTensorType):
        return _tensors(cells, field, depth)
    cells = plain_layout(cells)
    if isinstance(cells, pa.DictionaryArray):
        cells = cells.dictionary_decode()
    level, leaves = _items(cells, field, depth)
    rows, starts = len(cells), level.starts
    nothing = np.zeros(rows, np.bool_)
    if depth == 1:
        return _Rectangles(leaves, starts, np.diff(starts)[:, None], nothing, nothing, (level,))
    inner = _rectangles(leaves, field, depth - 1)
    null_lists = (
        inner.has_null_list if inner.levels[0].is_null is None else inner.has_null_list | inner.levels[0].is_null
    )
    has_null_list = _any_inside(starts, null_lists)
    is_ragged = _any_inside(starts, inner.is_ragged | null_lists) | _differ(starts, inner.shapes)
    shapes = np.zeros((rows, depth), np.int64)
    shapes[:, 0] = np.diff(starts)
    filled = shapes[:, 0] > 0
    shapes[filled, 1:] = inner.shapes[starts[:-1][filled]]
    # An empty list has no inner sizes, so the declared sizes are used.
    below = [size or 0 for size in field.shape[len(field.shape) - depth + 1 :]]
    shapes[~filled, 1:] = below
    starts_of_leaves = inner.starts[starts]
    shapes[is_ragged] = 1
    shapes[is_ragged, 0] = np.diff(starts_of_leaves)[is_ragged]
    return _Rectangles(inner.leaves, starts_of_leaves, shapes, is_ragged, has_null_list, (level, *inner.levels))


def _tensors(cells: pa.ExtensionArray, field: UnischemaField, depth: int) -> _Rectangles:
    shape, axes = tensor_shape(cells.type), axes_in_storage(cells.type)
    if len(shape) != depth:
        raise DecodeError(
            f"the column must have tensors of shape {field.shape}, as the field declares, got tensors of shape "
            f"{shape}. Correct the schema",
            column=field.name,
        )
    rows, size = len(cells), math.prod(shape)
    _, leaves = _items(cells.storage, field, 1)
    if axes != tuple(range(depth)):
        stored = np.arange(rows * size, dtype=np.int64).reshape(rows, *cells.type.shape)
        leaves = leaves.take(arrow_numbers(stored.transpose(0, *(axis + 1 for axis in axes)).reshape(-1)))
    lists = [rows * math.prod(shape[:axis]) for axis in range(depth)]
    levels = tuple(
        _Level(np.arange(number + 1, dtype=np.int64) * length, None)
        for number, length in zip(lists, shape, strict=True)
    )
    starts, nothing = np.arange(rows + 1, dtype=np.int64) * size, np.zeros(rows, np.bool_)
    return _Rectangles(leaves, starts, np.tile(np.array(shape, np.int64), (rows, 1)), nothing, nothing, levels)


def _items(cells: pa.Array, field: UnischemaField, depth: int) -> tuple[_Level, pa.Array]:
    """Split a column of lists; return the offsets of the lists, and the items of all lists.

    Null lists have no items. A null list of fixed size has null items instead, so that the nested value can still be
    decoded to a (masked) array.

    Args:
        cells: Column of lists.
        field: Declared field, for messages.
        depth: Expected number of list levels in `cells`, for messages.

    Raises:
        DecodeError: The column does not contain lists.
    """
    is_null = flags_of(cells.is_null()) if cells.null_count else None
    if isinstance(cells, pa.FixedSizeListArray):
        size = cells.type.list_size
        starts = np.arange(len(cells) + 1, dtype=np.int64) * size
        if is_null is None:
            return _Level(starts, None), cells.flatten()
        items = cells.values.slice(cells.offset * size, len(cells) * size)
        return _Level(starts, None), pc.if_else(pa.array(np.repeat(is_null, size)), pa.scalar(None, items.type), items)
    if not isinstance(cells, (pa.ListArray, pa.LargeListArray, pa.ListViewArray, pa.LargeListViewArray)):
        raise DecodeError(
            f"the column must have {depth} more {'level' if depth == 1 else 'levels'} of lists for shape "
            f"{field.shape}, which the field declares, got {cells.type}. Declare a shape with fewer dimensions",
            column=field.name,
        )
    starts = np.zeros(len(cells) + 1, np.int64)
    lengths = cells.value_lengths()
    np.cumsum(numbers_of(lengths if is_null is None else lengths.fill_null(0)), out=starts[1:])
    return _Level(starts, is_null), cells.flatten()


def _any_inside(starts: NDArray[np.int64], flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """For each list, return whether at least one of its items is flagged; shape (lists,).

    Args:
        starts: List i has the items `[starts[i], starts[i + 1])`; shape (lists + 1,).
        flags: One flag for each item.
    """
    counts = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=counts[1:])
    return counts[starts[1:]] > counts[starts[:-1]]


def _differ(starts: NDArray[np.int64], inner: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each list, return whether two of its items have different shapes; shape (lists,).

    Args:
        starts: List i has the items `[starts[i], starts[i + 1])`; shape (lists + 1,).
        inner: Shape of each item, (items, dimensions).
    """
    changes = np.zeros(max(len(inner), 1), np.int64)
    if len(inner) > 1:
        np.cumsum((inner[1:] != inner[:-1]).any(axis=1), out=changes[1:])
    first, last = starts[:-1], starts[1:] - 1
    filled = last >= first
    differ = np.zeros(len(first), np.bool_)
    differ[filled] = changes[last[filled]] != changes[first[filled]]
    return differ


def _misfits(found: _Rectangles, field: UnischemaField) -> NDArray[np.bool_]:
    """Return a mask of ragged values that contradict the declared shape; shape (rows,).

    A value is ragged if its inner lists differ in length or are null. It contradicts the declared shape if a list does
    not have the length that the field declares for its nesting level.
    """
    misfits = np.zeros(len(found.is_ragged), np.bool_)
    if not found.is_ragged.any():
        return misfits
    starts = np.arange(len(misfits) + 1)
    for size, level in zip(field.shape, found.levels, strict=True):
        if size is not None:
            misfits |= _any_inside(starts, np.diff(level.starts) != size)
        starts = level.starts[starts]
    return misfits & found.is_ragged


def _refuse_ragged(found: _Rectangles, field: UnischemaField, is_bad: NDArray[np.bool_]) -> None:
    """Raise an error for the first True in the mask `is_bad` of values that are not arrays.

    Raises:
        DecodeError: The mask has a True; `row` is its index.
    """
    if not is_bad.any():
        return
    row = int(np.argmax(is_bad))
    problem = "a null list" if found.has_null_list[row] else "lists of different lengths"
    raise DecodeError(
        f"the cell must be an array of shape {field.shape}, got {problem}. Leave the column out with schema_fields, "
        "or write the file again with lists of one length",
        column=field.name,
        row=row,
    )


def _check_shapes(found: _Rectangles, field: UnischemaField) -> None:
    declared = np.array([-1 if size is None else size for size in field.shape], np.int64)
    bad = ((found.shapes != declared) & (declared >= 0)).any(axis=1) & ~found.is_ragged
    if bad.any():
        row = int(np.argmax(bad))
        shape = tuple(found.shapes[row].tolist())
        raise DecodeError(
            f"the cell must have shape {field.shape}, as the field declares, got {shape}. Declare None for dimensions "
            "that vary",
            column=field.name,
            row=row,
        )
