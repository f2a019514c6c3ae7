"""Decoded size of dictionary-encoded text, computed before memory is allocated.

If a million rows have the same text of one megabyte, it takes one megabyte in the file, but one terabyte in memory.
Recent writers store the decoded size in the footer. If it is missing and the column might be too large, the column is
first read as an Arrow dictionary, which has each text once. The longest text of the dictionary usually shows that the
column is small enough; otherwise the lengths of the texts of all rows are added. The result is cached with the footer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow import flags_of, numbers_of
from petastore.errors import DecodeError
from petastore.storage.footers.chunk_metadata import ChunkContents
from petastore.storage.footers.footer import Footer

__all__ = ["check_copies", "copied_bytes", "swelling_leaves"]

_ROWS_AT_ONCE = 64 * 1024
"""Number of rows whose decoded size is computed at once."""


def swelling_leaves(footer: Footer, ordinal: int, columns: Iterable[str], most: int) -> dict[str, dict[int, str]]:
    """Return the columns whose decoded text may be larger than `most` bytes.

    This is possible if many rows repeat a dictionary value.

    Args:
        footer: Footer of the file.
        ordinal: Number of the row group.
        columns: Names of the columns.
        most: Maximum bytes of a column.

    Returns:
        A dict from column name to the leaves of the column that have a dictionary: a dict from leaf number to path.
    """
    if footer.most_copied_bytes <= most:
        return {}
    chunks = footer.dictionaries[ordinal]
    return {
        name: {leaf: chunks[leaf].path for leaf in footer.leaves[name] if leaf in chunks}
        for name in columns
        if _most_copied_bytes(footer, ordinal, name) > most
    }


def _most_copied_bytes(footer: Footer, ordinal: int, name: str) -> int:
    known = footer.copied_bytes.get((ordinal, name))
    if known is not None:
        return known
    chunks = footer.dictionaries[ordinal]
    return sum(_most_of_chunk(chunks[leaf]) for leaf in footer.leaves[name] if leaf in chunks)


def _most_of_chunk(chunk: ChunkContents) -> int:
    said = chunk.copied_bytes
    return said if said is not None and said >= 0 else chunk.values * chunk.decoded_bytes


def check_copies(reader: Any, footer: Footer, ordinal: int, name: str, leaves: Collection[int], most: int) -> None:
    """Raise an error if a dictionary-encoded column is too large when decoded.

    Decoding copies the dictionary value for each row. The size is cached in the footer.

    Args:
        reader: A `pyarrow.parquet.ParquetReader` that reads `leaves` as dictionaries, and verifies pages.
        footer: Footer of the file.
        ordinal: Number of the row group.
        name: Name of the column.
        leaves: Leaves of the column, from `swelling_leaves`.
        most: Maximum total bytes of the leaves.

    Raises:
        DecodeError: The decoded rows exceed the limit, or the data is damaged.
    """
    size = _most_by_longest_value(reader, footer, ordinal, leaves)
    if size is None or size > most:
        rows = size = 0
        try:
            # Reads some rows at a time, because the indices of all rows may exceed the memory limit.
            for batch in reader.iter_batches(
                _ROWS_AT_ONCE, row_groups=[ordinal], column_indices=list(leaves), use_threads=False
            ):
                rows += batch.num_rows
                size += _copied_bytes(batch.column(0))
        except DecodeError as problem:
            raise problem.at(column=name, file=footer.file.path, row_group=ordinal) from None
        if size > most:
            raise DecodeError(
                f"the {rows:,} decoded rows must take at most {most:,} bytes of memory (a quarter of memory_budget, "
                f"or 1 GiB without one), got {size:,}. Set memory_budget to {4 * size:,} or more, leave the column "
                "out with schema_fields, or write smaller row groups",
                column=name,
                file=footer.file.path,
                row_group=ordinal,
            )
    footer.copied_bytes[ordinal, name] = size


def _most_by_longest_value(reader: Any, footer: Footer, ordinal: int, leaves: Collection[int]) -> int | None:
    """Return an upper bound on the decoded bytes of a column, from its longest value.

    The bound assumes that all rows have the longest value of the dictionary. Only the first row is read, from which
    Arrow usually returns the whole dictionary. Return None if Arrow does not return the dictionary, or if the column
    has several leaves.
    """
    if len(leaves) > 1:
        return None
    batch = next(reader.iter_batches(1, row_groups=[ordinal], column_indices=list(leaves), use_threads=False), None)
    cells = None if batch is None else batch.column(0)
    # For a row in a page without dictionary encoding, Arrow returns a dictionary that has only the value of this row.
    if not isinstance(cells, pa.DictionaryArray) or len(cells.dictionary) < 2:
        return None
    (chunk,) = (footer.dictionaries[ordinal][leaf] for leaf in leaves)
    # The last term covers pages without dictionary encoding.
    return chunk.values * int(_lengths(cells.dictionary).max()) + chunk.decoded_bytes


def copied_bytes(column: Any) -> int:
    """Return the bytes of a decoded dictionary column, with one copy for each row.

    Args:
        column: A `pyarrow.ChunkedArray` that contains dictionaries.

    Raises:
        DecodeError: An index is outside its dictionary.

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
            raise DecodeError("the data is damaged: a dictionary index is out of range. Restore the file from a copy")
        return int(_lengths(cells.dictionary)[indices].sum())
    if isinstance(cells, pa.StructArray):
        return sum(map(_copied_bytes, cells.flatten()))
    if isinstance(cells, pa.MapArray):
        return _copied_bytes(cells.keys) + _copied_bytes(cells.items)
    if isinstance(cells, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        return _copied_bytes(cells.flatten())
    return 0


def _lengths(values: Any) -> NDArray[np.int64]:
    return numbers_of(pc.binary_length(values)).astype(np.int64)
