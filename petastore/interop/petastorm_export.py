"""`export`: a dataset of ours gets Petastorm's metadata beside its own, so that the real Petastorm opens it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from petastore.dataset import Dataset, open_dataset
from petastore.errors import InvalidArgumentError, MetadataError, SchemaError
from petastore.interop.petastorm_pickle import petastorm_pickle
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.schema.document import dump_document
from petastore.storage.files.listing import files_beside
from petastore.storage.footers.footers import document_in, footer_if_there, parquet_among
from petastore.storage.metadata.manifest import COMMON_METADATA, write_common_metadata
from petastore.storage.petastorm.petastorm_index import PETASTORM_INDEX_KEY
from petastore.storage.petastorm.petastorm_schema import PETASTORM_SCHEMA_KEY, petastorm_document
from petastore.writers.exclusive import committing

__all__ = ["Export", "export"]

_COUNTS_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"
_SUMMARY = "_metadata"
# What pickles of old releases name and Petastorm 0.13 does not find: PySpark's way with named tuples, and packages that
# Petastorm came from.
_OLD_NAMES = (b"pyspark.serializers", b"dataset_toolkit")


@dataclasses.dataclass(frozen=True, slots=True)
class Export:
    """What `export` did, or would do."""

    url: str
    """The dataset."""

    schema: Unischema = dataclasses.field(repr=False)
    """The schema that Petastorm reads it with."""

    inventory: Inventory
    """Its files and row groups."""

    written: tuple[str, ...]
    """Files that were written, relative to the dataset; empty where all was there already."""

    dry_run: bool
    """True: nothing was written."""


def export(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    dry_run: bool = False,
) -> Export:
    """Write beside a dataset of ours what Petastorm looks for: the pickled schema, and the row groups of each file.

    For teams whose writers move before their readers. The pickle is put together opcode by opcode
    (`petastore.interop.petastorm_pickle`). One file is written, aside and renamed: `_common_metadata`. Data files,
    manifest and our own schema stay what they are. Export again after every write: Petastorm stops at a file whose row
    groups are not told, and what it does not find it cannot read. An index that Petastorm built for other files is
    taken away, since Petastorm would believe it.

    Args:
        url: The dataset's directory.
        storage_options: Keyword arguments of the fsspec filesystem of the URL.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        dry_run: Write nothing; say what would be written.

    Returns:
        What was written, or would be.

    Raises:
        InvalidArgumentError: It is a file or a list of them, or there are data files that are not part of the dataset.
        SchemaError: Petastorm cannot read such rows (a codec or dtype that it lacks, a name that is none in a named
            tuple, a partition that it misreads), or the dataset declares no schema.
        MetadataError: There is a `_metadata` of Spark's, which Petastorm would believe instead.
        DatasetNotFoundError: There is no dataset there.
        StorageError: The storage refused; the dataset is what it was.

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
            f"{location.url} names files; Petastorm's metadata lies in a directory, so name that"
        )
    _check(dataset)
    pickled = petastorm_pickle(dataset.schema)
    if dry_run:
        return Export(location.url, dataset.schema, dataset.inventory, _write(dataset, pickled, dry_run=True), True)
    with committing(location):
        return Export(location.url, dataset.schema, dataset.inventory, _write(dataset, pickled, dry_run=False), False)


def _check(dataset: Dataset) -> None:
    """Refuse what Petastorm would read otherwise than we do."""
    location, inventory = dataset.location, dataset.inventory
    if not dataset.has_schema_document:
        raise SchemaError(
            f"{location.url} declares no schema; give it one with petastore.writers.generate.generate_metadata, or let "
            "Petastorm's make_batch_reader read it as it is"
        )
    strangers = parquet_among(location, files_beside(location, {file.path for file in inventory.files}))
    if strangers:
        raise InvalidArgumentError(
            f"{location.url} holds data files that are not part of the dataset, and Petastorm would stop at them: "
            f"{', '.join(strangers[:3])}; delete them, or take them in with petastore generate-metadata"
        )
    summary = footer_if_there(location, _SUMMARY)
    if summary is not None and summary.metadata.num_row_groups:
        raise MetadataError(
            f"{location.url}/{_SUMMARY} has row groups, and Petastorm would believe it instead; delete it, and export "
            "again"
        )
    for name in dataset.partition_names:
        _check_partition(dataset, name)


def _check_partition(dataset: Dataset, name: str) -> None:
    texts = {dict(file.partitions)[name] for file in dataset.inventory.files}
    raw = {part for file in dataset.inventory.files for part in file.path.split("/")[:-1]}
    trouble = ""
    if None in texts:
        trouble = "it is null in a directory, which Petastorm reads as text"
    elif any("%" in part for part in raw if part.partition("=")[0] == name):
        trouble = "a directory has an escape (%), which Petastorm reads as it stands"
    elif dataset.schema[name].dtype_name == "str" and all(_reads_as_integer(text) for text in texts):
        trouble = "all directories have numbers with zeros or signs in front, which Petastorm loses"
    if trouble:
        raise SchemaError(
            f"Petastorm cannot read the partition column {name!r}: {trouble}; write the dataset with the column in the "
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
    counts = _counts(dataset.inventory)
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
    """Whether the pickle that is there means what ours means, whoever wrote it, and Petastorm still reads it."""
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


def _counts(inventory: Inventory) -> dict[str, int]:
    counts = np.bincount(inventory.file, minlength=len(inventory.files)).tolist()
    return {file.path: count for file, count in zip(inventory.files, counts, strict=True)}


def _stored(dataset: Dataset) -> pa.Schema:
    return storage_schema(field for field in dataset.schema if field.name not in dataset.partition_names)
