"""Parquet footers: what a file says about itself, and what the files of a dataset agree on.

A footer is read with one request of 64 KiB at the end of the file (a second one only where the footer is larger),
parsed from memory, and trusted in nothing: sizes are bounded before memory is taken, and counts must add up.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from petastore.errors import DatasetChangedError, DatasetNotFoundError, MetadataError, SchemaError
from petastore.forks import made_anew_in_children
from petastore.inventory import DataFile, Inventory
from petastore.once import once
from petastore.schema.document import DOCUMENT_KEY
from petastore.storage.files.listing import is_called_parquet, list_data_files
from petastore.storage.files.location import Location
from petastore.storage.files.partitions import parse_partitions
from petastore.storage.files.watched_file import open_to_read
from petastore.storage.footers.alike_footers import alike_footers
from petastore.storage.footers.chunk_contents import ChunkContents, chunk_contents
from petastore.storage.footers.leaves import leaves_by_column
from petastore.storage.footers.row_group_counts import row_group_counts
from petastore.storage.footers.unreadable import unreadable_columns
from petastore.storage.requests.at_once import at_once
from petastore.storage.requests.failures import answered

__all__ = [
    "MAX_FOOTER_BYTES",
    "Footer",
    "FooterCache",
    "agreed_arrow_schema",
    "footer_if_there",
    "inventory_of",
    "is_parquet",
    "list_data_files",
    "parquet_among",
    "read_footer",
    "read_footers",
]

MAX_FOOTER_BYTES = 256 * 1024 * 1024
"""A larger footer is refused before memory is taken for it."""

_TAIL_BYTES = 64 * 1024
_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_SHOWN = 5
_LOOKED_AT = 64
_SMALL_FOOTER_BYTES = 16 * 1024
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

    copied_bytes: dict[tuple[int, str], int] = dataclasses.field(default_factory=dict, repr=False)
    """Of row groups and columns with dictionaries: bytes that their rows take at most, as was found by reading them."""

    @once
    def metadata(self) -> Any:
        """The `pyarrow.parquet.FileMetaData`.

        Raises:
            MetadataError: It is damaged in a way that others with the same columns are not.
        """
        return _metadata(self.encoded, self.file.path)

    @property
    def arrow_schema(self) -> Any:
        """The `pyarrow.Schema` of the file's columns, without the file's key-value metadata."""
        return self.columns.arrow_schema

    @property
    def leaves(self) -> Mapping[str, range]:
        """Of each top-level column: its leaf columns, half-open."""
        return self.columns.leaves

    @property
    def as_asked(self) -> dict[tuple[str, ...], Any]:
        """Of columns that were read: the `pyarrow.Schema` of their tables, if they come just as they are handed on."""
        return self.columns.as_asked

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

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Of each other column: why it cannot be read."""
        return self.columns.unreadable

    @once
    def dictionaries(self) -> list[dict[int, ChunkContents]]:
        """Of each row group: chunks of text or bytes that have a dictionary, by the numbers of their leaf columns."""
        groups = chunk_contents(self.encoded, self.byte_leaves, source=self.file.path)
        return [{leaf: chunk for leaf, chunk in group.items() if chunk.has_dictionary} for group in groups]

    @property
    def byte_leaves(self) -> frozenset[int]:
        """Numbers of the leaf columns of text or bytes."""
        return self.columns.byte_leaves

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


def read_footer(location: Location, path: str, *, max_bytes: int = MAX_FOOTER_BYTES) -> Footer:
    """Read and check the footer of one file.

    Args:
        location: Where the dataset lies.
        path: The file, relative to the root.
        max_bytes: A larger footer is refused.

    Raises:
        FileMissingError: There is no such file.
        StorageError: The file cannot be read.
        MetadataError: The file is no Parquet, or its footer is damaged; the message says how.
    """
    size, footer = read_tail(location, path, max_bytes=max_bytes)
    return _parsed(path, size, footer)


def read_tail(location: Location, path: str, *, max_bytes: int = MAX_FOOTER_BYTES) -> tuple[int, bytes]:
    """Bytes of a file, and its footer as it lies there.

    Raises:
        FileMissingError: There is no such file.
        StorageError: The file cannot be read.
        MetadataError: The file is no Parquet.
    """

    def ask() -> tuple[int, bytes]:
        with open_to_read(location, path) as source:
            return _read_tail(source, path, max_bytes)

    return answered(location, ask, "read the footer of", path)


class NoParquetError(MetadataError):
    """A file that neither begins nor ends as Parquet does: somebody else's, among the data files."""

    path = ""
    """Which, relative to the root."""


