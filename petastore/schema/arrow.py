"""Conversion between Arrow types and the fields of a schema.

The module defines the fields of plain Parquet columns, and the types in which fields without a codec are stored. Every
Arrow type that Parquet can store is readable. For writing, petastore uses the types that Spark writes, so that Spark
and `write_dataset` write the same datasets: Spark has no unsigned integers, so `uint8` is stored as `int16`, `uint16`
as `int32`, `uint32` as `int64` and `uint64` as `decimal(20, 0)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from petastore.arrow import NUMBER_DTYPES
from petastore.errors import SchemaError
from petastore.schema.field import UnischemaField

__all__ = [
    "axes_in_storage",
    "field_from_arrow",
    "is_bytes",
    "is_list",
    "is_text",
    "natural_storage_type",
    "storage_schema",
    "storage_type",
    "tensor_shape",
]

_NATURAL_STORAGE: dict[Any, pa.DataType] = {
    np.bool_: pa.bool_(),
    np.int8: pa.int8(),
    np.uint8: pa.int16(),
    np.int16: pa.int16(),
    np.uint16: pa.int32(),
    np.int32: pa.int32(),
    np.uint32: pa.int64(),
    np.int64: pa.int64(),
    np.uint64: pa.decimal128(20, 0),
    np.float16: pa.float32(),
    np.float32: pa.float32(),
    np.float64: pa.float64(),
    np.str_: pa.string(),
    np.bytes_: pa.binary(),
    Decimal: pa.decimal128(38, 18),
}


_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary,
)  # fmt: skip
_LISTS = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
    pa.types.is_large_list_view,
)  # fmt: skip


def is_text(stored: pa.DataType) -> bool:
    """Return whether a type is text, of any layout."""
    return any(test(stored) for test in _TEXT)


def is_bytes(stored: pa.DataType) -> bool:
    """Return whether a type is bytes, of any layout."""
    return any(test(stored) for test in _BYTES)


def is_list(stored: pa.DataType) -> bool:
    """Return whether a type is a list, of any layout, but not a map."""
    return any(test(stored) for test in _LISTS)


def natural_storage_type(field: UnischemaField) -> pa.DataType:
    """Return the Arrow type in which a field without a codec is stored.

    Dimensions become nested lists; decimals become `decimal(38, 18)`, Spark's default.

    Raises:
        SchemaError: No Arrow type matches the field, so it needs a codec.
    """
    if field.numpy_dtype in _NATURAL_STORAGE:
        stored = _NATURAL_STORAGE[field.numpy_dtype]
    elif field.dtype == np.dtype("datetime64[D]"):
        stored = pa.date32()
    elif field.dtype.kind == "M":
        # Spark's timestamps have microseconds; nanoseconds are kept only if the field declares them.
        stored = pa.timestamp("ns" if field.dtype == np.dtype("datetime64[ns]") else "us")
    elif field.dtype.kind == "m":
        stored = pa.int64()
    else:
        codec = "ArrowCodec(pa.struct({…}))" if field.numpy_dtype is np.object_ else "NdarrayCodec()"
        raise SchemaError(
            f"field {field.name!r} must have a dtype that Parquet can store, got {field.dtype_name}. Give the field a "
            f"codec, such as {codec}"
        )
    for _ in field.shape:
        stored = pa.list_(pa.field("element", stored, nullable=False))
    return stored


def storage_type(field: UnischemaField) -> pa.DataType:
    """Return the Arrow type in which a field is stored, with or without a codec."""
    return field.codec.storage_type(field) if field.codec is not None else natural_storage_type(field)


def storage_schema(fields: Iterable[UnischemaField]) -> pa.Schema:
    """Return the Arrow schema of data files with these fields.

    Fields that are not nullable are REQUIRED in Parquet.
    """
    return pa.schema([pa.field(field.name, storage_type(field), nullable=field.nullable) for field in fields])


def field_from_arrow(arrow_field: pa.Field) -> UnischemaField:
    """Return the `UnischemaField` for an Arrow field, such as a Parquet column.

    Numbers keep their dtype, including unsigned integers and float16. Strings become `str`, binary `bytes`, decimals
    `Decimal`. Dates and timestamps become `datetime64` of the stored unit; timestamps with a time zone are in UTC.
    Times of day and durations become `timedelta64` of the stored unit. Dictionary-encoded columns have the type of
    their values. A list adds a variable dimension; a fixed-size list or a tensor adds fixed dimensions, with the axes
    of a tensor in logical order. A list whose items may be null becomes a nullable field, because parts of its values
    may be missing. Structs become dicts, maps become lists of pairs, both of dtype `object`, and so do lists of them;
    times inside them are `datetime64` and `timedelta64`.

    Raises:
        SchemaError: The type is not supported (unions, run-end encoding, structs with two members of one name), or the
            column has no name.
    """
    dtype, shape = _dtype_and_shape(arrow_field.type, arrow_field.name)
    is_nullable = arrow_field.nullable or (bool(shape) and _has_nullable_items(arrow_field.type))
    return UnischemaField(arrow_field.name, dtype, shape, None, is_nullable)


def _has_nullable_items(arrow_type: pa.DataType) -> bool:
    """Return whether lists of a type may hold nulls, at any depth."""
    if not is_list(arrow_type):
        return False
    return bool(arrow_type.value_field.nullable) or _has_nullable_items(arrow_type.value_type)


def axes_in_storage(tensor: pa.FixedShapeTensorType) -> tuple[int, ...]:
    """Return the storage axis of each logical axis of a tensor.

    Example:
        >>> axes_in_storage(pa.fixed_shape_tensor(pa.uint8(), [3, 128, 64], permutation=[1, 2, 0]))
        (1, 2, 0)
        >>> axes_in_storage(pa.fixed_shape_tensor(pa.uint8(), [128, 64]))
        (0, 1)
    """
    return tuple(tensor.permutation or range(len(tensor.shape)))


def tensor_shape(tensor: pa.FixedShapeTensorType) -> tuple[int, ...]:
    """Return the logical shape of a tensor.

    Example:
        >>> tensor_shape(pa.fixed_shape_tensor(pa.uint8(), [3, 128, 64], permutation=[1, 2, 0]))
        (128, 64, 3)
    """
    return tuple(tensor.shape[axis] for axis in axes_in_storage(tensor))


def _dtype_and_shape(arrow_type: pa.DataType, name: str) -> tuple[Any, tuple[int | None, ...]]:
    types = pa.types
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        dtype, inner = _dtype_and_shape(arrow_type.value_type, name)
        return dtype, (*tensor_shape(arrow_type), *inner)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _dtype_and_shape(arrow_type.storage_type, name)
    if types.is_dictionary(arrow_type):
        return _dtype_and_shape(arrow_type.value_type, name)
    if is_list(arrow_type):
        dtype, inner = _dtype_and_shape(arrow_type.value_type, name)
        size = arrow_type.list_size if types.is_fixed_size_list(arrow_type) else None
        return (np.object_, ()) if dtype is np.object_ else (dtype, (size, *inner))
    if types.is_struct(arrow_type) or types.is_map(arrow_type) or types.is_null(arrow_type):
        _check_members(arrow_type, name)
        return np.object_, ()
    return _scalar_dtype(arrow_type, name), ()


def _check_members(arrow_type: pa.DataType, name: str) -> None:
    """Raise an error for structs that a dict cannot represent.

    Two members of such a struct share a name, or a name is not text.
    """
    members = [arrow_type.field(number) for number in range(arrow_type.num_fields)]
    try:
        names = [member.name for member in members]
    except UnicodeDecodeError as problem:
        raise SchemaError(
            f"column {name!r}: the names of a struct's members must be UTF-8 text, because they are keys of dicts "
            f"({problem}). Leave the column out"
        ) from None
    if pa.types.is_struct(arrow_type) and len(set(names)) < len(names):
        raise SchemaError(
            f"column {name!r}: members of a struct must have distinct names, because values are dicts, got "
            f"{', '.join(map(repr, names))}. Leave the column out"
        )
    for member in members:
        _check_members(member.type, name)


def _scalar_dtype(arrow_type: pa.DataType, name: str) -> Any:
    types = pa.types
    if types.is_boolean(arrow_type) or types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return NUMBER_DTYPES[arrow_type]
    if is_text(arrow_type):
        return np.str_
    if is_bytes(arrow_type):
        return np.bytes_
    if types.is_decimal(arrow_type):
        return Decimal
    if types.is_date(arrow_type):
        return np.dtype("datetime64[D]" if types.is_date32(arrow_type) else "datetime64[ms]")
    if types.is_timestamp(arrow_type):
        return np.dtype(f"datetime64[{arrow_type.unit}]")
    if types.is_time(arrow_type) or types.is_duration(arrow_type):
        return np.dtype(f"timedelta64[{arrow_type.unit}]")
    raise SchemaError(f"column {name!r} must have a supported Arrow type, got {arrow_type}. Leave the column out")
