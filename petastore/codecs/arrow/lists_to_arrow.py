"""Many arrays to one Arrow column of lists: the leaves become one flat column, and the lists are laid around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrow.numpy_to_arrow import encode_scalars
from petastore.codecs.arrow.scalars import InexactError, describe, nested_values
from petastore.codecs.declared import array_to_write, shape_below_empty
from petastore.errors import EncodeError
from petastore.schema.field import UnischemaField

__all__ = ["encode_lists"]


def encode_lists(values: Sequence[Any] | NDArray[Any], field: UnischemaField, stored: pa.ListType) -> pa.Array:
    """A column of values with dimensions as nested lists.

    Args:
        values: An array `(rows, *shape)` of the declared dtype, or a sequence of arrays and lists; None becomes null.
        field: With at least one dimension.
        stored: As many levels of lists as the field has dimensions.

    Raises:
        EncodeError: Wrong dtype, shape or range, with `row` set.
    """
    leaf_type = stored
    for _ in field.shape:
        leaf_type = leaf_type.value_type
    scalar = dataclasses.replace(field, shape=(), codec=None)
    leaves, shapes, missing = _flat(values, field)
    sizes = shapes.prod(axis=1)
    try:
        column = encode_scalars(leaves, scalar, leaf_type)
    except EncodeError as problem:
        if problem.row is not None:
            problem.row = int(np.searchsorted(np.cumsum(sizes), problem.row, side="right"))
        raise
    return _lists_around(column, shapes, stored, missing, field)


def _flat(
    values: Sequence[Any] | NDArray[Any], field: UnischemaField
) -> tuple[Any, NDArray[np.int64], NDArray[np.bool_] | None]:
    """All leaves in order, the shape of each value (rows, dimensions), and which rows are missing (None: none is)."""
    depth = len(field.shape)
    if (
        isinstance(values, np.ndarray)
        and values.dtype != np.dtype(object)
        and not isinstance(values, np.ma.MaskedArray)
    ):
        if len(values):
            array_to_write(field, values[0])
        return values.reshape(-1), np.tile(np.array(values.shape[1:], np.int64), (len(values), 1)), None
    parts: list[Any] = []
    shapes = np.zeros((len(values), depth), np.int64)
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            part, shapes[row] = _leaves(value, field)
        except EncodeError as problem:
            raise problem.at(row=row) from None
        parts.append(part)
    missing = np.array([value is None for value in values], np.bool_)
    return _joined(parts), shapes, missing if missing.any() else None


def _leaves(value: Any, field: UnischemaField) -> tuple[Any, tuple[int, ...]]:
    if isinstance(value, np.ndarray) and value.dtype != np.dtype(object):
        return array_to_write(field, value).reshape(-1), value.shape
    try:
        leaves, shape = nested_values(value, len(field.shape))
    except InexactError as problem:
        raise EncodeError(
            f"{describe(value)} cannot be written with shape {field.shape}: {problem}", column=field.name
        ) from None
    if any(leaf is None for leaf in leaves):
        raise EncodeError(
            "a list holds None; only whole values may be missing, unless the field has dtype object and ArrowCodec",
            column=field.name,
        )
    shape = shape_below_empty(shape, field.shape)
    if not field.fits(shape):
        raise EncodeError(f"a value of shape {shape} came, but {field.shape} is declared", column=field.name)
    return leaves, shape


def _joined(parts: list[Any]) -> Any:
    """The leaves of all rows; one array where each row gave one of the same dtype."""
    dtypes = {part.dtype if isinstance(part, np.ndarray) else None for part in parts}
    if len(dtypes) == 1 and None not in dtypes:
        return np.concatenate(parts)
    return [leaf for part in parts for leaf in part]


def _lists_around(
    leaves: pa.Array,
    shapes: NDArray[np.int64],
    stored: pa.ListType,
    missing: NDArray[np.bool_] | None,
    field: UnischemaField,
) -> pa.Array:
    types = [stored]
    for _ in field.shape[1:]:
        types.append(types[-1].value_type)
    column = leaves
    for depth in range(len(field.shape) - 1, -1, -1):
        # Row r has `repeats[r]` lists at this level, each as long as its size in this dimension.
        repeats = shapes[:, :depth].prod(axis=1)
        lengths = np.repeat(shapes[:, depth], repeats)
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        if starts[-1] > np.iinfo(np.int32).max:
            raise EncodeError(f"{starts[-1]:,} values are more than one column of lists holds", column=field.name)
        mask = pa.array(missing) if depth == 0 and missing is not None else None
        column = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), column, type=types[depth], mask=mask)
    return column