def footer_if_there(location: Location, path: str) -> Footer | None:
    """The footer of a file; None where there is no such file.

    Raises:
        StorageError: The file cannot be read, or nobody can tell whether it is there.
        MetadataError: The file is no Parquet, or its footer is damaged.
    """
    info = answered(location, lambda: location.filesystem.get_file_info(location.join(path)), "look at", path)
    return read_footer(location, path) if info.is_file else None


def _read_tail(source: Any, path: str, max_bytes: int) -> tuple[int, bytes]:
    size = source.size()
    if size < len(_MAGIC) * 2 + 4:
        raise NoParquetError(f"{path} has {size} bytes and is no Parquet: even an empty one has more")
    source.seek(max(0, size - _TAIL_BYTES))
    tail = source.read(min(size, _TAIL_BYTES))
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise MetadataError(f"{path} has an encrypted footer, and petastore reads no encrypted files; decrypt it first")
    if tail[-4:] != _MAGIC:
        source.seek(0)
        if source.read(len(_MAGIC)) == _MAGIC:
            raise MetadataError(
                f"{path} begins as Parquet, but was cut short or damaged: it ends with {tail[-4:]!r} instead of "
                f"{_MAGIC!r}. Write it again, or delete it"
            )
        raise NoParquetError(f"{path} is no Parquet: it ends with {tail[-4:]!r} instead of {_MAGIC!r}")
    footer = _footer_in(tail, size, path, max_bytes)
    if footer is None:
        length = int.from_bytes(tail[-8:-4], "little")
        source.seek(size - 8 - length)
        return size, source.read(length)
    return size, footer


def _footer_in(tail: bytes, size: int, path: str, max_bytes: int) -> bytes | None:
    """The footer in the last bytes of a file; None where there are too few of them."""
    if tail[-4:] != _MAGIC:
        raise NoParquetError(f"{path} is no Parquet: it ends with {tail[-4:]!r} instead of {_MAGIC!r}")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - 12 or length == 0:
        raise MetadataError(
            f"{path} is damaged: it says that its footer has {length:,} bytes, but the file has {size:,}"
        )
    if length > max_bytes:
        raise MetadataError(f"{path} says that its footer has {length:,} bytes; at most {max_bytes:,} are read")
    return None if length + 8 > len(tail) else tail[-8 - length : -8]


def _parsed(path: str, size: int, footer: bytes) -> Footer:
    metadata = _metadata(footer, path)
    try:
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        _ = schema.names  # which are not decoded before
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise _unreadable_footer(path, problem) from problem
    leaves = leaves_by_column(schema, metadata.num_columns, source=path)
    unreadable = unreadable_columns(schema, leaves, metadata, footer, source=path)
    if unreadable:
        schema = pa.schema([field for field in schema if field.name not in unreadable])
        leaves = {name: own for name, own in leaves.items() if name not in unreadable}
    parsed = Footer(_data_file(path, size, footer), footer, Columns(schema, leaves, unreadable, metadata.schema))
    parsed.__dict__["metadata"] = metadata
    return parsed


