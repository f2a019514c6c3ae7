"""Manifest `_petastore/inventory.arrow`: the files and row groups of a dataset.

This module also reads and writes `_common_metadata`, a Parquet file without rows that contains the schema for other
tools. The packed footers of the data files are stored next to the manifest
(`petastore.storage.footers.footers`), so that opening a dataset takes few requests.

The manifest is an Arrow IPC file with one record per data file. A record has the row groups of the file as lists, so
that reading needs no Python code per row group. The metadata of the manifest has the format's name and version, the
writing program, the schema document, and a digest of the file (`petastore.storage.files.whole_files`).
`docs/reference/file-format.md` describes the format. Readers compare the manifest's record of a file with the footer of
the file (`petastore.storage.footers.footer_cache`).

A write proceeds in this order: data files, `_common_metadata`, footers, manifest. Each file is written completely and
then renamed. Readers use only the manifest, so an interrupted write leaves either the old or the new dataset. Packed
footers that do not match the manifest are ignored.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from petastore.arrow import numbers_of, only_chunk
from petastore.errors import FileMissingError, MetadataError, StorageAccessError
from petastore.inventory import DataFile, Inventory
from petastore.schema.document import DOCUMENT_KEY
from petastore.schema.file_schemas import FileSchemas
from petastore.storage.files.listing import etags_around
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import delete_quietly, opened_table, read_whole, replace_whole, sealed_table
from petastore.storage.footers.footer import document_in
from petastore.storage.footers.footers import (
    FOOTERS,
    FootersBeside,
    PackedFooters,
    footer_if_there,
    packed_footers,
    parquet_among,
    read_footer,
)
from petastore.storage.stores.interface import FileVersion

__all__ = [
    "COMMON_METADATA",
    "MANIFEST",
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
"""Format version that this release writes, and the newest that it reads."""

COMMON_METADATA = "_common_metadata"
"""Path of the footer-only Parquet file that contains the schema for other tools."""

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
"""Optional columns, which manifests of earlier releases lack."""

_SCHEMA = "schema"
"""Column with the index of each file's schema; absent if all schemas are equal."""

_SCHEMAS_KEY = "petastore.schemas"
"""Metadata key of the list of file schemas, into which `_SCHEMA` has indices.

The value is a JSON list of Arrow IPC schemas in base64.
"""

_ETAG = re.compile(r"[\x21-\x7e]{0,256}")
_DIGEST = re.compile(r"(?:[0-9a-f]{32})?")
_MOST_IN_ALL = 2**62
_AGAIN = "`petastore generate-metadata` rebuilds the manifest from the files"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Parsed manifest of a dataset."""

    inventory: Inventory
    """All files and row groups of the dataset."""

    schema_document: str | None
    """Schema document (`petastore.schema.document`), not yet parsed; None without one."""

    writer: str
    """Writer, for display: `"petastore 0.1.0 write_dataset"`."""

    schemas: FileSchemas | None = None
    """Arrow schemas of the files; None if all files have the first file's schema."""

    is_sealed: bool = dataclasses.field(default=False, compare=False)
    """Whether the file had a digest of itself; without one, bit flips are undetected."""

    footers: Mapping[str, bytes] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """Dict from path to footer bytes: the footers to pack next to the manifest.

    Empty if the manifest was read from storage.
    """

    beside: FootersBeside | None = dataclasses.field(default=None, compare=False, repr=False)
    """Positions of the packed footers; None if unknown, or if footers are not packed.

    They are known only if the manifest was read from storage.
    """


def write_manifest(location: Location, manifest: Manifest) -> None:
    """Replace first the packed footers, then the manifest, each atomically.

    Raises:
        MetadataError: The manifest would be unreadable: a path outside the dataset, or more than 1 GiB.
        StorageError: A storage operation failed; the old manifest is unchanged.
    """
    packed = packed_footers(manifest.inventory.files, manifest.footers)
    data = _encoded(manifest, packed)
    if packed.data:
        replace_whole(location, FOOTERS, packed.data)
    replace_whole(location, MANIFEST, data)


