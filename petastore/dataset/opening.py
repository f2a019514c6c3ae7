"""Open a dataset: read its manifest or file footers, and determine the schema."""

from __future__ import annotations

import dataclasses
import os
import posixpath
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from petastore.codecs.registry import codec_from_json
from petastore.dataset.dataset import Dataset
from petastore.errors import SchemaError
from petastore.inventory import DataFile, Inventory
from petastore.schema.arrow import field_from_arrow
from petastore.schema.document import dump_document, parse_document
from petastore.schema.field import UnischemaField
from petastore.schema.file_schemas import ColumnDifference, FileSchemas, SchemaOption, check_stored_schema
from petastore.schema.unischema import Unischema
from petastore.storage.files.listing import list_etags, parse_partitions, partition_fields
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import inventory_of, read_footers, schemas_of
from petastore.storage.footers.tails import KeptTails
from petastore.storage.metadata.manifest import (
    Manifest,
    dubious_files,
    looked_around,
    read_manifest,
    read_schema_document,
)
from petastore.storage.ranges.pinned_files import KeptFiles
from petastore.storage.requests.retries import DEFAULT_STORAGE_TIMEOUT_S, checked_timeout
from petastore.storage.stores.interface import FileVersion

if TYPE_CHECKING:
    from petastore.cache import DiskCache

__all__ = ["dataset_at", "dataset_of_footers", "document_of_footers", "find_document", "located", "open_dataset"]


@dataclasses.dataclass(frozen=True)
class ReadSchema:
    """Schema with which a dataset is read, and the casts that each file needs.

    It has those attributes of a `Dataset` that depend on the schema.
    """

    schema: Unischema
    """Schema of a row."""

    partition_names: tuple[str, ...] = ()
    """Names of the columns from directory names, outermost first."""

    stored_keys: tuple[str, ...] = ()
    """Partition keys that the files also store."""

    unified: pa.Schema | None = None
    """Arrow schema to which all files are cast; None means no cast."""

    differences: tuple[ColumnDifference, ...] = ()
    """Columns that some files lack or store as another type."""

    @classmethod
    def of(
        cls,
        schemas: FileSchemas | None,
        files: Sequence[DataFile],
        declared: Unischema | None,
        option: SchemaOption,
        unreadable: dict[str, str],
        *,
        above: Collection[str] = (),
    ) -> ReadSchema:
        """Return the schema with which these files are read.

        Args:
            schemas: Arrow schemas of the files; None if the schema document describes each of them.
            files: The files.
            declared: Schema of the schema document; None if there is none.
            option: Value of the parameter `schema`.
            unreadable: Reason for each column that cannot be read; columns whose types do not unify are added.
            above: Partition keys of directories above the root, which the dataset does not have.

        Raises:
            SchemaError: A declared field cannot be read from the files, or a file stores a partition key outside of the
                key's directories.
        """
        partitions = partition_fields(files)
        keys = tuple(field.name for field in partitions)
        if schemas is None:
            assert declared is not None  # noqa: S101 - without a declared schema, `schemas` is given
            return cls(_with_partitions(declared, partitions), keys)
        differences = schemas.differences()
        # Directory names have the value of the key even for files without the column.
        schemas = schemas.without(schemas.check_key_directories(files))
        stored = frozenset(name for schema in schemas.schemas for name in schema.names)
        needs_casts = not schemas.are_equal
        if isinstance(option, Unischema):
            declared, needs_casts = _without(option, unreadable), True
        elif declared is not None:
            absent = {*above, *unreadable}.difference(stored, keys)
            declared = _without(declared, absent.union(schemas.left_out(option)))
            _check_stored(declared, schemas, stored, keys)
        if declared is not None:
            unified = schemas.unified(declared, keys=keys).arrow if needs_casts else None
            schema = _with_partitions(declared, partitions)
        else:
            found = schemas.unified(option)
            unreadable.update(found.conflicts)
            unified = found.arrow if needs_casts else None
            schema = _inferred(found.arrow, partitions, unreadable)
        partition_names = tuple(key for key in keys if key not in stored)
        stored_keys = tuple(key for key in keys if key in stored and key in schema)
        return cls(schema, partition_names, stored_keys, unified, differences)


