"""Convert Arrow columns of structs, maps and lists to Python objects, and back.

Structs become dicts, maps become lists of pairs, and lists become lists. Numbers, text, bytes and decimals become
Python's types. Times become `numpy.datetime64` and `numpy.timedelta64` of the stored unit, as in columns of times,
because Python's types support neither years above 9999 nor nanoseconds. Timestamps with a time zone are
converted to UTC. Tensors become arrays with their logical axes.

For encoding, nested objects are split level by level into flat columns of scalars, which are encoded like scalar
fields.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import flags_of, numbers_of
from petastore.codecs.arrow.arrow_lists import decode_lists
from petastore.codecs.arrow.arrow_to_numpy import put_objects, refuse_nulls, times_of
from petastore.codecs.arrow.numpy_to_arrow import encode_scalars
from petastore.codecs.arrow.scalars import describe
from petastore.errors import DecodeError, EncodeError
from petastore.schema.arrow import field_from_arrow
from petastore.schema.field import UnischemaField

__all__ = ["decode_objects", "encode_objects"]


def decode_objects(cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
    """Decode a column of any type into `out`, an object array of shape `(rows,)`.

    Raises:
        DecodeError: A value is null, or Python has no equal value; `row` is set.

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
            f"the cell cannot be converted to Python: {problem}. Leave the column out with schema_fields",
            column=field.name,
            row=row,
        ) from None
    put_objects(values, out)


def _first_refused(cells: pa.Array) -> tuple[int | None, Exception | str]:
    for row in range(len(cells)):
        try:
            _objects(cells.slice(row, 1))
        except (UnicodeDecodeError, ValueError, TypeError, pa.ArrowException) as problem:
            return row, problem
    return None, "the column has too many values"


@functools.lru_cache(maxsize=1024)
def _is_as_arrow_gives_it(stored: pa.DataType) -> bool:
    """Return whether Arrow's `to_pylist` returns the same objects as `decode_objects`.

    False for types with times or tensors, because Arrow returns other objects for their values.
    """
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
    """Return the values of a column as Python objects, with None for nulls."""
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
    # `flatten` leaves out the items of null lists in every list layout, so null lists count as empty here.
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
        raise ValueError(f"members of a struct must have distinct names, got {', '.join(map(repr, names))}")
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


def encode_objects(values: Sequence[Any] | NDArray[Any], plain: pa.DataType, name: str) -> pa.Array:
    """Encode Python objects as one Arrow column; None becomes null, at any depth.

    Args:
        values: Dicts for structs, dicts or lists of pairs for maps, lists or arrays for lists.
        plain: Type of the values, from `petastore.codecs.arrow.arrow_types.plain_type`.
        name: Name of the column, for messages.

    Returns:
        A column of `stored_layout(plain)`.

    Raises:
        EncodeError: A value does not have this type, or a dict has a key that is not a member of the struct type.

    Example:
        >>> encode_objects([{"id": 7, "tags": ["a", None]}, None], pa.struct({"id": pa.int8(), "tags": pa.list_(
        ...     pa.string())}), "x").to_pylist()
        [{'id': 7, 'tags': ['a', None]}, None]
    """
    types = pa.types
    if types.is_struct(plain):
        return _structs(values, plain, name)
    if types.is_map(plain):
        pairs = _parts(values, name, "a map must be a dict or a list of pairs", _pairs_of)
        keys, items = ([pair[place] for pair in pairs.flat] for place in (0, 1))
        if any(key is None for key in keys):
            raise EncodeError("keys of a map must not be None, got None. Remove that key", column=name)
        columns = encode_objects(keys, plain.key_type, name), encode_objects(items, plain.item_type, name)
        return pa.MapArray.from_arrays(pairs.offsets, *columns)
    if types.is_list(plain):
        lists = _parts(values, name, "the value must be a list", _items_of)
        inside = encode_objects(lists.flat, plain.value_type, name)
        return pa.ListArray.from_arrays(lists.offsets, inside, type=pa.list_(pa.field("element", inside.type)))
    return _leaves(values, plain, name)


class _Parts:
    """Concatenated items of all lists or maps of a column, and their offsets."""

    def __init__(self, flat: list[Any], lengths: list[int | None], name: str) -> None:
        if len(flat) > np.iinfo(np.int32).max:
            raise EncodeError(
                f"a list column must have at most {np.iinfo(np.int32).max:,} elements, got {len(flat):,}. Encode fewer "
                "rows at once",
                column=name,
            )
        self.flat = flat
        starts = itertools.accumulate((length or 0 for length in lengths), initial=0)
        missing = [length is None for length in lengths]
        # A null offset makes its list null.
        self.offsets = pa.array(list(starts), pa.int32(), mask=np.array([*missing, False]))


def _parts(values: Sequence[Any] | NDArray[Any], name: str, rule: str, parts_of: Any) -> _Parts:
    flat: list[Any] = []
    lengths: list[int | None] = []
    for value in values:
        parts = None if value is None else parts_of(value)
        if parts is None and value is not None:
            raise EncodeError(f"{rule}, got {describe(value)}", column=name)
        lengths.append(None if parts is None else len(parts))
        flat += parts or ()
    return _Parts(flat, lengths, name)


def _items_of(value: Any) -> list[Any] | None:
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    return list(value) if is_array or isinstance(value, (list, tuple)) else None


def _pairs_of(value: Any) -> list[Any] | None:
    pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
    found = list(pairs) if isinstance(value, (Mapping, list, tuple)) else [None]
    return found if all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in found) else None


def _structs(values: Sequence[Any] | NDArray[Any], plain: pa.StructType, name: str) -> pa.Array:
    names = [member.name for member in plain]
    known = frozenset(names)
    for value in values:
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise EncodeError(f"a struct must be a dict, got {describe(value)}", column=name)
        if not known.issuperset(value):
            unknown = ", ".join(repr(key) for key in value if key not in known)
            raise EncodeError(
                f"a struct must have only the members {', '.join(map(repr, names))}, got {unknown}. Remove the others",
                column=name,
            )
    there = [{} if value is None else value for value in values]
    columns = [
        encode_objects([value.get(member.name) for value in there], member.type, f"{name}.{member.name}")
        for member in plain
    ]
    missing = pa.array([value is None for value in values], pa.bool_())
    fields = [pa.field(label, column.type) for label, column in zip(names, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=missing)


def _leaves(values: Sequence[Any] | NDArray[Any], plain: pa.DataType, name: str) -> pa.Array:
    types = pa.types
    if types.is_null(plain):
        value = next((value for value in values if value is not None), None)
        if value is not None:
            raise EncodeError(f"a value of the type null must be None, got {type(value).__name__}", column=name)
        return pa.nulls(len(values))
    field = field_from_arrow(pa.field(name, plain))
    if types.is_time(plain) or types.is_duration(plain):
        numbers = encode_scalars(values, field, pa.int64())
        if types.is_duration(plain):
            return numbers
        return numbers.cast(pa.int32() if types.is_time32(plain) else pa.int64()).view(plain)
    if types.is_fixed_size_binary(plain):
        try:
            return encode_scalars(values, field, pa.binary()).cast(plain)
        except pa.ArrowInvalid:
            sizes = (memoryview(value).nbytes for value in values if value is not None)
            found = next((f"{size:,} bytes" for size in sizes if size != plain.byte_width), "another length")
            raise EncodeError(f"each value must have {plain.byte_width:,} bytes, got {found}", column=name) from None
    return encode_scalars(values, field, plain)
