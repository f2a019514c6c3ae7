"""ArrowCodec: Python objects stored as a nested Arrow type: structs, maps, lists with missing values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import conformed
from petastore.codecs.arrow.arrow_objects import decode_objects, encode_objects
from petastore.codecs.arrow.arrow_types import in_utc, parse_type, plain_type, stored_layout, type_as_json
from petastore.codecs.registry import register
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.arrow import field_from_arrow
from petastore.schema.field import JsonValue, UnischemaField

__all__ = ["ArrowCodec", "with_arrow_type"]


@register
@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ArrowCodec:
    """A codec for dicts, maps and nested lists, stored as the matching Arrow type (struct, map, list).

    For fields of dtype `object`, including lists that contain None or have unequal lengths. Structs are decoded to
    dicts, maps to lists of pairs, lists to lists; times inside them to `numpy.datetime64` and `timedelta64`. A struct
    member that is missing in a dict becomes None. Thread-safe.

    Args:
        arrow_type: A `pyarrow.DataType`, or its JSON form in schema documents. Large, fixed-size, dictionary and
            extension types are replaced by the plain type of the same values.

    Raises:
        SchemaError: `arrow_type` is not a type that Parquet can store.

    Example:
        >>> import pyarrow as pa
        >>> box = ArrowCodec(pa.list_(pa.struct({"label": pa.string(), "score": pa.float32()})))
        >>> field = UnischemaField("boxes", object, (), box)
        >>> cells = box.encode_column([[{"label": "cat", "score": 0.5}, None], []], field)
        >>> cells.to_pylist()
        [[{'label': 'cat', 'score': 0.5}, None], []]
    """

    arrow_type: Any
    """The plain `pyarrow.DataType` of the values."""

    codec_id: ClassVar[str] = "arrow"

    def __post_init__(self) -> None:
        given = self.arrow_type
        found = given if isinstance(given, pa.DataType) else parse_type(given)
        object.__setattr__(self, "arrow_type", plain_type(found, name="arrow_type"))

    def config(self) -> Mapping[str, JsonValue]:
        """Return the Arrow type as JSON, such as `{"arrow_type": {"struct": [["id", "int64"]]}}`."""
        return {"arrow_type": type_as_json(self.arrow_type)}

    def check_field(self, field: UnischemaField) -> None:
        """Check that the field is a scalar of dtype `object`.

        Raises:
            SchemaError: The field has another dtype or shape.
        """
        if field.numpy_dtype is not np.object_ or field.shape:
            raise SchemaError(
                f"field {field.name!r} must have dtype object and shape () with ArrowCodec, got {field.dtype_name} and "
                f"{field.shape}. Numbers and arrays need no codec"
            )

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - the same for all fields
        """Return the Arrow type; durations inside it are stored as integers."""
        return stored_layout(self.arrow_type)

    def member(self, field: UnischemaField, path: str) -> UnischemaField | None:
        """Return the field of a member of a struct, with its dotted name; None if the struct has no such member.

        Args:
            field: The field of the struct.
            path: Name of the member; for a nested struct, the names joined by dots.
        """
        found = _member_type(self.arrow_type, path)
        if found is None:
            return None
        inferred = field_from_arrow(pa.field(f"{field.name}.{path}", found))
        return with_arrow_type(inferred, found)

    def encode(self, field: UnischemaField, value: Any) -> Any:
        """Encode one object as the Python object of its cell.

        Raises:
            EncodeError: The object does not fit the Arrow type.
        """
        if value is None:
            raise EncodeError(
                "the value must not be None, because a codec encodes only values that exist. For a missing value, "
                "store a null without calling encode",
                column=field.name,
            )
        (cell,) = self._encoded([value], field).to_pylist()
        return cell

    def _encoded(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        try:
            return encode_objects(list(values), self.arrow_type, field.name)
        except EncodeError as problem:
            inside = "" if problem.column in (None, field.name) else f"{problem.column}: "
            raise EncodeError(f"{inside}{problem.problem}", column=field.name) from None

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """Decode one cell to one object.

        Raises:
            DecodeError: The cell does not have the stored type.
        """
        try:
            cells = pa.array([cell], self.storage_type(field))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
            raise DecodeError(f"the cell must be of type {self.arrow_type}: {problem}", column=field.name) from None
        out = np.empty(1, object)
        self.decode_column(cells, field, out)
        return out[0]

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Encode many objects as a column; None becomes null.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        try:
            return self._encoded(values, field)
        except EncodeError:
            # The vectorized encoder does not know the row of an error, so values are encoded one by one.
            for row, value in enumerate(values):
                try:
                    self._encoded([value], field)
                except EncodeError as problem:
                    raise problem.at(row=row) from None
            raise

    def encode_arrow(self, values: pa.Array, field: UnischemaField) -> pa.Array:
        """Encode an Arrow column; if the types match, without a Python object per cell.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        try:
            if plain_type(values.type, name=field.name) == self.arrow_type:
                return values.cast(self.arrow_type).view(self.storage_type(field))
        except (SchemaError, pa.ArrowException):
            pass  # the conversion from Python objects raises an error with the value and its row
        objects = np.empty(len(values), object)
        try:
            decode_objects(values, dataclasses.replace(field, codec=None), objects)
        except DecodeError as problem:
            raise EncodeError(problem.problem, column=field.name, row=problem.row) from None
        return self.encode_column(objects.tolist(), field)

    def __repr__(self) -> str:
        return f"ArrowCodec({self.arrow_type})"

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode a column of the stored type, or of a type with the same values, to objects.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        stored = self.storage_type(field)
        if stored != self.arrow_type and cells.type != self.arrow_type:  # durations are stored as integers
            if cells.type == stored:
                cells = cells.view(self.arrow_type)
            elif in_utc(plain_type(cells.type, name=field.name)) == in_utc(stored):
                cells = conformed(cells, self.arrow_type)
        decode_objects(cells, field, out)


def _member_type(stored: pa.DataType, path: str) -> pa.DataType | None:
    for member in stored if pa.types.is_struct(stored) else ():
        if path == member.name:
            return member.type
        if path.startswith(f"{member.name}."):
            found = _member_type(member.type, path.removeprefix(f"{member.name}."))
            if found is not None:
                return found
    return None


def with_arrow_type(field: UnischemaField, arrow_type: pa.DataType) -> UnischemaField:
    """Return the field with an `ArrowCodec` that writes its objects as the given Arrow type.

    Args:
        field: Result of `petastore.schema.arrow.field_from_arrow` for the type.
        arrow_type: Arrow type of the stored column.

    Raises:
        SchemaError: Parquet cannot store the type.

    Example:
        >>> with_arrow_type(UnischemaField("at", object), pa.struct({"x": pa.int64()}))
        UnischemaField('at', object, ArrowCodec(struct<x: int64>))
    """
    is_object = field.numpy_dtype is np.object_ and field.codec is None
    return dataclasses.replace(field, codec=ArrowCodec(arrow_type)) if is_object else field
