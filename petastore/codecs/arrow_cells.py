"""Encode Arrow columns of raw values as columns of stored cells.

A raw scalar is the equivalent Arrow value, a Spark ML vector is its struct, and an image is the bytes of its file. A
tensor may be nested arrays, one flat array in C order, or the little-endian bytes of its elements in C order. Flat
arrays and bytes do not contain their shape, so at most one dimension may be variable; its length is computed from the
size.

`ArrowCodec` stores Python objects as a nested Arrow type: structs, maps, and lists with missing values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import conformed, flags_of, null_cells
from petastore.codecs.arrow.arrow_lists import decode_lists
from petastore.codecs.arrow.arrow_objects import decode_objects, encode_objects
from petastore.codecs.arrow.arrow_types import (
    cast_exactly,
    has_same_values,
    parse_type,
    plain_type,
    stored_layout,
    type_as_json,
)
from petastore.codecs.arrow.arrow_views import byte_cells
from petastore.codecs.arrow.numpy_to_arrow import spread
from petastore.codecs.declared import check_present
from petastore.codecs.plain import PlainCodec
from petastore.codecs.registry import codec_of, register
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.arrow import field_from_arrow, is_bytes, is_list
from petastore.schema.field import ArrowCellsCodec, JsonValue, UnischemaField

__all__ = ["ArrowCodec", "encode_cells", "with_arrow_type"]


_IN_BYTES = "iufcmM"
_READING_ADVICE = ". Leave the column out"
"""Beginning of the advice in errors for readers; errors for writers omit the text from here on."""

_LIST_ADVICE = ". A field of dtype object with ArrowCodec keeps lists that are not arrays"


def encode_cells(values: pa.Array, field: UnischemaField) -> pa.Array:
    """Encode an Arrow column of raw values as stored cells; nulls stay nulls.

    Raises:
        EncodeError: A value does not fit the field, or is missing and the field is not nullable; `row` is set.

    Example:
        >>> field = UnischemaField("grid", "uint8", (2, 2), nullable=True)
        >>> encode_cells(pa.array([[1, 2, 3, 4], None]), field).to_pylist()
        [[[1, 2], [3, 4]], None]
    """
    if not values.null_count:
        return _encode_present(values, field)
    known = flags_of(values.is_valid())
    if field.nullable and values.null_count == len(values):
        return null_cells(len(values), codec_of(field).storage_type(field))
    if not field.nullable:
        raise EncodeError(
            "the value must not be null, because the field is not nullable. Declare nullable=True",
            row=int(np.argmin(known)),
        )
    try:
        cells = _encode_present(values.drop_null(), field)
    except EncodeError as problem:
        if problem.row is not None:
            problem.row = int(np.flatnonzero(known)[problem.row])
        raise
    return spread(cells, known)


def _encode_present(values: pa.Array, field: UnischemaField) -> pa.Array:
    if isinstance(values, pa.ExtensionArray) and not isinstance(values.type, pa.FixedShapeTensorType):
        return _encode_present(values.storage, field)
    codec = codec_of(field)
    cells = cast("ArrowCellsCodec", codec).encode_arrow(values, field) if hasattr(codec, "encode_arrow") else None
    if cells is not None:
        return cells
    try:
        raw = _raw_values(values, field)
    except DecodeError as problem:
        what = problem.problem.partition(_READING_ADVICE)[0]
        advice = _LIST_ADVICE if what != problem.problem else ""
        text = f"the value does not fit: {what}{advice}"
        raise EncodeError(text, column=field.name, row=problem.row) from None
    return codec.encode_column(raw, field)


def _raw_values(values: pa.Array, field: UnischemaField) -> Any:
    """Convert raw values of Arrow to the NumPy values that the codec encodes.

    For a fixed shape, they are one array `(rows, *shape)`, otherwise one array per row.
    """
    depth = _list_depth(values.type)
    if field.is_scalar or depth == len(field.shape):
        return _decoded(values, field)
    if depth == 1:
        return _shaped_lists(values, field)
    if is_bytes(values.type):
        return _shaped_bytes(values, field)
    raise EncodeError(
        f"the column must have arrays nested {len(field.shape)} levels deep, flat arrays or bytes for shape "
        f"{field.shape}, which the field declares, got {values.type}",
        column=field.name,
    )


def _list_depth(arrow_type: pa.DataType) -> int:
    """Return the number of nested list levels of a type: 2 for lists of lists of numbers."""
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        return len(arrow_type.shape) + _list_depth(arrow_type.value_type)
    return 1 + _list_depth(arrow_type.value_type) if is_list(arrow_type) else 0


def _decoded(values: pa.Array, field: UnischemaField) -> NDArray[Any]:
    plain = dataclasses.replace(field, codec=None)
    fixed = [size for size in field.shape if size is not None] if field.is_fixed else []
    out = np.empty((len(values), *fixed), field.dtype if field.is_fixed else object)
    if field.shape:
        decode_lists(values, plain, out, only_arrays=True)
    else:
        PlainCodec().decode_column(values, plain, out)
    return out


def _shaped_lists(values: pa.Array, field: UnischemaField) -> Any:
    if field.is_fixed:
        flat = dataclasses.replace(field, shape=(_size(field.shape),), codec=None)
        return _decoded(values, flat).reshape(len(values), *field.shape)
    lists = _decoded(values, dataclasses.replace(field, shape=(None,), codec=None))
    return [_in_shape(value, field, row) for row, value in enumerate(lists)]


def _shaped_bytes(values: pa.Array, field: UnischemaField) -> Any:
    cells = byte_cells(values, field)
    dtype = field.dtype.newbyteorder("<")
    if dtype.kind not in _IN_BYTES:
        raise EncodeError(f"values must be nested arrays for dtype {field.dtype_name}, got bytes", column=field.name)
    even = cells.even_size
    if even is not None and field.is_fixed and even == field.decoded_bytes:
        start = int(cells.starts[0])
        block = cells.data[start : start + even * len(cells)]
        return block.view(dtype).reshape(len(cells), *field.shape).astype(field.dtype, copy=False)
    arrays = []
    for row in range(len(cells)):
        if len(cells[row]) % dtype.itemsize:
            raise EncodeError(
                f"a cell must have a multiple of {dtype.itemsize} bytes, the size of {field.dtype_name}, "
                f"got {len(cells[row]):,} bytes",
                column=field.name,
                row=row,
            )
        value = np.frombuffer(cells[row], dtype).astype(field.dtype, copy=False)
        arrays.append(_in_shape(value, field, row))
    return arrays


def _in_shape(value: NDArray[Any], field: UnischemaField, row: int) -> NDArray[Any]:
    """Reshape a flat value to the shape that its field declares.

    The size of one variable dimension is computed from the number of elements.
    """
    known = _size(field.shape)
    free = field.shape.count(None)
    if free > 1:
        raise EncodeError(
            f"values must be nested arrays for shape {field.shape}, because flat ones do not determine two or more "
            "variable dimensions, got a flat array. For images, the bytes of a file are also possible",
            column=field.name,
            row=row,
        )
    fits = value.size == known if free == 0 else known > 0 and value.size % known == 0
    if not fits:
        raise EncodeError(
            f"the value must have as many elements as an array of shape {field.shape}, got {value.size:,} elements",
            column=field.name,
            row=row,
        )
    return value.reshape([-1 if size is None else size for size in field.shape])


def _size(shape: Sequence[int | None]) -> int:
    return math.prod(size for size in shape if size is not None)


@register
@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ArrowCodec:
    """A codec for dicts, maps and nested lists, stored as the matching Arrow type.

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
        """Return the Arrow type as JSON: `{"arrow_type": {"struct": [["id", "int64"]]}}`."""
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
        """Return the Arrow type, with integers in place of durations."""
        return stored_layout(self.arrow_type)

    def member(self, field: UnischemaField, path: str) -> UnischemaField | None:
        """Return the field of a struct member, with a dotted name such as `geo.lat`.

        Return None if the struct does not have the member.

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
        check_present(value, field)
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
        """Encode an Arrow column as stored cells.

        If the types match, this needs no Python object per cell.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        try:
            if plain_type(values.type, name=field.name) == self.arrow_type:
                return conformed(values, self.arrow_type).view(self.storage_type(field))
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
        """Decode a column to Python objects, which are written to `out`.

        A column of another type than the stored one is cast; a value that does not fit raises an error.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        stored = self.storage_type(field)
        if cells.type == stored:
            cells = cells.view(self.arrow_type)  # durations are stored as integers
        elif not has_same_values(cells.type, self.arrow_type):
            try:
                cells = cast_exactly(cells, self.arrow_type)
            except DecodeError as problem:
                raise problem.at(column=field.name) from None
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
    """Return a field of dtype `object` with an `ArrowCodec` of an Arrow type.

    A field of another dtype, or with a codec, is returned unchanged.

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
