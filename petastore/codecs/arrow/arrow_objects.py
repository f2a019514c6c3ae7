"""Arrow columns of structs, maps and lists of them as Python objects: dicts, lists of pairs, lists.

Numbers, text, bytes and decimals are Python's. Times are what they are in columns of their own, `numpy.datetime64` and
`numpy.timedelta64` of the stored unit, time stamps with a zone in UTC: Python's own hold neither years above 9999 nor
nanoseconds, and know not every zone that files name. Tensors are arrays with their logical axes.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import flags_of, numbers_of
from petastore.codecs.arrow.arrow_lists import decode_lists
from petastore.codecs.arrow.arrow_to_numpy import refuse_nulls, times_of
from petastore.errors import DecodeError
from petastore.schema.arrow import field_from_arrow
from petastore.schema.field import UnischemaField

__all__ = ["decode_objects"]


def decode_objects(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    """A column of any type into `out`, objects of shape `(rows,)`.

    Raises:
        DecodeError: A value is null, or has no equal in Python; `row` is set.

    Example:
        >>> out = np.empty(1, object)
        >>> cells = pa.array([{"id": 7, "at": 2**62}], pa.struct({"id": pa.int8(), "at": pa.timestamp("us", "Mars")}))
        >>> decode_objects(cells, UnischemaField("visit", object), out)
        >>> out[0]
        {'id': 7, 'at': np.datetime64('148108-07-06T14:00:27.387904')}
    """
    refuse_nulls(cells, field)
    try:
        values = _objects(cells)
    except (UnicodeDecodeError, ValueError, TypeError, pa.ArrowException):
        row, problem = _first_refused(cells)
        raise DecodeError(
            f"the cell has no equal in Python: {problem}; leave the column out with schema_fields",
            column=field.name,
            row=row,
        ) from None
    out[:] = np.fromiter(values, np.object_, count=len(values))


def _first_refused(cells: pa.Array) -> tuple[int | None, Exception | str]:
    for row in range(len(cells)):
        try:
            _objects(cells.slice(row, 1))
        except (UnicodeDecodeError, ValueError, TypeError, pa.ArrowException) as problem:
            return row, problem
    return None, "all rows together are too many"


@functools.lru_cache(maxsize=1024)
def _is_as_arrow_gives_it(stored: pa.DataType) -> bool:
    """Whether Arrow's own Python objects are those that are wanted."""
    types = pa.types
    if isinstance(stored, pa.BaseExtensionType):
        is_tensor = isinstance(stored, pa.FixedShapeTensorType)
        return not is_tensor and _is_as_arrow_gives_it(stored.storage_type)
    if types.is_dictionary(stored):
        return _is_as_arrow_gives_it(stored.value_type)
    if types.is_temporal(stored):
        return False
    return all(_is_as_arrow_gives_it(stored.field(number).type) for number in range(stored.num_fields))


def _objects(cells: pa.Array) -> list[Any]:
    """The values of a column; None where one is null."""
    stored, types = cells.type, pa.types
    if _is_as_arrow_gives_it(stored):
        values: list[Any] = cells.to_pylist()
        return values
    if types.is_dictionary(stored):
        return _objects(cells.dictionary_decode())
    if isinstance(stored, pa.FixedShapeTensorType):
        return _tensors(cells)
    if isinstance(cells, pa.ExtensionArray):
        return _objects(cells.storage)
    if types.is_struct(stored):
        return _with_nulls(_dicts(cells), cells)
    if types.is_map(stored):
        keys, items = _objects(cells.keys), _objects(cells.items)
        return _with_nulls(_cut(list(zip(keys, items, strict=True)), numbers_of(cells.offsets)), cells)
    if types.is_temporal(stored):
        return _with_nulls(list(times_of(cells)), cells)
    # Of lists of every layout: what those that are there hold, end to end.
    lengths = cells.value_lengths() if not types.is_fixed_size_list(stored) else None
    sizes = np.full(len(cells), stored.list_size) if lengths is None else numbers_of(lengths.fill_null(0))
    sizes = np.where(flags_of(cells.is_null()), 0, sizes)
    return _with_nulls(_cut(_objects(cells.flatten()), np.concatenate([[0], np.cumsum(sizes)])), cells)


def _with_nulls(values: list[Any], cells: pa.Array) -> list[Any]:
    if not cells.null_count:
        return values
    gone = flags_of(cells.is_null()).tolist()
    return [None if is_gone else value for is_gone, value in zip(gone, values, strict=True)]


def _cut(values: list[Any], borders: NDArray[Any]) -> list[Any]:
    return [values[first:stop] for first, stop in itertools.pairwise(borders.tolist())]


def _dicts(cells: pa.StructArray) -> list[dict[str, Any]]:
    names = cells.type.names
    if len(set(names)) != len(names):
        raise ValueError(f"its members {', '.join(map(repr, names))} do not all have names of their own")
    columns = [_objects(cells.field(number)) for number in range(len(names))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _tensors(cells: pa.ExtensionArray) -> list[NDArray[Any] | None]:
    field = field_from_arrow(pa.field("tensor", cells.type))
    there = cells.drop_null()
    shape: tuple[Any, ...] = (len(there), *field.shape)
    values = (
        np.empty(shape[:1], object) if field.dtype.hasobject or not field.is_fixed else np.empty(shape, field.dtype)
    )
    decode_lists(there, field, values)
    found: list[NDArray[Any] | None] = [None] * len(cells)
    for place, value in zip(np.flatnonzero(~flags_of(cells.is_null())).tolist(), values, strict=True):
        found[place] = value
    return found
