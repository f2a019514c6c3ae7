"""Arrow types of structs, maps and lists: as JSON, as petastore stores them, and casts of stored columns. No I/O.

Values inside a cell follow the rules of scalar columns: a value that the declared type cannot hold raises an error.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from petastore.arrow import conformed, flags_of
from petastore.codecs.arrow.arrow_objects import encode_objects
from petastore.codecs.arrow.arrow_to_numpy import decode_scalars
from petastore.codecs.arrow.numpy_to_arrow import spread
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.arrow import field_from_arrow, is_bytes, is_list, is_text
from petastore.schema.field import JsonValue

__all__ = [
    "cast_exactly",
    "has_same_values",
    "in_utc",
    "map_leaves",
    "parse_type",
    "plain_type",
    "stored_layout",
    "type_as_json",
]

_UNITS = ("ms", "us", "ns")
_SCALARS: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in (
        *(pa.null(), pa.bool_(), pa.string(), pa.binary(), pa.date32(), pa.time32("ms"), pa.time64("us")),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.time64("ns"), pa.duration("s")),
        *(pa.timestamp(unit) for unit in _UNITS),
        *(pa.duration(unit) for unit in _UNITS),
    )
}
_ZONED = re.compile(r"timestamp\[(ms|us|ns), tz=([^\]]{1,64})\]")
_DECIMAL = re.compile(r"decimal(128|256)\(([0-9]{1,2}), (-?[0-9]{1,2})\)")
_FIXED_BYTES = re.compile(r"fixed_size_binary\[([0-9]{1,9})\]")
_MOST_LEVELS = 100


def plain_type(arrow_type: pa.DataType, *, name: str) -> pa.DataType:
    """Return the type that Parquet stores for an Arrow type.

    Large, view, fixed-size and dictionary layouts are replaced by the plain type of the same values.

    Args:
        arrow_type: Any type.
        name: Name of the column, for messages.

    Raises:
        SchemaError: Parquet cannot store values of this type.

    Example:
        >>> plain_type(pa.struct({"word": pa.large_string(), "xy": pa.list_(pa.float32(), 2)}), name="at")
        StructType(struct<word: string, xy: list<element: float>>)
    """
    return map_leaves(arrow_type, lambda leaf: _plain_scalar(leaf, name))


def map_leaves(arrow_type: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a nested type with each leaf type replaced by the result of `leaf`.

    Leaf types are all types except lists, maps and structs. An extension type counts as its storage type, and a
    dictionary type as its value type.

    Raises:
        SchemaError: A struct has no members, which Parquet cannot store.
    """
    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        return map_leaves(arrow_type.storage_type, leaf)
    if types.is_dictionary(arrow_type):
        return map_leaves(arrow_type.value_type, leaf)
    if is_list(arrow_type):
        return pa.list_(pa.field("element", map_leaves(arrow_type.value_type, leaf)))
    if types.is_map(arrow_type):
        return pa.map_(map_leaves(arrow_type.key_type, leaf), map_leaves(arrow_type.item_type, leaf))
    if types.is_struct(arrow_type):
        if not arrow_type.num_fields:
            raise SchemaError("a struct must have members, because Parquet cannot store an empty struct")
        return pa.struct([(member.name, map_leaves(member.type, leaf)) for member in arrow_type])
    return leaf(arrow_type)


def _plain_scalar(arrow_type: pa.DataType, name: str) -> pa.DataType:
    types = pa.types
    if is_text(arrow_type):
        return pa.string()
    if is_bytes(arrow_type) and not types.is_fixed_size_binary(arrow_type):
        return pa.binary()
    if types.is_decimal(arrow_type) and not types.is_decimal256(arrow_type):
        return pa.decimal128(arrow_type.precision, arrow_type.scale)
    if types.is_date(arrow_type):
        return pa.date32()
    if types.is_timestamp(arrow_type) and arrow_type.unit == "s":
        return pa.timestamp("ms", arrow_type.tz)
    if types.is_time32(arrow_type):
        return pa.time32("ms")
    try:
        return parse_type(str(arrow_type))
    except SchemaError:
        raise SchemaError(
            f"field {name!r}: Parquet cannot store the Arrow type {arrow_type}. Convert the values to another type"
        ) from None


