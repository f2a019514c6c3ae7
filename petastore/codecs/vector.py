"""VectorCodec: vectors of Spark ML, dense or sparse, read as dense arrays.

Spark stores a vector as a struct. A dense vector has `type` 1 and all numbers as `values`. A sparse vector has `type`
0, its length as `size`, the nonzero numbers as `values`, and their positions as ascending `indices`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import arrow_numbers, conformed, flags_of, numbers_of
from petastore.codecs.arrow.arrow_to_numpy import plain_layout, refuse_nulls
from petastore.codecs.arrow.numpy_to_arrow import encode_each
from petastore.codecs.declared import array_to_write, arrays_alike
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.field import JsonValue, UnischemaField

__all__ = ["DENSE", "MAX_ELEMENTS", "SPARSE", "STORED", "VectorCodec", "sizes_of_vectors", "vector_cells"]


DENSE, SPARSE = 1, 0

MAX_ELEMENTS = 1 << 27
"""Maximum elements of one vector, 1 GiB of doubles.

The size of a sparse vector is only a number in its cell, so a damaged cell could declare any size.
"""

STORED = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        pa.field("values", pa.list_(pa.field("element", pa.float64(), nullable=False))),
    ]
)
"""The Arrow type of the column, as Spark's own `VectorUDT` has it in Parquet."""


@dataclasses.dataclass(frozen=True, slots=True)
class VectorCells:
    """Vectors of a column; every index was checked to be inside its vector."""

    sizes: NDArray[np.int64]
    """Number of elements of each vector, shape (rows,)."""

    lengths: NDArray[np.int64]
    """Number of stored values of each vector, shape (rows,); a sparse vector stores only some of its elements."""

    values: NDArray[np.float64]
    """The stored values, row after row; shape (numbers,)."""

    place: NDArray[np.int64] | None
    """Index of each stored value in its vector, shape (numbers,).

    None if all vectors are dense: then `values` has all elements of the vectors, one vector after the other."""

    def row(self) -> NDArray[np.int64]:
        """Return the row of each stored value, shape (numbers,)."""
        return _rows(self.lengths)


def vector_cells(cells: pa.Array, field: UnischemaField) -> VectorCells:
    """Parse and check the vectors in stored cells.

    Args:
        cells: A struct column without nulls.
        field: Field of shape `(n,)` or `(None,)`.

    Raises:
        DecodeError: A cell is not a vector, or has another size than declared; `row` is set.
    """
    refuse_nulls(cells, field)
    parts = _members(cells, field)
    _refuse(flags_of(parts["type"].is_null()), field, "the cell lacks the type of the vector, dense or sparse")
    kind, lengths = numbers_of(parts["type"]), _lengths(parts["values"])
    dense = kind == DENSE
    _refuse(~dense & (kind != SPARSE), field, "the type of the vector must be 1 (dense) or 0 (sparse)")
    _refuse(flags_of(parts["values"].is_null()), field, "the vector has no values")
    values = parts["values"].flatten()
    if values.null_count:
        row = int(_rows(lengths)[flags_of(values.is_null())][0])
        raise DecodeError("the values of a vector must not be null, got a null", column=field.name, row=row)
    sizes, place = (lengths, None) if dense.all() else _sizes_and_places(parts, dense, lengths, field)
    _check_sizes(sizes, field)
    return VectorCells(sizes, lengths, numbers_of(values), place)


def sizes_of_vectors(cells: pa.Array, field: UnischemaField) -> NDArray[np.int64]:
    """Return the number of elements that each cell declares, shape (rows,).

    The numbers are not checked.

    Raises:
        DecodeError: The column does not contain vectors.
    """
    parts = _members(cells, field)
    dense = numbers_of(parts["type"]) == DENSE
    sizes = np.where(flags_of(parts["size"].is_null()), 0, numbers_of(parts["size"]).astype(np.int64))
    return np.where(dense, _lengths(parts["values"]), np.maximum(sizes, 0))


