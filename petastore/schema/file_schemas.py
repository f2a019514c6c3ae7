"""Compare or unify the Arrow schemas of a dataset's files. No I/O.

The schemas are compared with a declared schema, or unified if files differ ("schema evolution").
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pyarrow as pa

from petastore.errors import InvalidArgumentError, SchemaError
from petastore.lazy import once
from petastore.schema.arrow import field_from_arrow, is_bytes, is_list, is_text, storage_type
from petastore.schema.field import UnischemaField
from petastore.schema.unified_types import unified_field, unified_type
from petastore.schema.unischema import Unischema

if TYPE_CHECKING:
    from petastore.inventory import DataFile

__all__ = ["ColumnDifference", "FileSchemas", "SchemaOption", "StoredType", "check_stored_schema", "is_stored_as"]


def check_stored_schema(
    schema: Unischema, stored: pa.Schema, *, source: str, partition_names: Collection[str] = ()
) -> None:
    """Raise an error if the columns of files do not fit the fields of a schema.

    Args:
        schema: Declared schema.
        stored: The Arrow schema of the files.
        source: Name of the file or dataset, for messages.
        partition_names: Columns that come from directory names, and are not in files.

    Raises:
        SchemaError: A field has no column, or a column has a type that the field's codec does not store.
    """
    for field in schema:
        if field.name in partition_names:
            continue
        places = stored.get_all_field_indices(field.name)
        if len(places) != 1:
            found = "no such column" if not places else f"{len(places)} columns of that name"
            raise SchemaError(
                f"{source}: the file must have one column {field.name!r}, which the schema {schema.name!r} declares, "
                f"got {found}. The file's columns are {', '.join(map(repr, stored.names))}"
            )
        declared, found_type = storage_type(field), stored.field(places[0]).type
        if not is_stored_as(declared, found_type):
            raise SchemaError(
                f"{source}: column {field.name!r} must be {declared}, as {field!r} is stored, got {found_type}. "
                "Write the file again, or correct the schema"
            )


def is_stored_as(declared: pa.DataType, found: pa.DataType) -> bool:
    """Return whether a column of type `found` can hold cells stored as `declared`.

    Layouts (large, view, dictionary, fixed size), the width of numbers and the unit of times may differ, because each
    value is checked when it is decoded.

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


SchemaWord: TypeAlias = Literal["union", "common", "first"]
"""Columns to read from files that differ: the columns of any file, of all files, or of the first file."""

SchemaOption: TypeAlias = SchemaWord | Unischema
"""Value of the parameter `schema` of readers."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredType:
    """Type of a column in some files."""

    type: str | None
    """Arrow type; None if the files lack the column."""

    files: int
    """Number of files that store the column as this type, or that lack it."""

    example: str
    """Path of the first file that stores the column as this type, or that lacks it."""

    def __str__(self) -> str:
        return f"{self.type or 'missing'} in {self.files:,} file{'s' * (self.files != 1)} such as {self.example}"


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnDifference:
    """Column that some files do not have, or store as another type."""

    name: str
    stored: tuple[StoredType, ...]
    """Types of the column, in the order of the first files that store them."""

    def __str__(self) -> str:
        shown = list(map(str, self.stored[:_SHOWN]))
        if len(self.stored) > _SHOWN:
            shown.append(f"{len(self.stored) - _SHOWN:,} other types")
        return " and ".join([*filter(None, [", ".join(shown[:-1])]), shown[-1]])


_SHOWN = 4


@dataclasses.dataclass(frozen=True, slots=True)
class UnifiedSchema:
    """Columns and types with which all files of a dataset are read."""

    arrow: pa.Schema
    """Arrow schema of each row group, after the cast."""

    conflicts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Reason for each column whose types do not unify."""


