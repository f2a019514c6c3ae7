"""Column chunk metadata of a Parquet footer, parsed from its bytes. No I/O.

The metadata has sizes, contents and statistics. In pyarrow, only `RowGroupMetaData.column` returns it, and terminates
the process for some damaged footers (an uncaught C++ exception; seen with 26.0). This module therefore parses the
needed fields itself, and skips the rest.

Footers and page headers are written in the Thrift compact protocol
(https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md). Each parsing function takes the
bytes and a position, and returns the value at this position and the position after the value. Invalid data raises
ValueError, truncated data IndexError.

Bounds (minimum and maximum) are ignored if their sort order is unknown. This concerns the old fields `min` and `max`,
whose order was never specified, and columns for which the footer does not declare an order.

Field numbers are those of `parquet.thrift`: FileMetaData {4 row_groups, 7 column_orders}, RowGroup {1 columns, 2
total_byte_size, 3 num_rows}, ColumnChunk {3 meta_data, 8 crypto_metadata}, ColumnMetaData {1 type, 2 encodings, 3
path_in_schema, 4 codec, 5 num_values, 6 total_uncompressed_size, 7 total_compressed_size, 9 data_page_offset, 11
dictionary_page_offset, 12 statistics, 16 size_statistics}, Statistics {3 null_count, 5 max_value, 6 min_value},
SizeStatistics {1 unencoded_byte_array_data_bytes}, ColumnOrder {1 TYPE_ORDER}.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.errors import MetadataError

__all__ = [
    "BINARY",
    "INTEGER",
    "INTEGERS",
    "LIST",
    "PRESENCE",
    "STRUCT",
    "ChunkContents",
    "Read",
    "chunk_contents",
    "list_reader",
    "read_binary",
    "read_chunk",
    "read_integer",
    "read_struct_list",
    "read_varint",
    "row_group_counts",
    "schema_end",
    "skip_struct",
    "skip_value",
    "some_structs_reader",
    "struct_reader",
]

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Function that parses the value at a position; returns it and the next position."""

# Types of the compact protocol. Maps do not occur in a footer.
INTEGERS = (4, 5, 6)
BINARY, LIST, _SET, STRUCT = 8, 9, 10, 12
_FIXED_BYTES = {1: 0, 2: 0, 3: 1, 7: 8}
"""Dict from Thrift type of fixed size to its bytes; 0 for booleans, which field headers contain."""

_ONE_BYTE_ELEMENTS = (1, 2, 3)
"""Types with one byte per list element; booleans in a list have one byte each."""


