"""Columns that a file holds as a dictionary: what they take once each row has its own copy, known before that is made.

A text of a megabyte to which a million rows refer takes a megabyte in the file, and a terabyte in memory. Footers of
today say what the copies take. Where one does not, and the little that it says allows for too much, a column is first
read as Arrow's dictionary, which has each text once: the longest text of the first row's dictionary mostly shows that
all is well, and else the lengths and indices of all rows tell. What was found is remembered with the footer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow.memory import flags_of, numbers_of
from petastore.errors import DecodeError
from petastore.storage.footers.column_chunks import ChunkContents
from petastore.storage.footers.footers import Footer

__all__ = ["MOST_BYTES", "check_copies", "copied_bytes", "swelling_leaves"]

MOST_BYTES = 1024**3
"""Bytes that the rows of a column that is a dictionary may take in a row group, unless asked otherwise."""


def swelling_leaves(footer: Footer, ordinal: int, columns: Iterable[str], most: int) -> dict[str, dict[int, str]]:
    """Those columns whose rows may take more than so many bytes, for all that is known of them.

    Args:
        footer: Of the file.
        ordinal: The row group.
        columns: Columns of the file.
        most: Bytes of a column.

    Returns:
        Of each such column: its leaves that have a dictionary, by their numbers, and their paths.
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
    """Refuse a row group where the rows of a column take more than so many bytes; what they take is remembered.

    Args:
        reader: A `pyarrow.parquet.ParquetReader` that gives `leaves` as dictionaries, and verifies pages.
        footer: Of the file.
        ordinal: The row group.
        name: The column.
        leaves: Those of it that `swelling_leaves` gave.
        most: Bytes of all of them together.

    Raises:
        DecodeError: They take more, or the data is damaged.
    """
    size = _most_by_longest_value(reader, footer, ordinal, leaves)
    if size is None or size > most:
        table = reader.read_row_group(ordinal, column_indices=list(leaves), use_threads=False)
        try:
            size = copied_bytes(table.column(name))
        except DecodeError as problem:
            raise problem.at(column=name, file=footer.file.path, row_group=ordinal) from None
        if size > most:
            raise DecodeError(
                f"its {table.num_rows:,} rows take {size:,} bytes of memory, though the file has each value once; at "
                f"most {most:,} may be taken (a quarter of memory_budget, or 1 GiB without one). Set memory_budget to "
                f"{4 * size:,} or more, leave the column out with schema_fields, or write smaller row groups",
                column=name,
                file=footer.file.path,
                row_group=ordinal,
            )
    footer.copied_bytes[ordinal, name] = size


def _most_by_longest_value(reader: Any, footer: Footer, ordinal: int, leaves: Collection[int]) -> int | None:
    """What rows take that all have the longest value of their dictionary; None where one row does not show it."""
    if len(leaves) > 1:
        return None
    batch = next(reader.iter_batches(1, row_groups=[ordinal], column_indices=list(leaves), use_threads=False), None)
    cells = None if batch is None else batch.column(0)
    # One row of a page that has no dictionary comes with a dictionary of its own, of one value.
    if not isinstance(cells, pa.DictionaryArray) or len(cells.dictionary) < 2:
        return None
    (chunk,) = (footer.dictionaries[ordinal][leaf] for leaf in leaves)
    return chunk.values * int(_lengths(cells.dictionary).max()) + chunk.decoded_bytes  # of pages without a dictionary


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
