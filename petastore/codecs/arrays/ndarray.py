"""NdarrayCodec: an array as the bytes that `numpy.save` writes."""

from __future__ import annotations

import abc
import dataclasses
import functools
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

__all__ = ["ArrayCodec", "NdarrayCodec"]


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
        try:
            block = _block(found, field)
        except DecodeError as problem:
            raise problem.at(row=0) from None
        if block is None:
            put_npy_cells(found.__getitem__, field, out)
        elif field.is_fixed and not field.dtype.hasobject:
            np.copyto(out, block)
        else:
            native = block.astype(block.dtype.newbyteorder("="), order="C", copy=True)
            out[:] = np.fromiter(native, np.object_, count=len(found))

    def viewer(self, field: UnischemaField) -> Viewer:
        """Return a function that views a column as one array, zero-copy.

        The function returns None if the headers (dtype and shape) of the cells differ.
        """
        return functools.partial(_view, field)

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


def _view(field: UnischemaField, cells: pa.Array) -> NDArray[Any] | None:
    """Return a view of a column as one array (rows, *shape), zero-copy.

    Return None if the cells' headers differ, or if a cell is null or invalid.
    """
    if cells.null_count:
        return None
    try:
        return _block(byte_cells(cells, field), field)
    except DecodeError:
        return None  # `decode_column` raises an error with the reason if these cells are read


def _block(found: ByteCells, field: UnischemaField) -> NDArray[Any] | None:
    """Return a view of all cells as one array (rows, *shape), zero-copy.

    Return None if the cells' headers differ, if the first cell is not an array, or if its time unit differs from the
    field's.

    Raises:
        DecodeError: The header has another dtype or shape than declared.
    """
    step = found.even_size
    if step is None:
        return None
    try:
        header = header_of(found[0])
    except NpyError:
        return None
    _check_header(header, field)
    start, rows = int(found.starts[0]), len(found)
    is_in_unit = header.dtype.kind not in "mM" or header.dtype.newbyteorder("=") == field.dtype
    # Headers are usually multiples of 16 bytes, so 8 bytes are compared at once.
    word = np.dtype(np.uint64 if header.size % 8 == 0 else np.uint8)
    heads = np.ndarray((rows, header.size // word.itemsize), word, found.data.data, start, (step, word.itemsize))
    if not is_in_unit or not (heads == heads[0]).all():
        return None
    return _elements(found.data, start, header, rows=rows, step=step)


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
