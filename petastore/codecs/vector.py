"""VectorCodec: a vector of Spark ML, dense or sparse, stored as Spark stores it and read as a dense array."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers
from petastore.codecs.arrow.numpy_to_arrow import encode_each
from petastore.codecs.declared import array_to_write, arrays_alike
from petastore.codecs.vector_cells import DENSE, SPARSE, STORED, VectorCells, sizes_of_vectors, vector_cells
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema.codec import JsonValue
from petastore.schema.field import UnischemaField

__all__ = ["VectorCodec"]

_DTYPES = (np.float32, np.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class VectorCodec:
    """A vector of `pyspark.ml.linalg` in the struct that Spark's own Parquet files have; a dense array once read.

    Takes float arrays, which are stored dense, and `DenseVector` and `SparseVector` themselves; sparse ones stay sparse
    in storage. Spark stores doubles: a field of float32 rounds them when they are read. Thread-safe; whole columns are
    read without a Python object a cell.

    A column of arrays (`pyspark.ml.functions.vector_to_array`) needs no codec, and is stored in less; this one is for
    files that Spark has written, and for those that Spark is to read as it knows them.

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
        """Nothing to configure."""
        return {}

    def check_field(self, field: UnischemaField) -> None:
        """One dimension of float32 or float64.

        Raises:
            SchemaError: Another dtype or shape.
        """
        if field.numpy_dtype not in _DTYPES or len(field.shape) != 1:
            raise SchemaError(
                f"field {field.name!r}: VectorCodec stores vectors, float32 or float64 of shape (n,) or (None,), but "
                f"the field declares {field.dtype_name} of shape {field.shape}; use NdarrayCodec()"
            )

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - always that struct
        """The struct of Spark's `VectorUDT`."""
        return STORED

    def encode(self, field: UnischemaField, value: Any) -> dict[str, Any]:
        """One vector to the members of its struct.

        Args:
            field: What was declared.
            value: An array of the declared dtype, or a `DenseVector` or `SparseVector` of pyspark.

        Raises:
            EncodeError: Another dtype or size than declared.
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
        """The members of a struct to a dense array.

        Raises:
            DecodeError: They are no vector, or one of another size than declared.
        """
        try:
            column = pa.array([cell], STORED)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as problem:
            raise DecodeError(f"the cell is no vector: {problem}", column=field.name) from None
        found = vector_cells(column, field)
        out = np.zeros(int(found.sizes[0]), field.dtype)
        _put(found, out, found.place, field)
        return out

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Many vectors to a struct column.

        Args:
            values: An array `(rows, n)`, or a sequence of vectors as `encode` takes them; None becomes null.
            field: What was declared.

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
        """The cells that Spark has made already; None for lists of numbers.

        Raises:
            EncodeError: A cell is not a vector as declared; `row` is set.
        """
        if not pa.types.is_struct(values.type):
            return None
        try:
            vector_cells(values, field)
        except DecodeError as problem:
            text = f"the value does not fit: {problem.problem}"
            raise EncodeError(text, column=field.name, row=problem.row) from None
        return values.cast(STORED)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """A column of vectors into `out`; where the size is free they are parts of one array.

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
        """By the sizes that the structs say; None where the field declares it."""
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
    """Numbers to their places in `out`, all of which are known to be inside; None is one after the other."""
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
            f"{found.values[bad][0]} is too large for the {field.dtype_name} that the field declares; declare float64",
            column=field.name,
            row=int(found.row()[bad][0]),
        ) from None
