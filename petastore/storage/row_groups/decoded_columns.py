"""Columns that a cache keeps decoded: numbers and times, whose cells have one width each.

To decode them again takes longer than to look at an entry of the cache, and it has to be done in every epoch. An entry
is Arrow's memory: the values, one after the other, and behind them, where one is missing, a bit for each that is there.
Everything else is kept as it is stored: text and bytes are hardly faster decoded, and pictures would take ten times the
room. `docs/explanation/local-cache.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from petastore.errors import DecodeError
from petastore.storage.footers.footers import Footer

__all__ = ["array_of", "decoded_columns", "entry_of"]

_MOST_TIMES = 2
"""So many times the bytes that are stored may decoded ones take, of all such columns of a row group together."""


def decoded_columns(footer: Footer, ordinal: int) -> Mapping[str, int]:
    """Which columns of a row group a cache keeps decoded, and how many bytes that takes, if the footer is right.

    All columns of one width, if they take no more than twice the bytes together; else each that does so by itself.

    Args:
        footer: Of the file.
        ordinal: The row group's number in it, from 0.
    """
    known = footer.kept_decoded.get(ordinal)
    if known is None:
        known = footer.kept_decoded.setdefault(ordinal, _chosen(footer, ordinal))
    return known


def _chosen(footer: Footer, ordinal: int) -> dict[str, int]:
    group, schema, stored = footer.metadata.row_group(ordinal), footer.arrow_schema, footer.columns.stored
    rows = group.num_rows
    sizes: dict[str, tuple[int, int, int]] = {}
    for name, leaves in footer.leaves.items() if rows else ():
        kind, leaf = schema.field(name).type, leaves[0]
        # 96-bit times, numbers in text and others do not lie in the file as one would read them.
        is_plain = len(leaves) == 1 and _has_one_width(kind) and stored.column(leaf).max_repetition_level == 0
        chunk = group.column(leaf)
        if is_plain and chunk.num_values == rows:
            bits = -(-rows // 8) if _says_that_some_are_missing(chunk) else 0
            sizes[name] = rows * kind.bit_width // 8, bits, chunk.total_compressed_size
    decoded, as_stored = (sum(one[column] for one in sizes.values()) for column in (0, 2))
    are_all = decoded <= _MOST_TIMES * as_stored
    return {
        name: size + bits for name, (size, bits, stored) in sizes.items() if are_all or size <= _MOST_TIMES * stored
    }


def _says_that_some_are_missing(chunk: Any) -> bool:
    said = chunk.statistics if chunk.is_stats_set else None
    return said is not None and said.has_null_count and said.null_count > 0


def _has_one_width(kind: Any) -> bool:
    return (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)) and not (
        pa.types.is_interval(kind)
    )


def entry_of(column: pa.ChunkedArray, kind: Any) -> pa.Buffer:
    """What a cache keeps of a column that was decoded; a view of its values, where it can be."""
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if array.offset and array.null_count:
        array = pa.concat_arrays([array, array.slice(0, 0)])
    bits, values = array.buffers()
    width = kind.bit_width // 8
    values = values.slice(array.offset * width, len(array) * width)
    if not array.null_count:
        return values
    return pa.py_buffer(b"".join((values, bits.slice(0, -(-len(array) // 8)))))


def array_of(entry: pa.Buffer, kind: Any, rows: int, *, column: str, footer: Footer, ordinal: int) -> pa.Array:
    """The column again: a view of an entry.

    Raises:
        DecodeError: It has another size.
    """
    length = rows * kind.bit_width // 8
    if entry.size == length:
        return pa.Array.from_buffers(kind, rows, [None, entry], null_count=0)
    if entry.size == length + -(-rows // 8):
        return pa.Array.from_buffers(kind, rows, [entry.slice(length), entry.slice(0, length)])
    raise DecodeError(
        f"the cache on the local disk has {entry.size:,} bytes of a column of {rows:,} values of {kind}; remove it by "
        "`petastore cache clear`",
        file=footer.file.path,
        row_group=ordinal,
        column=column,
    )
