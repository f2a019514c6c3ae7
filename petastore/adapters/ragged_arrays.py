"""Combine the arrays of a ragged column, which differ in shape. No I/O.

The arrays are stacked, padded, or concatenated together with their lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.adapters.nulls import present
from petastore.errors import DecodeError
from petastore.schema.field import UnischemaField

__all__ = ["boxed", "flattened", "lists_inside", "padded", "ragged_cells", "stacked"]


def boxed(field: UnischemaField, column: NDArray[Any], fill: Any) -> NDArray[Any]:
    """Return a column of nested lists with each row as one array.

    The shorter inner lists of a row are padded to the longest inner list of this row.

    Args:
        field: Field of the column.
        column: One value per row, an object array (rows,).
        fill: Padding value.

    Raises:
        DecodeError: A value, or a part of a value, is missing.

    Example:
        >>> ragged = np.array([np.array([1, 2]), np.array([3])], dtype=object)
        >>> boxed(UnischemaField("x", "int64", (None, None)), np.array([ragged, None], object)[:1], 0)[0]
        array([[1, 2],
               [3, 0]])
    """
    values = present(field.name, column)
    dimensions = len(field.shape)
    uneven = [row for row, value in enumerate(values) if _is_uneven(value, dimensions)]
    if uneven:
        values = values.copy()
        for row in uneven:
            box = np.full(_box_of(values[row], dimensions), fill, field.dtype)
            _put(values[row], box)
            values[row] = box
    return values


def _is_uneven(value: Any, dimensions: int) -> bool:
    """Return whether a value is an object array of inner lists, not a numeric array."""
    return isinstance(value, np.ndarray) and value.dtype == np.dtype(object) and value.ndim < dimensions


def _box_of(value: NDArray[Any], dimensions: int) -> list[int]:
    """Return the smallest rectangular shape that holds all inner lists."""
    if value.ndim == dimensions:
        return list(value.shape)
    inner = [_box_of(item, dimensions - 1) for item in value]
    return [len(value), *(max(sizes) for sizes in zip(*inner, strict=True))] if inner else [0] * dimensions


def _put(value: NDArray[Any], box: NDArray[Any]) -> None:
    if value.ndim == box.ndim:
        box[tuple(map(slice, value.shape))] = value
        return
    for item, part in zip(value, box[: len(value)], strict=True):
        _put(item, part)


def lists_inside(field: UnischemaField, column: NDArray[Any]) -> tuple[NDArray[Any], list[NDArray[np.int64]]] | None:
    """Return the concatenated values of a column of nested lists, and list lengths.

    The lengths are one array for each dimension, with the length of every list at this nesting level. Return None if
    all values are arrays, because their shapes contain the lengths.

    Raises:
        DecodeError: A value, or a part of a value, is missing.

    Example:
        >>> ragged = np.array([np.array([1, 2]), np.array([3])], dtype=object)
        >>> lists_inside(UnischemaField("x", "int64", (None, None)), np.array([ragged, None], object)[:1])
        (array([1, 2, 3]), [array([2]), array([2, 1])])
    """
    dimensions = len(field.shape)
    if dimensions == 1 or not any(_is_uneven(value, dimensions) for value in column):
        return None
    lists: list[Any] = list(present(field.name, column))
    lengths = []
    for dimension in range(dimensions):
        lengths.append(np.array([len(items) for items in lists], np.int64))
        if dimension < dimensions - 1:
            lists = [item for items in lists for item in items]
    return np.concatenate([np.empty(0, field.dtype), *lists], dtype=field.dtype, casting="same_kind"), lengths


def ragged_cells(field: UnischemaField, column: NDArray[Any]) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
    """Return a ragged column's arrays and shapes; check the shapes against the field.

    Args:
        field: Field of the column.
        column: One array per row, an object array (rows,).

    Returns:
        The arrays, which share the column's memory, and their shapes, (rows, dimensions).

    Raises:
        DecodeError: A value, or a part of a value, is missing, or a shape differs from the field's.

    Example:
        >>> column = np.array([np.zeros((3, 2)), np.zeros((0, 2)), None], dtype=object)[:2]
        >>> ragged_cells(UnischemaField("track", "float64", (None, 2)), column)[1].tolist()
        [[3, 2], [0, 2]]
    """
    cells = [np.asarray(cell) for cell in present(field.name, column)]
    declared = np.array([-1 if size is None else size for size in field.shape])
    for cell in cells:
        if _is_uneven(cell, len(declared)):
            raise DecodeError(
                "a value must have inner lists of one length to be an array, got lists of several lengths. Set "
                "ragged='padded' or 'list' (TensorFlow: 'ragged'), or leave the column out with schema_fields",
                column=field.name,
            )
        if cell.ndim != len(declared):
            raise _wrong_shape(field, cell.shape)
    shapes = np.array([cell.shape for cell in cells], dtype=np.int64).reshape(len(cells), len(declared))
    wrong = ((shapes != declared) & (declared >= 0)).any(axis=1)
    if wrong.any():
        raise _wrong_shape(field, tuple(shapes[wrong][0].tolist()))
    return cells, shapes


def flattened(
    field: UnischemaField, column: NDArray[Any], empty: Callable[[int, np.dtype[Any]], NDArray[Any]] = np.empty
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the concatenated values of all cells, and the shape of each cell.

    The values have the shape `(values,)` and the field's dtype; the shapes have the shape `(rows, dimensions)`.

    Args:
        field: Field of the column.
        column: One array per row, an object array (rows,).
        empty: Function that allocates the array of values, given their number and dtype.

    Raises:
        DecodeError: A value, or a part of a value, is missing, or a shape differs from the field's.

    Example:
        >>> column = np.array([np.array([1, 2]), np.array([], "int64"), np.array([3])], dtype=object)
        >>> flat, shapes = flattened(UnischemaField("words", "int64", (None,)), column)
        >>> flat.tolist(), shapes.ravel().tolist()
        ([1, 2, 3], [2, 0, 1])
    """
    cells, shapes = ragged_cells(field, column)
    flat = empty(int(shapes.prod(axis=1).sum()), field.dtype)
    if cells:
        np.concatenate([cell.reshape(-1) for cell in cells], out=flat, casting="same_kind")
    return flat, shapes


