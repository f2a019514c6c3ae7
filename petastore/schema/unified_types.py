"""Unified Arrow type of a column whose type differs between files. No I/O.

It is the narrowest type that holds all values exactly, with one exception: integers of 64 bits and floats unify as
double, because pandas writes integers as doubles where a value is missing. An integer beyond 2^53 raises an error when
it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from petastore.schema.arrow import is_bytes, is_list, is_text

__all__ = ["unified_field", "unified_type"]

_INTEGERS = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
_FLOATS = (pa.float16(), pa.float32(), pa.float64())
_EXACT_INTEGER_BITS = {16: 11, 32: 24, 64: 53}
"""Dict from the bits of a float type to the bits of integers that it represents exactly."""

_UNITS = ("s", "ms", "us", "ns")
_MOST_DIGITS = 76  # maximum digits of decimal256


def unified_type(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the narrowest type that holds the values of all types exactly.

    Integers of 64 bits and floats unify to double, which holds integers up to 2^53. Return None if no type holds all
    values.

    The result does not depend on the order of the types, except for the order of struct members.

    Example:
        >>> unified_type([pa.int32(), pa.int64()]), unified_type([pa.int32(), pa.float32()])
        (DataType(int64), DataType(double))
        >>> unified_type([pa.int64(), pa.float64()]), unified_type([pa.int64(), pa.string()])
        (DataType(double), None)
    """
    distinct: list[pa.DataType] = []
    for each in types:
        if not pa.types.is_null(each) and each not in distinct:
            distinct.append(each)
    if len(distinct) < 2:
        return distinct[0] if distinct else pa.null()
    if any(map(pa.types.is_dictionary, distinct)):
        return _unified_dictionary(distinct)
    if any(map(_is_like_storage, distinct)):
        # Files that were written without an Arrow schema have only the storage type.
        return unified_type([each.storage_type if _is_like_storage(each) else each for each in distinct])
    for is_of_family, unify in _FAMILIES:
        if all(map(is_of_family, distinct)):
            return unify(distinct)
    return None


def _is_like_storage(found: pa.DataType) -> bool:
    """Return whether a type is an extension type that is read as its storage type.

    UUID and JSON are such types; fixed-shape tensors are not.
    """
    return isinstance(found, pa.BaseExtensionType) and not isinstance(found, pa.FixedShapeTensorType)


def unified_field(fields: Sequence[pa.Field]) -> pa.Field | None:
    """Return the field that holds the values of all fields; None if no type does.

    It has the name of the first field, and is nullable if any field is nullable.

    Example:
        >>> unified_field([pa.field("x", pa.int32(), nullable=False), pa.field("x", pa.int64())])
        pyarrow.Field<x: int64>
    """
    found = unified_type([field.type for field in fields])
    if found is None:
        return None
    return pa.field(fields[0].name, found, nullable=any(field.nullable for field in fields))


def _unified_dictionary(types: Sequence[pa.DataType]) -> pa.DataType | None:
    if all(map(pa.types.is_dictionary, types)):
        first = types[0]
        if all(each.value_type == first.value_type and each.ordered == first.ordered for each in types):
            index = unified_type([each.index_type for each in types])
            return pa.dictionary(index or pa.int32(), first.value_type, first.ordered)
    return unified_type([each.value_type if pa.types.is_dictionary(each) else each for each in types])


def _unified_number(types: Sequence[pa.DataType]) -> pa.DataType | None:
    integers = [each for each in types if pa.types.is_integer(each)]
    width = max((each.bit_width for each in types if pa.types.is_floating(each)), default=0)
    if not width:
        return next((each for each in _INTEGERS if all(_holds(each, one) for one in integers)), None)
    bits = max(map(_value_bits, integers), default=0)
    exact = (each for each in _FLOATS if each.bit_width >= width and bits <= _EXACT_INTEGER_BITS[each.bit_width])
    return next(exact, pa.float64())


def _value_bits(integer: pa.DataType) -> int:
    return int(integer.bit_width) - (not pa.types.is_unsigned_integer(integer))


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    is_unsigned = pa.types.is_unsigned_integer
    return _value_bits(wide) >= _value_bits(narrow) and (is_unsigned(narrow) or not is_unsigned(wide))


def _unified_bytes(types: Sequence[pa.DataType]) -> pa.DataType:
    is_short = all(pa.types.is_binary(each) or pa.types.is_fixed_size_binary(each) for each in types)
    return pa.binary() if is_short else pa.large_binary()


def _unified_timestamp(types: Sequence[pa.DataType]) -> pa.DataType | None:
    zones = {each.tz for each in types}
    return pa.timestamp(_finest(types), zones.pop()) if len(zones) == 1 else None


def _unified_time(types: Sequence[pa.DataType]) -> pa.DataType:
    unit = _finest(types)
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


def _finest(types: Sequence[pa.DataType]) -> str:
    return max((str(each.unit) for each in types), key=_UNITS.index)


def _unified_decimal(types: Sequence[pa.DataType]) -> pa.DataType | None:
    scale = max(each.scale for each in types)
    precision = scale + max(each.precision - each.scale for each in types)
    if precision > _MOST_DIGITS:
        return None
    is_wide = precision > 38 or any(map(pa.types.is_decimal256, types))
    return pa.decimal256(precision, scale) if is_wide else pa.decimal128(precision, scale)


def _unified_list(types: Sequence[pa.DataType]) -> pa.DataType | None:
    item = unified_field([each.value_field for each in types])
    if item is None:
        return None
    sizes = {each.list_size if pa.types.is_fixed_size_list(each) else None for each in types}
    if len(sizes) == 1 and None not in sizes:
        return pa.list_(item, sizes.pop())
    is_short = all(pa.types.is_list(each) or pa.types.is_fixed_size_list(each) for each in types)
    return pa.list_(item) if is_short else pa.large_list(item)


def _unified_map(types: Sequence[pa.DataType]) -> pa.DataType | None:
    key = unified_field([each.key_field for each in types])
    item = unified_field([each.item_field for each in types])
    if key is None or item is None:
        return None
    found: pa.DataType = pa.map_(key, item, all(each.keys_sorted for each in types))
    return found


def _unified_struct(types: Sequence[pa.DataType]) -> pa.DataType | None:
    members: dict[str, list[pa.Field]] = {}
    for each in types:
        for field in each:
            members.setdefault(field.name, []).append(field)
    if any(len({field.name for field in each}) < each.num_fields for each in types):
        return None  # a struct has two members of one name
    fields = []
    for same in members.values():
        field = unified_field(same)
        if field is None:
            return None
        fields.append(field if len(same) == len(types) else field.with_nullable(True))
    return pa.struct(fields)


def _any_of(*tests: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda found: any(test(found) for test in tests)


_Unify = Callable[[Sequence[pa.DataType]], "pa.DataType | None"]
_FAMILIES: Iterable[tuple[Callable[[pa.DataType], bool], _Unify]] = (
    (_any_of(pa.types.is_integer, pa.types.is_floating), _unified_number),
    (is_text, lambda _: pa.large_string()),
    (is_bytes, _unified_bytes),
    (pa.types.is_date, lambda _: pa.date64()),
    (pa.types.is_timestamp, _unified_timestamp),
    (pa.types.is_time, _unified_time),
    (pa.types.is_duration, lambda types: pa.duration(_finest(types))),
    (pa.types.is_decimal, _unified_decimal),
    (is_list, _unified_list),
    (pa.types.is_map, _unified_map),
    (pa.types.is_struct, _unified_struct),
)
