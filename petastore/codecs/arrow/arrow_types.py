"""Arrow types of structs, maps and lists: as JSON, and as petastore stores them.

No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from petastore.errors import SchemaError
from petastore.schema.arrow import is_bytes, is_list, is_text
from petastore.schema.field import JsonValue

__all__ = ["in_utc", "map_leaves", "parse_type", "plain_type", "stored_layout", "type_as_json"]

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
