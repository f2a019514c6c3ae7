"""`migrate`: a dataset that Petastorm wrote gets our metadata beside its own, and keeps being Petastorm's too."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from petastore.codecs.registry import codec_from_json
from petastore.errors import DatasetChangedError, InvalidArgumentError, MetadataError
from petastore.indexers import RowGroupIndex
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.schema.document import dump_document, parse_document
from petastore.schema.stored import check_stored_schema
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import Location, open_location
from petastore.storage.files.partitions import partition_fields
from petastore.storage.footers.agreed_schema import agreed_arrow_schema
from petastore.storage.footers.footers import (
    Footer,
    document_in,
    encoded_footers,
    footer_if_there,
    inventory_of,
    read_footers,
)
from petastore.storage.metadata.legacy_index import check_petastorm_counts, read_petastorm_indexes
from petastore.storage.metadata.manifest import (
    COMMON_METADATA,
    MANIFEST,
    Manifest,
    manifest_token,
    read_manifest,
    write_common_metadata,
    write_manifest,
)
from petastore.storage.metadata.row_group_index import INDEXES, read_index, write_indexes
from petastore.storage.petastorm.petastorm_schema import PETASTORM_SCHEMA_KEY, petastorm_document
from petastore.writers.exclusive import committing

__all__ = ["Migration", "migrate"]

_WRITER = "petastore migrate"


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """What `migrate` did, or would do."""

    url: str
    """The dataset."""

    schema: Unischema = dataclasses.field(repr=False)
    """What its rows are."""

    inventory: Inventory
    """Its files and row groups."""

    written: tuple[str, ...]
    """Files that were written, relative to the dataset, in that order; empty where all was there already."""

    indexes: tuple[str, ...]
    """Names of the row-group indexes that became ours."""

    left: Mapping[str, str]
    """Row-group indexes that stay Petastorm's, by name, and why."""

    dry_run: bool
    """True: nothing was written."""


def migrate(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    dry_run: bool = False,
) -> Migration:
    """Write our schema document, manifest and row-group indexes beside what Petastorm wrote.

    The pickled schema and indexes are read as data; nothing in them is imported or run, and after this they are not
    looked at any more. Data files are not touched, and Petastorm's own keys stay, so Petastorm still reads the dataset.
    Each file is written aside and renamed, the manifest last: until then the dataset is what it was. May be called
    again; what is there already is not written again, and of a dataset of ours nothing is. When Petastorm has added
    files since, call it again: until then petastore refuses or leaves out what the manifest does not know.

    Args:
        url: The dataset's directory.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        dry_run: Write nothing; say what would be written.

    Returns:
        What was written, or would be.

    Raises:
        InvalidArgumentError: It is a file or a list of them, or Petastorm did not write it.
        DatasetNotFoundError: There are no data files.
        MetadataError: The pickle is damaged, or names what no schema of Petastorm's does.
        SchemaError: The files do not hold what the schema says.
        DatasetChangedError: Somebody else wrote a manifest meanwhile.
        StorageError: The storage refused; the dataset is what it was.

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
        raise InvalidArgumentError(f"{location.url} is a file; Petastorm's metadata lies in a directory, so name that")
    if _petastorm_footer(location) is None:  # or it is refused, before there is a lock file
        return _nothing_to_do(location, dry_run=dry_run)
    if dry_run:
        return _told(_planned(location), location, dry_run=True)
    with committing(location):
        before = manifest_token(location)
        steps = _planned(location)
        if manifest_token(location) != before:
            raise DatasetChangedError(f"{location.url}: another writer committed meanwhile; migrate it again")
        _carry_out(steps, location)
    return _told(steps, location, dry_run=False)


@dataclasses.dataclass(frozen=True, slots=True)
class _Steps:
    """All that there is to do."""

    schema: Unischema
    manifest: Manifest
    stored: pa.Schema
    """Columns in `_common_metadata`, which stay as they are."""
    document_is_new: bool
    manifest_is_new: bool
    indexes: list[RowGroupIndex]
    left: dict[str, str]


def _petastorm_footer(location: Location) -> Footer | None:
    """The footer that holds Petastorm's keys; None where Petastorm did not write the dataset."""
    footer = footer_if_there(location, COMMON_METADATA)
    return footer if footer is not None and PETASTORM_SCHEMA_KEY in (footer.metadata.metadata or {}) else None


