"""`generate_metadata`: a schema and a manifest for files of other programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from petastore.codecs.registry import codec_from_json
from petastore.dataset.opening import document_of_footers
from petastore.errors import InvalidArgumentError, MetadataError
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.schema.document import parse_document
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import Location, open_location
from petastore.storage.files.whole_files import NewerFormatError
from petastore.storage.footers.footers import (
    differing_schemas,
    encoded_footers,
    inventory_of,
    read_footer,
    read_footers,
)
from petastore.storage.metadata.manifest import (
    Manifest,
    read_manifest,
    read_schema_document,
    write_manifest,
)
from petastore.writers.commit import commit_dataset, committing

__all__ = ["generate_metadata", "write_inventory"]

_WRITER = "petastore generate_metadata"


def generate_metadata(
    dataset_url: str | os.PathLike[str],
    schema: Unischema | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Inventory:
    """Write a manifest and a schema for existing Parquet files.

    Readers then need not read the footers of all files. The manifest lists all data files in the directory; the files
    themselves do not change. Spark is not needed. Use this function for files that another program wrote, after files
    were added or removed, or to replace a lost manifest.

    Args:
        dataset_url: Directory of the dataset.
        schema: Schema of the rows; the files must contain cells in the format of its codecs. None uses the schema
            stored in the dataset (petastore's or Petastorm's). Without a stored schema, only the manifest is written,
            and readers infer the schema from the files as before.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Returns:
        The inventory (files and row groups) that was written.

    Raises:
        InvalidArgumentError: The URL is a file or a list.
        DatasetNotFoundError: The directory has no data files.
        SchemaError: A file does not match the schema.
        StorageError: A storage operation failed; the dataset is unchanged.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile, petastore
        >>> url = tempfile.mkdtemp()
        >>> pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int32())}), url + "/0.parquet")
        >>> schema = Unischema("user", [petastore.UnischemaField("id", "int32", nullable=True)])
        >>> generate_metadata(url, schema), petastore.open_dataset(url).schema == schema
        (Inventory(1 file, 1 row group, 3 rows), True)
    """
    location = open_location(dataset_url, storage_options=storage_options, filesystem=filesystem)
    if location.paths is not None:
        raise InvalidArgumentError(f"dataset_url must be a directory, got the file {location.url}")
    if schema is not None:
        return commit_dataset(location, schema, writer=_WRITER)
    document = _declared(location)
    if document is None:
        return write_inventory(location, list_data_files(location), writer=_WRITER)
    declared = Unischema(*parse_document(document, codec_from_json=codec_from_json, source=location.url))
    return commit_dataset(location, declared, writer=_WRITER)


def _declared(location: Location) -> str | None:
    """Return the schema document that an existing dataset stores.

    It comes from the manifest, `_common_metadata` or the files. Return None if none of them has one.
    """
    try:
        manifest = read_manifest(location)
    except NewerFormatError:
        raise
    except MetadataError:  # a damaged manifest is replaced
        manifest = None
    if manifest is not None and manifest.schema_document is not None:
        return manifest.schema_document
    document = read_schema_document(location)
    if document is not None:
        return document
    files = list_data_files(location)
    if read_footer(location, files[0]).schema_document is None:
        return None
    return document_of_footers(read_footers(location, files), location.url)


def write_inventory(location: Location, files: Sequence[str], *, writer: str) -> Inventory:
    """Write a manifest without a schema document, and return the inventory.

    Args:
        location: The dataset's directory.
        files: The data files, relative to the root.
        writer: Name of the writing program, for display.

    Raises:
        MetadataError: A file is damaged.
        StorageError: A storage operation failed; the old manifest is unchanged.
    """
    with committing(location):
        footers = read_footers(location, files)
        schemas, inventory = differing_schemas(footers), inventory_of(footers)
        write_manifest(location, Manifest(inventory, None, writer, schemas, footers=encoded_footers(footers)))
        return inventory