@dataclasses.dataclass(frozen=True)
class FileSchemas:
    """Arrow schemas of a dataset's files.

    Example:
        >>> one, other = pa.schema({"id": pa.int32()}), pa.schema({"id": pa.int64(), "word": pa.string()})
        >>> schemas = FileSchemas.of([("a.parquet", one), ("b.parquet", other)])
        >>> schemas.unified("union").arrow.types, schemas.unified("common").arrow.names
        ([DataType(int64), DataType(string)], ['id'])
        >>> for difference in schemas.differences():
        ...     print(difference.name, "is", difference)
        id is int32 in 1 file such as a.parquet and int64 in 1 file such as b.parquet
        word is missing in 1 file such as a.parquet and string in 1 file such as b.parquet
    """

    schemas: tuple[pa.Schema, ...]
    """Each different schema, in the order of the files."""

    of_files: tuple[int, ...]
    """Index in `schemas` of each file's schema, in the order of `paths`."""

    paths: tuple[str, ...]
    """Path of each file."""

    @classmethod
    def of(cls, files: Iterable[tuple[str, pa.Schema]], *, without: Collection[str] = ()) -> FileSchemas:
        """Return the schemas of files.

        Args:
            files: Path and schema of each file, in order.
            without: Columns to omit.
        """
        paths, of_files = [], []
        schemas: list[pa.Schema] = []
        # The footer parser returns the same schema object for files with the same columns, so few are serialized.
        by_object: dict[int, tuple[pa.Schema, int]] = {}
        by_bytes: dict[bytes, int] = {}
        for path, schema in files:
            if id(schema) not in by_object:
                number = by_bytes.setdefault(schema.serialize().to_pybytes(), len(schemas))
                if number == len(schemas):
                    schemas.append(pa.schema([field for field in schema if field.name not in without]))
                by_object[id(schema)] = schema, number
            paths.append(path)
            of_files.append(by_object[id(schema)][1])
        if not schemas:
            raise SchemaError("a dataset must have at least one file to have a schema, got none")
        return cls(tuple(schemas), tuple(of_files), tuple(paths))

    @property
    def are_equal(self) -> bool:
        """Whether all files store the same columns as the same types.

        The order of the columns may differ.
        """
        first = self.schemas[0]
        by_name = {field.name: field for field in first}
        return all(
            len(other) == len(first) and all(field.name in by_name and by_name[field.name] == field for field in other)
            for other in self.schemas[1:]
        )

    @property
    def missing_somewhere(self) -> frozenset[str]:
        """Columns that at least one file does not have."""
        everywhere = set.intersection(*(set(schema.names) for schema in self.schemas))
        return frozenset(name for schema in self.schemas for name in schema.names if name not in everywhere)

    def without(self, names: Collection[str]) -> FileSchemas:
        """Return the schemas without some columns."""
        if not names:
            return self
        schemas = [pa.schema([field for field in schema if field.name not in names]) for schema in self.schemas]
        return dataclasses.replace(self, schemas=tuple(schemas))

    def left_out(self, columns: SchemaWord) -> frozenset[str]:
        """Return the columns that are stored in some files, but are not read.

        Args:
            columns: With `"union"`, all columns are read. With `"common"`, columns that at least one file lacks are not
                read; with `"first"`, columns that the first file lacks.

        Raises:
            InvalidArgumentError: `columns` is not a value of the parameter `schema`.
        """
        _check_word(columns)
        if columns == "first":
            return self.missing_somewhere.difference(self.schemas[0].names)
        return self.missing_somewhere if columns == "common" else frozenset()

    def unified(self, columns: SchemaOption = "union", *, keys: Collection[str] = ()) -> UnifiedSchema:
        """Return the schema with which all files are read.

        Args:
            columns: `"union"`: the columns of all files; `"common"`: columns that all files have; `"first"`: columns
                and types of the first file; a `Unischema`: its fields.
            keys: Partition keys, which files need not store.

        Raises:
            InvalidArgumentError: `columns` has another value.
            SchemaError: A field of a given Unischema cannot be read from the files.
        """
        if isinstance(columns, Unischema):
            return UnifiedSchema(pa.schema(self._declared_fields(columns, keys)))
        left_out = self.left_out(columns)
        if self.are_equal:
            return UnifiedSchema(self.schemas[0])
        fields, conflicts = [], {}
        for name in dict.fromkeys(name for schema in self.schemas for name in schema.names):
            if name in left_out:
                continue
            field = self._first_field(name) if columns == "first" else self._unified_field(name)
            if field is None:
                conflicts[name] = self._conflict(name)
            else:
                fields.append(field)
        return UnifiedSchema(pa.schema(fields), conflicts)

    def differences(self) -> tuple[ColumnDifference, ...]:
        """Return the columns that some files do not have, or store as another type."""
        if self.are_equal:
            return ()
        names = dict.fromkeys(name for schema in self.schemas for name in schema.names)
        found = (self._difference(name) for name in names)
        return tuple(difference for difference in found if len(difference.stored) > 1)

    def check_declared(self, schema: Unischema, *, keys: Collection[str] = ()) -> None:
        """Raise an error if a field that is not nullable is missing in some files.

        Raises:
            SchemaError: A field is missing; the message has the number of files.
        """
        for name in self.missing_somewhere:
            if name in schema and name not in keys and not schema[name].nullable:
                raise SchemaError(
                    f"field {name!r} must be nullable or stored in every file, got {self._difference(name)}. Declare "
                    "it nullable=True, or write the column to these files"
                )

    def check_key_directories(self, files: Sequence[DataFile]) -> frozenset[str]:
        """Return the partition keys that some files store, and other files have only in their directory names.

        Args:
            files: The files, in order.

        Raises:
            SchemaError: A file stores one of these keys, and is in no directory `key=value`.
        """
        keys = self.missing_somewhere.intersection(key for file in files for key, _ in file.partitions)
        for key in sorted(keys):
            stores_key = [key in schema.names for schema in self.schemas]
            for file, number in zip(files, self.of_files, strict=True):
                if stores_key[number] and key not in dict(file.partitions):
                    raise SchemaError(
                        f"{file.path} must be in a directory {key}=VALUE, because other files have the partition key "
                        f"{key!r} only in their directory names, got a file that stores {key!r} outside of such a "
                        "directory. Move the file into the directory of its value, or write it again without the column"
                    )
        return keys

    def _fields(self, name: str) -> list[pa.Field]:
        places = ((schema, schema.get_field_index(name)) for schema in self.schemas)
        return [schema.field(place) for schema, place in places if place >= 0]

    def _unified_field(self, name: str) -> pa.Field | None:
        same = self._fields(name)
        field = unified_field(same)
        return field if field is None or len(same) == len(self.schemas) else field.with_nullable(True)

    def _first_field(self, name: str) -> pa.Field | None:
        first, *others = self._fields(name)
        if not all(_can_become(field.type, first.type) for field in others):
            return None
        is_nullable = any(field.nullable for field in others) or 1 + len(others) < len(self.schemas)
        return first.with_nullable(first.nullable or is_nullable)

    def _declared_fields(self, schema: Unischema, keys: Collection[str]) -> list[pa.Field]:
        self.check_declared(schema, keys=keys)
        return [self._declared_field(field) for field in schema if field.name not in keys or self._fields(field.name)]

    def _declared_field(self, field: UnischemaField) -> pa.Field:
        same, declared = self._fields(field.name), storage_type(field)
        types = [stored.type for stored in same if not pa.types.is_null(stored.type)]
        if not same and not field.nullable:
            raise SchemaError(
                f"field {field.name!r} must be nullable or stored in the files, got columns "
                f"{', '.join(map(repr, self.schemas[0].names))}. Declare it nullable=True, or leave it out"
            )
        unified = unified_type(types) if types else None
        is_inferred = unified is not None and _is_inferred(field, unified)
        if not is_inferred and not all(_can_become(stored, declared) for stored in types):
            raise SchemaError(
                f"field {field.name!r} must be stored as {declared}, like {field!r}, got {self._difference(field.name)}"
                ". Declare it as it is stored, or leave it out"
            )
        # The codec checks each value, so only types that cannot be unified need a cast to the declared type.
        is_kept = is_inferred or (unified is not None and is_stored_as(declared, unified))
        wanted = unified if is_kept else declared
        return pa.field(field.name, wanted, nullable=field.nullable or any(stored.nullable for stored in same))

    def _conflict(self, name: str) -> str:
        types = list(dict.fromkeys(field.type for field in self._fields(name)))
        # If any declared type can hold all values, the type in one of the files can, too.
        is_declarable = any(all(_can_become(stored, wanted) for stored in types) for wanted in types)
        declare = " declare its type with schema=Unischema(…)," if is_declarable else ""
        return (
            f"column {name!r} must have types that unify exactly, got {self._difference(name)}. Leave it out with "
            f"schema_fields,{declare} or write these files again"
        )

    def _difference(self, name: str) -> ColumnDifference:
        types: list[tuple[pa.DataType | None, list[int]]] = []
        for number, schema in enumerate(self.schemas):
            place = schema.get_field_index(name)
            stored = schema.field(place).type if place >= 0 else None
            same = next((numbers for known, numbers in types if known == stored), None)
            if same is None:
                types.append((stored, [number]))
            else:
                same.append(number)
        return ColumnDifference(name, tuple(self._stored_type(stored, numbers) for stored, numbers in types))

    def _stored_type(self, stored: pa.DataType | None, numbers: Sequence[int]) -> StoredType:
        kind = None if stored is None else str(stored)
        return StoredType(kind, sum(self._counts[number] for number in numbers), self._examples[numbers[0]])

    @once
    def _counts(self) -> collections.Counter[int]:
        return collections.Counter(self.of_files)

    @once
    def _examples(self) -> dict[int, str]:
        return dict(zip(reversed(self.of_files), reversed(self.paths), strict=True))


def _check_word(word: object) -> None:
    if word not in get_args(SchemaWord):
        raise InvalidArgumentError(
            f"schema must be 'union', 'common', 'first' or a Unischema, got {word!r:.80}. Set one of these"
        )


def _is_inferred(field: UnischemaField, unified: pa.DataType) -> bool:
    """Return whether a field has the dtype and shape that are inferred from a type.

    Args:
        field: The field; an `ArrowCodec` is compared by its Arrow type.
        unified: Unified type of the column in the files.
    """
    if field.codec is not None:
        values = getattr(field.codec, "arrow_type", None)
        return values is not None and is_stored_as(values, unified)
    try:
        inferred = field_from_arrow(pa.field(field.name, unified))
    except SchemaError:
        return False
    return (inferred.numpy_dtype, inferred.shape) == (field.numpy_dtype, field.shape)


def _can_become(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of one type can be cast to another.

    They can if both types have the same kind of value; the cast then checks each value.
    """
    return pa.types.is_null(stored) or is_stored_as(wanted, stored) or unified_type([stored, wanted]) is not None