def _nothing_to_do(location: Location, *, dry_run: bool) -> Migration:
    """What is told of a dataset of ours.

    Raises:
        InvalidArgumentError: It is none.
        DatasetNotFoundError: Nothing is there.
    """
    manifest = read_manifest(location)
    if manifest is None:
        list_data_files(location)  # says so where there is nothing
    if manifest is None or manifest.schema_document is None:
        raise InvalidArgumentError(
            f"{location.url} is no dataset that Petastorm wrote: there is no {PETASTORM_SCHEMA_KEY.decode()!r} in "
            f"{COMMON_METADATA}. `petastore generate-metadata` makes a dataset of any Parquet"
        )
    declared = Unischema(
        *parse_document(manifest.schema_document, codec_from_json=codec_from_json, source=location.url)
    )
    return Migration(location.url, declared, manifest.inventory, (), (), {}, dry_run)


def _planned(location: Location) -> _Steps:
    common = _petastorm_footer(location)
    if common is None:
        raise DatasetChangedError(f"{location.url}: somebody took Petastorm's metadata away meanwhile")
    source = f"{location.url}/{COMMON_METADATA}"
    old = read_manifest(location)
    if old is None or old.schema_document is None or old.writer == _WRITER:
        pickled = (common.metadata.metadata or {})[PETASTORM_SCHEMA_KEY]
        writer, document = _WRITER, petastorm_document(pickled, common.arrow_schema, source=source)
    else:
        # The dataset is ours, and was exported: our schema says more than Petastorm's can.
        writer, document = old.writer, old.schema_document
    declared = Unischema(*parse_document(document, codec_from_json=codec_from_json, source=source))
    document = dump_document(declared.name, declared)
    footers = read_footers(location, list_data_files(location))
    schema = _checked(declared, footers)
    manifest = Manifest(inventory_of(footers), document, writer, footers=encoded_footers(footers))
    indexes, left = _indexes(location, manifest.inventory)
    return _Steps(
        schema=schema,
        manifest=manifest,
        stored=common.arrow_schema,
        document_is_new=document_in(common.metadata, source) != document,
        manifest_is_new=old != manifest,
        indexes=indexes,
        left=left,
    )


def _checked(declared: Unischema, footers: list[Footer]) -> Unischema:
    """The schema with the partition columns that it does not declare, after a look at every file."""
    partitions = partition_fields([footer.file for footer in footers])
    names = tuple(field.name for field in partitions)
    schema = Unischema(declared.name, [*declared, *(field for field in partitions if field.name not in declared)])
    stored = agreed_arrow_schema(footers)
    check_stored_schema(schema, stored, source=footers[0].file.path, partition_names=names)
    return schema


def _indexes(location: Location, inventory: Inventory) -> tuple[list[RowGroupIndex], dict[str, str]]:
    """Indexes of Petastorm that we do not have, and those that cannot be taken over, with the reason."""
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
            # Ours knows that files were rewritten; Petastorm's cannot, so it does not take the place of ours.
            left[name] = str(problem)
    try:
        if missing:
            check_petastorm_counts(location, inventory)
    except (DatasetChangedError, MetadataError) as problem:
        return [], left | dict.fromkeys((index.index_name for index in missing), str(problem))
    return missing, left


def _carry_out(steps: _Steps, location: Location) -> None:
    document = steps.manifest.schema_document
    assert document is not None  # noqa: S101 - it was made from one
    if steps.document_is_new:
        write_common_metadata(location, steps.stored, document)
    for index in list(steps.indexes):
        try:
            write_indexes(location, steps.manifest.inventory, [index])
        except (InvalidArgumentError, MetadataError) as problem:
            steps.indexes.remove(index)
            steps.left[index.index_name] = str(problem)
    if steps.manifest_is_new:
        write_manifest(location, steps.manifest)


def _told(steps: _Steps, location: Location, *, dry_run: bool) -> Migration:
    names = tuple(index.index_name for index in steps.indexes)
    written = [COMMON_METADATA] if steps.document_is_new else []
    written += [f"{INDEXES}/{quote(name, safe='')}.arrow" for name in names]
    written += [MANIFEST] if steps.manifest_is_new else []
    inventory = steps.manifest.inventory
    return Migration(location.url, steps.schema, inventory, tuple(written), names, steps.left, dry_run)
