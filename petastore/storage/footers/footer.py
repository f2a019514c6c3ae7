"""Parquet footer of one file: parsed from memory, and validated.

Sizes are checked before memory is allocated, and numbers of rows must add up.
"""

from __future__ import annotations

import array
import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from petastore.errors import DatasetChangedError, DecodeError, MetadataError
from petastore.inventory import DataFile
from petastore.lazy import once
from petastore.schema.document import DOCUMENT_KEY
from petastore.storage.files.listing import parse_partitions
from petastore.storage.footers.chunk_metadata import (
    ChunkContents,
    chunk_contents,
    read_chunk,
    row_group_counts,
    schema_end,
)
from petastore.storage.footers.leaves import (
    leaves_by_column,
    may_be_unreadable,
    member_at,
    members_of,
    unreadable_columns,
    with_distinct_names,
)
from petastore.storage.footers.tails import MAGIC, LocalVersion, Tail, digest_of
from petastore.storage.ranges.fetch import END_BYTES
from petastore.storage.stores.interface import FileVersion

__all__ = ["INT96_UNIT", "FileColumns", "Footer", "FooterParser", "check_unchanged", "document_in", "is_unchanged"]

INT96_UNIT = "us"
"""Unit in which INT96 timestamps are read.

Spark writes microseconds; nanoseconds would wrap around outside of the years 1677 to 2262.
"""

_NO_UTF8 = "a writer whose name is not UTF-8"


@dataclasses.dataclass(frozen=True, eq=False)
class FileColumns:
    """Columns of a file, shared by all files with equal columns."""

    arrow_schema: Any
    """The `pyarrow.Schema` of the columns, without the file's key-value metadata."""

    leaves: Mapping[str, range]
    """Half-open range of leaf columns of each readable column, by name.

    A name is that of a top-level column, or the dotted name of a struct member such as `geo.lat`.
    """

    unreadable: Mapping[str, str]
    """Reason for each unreadable column."""

    members: Mapping[str, tuple[str, ...]]
    """Path of each struct member that can be read, by dotted name such as `geo.lat`."""

    stored: Any
    """The `pyarrow.parquet.ParquetSchema` of the columns."""

    leaves_of: dict[tuple[str, ...], list[int]] = dataclasses.field(default_factory=dict)
    """Cache: numbers of the leaf columns, by the tuple of requested column names."""

    as_asked: dict[tuple[str, ...], Any] = dataclasses.field(default_factory=dict)
    """Cache: `pyarrow.Schema` of tables that need no conversion after reading.

    The key is the tuple of requested column names.
    """

    casts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """`pyarrow.Field` of the dataset for each column that must be cast, by name.

    These are the columns that the file lacks, or stores as another type than the dataset declares.
    """

    is_renamed: bool = False
    """Whether columns were renamed, because several columns have the same name."""

    def unified(self, schema: Any) -> FileColumns:
        """Return the columns, with casts to the schema that all files of the dataset share.

        If no cast is needed, return this object. Columns and struct members that are not in the file have no leaves.

        Args:
            schema: The `pyarrow.Schema` to which all files are cast.
        """
        own = {field.name: field for field in self.arrow_schema}
        casts = {field.name: field for field in schema if field.name not in own or own[field.name] != field}
        if not casts:
            return self
        # A dotted name may be a struct member in this file, and a column in another file.
        members = {name: path for name, path in self.members.items() if name not in casts}
        for name, (path, _) in members_of(schema, dict.fromkeys(casts, range(0))).items():
            wanted = member_at(schema, path)
            if name not in members or self.field(name).type != wanted.type:
                casts[name] = pa.field(name, wanted.type)
            members[name] = path
        has = {
            name: leaves
            for name, leaves in self.leaves.items()
            if name in own or self.members.get(name) == members.get(name)
        }
        leaves = {**dict.fromkeys(casts, range(0)), **has}
        return dataclasses.replace(self, leaves=leaves, members=members, casts=casts, leaves_of={}, as_asked={})

    def lacks(self, name: str) -> bool:
        """Return whether a column of the dataset is not in the file."""
        return name in self.casts and not self.leaves[name]

    def field(self, name: str) -> pa.Field:
        """Return the file's Arrow field of a column, or of a struct member by dotted name."""
        return member_at(self.arrow_schema, self.members.get(name, (name,)))

    def read_as(self, name: str) -> pa.Field:
        """Return the Arrow field of a column after reading.

        This is the dataset's field if it differs from the file's.
        """
        return self.casts[name] if name in self.casts else self.field(name)

    @once
    def are_nested(self) -> bool:
        """Whether some columns may have more values than rows, such as lists."""
        kinds = self.arrow_schema.types
        return any(pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) for kind in kinds)

    @once
    def byte_leaves(self) -> frozenset[int]:
        """Numbers of the leaf columns of text or bytes."""
        leaves = range(len(self.stored))
        return frozenset(leaf for leaf in leaves if self.stored.column(leaf).physical_type == "BYTE_ARRAY")

    @once
    def int96_leaves(self) -> frozenset[int]:
        """Numbers of the leaf columns of INT96 timestamps."""
        return _int96_leaves(self.stored)


