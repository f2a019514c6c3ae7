"""ArrowCodec: Python objects stored as a nested Arrow type: structs, maps, lists with missing values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_objects import decode_objects
from petastore.codecs.arrow.arrow_types import parse_type, plain_type, stored_layout, type_as_json
from petastore.codecs.arrow.objects_to_arrow import encode_objects
from petastore.codecs.registry import register
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.codec import JsonValue
from petastore.schema.field import UnischemaField

__all__ = ["ArrowCodec", "with_arrow_type"]


@register
@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ArrowCodec:
    """Python objects as the Arrow type that they have: dicts as structs, dicts or lists of pairs as maps, lists.

    For fields of dtype `object`, and for lists with None inside or of unequal lengths, which are not arrays. Values
    come back as dicts, lists of pairs and lists; times inside them as `numpy.datetime64` and `timedelta64`. A member of
    a struct that a dict lacks is None. Thread-safe.

    Args:
        arrow_type: A `pyarrow.DataType`, or the JSON of one, as schema documents have it. Large, fixed-size, dictionary
            and extension layouts become the plain one of the same values.

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
    """The plain `pyarrow.DataType` of a value."""

    codec_id: ClassVar[str] = "arrow"

    def __post_init__(self) -> None:
        given = self.arrow_type
        found = given if isinstance(given, pa.DataType) else parse_type(given)
        object.__setattr__(self, "arrow_type", plain_type(found, name="arrow_type"))

    def config(self) -> Mapping[str, JsonValue]:
        """`{"arrow_type": {"struct": [["id", "int64"]]}}`."""
        return {"arrow_type": type_as_json(self.arrow_type)}

    def check_field(self, field: UnischemaField) -> None:
        """A scalar field of dtype `object`.

        Raises:
            SchemaError: Another dtype or shape.
        """
        if field.numpy_dtype is not np.object_ or field.shape:
            raise SchemaError(
                f"field {field.name!r} must have dtype object and shape () with ArrowCodec, got {field.dtype_name} and "
                f"{field.shape}. Numbers and arrays need no codec"
            )

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - the same for all fields
        """The Arrow type; durations inside it are integers."""
        return stored_layout(self.arrow_type)

    def encode(self, field: UnischemaField, value: Any) -> Any:
        """One object to the Python object of a cell.

        Raises:
            EncodeError: The object is not of the Arrow type.
        """
        if value is None:
            raise EncodeError("None was given to encode; a null is written by leaving the cell out", column=field.name)
        (cell,) = self._encoded([value], field).to_pylist()
        return cell

    def _encoded(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        try:
            return encode_objects(list(values), self.arrow_type, field.name)
        except EncodeError as problem:
            inside = "" if problem.column in (None, field.name) else f"{problem.column}: "
            raise EncodeError(f"{inside}{problem.problem}", column=field.name) from None

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """One cell to one object.

        Raises:
            DecodeError: The cell is not of the stored type.
        """
        try:
            cells = pa.array([cell], self.storage_type(field))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
            raise DecodeError(f"the cell is not {self.arrow_type}: {problem}", column=field.name) from None
        out = np.empty(1, object)
        self.decode_column(cells, field, out)
        return out[0]

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Many objects to a column; None becomes null.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        try:
            return self._encoded(values, field)
        except EncodeError:
            # The column was taken apart into leaves: only values one by one tell the row.
            for row, value in enumerate(values):
                try:
                    self._encoded([value], field)
                except EncodeError as problem:
                    raise problem.at(row=row) from None
            raise

    def encode_arrow(self, values: pa.Array, field: UnischemaField) -> pa.Array:
        """A column of Arrow's to stored cells; without a Python object a cell where the types are alike.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        try:
            if plain_type(values.type, name=field.name) == self.arrow_type:
                return values.cast(self.arrow_type).view(self.storage_type(field))
        except (SchemaError, pa.ArrowException):
            pass  # Python's objects say what does not fit, and where
        objects = np.empty(len(values), object)
        try:
            decode_objects(values, dataclasses.replace(field, codec=None), objects)
        except DecodeError as problem:
            raise EncodeError(problem.problem, column=field.name, row=problem.row) from None
        return self.encode_column(objects.tolist(), field)

    def __repr__(self) -> str:
        return f"ArrowCodec({self.arrow_type})"

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """A column of that type, or of one with the same values, to objects.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        is_stored = cells.type != self.arrow_type and cells.type == self.storage_type(field)
        decode_objects(cells.view(self.arrow_type) if is_stored else cells, field, out)


def with_arrow_type(field: UnischemaField, arrow_type: pa.DataType) -> UnischemaField:
    """The field with the codec that writes its values as that Arrow type, where they are objects.

    Args:
        field: What `petastore.schema.arrow.field_from_arrow` made of the type.
        arrow_type: The type.

    Raises:
        SchemaError: Parquet cannot store the type.

    Example:
        >>> with_arrow_type(UnischemaField("at", object), pa.struct({"x": pa.int64()}))
        UnischemaField('at', object, ArrowCodec(struct<x: int64>))
    """
    is_object = field.numpy_dtype is np.object_ and field.codec is None
    return dataclasses.replace(field, codec=ArrowCodec(arrow_type)) if is_object else field
