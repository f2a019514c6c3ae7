"""Columns that a file holds as a dictionary: what they take once each row has its own copy, known before that is made.

A text of a megabyte to which a million rows refer takes a megabyte in the file, and a terabyte in memory. No footer
says so. Where it could be so, a column is read as Arrow's dictionary, which has each text once; lengths and indices
then say what all rows take. To copy the texts from there is no slower than to have Arrow do it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from petastore.arrow_memory import flags_of, numbers_of
from petastore.errors import DecodeError
from petastore.storage.footers.footers import Footer

__all__ = ["MOST_BYTES", "copied_bytes", "swelling_leaves"]

MOST_BYTES = 1024**3
"""Bytes that the rows of a column that is a dictionary may take in a row group, unless asked otherwise."""


def swelling_leaves(footer: Footer, ordinal: int, leaves: list[int], most: int) -> dict[int, str]:
    """Those leaves whose rows may take more than so many bytes, for all that the footer says, and their paths.

    Args:
        footer: Of the file.
        ordinal: The row group.
        leaves: Numbers of leaf columns.
        most: Bytes.
    """
    rows, size = (int(footer.groups[name][ordinal]) for name in ("rows", "decoded_bytes"))
    if not footer.byte_leaves or (rows * size <= most and not footer.columns.are_nested):
        return {}
    chunks = footer.dictionaries[ordinal]
    return {
        leaf: chunks[leaf].path
        for leaf in leaves
        if leaf in chunks and chunks[leaf].values * chunks[leaf].decoded_bytes > most
    }


def copied_bytes(column: Any) -> int:
    """Bytes of text or bytes of all rows of a column, where each has its own copy; of nested columns of all leaves.

    Args:
        column: A `pyarrow.ChunkedArray` with dictionaries in it.

    Raises:
        DecodeError: An index lies outside of its dictionary.

    Example:
        >>> column = pa.chunked_array([pa.array(["ab", "ab", None, "c"]).dictionary_encode()])
        >>> copied_bytes(column)
        5
    """
    return sum(map(_copied_bytes, column.chunks))


def _copied_bytes(cells: Any) -> int:
    if isinstance(cells, pa.DictionaryArray):
        indices = numbers_of(cells.indices)[flags_of(cells.indices.is_valid())].astype(np.int64)
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < len(cells.dictionary):
            raise DecodeError("the data is damaged: a value is not among those of its dictionary")
        if len(indices) == 0:
            return 0
        lengths = numbers_of(pc.binary_length(cells.dictionary)).astype(np.int64)
        return int(lengths[indices].sum())
    if isinstance(cells, pa.StructArray):
        return sum(map(_copied_bytes, cells.flatten()))
    if isinstance(cells, pa.MapArray):
        return _copied_bytes(cells.keys) + _copied_bytes(cells.items)
    if isinstance(cells, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        return _copied_bytes(cells.flatten())
    return 0
