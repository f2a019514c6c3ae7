"""Row-group counts straight from the bytes of a Parquet footer. Pure.

pyarrow gives the sizes of column chunks only through `RowGroupMetaData.column`, which ends the whole process where a
footer is damaged in certain places (its C++ exception has nobody to catch it; seen with 26.0). So these few numbers are
read here: a footer is a Thrift struct in the compact protocol, of which all but the needed fields is skipped.

Field numbers are those of `parquet.thrift`: FileMetaData {3 num_rows, 4 row_groups}, RowGroup {1 columns,
2 total_byte_size, 3 num_rows}, ColumnChunk {3 meta_data}, ColumnMetaData {7 total_compressed_size}.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from petastore.errors import MetadataError

__all__ = ["row_group_counts"]

# Types of the compact protocol. Maps do not occur in a footer.
_INTEGERS = (4, 5, 6)
_BINARY, _LIST, _SET, _STRUCT = 8, 9, 10, 12
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # a boolean field lies in its header
_ONE_BYTE_ELEMENTS = (1, 2, 3)  # in a list a boolean has a byte of its own


def row_group_counts(footer: bytes, *, source: str) -> NDArray[np.int64]:
    """Rows, compressed bytes and uncompressed bytes of each row group, as the footer says them, not yet checked.

    Args:
        footer: The Thrift bytes, without length and magic.
        source: The file, for messages.

    Returns:
        Array of shape (3, row groups).

    Raises:
        MetadataError: The bytes are no footer.
    """
    groups: list[tuple[int, int, int]] = []
    try:
        at = field = 0
        while footer[at]:
            field, kind, at = _field(footer, at, field)
            if field == 4 and kind == _LIST:
                count, at = _struct_list(footer, at)
                for _ in range(count):
                    counts, at = _row_group(footer, at)
                    groups.append(counts)
            else:
                at = _skip(footer, at, kind)
        return np.array(groups, dtype=np.int64).reshape(-1, 3).T
    except (IndexError, ValueError, OverflowError, RecursionError) as problem:
        raise MetadataError(f"{source}: the footer is damaged: {problem}") from None


def _row_group(data: bytes, at: int) -> tuple[tuple[int, int, int], int]:
    rows = stored = decoded = field = 0
    while data[at]:
        field, kind, at = _field(data, at, field)
        if field == 1 and kind == _LIST:
            count, at = _struct_list(data, at)
            for _ in range(count):
                size, at = _column_chunk(data, at)
                stored += size
        elif field == 2 and kind in _INTEGERS:
            decoded, at = _integer(data, at)
        elif field == 3 and kind in _INTEGERS:
            rows, at = _integer(data, at)
        else:
            at = _skip(data, at, kind)
    return (rows, stored, decoded), at + 1


def _column_chunk(data: bytes, at: int) -> tuple[int, int]:
    field = 0
    while data[at]:
        field, kind, at = _field(data, at, field)
        if field == 3 and kind == _STRUCT:
            size, at = _column_metadata(data, at)
            return size, _skip_struct(data, at)
        at = _skip(data, at, kind)
    raise ValueError("a column chunk has no metadata")


def _column_metadata(data: bytes, at: int) -> tuple[int, int]:
    field = 0
    while data[at]:
        field, kind, at = _field(data, at, field)
        if field == 7 and kind in _INTEGERS:
            size, at = _integer(data, at)
            return size, _skip_struct(data, at)
        at = _skip(data, at, kind)
    raise ValueError("a column chunk says nothing about its size")


def _field(data: bytes, at: int, previous: int) -> tuple[int, int, int]:
    """Number and type of the field at `at`, and the position of its value."""
    header = data[at]
    if header >> 4:
        return previous + (header >> 4), header & 15, at + 1
    number, after = _integer(data, at + 1)
    return number, header & 15, after


def _struct_list(data: bytes, at: int) -> tuple[int, int]:
    """Length of the list of structs at `at`, and the position of the first."""
    count, kind, at = _list_header(data, at)
    if count and kind != _STRUCT:
        raise ValueError(f"a list holds type {kind} instead of structs")
    return count, at


def _list_header(data: bytes, at: int) -> tuple[int, int, int]:
    header = data[at]
    if header >> 4 != 15:
        return header >> 4, header & 15, at + 1
    count, at = _varint(data, at + 1)
    return count, header & 15, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 128:
        return value, at + 1
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _skip(data: bytes, at: int, kind: int) -> int:
    """The position after the value at `at`."""
    if kind in _INTEGERS:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind == _STRUCT:
        return _skip_struct(data, at)
    if kind in (_LIST, _SET):
        return _skip_list(data, at)
    if kind in _FIXED:
        return at + _FIXED[kind]
    raise ValueError(f"there is no type {kind}")


def _skip_struct(data: bytes, at: int) -> int:
    """The position after the struct of which some field starts at `at`; nearly all time is spent here."""
    while header := data[at]:
        at += 1
        if header < 16:
            at = _skip(data, at, 4)
        kind = header & 15
        if kind in _INTEGERS:
            while data[at] > 127:
                at += 1
            at += 1
        elif kind > 2:
            at = _skip(data, at, kind)
    return at + 1


def _skip_list(data: bytes, at: int) -> int:
    count, kind, at = _list_header(data, at)
    if kind in _ONE_BYTE_ELEMENTS:
        return at + count
    for _ in range(count):
        at = _skip(data, at, kind)
    return at
