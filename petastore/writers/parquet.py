"""Parquet writer settings: row group and file sizes; compression, dictionaries, statistics and pages of each column.

Arrow checks after each `write_batch_size` rows whether a page is full, and starts counting again at each chunk of the
column. If chunks end at other rows, a page may be up to twice as large as intended, and a reader needs more memory; see
`on_page_borders`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, TypedDict, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from petastore.codecs.arrow.arrow_views import offsets_of
from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.storage.footers.leaves import leaf_paths

__all__ = [
    "COMPRESSIONS",
    "Compression",
    "FileLayout",
    "WriterOptions",
    "choose_compression",
    "fit_pages",
    "on_page_borders",
    "row_groups",
    "writer_options",
]


_DEFAULT_ROW_GROUP_MB = 32
_FILE_BYTES = 256 * 1024 * 1024


@dataclasses.dataclass(frozen=True)
class FileLayout:
    """Requested sizes of files and row groups.

    Example:
        >>> FileLayout.of(rows_per_row_group=1500, row_group_size_mb=None, rows_per_file=None).rows_per_row_group
        1500
    """

    rows_per_row_group: int | None
    """Number of rows of each row group except the last of a file; None if determined by bytes."""

    row_group_bytes: int
    """Approximate Arrow bytes of the encoded columns of a row group; used if `rows_per_row_group` is None."""

    rows_per_file: int | None
    """Number of rows of each file except the last; None if determined by bytes."""

    file_bytes: int = _FILE_BYTES
    """Stored bytes after which a file is complete and the next one begins; used if `rows_per_file` is None."""

    @classmethod
    def of(cls, *, rows_per_row_group: Any, row_group_size_mb: Any, rows_per_file: Any) -> FileLayout:
        """Check the size parameters of `write_dataset`, and return them as a `FileLayout`.

        Raises:
            InvalidArgumentError: A value is not a number above 0, or both rows and bytes of a row group are given.
        """
        if rows_per_row_group is not None and row_group_size_mb is not None:
            raise InvalidArgumentError(
                f"rows_per_row_group and row_group_size_mb must not both be given, got {rows_per_row_group!r} and "
                f"{row_group_size_mb!r}. Pass one of them"
            )
        for name, rows in (("rows_per_row_group", rows_per_row_group), ("rows_per_file", rows_per_file)):
            if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
                raise InvalidArgumentError(f"{name} must be an int of at least 1, got {rows!r}")
        size = _DEFAULT_ROW_GROUP_MB if row_group_size_mb is None else row_group_size_mb
        if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 < size < math.inf:
            raise InvalidArgumentError(f"row_group_size_mb must be a number of MiB above 0, got {size!r}")
        return cls(rows_per_row_group, max(1, int(size * 1024 * 1024)), rows_per_file)


def row_groups(batches: Iterable[pa.RecordBatch], layout: FileLayout) -> Iterator[pa.Table]:
    """Cut a stream of record batches into row groups, across the borders of batches.

    A row group also ends where `rows_per_file` ends a file, so whole row groups fill whole files.

    Example:
        >>> batches = [pa.record_batch({"id": list(range(n))}) for n in (4, 3, 2)]
        >>> layout = FileLayout.of(rows_per_row_group=5, row_group_size_mb=None, rows_per_file=7)
        >>> [group.num_rows for group in row_groups(batches, layout)]
        [5, 2, 2]
    """
    held: list[pa.RecordBatch] = []
    rows = size = in_file = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            room = _room(rest, layout, rows, size, in_file)
            part, rest = rest.slice(0, room), rest.slice(room)
            held.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if part.num_rows == room:
                yield pa.Table.from_batches(held)
                in_file = (in_file + rows) % layout.rows_per_file if layout.rows_per_file else 0
                held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _room(batch: pa.RecordBatch, layout: FileLayout, rows: int, size: int, in_file: int) -> int:
    """Return how many more rows the current row group can take, at least 1.

    Args:
        batch: Next rows of the stream; a limit in bytes is converted to rows by their mean size.
        layout: Sizes of row groups and files.
        rows: Rows of the current row group so far.
        size: Bytes of the current row group so far.
        in_file: Rows of the file before the current row group.
    """
    if layout.rows_per_row_group is not None:
        room = layout.rows_per_row_group - rows
    else:
        room = max(1, math.ceil((layout.row_group_bytes - size) * batch.num_rows / max(1, batch.nbytes)))
    return room if layout.rows_per_file is None else min(room, layout.rows_per_file - in_file - rows)


Compression: TypeAlias = Literal["snappy", "lz4", "zstd", "gzip", "brotli", "none", "auto"]
"""Compression of columns, in lower or upper case. `"auto"` is snappy for columns that shrink, otherwise none."""

COMPRESSIONS: tuple[Compression, ...] = tuple(word for word in get_args(Compression) if word != "auto")
"""Names of the compressions that a user may choose, without `"auto"`."""

# These codecs compress cells, so compressing pages again would only slow down writing and reading.
_COMPRESSED_CELLS = {"compressed_image", "compressed_ndarray", "reversed_image"}

_PAGE_BYTES = 1024 * 1024
"""Approximate bytes of a page; a reader needs memory for two copies of a page, stored and decoded."""

_FREE_VALUE_BYTES = 4096
"""Assumed bytes of a value of variable shape."""

_MOST_ROWS_BETWEEN_LOOKS = 1024
"""Maximum rows between Arrow's checks whether a page is full; Arrow's default."""


_COMPRESSION = "snappy"
"""Compression of columns that shrink, unless the caller names another."""

_WORTH = 0.97
"""Maximum ratio of compressed to original bytes of a sample for which a column is compressed."""

_PIECES = 8
_PIECE_BYTES = 128 * 1024
_LEAST_BYTES = 16 * 1024
"""Minimum bytes of a sample that decides about compression."""


class WriterOptions(TypedDict):
    """Keyword arguments of `pyarrow.parquet.ParquetWriter`."""

    compression: dict[str, str]
    """Compression of each leaf; `choose_compression` replaces `"auto"`, which Parquet lacks."""

    use_dictionary: list[str]
    write_statistics: list[str]
    write_page_checksum: bool
    write_batch_size: int
    store_schema: bool


def writer_options(schema: Unischema, compression: Compression | None) -> WriterOptions:
    """Return keyword arguments of `pyarrow.parquet.ParquetWriter` for a schema.

    Binary cells and floating-point numbers get no dictionary, because they rarely repeat, and binary cells no
    statistics. Cells that a codec compressed are not compressed again. Pages have checksums. `"auto"` is resolved when
    the first cells are known.

    Raises:
        InvalidArgumentError: The compression is unknown.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("raw", bytes)])
        >>> options = writer_options(schema, "zstd")
        >>> options["compression"], options["use_dictionary"]
        ({'id': 'zstd', 'raw': 'zstd'}, ['id'])
    """
    chosen = "none" if compression is None else str(compression).lower()
    if chosen not in get_args(Compression):
        known = ", ".join(get_args(Compression))
        raise InvalidArgumentError(f"compression must be one of {known}, got {compression!r}")
    stored = storage_schema(schema)
    leaves = _leaves_of(stored)
    types = {leaf: _leaf_type(stored.field(name).type) for name, paths in leaves.items() for leaf in paths}
    return {
        "compression": {
            leaf: "none" if _is_compressed(schema, name) else chosen for name, paths in leaves.items() for leaf in paths
        },
        "use_dictionary": [
            leaf for leaf, kind in types.items() if not _is_blob(kind) and not pa.types.is_floating(kind)
        ],
        "write_statistics": [leaf for leaf, kind in types.items() if not _is_blob(kind)],
        "write_page_checksum": True,
        "write_batch_size": _rows_between_looks(schema),
        "store_schema": False,
    }


def _rows_between_looks(schema: Unischema) -> int:
    """Return the number of rows after which Arrow checks whether a page is full.

    It is lower for larger values.
    """
    largest = max((field.decoded_bytes or _FREE_VALUE_BYTES for field in schema), default=1)
    return max(min(_PAGE_BYTES // max(largest, 1), _MOST_ROWS_BETWEEN_LOOKS), 1)


def _is_compressed(schema: Unischema, name: str) -> bool:
    codec = schema[name].codec
    return codec is not None and codec.codec_id in _COMPRESSED_CELLS


def _is_blob(kind: pa.DataType) -> bool:
    """Return whether the values of a column are bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _leaf_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, inside any lists."""
    return _leaf_type(arrow_type.value_type) if pa.types.is_list(arrow_type) else arrow_type


def _leaves_of(stored: pa.Schema) -> dict[str, list[str]]:
    """Return the Parquet paths of each column's leaves.

    They are found by writing an empty file.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, stored, store_schema=False):
        pass
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return leaf_paths(stored, [parquet.column(leaf).path for leaf in range(len(parquet))])