def _unreadable_footer(path: str, problem: Exception) -> MetadataError:
    if isinstance(problem, UnicodeDecodeError):
        return MetadataError(f"{path}: the name of a column is no UTF-8: {problem}")
    if isinstance(problem, (pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        return MetadataError(
            f"{path}: the footer declares columns that Apache Arrow does not read: {problem}. If the file is not "
            "damaged, write it again with another writer"
        )
    return MetadataError(f"{path}: the footer is damaged: {problem}")


def _metadata(footer: bytes, path: str) -> Any:
    framed = b"".join([_MAGIC, footer, len(footer).to_bytes(4, "little"), _MAGIC])
    try:
        reader = pq.ParquetReader()  # not `read_metadata`, which looks at each column besides
        reader.open(pa.BufferReader(framed))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise _unreadable_footer(path, problem) from problem
    return reader.metadata


def _data_file(path: str, size: int, footer: bytes) -> DataFile:
    return DataFile(path, size, hashlib.sha256(footer).hexdigest()[:32], parse_partitions(path))


def read_footers(location: Location, paths: Iterable[str]) -> list[Footer]:
    """Footers of many files, read by up to 16 threads, in the order of `paths`.

    Raises:
        StorageError: As `read_footer`, for the first file in order that fails; files that are no Parquet are named
            together.
        DatasetNotFoundError: None of them is Parquet, by its name or by its bytes, and nobody named one.
    """
    wanted = list(paths)
    found = list(at_once(functools.partial(_tail_or_stranger, location), wanted))
    strangers = [one for one in found if isinstance(one, NoParquetError)]
    if strangers:
        _refuse_strangers(location, wanted, strangers)
    return _all_parsed(wanted, [one for one in found if not isinstance(one, NoParquetError)])


def _all_parsed(paths: Sequence[str], tails: Sequence[tuple[int, bytes]]) -> list[Footer]:
    """Footers of many files: of those that are alike the first says what all have in common."""
    parsed: dict[int, Footer] = {}
    for kind in alike_footers([footer for _, footer in tails]):
        columns: Columns | None = None
        is_right = (kind.counts >= 0).all(axis=(1, 2)) & (kind.counts[:, _ROWS].sum(axis=1) == kind.num_rows)
        is_right &= kind.counts.max(axis=(1, 2), initial=0) < _MOST_COUNTED
        for number, counts in zip(kind.members[is_right].tolist(), kind.counts[is_right], strict=True):
            (size, footer), path = tails[number], paths[number]
            if columns is None:
                columns = _parsed(path, size, footer).columns
            parsed[number] = Footer(_data_file(path, size, footer), footer, columns, counts)
    rest = [number for number in range(len(paths)) if number not in parsed]
    parsed.update(zip(rest, at_once(lambda number: _counted(paths[number], *tails[number]), rest), strict=True))
    return [parsed[number] for number in range(len(paths))]


def _counted(path: str, size: int, footer: bytes) -> Footer:
    parsed = _parsed(path, size, footer)
    _ = parsed.groups  # counted here, in parallel, and kept
    return parsed


def is_parquet(location: Location, path: str) -> bool:
    """Whether a file ends as Parquet does.

    Args:
        location: Where it lies.
        path: The file, relative to the root; no FIFO or the like, whose opening would wait for a writer.

    Raises:
        StorageError: It cannot be read.
    """

    def look() -> bool:
        with open_to_read(location, path) as source:
            source.seek(max(source.size() - len(_MAGIC), 0))
            return source.read(len(_MAGIC)) in {_MAGIC, _ENCRYPTED_MAGIC}

    return answered(location, look, "look at", path)


def parquet_among(location: Location, paths: Sequence[str]) -> list[str]:
    """Those of some files that are Parquet by their names or, of at most 64 others, by how they end; in their order.

    So people are told of data that nobody lists, and not of a README, at a cost that does not grow with strangers.
    """
    others = [path for path in paths if not is_called_parquet(path)]
    looked_at = others[:: -(-len(others) // _LOOKED_AT) or 1]
    ends = at_once(functools.partial(is_parquet, location), looked_at)
    found = {path for path, is_one in zip(looked_at, ends, strict=True) if is_one}
    return [path for path in paths if path in found or is_called_parquet(path)]


def _tail_or_stranger(location: Location, path: str) -> tuple[int, bytes] | NoParquetError:
    try:
        return read_tail(location, path)
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


def agreed_arrow_schema(footers: Sequence[Footer]) -> pa.Schema:
    """The one schema that all files share; a column is nullable where it is so in some file.

    Columns may stand in another order in other files; the first file's order is kept. A column that cannot be read in
    one of them is left out.

    Raises:
        SchemaError: A file lacks a column, has one more, or stores it as another type; both files are named.
    """
    if not footers:
        raise SchemaError("there are no files, so there is no schema")
    first = footers[0]
    hidden = {name for footer in footers for name in footer.unreadable}
    fields = {field.name: field for field in first.arrow_schema if field.name not in hidden}
    seen = [first.arrow_schema]
    for last, footer in itertools.pairwise(footers):
        if footer.columns is last.columns or any(footer.arrow_schema.equals(known) for known in seen):
            continue
        seen.append(footer.arrow_schema)
        theirs = {field.name: field for field in footer.arrow_schema if field.name not in hidden}
        _check_same_columns(first, fields, footer, theirs)
        for name, field in fields.items():
            fields[name] = _agreed_field(field, theirs[name], first, footer)
    return pa.schema(list(fields.values()))


def _check_same_columns(
    first: Footer, fields: Mapping[str, pa.Field], other: Footer, theirs: Mapping[str, pa.Field]
) -> None:
    for name in fields.keys() ^ theirs.keys():
        has, lacks = (first, other) if name in fields else (other, first)
        raise SchemaError(
            f"{has.file.path} has a column {name!r}, but {lacks.file.path} lacks it; files of one dataset need the "
            "same columns. Write the file again, or open the files that agree"
        )


def _agreed_field(ours: pa.Field, theirs: pa.Field, first: Footer, other: Footer) -> pa.Field:
    merged = _agreed_type(ours.type, theirs.type)
    if merged is None:
        raise SchemaError(
            f"column {ours.name!r} is {ours.type} in {first.file.path}, but {theirs.type} in {other.file.path}; files "
            "of one dataset need the same types. Write one of them again"
        )
    return pa.field(ours.name, merged, nullable=ours.nullable or theirs.nullable)


def _agreed_type(ours: pa.DataType, theirs: pa.DataType) -> pa.DataType | None:
    """The type with the nullability of both, or None where they differ in more."""
    if ours == theirs:
        return ours
    if ours.id != theirs.id or ours.num_fields != theirs.num_fields or not ours.num_fields:
        return None
    members = []
    for mine, other in zip(_members(ours), _members(theirs), strict=True):
        merged = _agreed_type(mine.type, other.type)
        if merged is None or (pa.types.is_struct(ours) and mine.name != other.name):
            return None
        members.append(pa.field(mine.name, merged, nullable=mine.nullable or other.nullable))
    if pa.types.is_struct(ours):
        return pa.struct(members)
    if pa.types.is_list(ours):
        return pa.list_(members[0])
    if pa.types.is_large_list(ours):
        return pa.large_list(members[0])
    if pa.types.is_fixed_size_list(ours) and ours.list_size == theirs.list_size:
        return pa.list_(members[0], ours.list_size)
    return pa.map_(members[0], members[1]) if pa.types.is_map(ours) else None


_Key = tuple[str, str, str, int, str]


def _key(location: Location, file: DataFile) -> _Key:
    return location.url, location.root, file.path, file.size, file.digest


def _members(arrow_type: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(arrow_type):
        return [arrow_type.key_field, arrow_type.item_field]
    return [arrow_type.field(number) for number in range(arrow_type.num_fields)]


class FooterCache:
    """Footers by file, so that each is read and parsed once however many of its row groups are read.

    Thread-safe; no lock is held while reading, and threads that ask for one footer at once share one read. The least
    recently used go first when the footers kept have more than `max_bytes` on disk. Empty in a forked child; pickles as
    an empty cache.

    Args:
        max_bytes: Bytes of footers to keep; the one asked for last is kept whatever its size.
        inventory: What is said of the files elsewhere; each footer is held against it when it is read.
    """

    def __init__(self, max_bytes: int = 128 * 1024 * 1024, inventory: Inventory | None = None) -> None:
        self._max_bytes = max_bytes
        self._inventory = inventory
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Is empty: some of the footers were being read by threads that a forked child does not have."""
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[_Key, Footer] = collections.OrderedDict()
        self._being_read: dict[_Key, Future[Footer]] = {}
        self._known: dict[_Key, Footer] = {}

    def get(self, location: Location, file: DataFile) -> Footer:
        """The footer of a file, which must be the file that the inventory describes.

        Raises:
            DatasetChangedError: The file has another size or digest.
            StorageError: The file is missing or cannot be read.
            MetadataError: The footer is damaged, or has other row groups than the inventory says.
        """
        key = _key(location, file)
        mine: Future[Footer] | None = None
        with self._lock:
            footer = self._kept.get(key)
            if footer is not None:
                self._kept.move_to_end(key)
                return footer  # it was compared when it was read
            others = self._being_read.get(key)
            if others is None:
                mine = self._being_read[key] = Future()
        if mine is None:
            assert others is not None  # noqa: S101 - one of the two is there
            footer = others.result()
        else:
            footer = self._read(key, mine, location, file)
        check_unchanged(footer.file, file)
        return footer

    def know(self, location: Location, footers: Iterable[Footer]) -> None:
        """Remember the footers that the inventory was made of, as far as there is room: they need not be parsed again.

        A file that is asked for is looked at all the same: it may have been rewritten.
        """
        room = self._max_bytes
        for footer in footers:
            room -= len(footer.encoded)
            if room < 0:
                return
            self._known[_key(location, footer.file)] = footer

    def knows_small_footer(self, location: Location, file: DataFile) -> bool:
        """Whether a file is not known to have a footer so large that it is not to be parsed for each row group anew."""
        footer = self._kept.get(_key(location, file))
        return footer is None or len(footer.encoded) <= _SMALL_FOOTER_BYTES

    def knows_several_row_groups(self, location: Location, file: DataFile) -> bool:
        """Whether a file is known to have more than one row group."""
        footer = self._kept.get(_key(location, file))
        return footer is not None and footer.metadata.num_row_groups > 1

    def found(self, location: Location, file: DataFile, whole: bytes) -> Footer:
        """The footer of a file that was read whole, which must be the file that the inventory describes.

        Args:
            location: Where the dataset lies.
            file: The file.
            whole: All its bytes.

        Raises:
            DatasetChangedError: The file has another size or digest.
            MetadataError: It is no Parquet, or the footer is damaged.
        """
        key = _key(location, file)
        encoded = _encoded_in(whole, file)
        with self._lock:
            footer = self._kept.get(key)
            if footer is not None:
                self._kept.move_to_end(key)
        if footer is None or footer.encoded != encoded:
            footer = self._checked(key, location, file, len(whole), encoded)
            check_unchanged(footer.file, file)
            with self._lock:
                self._keep(key, footer)
        return footer

    def _checked(self, key: _Key, location: Location, file: DataFile, size: int, encoded: bytes) -> Footer:
        """The footer of a file that was read just now, held against the inventory."""
        known = self._known.pop(key, None)
        if known is not None and known.file.size == size and known.encoded == encoded:
            return known  # the inventory was made of it
        footer = _parsed(file.path, size, encoded)
        self._hold_against_inventory(footer, file, location.url)
        return footer

    def _hold_against_inventory(self, footer: Footer, file: DataFile, url: str) -> None:
        if self._inventory is not None:
            check_unchanged(footer.file, file)
            check_row_groups(footer, self._inventory, url)

    def _keep(self, key: _Key, footer: Footer) -> None:
        """With the lock."""
        replaced = self._kept.pop(key, None)
        self._kept[key] = footer
        self._bytes += len(footer.encoded) - (0 if replaced is None else len(replaced.encoded))
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1].encoded)

    def _read(self, key: _Key, mine: Future[Footer], location: Location, file: DataFile) -> Footer:
        try:
            size, encoded = read_tail(location, file.path)
            footer = self._checked(key, location, file, size, encoded)
        except BaseException as problem:
            with self._lock:
                del self._being_read[key]
            mine.set_exception(problem)
            raise
        with self._lock:
            del self._being_read[key]
            if _is_unchanged(footer.file, file):
                self._keep(key, footer)
        mine.set_result(footer)
        return footer

    def check(self, location: Location, files: Sequence[DataFile]) -> None:
        """Reads the footers of some files, several at once.

        Raises:
            StorageError: As `get`, for the first file in order that fails.
        """
        for _ in at_once(functools.partial(self.get, location), files):
            pass

    def __len__(self) -> int:
        return len(self._kept)

    def holding_against(self, inventory: Inventory) -> FooterCache:
        """This cache if its footers are held against an inventory, else an empty one whose footers will be."""
        return self if self._inventory is inventory else FooterCache(self._max_bytes, inventory)

    def __reduce__(self) -> tuple[Any, ...]:
        return FooterCache, (self._max_bytes, self._inventory)


def check_row_groups(footer: Footer, inventory: Inventory, url: str) -> None:
    """Refuse a file that has other row groups than an inventory says; one that it does not list is not compared.

    Raises:
        MetadataError: The number of row groups, or the rows of one of them, differ.
    """
    said, found, path = inventory.rows_of(footer.file.path), footer.rows, footer.file.path
    if said is None or np.array_equal(said, found):
        return
    again = "the inventory is damaged; `petastore generate-metadata` writes it anew from the files"
    if len(said) != len(found):
        raise MetadataError(
            f"{url}: the inventory says that {path} has {len(said):,} row groups, but its footer has {len(found):,}: "
            f"{again}"
        )
    group = int(np.flatnonzero(said != found)[0])
    raise MetadataError(
        f"{url}: the inventory says that row group {group:,} of {path} has {said[group]:,} rows, but its footer says "
        f"{found[group]:,}: {again}"
    )


def _encoded_in(whole: bytes, file: DataFile) -> bytes:
    """The footer in all bytes of a file that is thought to be small."""
    if len(whole) != file.size:
        check_unchanged(DataFile(file.path, len(whole)), file)
    return _footer_in(whole, len(whole), file.path, MAX_FOOTER_BYTES) or b""


def check_unchanged(found: DataFile, expected: DataFile) -> None:
    """Refuse a file that is not the one which the inventory describes; an unknown digest is not compared.

    Raises:
        DatasetChangedError: Size or digest differ.
    """
    if not _is_unchanged(found, expected):
        raise DatasetChangedError(
            f"{expected.path} was rewritten since the dataset was listed: it had {expected.size:,} bytes and footer "
            f"{expected.digest or '(unknown)'}, and has {found.size:,} bytes and footer {found.digest}. Open the "
            "dataset again; if a manifest lists the old file, commit the dataset again"
        )


def _is_unchanged(found: DataFile, expected: DataFile) -> bool:
    return found.size == expected.size and (not expected.digest or found.digest == expected.digest)
