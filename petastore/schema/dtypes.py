"""Dtype of a field: one canonical form, and its name in the schema document."""

from __future__ import annotations

import functools
import re
from decimal import Decimal
from typing import Any

import numpy as np

from petastore.errors import SchemaError

__all__ = ["TIME_KINDS", "canonical_dtype", "dtype_from_name", "dtype_name"]

_PYTHON_TYPES: dict[type, Any] = {str: np.str_, bytes: np.bytes_, int: np.int64, float: np.float64, bool: np.bool_}
_NAMED_DTYPES: dict[str, Any] = {"str": np.str_, "bytes": np.bytes_, "object": np.object_, "decimal": Decimal}
_NAMES_OF_DTYPES = {dtype: name for name, dtype in _NAMED_DTYPES.items()}
# Accepts only names that `dtype_name` writes, not all that NumPy parses, because documents are untrusted.
_NUMPY_NAME = re.compile(
    r"bool|u?int[0-9]{1,2}|float[0-9]{2,3}|complex[0-9]{2,3}|(datetime|timedelta)64(\[[0-9]{0,9}[a-zA-Z]{1,2}\])?"
)
_NUMBER_KINDS = "biufc"
TIME_KINDS = "mM"
"""`dtype.kind` of NumPy's time dtypes: `m` for timedelta64, `M` for datetime64."""


def canonical_dtype(dtype: Any) -> Any:
    """Return the canonical dtype of a field.

    Returns:
        A NumPy scalar type (`np.int32`, `np.str_`, `np.bytes_`, `np.datetime64`, …), `decimal.Decimal`, or, for times
        with a unit, a `np.dtype` such as `datetime64[us]`.

    Raises:
        SchemaError: The dtype is structured, or the value is not a dtype.

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
        # NumPy treats None as float64, but here None means that the dtype is missing.
        numpy_dtype = np.dtype(dtype if dtype is not None else "none")
    except (TypeError, ValueError, SyntaxError):
        raise SchemaError(f"numpy_dtype must be a NumPy dtype, str, bytes or Decimal, got {dtype!r}") from None
    if numpy_dtype.kind in TIME_KINDS and np.datetime_data(numpy_dtype)[0] != "generic":
        return numpy_dtype.newbyteorder("=")
    if numpy_dtype.kind in _NUMBER_KINDS:
        return _type_of_number(numpy_dtype)
    if numpy_dtype.kind in TIME_KINDS + "OSU":
        return numpy_dtype.type
    raise SchemaError(
        f"numpy_dtype must be a scalar dtype, got {numpy_dtype}: structured and void dtypes have no codec"
    )


@functools.cache  # cached: there are few dtypes, and NumPy is slow to return their names
def _type_of_number(dtype: np.dtype[Any]) -> type[np.generic]:
    """Return the canonical type of a number dtype, looked up by its name.

    C has several types of one size: `longlong`, for example, is also `int64`.
    """
    return np.dtype(dtype.name).type


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype in the schema document, such as `"datetime64[us]"`.

    Example:
        >>> dtype_name(np.float32), dtype_name(Decimal), dtype_name(np.str_)
        ('float32', 'decimal', 'str')
    """
    canonical = canonical_dtype(dtype)
    return _NAMES_OF_DTYPES[canonical] if canonical in _NAMES_OF_DTYPES else np.dtype(canonical).name


@functools.lru_cache(maxsize=256)  # cached: a wide table has a thousand fields of a few dtypes
def dtype_from_name(name: str) -> Any:
    """Return the dtype of a name from `dtype_name`.

    Raises:
        SchemaError: No dtype has that name.
    """
    if name in _NAMED_DTYPES:
        return _NAMED_DTYPES[name]
    if not _NUMPY_NAME.fullmatch(name):
        raise SchemaError(
            f"dtype must be a name such as 'int32', 'str', 'bytes', 'decimal' or 'datetime64[us]', got {name!r}"
        )
    return canonical_dtype(name)
