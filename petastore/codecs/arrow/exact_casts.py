"""Cast stored columns of structs, maps and lists to a declared type. No I/O.

Values inside a cell follow the rules of scalar columns: a value that the declared type cannot hold raises an error.
"""

from __future__ import annotations

import bisect
import functools

import numpy as np
import pyarrow as pa

from petastore.arrow import conformed, flags_of
from petastore.codecs.arrow.arrow_objects import encode_objects
from petastore.codecs.arrow.arrow_to_numpy import decode_scalars
from petastore.codecs.arrow.arrow_types import in_utc, plain_type
from petastore.codecs.arrow.numpy_to_arrow import spread
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.arrow import field_from_arrow

__all__ = ["cast_exactly", "has_same_values"]


@functools.lru_cache(maxsize=1024)
def has_same_values(stored: pa.DataType, plain: pa.DataType) -> bool:
    """Return whether a stored type differs from a plain type only in layout, nullability or time zone.

    Example:
        >>> has_same_values(pa.list_(pa.large_string()), pa.list_(pa.string()))
        True
    """
    try:
        return bool(in_utc(plain_type(stored, name="")) == in_utc(plain))
    except SchemaError:
        return False


def cast_exactly(cells: pa.Array, plain: pa.DataType) -> pa.Array:
    """Return cells as a plain type; a value that this type cannot hold raises an error.

    Args:
        cells: Column of any type.
        plain: Type of the result, from `petastore.codecs.arrow.arrow_types.plain_type`.

    Raises:
        DecodeError: A value does not fit; `row` is set if the types can be converted.

    Example:
        >>> cells = pa.array([{"a": 3}, {"a": 300}])
        >>> cast_exactly(cells.slice(0, 1), pa.struct({"a": pa.int8()})).type
        StructType(struct<a: int8>)
        >>> cast_exactly(cells, pa.struct({"a": pa.int8()}))
        Traceback (most recent call last):
        petastore.errors.DecodeError: row 1: values must fit in struct<a: int8>, the type that the field declares, got a
            value of struct<a: int64> that does not: the cell must be a value that int8 can hold without loss, got 300.
            Declare a wider dtype
    """
    try:
        return _casted(cells, plain)
    except DecodeError as problem:
        row, reason = problem.row, problem.problem
        if row is not None:  # it counts values inside the cells
            rows = range(len(cells))
            row = bisect.bisect(rows, False, key=lambda last: bool(_problem_of(cells.slice(0, last + 1), plain)))
            reason = _problem_of(cells.slice(row, 1), plain) or reason
        raise DecodeError(
            f"values must fit in {plain}, the type that the field declares, got a value of {cells.type} that does not: "
            f"{reason}",
            row=row,
        ) from None


def _casted(cells: pa.Array, plain: pa.DataType) -> pa.Array:
    try:
        return conformed(cells, plain, _cast_scalars)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError) as problem:
        raise DecodeError(str(problem)) from None


def _cast_scalars(cells: pa.Array, plain: pa.DataType) -> pa.Array:
    if has_same_values(cells.type, plain):
        return cells.cast(plain)
    if cells.type == pa.int64() and pa.types.is_duration(plain):
        return cells.view(plain)
    field, present = field_from_arrow(pa.field("value", plain)), cells.drop_null()
    if len(present) == 0:
        return pa.nulls(len(cells), plain)
    values = np.empty(len(present), field.dtype)
    decode_scalars(present, field, values)
    try:
        encoded = encode_objects(values, plain, "value").view(plain)  # durations are encoded as integers
    except EncodeError as problem:
        raise DecodeError(problem.problem, row=problem.row or 0) from None
    return spread(encoded, flags_of(cells.is_valid())) if cells.null_count else encoded


def _problem_of(cells: pa.Array, plain: pa.DataType) -> str:
    """Return the reason why cells do not fit; empty if they do."""
    try:
        _casted(cells, plain)
    except DecodeError as problem:
        return problem.problem
    return ""
