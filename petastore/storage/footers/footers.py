"""Parquet footers: what a file says about itself, and what the files of a dataset agree on.

A footer is parsed from memory, and trusted in nothing: sizes are bounded before memory is taken, and counts must add
up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from petastore.errors import DatasetChangedError, DatasetNotFoundError, MetadataError
from petastore.inventory import DataFile, Inventory
from petastore.once import once
from petastore.schema.document import DOCUMENT_KEY
from petastore.storage.files.listing import is_called_parquet
from petastore.storage.files.location import Location
from petastore.storage.files.partitions import parse_partitions
from petastore.storage.footers.alike_footers import alike_footers
from petastore.storage.footers.column_chunks import ChunkContents, chunk_contents, chunk_statistics
from petastore.storage.footers.leaves import leaves_by_column
from petastore.storage.footers.row_group_counts import row_group_counts
from petastore.storage.footers.tails import (
    MAGIC,
    MAX_FOOTER_BYTES,
    NoParquetError,
    Tail,
    Tails,
    digest_of,
)
from petastore.storage.footers.unreadable import unreadable_columns
from petastore.storage.ranges.column_chunks import END_BYTES
from petastore.storage.requests.at_once import at_once
from petastore.storage.requests.client import FileVersion
from petastore.storage.requests.damaged import read_right
from petastore.storage.requests.failures import answered

if TYPE_CHECKING:
    from petastore.storage.footers.kept_tails import KeptTails

__all__ = [
    "INT96_UNIT",
    "Footer",
    "encoded_footers",
    "footer_if_there",
    "inventory_of",
    "parquet_among",
    "read_footer",
    "read_footers",
]

INT96_UNIT = "us"
"""Unit of INT96 timestamps. Spark writes microseconds; nanoseconds wrap around outside of the years 1677 to 2262."""

_SHOWN = 5
_LOOKED_AT = 64
_ROWS = 0
_MOST_COUNTED = 1 << 31  # whether larger ones can be read is looked at file by file; sums do not wrap around


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a file, and of all that have the same."""

    arrow_schema: Any
    """Their `pyarrow.Schema`, without the file's key-value metadata."""

    leaves: Mapping[str, range]
    """Of each top-level column that can be read: its leaf columns, half-open."""

    unreadable: Mapping[str, str]
    """Of each other column: why it cannot be read."""

    stored: Any
    """Their `pyarrow.parquet.ParquetSchema`."""

    leaves_of: dict[tuple[str, ...], list[int]] = dataclasses.field(default_factory=dict)
    """Of columns that were asked for together, and can be read: their leaf columns."""

    as_asked: dict[tuple[str, ...], Any] = dataclasses.field(default_factory=dict)
    """Of columns that were read: the `pyarrow.Schema` of their tables, if they come just as they are handed on."""

    @once
    def are_nested(self) -> bool:
        """Whether one of them has more values than rows, or may have."""
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
    """What one file says about itself."""

    file: DataFile
    """The file with its size and the digest of the footer."""

    encoded: bytes = dataclasses.field(repr=False)
    """The footer as it lies in the file."""

    columns: Columns = dataclasses.field(repr=False)
    """Its columns."""

    counts: NDArray[np.int64] | None = dataclasses.field(default=None, repr=False)
    """Rows, compressed and uncompressed bytes of each row group, checked, if they were worked out already."""

    version: FileVersion | None = dataclasses.field(default=None, repr=False)
    """The version of the file in which it was found; None where that was not told, or cannot be demanded."""

    copied_bytes: dict[tuple[int, str], int] = dataclasses.field(default_factory=dict, repr=False)
    """Of row groups and columns with dictionaries: bytes that their rows take at most, as was found by reading them."""

    kept_decoded: dict[int, Sequence[Any]] = dataclasses.field(default_factory=dict, repr=False)
    """Of row groups: columns that a cache keeps decoded, neighbours together, as far as somebody has asked."""

    askable: set[tuple[int, int]] = dataclasses.field(default_factory=set, repr=False)
    """Row groups and leaf columns of chunks that Arrow may be asked about."""

    whole_microseconds: set[tuple[int, int]] = dataclasses.field(default_factory=set, repr=False)
    """Row groups and leaf columns of INT96 timestamps that were found to be exact in microseconds."""

    @once
    def metadata(self) -> Any:
        """The `pyarrow.parquet.FileMetaData`.

        Raises:
            MetadataError: It is damaged in a way that others with the same columns are not.
        """
        return _metadata(self.encoded, self.file.path, self.file.size)

    def check_chunks(self, ordinals: Sequence[int], leaves: Iterable[int]) -> None:
        """Refuses column chunks that `metadata` must not be asked about, as nobody has read them yet.

        Args:
            ordinals: Row groups.
            leaves: Leaf columns.

        Raises:
            DecodeError: One is encrypted, or damaged so that Arrow makes nothing of it.
        """
        wanted = set(itertools.product(ordinals, leaves)) - self.askable
        if wanted:
            # Of local files chunks are read before they are asked about, but for those of long lists.
            from petastore.storage.ranges.askable_chunks import refuse_unaskable_chunks

            groups, of_groups = (sorted(set(numbers)) for numbers in zip(*wanted, strict=True))
            refuse_unaskable_chunks(self.metadata, groups, of_groups, self.file)
            self.askable.update(wanted)

    @property
    def arrow_schema(self) -> Any:
        """The `pyarrow.Schema` of the file's columns, without the file's key-value metadata."""
        return self.columns.arrow_schema

    @property
    def leaves(self) -> Mapping[str, range]:
        """Of each top-level column: its leaf columns, half-open."""
        return self.columns.leaves

    @once
    def groups(self) -> dict[str, NDArray[np.int64]]:
        """`rows`, `stored_bytes` and `decoded_bytes` of each row group, arrays of shape (row groups,)."""
        counts = self.counts
        if counts is None:
            counts = row_group_counts(self.encoded, source=self.file.path)
            _check_counts(counts, self.metadata.num_rows, self.file.path)
        return dict(zip(("rows", "stored_bytes", "decoded_bytes"), counts, strict=True))

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of each row group, shape (row groups,), without a look at its columns."""
        if self.counts is not None:
            return self.counts[_ROWS]
        groups = range(self.metadata.num_row_groups)
        return np.array([self.metadata.row_group(group).num_rows for group in groups], dtype=np.int64)

    @once
    def largest_group_bytes(self) -> int:
        """Bytes of the largest row group, not compressed, as the footer says."""
        groups = map(self.metadata.row_group, range(self.metadata.num_row_groups))
        return max((group.total_byte_size for group in groups), default=0)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Of each other column: why it cannot be read."""
        return self.columns.unreadable

    @once
    def dictionaries(self) -> list[dict[int, ChunkContents]]:
        """Of each row group: chunks of text or bytes that have a dictionary, by the numbers of their leaf columns."""
        groups = chunk_contents(self.encoded, self.columns.byte_leaves, source=self.file.path)
        return [{leaf: chunk for leaf, chunk in group.items() if chunk.has_dictionary} for group in groups]

    @once
    def nulls(self) -> list[dict[int, int | None]]:
        """Of each row group and leaf column of numbers: values that are missing, if any may be; None is not told.

        Read from the bytes: where bounds beside them are damaged, asking Arrow for statistics ends the process.
        """
        stored = self.columns.stored
        descriptors = {leaf: stored.column(leaf) for leaf in range(len(stored)) if leaf not in self.columns.byte_leaves}
        leaves = [
            leaf for leaf, one in descriptors.items() if one.max_definition_level and not one.max_repetition_level
        ]
        if not leaves:
            return [{} for _ in range(self.metadata.num_row_groups)]
        groups = chunk_statistics(self.encoded, leaves, source=self.file.path)
        return [{leaf: chunk.nulls for leaf, chunk in group.items()} for group in groups]

    @once
    def most_copied_bytes(self) -> float:
        """Bytes of text that the rows of a row group take at most, were each as long as all of them together."""
        if not self.columns.byte_leaves:
            return 0
        if self.columns.are_nested:
            return math.inf
        # Asked of the metadata: to go through the bytes of a footer takes five milliseconds of a first batch.
        groups = map(self.metadata.row_group, range(self.metadata.num_row_groups))
        return max((_copied_at_most(group.num_rows, group.total_byte_size) for group in groups), default=0)

    @property
    def written_by(self) -> str:
        """Who wrote the file, for people, as it says itself."""
        try:
            return str(self.metadata.created_by)
        except UnicodeDecodeError:
            return "a writer whose name is no UTF-8"

    @property
    def schema_document(self) -> str | None:
        """The schema document in the file's key-value metadata, not yet checked; None where there is none."""
        return document_in(self.metadata, self.file.path)


