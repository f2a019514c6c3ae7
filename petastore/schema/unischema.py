"""Unischema: ordered fields under a name, and rows as named tuples."""

from __future__ import annotations

import collections
import functools
import hashlib
import keyword
import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from petastore.errors import MissingExtraError, SchemaError
from petastore.lazy import once
from petastore.schema.document import dump_document
from petastore.schema.field import UnischemaField
from petastore.schema.select import member_field, select_fields

__all__ = ["Row", "Unischema", "row_type"]


class Row(tuple[Any, ...]):
    """One row: a named tuple whose fields may have any name.

    `row["a-b"]` works for every name, also if the name is not an identifier and therefore not an attribute. `_asdict()`
    and `_column_names` have the original names. Rows can be pickled.
    """

    __slots__ = ()
    _column_names: tuple[str, ...] = ()
    _type_name: str = "Row"

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return tuple.__getitem__(self, self._column_names.index(key))
            except ValueError:
                raise KeyError(
                    f"{key!r} is not a column of this row, which has {', '.join(map(repr, self._column_names))}"
                ) from None
        return tuple.__getitem__(self, key)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the fields depend on the dataset

    def _asdict(self) -> dict[str, Any]:
        """Return the row as a new dict from column name to value."""
        return dict(zip(self._column_names, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._type_name, self._column_names, tuple(self))


@functools.lru_cache(maxsize=256)
def row_type(type_name: str, column_names: tuple[str, ...]) -> type[Any]:
    """Return the named tuple type for these columns.

    Equal arguments give the same type.

    Example:
        >>> row = row_type("user", ("id", "a-b"))(7, 8)
        >>> row.id, row["a-b"], row._asdict()
        (7, 8, {'id': 7, 'a-b': 8})
        >>> row
        user(id=7, _1=8)
    """
    fields = collections.namedtuple(type_name, column_names, rename=True)  # type: ignore[misc]  # noqa: PYI024 - typing.NamedTuple cannot rename
    members = {"__slots__": (), "_column_names": column_names, "_type_name": type_name}
    # `Row` comes first, so that its `__getitem__`, `_asdict` and `__reduce__` override those of the named tuple.
    return type(type_name, (Row, fields), members)


def _rebuild(type_name: str, column_names: tuple[str, ...], values: Iterable[Any]) -> Any:
    return row_type(type_name, column_names)._make(values)


class Unischema:
    """A dataset schema: ordered fields with dtype, shape, nullability and codec.

    Immutable and hashable: schemas with equal names and fields are equal. Each field is also an attribute
    (`schema.image`), unless its name is not an identifier or is an attribute of this class; `schema["image"]` always
    works.

    Args:
        name: Name of the schema; also the name of the named tuple type of rows.
        fields: The fields, in the order of columns in rows and files.

    Raises:
        SchemaError: Two fields share a name, or an item is not a field.

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
    """Name of the schema; also the type name of rows."""

    fields: Mapping[str, UnischemaField]
    """Fields by name, in order; a read-only mapping."""

    def __init__(self, name: str, fields: Iterable[UnischemaField]) -> None:
        by_name: dict[str, UnischemaField] = {}
        for field in fields:
            if not isinstance(field, UnischemaField):
                raise SchemaError(f"fields must be UnischemaField objects, got {field!r}")
            if field.name in by_name:
                raise SchemaError(f"fields must have distinct names, got {field.name!r} twice in schema {name!r}")
            by_name[field.name] = field
        object.__setattr__(self, "name", str(name))
        object.__setattr__(self, "fields", MappingProxyType(by_name))

    @once
    def fingerprint(self) -> str:
        """Fingerprint of the schema document: 32 hexadecimal digits.

        It is the same on every machine and in every release. Two equal schemas have different fingerprints if only one
        of them declares a `ScalarCodec` that the dtype implies.

        Example:
            >>> Unischema("one", [UnischemaField("id", "int32")]).fingerprint
            '3d9a41e34a316f079fa7b5fa36fa24a5'
        """
        return hashlib.sha256(dump_document(self.name, self).encode()).hexdigest()[:32]

    def create_schema_view(self, fields: Iterable[str | UnischemaField]) -> Unischema:
        """Return a schema with some of the fields, named `<name>_view`.

        The fields are in this schema's order.

        Args:
            fields: Names, regular expressions over whole names, or fields of this schema. An empty list gives an empty
                schema.

        Raises:
            InvalidArgumentError: A name or expression matches no field.
        """
        if isinstance(fields, (list, tuple)) and not fields:
            return Unischema(f"{self.name}_view", ())
        return Unischema(f"{self.name}_view", select_fields(self, fields, among=f"schema {self.name!r}"))

    def as_spark_schema(self) -> Any:
        """Return the schema as a `pyspark.sql.types.StructType` of the stored columns.

        Raises:
            MissingExtraError: pyspark is not installed.
            SchemaError: A field needs a codec, or Spark has no type for it.
        """
        from petastore.schema.arrow import storage_schema
        from petastore.schema.spark_json import spark_schema_json

        try:
            from pyspark.sql.types import StructType
        except ImportError:
            raise MissingExtraError("as_spark_schema", package="pyspark", extra="spark") from None
        return StructType.fromJson(spark_schema_json(storage_schema(self)))

    def make_namedtuple(self, **values: Any) -> Any:
        """Return one row of this schema as a named tuple.

        Args:
            **values: One value for each field; a nullable field that is left out is None.

        Raises:
            SchemaError: A field that is not nullable is missing, or a name is not a field.

        Example:
            >>> Unischema("user", [UnischemaField("id", "int64")]).make_namedtuple(id=7)
            user(id=7)
        """
        unknown = sorted(set(values) - set(self.fields))
        missing = [field.name for field in self if field.name not in values and not field.nullable]
        if unknown or missing:
            raise SchemaError(
                f"a row of schema {self.name!r} must have exactly its fields: {missing} missing, {unknown} unknown"
            )
        return self.row_type._make(values.get(name) for name in self.fields)

    @property
    def row_type(self) -> Any:
        """The named tuple class of rows; see `petastore.schema.unischema.row_type`."""
        named = self.name.isidentifier() and not keyword.iskeyword(self.name)
        type_name = self.name if named else "Row"
        return row_type(type_name, tuple(self.fields))

    @classmethod
    def from_arrow_schema(cls, arrow: Any, omit_unsupported_fields: bool = True) -> Unischema:
        """Infer a schema from an Arrow schema, such as of plain Parquet.

        See `petastore.schema.arrow.field_from_arrow`.

        Args:
            arrow: A `pyarrow.Schema`, or an object with a `schema`, such as a `pyarrow.dataset.Dataset`.
            omit_unsupported_fields: Whether to skip columns of unsupported types, with a warning; False raises.

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
                warnings.warn(f"{problem}. petastore skips the column", UserWarning, stacklevel=2)
        return cls("inferred_schema", fields)

    def __iter__(self) -> Iterator[UnischemaField]:
        return iter(self.fields.values())

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    def __getitem__(self, name: str) -> UnischemaField:
        field = self.fields.get(name) or member_field(self.fields, name)
        if field is None:
            raise KeyError(name)
        return field

    def __getattr__(self, name: str) -> UnischemaField:
        fields: Mapping[str, UnischemaField] = object.__getattribute__(self, "fields")
        if name in fields:
            return fields[name]
        raise AttributeError(
            f"schema {self.name!r} has no field {name!r}. Its fields are {', '.join(map(repr, fields))}"
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Unischema is immutable, so {name!r} cannot be set. Make another Unischema instead")

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
