"""The manifest `_petastore/inventory.arrow`: the one truth about a dataset, and `_common_metadata` for other tools.

Beside it lie the footers of the files (`petastore.storage.footers.footers_beside`): to know all takes few requests.

The manifest is an Arrow IPC file with one record per data file and the row groups of the file as lists, so that it is
read without Python code per row group. Its metadata holds the format's name and version, who wrote it, the schema
document, and a digest of the file (`petastore.storage.metadata.seal`). `docs/reference/file-format.md` describes it;
nothing in it is trusted: what it says of a file is held against the file's footer
(`petastore.storage.footers.footers`).

Order of writing: data files, `_common_metadata`, footers, manifest, each renamed into place whole. Readers believe the
manifest alone, so a write that stops anywhere leaves the dataset as it was before or as it is after. Footers that are
not those of the manifest are passed over.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import ipc

from petastore.arrow.memory import numbers_of
from petastore.errors import FileMissingError, MetadataError, PetastoreError, StorageAccessError
from petastore.inventory import DataFile, Inventory
from petastore.schema.document import DOCUMENT_KEY
from petastore.storage.files.listing import etags_around
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import delete_quietly, read_whole, replace_whole
from petastore.storage.footers.footers import document_in, footer_if_there, parquet_among, read_footer
from petastore.storage.footers.footers_beside import FOOTERS, FootersBeside, PackedFooters, packed_footers
from petastore.storage.metadata.seal import SEAL_KEY, UNSEALED, is_sealed, sealed
from petastore.storage.requests.client import FileVersion

__all__ = [
    "COMMON_METADATA",
    "MANIFEST",
    "MANIFEST_VERSION",
    "Manifest",
    "dubious_files",
    "looked_around",
    "manifest_token",
    "read_manifest",
    "read_schema_document",
    "write_common_metadata",
    "write_manifest",
]

MANIFEST = "_petastore/inventory.arrow"
"""Path of the manifest, relative to the dataset's root."""

MANIFEST_VERSION = 1
"""The newest version that this release reads, and the one that it writes."""

COMMON_METADATA = "_common_metadata"
"""Path of the footer-only Parquet file that tells other tools the schema."""

_FORMAT = "petastore.inventory"
_MAX_BYTES = 1 << 30
_GROUP_COLUMNS = ("rows", "stored_bytes", "decoded_bytes")
_COUNTS = pa.list_(pa.field("element", pa.int64(), nullable=False))
_COLUMNS: dict[str, pa.DataType] = {
    "path": pa.string(),
    "size": pa.int64(),
    "digest": pa.string(),
    "partitions": pa.map_(pa.string(), pa.string()),
    **dict.fromkeys(_GROUP_COLUMNS, _COUNTS),
}
_TOLD: dict[str, pa.DataType] = {"etag": pa.string(), "footer_bytes": pa.int64(), "footer_stored": pa.int64()}
"""Columns that manifests of earlier releases do not have."""