def padded(field: UnischemaField, column: NDArray[Any], value: Any = 0) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return a column of arrays as one array, with shorter cells padded.

    Each variable dimension is as long as in the longest cell of the column.

    Args:
        field: Field of the column, with a dtype other than object and at least one variable dimension.
        column: One array per row, an object array (rows,).
        value: Padding value.

    Returns:
        Two new arrays: the padded values, (rows, *longest), and the lengths before padding, int64 (rows,) with one
        variable dimension, otherwise (rows, variable dimensions).

    Raises:
        DecodeError: A value, or a part of a value, is missing, or a shape differs from the field's.

    Example:
        >>> column = np.array([np.array([1, 2]), np.array([], "int64"), np.array([3])], dtype=object)
        >>> padded(UnischemaField("words", "int64", (None,)), column, -1)
        (array([[ 1,  2], [-1, -1], [ 3, -1]]), array([2, 0, 1]))
    """
    cells, shapes = ragged_cells(field, boxed(field, column, value))
    free = [axis for axis, size in enumerate(field.shape) if size is None]
    longest = shapes.max(axis=0, initial=0)
    sizes = [int(longest[axis]) if size is None else size for axis, size in enumerate(field.shape)]
    values = np.full((len(cells), *sizes), value, dtype=field.dtype)
    # A loop over rows is faster than a mask over all values if cells have fifty values or more.
    if free == [0]:
        for row, cell in zip(values, cells, strict=True):
            np.copyto(row[: len(cell)], cell)
    else:
        for row, cell in zip(values, cells, strict=True):
            np.copyto(row[tuple(map(slice, cell.shape))], cell)
    return values, shapes[:, free[0]] if len(free) == 1 else shapes[:, free]


def stacked(field: UnischemaField, column: NDArray[Any]) -> NDArray[Any]:
    """Return a column of equally shaped arrays as one new array (rows, *shape).

    Args:
        field: Field of the column, with a dtype other than object.
        column: One array per row, an object array (rows,).

    Raises:
        DecodeError: Arrays have different shapes, or a shape differs from the field's; or a value, or a part of a
            value, is missing.

    Example:
        >>> column = np.array([np.array([1]), np.array([1, 2])], dtype=object)
        >>> stacked(UnischemaField("words", "int64", (None,)), column)
        Traceback (most recent call last):
        petastore.errors.DecodeError: column 'words': the values of a batch must have one shape to be stacked, got (1,)
            and (2,). Set ragged='padded' or 'list' (TensorFlow: 'ragged')
    """
    flat, shapes = flattened(field, column)
    if len(shapes) == 0:
        return flat.reshape(0, *(size or 0 for size in field.shape))
    other = (shapes != shapes[0]).any(axis=1)
    if other.any():
        first, second = (tuple(shape.tolist()) for shape in (shapes[0], shapes[other][0]))
        raise DecodeError(
            f"the values of a batch must have one shape to be stacked, got {first} and {second}. Set ragged='padded' "
            "or 'list' (TensorFlow: 'ragged')",
            column=field.name,
        )
    return flat.reshape(len(shapes), *shapes[0])


def _wrong_shape(field: UnischemaField, found: tuple[int, ...]) -> DecodeError:
    return DecodeError(f"a value must have shape {field.shape}, as the field declares, got {found}", column=field.name)
