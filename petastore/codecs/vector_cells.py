"""A column of Spark ML vectors, as the numbers in Arrow's buffers: checked as a whole, without an object a cell.

Spark stores a vector as a struct. Dense: `type` 1, `values` all numbers. Sparse: `type` 0, `size`, and the numbers that
are not zero, `values`, at ascending places, `indices`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import flags_of, numbers_of
from petastore.codecs.arrow.arrow_to_numpy import plain_layout, refuse_nulls
from petastore.errors import DecodeError
from petastore.schema.field import UnischemaField

__all__ = ["DENSE", "MAX_ELEMENTS", "SPARSE", "STORED", "VectorCells", "sizes_of_vectors", "vector_cells"]

DENSE, SPARSE = 1, 0

MAX_ELEMENTS = 1 << 27
"""Elements of one vector at most, 1 GiB of doubles: the size of a sparse one is only a number in its cell."""

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
    """The vectors of a column; checked, so that every index is inside its vector."""

    sizes: NDArray[np.int64]
    """Elements of each vector, (rows,)."""

    lengths: NDArray[np.int64]
    """Stored numbers of each vector, (rows,)."""

    values: NDArray[np.float64]
    """The stored numbers, row after row, (numbers,)."""

    place: NDArray[np.int64] | None
    """Of each stored number: its place in its vector, (numbers,). None where all vectors are dense: then the numbers
    are the vectors, one after the other."""

    def row(self) -> NDArray[np.int64]:
        """Of each stored number: its row, (numbers,)."""
        return _rows(self.lengths)


def vector_cells(cells: pa.Array, field: UnischemaField) -> VectorCells:
    """The vectors in stored cells.

    Args:
        cells: A struct column without nulls.
        field: Of shape `(n,)` or `(None,)`.

    Raises:
        DecodeError: A cell is no vector, or of another size than declared; `row` is set.
    """
    refuse_nulls(cells, field)
    parts = _parts(cells, field)
    kind, lengths = numbers_of(parts["type"]), _lengths(parts["values"])
    dense = kind == DENSE
    _refuse(~dense & (kind != SPARSE), field, "the cell says neither that it is dense (1) nor sparse (0)")
    _refuse(flags_of(parts["values"].is_null()), field, "the vector has no values")
    values = parts["values"].flatten()
    if values.null_count:
        row = int(_rows(lengths)[flags_of(values.is_null())][0])
        raise DecodeError("a number of the vector is null", column=field.name, row=row)
    sizes, place = (lengths, None) if dense.all() else _sizes_and_places(parts, dense, lengths, field)
    _check_sizes(sizes, field)
    return VectorCells(sizes, lengths, numbers_of(values), place)


def sizes_of_vectors(cells: pa.Array, field: UnischemaField) -> NDArray[np.int64]:
    """Elements of each vector as its cell says, whether or not it is right; shape (rows,).

    Raises:
        DecodeError: The column is none of vectors.
    """
    parts = _members(cells, field)
    dense = numbers_of(parts["type"]) == DENSE
    sizes = np.where(flags_of(parts["size"].is_null()), 0, numbers_of(parts["size"]).astype(np.int64))
    return np.where(dense, _lengths(parts["values"]), np.maximum(sizes, 0))


def _rows(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def _parts(cells: pa.Array, field: UnischemaField) -> dict[str, pa.Array]:
    """The columns of the struct, each of its type in `STORED`; refuses vectors that do not say what they are."""
    parts = _members(cells, field)
    _refuse(flags_of(parts["type"].is_null()), field, "the cell does not say whether it is dense or sparse")
    return parts


def _members(cells: pa.Array, field: UnischemaField) -> dict[str, pa.Array]:
    """The columns of the struct, each of its type in `STORED`."""
    cells = plain_layout(cells)
    if not pa.types.is_struct(cells.type) or {part.name for part in cells.type} != {part.name for part in STORED}:
        raise DecodeError(
            f"the column is stored as {cells.type}, but VectorCodec reads vectors of Spark ML, {STORED}; arrays are "
            "read without a codec",
            column=field.name,
        )
    try:
        return {part.name: plain_layout(cells.field(part.name)).cast(part.type) for part in STORED}
    except pa.ArrowInvalid as problem:
        raise DecodeError(f"the column is no column of vectors: {problem}", column=field.name) from None


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    """Numbers in each list, 0 where there is none."""
    lengths = numbers_of(lists.value_lengths()).astype(np.int64)
    lengths[flags_of(lists.is_null())] = 0
    return lengths


def _sizes_and_places(
    parts: dict[str, pa.Array], dense: NDArray[np.bool_], lengths: NDArray[np.int64], field: UnischemaField
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Elements of each vector, and the place of each number; refuses sparse vectors that contradict themselves."""
    size = numbers_of(parts["size"]).astype(np.int64)
    missing = flags_of(parts["size"].is_null()) | (size < 0)
    _refuse(~dense & missing, field, "the sparse vector does not say how many elements it has")
    _refuse(~dense & (_lengths(parts["indices"]) != lengths), field, "the vector has not one index for each value")
    sizes, row = np.where(dense, lengths, size), _rows(lengths)
    place = np.arange(len(row), dtype=np.int64) - (np.cumsum(lengths) - lengths)[row]
    sparse = ~dense[row]
    place[sparse] = _sparse_places(parts["indices"], row[sparse], sizes, field)
    return sizes, place


def _sparse_places(
    indices: pa.Array, row: NDArray[np.int64], sizes: NDArray[np.int64], field: UnischemaField
) -> NDArray[np.int64]:
    """Places of the numbers of sparse vectors, which are in the rows `row`."""
    # A dense cell may hold indices, too, which mean nothing.
    sparse = np.zeros(len(indices), np.bool_)
    sparse[row] = True
    flat = indices.filter(pa.array(sparse)).flatten()
    place = numbers_of(flat).astype(np.int64)
    outside = (place < 0) | (place >= sizes[row]) | flags_of(flat.is_null())
    falls = np.zeros(len(place), np.bool_)
    falls[1:] = (np.diff(place) <= 0) & (np.diff(row) == 0)
    for bad, problem in ((outside, "an index lies outside of the vector"), (falls, "the indices do not ascend")):
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
                f"the vector has {sizes[row]:,} elements, but {field.shape} is declared", column=field.name, row=row
            )
    too_long = sizes > MAX_ELEMENTS
    if too_long.any():
        row = int(np.argmax(too_long))
        raise DecodeError(
            f"the vector has {sizes[row]:,} elements, more than {MAX_ELEMENTS:,}; it would take "
            f"{sizes[row] * 8 / 2**30:.0f} GiB of memory. Hash or select its features, or leave the column out",
            column=field.name,
            row=row,
        )


def _refuse(bad: NDArray[np.bool_], field: UnischemaField, problem: str) -> None:
    if bad.any():
        raise DecodeError(problem, column=field.name, row=int(np.argmax(bad)))