def choose_compression(options: WriterOptions, first: pa.Table) -> WriterOptions:
    """Replace `"auto"` in writer options by a compression for each column.

    Bytes and floating-point numbers stay uncompressed if a sample of them does not shrink. Other columns get snappy.

    Args:
        options: Options from `writer_options`.
        first: The first row group; it may be empty.

    Example:
        >>> from petastore.schema import Unischema, UnischemaField
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
        for name, leaves in _leaves_of(first.schema).items()
        for leaf in leaves
    }
    return {**options, "compression": chosen}


def _chosen(column: pa.ChunkedArray) -> str:
    kind = _leaf_type(column.type)
    if not _is_blob(kind) and not pa.types.is_floating(kind):
        return _COMPRESSION
    codec = pa.Codec(_COMPRESSION)
    pieces = list(_sample(column))
    whole = sum(map(len, pieces))
    if whole < _LEAST_BYTES:
        return _COMPRESSION
    return "none" if sum(len(codec.compress(piece)) for piece in pieces) > _WORTH * whole else _COMPRESSION


def _sample(column: pa.ChunkedArray) -> Iterator[pa.Buffer]:
    """Yield bytes of values from several evenly spaced ranges of a column."""
    places = np.linspace(0, len(column), _PIECES + 1).astype(np.int64).tolist()
    for start, stop in itertools.pairwise(places):
        left = _PIECE_BYTES
        for chunk in column.slice(start, stop - start).chunks:
            if left > 0:
                piece = _value_bytes(chunk)[:left]
                left -= len(piece)
                yield piece


def _value_bytes(cells: pa.Array) -> pa.Buffer:
    """Return the concatenated bytes of some cells' values."""
    while pa.types.is_list(cells.type):
        cells = cells.flatten()
    first, last = cells.offset, cells.offset + len(cells)
    values = cells.buffers()[-1]
    if values is None:
        return pa.py_buffer(b"")
    if _is_blob(cells.type):
        offsets = offsets_of(cells)
        first, last, size = int(offsets[0]), int(offsets[-1]), 1
    else:
        size = cells.type.bit_width // 8
    return values[first * size : last * size]


