"""Some fields of a Parquet footer, straight from its bytes. Pure.

pyarrow gives what a footer says of column chunks only through `RowGroupMetaData.column`, which ends the whole process
where a footer is damaged in certain places (its C++ exception has nobody to catch it; seen with 26.0). So what is
needed of them is read here, and the rest is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petastore.errors import MetadataError
from petastore.storage.footers.thrift import Read, struct_reader

__all__ = ["COLUMNS", "METADATA", "ROW_GROUPS", "footer_fields"]

# Numbers of `parquet.thrift`, of the fields that lead to a column chunk.
ROW_GROUPS = 4
"""Of FileMetaData: a list of RowGroup."""

COLUMNS = 1
"""Of RowGroup: a list of ColumnChunk."""

METADATA = 3
"""Of ColumnChunk: a ColumnMetaData."""


def footer_fields(footer: bytes, fields: Mapping[int, Mapping[int, Read]], *, source: str) -> dict[int, Any]:
    """The fields of a footer that are there; see `petastore.storage.footers.thrift.struct_reader`.

    Args:
        footer: The Thrift bytes, without length and magic.
        fields: Those that are wanted, and how they are read.
        source: The file, for messages.

    Raises:
        MetadataError: The bytes are no footer.
    """
    try:
        values: dict[int, Any] = struct_reader(fields)(footer, 0)[0]
    except (IndexError, ValueError, OverflowError, RecursionError) as problem:
        raise MetadataError(f"{source}: the footer is damaged: {problem}") from None
    return values