def document_in(metadata: Any, source: str) -> str | None:
    """The schema document in the key-value metadata of a Parquet footer; None where there is none.

    Raises:
        MetadataError: It is no text.
    """
    document = (metadata.metadata or {}).get(DOCUMENT_KEY.encode())
    try:
        return None if document is None else document.decode()
    except UnicodeDecodeError as problem:
        raise MetadataError(f"{source}: the schema document is no UTF-8 ({problem})") from None


def _copied_at_most(rows: int, decoded: int) -> float:
    return math.inf if rows < 0 or decoded < 0 else rows * decoded


def _check_counts(counts: NDArray[np.int64], num_rows: int, path: str) -> None:
    if counts.size and counts.min() < 0:
        kind, number = np.argwhere(counts < 0)[0]
        name = ("rows", "compressed bytes", "bytes")[kind]
        raise MetadataError(f"{path}: the footer says that row group {number} has {counts[kind, number]:,} {name}")
    # Python's integers cannot wrap around, whatever the footer says.
    total = sum(counts[0].tolist())
    # Some writers do not count: what is read are row groups.
    if num_rows not in (0, total):
        raise MetadataError(f"{path}: the footer says {num_rows:,} rows, but its row groups have {total:,}")


def read_footer(location: Location, path: str, *, max_bytes: int = MAX_FOOTER_BYTES, has_rows: bool = True) -> Footer:
    """Read and check the footer of one file; once more where it came damaged over the web.

    Args:
        location: Where the dataset lies.
        path: The file, relative to the root.
        max_bytes: A larger footer is refused.
        has_rows: Whether the file holds the rows that it counts; `_common_metadata` may count those of other files.

    Raises:
        FileMissingError: There is no such file.
        StorageError: The file cannot be read.
        MetadataError: The file is no Parquet, or its footer is damaged; the message says how.
    """
    with Tails(location) as tails:
        ends = _Ends(tails, functools.partial(tails.read, max_bytes=max_bytes), has_rows=has_rows)
        return ends.parsed(path, ends.read(path))


