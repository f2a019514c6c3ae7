"""Python objects to Arrow columns of structs, maps and lists of them: the reverse of `arrow_objects`.

A column is taken apart level by level; its leaves are encoded together, by the rules that scalar fields have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from petastore.codecs.arrow.numpy_to_arrow import encode_scalars
from petastore.codecs.arrow.scalars import describe
from petastore.errors import EncodeError
from petastore.schema.arrow import field_from_arrow

__all__ = ["encode_objects"]


def encode_objects(values: Sequence[Any], plain: pa.DataType, name: str) -> pa.Array:
    """Objects to one column; None becomes null, at any depth.

    Args:
        values: Dicts for structs, dicts or lists of pairs for maps, lists or arrays for lists.
        plain: Their type, as `petastore.codecs.arrow.arrow_types.plain_type` gives it.
        name: Of the column, for messages.

    Returns:
        A column of `stored_layout(plain)`.

    Raises:
        EncodeError: A value is not of that type, or a struct has a member that the type lacks.

    Example:
        >>> encode_objects([{"id": 7, "tags": ["a", None]}, None], pa.struct({"id": pa.int8(), "tags": pa.list_(
        ...     pa.string())}), "x").to_pylist()
        [{'id': 7, 'tags': ['a', None]}, None]
    """
    types = pa.types
    if types.is_struct(plain):
        return _structs(values, plain, name)
    if types.is_map(plain):
        pairs = _parts(values, name, "a map is a dict or a list of pairs", _pairs_of)
        keys, items = ([pair[place] for pair in pairs.flat] for place in (0, 1))
        if any(key is None for key in keys):
            raise EncodeError("a key of a map is None", column=name)
        columns = encode_objects(keys, plain.key_type, name), encode_objects(items, plain.item_type, name)
        return pa.MapArray.from_arrays(pairs.offsets, *columns)
    if types.is_list(plain):
        lists = _parts(values, name, "a list is expected", _items_of)
        inside = encode_objects(lists.flat, plain.value_type, name)
        return pa.ListArray.from_arrays(lists.offsets, inside, type=pa.list_(pa.field("element", inside.type)))
    return _leaves(values, plain, name)


class _Parts:
    """The values of a column end to end, and the offset of each."""

    def __init__(self, flat: list[Any], lengths: list[int | None], name: str) -> None:
        if len(flat) > np.iinfo(np.int32).max:
            raise EncodeError(f"{len(flat):,} values are more than one column of lists holds", column=name)
        self.flat = flat
        starts = itertools.accumulate((length or 0 for length in lengths), initial=0)
        missing = [length is None for length in lengths]
        # A null offset makes its list null.
        self.offsets = pa.array(list(starts), pa.int32(), mask=np.array([*missing, False]))


def _parts(values: Sequence[Any], name: str, rule: str, parts_of: Any) -> _Parts:
    flat: list[Any] = []
    lengths: list[int | None] = []
    for value in values:
        parts = None if value is None else parts_of(value)
        if parts is None and value is not None:
            raise EncodeError(f"{rule}, but {describe(value)} came", column=name)
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


def _structs(values: Sequence[Any], plain: pa.StructType, name: str) -> pa.Array:
    names = [member.name for member in plain]
    known = frozenset(names)
    for value in values:
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise EncodeError(f"a struct is a dict, but {describe(value)} came", column=name)
        if not known.issuperset(value):
            unknown = ", ".join(repr(key) for key in value if key not in known)
            raise EncodeError(
                f"a struct has the members {', '.join(map(repr, names))}, but {unknown} came", column=name
            )
    there = [{} if value is None else value for value in values]
    columns = [
        encode_objects([value.get(member.name) for value in there], member.type, f"{name}.{member.name}")
        for member in plain
    ]
    missing = pa.array([value is None for value in values], pa.bool_())
    fields = [pa.field(label, column.type) for label, column in zip(names, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=missing)


def _leaves(values: Sequence[Any], plain: pa.DataType, name: str) -> pa.Array:
    types = pa.types
    if types.is_null(plain):
        if any(value is not None for value in values):
            raise EncodeError("the column has the type null, whose values are all None", column=name)
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
            raise EncodeError(f"a value is not of {plain.byte_width:,} bytes", column=name) from None
    return encode_scalars(values, field, plain)