def read_struct_list(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of the list of structs at `at`, and the position of the first."""
    count, kind, at = _read_list_header(data, at)
    if count and kind != STRUCT:
        raise ValueError(f"a list must have elements of Thrift type {STRUCT} (struct), got type {kind}")
    return count, at


def _read_list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Return length and element type of a list, and the position of its first element."""
    header = data[at]
    if header >> 4 != 15:
        return header >> 4, header & 15, at + 1
    count, at = read_varint(data, at + 1)
    return count, header & 15, at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number at `at`, and the position after it."""
    value = data[at]
    if value < 128:
        return value, at + 1
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("an integer must have at most 64 bits, got more")


def read_integer(data: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag-coded signed number at `at`, and the position after it."""
    value, at = read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def read_binary(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes at `at`, fewer if truncated, and the position after them."""
    length, at = read_varint(data, at)
    return data[at : at + length], at + length


INTEGER: Mapping[int, Read] = dict.fromkeys(INTEGERS, read_integer)
"""Readers of an integer field, by Thrift type (16, 32 or 64 bits); an argument of `struct_reader`."""


def struct_reader(fields: Mapping[int, Mapping[int, Read]]) -> Read:
    """Return a parser of structs that returns a dict of some fields.

    The keys of the dict are field numbers; all other fields are skipped. If a field occurs several times, the parser
    returns the last one, like any Thrift reader.

    Args:
        fields: For each field to read, a dict from Thrift type to reader. Values of other types are skipped, as if
            missing.

    Example:
        >>> struct_reader({1: INTEGER, 3: INTEGER})(bytes([0x15, 8, 0x15, 10, 0x15, 11, 0]), 0)
        ({1: 4, 3: -6}, 7)
    """
    readers = {number << 4 | kind: read for number, kinds in fields.items() for kind, read in kinds.items()}
    wanted = readers.get

    def read_struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
        fields_there = {}
        number = 0
        while header := data[at]:
            kind = header & 15
            if header > 15:
                number, at = number + (header >> 4), at + 1
            else:
                number, at = read_integer(data, at + 1)
            read = wanted(number << 4 | kind)
            if read is not None:
                fields_there[number], at = read(data, at)
            elif kind in INTEGERS:
                while data[at] > 127:
                    at += 1
                at += 1
            else:
                at = skip_value(data, at, kind)
        return fields_there, at + 1

    return read_struct


def list_reader(kinds: Mapping[int, Read]) -> Mapping[int, Read]:
    """Return the reader of a list field, as a dict by Thrift type for `struct_reader`.

    The reader returns a list. It raises ValueError for a list whose element type is not in `kinds`.

    Args:
        kinds: Dict from the Thrift type of elements to their reader.

    Example:
        >>> struct_reader({1: list_reader(INTEGER)})(bytes([0x19, 0x25, 8, 10, 0]), 0)
        ({1: [4, 5]}, 5)
    """

    def read_list(data: bytes, at: int) -> tuple[list[Any], int]:
        count, kind, at = _read_list_header(data, at)
        if not count:
            return [], at
        if kind not in kinds:
            raise ValueError(
                f"a list must have elements of Thrift type {' or '.join(map(str, kinds))}, got type {kind}"
            )
        read, elements = kinds[kind], []
        for _ in range(count):
            element, at = read(data, at)
            elements.append(element)
        return elements, at

    return {LIST: read_list}


def some_structs_reader(read: Read, places: Collection[int]) -> Mapping[int, Read]:
    """Return the reader of some structs in a list field, as a dict by Thrift type.

    The dict is an argument of `struct_reader`. The reader returns a dict from index in the list to struct.

    Args:
        read: Reader of a struct.
        places: Indices of the structs to read; all other structs are skipped.
    """

    def read_some(data: bytes, at: int) -> tuple[dict[int, Any], int]:
        count, at = read_struct_list(data, at)
        elements = {}
        for place in range(count):
            if place in places:
                elements[place], at = read(data, at)
            else:
                at = skip_struct(data, at)
        return elements, at

    return {LIST: read_some}


def skip_value(data: bytes, at: int, kind: int) -> int:
    """Return the position after the value at `at`."""
    skip = _SKIP.get(kind)
    if skip is None:
        raise ValueError(f"a Thrift type must be a type of the compact protocol, got {kind}")
    return skip(data, at)


def skip_struct(data: bytes, at: int) -> int:
    """Return the position after the struct at `at`.

    Most of the parsing time is spent here and in `_skip_list`, which therefore call few functions.
    """
    while header := data[at]:
        at += 1
        if header < 16:
            at = _skip_varint(data, at)
        kind = header & 15
        if kind in INTEGERS:
            while data[at] > 127:
                at += 1
            at += 1
        elif kind > 2:
            at = skip_value(data, at, kind)
    return at + 1


def _skip_list(data: bytes, at: int) -> int:
    count, kind, at = _read_list_header(data, at)
    if kind in INTEGERS:
        for _ in range(count):
            while data[at] > 127:
                at += 1
            at += 1
        return at
    if kind in _ONE_BYTE_ELEMENTS:
        return at + count
    for _ in range(count):
        at = skip_value(data, at, kind)
    return at


def _skip_binary(data: bytes, at: int) -> int:
    length, at = read_varint(data, at)
    return at + length


def _skip_varint(data: bytes, at: int) -> int:
    while data[at] > 127:
        at += 1
    return at + 1


def _skip_bytes(length: int) -> Callable[[bytes, int], int]:
    return lambda _, at: at + length


_SKIP: Mapping[int, Callable[[bytes, int], int]] = {
    **{kind: _skip_bytes(length) for kind, length in _FIXED_BYTES.items()},
    **dict.fromkeys(INTEGERS, _skip_varint),
    BINARY: _skip_binary,
    STRUCT: skip_struct,
    LIST: _skip_list,
    _SET: _skip_list,
}
"""Dict from Thrift type to the function that returns the position after a value."""


def _present(kind: int) -> Read:
    return lambda data, at: (True, skip_value(data, at, kind))


PRESENCE: Mapping[int, Read] = {kind: _present(kind) for kind in _SKIP}
"""Readers that return True for a present field, by Thrift type; an argument of `struct_reader`.

The value of the field is skipped.
"""


_ROW_GROUPS, _ORDERS = 4, 7  # fields of FileMetaData
_VERSION_FIELD, _SCHEMA_FIELD = 0x15, 0x19  # first bytes of field 1, a number, and of field 2, a list
_COLUMNS, _DECODED, _ROWS = 1, 2, 3  # fields of RowGroup
_METADATA, _ENCRYPTION = 3, 8  # fields of ColumnChunk
_TYPE, _COMPRESSION, _VALUES, _UNPACKED, _STORED = 1, 4, 5, 6, 7  # fields of ColumnMetaData, also the next line
_DATA_PAGE, _DICTIONARY_PAGE, _STATISTICS, _SIZES = 9, 11, 12, 16
_TYPE_ORDER = 1  # field of ColumnOrder
_DAMAGE = (IndexError, ValueError, OverflowError, RecursionError)
_RESTORE = "Restore the file from a copy, or write the file again"
_DICTIONARIES = {2, 8}  # numbers of PLAIN_DICTIONARY and RLE_DICTIONARY


def _footer_fields(footer: bytes, fields: Mapping[int, Mapping[int, Read]], source: str) -> dict[int, Any]:
    """Return the present fields of a footer.

    Raises:
        MetadataError: The bytes are not a footer.
    """
    try:
        values: dict[int, Any] = struct_reader(fields)(footer, 0)[0]
    except _DAMAGE as problem:
        raise MetadataError(f"{source}: the footer is damaged: {problem}. {_RESTORE}") from None
    return values


def schema_end(footer: bytes) -> int:
    """Return the position after the schema in a footer.

    Return 0 if the footer does not begin with version and schema.
    """
    try:
        _, at = read_integer(footer, 1)
        begins = footer[0] == _VERSION_FIELD and footer[at] == _SCHEMA_FIELD
        return skip_value(footer, at + 1, LIST) if begins else 0
    except (IndexError, ValueError, RecursionError):
        return 0


def _chunk_size(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Return ((compressed bytes of a column chunk, `at`), position after the chunk's metadata)."""
    chunk, after = _stored(data, at)
    size = chunk.get(_METADATA, {}).get(_STORED)
    if size is None:
        raise ValueError("a column chunk has no size")
    return (size, at), after


_Counts: TypeAlias = tuple[int, int, int]
"""Rows, compressed bytes and uncompressed bytes of a row group."""


def _group_counts(data: bytes, at: int) -> tuple[tuple[_Counts, array.array[int]], int]:
    """Return ((counts of a row group, positions of its column chunks), position after the row group)."""
    group, after = _group(data, at)
    # The sizes of each chunk are dropped here: with many objects, Python's garbage collector takes most of the time.
    chunks = group.get(_COLUMNS, [])
    counts = group.get(_ROWS, 0), sum(size for size, _ in chunks), group.get(_DECODED, 0)
    return (counts, array.array("Q", [place for _, place in chunks])), after


_stored = struct_reader({_METADATA: {STRUCT: struct_reader({_STORED: INTEGER})}})
_group = struct_reader({_COLUMNS: list_reader({STRUCT: _chunk_size}), _DECODED: INTEGER, _ROWS: INTEGER})
_GROUPS = list_reader({STRUCT: _group_counts})


def row_group_counts(footer: bytes, *, source: str) -> tuple[NDArray[np.int64], list[array.array[int]]]:
    """Return the sizes of each row group in a footer, and the positions of its column chunks.

    The sizes are the numbers of rows, of compressed bytes and of uncompressed bytes.

    Args:
        footer: Thrift bytes of the footer, without length and magic.
        source: Name of the file, for messages.

    Returns:
        Unchecked sizes, of shape (3, row groups); and, for each row group, the positions in the footer at which the
        metadata of its column chunks begin, for `read_chunk`.

    Raises:
        MetadataError: The bytes are not a footer, or a size is missing.
    """
    groups = _footer_fields(footer, {_ROW_GROUPS: _GROUPS}, source).get(_ROW_GROUPS, [])
    try:
        counts = np.array([counts for counts, _ in groups], dtype=np.int64).reshape(-1, 3).T
    except OverflowError as problem:
        raise MetadataError(f"{source}: the footer is damaged: {problem}. {_RESTORE}") from None
    return counts, [places for _, places in groups]


class ChunkContents(NamedTuple):
    """Metadata of one column chunk as in the footer; not compared with the data."""

    path: str = ""
    """Names from the column to the leaf, separated by dots."""

    values: int = 0
    """Number of values, including nulls."""

    encodings: tuple[int, ...] = ()
    """Encodings of the chunk's pages, by the numbers of `parquet.thrift`."""

    first_page: int = 0
    """Offset of the chunk's first page in the file."""

    decoded_bytes: int = 0
    """Uncompressed bytes of the chunk's pages."""

    stored_bytes: int = 0
    """Bytes of the chunk's pages in the file, usually compressed."""

    copied_bytes: int | None = None
    """Bytes of all text or bytes values, repeated values included; None if unknown."""

    is_plain: bool = True
    """Whether the chunk has metadata in the footer, and is not encrypted."""

    physical: int = -1
    """Physical type of the column, by the numbers of `parquet.thrift`."""

    nulls: int | None = None
    """Number of nulls in the chunk; None if the footer does not have it."""

    minimum: bytes | None = None
    """Minimum of the values, as stored bytes; None if the footer does not have it.

    `chunk_contents` removes the minimum if the footer does not declare the order of values.
    """

    maximum: bytes | None = None
    """Maximum of the values, as stored bytes; None if the footer does not have it.

    `chunk_contents` removes the maximum if the footer does not declare the order of values.
    """

    compression: int = 0
    """Compression codec, by the numbers of `parquet.thrift`."""

    @property
    def has_dictionary(self) -> bool:
        """Whether some values are indices into a dictionary."""
        return not _DICTIONARIES.isdisjoint(self.encodings)


def read_chunk(footer: bytes, place: int, *, source: str) -> ChunkContents:
    """Return the metadata of the column chunk at a position of the footer.

    Raises:
        MetadataError: The bytes are not a footer.
    """
    try:
        return _column_chunk(footer, place)[0]
    except _DAMAGE as problem:
        raise MetadataError(f"{source}: the footer is damaged: {problem}. {_RESTORE}") from None


def chunk_contents(footer: bytes, leaves: Collection[int], *, source: str) -> list[dict[int, ChunkContents]]:
    """Return metadata of column chunks: for each row group, a dict by leaf number.

    Args:
        footer: Thrift bytes of the footer, without length and magic.
        leaves: Numbers of the leaf columns to return.
        source: Name of the file, for messages.

    Raises:
        MetadataError: The bytes are not a footer.
    """
    groups = list_reader({STRUCT: struct_reader({_COLUMNS: some_structs_reader(_column_chunk, leaves)})})
    fields = _footer_fields(footer, {_ROW_GROUPS: groups, _ORDERS: _COLUMN_ORDERS}, source)
    ordered = {leaf for leaf, order in enumerate(fields.get(_ORDERS, ())) if order}
    return [
        {
            leaf: chunk if leaf in ordered else chunk._replace(minimum=None, maximum=None)
            for leaf, chunk in group.get(_COLUMNS, {}).items()
        }
        for group in fields.get(_ROW_GROUPS, [])
    ]


_COLUMN_ORDERS = list_reader({STRUCT: struct_reader({_TYPE_ORDER: PRESENCE})})
_BYTES: Mapping[int, Read] = {BINARY: read_binary}
_contents = struct_reader(
    {
        _METADATA: {
            STRUCT: struct_reader(
                {
                    **dict.fromkeys(
                        (_TYPE, _COMPRESSION, _VALUES, _UNPACKED, _STORED, _DATA_PAGE, _DICTIONARY_PAGE), INTEGER
                    ),
                    2: list_reader(INTEGER),
                    3: list_reader(_BYTES),
                    _STATISTICS: {STRUCT: struct_reader({3: INTEGER, 5: _BYTES, 6: _BYTES})},
                    _SIZES: {STRUCT: struct_reader({1: INTEGER})},
                }
            )
        },
        _ENCRYPTION: PRESENCE,
    }
)


def _column_chunk(data: bytes, at: int) -> tuple[ChunkContents, int]:
    chunk, at = _contents(data, at)
    said = chunk.get(_METADATA, {})
    first, dictionary = said.get(_DATA_PAGE, 0), said.get(_DICTIONARY_PAGE, 0)
    statistics = said.get(_STATISTICS, {})
    contents = ChunkContents(
        ".".join(name.decode() for name in said.get(3, ())),
        said.get(_VALUES, 0),
        tuple(said.get(2, ())),
        min(first, dictionary) if dictionary else first,  # some writers store 0 if there is no dictionary
        said.get(_UNPACKED, 0),
        said.get(_STORED, 0),
        said.get(_SIZES, {}).get(1),
        _METADATA in chunk and _ENCRYPTION not in chunk,
        said.get(_TYPE, -1),
        statistics.get(3),
        statistics.get(6),
        statistics.get(5),
        said.get(_COMPRESSION, 0),
    )
    return contents, at