def _check_stored(declared: Unischema, schemas: FileSchemas, stored: Collection[str], keys: Collection[str]) -> None:
    """Raise an error for declared fields that no file has, or that have another type."""
    fields = [field for field in declared if schemas.are_equal or field.name not in stored]
    check_stored_schema(
        Unischema(declared.name, fields),
        schemas.schemas[0],
        source=schemas.paths[0],
        partition_names={key for key in keys if key not in stored},
    )


def _without(schema: Unischema, names: Collection[str]) -> Unischema:
    """Return the schema without some columns.

    These are partition columns above the path, or unreadable columns.
    """
    return Unischema(schema.name, [field for field in schema if field.name not in names]) if names else schema


def _with_partitions(declared: Unischema, partitions: Sequence[UnischemaField]) -> Unischema:
    """Return the declared schema, followed by partition columns that it lacks."""
    missing = [field for field in partitions if field.name not in declared]
    return Unischema(declared.name, [*declared, *missing]) if missing else declared


def _inferred(stored: pa.Schema, partitions: Sequence[UnischemaField], unreadable: dict[str, str]) -> Unischema:
    """Infer the schema of plain Parquet; add unsupported columns to `unreadable`."""
    inside = {}
    for field in stored:
        try:
            inside[field.name] = _writable(field_from_arrow(field), field.type)
        except SchemaError as problem:
            unreadable[field.name] = str(problem)
    # A partition key that is also stored has the type of the files; the other keys come last.
    keys = [inside.pop(field.name, field) for field in partitions if field.name not in unreadable]
    return Unischema("inferred_schema", [*inside.values(), *keys])


def _writable(field: UnischemaField, stored: pa.DataType) -> UnischemaField:
    """Return the field with a codec that can write its values.

    Only a field of Python objects gets such a codec.
    """
    if field.numpy_dtype is not np.object_:
        return field
    from petastore.codecs.arrow_cells import with_arrow_type  # lazy import: rarely needed

    return with_arrow_type(field, stored)


def open_dataset(
    url_or_urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S,
    schema: SchemaOption = "union",
) -> Dataset:
    """Open a dataset of petastore or Petastorm, or plain Parquet.

    Petastorm's pickled schema is parsed as data: nothing in it is imported or executed.

    Args:
        url_or_urls: Local path or URL of a directory or of one Parquet file, a glob pattern such as
            `day=*/part-*.parquet`, or a list of these with the same scheme and host. A file that is listed twice is
            read twice in each epoch.
        storage_options: Keyword arguments for the fsspec filesystem that the URL selects, such as S3 credentials.
        filesystem: A pyarrow or fsspec filesystem, used instead of the one that the URL selects.
        storage_timeout: Timeout in seconds for each storage request, now and while reading; None means no timeout.
        schema: How to read files whose schemas differ. `"union"` has the columns of all files, null where a file lacks
            one, in the narrowest types that hold all values exactly. `"common"` has the columns that all files have.
            `"first"` has columns and types of the first file. A `Unischema` declares fields and types.

    Raises:
        DatasetNotFoundError: No dataset exists at the URL.
        StorageTimeoutError: Storage did not answer in time.
        MetadataError: The schema document, manifest or a footer is damaged or newer than this release; or a pickled
            schema names a class that is not Petastorm's, such as a custom codec.
        SchemaError: A file does not match the stored schema; or it stores a partition key outside of the key's
            directories. Types that cannot be unified raise when they are read.
        DatasetChangedError: Files differ from the manifest.
        InvalidArgumentError: The URL is invalid.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"id": 1}, {"id": 2}])
        ...     dataset = open_dataset(folder + "/users")
        >>> dataset.schema == schema, dataset.inventory
        (True, Inventory(1 file, 1 row group, 2 rows))
    """
    return dataset_at(
        located(
            url_or_urls,
            storage_options=storage_options,
            filesystem=filesystem,
            storage_timeout=storage_timeout,
        ),
        schema=schema,
    )


