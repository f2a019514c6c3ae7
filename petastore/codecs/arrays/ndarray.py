"""NdarrayCodec: an array as the bytes that `numpy.save` writes."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrays.npy import NpyError, NpyHeader, array_bytes, header_of, npy_header_bytes
from petastore.codecs.arrow.arrow_views import ByteCells, byte_cells, bytes_of_cell, equal_cells_array
from petastore.codecs.arrow.numpy_to_arrow import encode_each
from petastore.codecs.arrow.scalars import InexactError, exact_times
from petastore.codecs.declared import array_to_write, arrays_alike, check_array_field, same_dtype
from petastore.errors import DecodeError, EncodeError
from petastore.schema.field import JsonValue, UnischemaField, Viewer

__all__ = ["ArrayCodec", "Blocks", "NdarrayCodec"]

# Headers are compared in chunks of this many rows: 4096 headers of 128 bytes fit into the second-level CPU cache.
_ROWS_AT_ONCE = 4096

_FEW_ROWS = 500
"""Maximum number of rows for which headers are compared as NumPy byte strings.

Such a comparison ignores zero bytes at the end, but a header never ends with a zero byte.
"""


class ArrayCodec(abc.ABC):
    """Base class of codecs that store an array as bytes.

    Subclasses define how a cell stores the `.npy` bytes.
    """

    __slots__ = ()

    def config(self) -> Mapping[str, JsonValue]:
        """Return an empty dict, because the codec has no parameters."""
        return {}

    def check_field(self, field: UnischemaField) -> None:
        """Accept fields with a NumPy dtype, of any shape.

        Raises:
            SchemaError: The dtype is `Decimal` or `object`.
        """
        check_array_field(field, type(self).__name__)

    def storage_type(self, field: UnischemaField) -> pa.DataType:  # noqa: ARG002 - bytes for every field
        """Return Arrow's binary type."""
        return pa.binary()

    @abc.abstractmethod
    def _stored(self, array: NDArray[Any]) -> bytes:
        """Return the bytes that a cell stores for an array."""

    @abc.abstractmethod
    def _npy(self, cell: NDArray[np.uint8], field: UnischemaField) -> NDArray[np.uint8]:
        """Return the `.npy` bytes in a cell."""

    def encode(self, field: UnischemaField, value: Any) -> bytes:
        """Encode one array to the bytes of a cell, exactly as NumPy writes them.

        Raises:
            EncodeError: The dtype or shape differs from the declared one.
        """
        return self._stored(array_of_unit(field, array_to_write(field, value)))

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """Decode the bytes of a cell to an array that owns its memory.

        For shape `()`, the result is a scalar.

        Raises:
            DecodeError: The bytes are damaged, are larger after decompression than declared, or have another dtype or
                shape than declared.
        """
        try:
            value = _native(_checked_view(self._npy(bytes_of_cell(cell, field), field), field, {}), field)
        except (NpyError, InexactError) as problem:
            raise _no_array(problem, field) from None
        return value[()] if field.is_scalar else value

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Encode many arrays to a binary column.

        Args:
            values: An array `(rows, *shape)`, or a sequence of arrays; None becomes null.
            field: Declared field.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        return encode_each(values, self.encode, pa.binary(), field)


