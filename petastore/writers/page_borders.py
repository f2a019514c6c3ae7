"""Row groups in chunks that end where Arrow looks whether a page is full, so that no page ends for a chunk's sake.

Arrow looks after each `write_batch_size` rows, and anew at each chunk. Where chunks end elsewhere, pages have any size
up to twice what is meant, and a reader needs the memory. One chunk has no such places, but making one of all is a copy
of all: here only what lies across the borders of chunks is copied. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from petastore.writers.parquet import is_blob

__all__ = ["on_page_borders"]


def on_page_borders(group: pa.Table, rows: int) -> pa.Table:
    """The same rows, of which Arrow makes the same pages as if each column were one chunk.

    Args:
        group: Stored cells.
        rows: After how many rows Arrow looks.

    Example:
        >>> cells = pa.chunked_array([[b"a", b"b", b"c"], [b"d", b"e", b"f", b"g", b"h"]])
        >>> on_page_borders(pa.table({"cell": cells}), 2).column("cell").to_pylist()
        [b'a', b'b', b'c', b'd', b'e', b'f', b'g', b'h']
        >>> [len(chunk) for chunk in on_page_borders(pa.table({"cell": cells}), 2).column("cell").chunks]
        [2, 2, 4]
    """
    # Numbers are few bytes, and of lists Arrow counts the elements: those are copied.
    cells = {
        name: pa.chunked_array(_chunks(column, rows), column.type)
        for name, column in zip(group.column_names, group.columns, strict=True)
        if is_blob(column.type) and column.num_chunks > 1
    }
    whole = group.drop_columns(list(cells)).combine_chunks()
    columns = [cells[name] if name in cells else whole.column(name) for name in group.column_names]
    return pa.Table.from_arrays(columns, schema=group.schema)


def _chunks(column: pa.ChunkedArray, rows: int) -> Iterator[pa.Array]:
    across: list[pa.Array] = []  # what began on a border and has not come to the next
    missing = 0
    for chunk in column.chunks:
        head = chunk.slice(0, missing)
        missing -= len(head)
        across.append(head)
        if missing:
            continue
        if len(head):
            yield pa.concat_arrays(across)
        rest = chunk.slice(len(head))
        whole = len(rest) // rows * rows
        if whole:
            yield rest.slice(0, whole)
        across = [rest.slice(whole)]
        missing = rows - len(across[0]) if len(across[0]) else 0
    if missing:
        yield pa.concat_arrays(across)