def fit_pages(options: WriterOptions, first: pa.Table) -> WriterOptions:
    """Return writer options for pages of about 1 MiB in columns of large cells.

    Cells of more than 1 MiB get a page each.

    If a column is nested, the options stay unchanged, because Arrow counts the elements of lists as rows.

    Args:
        options: Options from `writer_options`.
        first: The first row group of the file.

    Example:
        >>> from petastore.schema import Unischema, UnischemaField
        >>> options = writer_options(Unischema("x", [UnischemaField("raw", bytes)]), None)
        >>> cells = pa.table({"raw": [bytes(2**18), bytes(2**18)]})
        >>> options["write_batch_size"], fit_pages(options, cells)["write_batch_size"]
        (256, 4)
    """
    if any(pa.types.is_nested(kind) for kind in first.schema.types):
        return options
    largest = max((column.nbytes for column in first.itercolumns() if _is_blob(column.type)), default=0)
    if not largest:
        return options
    rows = -(-_PAGE_BYTES * first.num_rows // largest)  # rounded up: a page must be full when Arrow looks
    return {**options, "write_batch_size": rows} if 2 * rows <= options["write_batch_size"] else options


def on_page_borders(group: pa.Table, rows: int) -> pa.Table:
    """Divide the columns of a row group into chunks at multiples of `rows`.

    Arrow then writes the same pages as for one chunk per column.

    Args:
        group: Stored cells.
        rows: Number of rows after which Arrow checks whether a page is full.

    Example:
        >>> cells = pa.chunked_array([[b"a", b"b", b"c"], [b"d", b"e", b"f", b"g", b"h"]])
        >>> on_page_borders(pa.table({"cell": cells}), 2).column("cell").to_pylist()
        [b'a', b'b', b'c', b'd', b'e', b'f', b'g', b'h']
        >>> [len(chunk) for chunk in on_page_borders(pa.table({"cell": cells}), 2).column("cell").chunks]
        [2, 2, 4]
    """
    # Only columns of bytes are divided. Numbers and lists are combined: copying them is cheap, and in list columns,
    # Arrow counts elements instead of rows.
    cells = {
        name: pa.chunked_array(_chunks(column, rows), column.type)
        for name, column in zip(group.column_names, group.columns, strict=True)
        if _is_blob(column.type) and column.num_chunks > 1
    }
    whole = group.drop_columns(list(cells)).combine_chunks()
    columns = [cells[name] if name in cells else whole.column(name) for name in group.column_names]
    return pa.Table.from_arrays(columns, schema=group.schema)


def _chunks(column: pa.ChunkedArray, rows: int) -> Iterator[pa.Array]:
    across: list[pa.Array] = []  # pieces of chunks since the last multiple of `rows`
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