@dataclasses.dataclass(frozen=True, slots=True)
class NdarrayCodec(ArrayCodec):
    r"""A codec for arrays of numbers, booleans, times, text or bytes, in `.npy` format.

    It never uses pickle. Thread-safe. If all cells of a column have the same shape, the column is decoded by one
    strided copy from Arrow's buffer. `.npy` versions 1.0 to 3.0 are read, in both memory orders and byte orders.
    Decoded arrays are C-contiguous and in native byte order.

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

    def _stored(self, array: NDArray[Any]) -> bytes:
        return array_bytes(array)

    def _npy(self, cell: NDArray[np.uint8], field: UnischemaField) -> NDArray[np.uint8]:  # noqa: ARG002 - same as cell
        return cell

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
        """Encode many arrays to a binary column.

        Args:
            values: An array `(rows, *shape)`, or a sequence of arrays; None becomes null.
            field: The field of the column.

        Raises:
            EncodeError: As `encode`, with `row` set.
        """
        if field.shape and len(values) and (_is_stack(values) or arrays_alike(values)):
            return _encode_alike(values, field)
        return encode_each(values, self.encode, pa.binary(), field)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode a column of `.npy` cells into `out`.

        If the field has a variable shape and all cells have the same shape, the values are views of one array.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        found = byte_cells(cells, field)
        if not decode_alike(found, Blocks(field), out):
            put_npy_cells(found.__getitem__, field, out)

    def viewer(self, field: UnischemaField) -> Viewer:
        """Return a function that views a column as one array, zero-copy.

        The function returns None if the headers (dtype and shape) of the cells differ.
        """
        return Blocks(field).view

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """Return the size of each cell, which is an upper bound of its decoded size.

        Return None if all values of the field have the same size.
        """
        return None if field.is_fixed and not field.dtype.hasobject else byte_cells(cells, field).sizes


def put_npy_cells(cell_of: Callable[[int], NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
    """Decode cells one by one, each into its row of `out`.

    Args:
        cell_of: Function from a row to its `.npy` bytes.
        field: Declared field.
        out: As in `decode_column`.

    Raises:
        DecodeError: As `ArrayCodec.decode`, with `row` set.
    """
    # Assigning numbers of a fixed shape to `out` copies them. Other values need their own memory, or another time unit.
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
    """Return the array in one cell, zero-copy.

    Args:
        cell: The `.npy` bytes.
        field: Declared field.
        checked: Headers that match the field, by their `id`. A new header is checked and added.

    Raises:
        DecodeError: The header has another dtype or shape than declared.
    """
    header = header_of(cell)
    if id(header) not in checked:
        _check_header(header, field)
        checked[id(header)] = header
    # Indexing with `...` keeps an array also for 0-dimensional values; text would otherwise become a Python str.
    view: NDArray[Any] = _elements(cell, 0, header, rows=1, step=len(cell))[0, ...]
    return view


def _no_array(problem: ValueError, field: UnischemaField) -> DecodeError:
    return DecodeError(
        f"the cell is not an array of {field.dtype_name}: {problem}. Write the cell again, or skip bad rows with "
        "on_error='skip'",
        column=field.name,
    )


def _check_header(header: NpyHeader, field: UnischemaField) -> None:
    """Raise an error if a header contradicts the field, before memory is allocated.

    Raises:
        DecodeError: The dtype or shape differs from the declared one.
    """
    if not same_dtype(header.dtype, field) or not field.fits(header.shape):
        raise DecodeError(
            f"the cell must be {field.dtype_name} of shape {field.shape}, as the field declares, got {header.dtype} of "
            f"shape {header.shape}. Correct the schema, or skip bad rows with on_error='skip'",
            column=field.name,
        )


def array_of_unit(field: UnischemaField, value: NDArray[Any]) -> NDArray[Any]:
    """Return an array of times in the time unit of its field; other arrays unchanged.

    Raises:
        EncodeError: A time cannot be converted exactly.
    """
    if value.dtype.kind not in "mM" or value.dtype.newbyteorder("=") == field.dtype:
        return value
    try:
        return exact_times(value, field.dtype)
    except InexactError as problem:
        raise EncodeError(
            f"an array of {value.dtype} cannot be written as {field.dtype_name}: {problem}", column=field.name
        ) from None


def _native(stored: NDArray[Any], field: UnischemaField) -> NDArray[Any]:
    """Return a C-contiguous copy, in native byte order and in the field's time unit."""
    native = stored.copy("C") if stored.dtype.isnative else stored.astype(stored.dtype.newbyteorder("="), order="C")
    return exact_times(native, field.dtype) if native.dtype.kind in "mM" else native