def read_manifest(location: Location) -> Manifest | None:
    """Read and parse the manifest of a dataset.

    Return None if the manifest is missing, or if `location` names single files instead of a directory.

    Raises:
        MetadataError: The manifest is damaged, or newer than this release.
        StorageError: A storage operation failed.
    """
    if location.paths is not None:
        return None
    data = read_whole(location, MANIFEST, max_bytes=_MAX_BYTES)
    return None if data is None else _decoded(data, f"{location.url}/{MANIFEST}")


def manifest_token(location: Location) -> str | None:
    """Return a hash that identifies a version of the manifest; None if missing.

    The manifest is not parsed.
    """
    data = read_whole(location, MANIFEST, max_bytes=_MAX_BYTES)
    return None if data is None else hashlib.sha256(data).hexdigest()


def dubious_files(manifest: Manifest) -> list[DataFile]:
    """Return the files whose footers must be compared with the manifest when a dataset is opened.

    The footers of all other files are compared when the files are read. A file is returned if its bytes cannot contain
    its number of rows, because planning would allocate memory for the rows. If the manifest has no digest, files with 0
    rows are returned, too: readers never open such files, so they would not detect a wrong number.
    """
    inventory = manifest.inventory
    # The rows are added as float64, because a sum of damaged counts could overflow int64.
    rows = np.bincount(inventory.file, inventory.rows, minlength=len(inventory.files))
    bits = 8.0 * np.array([file.size for file in inventory.files], dtype=np.float64)
    dubious = (rows > bits) | ((rows == 0) & (not manifest.is_sealed))
    return [inventory.files[place] for place in np.flatnonzero(dubious).tolist()]


class Around(NamedTuple):
    """Result of listing a dataset's directory and comparing it with the manifest."""

    strangers: list[str]
    """Sorted paths of Parquet files that the manifest does not list.

    These files are not part of the dataset: another writer wrote them without a commit, or a write was interrupted
    before its last step. `petastore.storage.footers.footers.parquet_among` decides which files are Parquet.
    """

    settled: dict[DataFile, FileVersion]
    """Versions of the files whose size and etag equal those in the manifest.

    Readers need no request to find these versions.
    """


def looked_around(location: Location, manifest: Manifest) -> Around:
    """List the dataset's directory once, and compare the listing with the manifest.

    Return the Parquet files that the manifest lacks, and the versions of unchanged files. A file is unchanged if its
    size and etag equal those in the manifest.

    Raises:
        StorageError: A storage operation failed, or a path in the manifest is not a file.
    """
    files = manifest.inventory.files
    listed = {file.path for file in files}
    etags = etags_around(location, listed)
    strangers = parquet_among(location, [path for path in etags if path not in listed])
    return Around(strangers, {file: FileVersion(file.size, file.etag) for file in files if _is_as_told(file, etags)})


def _is_as_told(file: DataFile, etags: Mapping[str, tuple[int | None, str]]) -> bool:
    size, etag = etags.get(file.path, (None, "")) if file.etag else (None, "")
    return size == file.size and etag.strip('"') == file.etag.strip('"')  # some servers omit the quotes


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
    if manifest.schemas is not None:
        columns[_SCHEMA] = pa.array(manifest.schemas.of_files, pa.int32())
    data = sealed_table(pa.table(columns), _FORMAT, MANIFEST_VERSION, _metadata(manifest), "the manifest")
    if len(data) > _MAX_BYTES:
        raise MetadataError(
            f"a manifest must have at most {_MAX_BYTES:,} bytes, got {len(data):,}. Write fewer or larger row groups"
        )
    return data


def _metadata(manifest: Manifest) -> dict[str, str]:
    metadata = {
        "petastore.writer": manifest.writer,
    }
    if manifest.schemas is not None:
        encoded = [base64.b64encode(schema.serialize()).decode() for schema in manifest.schemas.schemas]
        metadata[_SCHEMAS_KEY] = json.dumps(encoded)
    return metadata if manifest.schema_document is None else {**metadata, DOCUMENT_KEY: manifest.schema_document}


