"""Row-group counts straight from the bytes of a Parquet footer. Pure.

pyarrow gives the sizes of column chunks only through `RowGroupMetaData.column`, which ends the whole process where a
footer is damaged in certain places (its C++ exception has nobody to catch it; seen with 26.0). So these few numbers are
read here, and all but the needed fields are skipped.

Field numbers are those of `parquet.thrift`: FileMetaData {3 num_rows, 4 row_groups}, RowGroup {1 columns,
2 total_byte_size, 3 num_rows}, ColumnChunk {3 meta_data}, ColumnMetaData {7 total_compressed_size}.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from petastore.errors import MetadataError
from petastore.storage.footers.thrift import (
    INTEGERS,
    LIST,
    STRUCT,
    read_field,
    read_integer,
    read_struct_list,
    skip_struct,
    skip_value,
)

__all__ = ["row_group_counts"]


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
            field, kind, at = read_field(footer, at, field)
            if field == 4 and kind == LIST:
                count, at = read_struct_list(footer, at)
                for _ in range(count):
                    counts, at = _row_group(footer, at)
                    groups.append(counts)
            else:
                at = skip_value(footer, at, kind)
        return np.array(groups, dtype=np.int64).reshape(-1, 3).T
    except (IndexError, ValueError, OverflowError, RecursionError) as problem:
        raise MetadataError(f"{source}: the footer is damaged: {problem}") from None


def _row_group(data: bytes, at: int) -> tuple[tuple[int, int, int], int]:
    rows = stored = decoded = field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 1 and kind == LIST:
            count, at = read_struct_list(data, at)
            for _ in range(count):
                size, at = _column_chunk(data, at)
                stored += size
        elif field == 2 and kind in INTEGERS:
            decoded, at = read_integer(data, at)
        elif field == 3 and kind in INTEGERS:
            rows, at = read_integer(data, at)
        else:
            at = skip_value(data, at, kind)
    return (rows, stored, decoded), at + 1


def _column_chunk(data: bytes, at: int) -> tuple[int, int]:
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 3 and kind == STRUCT:
            size, at = _column_metadata(data, at)
            return size, skip_struct(data, at)
        at = skip_value(data, at, kind)
    raise ValueError("a column chunk has no metadata")


def _column_metadata(data: bytes, at: int) -> tuple[int, int]:
    field = 0
    while data[at]:
        field, kind, at = read_field(data, at, field)
        if field == 7 and kind in INTEGERS:
            size, at = read_integer(data, at)
            return size, skip_struct(data, at)
        at = skip_value(data, at, kind)
    raise ValueError("a column chunk says nothing about its size")