def footer_if_there(location: Location, path: str) -> Footer | None:
    """The footer of a file that describes others, such as `_common_metadata`; None where there is no such file.

    Raises:
        StorageError: The file cannot be read, or nobody can tell whether it is there.
        MetadataError: The file is no Parquet, or its footer is damaged.
    """
    info = answered(location, lambda: location.filesystem.get_file_info(location.join(path)), "look at", path)
    if not info.is_file:
        return None
    try:
        return read_footer(location, path, has_rows=False)
    except MetadataError as problem:
        raise MetadataError(
            f"{problem}. Delete {path} of {location.url} if another program than petastore or Petastorm wrote it; else "
            "write the dataset's metadata again"
        ) from problem


def parsed_footer(path: str, size: int, footer: bytes, version: FileVersion | None = None, etag: str = "") -> Footer:
    """What the footer of a file says.

    Args:
        path: The file.
        size: Its bytes.
        footer: Those of the footer.
        version: In which version of the file it was found, where that was told.
        etag: What the storage called that version, as others say; of one that was found it is known.

    Raises:
        MetadataError: It is damaged.
    """
    reader = _opened(footer, path, size)
    metadata = reader.metadata
    try:
        # INT96 timestamps are read in microseconds, as Spark writes them; only the reader's schema says so.
        schema = reader.schema_arrow if _int96_leaves(metadata.schema) else metadata.schema.to_arrow_schema()
        schema = schema.remove_metadata()
        _ = schema.names  # which are not decoded before
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise _unreadable_footer(path, problem, size - END_BYTES - len(footer)) from problem
    leaves = leaves_by_column(schema, metadata.num_columns, source=path)
    unreadable = unreadable_columns(schema, leaves, metadata, footer, source=path)
    if unreadable:
        schema = pa.schema([field for field in schema if field.name not in unreadable])
        leaves = {name: own for name, own in leaves.items() if name not in unreadable}
    columns = Columns(schema, leaves, unreadable, metadata.schema)
    parsed = Footer(_data_file(path, size, footer, version, etag), footer, columns, version=version)
    parsed.__dict__["metadata"] = metadata
    return parsed


