"""Field of a schema, and the interfaces of the codec that stores its values.

A codec converts one value to one stored cell and back, and whole columns of cells at once. Cells that were written with
a `codec_id` must stay readable in all later versions. Two classes may have the same id only if each decodes the cells
of the other with the same configuration. The configuration must be JSON.

A codec has two interfaces. The *cell* methods (`encode`, `decode`) convert one value, and define the result. The
*column* methods (`encode_column`, `decode_column`) convert a whole Arrow column. Readers and writers call the column
methods, which must return the same values as the cell methods (`petastore.testing.codec_laws` checks this). The other
interfaces in this module are optional.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from petastore.errors import SchemaError
from petastore.schema.dtypes import TIME_KINDS, canonical_dtype, dtype_name

__all__ = [
    "ArrowCellsCodec",
    "BytesCodec",
    "Codec",
    "JsonValue",
    "MeasuringCodec",
    "UnischemaField",
    "Viewer",
    "ViewingCodec",
]


JsonValue: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any] | None


@runtime_checkable
class Codec(Protocol):
    """Protocol of codecs: storage type, encoding and decoding of a field's values.

    Codecs are immutable: codecs with equal configurations are equal and have equal hashes. All methods must be
    thread-safe, and should release the GIL.
    """

    codec_id: ClassVar[str]
    """Name of the codec in schema documents, such as `"ndarray"`. It must never be reused for another byte format."""

    def config(self) -> Mapping[str, JsonValue]:
        """Return the configuration as a dict of JSON values.

        The constructor accepts the items as keyword arguments, and makes an equal codec.
        """
        ...

    def check_field(self, field: UnischemaField) -> None:
        """Raise `SchemaError` for a field that this codec cannot store.

        Raises:
            SchemaError: The dtype or shape is not supported; the message names the field and the supported ones.
        """
        ...

    def storage_type(self, field: UnischemaField) -> Any:
        """Return the `pyarrow.DataType` of the stored column, as Spark would write it."""
        ...

    def encode(self, field: UnischemaField, value: Any) -> Any:
        """Encode one value as one stored cell.

        Args:
            field: The field of the column.
            value: A NumPy array or scalar, or the equivalent Python object. Never None, because the writer handles
                nulls.

        Returns:
            `bytes`, `str`, `int`, `float`, `bool`, `Decimal`, `datetime` or a list of these: a cell of
            `storage_type(field)` that Arrow and Spark accept.

        Raises:
            EncodeError: The value is out of range, or its dtype or shape does not match the field; the message has
                both.
        """
        ...

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """Decode one stored cell to a NumPy array or scalar that owns its memory.

        Raises:
            DecodeError: The cell is damaged, or does not match the field.
        """
        ...

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> Any:
        """Encode many values as one Arrow column; None becomes null.

        The result is a `pyarrow.Array` of `storage_type(field)`.

        Raises:
            EncodeError: As `encode`, with `row` set to the index in `values`.
        """
        ...

    def decode_column(self, cells: Any, field: UnischemaField, out: NDArray[np.generic]) -> None:
        """Decode a whole column into a preallocated array.

        Args:
            cells: A `pyarrow.Array` (not chunked; its offset may be > 0) without nulls.
            field: The field of the column.
            out: Array of `len(cells)` values, owned by the caller and written in place. With a fixed shape
                (`field.is_fixed`), it has dtype `field.dtype` and shape `(rows, *field.shape)`. Otherwise it has dtype
                object and shape `(rows,)`: store one array per row. `out` is C-contiguous.

        Raises:
            DecodeError: As `decode`, with `row` set to the index in `cells`.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class UnischemaField:
    """A field of a schema: name, dtype, shape, codec and nullability.

    Immutable and hashable. Two fields are equal if name, dtype, shape, codec and nullability are equal. Different
    spellings of a dtype are equal. A field without a codec equals one with a `ScalarCodec` that stores the same type.

    Example:
        >>> field = UnischemaField("image", np.uint8, (128, None, 3))
        >>> field
        UnischemaField('image', uint8, (128, None, 3))
        >>> field.is_fixed, field.dtype
        (False, dtype('uint8'))
    """

    name: str
    """Column name; any non-empty text."""

    numpy_dtype: Any
    """Dtype of one value: a NumPy scalar type, `Decimal`, or a `np.dtype` with a time unit."""

    shape: tuple[int | None, ...] = ()
    """Shape of one value; `()` for a scalar. None stands for a dimension whose size differs from row to row (a free
    dimension)."""

    codec: Codec | None = None
    """Codec of the values; None stores them as the matching Parquet type."""

    nullable: bool = False
    """Whether a value may be missing (`None`). A non-nullable field is REQUIRED in the Parquet file, and decodes 2.7
    times as fast.
    """

    dtype: np.dtype[Any] = dataclasses.field(init=False, repr=False, compare=False)
    """Dtype of an array of values: `object` for text, bytes and decimals; `datetime64[us]` for a datetime without
    unit."""

    def __post_init__(self) -> None:
        # An empty name is valid, because pandas writes the index to CSV under an empty name.
        if not isinstance(self.name, str):
            raise SchemaError(f"name must be text, got {self.name!r}")
        try:
            object.__setattr__(self, "numpy_dtype", canonical_dtype(self.numpy_dtype))
        except SchemaError as problem:
            raise SchemaError(f"field {self.name!r}: {problem}") from None
        if isinstance(self.shape, (str, bytes)) or not hasattr(self.shape, "__iter__"):
            raise SchemaError(f"field {self.name!r}: shape must be a tuple of ints and None, got {self.shape!r}")
        object.__setattr__(self, "dtype", _dtype_of_many(self.numpy_dtype))
        if not isinstance(self.shape, tuple) or self.shape:
            object.__setattr__(self, "shape", self._checked_shape())
        object.__setattr__(self, "nullable", bool(self.nullable))
        if self.codec is not None:
            if isinstance(self.codec, type) or not hasattr(self.codec, "decode_column"):
                raise SchemaError(
                    f"field {self.name!r}: codec must be an object such as petastore.codecs.NdarrayCodec(), or None, "
                    f"got {self.codec!r}"
                )
            self.codec.check_field(self)

    def _checked_shape(self) -> tuple[int | None, ...]:
        shape = tuple(self.shape)
        for size in shape:
            if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0):
                raise SchemaError(
                    f"field {self.name!r}: shape must have ints of at least 0 or None, got {size!r} in {shape!r}"
                )
        return tuple(None if size is None else int(size) for size in shape)

    @property
    def is_scalar(self) -> bool:
        """Whether values have no dimensions."""
        return self.shape == ()

    @property
    def is_fixed(self) -> bool:
        """Whether n values fit into one array `(n, *shape)` of `dtype`.

        The shape must not contain None, and arrays (not scalars) must have a dtype other than `object`.
        """
        return None not in self.shape and (self.dtype.kind != "O" or self.is_scalar)

    @property
    def decoded_bytes(self) -> int | None:
        """Bytes of one decoded value; None if sizes differ from row to row.

        Sizes differ for variable shapes, text, bytes, decimals and objects.
        """
        if self.dtype.kind == "O" or None in self.shape:
            return None
        return math.prod(cast("tuple[int, ...]", self.shape)) * self.dtype.itemsize

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether a value of this shape matches the field.

        None in the field's shape accepts any size.

        Example:
            >>> field = UnischemaField("x", "uint8", (None, 0))
            >>> field.fits((4, 0)), field.fits((4, 1)), field.fits((4,))
            (True, False, False)
        """
        return len(shape) == len(self.shape) and all(
            declared is None or size == declared for size, declared in zip(shape, self.shape, strict=True)
        )

    def _key(self) -> tuple[object, ...]:
        return (self.name, self.dtype_name, self.shape, self._said_codec, self.nullable)

    @property
    def _said_codec(self) -> Codec | None:
        """Codec of the field; None if the field would be stored as the same type without it."""
        is_implied = getattr(self.codec, "is_implied", None)
        return None if is_implied is not None and is_implied(self) else self.codec

    @property
    def dtype_name(self) -> str:
        """Name of the dtype in schema documents.

        `datetime64` without a unit is `datetime64[us]`.
        """
        return dtype_name(self.dtype if self.dtype.kind in TIME_KINDS else self.numpy_dtype)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, UnischemaField) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        parts = [repr(self.name), self.dtype_name]
        parts += [repr(self.shape)] if self.shape else []
        parts += [repr(self.codec)] if self.codec is not None else []
        parts += ["nullable=True"] if self.nullable else []
        return f"UnischemaField({', '.join(parts)})"


@functools.lru_cache(maxsize=256)  # cached: a wide table has a thousand fields of a few dtypes
def _dtype_of_many(numpy_dtype: Any) -> np.dtype[Any]:
    if numpy_dtype in (np.str_, np.bytes_, np.object_, Decimal):
        return np.dtype(object)
    if numpy_dtype in (np.datetime64, np.timedelta64):
        return np.dtype(numpy_dtype(0, "us").dtype)
    return np.dtype(numpy_dtype)


Viewer: TypeAlias = Callable[[Any], "NDArray[Any] | None"]
"""Function that returns a zero-copy view of a column, or None if it must be decoded; see `ViewingCodec.viewer`."""


@runtime_checkable
class ViewingCodec(Codec, Protocol):
    """Codec with columns that need no decoding: their stored bytes are the values.

    An optional interface, which readers use if a codec has it. The result must equal that of `decode_column`.
    """

    def viewer(self, field: UnischemaField) -> Viewer:
        """Return a function that views a column as an array over Arrow's memory.

        The function does not copy the column. A reader calls this method once, and the returned function for every
        column, from any of its threads.

        Args:
            field: Declared field, with a fixed shape and a dtype other than object.

        Returns:
            A function of a `pyarrow.Array` (not chunked; its offset may be > 0), possibly with nulls. The function
            returns a read-only array `(rows, *field.shape)` of `field.dtype` in any byte order, with any strides; at
            nulls, values are arbitrary. It returns None if `decode_column` is needed: if nulls take no space in the
            column, if the cells differ in shape or format, or if a cell may be invalid.
        """
        ...


@runtime_checkable
class BytesCodec(Codec, Protocol):
    """Codec whose cells are files (such as images), each decoded on its own.

    An optional interface, which readers use if a codec has it: cells are decoded in place, even if they are not
    adjacent in memory. The result must equal that of `decode_column`.
    """

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode cells into one preallocated array.

        Args:
            cells: The bytes of each cell, read-only arrays of uint8.
            field: Declared field.
            out: C-contiguous array of `len(cells)` values, written in place. With a fixed shape, it has dtype
                `field.dtype` and shape `(rows, *field.shape)`; otherwise dtype object and shape `(rows,)`.

        Raises:
            DecodeError: As `decode`, with `row` set to the index in `cells`.
        """
        ...


