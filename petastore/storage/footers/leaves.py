"""Leaf columns of each top-level column of a Parquet file; unreadable columns.

Parquet stores leaf columns: a list has one leaf or more, a struct one for each member. Leaves are stored in depth-first
order, so this module finds the leaves of a column by counting the leaves of each Arrow type. Dotted path names are not
unique: a column `a.b` and a struct `a` with a member `b` have the same path. Unreadable columns are detected, with
reasons, when the footer is read, so that all other columns can be read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from petastore.errors import MetadataError
from petastore.storage.footers.chunk_metadata import chunk_contents

__all__ = [
    "leaf_count",
    "leaf_paths",
    "leaves_by_column",
    "may_be_unreadable",
    "member_at",
    "members_of",
    "unreadable_columns",
    "with_distinct_names",
]

_MOST_TEXT_BYTES = 2**31
"""From this many bytes on, Arrow cannot read the nested text of a row group."""

_VALUE_OVERHEAD = 8
"""Maximum bytes of a value besides its text: its length and levels."""


def leaf_count(arrow_type: pa.DataType) -> int:
    """Return the number of Parquet leaf columns of a type.

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
    """Return the half-open range of leaves of each column with a unique name.

    Args:
        schema: The file's Arrow schema.
        num_leaves: Number of leaf columns in the footer.
        source: The file, for messages.

    Raises:
        MetadataError: The number of leaves does not match the schema.

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
        raise MetadataError(
            f"{source}: the footer is damaged: it has {num_leaves:,} leaf columns, but its Arrow schema needs {start:,}"
        )
    for name in doubled:
        del ranges[name]
    return ranges


def with_distinct_names(schema: pa.Schema) -> pa.Schema:
    """Return the schema with distinct names: a repeated name gets a number.

    Example:
        >>> with_distinct_names(pa.schema([(name, pa.int8()) for name in ("a", "a", "a_1", "a")])).names
        ['a', 'a_2', 'a_1', 'a_3']
    """
    if len(set(schema.names)) == len(schema.names):
        return schema
    taken, seen, names = set(schema.names), set[str](), []
    for name in schema.names:
        called, number = name, 0
        while called in seen or (number and called in taken):
            number += 1
            called = f"{name}_{number}"
        seen.add(called)
        names.append(called)
    return pa.schema([field.with_name(called) for field, called in zip(schema, names, strict=True)])


def members_of(schema: pa.Schema, leaves: Mapping[str, range]) -> dict[str, tuple[tuple[str, ...], range]]:
    """Return the path and the half-open range of leaves of each struct member.

    The keys are dotted names such as `geo.lat`. A top-level column takes precedence over a member of the same name;
    members inside lists and maps have no name.

    Args:
        schema: The file's Arrow schema.
        leaves: Half-open range of leaves of each readable top-level column.

    Example:
        >>> schema = pa.schema({"a": pa.struct({"b": pa.int8(), "c": pa.struct({"d": pa.int8()})}), "a.b": pa.int8()})
        >>> members_of(schema, {"a": range(2), "a.b": range(2, 3)})
        {'a.c': (('a', 'c'), range(1, 2)), 'a.c.d': (('a', 'c', 'd'), range(1, 2))}
    """
    taken, members = set(schema.names), dict[str, tuple[tuple[str, ...], range]]()
    for name, own in leaves.items():
        for path, inside in _members(schema.field(name).type, (name,), own.start):
            if ".".join(path) not in taken:
                members.setdefault(".".join(path), (path, inside))
    return members


def member_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.Field:
    """Return the field of a column, or of a struct member by its path.

    The field is nullable if a struct around the member is nullable.
    """
    found = schema.field(path[0])
    for name in path[1:]:
        member = found.type.field(name)
        found = member.with_nullable(member.nullable or found.nullable)
    return found


def _members(stored: pa.DataType, above: tuple[str, ...], start: int) -> Iterator[tuple[tuple[str, ...], range]]:
    if not pa.types.is_struct(stored):
        return
    for member in stored:
        stop = start + leaf_count(member.type)
        with contextlib.suppress(UnicodeDecodeError):  # a name that is not UTF-8
            yield (*above, member.name), range(start, stop)
            yield from _members(member.type, (*above, member.name), start)
        start = stop


def leaf_paths(schema: pa.Schema, paths: list[Any]) -> dict[str, list[str]]:
    """Return a dict from top-level column to the dotted paths of its leaves.

    `paths` are the paths of all leaves, in order.
    """
    ranges = leaves_by_column(schema, len(paths), source="the schema")
    return {name: [str(paths[leaf]) for leaf in leaves] for name, leaves in ranges.items()}


def may_be_unreadable(metadata: Any, encoded: bytes) -> bool:
    """Return whether a quick check finds that columns may be encrypted or too large.

    Args:
        metadata: The `pyarrow.parquet.FileMetaData`.
        encoded: The footer's bytes, without length and magic.
    """
    # A signed plaintext footer has extra bytes at its end: the file has encrypted columns.
    is_signed = metadata.serialized_size != len(encoded)
    groups = range(metadata.num_row_groups)
    return is_signed or any(metadata.row_group(group).total_byte_size >= _MOST_TEXT_BYTES for group in groups)


def unreadable_columns(
    schema: pa.Schema, leaves: dict[str, range], metadata: Any, encoded: bytes, *, source: str
) -> dict[str, str]:
    """Return a dict from unreadable column to the reason, as a complete sentence.

    Args:
        schema: The file's Arrow schema.
        leaves: Half-open range of leaves of each column with a unique name.
        metadata: The `pyarrow.parquet.FileMetaData`.
        encoded: The footer's bytes, without length and magic.
        source: The file, for messages.

    Raises:
        MetadataError: The bytes are not a footer.
    """
    reasons: dict[str, str] = {}
    if not may_be_unreadable(metadata, encoded):
        return reasons
    encrypted: set[int] = set()
    longest: dict[int, tuple[int, int]] = {}
    for number, chunks in enumerate(chunk_contents(encoded, range(metadata.num_columns), source=source)):
        for leaf, chunk in chunks.items():
            if not chunk.is_plain:
                encrypted.add(leaf)
            text_bytes = chunk.decoded_bytes - _VALUE_OVERHEAD * chunk.values
            longest[leaf] = max(longest.get(leaf, (0, 0)), (text_bytes, number))
    for field in schema:
        own = leaves.get(field.name, range(0))
        if encrypted.intersection(own):
            reasons[field.name] = f"column {field.name!r} of {source} is encrypted, which petastore cannot read"
            continue
        size, number = max((longest.get(leaf, (0, 0)) for leaf in own), default=(0, 0))
        if size >= _MOST_TEXT_BYTES and _has_text_inside(field.type):
            reasons[field.name] = (
                f"column {field.name!r} of {source} has some {size:,} bytes of text inside its values in row group "
                f"{number}, and Apache Arrow supports less than 2 GiB; write the file again with smaller row groups"
            )
    return reasons


def _has_text_inside(stored: pa.DataType) -> bool:
    return any(_has_text(stored.field(number).type) for number in range(stored.num_fields))


def _has_text(stored: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(stored) or types.is_binary(stored)
    return bool(is_text) or _has_text_inside(stored)