def stored_layout(plain: pa.DataType) -> pa.DataType:
    """Return the type that is stored in Parquet: durations become integers.

    Example:
        >>> stored_layout(pa.struct({"took": pa.duration("us")}))
        StructType(struct<took: int64>)
    """
    return map_leaves(plain, lambda leaf: pa.int64() if pa.types.is_duration(leaf) else leaf)


def in_utc(plain: pa.DataType) -> pa.DataType:
    """Return the type with UTC instead of other time zones, as Parquet readers do.

    Example:
        >>> in_utc(pa.list_(pa.timestamp("us", "Europe/Berlin")))
        ListType(list<element: timestamp[us, tz=UTC]>)
    """
    return map_leaves(
        plain,
        lambda leaf: pa.timestamp(leaf.unit, "UTC") if pa.types.is_timestamp(leaf) and leaf.tz is not None else leaf,
    )


def type_as_json(plain: pa.DataType) -> JsonValue:
    """Return a plain type as JSON.

    The JSON is a name, or an object with one key: `list`, `map` or `struct`.

    Example:
        >>> type_as_json(pa.struct({"id": pa.int64(), "tags": pa.list_(pa.string())}))
        {'struct': [['id', 'int64'], ['tags', {'list': 'string'}]]}
    """
    types = pa.types
    if types.is_list(plain):
        return {"list": type_as_json(plain.value_type)}
    if types.is_map(plain):
        return {"map": [type_as_json(plain.key_type), type_as_json(plain.item_type)]}
    if types.is_struct(plain):
        return {"struct": [[member.name, type_as_json(member.type)] for member in plain]}
    return str(plain)


def parse_type(document: Any, *, levels: int = _MOST_LEVELS) -> pa.DataType:
    """Return the type that JSON of `type_as_json` describes; the JSON is not trusted.

    Args:
        document: A name, or an object with one key.
        levels: Maximum number of nesting levels.

    Raises:
        SchemaError: The JSON does not describe a type that petastore stores.

    Example:
        >>> parse_type({"map": ["string", "timestamp[us, tz=UTC]"]})
        MapType(map<string, timestamp[us, tz=UTC]>)
    """
    if isinstance(document, str):
        return _parse_scalar(document)
    if isinstance(document, dict) and len(document) == 1 and levels:
        ((kind, inside),) = document.items()
        if kind == "list":
            return pa.list_(pa.field("element", parse_type(inside, levels=levels - 1)))
        if kind == "map" and isinstance(inside, list) and len(inside) == 2:
            return pa.map_(*(parse_type(part, levels=levels - 1) for part in inside))
        if kind == "struct" and isinstance(inside, list) and inside:
            return pa.struct([_parse_member(member, levels - 1) for member in inside])
    raise SchemaError(f"arrow_type must be a pyarrow.DataType or its JSON, got {type(document).__name__}")


def _parse_member(member: Any, levels: int) -> tuple[str, pa.DataType]:
    if not isinstance(member, list) or len(member) != 2 or not isinstance(member[0], str):
        raise SchemaError(f"a member of a struct must be [name, type], got {member!r:.200}")
    return member[0], parse_type(member[1], levels=levels)


def _parse_scalar(name: str) -> pa.DataType:
    if name in _SCALARS:
        return _SCALARS[name]
    try:
        if zoned := _ZONED.fullmatch(name):
            return pa.timestamp(zoned[1], zoned[2])
        if exact := _DECIMAL.fullmatch(name):
            made = pa.decimal128 if exact[1] == "128" else pa.decimal256
            return made(int(exact[2]), int(exact[3]))
        if fixed := _FIXED_BYTES.fullmatch(name):
            return pa.binary(int(fixed[1]))
    except (pa.ArrowException, ValueError):
        pass  # an invalid type, such as a decimal of 99 digits
    raise SchemaError(f"arrow_type must be the name of a supported Arrow type, such as 'int64', got {name!r:.200}")


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
