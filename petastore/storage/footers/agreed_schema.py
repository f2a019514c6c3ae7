"""The one Arrow schema that the files of a dataset share. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pyarrow as pa

from petastore.errors import SchemaError
from petastore.storage.footers.footers import Footer

__all__ = ["agreed_arrow_schema"]


def agreed_arrow_schema(footers: Sequence[Footer]) -> pa.Schema:
    """The one schema that all files share; a column is nullable where it is so in some file.

    Columns may stand in another order in other files; the first file's order is kept. A column that cannot be read in
    one of them is left out.

    Raises:
        SchemaError: A file lacks a column, has one more, or stores it as another type; both files are named.
    """
    if not footers:
        raise SchemaError("there are no files, so there is no schema")
    first = footers[0]
    hidden = {name for footer in footers for name in footer.unreadable}
    fields = {field.name: field for field in first.arrow_schema if field.name not in hidden}
    seen = [first.arrow_schema]
    for last, footer in itertools.pairwise(footers):
        if footer.columns is last.columns or any(footer.arrow_schema.equals(known) for known in seen):
            continue
        seen.append(footer.arrow_schema)
        theirs = {field.name: field for field in footer.arrow_schema if field.name not in hidden}
        _check_same_columns(first, fields, footer, theirs)
        for name, field in fields.items():
            fields[name] = _agreed_field(field, theirs[name], first, footer)
    return pa.schema(list(fields.values()))


def _check_same_columns(
    first: Footer, fields: Mapping[str, pa.Field], other: Footer, theirs: Mapping[str, pa.Field]
) -> None:
    for name in fields.keys() ^ theirs.keys():
        has, lacks = (first, other) if name in fields else (other, first)
        raise SchemaError(
            f"{has.file.path} has a column {name!r}, but {lacks.file.path} lacks it; files of one dataset need the "
            "same columns. Write the file again, or open the files that agree"
        )


def _agreed_field(ours: pa.Field, theirs: pa.Field, first: Footer, other: Footer) -> pa.Field:
    merged = _agreed_type(ours.type, theirs.type)
    if merged is None:
        raise SchemaError(
            f"column {ours.name!r} is {ours.type} in {first.file.path}, but {theirs.type} in {other.file.path}; files "
            "of one dataset need the same types. Write one of them again"
        )
    return pa.field(ours.name, merged, nullable=ours.nullable or theirs.nullable)


def _agreed_type(ours: pa.DataType, theirs: pa.DataType) -> pa.DataType | None:
    """The type with the nullability of both, or None where they differ in more."""
    if ours == theirs:
        return ours
    if ours.id != theirs.id or ours.num_fields != theirs.num_fields or not ours.num_fields:
        return None
    members = []
    for mine, other in zip(_members(ours), _members(theirs), strict=True):
        merged = _agreed_type(mine.type, other.type)
        if merged is None or (pa.types.is_struct(ours) and mine.name != other.name):
            return None
        members.append(pa.field(mine.name, merged, nullable=mine.nullable or other.nullable))
    if pa.types.is_struct(ours):
        return pa.struct(members)
    if pa.types.is_list(ours):
        return pa.list_(members[0])
    if pa.types.is_large_list(ours):
        return pa.large_list(members[0])
    if pa.types.is_fixed_size_list(ours) and ours.list_size == theirs.list_size:
        return pa.list_(members[0], ours.list_size)
    return pa.map_(members[0], members[1]) if pa.types.is_map(ours) else None


def _members(arrow_type: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(arrow_type):
        return [arrow_type.key_field, arrow_type.item_field]
    return [arrow_type.field(number) for number in range(arrow_type.num_fields)]
