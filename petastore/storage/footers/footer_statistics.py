"""Statistics of row groups from the footers: minimum, maximum and null count.

Bounds (minimum and maximum) are in the types that filters compare (the column's domain, `petastore.expressions.bind`).
Statistics are read only for filters, and only for their columns. Bounds are treated as unknown if the minimum is larger
than the maximum, or if their type does not fit the declared type of the values. Truncated bounds are valid, because
writers round them outwards.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.expressions.statistics import ColumnStatistics
from petastore.inventory import Inventory
from petastore.schema.arrow import is_bytes, is_text
from petastore.schema.field import UnischemaField
from petastore.storage.files.location import Location
from petastore.storage.footers.chunk_metadata import ChunkContents, chunk_contents
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_cache import FooterCache

__all__ = ["footer_statistics", "read_statistics"]


# Physical types of Parquet.
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY, _FIXED = 0, 1, 2, 4, 5, 6, 7
_LONGEST_DECIMAL = 32
_DECIMALS = Context(prec=100)


def read_statistics(
    location: Location,
    inventory: Inventory,
    fields: Sequence[UnischemaField],
    *,
    groups: NDArray[np.int64],
    footers: FooterCache,
) -> dict[str, ColumnStatistics]:
    """Return a dict from column name to its statistics in the footers, per row group.

    Only the files with `groups` are read, by up to 16 threads; statistics of row groups in other files stay unknown.

    Args:
        location: Location of the dataset.
        inventory: Inventory of the dataset.
        fields: Stored scalar columns, without a codec or with `ScalarCodec`.
        groups: Row groups of interest, by their numbers in the dataset.
        footers: Cache of footers.

    Raises:
        DatasetChangedError: A file differs from the inventory.
        MetadataError: A footer is damaged.
        StorageError: A file cannot be read.
    """

    def of_file(footer: Footer, ordinals: NDArray[np.int32]) -> dict[str, dict[str, NDArray[Any]]]:
        return {
            name: {part.name: getattr(column, part.name)[ordinals] for part in dataclasses.fields(column)}
            for name, column in footer_statistics(footer, fields).items()
        }

    of_files = list(footers.look_through(location, inventory, np.unique(inventory.file[groups]).tolist(), of_file))
    return {field.name: _joined(inventory, field, [(own, of[field.name]) for own, of in of_files]) for field in fields}


def _joined(
    inventory: Inventory, field: UnischemaField, of_files: Sequence[tuple[slice, Mapping[str, NDArray[Any]]]]
) -> ColumnStatistics:
    known = ColumnStatistics.unknown(inventory.num_row_groups)
    dtype = _domain_dtype(field)
    arrays = {part.name: getattr(known, part.name).copy() for part in dataclasses.fields(known)}
    arrays["minimum"], arrays["maximum"] = (np.zeros(inventory.num_row_groups, dtype=dtype) for _ in range(2))
    for own, of_file in of_files:
        for name, array in arrays.items():
            array[own] = of_file[name]
    return ColumnStatistics(**arrays)


def footer_statistics(footer: Footer, fields: Sequence[UnischemaField]) -> dict[str, ColumnStatistics]:
    """Return a dict from column name to its statistics in one file's footer.

    Arrays have shape (row groups of the file,).

    Raises:
        MetadataError: The footer is damaged.
    """
    rows = footer.groups["rows"]
    leaves = {field.name: footer.leaves.get(field.name, range(0)) for field in fields}
    wanted = {leaf for own in leaves.values() if len(own) == 1 for leaf in own}
    groups = chunk_contents(footer.encoded, wanted, source=footer.file.path)
    known = {}
    for field in fields:
        if footer.columns.lacks(field.name):
            known[field.name] = _all_missing(field, rows)
            continue
        # Statistics of a list are unknown, because the null count of its leaf counts null items, not null lists.
        if len(leaves[field.name]) != 1 or _is_nested(footer.columns.field(field.name).type):
            known[field.name] = ColumnStatistics.unknown(len(rows))
            continue
        chunks = [group.get(leaves[field.name][0], ChunkContents()) for group in groups]
        if _may_undercount_nulls(footer, field.name, chunks):
            chunks = [chunk._replace(nulls=None) for chunk in chunks]
        known[field.name] = _column(field, footer.columns.field(field.name), chunks, rows)
    return known


def _may_undercount_nulls(footer: Footer, name: str, chunks: Sequence[ChunkContents]) -> bool:
    """Return whether a struct member's null counts may omit rows with a null struct.

    For a member that is a dictionary array, pyarrow ignores nulls of the struct when it writes statistics. Only text
    and bytes are written from dictionary arrays.
    """
    are_bytes = any(chunk.physical == _BYTE_ARRAY for chunk in chunks)
    return are_bytes and name in footer.columns.members and footer.written_by.startswith("parquet-cpp")


def _is_nested(stored: pa.DataType) -> bool:
    return pa.types.is_nested(stored.storage_type if isinstance(stored, pa.BaseExtensionType) else stored)


def _all_missing(field: UnischemaField, rows: NDArray[np.int64]) -> ColumnStatistics:
    """Return the statistics of a column that is not in the file: all rows are null."""
    bounds, none = np.zeros(len(rows), dtype=_domain_dtype(field)), np.zeros(len(rows), np.bool_)
    return ColumnStatistics(bounds, bounds, none, none, nulls=rows, may_be_nan=none)


def _column(
    field: UnischemaField, stored: pa.Field, chunks: Sequence[ChunkContents], rows: NDArray[np.int64]
) -> ColumnStatistics:
    convert = _conversion(stored.type, field)
    bounds = [_bounds(chunk, convert) for chunk in chunks]
    dtype = _domain_dtype(field)
    nulls = np.array([-1 if chunk.nulls is None else min(chunk.nulls, 2**62) for chunk in chunks], dtype=np.int64)
    nulls[(nulls < 0) | (nulls > rows)] = -1
    if not stored.nullable:
        nulls[:] = 0
    return ColumnStatistics(
        minimum=_array([low for low, _ in bounds], dtype),
        maximum=_array([high for _, high in bounds], dtype),
        has_minimum=np.array([low is not None for low, _ in bounds], dtype=np.bool_),
        has_maximum=np.array([high is not None for _, high in bounds], dtype=np.bool_),
        nulls=nulls,
        may_be_nan=np.full(len(rows), field.dtype.kind == "f"),
    )


def _array(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    array = np.zeros(len(values), dtype=dtype)
    for place, value in enumerate(values):
        if value is not None:
            array[place] = value
    return array


def _domain_dtype(field: UnischemaField) -> np.dtype[Any]:
    kinds = {"b": np.bool_, "i": np.int64, "u": np.uint64, "f": np.float64, "M": np.int64, "m": np.int64}
    return np.dtype(kinds.get(field.dtype.kind, np.object_))


# A conversion takes the physical type, the stored bytes of a bound, and math.floor for the lower or math.ceil for the
# upper bound; it returns a value of the domain, or None.
_Conversion: TypeAlias = Callable[[int, bytes, Callable[[Any], int]], Any]


def _bounds(chunk: ChunkContents, convert: _Conversion) -> tuple[Any, Any]:
    low = None if chunk.minimum is None else convert(chunk.physical, chunk.minimum, math.floor)
    high = None if chunk.maximum is None else convert(chunk.physical, chunk.maximum, math.ceil)
    if low is not None and high is not None and low > high:
        return None, None
    return low, high


def _conversion(stored: pa.DataType, field: UnischemaField) -> _Conversion:
    """Return the function that converts stored bounds to the type filters compare.

    If the types are incompatible, the function returns None (unknown) for each bound.
    """
    types = pa.types
    if isinstance(stored, pa.BaseExtensionType):
        return _conversion(stored.storage_type, field)
    if types.is_dictionary(stored):
        return _conversion(stored.value_type, field)
    kind = field.dtype.kind
    if field.numpy_dtype in (np.str_, np.bytes_):
        return _text if is_text(stored) or is_bytes(stored) else _unknown
    if field.numpy_dtype is Decimal:
        return _decimals(stored.scale) if types.is_decimal(stored) else _unknown
    if kind == "b":
        return _booleans if types.is_boolean(stored) else _unknown
    if kind in "iu":
        return _integers(_numbers(stored), field.dtype)
    if kind == "f":
        return _floats(_numbers(stored), field.dtype)
    return _times(stored, field.dtype) if kind in "mM" else _unknown


def _unknown(*_: Any) -> None:
    return None


def _text(physical: int, data: bytes, _: Any) -> bytes | None:
    return data if physical in (_BYTE_ARRAY, _FIXED) else None


def _booleans(physical: int, data: bytes, _: Any) -> bool | None:
    return data != b"\x00" if physical == _BOOLEAN and len(data) == 1 else None


def _stored_integer(physical: int, data: bytes, *, signed: bool) -> int | None:
    if (physical, len(data)) not in ((_INT32, 4), (_INT64, 8)):
        return None
    return int.from_bytes(data, "little", signed=signed)


def _unscaled(physical: int, data: bytes) -> int | None:
    if physical in (_BYTE_ARRAY, _FIXED):
        return int.from_bytes(data, "big", signed=True) if 0 < len(data) <= _LONGEST_DECIMAL else None
    return _stored_integer(physical, data, signed=True)


def _decimals(scale: int) -> _Conversion:
    def convert(physical: int, data: bytes, _: Any) -> Decimal | None:
        unscaled = _unscaled(physical, data)
        return None if unscaled is None else Decimal(unscaled).scaleb(-scale, context=_DECIMALS)

    return convert


def _numbers(stored: pa.DataType) -> Callable[[int, bytes], Any]:
    """Return the function that converts a stored bound of this type to an exact number.

    The function takes the physical type, by the number of `parquet.thrift`, and the stored bytes. It returns None if
    the bytes are not a number of this type.
    """
    types = pa.types
    if types.is_decimal(stored):
        decimal = _decimals(stored.scale)
        return lambda physical, data: decimal(physical, data, math.floor)
    if types.is_integer(stored):
        return lambda physical, data: _stored_integer(physical, data, signed=not types.is_unsigned_integer(stored))
    return _stored_float if types.is_floating(stored) else _unknown


def _stored_float(physical: int, data: bytes) -> float | None:
    layout = {(_FLOAT, 4): "<f4", (_DOUBLE, 8): "<f8", (_FIXED, 2): "<f2"}.get((physical, len(data)))
    return None if layout is None else float(np.frombuffer(data, layout)[0])


def _integers(number: Callable[[int, bytes], Any], dtype: np.dtype[Any]) -> _Conversion:
    limits = np.iinfo(np.uint64 if dtype.kind == "u" else np.int64)

    def convert(physical: int, data: bytes, round_outwards: Callable[[Any], int]) -> int | None:
        exact = number(physical, data)
        if exact is None or not math.isfinite(exact):
            return None
        whole = round_outwards(exact)
        return whole if limits.min <= whole <= limits.max else None

    return convert


def _floats(number: Callable[[int, bytes], Any], dtype: np.dtype[Any]) -> _Conversion:
    def convert(physical: int, data: bytes, _: Any) -> float | None:
        exact = number(physical, data)
        if exact is None:
            return None
        # Bounds are rounded like decoded values, because rounding does not change the order of numbers.
        with np.errstate(over="ignore", under="ignore"):
            rounded = float(dtype.type(float(exact)))
        if isinstance(exact, int) and rounded != exact:
            return None  # decoding this integer raises an error, so its row group must not be skipped
        return None if math.isnan(rounded) else rounded

    return convert


_SECONDS = {
    "D": Fraction(86400),
    **{unit: Fraction(1, 1000**power) for power, unit in enumerate(("s", "ms", "us", "ns"))},
}


def _times(stored: pa.DataType, dtype: np.dtype[Any]) -> _Conversion:
    types = pa.types
    unit, step = np.datetime_data(dtype)
    if types.is_date(stored):
        stored_unit = "D"  # Parquet dates are always days
    elif types.is_timestamp(stored) or types.is_time(stored) or types.is_duration(stored):
        stored_unit = stored.unit
    else:
        stored_unit = unit if dtype.kind == "m" and stored == pa.int64() else ""
    if stored_unit not in _SECONDS or unit not in _SECONDS or step != 1:
        return _unknown
    ratio = _SECONDS[stored_unit] / _SECONDS[unit]

    def convert(physical: int, data: bytes, round_outwards: Callable[[Any], int]) -> int | None:
        count = _stored_integer(physical, data, signed=True)
        if count is None:
            return None
        time = round_outwards(count * ratio)
        return time if abs(time) < 2**63 else None

    return convert