def _rows(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def _members(cells: pa.Array, field: UnischemaField) -> dict[str, pa.Array]:
    """Return the member columns of the struct by name, each with its type in `STORED`.

    Raises:
        DecodeError: The column does not contain vectors.
    """
    cells = plain_layout(cells)
    if not pa.types.is_struct(cells.type) or {part.name for part in cells.type} != {part.name for part in STORED}:
        raise DecodeError(
            f"the column must be stored as Spark ML vectors, {STORED}, for VectorCodec, got {cells.type}. For arrays, "
            "declare the field without a codec",
            column=field.name,
        )
    try:
        return {part.name: conformed(plain_layout(cells.field(part.name)), part.type) for part in STORED}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise DecodeError(f"the column does not contain vectors: {problem}", column=field.name) from None


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    """Return the length of each list, shape (rows,); 0 for a missing list."""
    lengths = numbers_of(lists.value_lengths()).astype(np.int64)
    lengths[flags_of(lists.is_null())] = 0
    return lengths


def _sizes_and_places(
    parts: dict[str, pa.Array], dense: NDArray[np.bool_], lengths: NDArray[np.int64], field: UnischemaField
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the size of each vector, and the index of each stored value in it.

    Args:
        parts: Member columns of the struct.
        dense: Mask of the dense vectors, shape (rows,).
        lengths: Number of stored values of each vector, shape (rows,).
        field: Declared field, for messages.

    Raises:
        DecodeError: A sparse vector is invalid.
    """
    size = numbers_of(parts["size"]).astype(np.int64)
    missing = flags_of(parts["size"].is_null()) | (size < 0)
    _refuse(~dense & missing, field, "the sparse vector lacks its size")
    _refuse(~dense & (_lengths(parts["indices"]) != lengths), field, "the sparse vector must have one index per value")
    sizes, row = np.where(dense, lengths, size), _rows(lengths)
    place = np.arange(len(row), dtype=np.int64) - (np.cumsum(lengths) - lengths)[row]
    sparse = ~dense[row]
    place[sparse] = _sparse_places(parts["indices"], row[sparse], sizes, field)
    return sizes, place


def _sparse_places(
    indices: pa.Array, row: NDArray[np.int64], sizes: NDArray[np.int64], field: UnischemaField
) -> NDArray[np.int64]:
    """Return the index of each stored value of the sparse vectors, checked.

    Args:
        indices: Lists of indices of all vectors.
        row: Row of each stored value of the sparse vectors.
        sizes: Size of each vector, shape (rows,).
        field: Declared field, for messages.

    Raises:
        DecodeError: Indices are outside the vector, or do not ascend.
    """
    # A dense vector may have indices, which are ignored.
    sparse = np.zeros(len(indices), np.bool_)
    sparse[row] = True
    flat = indices.filter(pa.array(sparse)).flatten()
    place = numbers_of(flat).astype(np.int64)
    outside = (place < 0) | (place >= sizes[row]) | flags_of(flat.is_null())
    falls = np.zeros(len(place), np.bool_)
    falls[1:] = (np.diff(place) <= 0) & (np.diff(row) == 0)
    for bad, problem in (
        (outside, "indices of a sparse vector must be below its size"),
        (falls, "indices of a sparse vector must ascend"),
    ):
        if bad.any():
            raise DecodeError(problem, column=field.name, row=int(row[bad][0]))
    return place


def _check_sizes(sizes: NDArray[np.int64], field: UnischemaField) -> None:
    (declared,) = field.shape
    if declared is not None:
        wrong = sizes != declared
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DecodeError(
                f"the vector must have shape {field.shape}, got {sizes[row]:,} elements", column=field.name, row=row
            )
    too_long = sizes > MAX_ELEMENTS
    if too_long.any():
        row = int(np.argmax(too_long))
        raise DecodeError(
            f"the vector must have at most {MAX_ELEMENTS:,} elements, got {sizes[row]:,}, which take "
            f"{sizes[row] * 8 / 2**30:.0f} GiB of memory. Hash or select its features, or leave the column out",
            column=field.name,
            row=row,
        )


def _refuse(bad: NDArray[np.bool_], field: UnischemaField, problem: str) -> None:
    if bad.any():
        raise DecodeError(problem, column=field.name, row=int(np.argmax(bad)))


_DTYPES = (np.float32, np.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class VectorCodec:
    """A codec for Spark ML vectors (`pyspark.ml.linalg`), decoded to dense arrays.

    Vectors are stored in Spark's format. The codec encodes float arrays (as dense vectors), `DenseVector` and
    `SparseVector`; sparse vectors stay sparse in storage. Spark stores float64, which a float32 field rounds when it
    decodes. Thread-safe. Columns are decoded without a Python object per cell.

    Use it for files that Spark wrote, or that Spark must read as vectors. Otherwise prefer a column of arrays
    (`pyspark.ml.functions.vector_to_array`), which needs no codec and takes less space.

    Example:
        >>> import numpy as np
        >>> field = UnischemaField("features", "float32", (4,), VectorCodec())
        >>> cells = field.codec.encode_column(np.array([[1, 0, 0, 2]], "float32"), field)
        >>> cells.to_pylist()
        [{'type': 1, 'size': None, 'indices': None, 'values': [1.0, 0.0, 0.0, 2.0]}]
        >>> field.codec.decode(field, {"type": 0, "size": 4, "indices": [3], "values": [2.5]})
        array([0. , 0. , 0. , 2.5], dtype=float32)
    """

    codec_id: ClassVar[str] = "vector"

    def config(self) -> Mapping[str, JsonValue]:
        """Return an empty dict, because the codec has no parameters."""
        return {}

    def check_field(self, field: UnischemaField) -> None:
        """Check that the field is one-dimensional, with dtype float32 or float64.

        Raises:
            SchemaError: The field has another dtype or shape.
        """
        if field.numpy_dtype not in _DTYPES or len(field.shape) != 1:
            raise SchemaError(
                f"field {field.name!r}: VectorCodec needs float32 or float64 of shape (n,) or (None,), got "
                f"{field.dtype_name} of shape {field.shape}. Use NdarrayCodec()"
            )

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - the same for all fields
        """Return the struct type of Spark's `VectorUDT`."""
        return STORED

    def encode(self, field: UnischemaField, value: Any) -> dict[str, Any]:
        """Encode one vector as a dict of the members of Spark's struct.

        Args:
            field: The field of the column.
            value: An array of the field's dtype, or a pyspark `DenseVector` or `SparseVector`.

        Raises:
            EncodeError: The vector has another dtype or size than the field.
        """
        if not hasattr(value, "toArray"):
            return _dense(array_to_write(field, value))
        if not hasattr(value, "indices"):
            return _dense(array_to_write(field, np.asarray(value.toArray()).astype(field.dtype)))
        cell = {"type": SPARSE, "size": int(value.size), "indices": [*map(int, value.indices)]}
        cell["values"] = [*map(float, value.values)]
        try:
            vector_cells(pa.array([cell], STORED), field)
        except DecodeError as problem:
            raise EncodeError(f"the sparse vector cannot be written: {problem.problem}", column=field.name) from None
        return cell

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """Decode the members of a struct to a dense array.

        Raises:
            DecodeError: The members are not a vector, or the vector has another size than the field.
        """
        try:
            column = pa.array([cell], STORED)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as problem:
            raise DecodeError(f"the cell is not a vector: {problem}", column=field.name) from None
        found = vector_cells(column, field)
        out = np.zeros(int(found.sizes[0]), field.dtype)
        _put(found, out, found.place, field)
        return out

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Encode many vectors as a struct column.

        Args:
            values: An array `(rows, n)`, or a sequence of vectors as in `encode`; None becomes null.
            field: The field of the column.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        if not isinstance(values, np.ndarray) and arrays_alike(values):
            values = np.stack(list(values))
        if isinstance(values, np.ndarray) and values.ndim == 2 and len(values):
            array_to_write(field, values[0])
            return _dense_column(np.ascontiguousarray(values, np.float64))
        return encode_each(values, self.encode, STORED, field)

    def encode_arrow(self, values: pa.Array, field: UnischemaField) -> pa.Array | None:
        """Return a column of Spark's vectors unchanged; None for other columns.

        Raises:
            EncodeError: A cell does not match the field; `row` is set.
        """
        if not pa.types.is_struct(values.type):
            return None
        try:
            vector_cells(values, field)
        except DecodeError as problem:
            text = f"the value does not fit: {problem.problem}"
            raise EncodeError(text, column=field.name, row=problem.row) from None
        return conformed(values, STORED)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode a column of vectors into `out`.

        With a variable size, the values are views of one array.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        found = vector_cells(cells, field)
        if field.is_fixed:
            if found.place is not None:
                out[...] = 0
            _put(found, out, None if found.place is None else (found.row(), found.place), field)
            return
        ends = np.cumsum(found.sizes)
        flat = np.zeros(int(ends[-1]) if len(ends) else 0, field.dtype)
        starts = ends - found.sizes
        _put(found, flat, None if found.place is None else starts[found.row()] + found.place, field)
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            out[row] = flat[start:end]

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """Return the decoded bytes of each vector, from the size that its struct declares.

        Return None if the field has a fixed size.
        """
        return None if field.is_fixed else sizes_of_vectors(cells, field) * field.dtype.itemsize


def _dense(value: NDArray[Any]) -> dict[str, Any]:
    return {"type": DENSE, "size": None, "indices": None, "values": value.astype(np.float64).tolist()}


def _dense_column(values: NDArray[np.float64]) -> pa.Array:
    rows, size = values.shape
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * size) if rows * size < 2**31 else None
    if offsets is None:
        return pa.concat_arrays([_dense_column(part) for part in np.array_split(values, 2)])
    members = {
        "type": arrow_numbers(np.full(rows, DENSE, np.int8)),
        "size": pa.nulls(rows, pa.int32()),
        "indices": pa.nulls(rows, STORED.field("indices").type),
        "values": pa.ListArray.from_arrays(offsets, arrow_numbers(values.reshape(-1)), STORED.field("values").type),
    }
    return pa.StructArray.from_arrays(list(members.values()), fields=list(STORED))


def _put(found: VectorCells, out: NDArray[Any], places: Any, field: UnischemaField) -> None:
    """Write the stored values of vectors to an array.

    Args:
        found: The vectors.
        out: Array of zeros, which is filled completely if `places` is None.
        places: Index in `out` of each stored value, which must be in range; None fills `out` in order.
        field: Declared field, for messages.

    Raises:
        DecodeError: A value is too large for the dtype; `row` is set.
    """
    try:
        with np.errstate(over="raise"):
            if places is None:
                out[...] = found.values.reshape(out.shape)
            else:
                out[places] = found.values
    except FloatingPointError:
        largest = np.finfo(field.dtype).max
        bad = np.isfinite(found.values) & (np.abs(found.values) > largest)
        raise DecodeError(
            f"values must fit into {field.dtype_name}, which the field declares, got {found.values[bad][0]}. Declare "
            "float64",
            column=field.name,
            row=int(found.row()[bad][0]),
        ) from None
