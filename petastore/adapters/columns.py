"""What a column needs before any framework can hold it as a tensor. Pure.

All values are present, times are nanoseconds, and arrays whose shapes differ are laid one after another or padded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import DecodeError
from petastore.schema.field import UnischemaField
from petastore.schema.units import ATTOSECONDS
from petastore.schema.values import masked_rows

__all__ = ["flattened", "missing_rows", "nanoseconds", "padded", "present", "ragged_cells", "stacked"]

_NANOSECONDS = {unit: size // 10**9 for unit, size in ATTOSECONDS.items() if size >= 10**9}
"""In one unit; years, months and what is finer than a nanosecond are not here."""


def present(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """The column as a plain array without a copy, refused if values are missing.

    Args:
        name: The column's name, for the message.
        column: An array `(rows, ...)`; a `numpy.ma.MaskedArray` may hide values, an object array may hold None.

    Raises:
        DecodeError: Values are missing; a tensor has no place for that, and inventing values would be silent.

    Example:
        >>> present("age", np.ma.masked_equal([7, -1, 9], -1))
        Traceback (most recent call last):
        petastore.errors.DecodeError: column 'age': 1 of 3 values is missing, and a tensor cannot say so. Set nulls= of
            DataLoader, MapDataset or make_tf_dataset, fill it in a transform_spec, or leave the column out with
            schema_fields
        >>> present("age", np.ma.masked_equal([7, 8, 9], -1))
        array([7, 8, 9])
    """
    if column.dtype.kind in "biufc" and not isinstance(column, np.ma.MaskedArray):
        return column  # numbers that are all there, which is what columns mostly are
    missing = int(missing_rows(column).sum())
    if missing:
        raise DecodeError(
            f"{missing:,} of {len(column):,} values {'is' if missing == 1 else 'are'} missing, and a tensor cannot say "
            "so. Set nulls= of DataLoader, MapDataset or make_tf_dataset, fill it in a transform_spec, or leave the "
            "column out with schema_fields",
            column=name,
        )
    return column.data if isinstance(column, np.ma.MaskedArray) else column


def missing_rows(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Of each row: whether its value, or a part of it, is missing.

    Example:
        >>> missing_rows(np.ma.masked_equal([[1, 2], [0, 3]], 0)), missing_rows(np.array(["a", None], dtype=object))
        (array([False,  True]), array([False,  True]))
    """
    if column.dtype == np.dtype(object) and not isinstance(column, np.ma.MaskedArray):
        return np.fromiter((value is None for value in column), dtype=np.bool_, count=len(column))
    return masked_rows(column)


def ragged_cells(field: UnischemaField, column: NDArray[Any]) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
    """The cells of a column of arrays, and the shape of each, once they are what the field says.

    Args:
        field: What the schema says of the column.
        column: One array a row, object array (rows,).

    Returns:
        The cells, which share the column's memory, and their shapes, (rows, dimensions).

    Raises:
        DecodeError: A value is missing, or a part of it, or it has another shape than the field says.

    Example:
        >>> column = np.array([np.zeros((3, 2)), np.zeros((0, 2)), None], dtype=object)[:2]
        >>> ragged_cells(UnischemaField("track", "float64", (None, 2)), column)[1].tolist()
        [[3, 2], [0, 2]]
    """
    cells = [np.asarray(cell) for cell in present(field.name, column)]
    declared = np.array([-1 if size is None else size for size in field.shape])
    for cell in cells:
        if cell.ndim != len(declared):
            raise _wrong_shape(field, cell.shape)
    if field.dtype == np.dtype(object) and any(value is None for cell in cells for value in cell.flat):
        raise DecodeError(
            "an array has a missing value inside, and a tensor cannot say so; fill it in a transform_spec, or leave "
            "the column out with schema_fields",
            column=field.name,
        )
    shapes = np.array([cell.shape for cell in cells], dtype=np.int64).reshape(len(cells), len(declared))
    wrong = ((shapes != declared) & (declared >= 0)).any(axis=1)
    if wrong.any():
        raise _wrong_shape(field, tuple(shapes[wrong][0].tolist()))
    return cells, shapes


