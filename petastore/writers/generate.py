"""`generate_metadata`: a schema and a manifest for Parquet files that others wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from petastore.codecs.registry import codec_from_json
from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.schema.document import parse_document
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import Location, open_location
from petastore.storage.files.partitions import partition_fields
from petastore.storage.footers.agreed_schema import agreed_arrow_schema
from petastore.storage.footers.footers import encoded_footers, inventory_of, read_footer, read_footers
from petastore.storage.metadata.manifest import Manifest, read_manifest, read_schema_document, write_manifest
from petastore.writers.commit import commit_dataset
from petastore.writers.exclusive import committing

__all__ = ["generate_metadata"]

_WRITER = "petastore generate_metadata"


def generate_metadata(
    dataset_url: str | os.PathLike[str],
    schema: Unischema | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Inventory:
    """Write beside Parquet files what they are: a manifest, so that readers open no footers, and the schema.

    All data files in the directory are taken; none is changed. It needs no Spark. Use it for files that something else
    wrote, after files were added or removed, and when a manifest was lost.

    Args:
        dataset_url: The directory.
        schema: What a row is. The files must hold it as its codecs store it. None is what the dataset declares already
            (its own schema, or Petastorm's); where it declares none, only the manifest is written, and the schema goes
            on being inferred from the files.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Returns:
        The inventory as it was written.

    Raises:
        InvalidArgumentError: The URL is a file or a list.
        DatasetNotFoundError: There are no data files.
        SchemaError: A file does not keep the schema, or files disagree with each other.
        StorageError: The storage refused; what was there before still stands.

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
        raise InvalidArgumentError(
            f"{location.url} is a file; metadata lies beside all files of a directory, so name that"
        )
    if schema is not None:
        return commit_dataset(location, schema, writer=_WRITER)
    document = _declared(location)
    if document is None:
        return _inventory_alone(location)
    declared = Unischema(*parse_document(document, codec_from_json=codec_from_json, source=location.url))
    return commit_dataset(location, declared, writer=_WRITER)


def _declared(location: Location) -> str | None:
    """The schema document that the dataset has already, wherever it lies."""
    manifest = read_manifest(location)
    if manifest is not None and manifest.schema_document is not None:
        return manifest.schema_document
    return read_schema_document(location) or read_footer(location, list_data_files(location)[0]).schema_document


def _inventory_alone(location: Location) -> Inventory:
    with committing(location):
        footers = read_footers(location, list_data_files(location))
        agreed_arrow_schema(footers)  # refuses files that are not of one dataset
        partition_fields([footer.file for footer in footers])
        inventory = inventory_of(footers)
        write_manifest(location, Manifest(inventory, None, _WRITER, footers=encoded_footers(footers)))
        return inventory
