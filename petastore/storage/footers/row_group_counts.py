"""Row-group counts straight from the bytes of a Parquet footer. Pure.

Field numbers are those of `parquet.thrift`: RowGroup {2 total_byte_size, 3 num_rows}, ColumnMetaData
{7 total_compressed_size}.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from petastore.storage.footers.footer_fields import COLUMNS, METADATA, ROW_GROUPS, footer_fields
from petastore.storage.footers.thrift import INTEGER, LIST, STRUCT, Read, list_reader, struct_reader

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
    values = footer_fields(footer, {ROW_GROUPS: {LIST: _row_groups}}, source=source)
    counts: NDArray[np.int64] = values.get(ROW_GROUPS, np.empty((3, 0), dtype=np.int64))
    return counts


_DECODED, _ROWS, _STORED = 2, 3, 7
_size: Read = struct_reader({METADATA: {STRUCT: struct_reader({_STORED: INTEGER}, until=_STORED)}}, until=METADATA)


def _chunk_bytes(data: bytes, at: int) -> tuple[int, int]:
    chunk, at = _size(data, at)
    if METADATA not in chunk:
        raise ValueError("a column chunk has no metadata")
    if _STORED not in chunk[METADATA]:
        raise ValueError("a column chunk says nothing about its size")
    return chunk[METADATA][_STORED], at


_groups: Read = list_reader(
    {STRUCT: struct_reader({COLUMNS: list_reader({STRUCT: _chunk_bytes}), _DECODED: INTEGER, _ROWS: INTEGER})}
)[LIST]


def _row_groups(data: bytes, at: int) -> tuple[NDArray[np.int64], int]:
    groups, at = _groups(data, at)
    counts = [(group.get(_ROWS, 0), sum(group.get(COLUMNS, ())), group.get(_DECODED, 0)) for group in groups]
    return np.array(counts, dtype=np.int64).reshape(-1, 3).T, at
