"""Which leaf columns of a Parquet file make up each of its top-level columns. Pure.

Parquet stores leaves; a struct or a list has several or one below it. Leaves are in depth-first order, so counting them
by Arrow type is exact where dotted path names are not: a column `a.b` and a struct `a` with a member `b` have the same
path.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from petastore.errors import MetadataError

__all__ = ["leaf_count", "leaves_by_column"]


def leaf_count(arrow_type: pa.DataType) -> int:
    """How many Parquet leaf columns hold a column of that type.

    Example:
        >>> leaf_count(pa.struct({"x": pa.int32(), "tags": pa.list_(pa.string())})), leaf_count(pa.int8())
        (2, 1)
        >>> leaf_count(pa.map_(pa.string(), pa.int64()))
        2
    """
    if isinstance(arrow_type, pa.BaseExtensionType):
        return leaf_count(arrow_type.storage_type)
    if pa.types.is_dictionary(arrow_type):
        return leaf_count(arrow_type.value_type)
    return sum(leaf_count(arrow_type.field(i).type) for i in range(arrow_type.num_fields)) or 1


def leaves_by_column(schema: pa.Schema, num_leaves: int, *, source: str) -> dict[str, range]:
    """Of each top-level column that has a name of its own: the half-open range of its leaves.

    Args:
        schema: The file's Arrow schema.
        num_leaves: Leaf columns that the footer has.
        source: The file, for messages.

    Raises:
        MetadataError: The leaves do not add up.

    Example:
        >>> schema = pa.schema({"a": pa.struct({"b": pa.int8(), "c": pa.int8()}), "a.b": pa.int8()})
        >>> leaves_by_column(schema, 3, source="x.parquet")
        {'a': range(0, 2), 'a.b': range(2, 3)}
    """
    ranges: dict[str, range] = {}
    doubled: set[str] = set()
    start = 0
    for field in schema:
        stop = start + leaf_count(field.type)
        if field.name in ranges:
            doubled.add(field.name)
        ranges[field.name] = range(start, stop)
        start = stop
    if start != num_leaves:
        raise MetadataError(f"{source}: the footer has {num_leaves:,} leaf columns, but its schema needs {start:,}")
    for name in doubled:
        del ranges[name]
    return ranges


def leaf_paths(schema: pa.Schema, paths: list[Any]) -> dict[str, list[str]]:
    """Of each top-level column: the dotted paths of its leaves, given all of them in order."""
    ranges = leaves_by_column(schema, len(paths), source="the schema")
    return {name: [str(paths[leaf]) for leaf in leaves] for name, leaves in ranges.items()}
