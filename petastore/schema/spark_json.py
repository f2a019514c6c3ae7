"""Storage types in Spark's JSON form, from which pyspark makes a schema. No I/O."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from petastore.errors import SchemaError

__all__ = ["spark_schema_json"]

_SCALARS: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


def spark_schema_json(schema: pa.Schema) -> dict[str, Any]:
    """Return an Arrow schema as the argument of pyspark's `StructType.fromJson`.

    Raises:
        SchemaError: Spark has no type for a column.
    """
    fields = [
        {"name": field.name, "type": _type_json(field.type, field.name), "nullable": field.nullable, "metadata": {}}
        for field in schema
    ]
    return {"type": "struct", "fields": fields}


def _type_json(stored: pa.DataType, name: str) -> str | dict[str, Any]:
    if stored in _SCALARS:
        return _SCALARS[stored]
    if pa.types.is_decimal(stored):
        return f"decimal({stored.precision},{stored.scale})"
    if pa.types.is_timestamp(stored):
        return "timestamp" if stored.tz is not None else "timestamp_ntz"
    if pa.types.is_list(stored):
        element = stored.value_field
        return {"type": "array", "elementType": _type_json(element.type, name), "containsNull": element.nullable}
    if pa.types.is_map(stored):
        parts = {"keyType": _type_json(stored.key_type, name), "valueType": _type_json(stored.item_type, name)}
        return {"type": "map", **parts, "valueContainsNull": True}
    if pa.types.is_struct(stored):
        return spark_schema_json(pa.schema(list(stored)))
    raise SchemaError(
        f"field {name!r} must have a type that Spark can store, got {stored}. Declare another dtype or a codec"
    )
