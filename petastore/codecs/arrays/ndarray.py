"""NdarrayCodec: an array as the bytes that `numpy.save` writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeGuard

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrays.npy import NpyError, NpyHeader, array_bytes, header_of, npy_header_bytes
from petastore.codecs.arrow.arrow_views import ByteCells, byte_cells, bytes_of_cell, equal_cells_array
from petastore.codecs.arrow.numpy_to_arrow import encode_each
from petastore.codecs.arrow.scalars import InexactError
from petastore.codecs.declared import array_to_write, arrays_alike, check_array_field, same_dtype
from petastore.errors import DecodeError, EncodeError
from petastore.schema.codec import JsonValue, Viewer
from petastore.schema.field import UnischemaField

__all__ = ["Blocks", "NdarrayCodec"]

# Rows whose headers are compared at a time: 4096 of 128 bytes stay in the second-level cache.
_ROWS_AT_ONCE = 4096

_FEW_ROWS = 500
"""For so few rows headers are compared as texts, whose bytes of 0 at the end would not count."""


@dataclasses.dataclass(frozen=True, slots=True)
class NdarrayCodec:
    r"""An array of numbers, booleans, times, text or bytes as `.npy` bytes; nothing is ever pickled.

    Thread-safe. Where all cells of a column share a header, which they do when they have one shape, the column is one
    strided copy out of Arrow's buffer. Reads `.npy` 1.0 to 3.0, either memory order and either byte order; values come
    out C-contiguous and in the machine's byte order.

    Example:
        >>> import numpy as np
        >>> field = UnischemaField("pose", "float64", (2, None), NdarrayCodec())
        >>> cell = field.codec.encode(field, np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
        >>> cell[:6], len(cell)
        (b'\x93NUMPY', 176)
        >>> field.codec.decode(field, cell)
        array([[1., 2., 3.],
               [4., 5., 6.]])
    """

    codec_id: ClassVar[str] = "ndarray"

    def config(self) -> Mapping[str, JsonValue]:
        """Nothing to configure."""
        return {}

    def check_field(self, field: UnischemaField) -> None:
        """Any dtype of NumPy's own, of any shape.

        Raises:
            SchemaError: The dtype is `Decimal` or `object`.
        """
        check_array_field(field, "NdarrayCodec")

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - always bytes
        """Binary."""
        return pa.binary()

    def encode(self, field: UnischemaField, value: Any) -> bytes:
        """One array to `.npy` bytes, exactly those that `numpy.save` writes.

        Raises:
            EncodeError: Another dtype or shape than declared.
        """
        return array_bytes(array_of_unit(field, array_to_write(field, value)))

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """`.npy` bytes to an array that owns its memory; to a scalar for shape `()`.

        Raises:
            DecodeError: The bytes are damaged, or hold another dtype or shape than declared.
        """
        value = decode_npy(bytes_of_cell(cell, field), field)
        return value[()] if field.is_scalar else value

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Many arrays to a binary column.

        Args:
            values: An array `(rows, *shape)`, or a sequence of arrays; None becomes null.
            field: What was declared.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        if _is_stack(values) and len(values) and field.shape:
            return _encode_stack(values, field)
        if field.shape and arrays_alike(values):
            return _encode_alike(values, field)
        return encode_each(values, self.encode, pa.binary(), field)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """A column of `.npy` cells into `out`.

        Where the shape is free and all cells are alike, the values are parts of one array.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        found = byte_cells(cells, field)
        if not decode_alike(found, Blocks(field), out):
            put_npy_cells(found.__getitem__, field, out)

    def viewer(self, field: UnischemaField) -> Viewer:
        """The arrays of columns whose cells share a header, over Arrow's memory; None for all other columns."""
        return Blocks(field).view

    def alike_viewer(self, field: UnischemaField) -> Viewer:
        """The same of columns of any shape."""
        return Blocks(field).view

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """No more than is stored, where the field does not declare it."""
        return None if field.is_fixed and not field.dtype.hasobject else byte_cells(cells, field).sizes


def put_npy_cells(cell_of: Callable[[int], NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
    """The arrays in the bytes of cells, each into its place in `out`.

    Args:
        cell_of: Gives the `.npy` bytes of a row.
        field: What was declared.
        out: As in `decode_column`.

    Raises:
        DecodeError: As `decode_npy`, with `row` set.
    """
    # Rows of numbers are copied where they belong; anything else is an array of its own.
    in_place = bool(field.shape) and field.is_fixed and field.dtype.kind not in "mM"
    checked: dict[int, NpyHeader] = {}
    row = 0
    try:
        for row in range(len(out)):
            value = _checked_view(cell_of(row), field, checked)
            value = value if in_place else _native(value, field)
            out[row] = value[()] if field.is_scalar else value
    except (NpyError, InexactError) as problem:
        raise _no_array(problem, field).at(row=row) from None
    except DecodeError as problem:
        raise problem.at(row=row) from None


def _checked_view(cell: NDArray[np.uint8], field: UnischemaField, checked: dict[int, NpyHeader]) -> NDArray[Any]:
    """The array in one cell, over its memory; `checked` has the headers that were compared with the field already."""
    header = header_of(cell)
    if id(header) not in checked:
        _check_header(header, field)
        checked[id(header)] = header
    # An array also where it has no dimensions: a text would come out as Python's.
    view: NDArray[Any] = _elements(cell, 0, header, rows=1, step=len(cell))[0, ...]
    return view


def _no_array(problem: ValueError, field: UnischemaField) -> DecodeError:
    return DecodeError(f"the cell is no array of {field.dtype_name}: {problem}", column=field.name)


def decode_npy(cell: NDArray[np.uint8], field: UnischemaField) -> NDArray[Any]:
    """The array in the bytes of one cell, as the field declares it; it owns its memory.

    Raises:
        DecodeError: The bytes are damaged, or hold another dtype or shape than declared.
    """
    try:
        return _native(_checked_view(cell, field, {}), field)
    except (NpyError, InexactError) as problem:
        raise _no_array(problem, field) from None


def _check_header(header: NpyHeader, field: UnischemaField) -> None:
    """Refuse a header that contradicts the field, before any memory is taken.

    Raises:
        DecodeError: Another dtype or shape than declared.
    """
    if not same_dtype(header.dtype, field) or not field.fits(header.shape):
        raise DecodeError(
            f"the cell holds {header.dtype} of shape {header.shape}, but the field declares {field.dtype_name} of "
            f"shape {field.shape}",
            column=field.name,
        )


def array_of_unit(field: UnischemaField, value: NDArray[Any]) -> NDArray[Any]:
    """The array in the time unit of its field; other arrays as they are.

    Raises:
        EncodeError: The unit cannot hold a time exactly.
    """
    if value.dtype.kind not in "mM" or value.dtype.newbyteorder("=") == field.dtype:
        return value
    try:
        return _exact_units(value, field.dtype)
    except InexactError as problem:
        raise EncodeError(f"an array of {value.dtype} cannot be written: {problem}", column=field.name) from None


def _native(stored: NDArray[Any], field: UnischemaField) -> NDArray[Any]:
    """A C-contiguous copy in the machine's byte order and the field's time unit."""
    native = stored.copy("C") if stored.dtype.isnative else stored.astype(stored.dtype.newbyteorder("="), order="C")
    if native.dtype.kind in "mM" and native.dtype != field.dtype:
        return _exact_units(native, field.dtype)
    return native


def _exact_units(times: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Times in another unit; NaT stays NaT.

    Raises:
        InexactError: The unit cannot hold one of them.
    """
    if np.datetime_data(times.dtype)[0] == "generic":
        raise InexactError("the times have no unit")
    known = ~np.isnat(times)
    try:
        converted = times.astype(dtype)
        exact = bool((converted.astype(times.dtype) == times)[known].all())
    except OverflowError:
        exact = False
    if not exact:
        raise InexactError(f"{dtype} cannot hold all times of {times.dtype} exactly")
    return converted


def decode_alike(found: ByteCells, blocks: Blocks, out: NDArray[Any]) -> bool:
    """Decode a column whose cells share a header as one block; False, and nothing done, where they do not.

    Args:
        found: The `.npy` bytes of each row.
        blocks: What sees them as one, of their field; it may know the header of cells before these.
        out: As in `decode_column`; keeps nothing of the memory of the cells.

    Raises:
        DecodeError: The header is of another dtype or shape than declared; `row` is 0.
    """
    try:
        block = blocks.block(found)
    except DecodeError as problem:
        raise problem.at(row=0) from None
    if block is None:
        return False
    if blocks.field.is_fixed and not blocks.field.dtype.hasobject:
        np.copyto(out, block)
    else:
        native = block.astype(block.dtype.newbyteorder("="), order="C", copy=True)
        out[:] = np.fromiter(native, np.object_, count=len(found))
    return True


class _Head(NamedTuple):
    """The bytes that cells begin with, and what they say."""

    start: bytes
    header: NpyHeader


class Blocks:
    """Columns of a field whose cells share a header, each as one array; any thread may ask.

    The header of one column is most often that of the next: it is parsed and compared with the field once.
    """

    def __init__(self, field: UnischemaField) -> None:
        self.field = field
        """What was declared."""
        self._last: _Head | None = None

    def view(self, cells: pa.Array) -> NDArray[Any] | None:
        """The block of a column; None also where a cell has to be refused."""
        if cells.null_count:
            return None
        try:
            return self.block(byte_cells(cells, self.field))
        except DecodeError:
            return None  # decode_column says what is wrong, if anybody wants these cells

    def block(self, found: ByteCells) -> NDArray[Any] | None:
        """The arrays of cells that share a header, (rows, *shape) over their memory; None where they do not.

        Raises:
            DecodeError: The header is of another dtype or shape than declared.
        """
        step = found.even_size
        if step is None:
            return None
        start, rows, head = int(found.starts[0]), len(found), self._last
        if head is None or len(head.start) + head.header.payload != step or not _begins_with(found, start, head.start):
            head = _checked_head(found[0], self.field)
            if head is None:
                return None
            self._last = head
        if not _same_headers(found.data, start, len(head.start), rows, step):
            return None
        return _elements(found.data, start, head.header, rows=rows, step=step)


def _begins_with(found: ByteCells, at: int, start: bytes) -> bool:
    return found.data[at : at + len(start)].tobytes() == start


def _checked_head(cell: NDArray[np.uint8], field: UnischemaField) -> _Head | None:
    """How a cell begins; None where it is no array, or its values are not those of the field as they lie there.

    Raises:
        DecodeError: The header is of another dtype or shape than declared.
    """
    try:
        header = header_of(cell)
    except NpyError:
        return None
    _check_header(header, field)
    in_another_unit = header.dtype.kind in "mM" and header.dtype.newbyteorder("=") != field.dtype
    return None if in_another_unit else _Head(cell[: header.size].tobytes(), header)


def _elements(data: NDArray[np.uint8], start: int, header: NpyHeader, *, rows: int, step: int) -> NDArray[Any]:
    """The elements of evenly spaced cells as one view of shape `(rows, *header.shape)`.

    Args:
        data: Contiguous bytes that hold all cells.
        start: Where the first cell begins.
        header: The header that all cells share.
        rows: How many cells.
        step: Bytes from one cell to the next.
    """
    return np.ndarray((rows, *header.shape), header.dtype, data.data, start + header.size, (step, *header.strides))


def _same_headers(data: NDArray[np.uint8], start: int, size: int, rows: int, step: int) -> bool:
    """Whether `rows` cells begin with the same `size` bytes, of which the last one is not 0."""
    if rows <= _FEW_ROWS:
        # Of few values NumPy compares without letting go of the interpreter lock, which would be got back too late.
        texts = np.ndarray(rows, f"S{size}", data.data, start, step)
        return bool((texts == texts[0]).all())
    # Headers are multiples of 16 bytes, and 8 bytes compare as fast as one.
    word = np.dtype(np.uint64 if size % 8 == 0 else np.uint8)
    heads = np.ndarray((rows, size // word.itemsize), word, data.data, start, (step, word.itemsize))
    first = heads[0].copy()
    return all(bool((heads[begin : begin + _ROWS_AT_ONCE] == first).all()) for begin in range(0, rows, _ROWS_AT_ONCE))


def _is_stack(values: Sequence[Any] | NDArray[Any]) -> TypeGuard[NDArray[Any]]:
    return (
        isinstance(values, np.ndarray) and values.dtype.kind not in "OV" and not isinstance(values, np.ma.MaskedArray)
    )


def _encode_stack(values: NDArray[Any], field: UnischemaField) -> pa.Array:
    """Rows of one array, all with the same header, as one block of bytes."""
    try:
        array_to_write(field, values[0])
        values = array_of_unit(field, values)
    except EncodeError as problem:
        raise problem.at(row=0) from None
    data, elements = _empty_cells(len(values), values.shape[1:], values.dtype)
    elements[...] = values
    return equal_cells_array(data, field)


def _encode_alike(values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
    """Arrays of one dtype and shape, each copied once, into its cell."""
    first = values[0]
    if first.dtype.kind in "mM":  # may be of another unit
        return _encode_stack(np.stack(list(values)), field)
    try:
        array_to_write(field, first)
    except EncodeError as problem:
        raise problem.at(row=0) from None
    data, elements = _empty_cells(len(values), first.shape, first.dtype)
    np.stack(list(values), out=elements)
    return equal_cells_array(data, field)


def _empty_cells(rows: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """The bytes of cells with one header, (rows, size), and their elements, which are still to be written there."""
    like = np.empty(shape, dtype)
    header = npy_header_bytes(like)
    data = np.empty((rows, len(header) + like.nbytes), np.uint8)
    data[:, : len(header)] = np.frombuffer(header, np.uint8)
    strides = (data.shape[1], *like.strides)
    return data, np.ndarray((rows, *shape), dtype, data.data, len(header) if data.size else 0, strides)