def located(
    url_or_urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    storage_options: Mapping[str, Any] | None,
    filesystem: Any,
    storage_timeout: float | None,
) -> Location:
    """Return the location of a dataset to open; arguments as for `open_dataset`.

    Raises:
        InvalidArgumentError: The URL or an option is invalid; the message names it.
    """
    return open_location(
        url_or_urls,
        storage_options=storage_options,
        filesystem=filesystem,
        patterns=True,
        timeout_s=checked_timeout(storage_timeout),
    )


def dataset_at(location: Location, cache: DiskCache | None = None, *, schema: SchemaOption = "union") -> Dataset:
    """Open the dataset at a location.

    Args:
        location: Location of the dataset.
        cache: Disk cache of column chunks, as in `Dataset.with_cache`, and of footers, so that the next open does not
            request footers from storage; None caches nothing.
        schema: Schema of files that differ, as in `open_dataset`.

    Raises:
        StorageError: As `open_dataset`.
        SchemaError: As `open_dataset`.
    """
    kept = KeptFiles(cache)
    manifest = read_manifest(location) if location.paths is None else None
    if manifest is None:
        return _from_footers(location, kept, schema)
    return _from_manifest(location, manifest, kept, schema)


def _from_manifest(location: Location, manifest: Manifest, kept: KeptFiles, option: SchemaOption) -> Dataset:
    strangers, settled = looked_around(location, manifest)
    kept.versions.update(settled)
    if strangers:
        warnings.warn(
            f"{location.url} holds {len(strangers):,} data file(s) that its inventory does not list, which are not "
            f"read: {', '.join(strangers[:3])}{' …' if len(strangers) > 3 else ''}. If an interrupted "
            "write left them, delete them; if they belong to the dataset, add them with `petastore "
            "generate-metadata`, or with `petastore migrate` if Petastorm wrote them",
            UserWarning,
            stacklevel=3,
        )
    files = manifest.inventory.files
    unreadable: dict[str, str] = {}
    declared = None
    if manifest.schema_document is not None:
        declared = _declared(manifest.schema_document, location.url, unreadable)
    footers = FooterCache(inventory=manifest.inventory, beside=manifest.beside)
    schemas = manifest.schemas
    is_told = declared is not None and isinstance(option, str) and not any(file.partitions for file in files)
    if schemas is None and files and not is_told:
        first = footers.get(location, files[0])
        schemas = FileSchemas.of((file.path, first.arrow_schema) for file in files)
        unreadable.update(first.unreadable if declared is None else {})
    dataset = Dataset(
        **vars(ReadSchema.of(schemas, files, declared, option, unreadable)),
        location=location,
        inventory=manifest.inventory,
        writer=manifest.writer,
        has_schema_document=declared is not None,
        unreadable=unreadable,
        kept=kept,
        footers=footers,
    )
    dataset.footers.check(location, dubious_files(manifest))
    return dataset


def _kept_tails(location: Location, listed: Mapping[str, tuple[int | None, str]], footers: DiskCache) -> KeptTails:
    told = {path: FileVersion(size, etag) for path, (size, etag) in listed.items() if size is not None and etag}
    return KeptTails(footers, location, told)


def _from_footers(location: Location, kept: KeptFiles, option: SchemaOption) -> Dataset:
    listed = list_etags(location)
    footers = read_footers(
        location, listed, None if kept.footers is None else _kept_tails(location, listed, kept.footers)
    )
    return dataset_of_footers(location, footers, *find_document(location, footers), kept=kept, option=option)