def _unreadable_footer(path: str, problem: Exception, at: int) -> MetadataError:
    if isinstance(problem, UnicodeDecodeError):
        return MetadataError(f"{path}: the name of a column is no UTF-8: {problem}")
    if isinstance(problem, (pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        return MetadataError(
            f"{path}: the footer declares columns that Apache Arrow does not read: {problem}. If the file is not "
            "damaged, write it again with another writer"
        )
    return MetadataError(f"{path}: the footer is damaged, which begins at byte {at:,}: {problem}")


def _metadata(footer: bytes, path: str, size: int) -> Any:
    return _opened(footer, path, size).metadata


def _opened(footer: bytes, path: str, size: int) -> Any:
    framed = b"".join([MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC])
    try:
        reader = pq.ParquetReader()  # not `read_metadata`, which looks at each column besides
        reader.open(pa.BufferReader(framed), coerce_int96_timestamp_unit=INT96_UNIT)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise _unreadable_footer(path, problem, size - END_BYTES - len(footer)) from problem
    return reader


def _data_file(path: str, size: int, footer: bytes, version: FileVersion | None = None, etag: str = "") -> DataFile:
    called = etag if version is None else version.strong_etag
    return DataFile(path, size, digest_of(footer), parse_partitions(path), called)


@dataclasses.dataclass(frozen=True, slots=True)
class _Ends:
    """Ends of files, of which those that come damaged over the web are asked for once more."""

    tails: Tails
    ask: Callable[[str], Tail]
    kept: KeptTails | None = None
    has_rows: bool = True

    def read(self, path: str) -> Tail:
        """The end of a file.

        Raises:
            MetadataError: It is none of Parquet, the second time, too.
            StorageError: It cannot be read.
        """
        read = functools.partial(self.ask, path)
        return read_right(read, None if self.tails.are_local else read, refused=MetadataError)

    def parsed(self, path: str, tail: Tail) -> Footer:
        """What the footer in an end says, or else the footer in what comes when it is asked for once more.

        Raises:
            MetadataError: It is damaged, the second time, too.
            StorageError: It cannot be read.
        """
        parse = _counted if self.has_rows else lambda path, tail: parsed_footer(path, *tail)
        return read_right(
            lambda: parse(path, tail),
            None if self.tails.are_local else lambda: parse(path, self.ask(path)),
            refused=MetadataError,
            forget=None if self.kept is None else functools.partial(self.kept.forget, path),
        )


def read_footers(location: Location, paths: Iterable[str], kept: KeptTails | None = None) -> list[Footer]:
    """Footers of many files, read by up to 16 threads, in the order of `paths`; once more those that came damaged.

    Args:
        location: Where the dataset lies.
        paths: The files, relative to the root.
        kept: Keeps their ends; None asks the storage for all of them.

    Raises:
        StorageError: As `read_footer`, for the first file in order that fails; files that are no Parquet are named
            together.
        DatasetNotFoundError: None of them is Parquet, by its name or by its bytes, and nobody named one.
    """
    wanted = list(paths)
    with Tails(location) as tails:

        def read(path: str) -> Tail:
            return tails.read(path) if kept is None else kept.tail(path, functools.partial(tails.read, path))

        ends = _Ends(tails, read, kept)
        told = list(at_once(functools.partial(_tail_or_stranger, ends.read), wanted))
        strangers = [one for one in told if isinstance(one, NoParquetError)]
        if strangers:
            _refuse_strangers(location, wanted, strangers)
        try:
            return _all_parsed(wanted, [one for one in told if not isinstance(one, NoParquetError)], ends)
        except MetadataError:
            if kept is not None:
                kept.forget(*wanted)
            raise


def _all_parsed(paths: Sequence[str], tails: Sequence[Tail], ends: _Ends) -> list[Footer]:
    """Footers of many files: of those that are alike the first says what all have in common."""
    parsed: dict[int, Footer] = {}
    for kind in alike_footers([tail.footer for tail in tails]):
        columns: Columns | None = None
        is_right = (kind.counts >= 0).all(axis=(1, 2)) & (kind.counts[:, _ROWS].sum(axis=1) == kind.num_rows)
        is_right &= kind.counts.max(axis=(1, 2), initial=0) < _MOST_COUNTED
        for number, counts in zip(kind.members[is_right].tolist(), kind.counts[is_right], strict=True):
            tail, path = tails[number], paths[number]
            if columns is None:
                columns = _columns_in(path, tail)
            if columns is None:
                break  # each of them is looked at by itself
            parsed[number] = Footer(_data_file(path, *tail), tail.footer, columns, counts, tail.version)
    rest = [number for number in range(len(paths)) if number not in parsed]
    parsed.update(zip(rest, at_once(lambda number: ends.parsed(paths[number], tails[number]), rest), strict=True))
    return [parsed[number] for number in range(len(paths))]


def _columns_in(path: str, tail: Tail) -> Columns | None:
    with contextlib.suppress(MetadataError):
        return parsed_footer(path, *tail).columns
    return None


def _counted(path: str, tail: Tail) -> Footer:
    parsed = parsed_footer(path, *tail)
    _ = parsed.groups  # counted here, in parallel, and kept
    return parsed


def parquet_among(location: Location, paths: Sequence[str]) -> list[str]:
    """Those of some files that are Parquet by their names or, of at most 64 others, by how they end; in their order.

    So people are told of data that nobody lists, and not of a README, at a cost that does not grow with strangers.
    """
    others = [path for path in paths if not is_called_parquet(path)]
    looked_at = others[:: -(-len(others) // _LOOKED_AT) or 1]
    with Tails(location) as tails:
        ends = at_once(tails.is_parquet, looked_at)
        parquet = {path for path, is_one in zip(looked_at, ends, strict=True) if is_one}
    return [path for path in paths if path in parquet or is_called_parquet(path)]


def _tail_or_stranger(read: Callable[[str], Tail], path: str) -> Tail | NoParquetError:
    try:
        return read(path)
    except NoParquetError as problem:
        problem.path = path
        return problem


def _refuse_strangers(location: Location, paths: Sequence[str], strangers: Sequence[NoParquetError]) -> NoReturn:
    if len(paths) == 1 and location.paths is not None:
        raise strangers[0]
    names = [problem.path for problem in strangers]
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    named = set(location.paths or ()) - location.matched
    if len(names) == len(paths) and named.isdisjoint(names) and not any(is_called_parquet(name) for name in names):
        raise DatasetNotFoundError(f"{location.url} has no Parquet file in it; found only {shown}")
    raise MetadataError(
        f"{location.url}: {len(names):,} of the {len(paths):,} files there {'is' if len(names) == 1 else 'are'} no "
        f"Parquet: {shown}. All files are data files but those whose names begin with _ or . or end in .crc: move "
        "these away, give them such names, or read a pattern such as directory/*.parquet. The first: "
        f"{strangers[0]}"
    )


def inventory_of(footers: Iterable[Footer]) -> Inventory:
    """The inventory that these footers describe.

    Raises:
        MetadataError: Counts are negative or do not add up.
    """
    return Inventory.concatenate([(footer.file, footer.groups) for footer in footers])


def encoded_footers(footers: Iterable[Footer]) -> dict[str, bytes]:
    """Footers as they lie in their files, by path."""
    return {footer.file.path: footer.encoded for footer in footers}


def check_unchanged(now: DataFile, expected: DataFile) -> None:
    """Refuse a file that is not the one which the inventory describes; an unknown digest is not compared.

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
    """The size of a file, and the digest of its footer where those of both files are known."""
    return f"{file.size:,} bytes and footer {file.digest}" if file.digest and other.digest else f"{file.size:,} bytes"


def is_unchanged(now: DataFile, expected: DataFile) -> bool:
    """Whether a file is the one that was expected; an unknown digest is not compared."""
    return now.size == expected.size and (not expected.digest or now.digest == expected.digest)
