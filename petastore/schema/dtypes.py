"""The dtype of a field: its one spelling, and its name in the schema document."""

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
# What `dtype_name` gives, and nothing else that NumPy would parse: documents are not trusted.
_NUMPY_NAME = re.compile(
    r"bool|u?int[0-9]{1,2}|float[0-9]{2,3}|complex[0-9]{2,3}|(datetime|timedelta)64(\[[0-9]{0,9}[a-zA-Z]{1,2}\])?"
)
_NUMBER_KINDS = "biufc"
TIME_KINDS = "mM"
"""Kinds of NumPy's dtypes of times."""


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
    if numpy_dtype.kind in TIME_KINDS and np.datetime_data(numpy_dtype)[0] != "generic":
        return numpy_dtype.newbyteorder("=")
    if numpy_dtype.kind in _NUMBER_KINDS:
        return _type_of_number(numpy_dtype)
    if numpy_dtype.kind in TIME_KINDS + "OSU":
        return numpy_dtype.type
    raise SchemaError(f"the dtype {numpy_dtype} cannot be that of a field: structured and void dtypes have no codec")


@functools.cache  # there are few, and NumPy takes long to name one
def _type_of_number(dtype: np.dtype[Any]) -> type[np.generic]:
    """By name, because C has several types of one size: `longlong` is `int64`."""
    return np.dtype(dtype.name).type


def dtype_name(dtype: Any) -> str:
    """The name of a dtype in the schema document: `"int32"`, `"str"`, `"decimal"`, `"datetime64[us]"`, …

    Example:
        >>> dtype_name(np.float32), dtype_name(Decimal), dtype_name(np.str_)
        ('float32', 'decimal', 'str')
    """
    canonical = canonical_dtype(dtype)
    return _NAMES_OF_DTYPES[canonical] if canonical in _NAMES_OF_DTYPES else np.dtype(canonical).name


@functools.lru_cache(maxsize=256)  # a wide table has a thousand fields of a few dtypes
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