def dataset_of_footers(
    location: Location,
    footers: Sequence[Footer],
    document: str | None,
    above: Sequence[str] = (),
    *,
    kept: KeptFiles | None = None,
    option: SchemaOption = "union",
) -> Dataset:
    """Return the dataset of some files, given their footers.

    Args:
        location: The dataset's directory, or its files.
        footers: Footers of the files, at least one, sorted by path.
        document: Schema document; None infers the schema from the files.
        above: Partition columns that come from directories above the root.
        kept: File versions and cached column chunks of the files.
        option: Schema of files that differ, as in `open_dataset`.

    Raises:
        MetadataError: The schema document is damaged.
        SchemaError: A file does not match the schema document.
    """
    unreadable = {name: why for footer in reversed(footers) for name, why in footer.unreadable.items()}
    schemas = schemas_of(footers)
    declared, odd = None, dict[str, str]()
    if document is not None:
        declared = _declared(document, location.url, odd)
        unreadable = {name: why for name, why in unreadable.items() if name in declared}
    files = [footer.file for footer in footers]
    dataset = Dataset(
        **vars(ReadSchema.of(schemas, files, declared, option, unreadable, above=above)),
        location=location,
        inventory=_named_times(inventory_of(footers), location),
        writer=footers[0].written_by,
        has_schema_document=document is not None,
        unreadable=unreadable | odd,
        kept=kept or KeptFiles(),
        footers=FooterCache(),
    )
    dataset.footers.know(location, footers)
    return dataset


def _named_times(inventory: Inventory, location: Location) -> Inventory:
    """Return the inventory, with each file repeated as often as the caller listed it."""
    return (
        inventory.repeated([location.times_of(file.path) for file in inventory.files]) if location.times else inventory
    )


def find_document(location: Location, footers: Sequence[Footer]) -> tuple[str | None, list[str]]:
    """Find the schema document of the dataset to which these files belong.

    If the root is a partition (`key=value`), the directories above it are searched, too.

    Returns:
        The document, and the partition columns of directories above the root.

    Raises:
        MetadataError: `_common_metadata` or a document is damaged.
        StorageError: A storage operation failed.
    """
    found = read_schema_document(location) or document_of_footers(footers, location.url)
    above: list[str] = []
    while found is None and "=" in posixpath.basename(location.root):
        above += [key for key, _ in parse_partitions(f"{posixpath.basename(location.root)}/")]
        location = dataclasses.replace(location, root=posixpath.dirname(location.root), paths=None)
        found = read_schema_document(location)
    return found, above


def document_of_footers(footers: Sequence[Footer], source: str) -> str | None:
    """Return the schema document of files that have no common one; None if the first file has none.

    If the files have several documents, the result has the fields of all of them, each as the first of these documents
    declares it. A field is nullable unless it is in all documents, and not nullable in any. If a field of a document
    cannot be read, the result is the document of the first file.

    Args:
        footers: Footers of the files, at least one.
        source: Origin of the files, for messages.

    Raises:
        MetadataError: One of several documents is damaged.
    """
    first = footers[0].schema_document
    if first is None:
        return None
    documents = dict.fromkeys(document for footer in footers if (document := footer.schema_document) is not None)
    odd: dict[str, str] = {}
    schemas = [_declared(one, source, odd) for one in documents] if len(documents) > 1 else []
    if not schemas or odd:
        return first
    fields: dict[str, UnischemaField] = {}
    for field in (field for schema in schemas for field in schema):
        fields.setdefault(field.name, field)
    merged = [
        dataclasses.replace(field, nullable=any(name not in schema or schema[name].nullable for schema in schemas))
        for name, field in fields.items()
    ]
    return dump_document(schemas[0].name, merged)


def _declared(document: str, source: str, odd: dict[str, str]) -> Unischema:
    """Return the schema of a document; fields that cannot be read are added to `odd`."""
    return Unischema(*parse_document(document, codec_from_json=codec_from_json, source=source, odd=odd))
