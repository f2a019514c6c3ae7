"""One field of a schema: its name, dtype, shape, codec and whether it may be null."""

from __future__ import annotations

import dataclasses
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from petastore.errors import SchemaError

if TYPE_CHECKING:
    from petastore.schema.codec import Codec

__all__ = ["UnischemaField", "canonical_dtype", "dtype_from_name", "dtype_name"]

_PYTHON_TYPES: dict[type, Any] = {str: np.str_, bytes: np.bytes_, int: np.int64, float: np.float64, bool: np.bool_}
_NAMED_DTYPES: dict[str, Any] = {"str": np.str_, "bytes": np.bytes_, "object": np.object_, "decimal": Decimal}
_NAMES_OF_DTYPES = {dtype: name for name, dtype in _NAMED_DTYPES.items()}
# What `dtype_name` gives, and nothing else that NumPy would parse: documents are not trusted.
_NUMPY_NAME = re.compile(
    r"bool|u?int[0-9]{1,2}|float[0-9]{2,3}|complex[0-9]{2,3}|(datetime|timedelta)64(\[[0-9]{0,9}[a-zA-Z]{1,2}\])?"
)
_NUMBER_KINDS = "biufc"
_TIME_KINDS = "mM"


def canonical_dtype(dtype: Any) -> Any:
    """The one spelling of a field's dtype.

    Returns:
        A NumPy scalar type (`np.int32`, `np.str_`, `np.bytes_`, `np.datetime64`, …), `decimal.Decimal`, or, for times
        with a unit, a `np.dtype` such as `datetime64[us]`.

    Raises:
        SchemaError: The dtype is structured, or is no dtype at all.

    Example:
        >>> canonical_dtype("uint8"), canonical_dtype(str), canonical_dtype(np.dtype("<i4"))
        (<class 'numpy.uint8'>, <class 'numpy.str_'>, <class 'numpy.int32'>)
        >>> canonical_dtype("datetime64[us]")
        dtype('<M8[us]')
    """
    if dtype is Decimal or dtype == "decimal":
        return Decimal
    if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        return _PYTHON_TYPES[dtype]
    try:
        # NumPy takes None for float64; here it is a dtype that was forgotten.
        numpy_dtype = np.dtype(dtype if dtype is not None else "none")
    except (TypeError, ValueError, SyntaxError):
        raise SchemaError(f"{dtype!r} is no NumPy dtype; a field takes a NumPy dtype, str, bytes or Decimal") from None
    if numpy_dtype.kind in _TIME_KINDS and np.datetime_data(numpy_dtype)[0] != "generic":
        return numpy_dtype.newbyteorder("=")
    if numpy_dtype.kind in _NUMBER_KINDS:
        # By name, because C has several types of one size: `longlong` is `int64`.
        return np.dtype(numpy_dtype.name).type
    if numpy_dtype.kind in _TIME_KINDS + "OSU":
        return numpy_dtype.type
    raise SchemaError(f"the dtype {numpy_dtype} cannot be that of a field: structured and void dtypes have no codec")


def dtype_name(dtype: Any) -> str:
    """The name of a dtype in the schema document: `"int32"`, `"str"`, `"decimal"`, `"datetime64[us]"`, …

    Example:
        >>> dtype_name(np.float32), dtype_name(Decimal), dtype_name(np.str_)
        ('float32', 'decimal', 'str')
    """
    canonical = canonical_dtype(dtype)
    return _NAMES_OF_DTYPES[canonical] if canonical in _NAMES_OF_DTYPES else np.dtype(canonical).name


def dtype_from_name(name: str) -> Any:
    """The dtype that `dtype_name` gave that name.

    Raises:
        SchemaError: No dtype has that name.
    """
    if name in _NAMED_DTYPES:
        return _NAMED_DTYPES[name]
    if not _NUMPY_NAME.fullmatch(name):
        raise SchemaError(f"{name!r} is no name of a dtype")
    return canonical_dtype(name)


@dataclasses.dataclass(frozen=True, slots=True)
class UnischemaField:
    """One field: what its values are, and how they are stored.

    Frozen and hashable. Two fields are equal when name, dtype, shape, codec and nullability are equal, however the
    dtype was spelled.

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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"a field needs a name, but {self.name!r} was given")
        try:
            object.__setattr__(self, "numpy_dtype", canonical_dtype(self.numpy_dtype))
        except SchemaError as problem:
            raise SchemaError(f"field {self.name!r}: {problem}") from None
        if isinstance(self.shape, (str, bytes)) or not hasattr(self.shape, "__iter__"):
            raise SchemaError(f"field {self.name!r}: the shape is a tuple of sizes and None, not {self.shape!r}")
        object.__setattr__(self, "shape", tuple(self.shape))
        for size in self.shape:
            if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0):
                raise SchemaError(f"field {self.name!r}: {size!r} in shape {self.shape!r} is neither a size nor None")
        object.__setattr__(self, "shape", tuple(None if size is None else int(size) for size in self.shape))
        object.__setattr__(self, "nullable", bool(self.nullable))
        if self.codec is not None:
            if isinstance(self.codec, type) or not hasattr(self.codec, "decode_column"):
                raise SchemaError(
                    f"field {self.name!r}: {self.codec!r} is no codec; give an object such as "
                    "petastore.codecs.NdarrayCodec(), or None"
                )
            self.codec.check_field(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the array that holds many values: `object` for text, bytes and decimals, µs for a bare datetime."""
        if self.numpy_dtype in (np.str_, np.bytes_, np.object_, Decimal):
            return np.dtype(object)
        if self.numpy_dtype in (np.datetime64, np.timedelta64):
            return np.dtype(self.numpy_dtype(0, "us").dtype)
        return np.dtype(self.numpy_dtype)

    @property
    def is_scalar(self) -> bool:
        """Whether a value has no dimensions."""
        return self.shape == ()

    @property
    def is_fixed(self) -> bool:
        """Whether all values have one shape and a plain dtype, so that n of them fill one array `(n, *shape)`."""
        return None not in self.shape and (self.dtype != np.dtype(object) or self.is_scalar)

    @property
    def decoded_bytes(self) -> int | None:
        """Bytes of one value once decoded; None where rows differ (free shapes, text, bytes, decimals)."""
        if not self.is_fixed or self.dtype == np.dtype(object):
            return None
        return math.prod(size for size in self.shape if size is not None) * self.dtype.itemsize

    def _key(self) -> tuple[object, ...]:
        return (self.name, self.dtype_name, self.shape, self.codec, self.nullable)

    @property
    def dtype_name(self) -> str:
        """The dtype as the schema document spells it; a bare `datetime64` is `datetime64[us]`."""
        return dtype_name(self.dtype if self.dtype.kind in _TIME_KINDS else self.numpy_dtype)

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
