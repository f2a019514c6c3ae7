"""A schema: ordered fields under a name."""

from __future__ import annotations

import hashlib
import keyword
import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from petastore.errors import MissingExtraError, SchemaError
from petastore.once import once
from petastore.schema.document import dump_document
from petastore.schema.field import UnischemaField
from petastore.schema.row import row_type
from petastore.schema.select import select_fields

__all__ = ["Unischema"]


class Unischema:
    """What a row is: ordered fields with dtype, shape, nullability and codec.

    Frozen: equal names and equal fields in equal order make equal schemas with equal hashes and fingerprints. Each
    field is also an attribute (`schema.image`), unless its name is no identifier or is taken; `schema["image"]` always
    works.

    Args:
        name: A name for people; it becomes the type name of rows.
        fields: The fields, in the order that rows and files will have.

    Raises:
        SchemaError: Two fields share a name, or something else than a field was given.

    Example:
        >>> schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("age", "uint8", nullable=True)])
        >>> schema
        Unischema('user', [
          UnischemaField('id', int64),
          UnischemaField('age', uint8, nullable=True),
        ])
        >>> schema.age.nullable, list(schema.fields), len(schema)
        (True, ['id', 'age'], 2)
        >>> schema.create_schema_view(["a.*"])
        Unischema('user_view', [
          UnischemaField('age', uint8, nullable=True),
        ])
    """

    __slots__ = ("__dict__", "fields", "name")

    name: str
    """The schema's name, for people and for the type name of rows."""

    fields: Mapping[str, UnischemaField]
    """Field name to field, in order; read-only."""

    def __init__(self, name: str, fields: Iterable[UnischemaField]) -> None:
        by_name: dict[str, UnischemaField] = {}
        for field in fields:
            if not isinstance(field, UnischemaField):
                raise SchemaError(f"a Unischema is made of UnischemaField, but {field!r} was given")
            if field.name in by_name:
                raise SchemaError(f"schema {name!r} has two fields {field.name!r}; names must differ")
            by_name[field.name] = field
        object.__setattr__(self, "name", str(name))
        object.__setattr__(self, "fields", MappingProxyType(by_name))

    @once
    def fingerprint(self) -> str:
        """32 hexadecimal digits that equal schemas share, on every machine and release.

        Example:
            >>> Unischema("one", [UnischemaField("id", "int32")]).fingerprint
            '3d9a41e34a316f079fa7b5fa36fa24a5'
        """
        return hashlib.sha256(dump_document(self.name, self).encode()).hexdigest()[:32]

    def create_schema_view(self, fields: Iterable[str | UnischemaField]) -> Unischema:
        """The schema of some of the columns, in this schema's order, named `<name>_view`.

        Args:
            fields: Names, regular expressions over whole names, or fields of this schema. An empty list
                gives a schema of no fields.

        Raises:
            InvalidArgumentError: Something that was asked for matches no field.
        """
        if isinstance(fields, (list, tuple)) and not fields:
            return Unischema(f"{self.name}_view", ())
        return Unischema(f"{self.name}_view", select_fields(self, fields, among=f"schema {self.name!r}"))

    def as_spark_schema(self) -> Any:
        """The `pyspark.sql.types.StructType` of the stored columns.

        Raises:
            MissingExtraError: pyspark is not installed.
            SchemaError: A field has no codec and no Parquet type of its own, or Spark lacks its type.
        """
        from petastore.schema.arrow import storage_schema
        from petastore.schema.spark_json import spark_schema_json

        try:
            from pyspark.sql.types import StructType
        except ImportError:
            raise MissingExtraError("as_spark_schema", package="pyspark", extra="spark") from None
        return StructType.fromJson(spark_schema_json(storage_schema(self)))

    def make_namedtuple(self, **values: Any) -> Any:
        """One row of this schema.

        Args:
            **values: One value for each field; a nullable field that is left out is None.

        Raises:
            SchemaError: A field that is not nullable is missing, or there is no field of a given name.

        Example:
            >>> Unischema("user", [UnischemaField("id", "int64")]).make_namedtuple(id=7)
            user(id=7)
        """
        unknown = sorted(set(values) - set(self.fields))
        missing = [field.name for field in self if field.name not in values and not field.nullable]
        if unknown or missing:
            raise SchemaError(f"a row of schema {self.name!r} lacks {missing} and does not know {unknown}")
        return self.row_type._make(values.get(name) for name in self.fields)

    @property
    def row_type(self) -> Any:
        """The named tuple type of rows; see `petastore.schema.row.row_type`."""
        named = self.name.isidentifier() and not keyword.iskeyword(self.name)
        type_name = self.name if named else "Row"
        return row_type(type_name, tuple(self.fields))

    @classmethod
    def from_arrow_schema(cls, arrow: Any, omit_unsupported_fields: bool = True) -> Unischema:
        """The schema of plain Parquet; `petastore.schema.arrow.field_from_arrow` says what each type becomes.

        Args:
            arrow: A `pyarrow.Schema`, or anything with a `schema` that is one, such as a `pyarrow.dataset.Dataset`.
            omit_unsupported_fields: Leave out columns that no value of ours can hold, with a warning that names them;
                False refuses them.

        Raises:
            SchemaError: A column is of an unsupported type and `omit_unsupported_fields` is False.

        Example:
            >>> import pyarrow as pa
            >>> Unischema.from_arrow_schema(pa.schema({"id": pa.uint16(), "xy": pa.list_(pa.float32(), 2)}))
            Unischema('inferred_schema', [
              UnischemaField('id', uint16, nullable=True),
              UnischemaField('xy', float32, (2,), nullable=True),
            ])
        """
        from petastore.schema.arrow import field_from_arrow

        fields = []
        for arrow_field in getattr(arrow, "schema", arrow):
            try:
                fields.append(field_from_arrow(arrow_field))
            except SchemaError as problem:
                if not omit_unsupported_fields:
                    raise
                warnings.warn(f"{problem}; the column is left out", UserWarning, stacklevel=2)
        return cls("inferred_schema", fields)

    def __iter__(self) -> Iterator[UnischemaField]:
        return iter(self.fields.values())

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    def __getitem__(self, name: str) -> UnischemaField:
        return self.fields[name]

    def __getattr__(self, name: str) -> UnischemaField:
        fields: Mapping[str, UnischemaField] = object.__getattribute__(self, "fields")
        if name in fields:
            return fields[name]
        raise AttributeError(f"schema {self.name!r} has no field {name!r}; it has {', '.join(map(repr, fields))}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Unischema is frozen; {name!r} cannot be set. Make another Unischema instead")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Unischema):
            return NotImplemented
        return self.name == other.name and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.name, tuple(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Unischema, (self.name, list(self))

    def __repr__(self) -> str:
        lines = "".join(f"  {field!r},\n" for field in self)
        return f"Unischema({self.name!r}, [\n{lines}])"

    def _repr_html_(self) -> str:
        from petastore.notebook import html_table

        rows = ([field.name, field.dtype_name, field.shape, field.codec or "", field.nullable] for field in self)
        header = ["field", "dtype", "shape", "codec", "nullable"]
        return html_table(f"Unischema {self.name}", header, rows, count=len(self))