def decode_alike(found: ByteCells, blocks: Blocks, out: NDArray[Any]) -> bool:
    """Decode all cells as one array, if their headers are equal.

    Return whether the headers are equal; if they differ, `out` is unchanged.

    Args:
        found: The `.npy` bytes of each row.
        blocks: Viewer of the field's cells as one block; it caches the last header.
        out: As in `decode_column`; must not share memory with the cells.

    Raises:
        DecodeError: The header has another dtype or shape than declared; `row` is 0.
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


class Blocks:
    """Zero-copy view of a column of `.npy` cells as one array. Thread-safe.

    The view exists only if all cells have the same header. Successive columns usually have the same header, so a header
    is parsed and compared with the field only once.
    """

    def __init__(self, field: UnischemaField) -> None:
        self.field = field
        """Declared field."""
        self._last: tuple[bytes, NpyHeader] | None = None  # header of the last column, as bytes and parsed

    def view(self, cells: pa.Array) -> NDArray[Any] | None:
        """Return a view of a column as one array (rows, *shape).

        Return None if the cells' headers differ, or if a cell is null or invalid.
        """
        if cells.null_count:
            return None
        try:
            return self.block(byte_cells(cells, self.field))
        except DecodeError:
            return None  # `decode_column` raises an error with the reason if these cells are read

    def block(self, found: ByteCells) -> NDArray[Any] | None:
        """Return a view of all cells as one array (rows, *shape), zero-copy.

        Return None if the cells' headers differ.

        Raises:
            DecodeError: The header has another dtype or shape than declared.
        """
        step = found.even_size
        if step is None:
            return None
        start, rows, head = int(found.starts[0]), len(found), self._last
        if head is None or len(head[0]) + head[1].payload != step or not _begins_with(found, start, head[0]):
            head = _checked_head(found[0], self.field)
            if head is None:
                return None
            self._last = head
        encoded, header = head
        if not _same_headers(found.data, start, len(encoded), rows, step):
            return None
        return _elements(found.data, start, header, rows=rows, step=step)


def _begins_with(found: ByteCells, at: int, start: bytes) -> bool:
    return found.data[at : at + len(start)].tobytes() == start


def _checked_head(cell: NDArray[np.uint8], field: UnischemaField) -> tuple[bytes, NpyHeader] | None:
    """Return the header of a cell, as bytes and parsed.

    Return None if the cell is not an array, or if its time unit differs from the field's.

    Raises:
        DecodeError: The header has another dtype or shape than declared.
    """
    try:
        header = header_of(cell)
    except NpyError:
        return None
    _check_header(header, field)
    in_another_unit = header.dtype.kind in "mM" and header.dtype.newbyteorder("=") != field.dtype
    return None if in_another_unit else (cell[: header.size].tobytes(), header)


def _elements(data: NDArray[np.uint8], start: int, header: NpyHeader, *, rows: int, step: int) -> NDArray[Any]:
    """Return the elements of evenly spaced cells as one view (rows, *header.shape).

    Args:
        data: Contiguous bytes that hold all cells.
        start: Position of the first cell.
        header: Header of all cells.
        rows: Number of cells.
        step: Distance in bytes from the start of a cell to the start of the next one.
    """
    return np.ndarray((rows, *header.shape), header.dtype, data.data, start + header.size, (step, *header.strides))


def _same_headers(data: NDArray[np.uint8], start: int, size: int, rows: int, step: int) -> bool:
    """Return whether all cells begin with the same header.

    Args:
        data: Contiguous bytes that hold all cells.
        start: Position of the first cell.
        size: Bytes of a header. The last one must not be 0, because NumPy ignores zero bytes at the end of strings.
        rows: Number of cells.
        step: Distance in bytes from the start of a cell to the start of the next one.
    """
    if rows <= _FEW_ROWS:
        # NumPy compares small arrays without releasing the GIL. Reacquiring the GIL would take longer than comparing.
        texts = np.ndarray(rows, f"S{size}", data.data, start, step)
        return bool((texts == texts[0]).all())
    # Headers are usually multiples of 16 bytes, so 8 bytes are compared at once, which is as fast as one byte.
    word = np.dtype(np.uint64 if size % 8 == 0 else np.uint8)
    heads = np.ndarray((rows, size // word.itemsize), word, data.data, start, (step, word.itemsize))
    first = heads[0].copy()
    return all(bool((heads[begin : begin + _ROWS_AT_ONCE] == first).all()) for begin in range(0, rows, _ROWS_AT_ONCE))


def _is_stack(values: Sequence[Any] | NDArray[Any]) -> bool:
    return (
        isinstance(values, np.ndarray) and values.dtype.kind not in "OV" and not isinstance(values, np.ma.MaskedArray)
    )


def _encode_alike(values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> pa.Array:
    """Encode arrays of equal dtype and shape to a binary column, with one copy each."""
    try:
        array_to_write(field, values[0])
        if values[0].dtype.kind in "mM":  # times may be stored in another unit
            values = array_of_unit(field, np.stack(list(values)))
    except EncodeError as problem:
        raise problem.at(row=0) from None
    data, elements = _empty_cells(len(values), values[0].shape, values[0].dtype)
    if _is_stack(values):
        elements[...] = values
    else:
        np.stack(list(values), out=elements)
    return equal_cells_array(data, field)


def _empty_cells(rows: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Return cells with equal headers, and a view of their elements.

    The cells have the shape (rows, bytes), and the view (rows, *shape). The caller writes the elements through the
    view.
    """
    like = np.empty(shape, dtype)
    header = npy_header_bytes(like)
    data = np.empty((rows, len(header) + like.nbytes), np.uint8)
    data[:, : len(header)] = np.frombuffer(header, np.uint8)
    strides = (data.shape[1], *like.strides)
    return data, np.ndarray((rows, *shape), dtype, data.data, len(header) if data.size else 0, strides)
