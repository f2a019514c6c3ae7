"""Choice of a compression for each column, from a sample of the first row group. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from petastore.codecs.arrow.arrow_views import offsets_of
from petastore.writers.parquet import WriterOptions, is_blob, leaf_type, leaves_of

__all__ = ["choose_compression"]

_COMPRESSION = "snappy"
"""Compression of columns that shrink, unless the caller names another."""

_WORTH = 0.97
"""Columns whose sample stays above this ratio are stored uncompressed."""

_PIECES = 8
_PIECE_BYTES = 128 * 1024
_LEAST_BYTES = 16 * 1024
"""Smaller samples do not decide."""


def choose_compression(options: WriterOptions, first: pa.Table) -> WriterOptions:
    """Return writer options with a compression for each column whose option is `"auto"`.

    Bytes and floating-point numbers stay uncompressed if a sample of them does not shrink. Other columns get snappy.

    Args:
        options: As `petastore.writers.parquet.writer_options` gives them.
        first: The first row group; it may be empty.

    Example:
        >>> from petastore.schema import Unischema, UnischemaField
        >>> from petastore.writers.parquet import writer_options
        >>> schema = Unischema("x", [UnischemaField("noise", "float32"), UnischemaField("zero", "float32")])
        >>> noise = np.random.default_rng(0).random(10_000, np.float32)
        >>> table = pa.table({"noise": noise, "zero": np.zeros(10_000, np.float32)})
        >>> choose_compression(writer_options(schema, "auto"), table)["compression"]
        {'noise': 'none', 'zero': 'snappy'}
    """
    asked = options["compression"]
    if "auto" not in asked.values():
        return options
    chosen = {
        leaf: _chosen(first.column(name)) if asked[leaf] == "auto" else asked[leaf]
        for name, leaves in leaves_of(first.schema).items()
        for leaf in leaves
    }
    return {**options, "compression": chosen}


def _chosen(column: pa.ChunkedArray) -> str:
    kind = leaf_type(column.type)
    if not is_blob(kind) and not pa.types.is_floating(kind):
        return _COMPRESSION
    codec = pa.Codec(_COMPRESSION)
    pieces = list(_sample(column))
    whole = sum(map(len, pieces))
    if whole < _LEAST_BYTES:
        return _COMPRESSION
    return "none" if sum(len(codec.compress(piece)) for piece in pieces) > _WORTH * whole else _COMPRESSION


def _sample(column: pa.ChunkedArray) -> Iterator[pa.Buffer]:
    """Bytes of values from places all over a column."""
    places = np.linspace(0, len(column), _PIECES + 1).astype(np.int64).tolist()
    for start, stop in itertools.pairwise(places):
        left = _PIECE_BYTES
        for chunk in column.slice(start, stop - start).chunks:
            if left > 0:
                piece = _value_bytes(chunk)[:left]
                left -= len(piece)
                yield piece


def _value_bytes(cells: pa.Array) -> pa.Buffer:
    """The bytes of the values of some cells, one after the other."""
    while pa.types.is_list(cells.type):
        cells = cells.flatten()
    first, last = cells.offset, cells.offset + len(cells)
    values = cells.buffers()[-1]
    if values is None:
        return pa.py_buffer(b"")
    if is_blob(cells.type):
        offsets = offsets_of(cells)
        first, last, size = int(offsets[0]), int(offsets[-1]), 1
    else:
        size = cells.type.bit_width // 8
    return values[first * size : last * size]
