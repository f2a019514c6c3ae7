"""Export to Petastorm: add Petastorm's metadata to a petastore dataset.

Afterwards the original Petastorm can open the dataset.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from petastore.dataset import Dataset, open_dataset
from petastore.errors import InvalidArgumentError, MetadataError, SchemaError
from petastore.interop.petastorm_pickle import petastorm_pickle
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.schema.document import dump_document
from petastore.storage.files.listing import files_beside
from petastore.storage.footers.footer import document_in
from petastore.storage.footers.footers import footer_if_there, parquet_among
from petastore.storage.metadata.manifest import COMMON_METADATA, write_common_metadata
from petastore.storage.metadata.petastorm_index import PETASTORM_INDEX_KEY
from petastore.storage.metadata.petastorm_schema import PETASTORM_SCHEMA_KEY, petastorm_document
from petastore.storage.metadata.row_group_index import petastorm_counts
from petastore.writers.commit import committing

__all__ = ["Export", "export"]

_COUNTS_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"
_SUMMARY = "_metadata"
# Names in pickles of old releases that Petastorm 0.13 cannot import: PySpark's named tuples, and earlier names of the
# package.
_OLD_NAMES = (b"pyspark.serializers", b"dataset_toolkit")


@dataclasses.dataclass(frozen=True, slots=True)
class Export:
    """The result of `export`: a report of what was written, or would be written."""

    url: str
    """URL of the dataset."""

    schema: Unischema = dataclasses.field(repr=False)
    """The schema that Petastorm will read."""

    inventory: Inventory
    """Files and row groups of the dataset."""

    written: tuple[str, ...]
    """Files written, relative to the dataset; empty if all existed."""

    dry_run: bool
    """True if nothing was written."""


def export(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    dry_run: bool = False,
) -> Export:
    """Write the metadata that Petastorm needs for a petastore dataset.

    This metadata is the pickled schema and the number of row groups of each file. Export a dataset if jobs that read it
    still use Petastorm. Only `_common_metadata` is written, to a temporary name and renamed; data files, manifest and
    petastore's schema do not change. Export again after every write, because Petastorm fails on files whose row groups
    are not listed. A stale row-group index of Petastorm is removed, because Petastorm would use it.

    Args:
        url: The dataset's directory.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        dry_run: Whether to report what would be written, without writing.

    Returns:
        A report of what was written, or would be written.

    Raises:
        InvalidArgumentError: The URL is a file or a list, or the directory has data files that do not belong to the
            dataset.
        SchemaError: Petastorm cannot read the rows (a codec or dtype is not supported, a name is not a Python
            identifier, or a partition value would be misread), or the dataset has no stored schema.
        MetadataError: The directory has a `_metadata` file of Spark, which Petastorm would read instead.
        DatasetNotFoundError: No dataset exists at the URL.
        StorageError: A storage operation failed; the dataset is unchanged.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> folder = tempfile.mkdtemp() + "/users"
        >>> _ = petastore.write_dataset(folder, schema, [{"id": 1}, {"id": 2}])
        >>> export(folder).written, export(folder).written
        (('_common_metadata',), ())
    """
    dataset = open_dataset(url, storage_options=storage_options, filesystem=filesystem)
    location = dataset.location
    if location.paths is not None:
        raise InvalidArgumentError(
            f"url must be a directory, because Petastorm's metadata belongs to one, got files: {location.url}"
        )
    _check(dataset)
    pickled = petastorm_pickle(dataset.schema)
    with contextlib.nullcontext() if dry_run else committing(location):
        written = _write(dataset, pickled, dry_run=dry_run)
    return Export(location.url, dataset.schema, dataset.inventory, written, dry_run)


def _check(dataset: Dataset) -> None:
    """Raise an error for data that Petastorm would read differently."""
    location, inventory = dataset.location, dataset.inventory
    if not dataset.has_schema_document:
        raise SchemaError(
            f"{location.url} must declare a schema, got none. Add one with "
            "petastore.writers.generate.generate_metadata, or "
            "read the dataset with Petastorm's make_batch_reader"
        )
    strangers = parquet_among(location, files_beside(location, {file.path for file in inventory.files}))
    if strangers:
        raise InvalidArgumentError(
            f"{location.url} has data files that are not part of the dataset, on which Petastorm would fail: "
            f"{', '.join(strangers[:3])}. Delete them, or add them with petastore generate-metadata"
        )
    summary = footer_if_there(location, _SUMMARY)
    if summary is not None and summary.metadata.num_row_groups:
        raise MetadataError(
            f"{location.url}/{_SUMMARY} must not have row groups, because Petastorm would read these instead of the "
            "files. "
            "Delete that file, and export again"
        )
    for name in dataset.partition_names:
        _check_partition(dataset, name)


def _check_partition(dataset: Dataset, name: str) -> None:
    texts = {dict(file.partitions)[name] for file in dataset.inventory.files}
    raw = {part for file in dataset.inventory.files for part in file.path.split("/")[:-1]}
    trouble = ""
    if None in texts:
        trouble = "a directory has a null value, which Petastorm reads as text"
    elif any("%" in part for part in raw if part.partition("=")[0] == name):
        trouble = "a directory has an escape (%), which Petastorm does not decode"
    elif dataset.schema[name].dtype_name == "str" and all(_reads_as_integer(text) for text in texts):
        trouble = "all directories have numbers with zeros or signs in front, which Petastorm loses"
    if trouble:
        raise SchemaError(
            f"Petastorm cannot read the partition column {name!r}: {trouble}. Write the dataset with the column in the "
            "files"
        )


def _reads_as_integer(text: str | None) -> bool:
    try:
        return text is not None and str(int(text)) != text
    except ValueError:
        return False


def _write(dataset: Dataset, pickled: bytes, *, dry_run: bool) -> tuple[str, ...]:
    location = dataset.location
    document = dump_document(dataset.schema.name, dataset.schema)
    footer = footer_if_there(location, COMMON_METADATA)
    old = {} if footer is None else dict(footer.metadata.metadata or {})
    counts = petastorm_counts(dataset.inventory)
    keys: dict[bytes, bytes | None] = {}
    if footer is None or not _says_the_same(old.get(PETASTORM_SCHEMA_KEY), pickled, footer.arrow_schema):
        keys[PETASTORM_SCHEMA_KEY] = pickled
    if _parsed(old.get(_COUNTS_KEY)) != counts:
        keys |= {_COUNTS_KEY: json.dumps(counts).encode(), PETASTORM_INDEX_KEY: None}
    if not keys:
        return ()
    if footer is not None:
        known = document_in(footer.metadata, f"{location.url}/{COMMON_METADATA}")
        document = document if known is None else known
    if not dry_run:
        stored = _stored(dataset) if footer is None else footer.arrow_schema
        write_common_metadata(location, stored, document, keys)
    return (COMMON_METADATA,)


def _says_the_same(there: bytes | None, ours: bytes, stored: pa.Schema) -> bool:
    """Return whether the existing pickle has the schema, and Petastorm can read it.

    Args:
        there: Existing pickle; None if the dataset has none.
        ours: Pickle that the export would write.
        stored: Arrow schema of the files.
    """
    if there is None or any(name in there for name in _OLD_NAMES):
        return False
    try:
        documents = [petastorm_document(pickled, stored, source="the pickle") for pickled in (there, ours)]
    except MetadataError:
        return False
    return documents[0] == documents[1]


def _parsed(text: bytes | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None


def _stored(dataset: Dataset) -> pa.Schema:
    return storage_schema(field for field in dataset.schema if field.name not in dataset.partition_names)