@runtime_checkable
class MeasuringCodec(Codec, Protocol):
    """Codec that reports decoded sizes before decoding.

    This protects against decompression bombs. The interface is optional; readers use it to enforce `max_cell_bytes` and
    `memory_budget`. Decoding must raise an error if a cell expands to more than the reported size.
    """

    def decoded_sizes(self, cells: Any, field: UnischemaField) -> NDArray[np.int64] | None:
        """Return the decoded bytes of each value, from the headers of the cells.

        The method allocates no memory for values. If decoding needs more than the value, such as a whole image for one
        region, return the size of what is decoded. Decoding may temporarily use up to twice as much memory in addition.

        Args:
            cells: A `pyarrow.Array` (not chunked; its offset may be > 0) without nulls.
            field: The field of the column.

        Returns:
            Integer array of shape `(rows,)`; None if all cells have the size that the field declares. Damaged cells
            must not raise here: any number will do, since decoding raises the error.
        """
        ...


@runtime_checkable
class ArrowCellsCodec(Codec, Protocol):
    """Codec that accepts Arrow columns of finished cells, such as image files.

    An optional interface. If a codec has it, writers call it before they convert the column to values.
    """

    def encode_arrow(self, values: Any, field: UnischemaField) -> Any | None:
        """Return the stored cells of an Arrow column.

        Args:
            values: A `pyarrow.Array` (not chunked; its offset may be > 0) without nulls.
            field: Declared field.

        Returns:
            A `pyarrow.Array` of `storage_type(field)`; None if the column has raw values, which `encode_column` must
            encode.

        Raises:
            EncodeError: A cell does not fit the field; `row` is set.
        """
        ...
