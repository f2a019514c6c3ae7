"""Whether a file stores what a schema declares. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from petastore.errors import SchemaError
from petastore.schema.arrow import is_bytes, is_list, is_text, storage_type
from petastore.schema.unischema import Unischema

__all__ = ["check_stored_schema", "is_stored_as"]


def check_stored_schema(
    schema: Unischema, stored: pa.Schema, *, source: str, partition_names: Collection[str] = ()
) -> None:
    """Refuses files whose columns cannot be the fields of a schema.

    Args:
        schema: What was declared.
        stored: The Arrow schema of the files.
        source: Which file, or whose, for messages.
        partition_names: Columns that come from directory names and so are in no file.

    Raises:
        SchemaError: A field has no column, or a column is of a type that the field's codec does not store.
    """
    for field in schema:
        if field.name in partition_names:
            continue
        places = stored.get_all_field_indices(field.name)
        if len(places) != 1:
            found = "no such column" if not places else f"{len(places)} columns of that name"
            raise SchemaError(
                f"{source}: the schema {schema.name!r} has a field {field.name!r}, but the file has {found}; "
                f"its columns are {', '.join(map(repr, stored.names))}"
            )
        declared, found_type = storage_type(field), stored.field(places[0]).type
        if not is_stored_as(declared, found_type):
            raise SchemaError(
                f"{source}: the schema declares {field!r}, which is stored as {declared}, but column {field.name!r} of "
                f"the file is {found_type}; write the file again, or declare what it holds"
            )


def is_stored_as(declared: pa.DataType, found: pa.DataType) -> bool:
    """Whether a column of type `found` can hold the cells of a field that is stored as `declared`.

    Layouts (large, view, dictionary, fixed size), the width of numbers and the unit of times may differ: each value is
    checked against its field when it is decoded.

    Example:
        >>> is_stored_as(pa.binary(), pa.large_binary()), is_stored_as(pa.binary(), pa.string())
        (True, False)
    """
    return _kind(declared) == _kind(found)


def _kind(stored: pa.DataType) -> Any:
    types = pa.types
    if isinstance(stored, pa.BaseExtensionType):
        return _kind(stored.storage_type)
    if types.is_dictionary(stored):
        return _kind(stored.value_type)
    kinds = {
        "number": (types.is_integer, types.is_floating),
        "text": (is_text,),
        "bytes": (is_bytes,),
        "date": (types.is_date,),
        "timestamp": (types.is_timestamp,),
    }
    for kind, tests in kinds.items():
        if any(test(stored) for test in tests):
            return kind
    if types.is_decimal(stored):
        return "decimal", stored.scale
    if is_list(stored):
        return "list", _kind(stored.value_type)
    if types.is_map(stored):
        return "map", _kind(stored.key_type), _kind(stored.item_type)
    if types.is_struct(stored):
        return "struct", tuple((member.name, _kind(member.type)) for member in stored)
    return str(stored)
