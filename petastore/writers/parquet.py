"""How encoded columns become Parquet: compression, dictionaries and statistics of each column."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.storage.footers.leaves import leaf_paths

__all__ = ["COMPRESSIONS", "Compression", "WriterOptions", "is_blob", "leaf_type", "leaves_of", "writer_options"]

Compression: TypeAlias = Literal["snappy", "lz4", "zstd", "gzip", "brotli", "none", "auto"]
"""How columns are compressed, in a word; capitals are understood, too. `"auto"` is snappy where cells shrink by it."""

COMPRESSIONS: tuple[Compression, ...] = tuple(word for word in get_args(Compression) if word != "auto")
"""What a column can be compressed with."""

# Cells of these codecs do not shrink any more; compressing them again costs time on both sides.
_COMPRESSED_CELLS = {"compressed_image", "compressed_ndarray", "reversed_image"}

_PAGE_BYTES = 1024 * 1024
"""Bytes of a page, more or less; a reader needs it twice in memory, stored and decoded."""

_FREE_VALUE_BYTES = 4096
"""What a value of free shape is taken to need."""

_MOST_ROWS_BETWEEN_LOOKS = 1024
"""As Arrow has it."""


class WriterOptions(TypedDict):
    """Keyword arguments of `pyarrow.parquet.ParquetWriter`."""

    compression: dict[str, str]
    """Of each leaf; `"auto"` is none that Parquet knows: `petastore.writers.shrinking.settled` chooses one."""

    use_dictionary: list[str]
    write_statistics: list[str]
    write_page_checksum: bool
    write_batch_size: int
    store_schema: bool


def writer_options(schema: Unischema, compression: Compression | None) -> WriterOptions:
    """Keyword arguments of `pyarrow.parquet.ParquetWriter` for files of this schema.

    No dictionary is tried for binary cells and floating-point numbers, which seldom repeat, and no statistics are kept
    of binary cells. Cells that a codec has compressed are not compressed again. Pages carry checksums. `"auto"` is
    left to be settled once there are cells.

    Raises:
        InvalidArgumentError: There is no such compression.

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
        raise InvalidArgumentError(f"compression={compression!r} is not known; choose one of {known}")
    stored = storage_schema(schema)
    leaves = leaves_of(stored)
    types = {leaf: leaf_type(stored.field(name).type) for name, paths in leaves.items() for leaf in paths}
    return {
        "compression": {
            leaf: "none" if _is_compressed(schema, name) else chosen for name, paths in leaves.items() for leaf in paths
        },
        "use_dictionary": [
            leaf for leaf, kind in types.items() if not is_blob(kind) and not pa.types.is_floating(kind)
        ],
        "write_statistics": [leaf for leaf, kind in types.items() if not is_blob(kind)],
        "write_page_checksum": True,
        "write_batch_size": _rows_between_looks(schema),
        "store_schema": False,
    }


def _rows_between_looks(schema: Unischema) -> int:
    """Rows after which Arrow looks whether a page is full: without this, a page of arrays is a thousand of them."""
    largest = max((field.decoded_bytes or _FREE_VALUE_BYTES for field in schema), default=1)
    return max(min(_PAGE_BYTES // max(largest, 1), _MOST_ROWS_BETWEEN_LOOKS), 1)


def _is_compressed(schema: Unischema, name: str) -> bool:
    codec = schema[name].codec
    return codec is not None and codec.codec_id in _COMPRESSED_CELLS


def is_blob(kind: pa.DataType) -> bool:
    """Whether values are cells of bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def leaf_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type of the values of a column, inside lists where there are some."""
    return leaf_type(arrow_type.value_type) if pa.types.is_list(arrow_type) else arrow_type


def leaves_of(stored: pa.Schema) -> dict[str, list[str]]:
    """Of each column: the paths of its leaves as Parquet spells them, found by writing an empty file."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, stored, store_schema=False):
        pass
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return leaf_paths(stored, [parquet.column(leaf).path for leaf in range(len(parquet))])
