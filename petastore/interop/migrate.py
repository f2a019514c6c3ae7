"""`migrate`: a dataset that Petastorm wrote gets our metadata beside its own, and keeps being Petastorm's too."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import fs

from petastore.codecs.registry import codec_from_json
from petastore.errors import DatasetChangedError, MetadataError, RequestError
from petastore.indexers import RowGroupIndex
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.schema.document import dump_document, parse_document
from petastore.storage.footers import (
    Footer,
    agreed_arrow_schema,
    check_stored_schema,
    document_in,
    inventory_of,
    read_footer,
    read_footers,
)
from petastore.storage.legacy_index import check_petastorm_counts, read_petastorm_indexes
from petastore.storage.listing import list_data_files
from petastore.storage.location import Location, open_location
from petastore.storage.manifest import (
    COMMON_METADATA,
    MANIFEST,
    Manifest,
    manifest_token,
    read_manifest,
    write_common_metadata,
    write_manifest,
)
from petastore.storage.partitions import partition_fields
from petastore.storage.petastorm_schema import PETASTORM_SCHEMA_KEY, petastorm_document
from petastore.storage.row_group_index import read_index, write_indexes
from petastore.writers.exclusive import committing

__all__ = ["Migration", "migrate"]

_WRITER = "petastore migrate"
_ALL_INDEXES = "all row-group indexes"


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """What `migrate` did, or would do."""

    url: str
    """The dataset."""

    schema: Unischema
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
    again; what is there already is not written again. When Petastorm has added files since, call it again: until then
    petastore refuses or leaves out what the manifest does not know.

    Args:
        url: The dataset's directory.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        dry_run: Write nothing; say what would be written.

    Returns:
        What was written, or would be.

    Raises:
        RequestError: It is a file or a list of them, or Petastorm did not write it.
        DatasetNotFoundError: There are no data files.
        MetadataError: The pickle is damaged, or names what no schema of Petastorm's does.
        SchemaError: The files do not hold what the schema says.
        DatasetChangedError: Somebody else wrote a manifest meanwhile.
        StorageError: The storage refused; the dataset is what it was.

    Example:
        >>> import tempfile, petastore
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
        raise RequestError(f"{location.url} is a file; Petastorm's metadata lies in a directory, so name that")
    _petastorm_footer(location)
    if dry_run:
        return _planned(location).told(location, dry_run=True)
    with committing(location):
        before = manifest_token(location)
        steps = _planned(location)
        if manifest_token(location) != before:
            raise DatasetChangedError(f"{location.url}: another writer committed meanwhile; migrate it again")
        return _carried_out(steps, location)


@dataclasses.dataclass(frozen=True, slots=True)
class _Steps:
    """All that there is to do."""

    schema: Unischema
    manifest: Manifest
    base: pa.Schema
    write_common: bool
    write_manifest: bool
    indexes: list[RowGroupIndex]
    left: dict[str, str]

    def told(self, location: Location, *, dry_run: bool) -> Migration:
        """These steps as users see them."""
        names = tuple(index.index_name for index in self.indexes)
        written = [COMMON_METADATA] if self.write_common else []
        written += [index_path(name) for name in names]
        written += [MANIFEST] if self.write_manifest else []
        return Migration(
            location.url, self.schema, self.manifest.inventory, tuple(written), names, self.left, dry_run
        )


def _petastorm_footer(location: Location) -> Footer:
    """The footer that holds Petastorm's keys."""
    there = location.filesystem.get_file_info(location.join(COMMON_METADATA)).type == fs.FileType.File
    footer = read_footer(location, COMMON_METADATA) if there else None
    if footer is None or PETASTORM_SCHEMA_KEY not in (footer.metadata.metadata or {}):
        raise RequestError(
            f"{location.url} is no dataset that Petastorm wrote: there is no {PETASTORM_SCHEMA_KEY.decode()!r} in "
            f"{COMMON_METADATA}. petastore.writers.generate.generate_metadata makes a dataset of any Parquet"
        )
    return footer


def _planned(location: Location) -> _Steps:
    common = _petastorm_footer(location)
    source = f"{location.url}/{COMMON_METADATA}"
    old = read_manifest(location)
    if old is None or old.schema_document is None or old.writer == _WRITER:
        writer, document = _WRITER, _petastorm_document(common, source)
    else:
        # The dataset is ours, and was exported: our schema says more than Petastorm's can.
        writer, document = old.writer, old.schema_document
    declared = Unischema(*parse_document(document, codec_from_json=codec_from_json, source=source))
    document = dump_document(declared.name, declared)
    footers = read_footers(location, list_data_files(location))
    schema = _checked(declared, footers)
    manifest = Manifest(inventory_of(footers), document, writer)
    indexes, left = _indexes(location, manifest.inventory)
    return _Steps(
        schema=schema,
        manifest=manifest,
        base=common.arrow_schema,
        write_common=document_in(common.metadata, source) != document,
        write_manifest=old != manifest,
        indexes=indexes,
        left=left,
    )