def _decoded(data: bytes, source: str) -> Manifest:
    with opened_table(data, source, _FORMAT, MANIFEST_VERSION, again=_AGAIN) as (seal, reader, metadata):
        _check_columns(reader.schema, source)
        wanted = [*_COLUMNS, *(_TOLD if set(_TOLD) <= set(reader.schema.names) else ())]
        wanted += [_SCHEMA] if _SCHEMA in reader.schema.names else []
        table = reader.read_all().select(wanted).combine_chunks()
        table.validate(full=True)
        inventory, writer = _inventory(table, source), metadata.get("petastore.writer", "")
        beside = _beside(table, inventory.files, source)
        schemas = _schemas(table, inventory, metadata.get(_SCHEMAS_KEY), source)
        return Manifest(inventory, metadata.get(DOCUMENT_KEY), writer, schemas, seal, beside=beside)


def _check_columns(schema: pa.Schema, source: str) -> None:
    for name, expected in {**_COLUMNS, **_TOLD, _SCHEMA: pa.int32()}.items():
        places = schema.get_all_field_indices(name)
        if name not in _COLUMNS and not places:
            continue
        if len(places) != 1 or schema.field(places[0]).type != expected:
            types = [str(schema.field(place).type) for place in places]
            found = ", ".join(types) or "none"
            raise MetadataError(f"{source} must have one column {name!r} of type {expected}, got {found}; {_AGAIN}")


def _inventory(table: pa.Table, source: str) -> Inventory:
    columns = {name: only_chunk(table.column(name)) for name in table.column_names}
    for name, column in columns.items():
        if column.null_count:
            raise MetadataError(f"{source}: column {name!r} must not have nulls, got {column.null_count:,}; {_AGAIN}")
    files = _files(columns, source)
    lengths = [np.diff(numbers_of(columns[name].offsets)) for name in _GROUP_COLUMNS]
    if any(not np.array_equal(lengths[0], other) for other in lengths[1:]):
        raise MetadataError(
            f"{source}: columns {', '.join(map(repr, _GROUP_COLUMNS))} must have one entry for each row group of a "
            f"file, got different lengths; {_AGAIN}"
        )
    groups = {name: _counts(columns[name], name, source) for name in _GROUP_COLUMNS}
    first = np.cumsum(lengths[0], dtype=np.int64) - lengths[0]
    total = len(groups["rows"])
    return Inventory(
        files=files,
        file=np.repeat(np.arange(len(files), dtype=np.int32), lengths[0]),
        ordinal=(np.arange(total, dtype=np.int64) - np.repeat(first, lengths[0])).astype(np.int32),
        **groups,
    )


def _counts(column: pa.ListArray, name: str, source: str) -> NDArray[np.int64]:
    borders = numbers_of(column.offsets)
    values = column.values.slice(int(borders[0]), int(borders[-1] - borders[0]))  # valid because no list is null
    if values.null_count:
        raise MetadataError(f"{source}: column {name!r} must not have nulls, got {values.null_count:,}; {_AGAIN}")
    counts: NDArray[np.int64] = numbers_of(values)
    if len(counts) and counts.min() < 0:
        raise MetadataError(f"{source}: column {name!r} must have values of at least 0, got {counts.min():,}; {_AGAIN}")
    total = float(counts.sum(dtype=np.float64))
    if total > _MOST_IN_ALL:
        raise MetadataError(
            f"{source}: the sum of column {name!r} must be at most {_MOST_IN_ALL:.3g}, got {total:.3g}; {_AGAIN}"
        )
    return counts


def _files(columns: Mapping[str, pa.Array], source: str) -> tuple[DataFile, ...]:
    paths, sizes, digests = (columns[name].to_pylist() for name in ("path", "size", "digest"))
    for place in zip(paths, sizes, digests, strict=True):
        _check_file(*place, source)
    for previous, path in itertools.pairwise(paths):
        if previous >= path:
            raise MetadataError(
                f"{source}: files must be sorted by path and listed once, got {path!r} after {previous!r}; {_AGAIN}"
            )
    etags = columns["etag"].to_pylist() if "etag" in columns else [""] * len(paths)
    for path, etag in zip(paths, etags, strict=True):
        if not _ETAG.fullmatch(etag):
            raise MetadataError(
                f"{source}: an etag must be at most 256 ASCII characters, got {etag[:80]!r} for {path!r}; {_AGAIN}"
            )
    partitions = columns["partitions"].to_pylist()
    return tuple(
        DataFile(path, size, digest, tuple(map(tuple, values)), etag)
        for path, size, digest, values, etag in zip(paths, sizes, digests, partitions, etags, strict=True)
    )