def flattened(
    field: UnischemaField, column: NDArray[Any], empty: Callable[[int, np.dtype[Any]], NDArray[Any]] = np.empty
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values of all cells one after another, `(values,)` of the field's dtype, and the shape of each cell.

    Args:
        field: What the schema says of the column.
        column: One array a row, object array (rows,).
        empty: Makes the array of values, given how many and their dtype.

    Raises:
        DecodeError: As `ragged_cells`.

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
    """A column of arrays as one array, each free dimension as long as its longest cell.

    Args:
        field: What the schema says of the column: a dtype other than object, at least one free dimension.
        column: One array a row, object array (rows,).
        value: What stands where a cell has nothing.

    Returns:
        New memory: the values, (rows, *longest), and how much of them is real: int64 (rows,) where one dimension is
        free, else (rows, free dimensions).

    Raises:
        DecodeError: As `ragged_cells`.

    Example:
        >>> column = np.array([np.array([1, 2]), np.array([], "int64"), np.array([3])], dtype=object)
        >>> padded(UnischemaField("words", "int64", (None,)), column, -1)
        (array([[ 1,  2], [-1, -1], [ 3, -1]]), array([2, 0, 1]))
    """
    cells, shapes = ragged_cells(field, column)
    free = [axis for axis, size in enumerate(field.shape) if size is None]
    longest = shapes.max(axis=0, initial=0)
    sizes = [int(longest[axis]) if size is None else size for axis, size in enumerate(field.shape)]
    values = np.full((len(cells), *sizes), value, dtype=field.dtype)
    # One row at a time: a mask over all values costs more than these calls once cells have fifty values.
    if free == [0]:
        for row, cell in zip(values, cells, strict=True):
            np.copyto(row[: len(cell)], cell)
    else:
        for row, cell in zip(values, cells, strict=True):
            np.copyto(row[tuple(map(slice, cell.shape))], cell)
    return values, shapes[:, free[0]] if len(free) == 1 else shapes[:, free]


def stacked(field: UnischemaField, column: NDArray[Any]) -> NDArray[Any]:
    """A column of arrays that all have one shape, as one array (rows, *shape) in new memory.

    Args:
        field: What the schema says of the column: a dtype other than object.
        column: One array a row, object array (rows,).

    Raises:
        DecodeError: Shapes differ; or as `ragged_cells`.

    Example:
        >>> column = np.array([np.array([1]), np.array([1, 2])], dtype=object)
        >>> stacked(UnischemaField("words", "int64", (None,)), column)
        Traceback (most recent call last):
        petastore.errors.DecodeError: column 'words': a batch has values of the shapes (1,) and (2,), which cannot be
            stacked. Set ragged= to a form for different shapes
    """
    flat, shapes = flattened(field, column)
    if len(shapes) == 0:
        return flat.reshape(0, *(size or 0 for size in field.shape))
    other = (shapes != shapes[0]).any(axis=1)
    if other.any():
        first, second = (tuple(shape.tolist()) for shape in (shapes[0], shapes[other][0]))
        raise DecodeError(
            f"a batch has values of the shapes {first} and {second}, which cannot be stacked. Set ragged= to a form "
            "for different shapes",
            column=field.name,
        )
    return flat.reshape(len(shapes), *shapes[0])


def _wrong_shape(field: UnischemaField, found: tuple[int, ...]) -> DecodeError:
    return DecodeError(f"a value has shape {found}, but the schema says {field.shape}", column=field.name)


def nanoseconds(name: str, times: NDArray[Any]) -> NDArray[np.int64]:
    """Times as whole nanoseconds: since 1970-01-01 for `datetime64`, of the duration for `timedelta64`.

    NaT is the smallest int64, as in NumPy itself.

    Raises:
        DecodeError: A value has no whole number of nanoseconds in int64: before 1677-09-21, after 2262-04-11, finer
            than a nanosecond, or a duration in months.

    Example:
        >>> nanoseconds("at", np.array(["1970-01-01T00:00:01"], dtype="datetime64[ms]"))
        array([1000000000])
        >>> nanoseconds("at", np.array(["3000-01-01"], dtype="datetime64[D]"))
        Traceback (most recent call last):
        petastore.errors.DecodeError: column 'at': 3000-01-01 is no whole number of nanoseconds in 64 bits; leave the
            column out with schema_fields, or convert it in a transform_spec
    """
    native = times.astype(times.dtype.newbyteorder("="), copy=False)
    counted = _in_fixed_units(name, native)
    unit, count = np.datetime_data(counted.dtype)
    step = count * _NANOSECONDS[unit]
    ticks = counted.view(np.int64)
    if step == 1 and counted is native:
        return ticks
    limit = (2**63 - 1) // step
    # NumPy wraps silently where a unit cannot hold a value; only the way back shows it.
    wrong = ((counted.astype(native.dtype) != native) | (ticks > limit) | (ticks < -limit)) & ~np.isnat(native)
    if wrong.any():
        raise DecodeError(
            f"{native[wrong][0]} is no whole number of nanoseconds in 64 bits; leave the column out with "
            "schema_fields, or convert it in a transform_spec",
            column=name,
        )
    return np.where(np.isnat(native), ticks, ticks * step)


def _in_fixed_units(name: str, times: NDArray[Any]) -> NDArray[Any]:
    """The times in a unit of whole nanoseconds: their own, days for years, nanoseconds for what is finer."""
    unit, _ = np.datetime_data(times.dtype)
    if unit in _NANOSECONDS:
        return times
    if unit in "YM" and times.dtype.kind == "m":
        raise DecodeError("months and years have no fixed length in nanoseconds", column=name)
    return times.astype("datetime64[D]" if unit in "YM" else f"{times.dtype.kind}8[ns]")