def _int96_leaves(stored: Any) -> frozenset[int]:
    return frozenset(leaf for leaf in range(len(stored)) if stored.column(leaf).physical_type == "INT96")


@dataclasses.dataclass(frozen=True, eq=False)
class Footer:
    """Parsed footer of one file."""

    file: DataFile
    """The file, with its size and footer digest."""

    encoded: bytes = dataclasses.field(repr=False)
    """Footer bytes as stored in the file."""

    columns: FileColumns = dataclasses.field(repr=False)
    """Columns of the file."""

    version: FileVersion | None = dataclasses.field(default=None, repr=False)
    """File version from which the footer was read; None if requests cannot require it."""

    local: LocalVersion | None = dataclasses.field(default=None, repr=False)
    """Local file version from which the footer was read; None if remote or unknown."""

    copied_bytes: dict[tuple[int, str], int] = dataclasses.field(default_factory=dict, repr=False)
    """Cache: decoded bytes of dictionary-encoded columns, by (row group, column).

    They are measured while reading, or are an upper bound.
    """

    page_bytes: dict[tuple[int, int], int] = dataclasses.field(default_factory=dict, repr=False)
    """Cache: memory for the largest pages of a chunk, by (row group, leaf column)."""

    whole_microseconds: set[tuple[int, int]] = dataclasses.field(default_factory=set, repr=False)
    """Checked pairs (row group, leaf column) of INT96 timestamps without nanoseconds."""

    def unified(self, columns: FileColumns) -> Footer:
        """Return a copy of the footer with other columns.

        Args:
            columns: Columns of the file, with casts to the schema that all files of the dataset share.
        """
        footer = copy.copy(self)  # keeps the cached parsed parts
        object.__setattr__(footer, "columns", columns)
        return footer

    def note_local(self, version: LocalVersion) -> None:
        """Record another version of the local file with the same footer, as after a touch."""
        object.__setattr__(self, "local", version)

    @once
    def metadata(self) -> Any:
        """The `pyarrow.parquet.FileMetaData`.

        Raises:
            MetadataError: The footer is damaged.
        """
        return _opened(self.encoded, self.file.path, self.file.size).metadata

    def chunk(self, ordinal: int, leaf: int) -> ChunkContents:
        """Return the metadata of a column chunk.

        Arrow is not used, because it crashes on damaged metadata.

        Raises:
            DecodeError: The chunk is encrypted, or its metadata is not in the footer.
            MetadataError: The footer is damaged.
        """
        places = self._counts[1][ordinal]
        chunk = read_chunk(self.encoded, places[leaf], source=self.file.path) if leaf < len(places) else None
        if chunk is not None and chunk.is_plain:
            return chunk
        raise DecodeError(
            "the footer must have unencrypted metadata of the column, got none: the file is damaged, or the column is "
            "encrypted. petastore cannot decrypt columns; leave the column out with schema_fields",
            column=self.columns.stored.column(leaf).path.partition(".")[0],
            file=self.file.path,
            row_group=ordinal,
        )

    @property
    def arrow_schema(self) -> Any:
        """The `pyarrow.Schema` of the columns, without the file's key-value metadata."""
        return self.columns.arrow_schema

    @property
    def leaves(self) -> Mapping[str, range]:
        """Half-open range of leaf columns of each readable column and struct member."""
        return self.columns.leaves

    @once
    def _counts(self) -> tuple[NDArray[np.int64], list[array.array[int]]]:
        return row_group_counts(self.encoded, source=self.file.path)

    @once
    def groups(self) -> dict[str, NDArray[np.int64]]:
        """Dict of `rows`, `stored_bytes`, `decoded_bytes`; arrays of shape (row groups,)."""
        counts, _ = self._counts
        _check_counts(counts, self.metadata.num_rows, self.file.path)
        return dict(zip(("rows", "stored_bytes", "decoded_bytes"), counts, strict=True))

    def _row_groups(self) -> Iterator[Any]:
        return map(self.metadata.row_group, range(self.metadata.num_row_groups))

    @property
    def rows(self) -> list[int]:
        """Number of rows of each row group; columns are not parsed."""
        return [group.num_rows for group in self._row_groups()]

    @once
    def largest_group_bytes(self) -> int:
        """Uncompressed bytes of the largest row group, from the footer."""
        return max((group.total_byte_size for group in self._row_groups()), default=0)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Reason for each column that cannot be read."""
        return self.columns.unreadable

    @once
    def dictionaries(self) -> list[dict[int, ChunkContents]]:
        """Column chunks of text or bytes that have a dictionary.

        For each row group, a dict from leaf column number to chunk.
        """
        groups = chunk_contents(self.encoded, self.columns.byte_leaves, source=self.file.path)
        return [{leaf: chunk for leaf, chunk in group.items() if chunk.has_dictionary} for group in groups]

    @once
    def most_copied_bytes(self) -> float:
        """Upper bound on the decoded text of a row group in bytes.

        It assumes that each value is as long as the whole uncompressed row group. It is infinite if columns are nested.
        """
        if not self.columns.byte_leaves:
            return 0
        if self.columns.are_nested:
            return math.inf
        # Sizes are from pyarrow's metadata, because parsing the footer's bytes would delay the first batch by 5 ms.
        sizes = ((group.num_rows, group.total_byte_size) for group in self._row_groups())
        return max((_copied_at_most(*size) for size in sizes), default=0)

    @property
    def written_by(self) -> str:
        """Name of the program that wrote the file, from the footer."""
        try:
            return str(self.metadata.created_by)
        except UnicodeDecodeError:
            return _NO_UTF8

    @property
    def may_miscount(self) -> bool:
        """Whether the writer may have stored too small sizes of chunks with a dictionary."""
        return self.written_by.startswith(("parquet-mr", _NO_UTF8)) or not self.written_by

    @property
    def schema_document(self) -> str | None:
        """Schema document in the key-value metadata, unchecked; None without one."""
        return document_in(self.metadata, self.file.path)


def document_in(metadata: Any, source: str) -> str | None:
    """Return the schema document in a footer's key-value metadata; None without one.

    Raises:
        MetadataError: The document is not text.
    """
    document = (metadata.metadata or {}).get(DOCUMENT_KEY.encode())
    try:
        return None if document is None else document.decode()
    except UnicodeDecodeError as problem:
        raise MetadataError(
            f"{source}: the schema document must be UTF-8, got other bytes ({problem}). Write the metadata again with "
            "`petastore generate-metadata`"
        ) from None


def _copied_at_most(rows: int, decoded: int) -> float:
    return math.inf if rows < 0 or decoded < 0 else rows * decoded


def _check_counts(counts: NDArray[np.int64], num_rows: int, path: str) -> None:
    if counts.size and counts.min() < 0:
        kind, number = np.argwhere(counts < 0)[0]
        name = ("rows", "compressed bytes", "bytes")[kind]
        raise MetadataError(
            f"{path}: the footer is damaged: it declares {counts[kind, number]:,} {name} for row group {number}. "
            "Restore the file from a copy, or write the file again"
        )
    # Python's integers cannot overflow, whatever the footer contains.
    total = sum(counts[0].tolist())
    # Some writers store 0 instead of the total count, so 0 is accepted.
    if num_rows not in (0, total):
        raise MetadataError(
            f"{path}: the footer is damaged: it declares {num_rows:,} rows, but {total:,} in the row groups. Restore "
            "the file from a copy, or write the file again"
        )


class FooterParser:
    """Parser of a dataset's footers. Thread-safe.

    Files with equal columns share one `FileColumns` object.

    Args:
        unified: `pyarrow.Schema` to which all files are cast; None keeps the types of each file.
    """

    def __init__(self, unified: Any = None) -> None:
        self._unified = unified
        self._known: tuple[bytes, bytes | None, FileColumns] = b"", None, FileColumns(None, {}, {}, {}, None)

    def parse(self, path: str, tail: Tail, etag: str = "") -> Footer:
        """Parse the footer bytes of one file.

        Args:
            path: Path of the file.
            tail: Tail of the file.
            etag: Etag of the file from a listing or manifest, if the tail does not contain the version.

        Raises: MetadataError: The footer is damaged.
        """
        size, footer, version, local = tail
        reader = _opened(footer, path, size)
        metadata, (schema, arrow_schema, columns) = reader.metadata, self._known
        is_known = (
            schema != b""
            and footer.startswith(schema)
            and metadata.schema.equals(columns.stored)
            and _arrow_schema_in(metadata) == arrow_schema
            and not may_be_unreadable(metadata, footer)
        )
        if not is_known:
            columns = _columns(reader, footer, path, size)
            if self._unified is not None:
                columns = columns.unified(self._unified)
            if not columns.unreadable:
                self._known = footer[: schema_end(footer)], _arrow_schema_in(metadata), columns
        called = etag if version is None else version.strong_etag
        file = DataFile(path, size, digest_of(footer), parse_partitions(path), called)
        parsed = Footer(file, footer, columns, version=version, local=local)
        parsed.__dict__["metadata"] = metadata
        return parsed


def _arrow_schema_in(metadata: Any) -> bytes | None:
    return (metadata.metadata or {}).get(b"ARROW:schema")


def _columns(reader: Any, footer: bytes, path: str, size: int) -> FileColumns:
    metadata = reader.metadata
    try:
        # INT96 timestamps are read in microseconds, as Spark writes them. Only the schema of the reader has this unit.
        schema = reader.schema_arrow if _int96_leaves(metadata.schema) else metadata.schema.to_arrow_schema()
        schema = schema.remove_metadata()
        _ = schema.names  # pyarrow parses the schema lazily; parse it here, so that a damaged schema raises the error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise _unreadable_footer(path, problem, size - END_BYTES - len(footer)) from problem
    schema, stored_names = with_distinct_names(schema), schema.names
    leaves = leaves_by_column(schema, metadata.num_columns, source=path)
    unreadable = unreadable_columns(schema, leaves, metadata, footer, source=path)
    if unreadable:
        schema = pa.schema([field for field in schema if field.name not in unreadable])
        leaves = {name: own for name, own in leaves.items() if name not in unreadable}
    members = members_of(schema, leaves) if any(map(pa.types.is_struct, schema.types)) else {}
    leaves |= {name: inside for name, (_, inside) in members.items()}
    paths = {name: member for name, (member, _) in members.items()}
    return FileColumns(schema, leaves, unreadable, paths, metadata.schema, is_renamed=schema.names != stored_names)


def _unreadable_footer(path: str, problem: Exception, at: int) -> MetadataError:
    if isinstance(problem, UnicodeDecodeError):
        return MetadataError(f"{path}: column names must be UTF-8: {problem}. Write the file again with other names")
    if isinstance(problem, (pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        return MetadataError(
            f"{path}: the footer declares columns that Apache Arrow cannot read: {problem}. If the file is not "
            "damaged, write it again with another writer"
        )
    return MetadataError(
        f"{path}: the footer, which begins at byte {at:,}, is damaged: {problem}. Restore the file from a copy"
    )


def _opened(footer: bytes, path: str, size: int) -> Any:
    framed = b"".join([MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC])
    try:
        reader = pq.ParquetReader()  # `read_metadata` would also parse each column
        reader.open(pa.BufferReader(framed), coerce_int96_timestamp_unit=INT96_UNIT)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise _unreadable_footer(path, problem, size - END_BYTES - len(footer)) from problem
    return reader


def check_unchanged(now: DataFile, expected: DataFile) -> None:
    """Raise an error if a file's size or footer digest differs from the inventory.

    An unknown digest is not compared.

    Raises:
        DatasetChangedError: Size or digest differ.
    """
    if not is_unchanged(now, expected):
        raise DatasetChangedError(
            f"{expected.path} was rewritten since the dataset was listed: it had {_version_of(expected, now)}, and has "
            f"{_version_of(now, expected)}. Open the dataset again; if its manifest lists the old file, `petastore "
            "generate-metadata` lists the new one"
        )


def _version_of(file: DataFile, other: DataFile) -> str:
    """Describe the version of a file for a message: its size, and its footer digest.

    The digest is omitted if one of the two files has none.
    """
    return f"{file.size:,} bytes and footer {file.digest}" if file.digest and other.digest else f"{file.size:,} bytes"


def is_unchanged(now: DataFile, expected: DataFile) -> bool:
    """Return whether a file has the expected size and footer digest.

    An unknown digest is not compared.
    """
    return now.size == expected.size and (not expected.digest or now.digest == expected.digest)