def _beside(table: pa.Table, files: tuple[DataFile, ...], source: str) -> FootersBeside | None:
    """Return the positions of the packed footers; None if the manifest lists none."""
    if "footer_bytes" not in table.column_names:
        return None
    lengths, stored = (numbers_of(only_chunk(table.column(name))) for name in ("footer_bytes", "footer_stored"))
    beside = FootersBeside(files, lengths, stored)
    if not beside.can_be:
        raise MetadataError(f"{source}: the lengths of the packed footers are invalid; {_AGAIN}")
    return beside if lengths.any() else None


def _schemas(table: pa.Table, inventory: Inventory, encoded: str | None, source: str) -> FileSchemas | None:
    """Return the Arrow schemas of the files; None if all files have the same schema."""
    if encoded is None or _SCHEMA not in table.column_names:
        return None
    schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(one, validate=True))) for one in json.loads(encoded)]
    of_files = table.column(_SCHEMA).to_pylist()
    if not schemas or any(not 0 <= number < len(schemas) for number in of_files):
        raise MetadataError(
            f"{source}: the schema numbers of files must be from 0 to {len(schemas) - 1}, got others; {_AGAIN}"
        )
    return FileSchemas(tuple(schemas), tuple(of_files), tuple(file.path for file in inventory.files))


def _check_file(path: str, size: int, digest: str, source: str) -> None:
    parts = path.split("/")
    if "\\" in path or "\0" in path or not all(parts) or not {".", ".."}.isdisjoint(parts):
        raise MetadataError(
            f"{source}: a path must be relative, inside the dataset, and separated by /, got {path!r}; {_AGAIN}"
        )
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
        raise MetadataError(f"{source}: a path must not begin with a URL scheme or a drive, got {path!r}; {_AGAIN}")
    if size < 0:
        raise MetadataError(f"{source}: the size of {path!r} must be at least 0 bytes, got {size:,}; {_AGAIN}")
    if not _DIGEST.fullmatch(digest):
        raise MetadataError(
            f"{source}: a digest must be 32 hexadecimal digits, got {digest[:80]!r} for {path!r}; {_AGAIN}"
        )


def read_schema_document(location: Location, *, own: bool = False) -> str | None:
    """Return the schema document (JSON) in `_common_metadata`.

    If the file has no document of petastore, the schema that Petastorm pickled is converted. Return None if both are
    missing, or if the file is missing.

    Args:
        location: The dataset's directory.
        own: Whether to ignore a schema that Petastorm pickled.

    Raises:
        MetadataError: The file is damaged, or the pickle is not a schema of Petastorm.
        StorageError: A storage operation failed.
    """
    try:
        footer = footer_if_there(location, COMMON_METADATA)
    except StorageAccessError:
        if location.paths is None or not location.root.startswith(("http://", "https://")):
            raise
        return None  # a server of signed or public URLs may forbid requests for neighboring files
    if footer is None:
        return None
    source = f"{location.url}/{COMMON_METADATA}"
    document = document_in(footer.metadata, source)
    if document is not None or own:
        return document
    # Imported on demand, because only datasets of Petastorm need it.
    from petastore.storage.metadata.petastorm_schema import PETASTORM_SCHEMA_KEY, petastorm_document

    pickled = (footer.metadata.metadata or {}).get(PETASTORM_SCHEMA_KEY)
    return None if pickled is None else petastorm_document(pickled, footer.arrow_schema, source=source)


def write_common_metadata(
    location: Location,
    arrow_schema: pa.Schema,
    document: str,
    keys: Mapping[bytes, bytes | None] = MappingProxyType({}),
) -> None:
    """Replace `_common_metadata` atomically.

    Keys of other tools in the old file are kept; a damaged old file is replaced.

    Args:
        location: Location of the dataset.
        arrow_schema: Schema of the stored columns.
        document: Schema document to store.
        keys: Keys of other tools to write as well; a value of None removes the key.

    Raises:
        StorageError: A storage operation failed; the old file is unchanged.
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
