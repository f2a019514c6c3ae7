"""Migrate a Petastorm dataset: add petastore's metadata next to Petastorm's.

Petastorm's metadata stays valid.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from petastore.codecs.registry import codec_from_json
from petastore.errors import DatasetChangedError, InvalidArgumentError, MetadataError
from petastore.indexers import RowGroupIndex
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.schema.document import dump_document, parse_document
from petastore.schema.file_schemas import check_stored_schema
from petastore.storage.files.listing import list_data_files, partition_fields
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer import Footer, document_in
from petastore.storage.footers.footers import (
    differing_schemas,
    encoded_footers,
    footer_if_there,
    inventory_of,
    read_footers,
    schemas_of,
)
from petastore.storage.metadata.manifest import (
    COMMON_METADATA,
    MANIFEST,
    Manifest,
    manifest_token,
    read_manifest,
    write_common_metadata,
    write_manifest,
)
from petastore.storage.metadata.petastorm_schema import PETASTORM_SCHEMA_KEY, petastorm_document
from petastore.storage.metadata.row_group_index import (
    INDEXES,
    check_petastorm_counts,
    read_index,
    read_petastorm_indexes,
    write_indexes,
)
from petastore.writers.commit import committing

__all__ = ["Migration", "migrate"]

_WRITER = "petastore migrate"


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """The result of `migrate`: a report of what was written, or would be written."""

    url: str
    """URL of the dataset."""

    schema: Unischema = dataclasses.field(repr=False)
    """Schema of the rows."""

    inventory: Inventory
    """Files and row groups of the dataset."""

    written: tuple[str, ...]
    """Files written, relative to the dataset, in order; empty if all existed."""

    indexes: tuple[str, ...]
    """Names of the row-group indexes that were converted."""

    left: Mapping[str, str]
    """Row-group indexes that were not converted: dict from name to reason."""

    dry_run: bool
    """True if nothing was written."""


def migrate(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    dry_run: bool = False,
) -> Migration:
    """Write petastore's metadata next to that of Petastorm.

    This metadata is the schema document, the manifest and the row-group indexes. Petastorm's pickled schema and indexes
    are parsed as data, once: nothing in the pickles is imported or executed. Data files and Petastorm's metadata do not
    change, so Petastorm can still read the dataset. The change is atomic: each file is written to a temporary name and
    renamed, the manifest last. A repeated call writes only what is missing. Migrate again after Petastorm has added
    files, because petastore does not read files that the manifest does not list.

    Args:
        url: The dataset's directory.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        dry_run: Whether to report what would be written, without writing.

    Returns:
        A report of what was written, or would be written.

    Raises:
        InvalidArgumentError: The URL is a file or a list, or neither Petastorm nor petastore wrote the dataset.
        DatasetNotFoundError: The directory has no data files.
        MetadataError: The pickle is damaged, or names classes that Petastorm's schemas never contain.
        SchemaError: The files do not match the schema.
        DatasetChangedError: Another process wrote a manifest during the call.
        StorageError: A storage operation failed; the dataset is unchanged.

    Example:
        >>> import tempfile, petastore
        >>> from pathlib import Path
        >>> from petastore.interop import export
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> folder = tempfile.mkdtemp() + "/users"
        >>> _ = petastore.write_dataset(folder, schema, [{"id": 1}, {"id": 2}])
        >>> _ = export(folder)  # Petastorm's metadata
        >>> (Path(folder) / "_petastore" / "inventory.arrow").unlink()
        >>> migrate(folder, dry_run=True).written
        ('_petastore/inventory.arrow',)
        >>> migrate(folder).inventory, migrate(folder).written
        (Inventory(1 file, 1 row group, 2 rows), ())
    """
    location = open_location(url, storage_options=storage_options, filesystem=filesystem)
    if location.paths is not None:
        raise InvalidArgumentError(
            f"url must be a directory, which has Petastorm's metadata, got the file {location.url}"
        )
    if _petastorm_footer(location) is None:  # read before `committing` creates a lock file
        return _nothing_to_do(location, dry_run=dry_run)
    with contextlib.nullcontext() if dry_run else committing(location):
        return _migrated(location, dry_run=dry_run)


def _petastorm_footer(location: Location) -> Footer | None:
    """Return the footer of `_common_metadata` if it has Petastorm's schema, else None."""
    footer = footer_if_there(location, COMMON_METADATA)
    return footer if footer is not None and PETASTORM_SCHEMA_KEY in (footer.metadata.metadata or {}) else None


