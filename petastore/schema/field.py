"""One field of a schema, and the promise of the codec that stores its values: each is told in terms of the other.

A codec makes one value ⇄ one stored cell, and a whole column of cells at once. A `codec_id` is a promise to read,
forever, what it once wrote: two classes may share an id only if each decodes what the other wrote with the same
configuration. The configuration is JSON and nothing else.

A codec has two faces. The *cell* face (`encode`, `decode`) takes one value; it is the definition. The *column* face
(`encode_column`, `decode_column`) takes a whole Arrow column; it is what readers and writers call, and it must equal
the cell face value by value (`petastore.testing.codec_laws` checks that). `petastore.schema.codec` has further faces.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from petastore.errors import SchemaError
from petastore.schema.dtypes import TIME_KINDS, canonical_dtype, dtype_name

__all__ = ["Codec", "JsonValue", "UnischemaField"]

JsonValue: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any] | None


@runtime_checkable
class Codec(Protocol):
    """What a field's values look like in storage, and how they get there and back.

    Codecs are frozen values: equal configuration means equal codecs and equal hashes. All methods are thread-safe and
    let go of the GIL wherever the library underneath can.
    """

    codec_id: ClassVar[str]
    """Name in the schema document, for instance `"ndarray"`. Never reused for other bytes."""

    def config(self) -> Mapping[str, JsonValue]:
        """The configuration, as JSON, from which an equal codec can be built."""
        ...

    def check_field(self, field: UnischemaField) -> None:
        """Refuse a field that this codec cannot store.

        Raises:
            SchemaError: Naming the field, what it declares and what the codec can do.
        """
        ...

    def storage_type(self, field: UnischemaField) -> Any:
        """The `pyarrow.DataType` of the stored column, as Spark would write it too."""
        ...

    def encode(self, field: UnischemaField, value: Any) -> Any:
        """One value to one stored cell.

        Args:
            field: What was declared. `value` is never None; nulls are the writer's business.
            value: A NumPy array or scalar, or the Python object of the same meaning.

        Returns:
            `bytes`, `str`, `int`, `float`, `bool`, `Decimal`, `datetime` or a list of these: what Arrow and Spark take
            for a cell of `storage_type(field)`.

        Raises:
            EncodeError: Wrong dtype, shape or range; the message says what came and what was declared.
        """
        ...

    def decode(self, field: UnischemaField, cell: Any) -> Any:
        """One stored cell (as `encode` returned it) to one value: a NumPy array or scalar that owns its memory.

        Raises:
            DecodeError: The cell is damaged, or is not what the field declares.
        """
        ...

    def encode_column(self, values: Sequence[Any] | NDArray[Any], field: UnischemaField) -> Any:
        """Many values to one `pyarrow.Array` of `storage_type(field)`; None becomes null.

        Raises:
            EncodeError: As `encode`, with `row` set to the position in `values`.
        """
        ...

    def decode_column(self, cells: Any, field: UnischemaField, out: NDArray[np.generic]) -> None:
        """A whole column into one preallocated array.

        Args:
            cells: A `pyarrow.Array` (not chunked; its offset may be > 0) without nulls.
            field: What was declared.
            out: Array of `len(cells)` values, owned by the caller and written in place. Of dtype `field.dtype` and
                shape `(rows, *field.shape)` where the shape is fixed (`field.is_fixed`); else of dtype object and
                shape `(rows,)`, to be filled with one array each. Its rows are C-contiguous.

        Raises:
            DecodeError: As `decode`, with `row` set to the position in `cells`.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class UnischemaField:
    """One field: what its values are, and how they are stored.

    Frozen and hashable. Two fields are equal when name, dtype, shape, codec and nullability are equal, however the
    dtype was spelled, and whether or not a codec is named that a field without one has anyway.

    Example:
        >>> field = UnischemaField("image", np.uint8, (128, None, 3))
        >>> field
        UnischemaField('image', uint8, (128, None, 3))
        >>> field.is_fixed, field.dtype
        (False, dtype('uint8'))
    """

    name: str
    """Column name; any non-empty text, need not be an identifier."""

    numpy_dtype: Any
    """Dtype of one value: a NumPy scalar type, `Decimal`, or a `np.dtype` where a time unit is meant."""

    shape: tuple[int | None, ...] = ()
    """Shape of one value, `()` for a scalar; `None` is a dimension that differs from row to row."""

    codec: Codec | None = None
    """How a value is stored; None stores it as the Parquet type of the same meaning."""

    nullable: bool = False
    """Whether a value may be missing (`None`). False is kept as REQUIRED in the file, which decodes 2.7 × faster."""

    dtype: np.dtype[Any] = dataclasses.field(init=False, repr=False, compare=False)
    """Dtype of the array that holds many values: `object` for text, bytes and decimals, µs for a bare datetime."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):  # an empty name is one: an index exported through CSV has it
            raise SchemaError(f"name must be text, got {self.name!r}")
        try:
            object.__setattr__(self, "numpy_dtype", canonical_dtype(self.numpy_dtype))
        except SchemaError as problem:
            raise SchemaError(f"field {self.name!r}: {problem}") from None
        if isinstance(self.shape, (str, bytes)) or not hasattr(self.shape, "__iter__"):
            raise SchemaError(f"field {self.name!r}: the shape is a tuple of sizes and None, not {self.shape!r}")
        object.__setattr__(self, "dtype", _dtype_of_many(self.numpy_dtype))
        if not isinstance(self.shape, tuple) or self.shape:
            object.__setattr__(self, "shape", self._checked_shape())
        object.__setattr__(self, "nullable", bool(self.nullable))
        if self.codec is not None:
            if isinstance(self.codec, type) or not hasattr(self.codec, "decode_column"):
                raise SchemaError(
                    f"field {self.name!r}: {self.codec!r} is no codec; give an object such as "
                    "petastore.codecs.NdarrayCodec(), or None"
                )
            self.codec.check_field(self)

    def _checked_shape(self) -> tuple[int | None, ...]:
        shape = tuple(self.shape)
        for size in shape:
            if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0):
                raise SchemaError(f"field {self.name!r}: {size!r} in shape {shape!r} is neither a size nor None")
        return tuple(None if size is None else int(size) for size in shape)

    @property
    def is_scalar(self) -> bool:
        """Whether a value has no dimensions."""
        return self.shape == ()

    @property
    def is_fixed(self) -> bool:
        """Whether all values have one shape and a plain dtype, so that n of them fill one array `(n, *shape)`."""
        return None not in self.shape and (self.dtype.kind != "O" or self.is_scalar)

    @property
    def decoded_bytes(self) -> int | None:
        """Bytes of one value once decoded; None where rows differ (free shapes, text, bytes, decimals)."""
        if self.dtype.kind == "O" or None in self.shape:
            return None
        return math.prod(cast("tuple[int, ...]", self.shape)) * self.dtype.itemsize

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a value may have this shape: `None` is any size, and 0 is 0.

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
        """The codec; None where it says no more than the dtype does."""
        is_implied = getattr(self.codec, "is_implied", None)
        return None if is_implied is not None and is_implied(self) else self.codec

    @property
    def dtype_name(self) -> str:
        """The dtype as the schema document spells it; a bare `datetime64` is `datetime64[us]`."""
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


@functools.lru_cache(maxsize=256)  # a wide table has a thousand fields of a few dtypes
def _dtype_of_many(numpy_dtype: Any) -> np.dtype[Any]:
    if numpy_dtype in (np.str_, np.bytes_, np.object_, Decimal):
        return np.dtype(object)
    if numpy_dtype in (np.datetime64, np.timedelta64):
        return np.dtype(numpy_dtype(0, "us").dtype)
    return np.dtype(numpy_dtype)
