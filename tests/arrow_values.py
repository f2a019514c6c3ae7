"""Convert Arrow values and petastore values to one comparable Python form.

This module does not use petastore's code. Floats are compared bit for bit, except that all NaN are equal. Integers,
booleans, text and bytes are distinct. Times are integer counts of their unit.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["of_arrow", "of_petastore"]


def of_arrow(column: Any) -> list[Any]:
    """Return the values of a `pyarrow.Array` or `ChunkedArray` in comparable form."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in of_arrow(chunk)]
    stored, types = column.type, pa.types
    if isinstance(stored, pa.FixedShapeTensorType):
        return _tensors(column)
    if isinstance(column, pa.ExtensionArray):
        return of_arrow(column.storage)
    if types.is_dictionary(stored):
        return of_arrow(column.dictionary_decode())
    if types.is_temporal(stored):
        counts = column.view(pa.int32() if stored.bit_width == 32 else pa.int64()).to_pylist()
        unit = "D" if types.is_date32(stored) else "ms" if types.is_date64(stored) else stored.unit
        kind = "M" if types.is_date(stored) or types.is_timestamp(stored) else "m"
        return [None if count is None else (kind, unit, count) for count in counts]
    if types.is_struct(stored):
        members = [of_arrow(column.field(number)) for number in range(stored.num_fields)]
        rows = [dict(zip(stored.names, row, strict=True)) for row in zip(*members, strict=True)]
        return [row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)]
    if types.is_map(stored) or hasattr(stored, "value_type"):
        return [of_arrow_list(scalar) for scalar in column]
    return [_scalar(value) for value in column.to_pylist()]


def of_arrow_list(scalar: Any) -> Any:
    """Return the items of a list scalar, the pairs of a map scalar, or None."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar.type, pa.MapType):
        pairs = scalar.values
        return [list(pair) for pair in zip(of_arrow(pairs.field(0)), of_arrow(pairs.field(1)), strict=True)]
    return of_arrow(scalar.values)


def _tensors(column: Any) -> list[Any]:
    axes = column.type.permutation or range(len(column.type.shape))
    found: list[Any] = []
    for cell in of_arrow(column.storage):
        if cell is None:
            found.append(None)
            continue
        flat = np.empty(len(cell), object)
        flat[:] = cell
        found.append(flat.reshape(column.type.shape).transpose(axes).tolist())
    return found


def of_petastore(value: Any) -> Any:
    """Return a value of a row or batch in comparable form; arrays and dicts are converted recursively."""
    if value is None or value is np.ma.masked:
        return None
    if isinstance(value, np.ma.MaskedArray):
        return [None if np.ma.getmaskarray(one).all() and np.size(one) else of_petastore(one) for one in value]
    if isinstance(value, np.ndarray) and value.ndim:
        return [of_petastore(one) for one in value]
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return value.dtype.kind, np.datetime_data(value.dtype)[0], int(value.astype(np.int64))
    if isinstance(value, dict):
        return {name: of_petastore(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [of_petastore(one) for one in value]
    return _scalar(value.item() if isinstance(value, (np.generic, np.ndarray)) else value)


def _scalar(value: Any) -> Any:
    if isinstance(value, float):
        return "float", value.hex()  # `hex()` of every NaN is "nan", so all NaN are equal
    if isinstance(value, Decimal):
        return "decimal", str(value)
    return value if value is None else (type(value).__name__, value)
