"""How a dataset is opened: by its manifest, or by the footers of its files."""

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
from petastore.inventory import Inventory
from petastore.schema.arrow import field_from_arrow
from petastore.schema.document import parse_document
from petastore.schema.field import UnischemaField
from petastore.schema.stored import check_stored_schema
from petastore.schema.unischema import Unischema
from petastore.storage.files.listing import list_etags
from petastore.storage.files.location import Location, open_location
from petastore.storage.files.partitions import parse_partitions, partition_fields
from petastore.storage.footers.agreed_schema import agreed_arrow_schema
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import Footer, inventory_of, read_footers
from petastore.storage.metadata.manifest import (
    Manifest,
    dubious_files,
    looked_around,
    read_manifest,
    read_schema_document,
)
from petastore.storage.ranges.kept_files import KeptFiles
from petastore.storage.requests.client import FileVersion
from petastore.storage.requests.under_way import DEFAULT_STORAGE_TIMEOUT_S, checked_timeout

if TYPE_CHECKING:
    from petastore.cache import DiskCache
    from petastore.storage.footers.kept_tails import KeptTails

__all__ = ["dataset_at", "located", "open_dataset"]


def open_dataset(
    url_or_urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S,
    storage_hedging: bool = False,
) -> Dataset:
    """Opens a dataset: petastore's own, one that Petastorm wrote, or plain Parquet.

    The schema that Petastorm pickled is read as data: nothing that it names is imported or run.

    Args:
        url_or_urls: A directory, one Parquet file, a pattern such as `day=*/part-*.parquet`, or a list of these with
            one scheme and host. Plain local paths work. Files and patterns that a list names several times are read as
            often in each epoch.
        storage_options: Passed to the fsspec filesystem of the URL's scheme.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        storage_timeout: Seconds that storage may take to answer each request, now and while the dataset is read; None
            waits without end.
        storage_hedging: Whether a request for bytes of a file is made a second time when its answer takes longer than
            95 % of those before it; the first answer counts. At most 5 % of the requests are.

    Raises:
        DatasetNotFoundError: There is no dataset there.
        StorageTimeoutError: Storage did not answer in time.
        MetadataError: Schema document, inventory or a footer is damaged or newer than this release; or a pickled
            schema names what Petastorm's own schemas do not, such as a codec of somebody's own.
        SchemaError: Files disagree with each other, or with the schema.
        DatasetChangedError: Files are not those that the inventory describes.
        InvalidArgumentError: The URL is none.

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
            storage_hedging=storage_hedging,
        )
    )


def located(
    url_or_urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    storage_options: Mapping[str, Any] | None,
    filesystem: Any,
    storage_timeout: float | None,
    storage_hedging: bool,
) -> Location:
    """Where a dataset lies that is to be opened; all as for `open_dataset`.

    Raises:
        InvalidArgumentError: The URL is none, or something else that was asked for cannot be.
    """
    return open_location(
        url_or_urls,
        storage_options=storage_options,
        filesystem=filesystem,
        patterns=True,
        timeout_s=checked_timeout(storage_timeout),
        hedged=bool(storage_hedging),
    )


def dataset_at(location: Location, cache: DiskCache | None = None) -> Dataset:
    """The dataset that lies somewhere.

    Args:
        location: Where.
        cache: Keeps its column chunks, as `Dataset.with_cache` says, and footers, so that whoever opens it later asks
            the storage for none of them; None keeps nothing.

    Raises:
        StorageError: As `open_dataset`.
        SchemaError: As `open_dataset`.
    """
    kept = KeptFiles(cache)
    manifest = read_manifest(location) if location.paths is None else None
    return _from_footers(location, kept) if manifest is None else _from_manifest(location, manifest, kept)


def _from_manifest(location: Location, manifest: Manifest, kept: KeptFiles) -> Dataset:
    strangers, settled = looked_around(location, manifest)
    kept.versions.update(settled)
    if strangers:
        warnings.warn(
            f"{location.url} holds {len(strangers):,} data file(s) that its inventory does not list and that are not "
            f"read: {', '.join(strangers[:3])}{' …' if len(strangers) > 3 else ''}. If an interrupted "
            "write left them, delete them; if they belong to the dataset, `petastore generate-metadata` takes them in, "
            "or `petastore migrate` where Petastorm wrote them",
            UserWarning,
            stacklevel=3,
        )
    partitions = partition_fields(manifest.inventory.files)
    unreadable: dict[str, str] = {}
    footers = FooterCache(inventory=manifest.inventory, beside=manifest.beside)
    stored = pa.schema([])
    if manifest.inventory.files and (partitions or manifest.schema_document is None):
        first = footers.get(location, manifest.inventory.files[0])
        stored = first.arrow_schema
        unreadable.update(first.unreadable if manifest.schema_document is None else {})
    if manifest.schema_document is None:
        schema = _inferred(stored, partitions, unreadable)
    else:
        schema = _with_partitions(_declared(manifest.schema_document, location.url, unreadable), partitions)
    dataset = Dataset(
        location=location,
        schema=schema,
        inventory=manifest.inventory,
        partition_names=tuple(field.name for field in partitions if field.name not in stored.names),
        writer=manifest.writer,
        has_schema_document=manifest.schema_document is not None,
        unreadable=unreadable,
        stored_keys=_stored_keys(schema, stored, partitions),
        footers=footers,
        kept=kept,
    )
    dataset.footers.check(location, dubious_files(manifest))
    return dataset


def _stored_keys(schema: Unischema, stored: pa.Schema, partitions: Sequence[UnischemaField]) -> tuple[str, ...]:
    return tuple(field.name for field in partitions if field.name in stored.names and field.name in schema)


def _kept_tails(location: Location, listed: Mapping[str, tuple[int | None, str]], footers: DiskCache) -> KeptTails:
    from petastore.storage.footers.kept_tails import KeptTails  # with what keeps ends of far files

    told = {path: FileVersion(size, etag) for path, (size, etag) in listed.items() if size is not None and etag}
    return KeptTails(footers, location, told)


def _from_footers(location: Location, kept: KeptFiles) -> Dataset:
    listed = list_etags(location)
    footers = read_footers(
        location, listed, None if kept.footers is None else _kept_tails(location, listed, kept.footers)
    )
    stored = agreed_arrow_schema(footers)
    partitions = partition_fields([footer.file for footer in footers])
    names = tuple(field.name for field in partitions if field.name not in stored.names)
    document, above = _find_document(location, footers)
    unreadable = {name: why for footer in reversed(footers) for name, why in footer.unreadable.items()}
    if document is None:
        schema = _inferred(stored, partitions, unreadable)
    else:
        odd: dict[str, str] = {}
        declared = _without(_declared(document, location.url, odd), set(above).difference(stored.names, names))
        unreadable = {name: why for name, why in unreadable.items() if name in declared}
        schema = _with_partitions(_without(declared, unreadable), partitions)
        unreadable |= odd
        check_stored_schema(schema, stored, source=footers[0].file.path, partition_names=names)
    dataset = Dataset(
        location=location,
        schema=schema,
        inventory=_named_times(inventory_of(footers), location),
        partition_names=names,
        writer=footers[0].written_by,
        has_schema_document=document is not None,
        unreadable=unreadable,
        stored_keys=_stored_keys(schema, stored, partitions),
        kept=kept,
    )
    dataset.footers.know(location, footers)
    return dataset


def _named_times(inventory: Inventory, location: Location) -> Inventory:
    """The row groups of each file as often as it was named."""
    return (
        inventory.repeated([location.times_of(file.path) for file in inventory.files]) if location.times else inventory
    )


def _find_document(location: Location, footers: Sequence[Footer]) -> tuple[str | None, list[str]]:
    """The schema document of the dataset, or of the dataset that these files or this partition are a part of.

    Returns:
        The document, and the partition columns that come from directories above the root.
    """
    found = read_schema_document(location) or footers[0].schema_document
    above: list[str] = []
    while found is None and "=" in posixpath.basename(location.root):
        above += [key for key, _ in parse_partitions(f"{posixpath.basename(location.root)}/")]
        location = dataclasses.replace(location, root=posixpath.dirname(location.root), paths=None)
        found = read_schema_document(location)
    return found, above


def _without(schema: Unischema, names: Collection[str]) -> Unischema:
    """The schema without some columns: their values lie in directories above what is read, or cannot be read."""
    return Unischema(schema.name, [field for field in schema if field.name not in names]) if names else schema


def _declared(document: str, source: str, odd: dict[str, str]) -> Unischema:
    """The schema of a document; fields that cannot be are noted in `odd`."""
    return Unischema(*parse_document(document, codec_from_json=codec_from_json, source=source, odd=odd))


def _with_partitions(declared: Unischema, partitions: Sequence[UnischemaField]) -> Unischema:
    """The declared schema, and after it the partition columns that it does not declare."""
    missing = [field for field in partitions if field.name not in declared]
    return Unischema(declared.name, [*declared, *missing]) if missing else declared


def _inferred(stored: pa.Schema, partitions: Sequence[UnischemaField], unreadable: dict[str, str]) -> Unischema:
    """The schema of plain Parquet; columns without values of ours are noted in `unreadable`."""
    inside = {}
    for field in stored:
        try:
            inside[field.name] = _writable(field_from_arrow(field), field.type)
        except SchemaError as problem:
            unreadable[field.name] = str(problem)
    # Of a partition key that the files store, too, theirs is the type; keys come last.
    keys = [inside.pop(field.name, field) for field in partitions if field.name not in unreadable]
    return Unischema("inferred_schema", [*inside.values(), *keys])


def _writable(field: UnischemaField, stored: pa.DataType) -> UnischemaField:
    """The field with a codec that writes its values again, where they are objects."""
    if field.numpy_dtype is not np.object_:
        return field
    from petastore.codecs.arrow_codec import with_arrow_type  # with what few files need

    return with_arrow_type(field, stored)
