"""Parquet footers: what a file says about itself, and what the files of a dataset agree on.

A footer is read with one request of 64 KiB at the end of the file (a second one only where the footer is larger),
parsed from memory, and trusted in nothing: sizes are bounded before memory is taken, and counts must add up.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from petastore.errors import DatasetChangedError, MetadataError, SchemaError
from petastore.forks import made_anew_in_children
from petastore.inventory import DataFile, Inventory
from petastore.once import once
from petastore.schema.document import DOCUMENT_KEY
from petastore.storage.failures import answered, asking
from petastore.storage.leaves import leaves_by_column
from petastore.storage.listing import list_data_files
from petastore.storage.location import Location
from petastore.storage.partitions import parse_partitions
from petastore.storage.row_group_counts import row_group_counts
from petastore.storage.unreadable import unreadable_columns
from petastore.storage.watched_file import open_to_read

__all__ = [
    "MAX_FOOTER_BYTES",
    "Footer",
    "FooterCache",
    "agreed_arrow_schema",
    "footer_if_there",
    "inventory_of",
    "list_data_files",
    "read_footer",
    "read_footers",
]

MAX_FOOTER_BYTES = 256 * 1024 * 1024
"""A larger footer is refused before memory is taken for it."""

_TAIL_BYTES = 64 * 1024
_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_THREADS = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Footer:
    """What one file says about itself."""

    file: DataFile
    """The file with its size and the digest of the footer."""

    metadata: Any
    """The `pyarrow.parquet.FileMetaData`."""

    arrow_schema: Any
    """The `pyarrow.Schema` of the columns that can be read, without the file's key-value metadata."""

    leaves: Mapping[str, range]
    """Of each of them: its leaf columns, half-open."""

    unreadable: Mapping[str, str]
    """Of each other column: why it cannot be read."""

    encoded: bytes = dataclasses.field(repr=False)
    """The footer as it lies in the file."""

    @once
    def groups(self) -> dict[str, NDArray[np.int64]]:
        """`rows`, `stored_bytes` and `decoded_bytes` of each row group, arrays of shape (row groups,)."""
        counts = row_group_counts(self.encoded, source=self.file.path)
        _check_counts(counts, self.metadata.num_rows, self.file.path)
        return dict(zip(("rows", "stored_bytes", "decoded_bytes"), counts, strict=True))

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of each row group, shape (row groups,), without a look at its columns."""
        groups = range(self.metadata.num_row_groups)
        return np.array([self.metadata.row_group(group).num_rows for group in groups], dtype=np.int64)

    @once
    def as_asked(self) -> dict[tuple[str, ...], Any]:
        """Of columns that were read: the `pyarrow.Schema` of their tables, if they come just as they are handed on."""
        return {}

    @once
    def byte_leaves(self) -> frozenset[int]:
        """Numbers of the leaf columns of text or bytes."""
        columns = self.metadata.schema
        return frozenset(leaf for leaf in range(len(columns)) if columns.column(leaf).physical_type == "BYTE_ARRAY")

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
    with asking(location, "read the footer of", path), open_to_read(location, path) as source:
        size, footer = _read_tail(source, path, max_bytes)
    return _parsed(path, size, footer)


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
        raise MetadataError(f"{path} has {size} bytes and is no Parquet: even an empty one has more")
    source.seek(max(0, size - _TAIL_BYTES))
    tail = source.read(min(size, _TAIL_BYTES))
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise MetadataError(f"{path} has an encrypted footer, and petastore reads no encrypted files; decrypt it first")
    if tail[-4:] != _MAGIC:
        raise MetadataError(f"{path} is no Parquet, or was cut short: it ends with {tail[-4:]!r} instead of {_MAGIC!r}")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - 12 or length == 0:
        raise MetadataError(
            f"{path} is damaged: it says that its footer has {length:,} bytes, but the file has {size:,}"
        )
    if length > max_bytes:
        raise MetadataError(f"{path} says that its footer has {length:,} bytes; at most {max_bytes:,} are read")
    if length + 8 > len(tail):
        source.seek(size - 8 - length)
        return size, source.read(length)
    return size, tail[-8 - length : -8]


def _parsed(path: str, size: int, footer: bytes) -> Footer:
    framed = b"".join([_MAGIC, footer, len(footer).to_bytes(4, "little"), _MAGIC])
    try:
        metadata = pq.read_metadata(pa.BufferReader(framed))
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        _ = schema.names  # which are not decoded before
    except UnicodeDecodeError as problem:
        raise MetadataError(f"{path}: the name of a column is no UTF-8: {problem}") from problem
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise MetadataError(
            f"{path}: the footer declares columns that Apache Arrow does not read: {problem}. If the file is not "
            "damaged, write it again with another writer"
        ) from problem
    except (pa.ArrowException, OSError) as problem:
        raise MetadataError(f"{path}: the footer is damaged: {problem}") from problem
    leaves = leaves_by_column(schema, metadata.num_columns, source=path)
    unreadable = unreadable_columns(schema, leaves, metadata, footer, source=path)
    if unreadable:
        schema = pa.schema([field for field in schema if field.name not in unreadable])
        leaves = {name: own for name, own in leaves.items() if name not in unreadable}
    file = DataFile(path, size, hashlib.sha256(footer).hexdigest()[:32], parse_partitions(path))
    return Footer(file, metadata, schema, leaves, unreadable, footer)


def read_footers(location: Location, paths: Iterable[str]) -> list[Footer]:
    """Footers of many files, read by up to 16 threads, in the order of `paths`.

    Raises:
        StorageError: As `read_footer`, for the first file in order that fails.
    """
    wanted = list(paths)
    if len(wanted) < 2:
        return [read_footer(location, path) for path in wanted]
    with ThreadPoolExecutor(min(_THREADS, len(wanted)), "petastore-footers") as threads:
        pending = [threads.submit(_read_counted, location, path) for path in wanted]
        try:
            return [footer.result() for footer in pending]
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _read_counted(location: Location, path: str) -> Footer:
    footer = read_footer(location, path)
    _ = footer.groups  # counted here, in parallel, and kept
    return footer


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
    for footer in footers[1:]:
        if any(footer.arrow_schema.equals(known) for known in seen):
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
        self._footers: collections.OrderedDict[_Key, Future[Footer]] = collections.OrderedDict()

    def get(self, location: Location, file: DataFile) -> Footer:
        """The footer of a file, which must be the file that the inventory describes.

        Raises:
            DatasetChangedError: The file has another size or digest.
            StorageError: The file is missing or cannot be read.
            MetadataError: The footer is damaged, or has other row groups than the inventory says.
        """
        key = (location.url, location.root, file.path, file.size, file.digest)
        with self._lock:
            entry = self._footers.get(key)
            if entry is not None:
                self._footers.move_to_end(key)
            else:
                mine = self._footers[key] = Future()
        footer = entry.result() if entry is not None else self._read(key, mine, location, file)
        try:
            check_unchanged(footer.file, file)
        except DatasetChangedError:
            self._forget(key)
            raise
        return footer

    def _read(self, key: _Key, mine: Future[Footer], location: Location, file: DataFile) -> Footer:
        try:
            footer = read_footer(location, file.path)
            if self._inventory is not None:
                check_unchanged(footer.file, file)
                check_row_groups(footer, self._inventory, location.url)
        except BaseException as problem:
            self._forget(key)
            mine.set_exception(problem)
            raise
        mine.set_result(footer)
        with self._lock:
            self._bytes += footer.metadata.serialized_size
            for old in [known for known, entry in self._footers.items() if entry.done() and known != key]:
                if self._bytes <= self._max_bytes:
                    break
                self._bytes -= self._footers.pop(old).result().metadata.serialized_size
        return footer

    def _forget(self, key: _Key) -> None:
        with self._lock:
            entry = self._footers.pop(key, None)
            if entry is not None and entry.done() and entry.exception() is None:
                self._bytes -= entry.result().metadata.serialized_size

    def check(self, location: Location, files: Sequence[DataFile]) -> None:
        """Reads the footers of some files, by up to 16 threads.

        Raises:
            StorageError: As `get`, for the first file in order that fails.
        """
        if not files:
            return
        with ThreadPoolExecutor(min(_THREADS, len(files)), "petastore-footers") as threads:
            pending = [threads.submit(self.get, location, file) for file in files]
            try:
                for footer in pending:
                    footer.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def __len__(self) -> int:
        return len(self._footers)

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


def check_unchanged(found: DataFile, expected: DataFile) -> None:
    """Refuse a file that is not the one which the inventory describes; an unknown digest is not compared.

    Raises:
        DatasetChangedError: Size or digest differ.
    """
    if found.size != expected.size or (expected.digest and found.digest != expected.digest):
        raise DatasetChangedError(
            f"{expected.path} was rewritten since the dataset was listed: it had {expected.size:,} bytes and footer "
            f"{expected.digest or '(unknown)'}, and has {found.size:,} bytes and footer {found.digest}. Open the "
            "dataset again; if a manifest lists the old file, commit the dataset again"
        )