_ETAG = re.compile(r"[\x21-\x7e]{0,256}")
_DIGEST = re.compile(r"(?:[0-9a-f]{32})?")
_MOST_IN_ALL = 2**62
_AGAIN = "`petastore generate-metadata` writes it anew from the files"
_UNREADABLE = (LookupError, ValueError, TypeError, ArithmeticError, RecursionError)  # what a damaged one may end in


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a dataset says about itself."""

    inventory: Inventory
    """All files and row groups of the dataset."""

    schema_document: str | None
    """The schema as JSON (`petastore.schema.document`), not yet parsed; None for a dataset without one."""

    writer: str
    """Who wrote it, for people: `"petastore 0.1.0 write_dataset"`."""

    is_sealed: bool = dataclasses.field(default=False, compare=False)
    """Whether it was read from a file that carries its digest; a bit of any other may have flipped."""

    footers: Mapping[str, bytes] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """To be written beside it: footers as they lie in the files, by path, as many as are known. Not read."""

    beside: FootersBeside | None = dataclasses.field(default=None, compare=False, repr=False)
    """Where the footers stand that lie beside it; None where it was not read, or tells of none."""


def write_manifest(location: Location, manifest: Manifest) -> None:
    """Put a manifest in place of the old one, in one step, and its footers beside it just before.

    Raises:
        MetadataError: The manifest could not be read back: a path that leaves the dataset, or more than 1 GiB.
        StorageError: The storage refused; the old manifest still stands.
    """
    packed = packed_footers(manifest.inventory.files, manifest.footers)
    data = _encoded(manifest, packed)
    if packed.data:
        replace_whole(location, FOOTERS, packed.data)
    replace_whole(location, MANIFEST, data)


def read_manifest(location: Location) -> Manifest | None:
    """The manifest of a dataset; None where there is none, or where `location` names single files.

    Raises:
        MetadataError: It is damaged, or of a newer version than this release reads.
        StorageError: The storage refused.
    """
    if location.paths is not None:
        return None
    data = read_whole(location, MANIFEST, max_bytes=_MAX_BYTES)
    return None if data is None else _decoded(data, f"{location.url}/{MANIFEST}")


def manifest_token(location: Location) -> str | None:
    """What tells one version of the manifest from another, without parsing it; None where there is none."""
    data = read_whole(location, MANIFEST, max_bytes=_MAX_BYTES)
    return None if data is None else hashlib.sha256(data).hexdigest()


def dubious_files(manifest: Manifest) -> list[DataFile]:
    """Files of which the manifest says what has to be held against their footers before anything is planned.

    That is more rows than there can be bits, of which nothing may take memory; and, where no digest says that the
    manifest is as it was written, no rows at all: such a file would never be opened, and its rows never missed.
    """
    inventory = manifest.inventory
    rows = np.bincount(inventory.file, inventory.rows, minlength=len(inventory.files))  # float64: nothing overflows
    bits = 8.0 * np.array([file.size for file in inventory.files], dtype=np.float64)
    dubious = (rows > bits) | ((rows == 0) & (not manifest.is_sealed))
    return [inventory.files[place] for place in np.flatnonzero(dubious).tolist()]


class Around(NamedTuple):
    """What a listing says of a dataset that has a manifest."""

    strangers: list[str]
    """Parquet files that lie in the directory but not in the manifest, sorted; they are not part of the dataset.

    They come from another writer that did not commit, or from a write that was interrupted between its two last steps.
    See `petastore.storage.footers.footers.parquet_among` for how they are known.
    """

    settled: dict[DataFile, FileVersion]
    """Of files whose etag is the one that the manifest tells: that version, for which nobody needs to ask again."""


def looked_around(location: Location, manifest: Manifest) -> Around:
    """One listing, held against the manifest.

    Raises:
        StorageError: The storage refused, or what the manifest lists is no file.
    """
    files = manifest.inventory.files
    listed = {file.path for file in files}
    etags = etags_around(location, listed)
    strangers = parquet_among(location, [path for path in etags if path not in listed])
    return Around(strangers, {file: FileVersion(file.size, file.etag) for file in files if _is_as_told(file, etags)})


def _is_as_told(file: DataFile, etags: Mapping[str, tuple[int | None, str]]) -> bool:
    size, etag = etags.get(file.path, (None, "")) if file.etag else (None, "")
    return size == file.size and etag.strip('"') == file.etag.strip('"')  # some leave quotes out


def _encoded(manifest: Manifest, packed: PackedFooters) -> bytes:
    inventory = manifest.inventory
    for file in inventory.files:
        _check_file(file.path, file.size, file.digest, "the inventory to write")
    counts = np.bincount(inventory.file, minlength=len(inventory.files))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    columns = {
        "path": pa.array([file.path for file in inventory.files], pa.string()),
        "size": pa.array([file.size for file in inventory.files], pa.int64()),
        "digest": pa.array([file.digest for file in inventory.files], pa.string()),
        "partitions": pa.array([list(file.partitions) for file in inventory.files], _COLUMNS["partitions"]),
    }
    for name in _GROUP_COLUMNS:
        columns[name] = pa.ListArray.from_arrays(offsets, pa.array(getattr(inventory, name)), type=_COUNTS)
    etags = [file.etag if _ETAG.fullmatch(file.etag) else "" for file in inventory.files]
    told = (etags, packed.lengths, packed.stored)
    columns |= {name: pa.array(values, _TOLD[name]) for name, values in zip(_TOLD, told, strict=True)}
    schema = pa.schema({**_COLUMNS, **_TOLD}, metadata=_metadata(manifest))
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema) as writer:
        writer.write_table(pa.table(columns, schema=schema))
    data: bytes = sealed(sink.getvalue().to_pybytes(), "the manifest")
    if len(data) > _MAX_BYTES:
        raise MetadataError(f"the manifest would have {len(data):,} bytes; at most {_MAX_BYTES:,} are read back")
    return data


def _metadata(manifest: Manifest) -> dict[str, str]:
    metadata = {
        "petastore.format": _FORMAT,
        "petastore.version": str(MANIFEST_VERSION),
        "petastore.needs": "petastore 0.1.0",
        "petastore.writer": manifest.writer,
        SEAL_KEY: UNSEALED,
    }
    return metadata if manifest.schema_document is None else {**metadata, DOCUMENT_KEY: manifest.schema_document}


def _decoded(data: bytes, source: str) -> Manifest:
    seal = is_sealed(data, source, again=_AGAIN)
    try:
        reader = ipc.open_file(pa.BufferReader(data))
        metadata = _checked_metadata(reader.schema, source)
        _check_columns(reader.schema, source)
        wanted = [*_COLUMNS, *(_TOLD if set(_TOLD) <= set(reader.schema.names) else ())]
        table = reader.read_all().select(wanted).combine_chunks()
        table.validate(full=True)
        inventory, writer = _inventory(table, source), metadata.get("petastore.writer", "")
        beside = _beside(table, inventory.files, source)
        return Manifest(inventory, metadata.get(DOCUMENT_KEY), writer, seal, beside=beside)
    except (pa.ArrowException, OSError, MemoryError, *_UNREADABLE) as problem:
        if isinstance(problem, PetastoreError):
            raise
        raise MetadataError(f"{source} is damaged: {problem}; {_AGAIN}") from problem


def _checked_metadata(schema: pa.Schema, source: str) -> dict[str, str]:
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    if metadata.get("petastore.format") != _FORMAT:
        raise MetadataError(f"{source} does not say that its format is {_FORMAT!r}")
    text = metadata.get("petastore.version", "")
    version = int(text) if re.fullmatch("[1-9][0-9]{0,8}", text) else 0
    if version < 1:
        raise MetadataError(f"{source} has version {text!r}; versions count from 1")
    if version > MANIFEST_VERSION:
        needed = metadata.get("petastore.needs", "a newer release of petastore")
        raise MetadataError(
            f"{source} has version {version}, and this release reads up to {MANIFEST_VERSION}; install {needed}"
        )
    return metadata


def _check_columns(schema: pa.Schema, source: str) -> None:
    for name, expected in {**_COLUMNS, **_TOLD}.items():
        places = schema.get_all_field_indices(name)
        if name in _TOLD and not places:
            continue
        if len(places) != 1 or schema.field(places[0]).type != expected:
            types = [str(schema.field(place).type) for place in places]
            raise MetadataError(f"{source} needs one column {name!r} of type {expected}, but has {types}")


def _inventory(table: pa.Table, source: str) -> Inventory:
    columns = {name: _one_array(table.column(name)) for name in table.column_names}
    for name, column in columns.items():
        if column.null_count:
            raise MetadataError(f"{source}: the column {name!r} has nulls")
    files = _files(columns, source)
    lengths = [np.diff(numbers_of(columns[name].offsets)) for name in _GROUP_COLUMNS]
    if any(not np.array_equal(lengths[0], other) for other in lengths[1:]):
        raise MetadataError(f"{source}: files have lists of row groups that differ in length")
    groups = {name: _counts(columns[name], name, source) for name in _GROUP_COLUMNS}
    first = np.cumsum(lengths[0], dtype=np.int64) - lengths[0]
    total = len(groups["rows"])
    return Inventory(
        files=files,
        file=np.repeat(np.arange(len(files), dtype=np.int32), lengths[0]),
        ordinal=(np.arange(total, dtype=np.int64) - np.repeat(first, lengths[0])).astype(np.int32),
        **groups,
    )


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _counts(column: pa.ListArray, name: str, source: str) -> NDArray[np.int64]:
    borders = numbers_of(column.offsets)
    values = column.values.slice(int(borders[0]), int(borders[-1] - borders[0]))  # no list is missing
    if values.null_count:
        raise MetadataError(f"{source}: {name!r} has nulls")
    counts: NDArray[np.int64] = numbers_of(values)
    if len(counts) and counts.min() < 0:
        raise MetadataError(f"{source}: {name!r} has {counts.min():,}; it counts from 0")
    total = float(counts.sum(dtype=np.float64))
    if total > _MOST_IN_ALL:
        raise MetadataError(f"{source}: {name!r} adds up to {total:.3g}, which no dataset has; {_AGAIN}")
    return counts


def _files(columns: Mapping[str, pa.Array], source: str) -> tuple[DataFile, ...]:
    paths, sizes, digests = (columns[name].to_pylist() for name in ("path", "size", "digest"))
    for place in zip(paths, sizes, digests, strict=True):
        _check_file(*place, source)
    for previous, path in itertools.pairwise(paths):
        if previous >= path:
            raise MetadataError(f"{source}: {path!r} comes after {previous!r}; files are sorted and listed once")
    etags = columns["etag"].to_pylist() if "etag" in columns else [""] * len(paths)
    for path, etag in zip(paths, etags, strict=True):
        if not _ETAG.fullmatch(etag):
            raise MetadataError(
                f"{source}: {path!r} has the etag {etag[:80]!r}; etags are up to 256 characters of ASCII"
            )
    partitions = columns["partitions"].to_pylist()
    return tuple(
        DataFile(path, size, digest, tuple(map(tuple, values)), etag)
        for path, size, digest, values, etag in zip(paths, sizes, digests, partitions, etags, strict=True)
    )


def _beside(table: pa.Table, files: tuple[DataFile, ...], source: str) -> FootersBeside | None:
    """Where footers stand, if the manifest tells."""
    if "footer_bytes" not in table.column_names:
        return None
    lengths, stored = (numbers_of(_one_array(table.column(name))) for name in ("footer_bytes", "footer_stored"))
    beside = FootersBeside(files, lengths, stored)
    if not beside.can_be:
        raise MetadataError(f"{source}: footers of such lengths cannot lie beside it; {_AGAIN}")
    return beside if lengths.any() else None


def _check_file(path: str, size: int, digest: str, source: str) -> None:
    parts = path.split("/")
    if "\\" in path or "\0" in path or not all(parts) or not {".", ".."}.isdisjoint(parts):
        raise MetadataError(f"{source}: the path {path!r} is refused; paths are relative, inside the dataset, with /")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
        raise MetadataError(f"{source}: the path {path!r} is refused; it looks like a URL or a drive")
    if size < 0:
        raise MetadataError(f"{source}: {path!r} has {size:,} bytes; sizes count from 0")
    if not _DIGEST.fullmatch(digest):
        raise MetadataError(f"{source}: {path!r} has the digest {digest[:80]!r}; digests are 32 hexadecimal digits")


def read_schema_document(location: Location) -> str | None:
    """The schema document in `_common_metadata`: ours, else what Petastorm pickled there; None where there is neither.

    Raises:
        MetadataError: The file is damaged, or the pickle is no schema of Petastorm's.
        StorageError: The storage refused.
    """
    try:
        footer = footer_if_there(location, COMMON_METADATA)
    except StorageAccessError:
        if location.paths is None or not location.root.startswith(("http://", "https://")):
            raise
        return None  # a server that gives a file, by a signed URL or to all, may forbid to ask what lies beside it
    if footer is None:
        return None
    source = f"{location.url}/{COMMON_METADATA}"
    document = document_in(footer.metadata, source)
    if document is not None:
        return document
    from petastore.storage.petastorm.petastorm_schema import PETASTORM_SCHEMA_KEY, petastorm_document  # another's files

    pickled = (footer.metadata.metadata or {}).get(PETASTORM_SCHEMA_KEY)
    return None if pickled is None else petastorm_document(pickled, footer.arrow_schema, source=source)


def write_common_metadata(
    location: Location,
    arrow_schema: pa.Schema,
    document: str,
    keys: Mapping[bytes, bytes | None] = MappingProxyType({}),
) -> None:
    """Put a `_common_metadata` in place of the old one, in one step.

    Keys of other tools that the old file holds are kept; a damaged old file is replaced.

    Args:
        location: Where the dataset lies.
        arrow_schema: The stored columns.
        document: The schema document.
        keys: Keys of other tools to write as well; None takes one away.

    Raises:
        StorageError: The storage refused; the old file still stands.
    """
    all_keys = {**_old_keys(location), **keys, b"ARROW:schema": None}
    kept = {key: value for key, value in all_keys.items() if value is not None}
    sink = pa.BufferOutputStream()
    # `store_schema` would repeat all keys inside ARROW:schema.
    with pq.ParquetWriter(sink, arrow_schema.remove_metadata(), store_schema=False) as writer:
        writer.add_key_value_metadata({**kept, DOCUMENT_KEY.encode(): document.encode()})
    replace_whole(location, COMMON_METADATA, sink.getvalue().to_pybytes())
    delete_quietly(location, f".{COMMON_METADATA}.crc")  # Hadoop's checksum of the old file


def _old_keys(location: Location) -> dict[bytes, bytes]:
    try:
        return dict(read_footer(location, COMMON_METADATA).metadata.metadata or {})
    except (FileMissingError, MetadataError):
        return {}