def _nothing_to_do(location: Location, *, dry_run: bool) -> Migration:
    """Return the report for a dataset that has petastore's metadata already.

    Raises:
        InvalidArgumentError: Neither petastore nor Petastorm wrote the dataset.
        DatasetNotFoundError: The directory does not exist or is empty.
    """
    manifest = read_manifest(location)
    if manifest is None:
        list_data_files(location)  # raises an error if the directory does not exist or is empty
    if manifest is None or manifest.schema_document is None:
        raise InvalidArgumentError(
            f"url must be a dataset that Petastorm wrote, got {location.url}, whose {COMMON_METADATA} lacks "
            f"{PETASTORM_SCHEMA_KEY.decode()!r}. `petastore generate-metadata` makes a dataset of any Parquet"
        )
    declared = Unischema(
        *parse_document(manifest.schema_document, codec_from_json=codec_from_json, source=location.url)
    )
    return Migration(location.url, declared, manifest.inventory, (), (), {}, dry_run)


def _migrated(location: Location, *, dry_run: bool) -> Migration:
    before = manifest_token(location)
    common = _petastorm_footer(location)
    if common is None:
        raise DatasetChangedError(
            f"{location.url}: another program deleted Petastorm's metadata during the migration. Run it again"
        )
    source = f"{location.url}/{COMMON_METADATA}"
    old = read_manifest(location)
    if old is None or old.schema_document is None or old.writer == _WRITER:
        pickled = (common.metadata.metadata or {})[PETASTORM_SCHEMA_KEY]
        writer, document = _WRITER, petastorm_document(pickled, common.arrow_schema, source=source)
    else:
        # A petastore dataset that was exported: its own schema has more information than Petastorm's.
        writer, document = old.writer, old.schema_document
    declared = Unischema(*parse_document(document, codec_from_json=codec_from_json, source=source))
    document = dump_document(declared.name, declared)
    footers = read_footers(location, list_data_files(location))
    schema = _checked(declared, footers)
    schemas = differing_schemas(footers)
    manifest = Manifest(inventory_of(footers), document, writer, schemas, footers=encoded_footers(footers))
    indexes, left = _indexes(location, manifest.inventory)
    document_is_new, manifest_is_new = document_in(common.metadata, source) != document, old != manifest
    if not dry_run:
        if manifest_token(location) != before:
            raise DatasetChangedError(f"{location.url}: another writer committed during the migration. Run it again")
        if document_is_new:
            write_common_metadata(location, common.arrow_schema, document)
        left |= _write(indexes, location, manifest.inventory)
        if manifest_is_new:
            write_manifest(location, manifest)
    names = tuple(index.index_name for index in indexes if index.index_name not in left)
    written = [COMMON_METADATA] if document_is_new else []
    written += [f"{INDEXES}/{quote(name, safe='')}.arrow" for name in names]
    written += [MANIFEST] if manifest_is_new else []
    return Migration(location.url, schema, manifest.inventory, tuple(written), names, left, dry_run)


def _checked(declared: Unischema, footers: list[Footer]) -> Unischema:
    """Check the schemas of all files, and return the schema of the dataset.

    The result has the declared fields, and the partition columns that the declared schema lacks.

    Raises:
        SchemaError: The files do not match the schema.
    """
    partitions = partition_fields([footer.file for footer in footers])
    names = tuple(field.name for field in partitions)
    schema = Unischema(declared.name, [*declared, *(field for field in partitions if field.name not in declared)])
    schemas = schemas_of(footers)
    stored = schemas.schemas[0] if schemas.are_equal else schemas.unified(schema, keys=names).arrow
    check_stored_schema(schema, stored, source=footers[0].file.path, partition_names=names)
    return schema


def _indexes(location: Location, inventory: Inventory) -> tuple[list[RowGroupIndex], dict[str, str]]:
    """Return the indexes of Petastorm to convert, and why others cannot be converted.

    The second value is a dict from index name to reason. If the indexes cannot be read, the dict has the single name
    "all". An index that petastore already has in a valid form is in neither value.
    """
    try:
        found = read_petastorm_indexes(location, inventory)
    except MetadataError as problem:
        return [], {"all": str(problem)}
    missing, left = [], {}
    for name, index in found.items():
        try:
            if read_index(location, inventory, name) is None:
                missing.append(index)
        except (DatasetChangedError, MetadataError) as problem:
            # A petastore index exists, but is stale or damaged. It is not replaced by Petastorm's index, which cannot
            # detect rewritten files.
            left[name] = str(problem)
    try:
        if missing:
            check_petastorm_counts(location, inventory)
    except (DatasetChangedError, MetadataError) as problem:
        return [], left | dict.fromkeys((index.index_name for index in missing), str(problem))
    return missing, left


def _write(indexes: list[RowGroupIndex], location: Location, inventory: Inventory) -> dict[str, str]:
    """Write indexes; return the reason for each index that could not be written."""
    left = {}
    for index in indexes:
        try:
            write_indexes(location, inventory, [index])
        except (InvalidArgumentError, MetadataError) as problem:
            left[index.index_name] = str(problem)
    return left
