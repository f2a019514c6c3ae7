"""The last step of every write: check the data files against the schema, then make them the dataset.

`write_dataset` and Spark's `materialize_dataset` end here alike. Until the manifest is renamed into place nothing has
changed for readers; after it all has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from petastore.errors import DatasetChangedError, FileMissingError, SchemaError
from petastore.inventory import Inventory
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema, storage_type
from petastore.schema.document import dump_document
from petastore.storage.files.listing import list_data_files, unfinished_writes, writing_marker
from petastore.storage.files.location import Location
from petastore.storage.files.partitions import partition_fields, partition_value
from petastore.storage.files.whole_files import delete_file
from petastore.storage.footers.footers import Footer, encoded_footers, inventory_of, read_footers
from petastore.storage.metadata.manifest import (
    Manifest,
    manifest_token,
    read_manifest,
    write_common_metadata,
    write_manifest,
)
from petastore.writers.commit_lock import committing

__all__ = ["check_stored", "commit_dataset", "manifest_of", "publish"]

_ATTEMPTS = 5


def commit_dataset(
    location: Location, schema: Unischema, *, files: Sequence[str] | None = None, writer: str
) -> Inventory:
    """Make data files that are written already the dataset with that schema.

    Reads the footers, checks them against the schema, and writes `_common_metadata` and the manifest, the manifest
    last. Afterwards the dataset is exactly these files. When another writer commits meanwhile, it starts again.

    Args:
        location: The dataset's directory.
        schema: What its rows are. Hive partition columns may be in it though they are not in the files.
        files: The data files, relative to the root; None takes all that are found.
        writer: Who wrote them, for people.

    Returns:
        The inventory as it was written.

    Raises:
        DatasetNotFoundError: There are no data files.
        SchemaError: A file lacks a column, has one that the schema lacks, stores one as another type, or stores a
            field that is not nullable as OPTIONAL.
        MetadataError: A file is no Parquet or is damaged.
        StorageError: The storage refused; the old dataset still stands.
        DatasetChangedError: Others committed again and again meanwhile.

    Example:
        >>> import pyarrow.parquet as pq, tempfile
        >>> from petastore.storage.files.location import open_location
        >>> schema = Unischema("point", [UnischemaField("x", "float32")])
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     table = pa.table({"x": pa.array([1, 2, 3], pa.float32())}, storage_schema(schema))
        ...     pq.write_table(table, f"{directory}/part-0.parquet")
        ...     commit_dataset(open_location(directory), schema, writer="an example")
        Inventory(1 file, 1 row group, 3 rows)
    """

    def change() -> Manifest:
        _forget_ended_writes(location)
        return manifest_of(location, list_data_files(location) if files is None else files, schema, writer=writer)

    return publish(location, schema, change)


def manifest_of(location: Location, files: Sequence[str], schema: Unischema, *, writer: str) -> Manifest:
    """The manifest that makes data files a dataset, once each was checked against the schema.

    Raises:
        SchemaError, MetadataError, StorageError: As `commit_dataset`.
    """
    footers = read_footers(location, files)
    for footer in footers:
        check_stored(footer, schema)
    partition_fields([footer.file for footer in footers])  # refuses files under different keys
    document = dump_document(schema.name, schema)
    return Manifest(inventory_of(footers), document, writer, footers=encoded_footers(footers))


def _forget_ended_writes(location: Location) -> None:
    """Delete the markers of writes whose files the manifest lists: they were killed just after they succeeded."""
    tokens = unfinished_writes(location)
    manifest = read_manifest(location) if tokens else None
    for file in manifest.inventory.files if manifest is not None else ():
        for token in tokens:
            if token in file.path:
                with contextlib.suppress(FileMissingError):  # another writer forgot it just now
                    delete_file(location, writing_marker(token))


def publish(location: Location, schema: Unischema, change: Callable[[], Manifest]) -> Inventory:
    """Replace the manifest by the next one, and let no other writer's commit be lost.

    Args:
        location: The dataset's directory.
        schema: What its rows are, for `_common_metadata`.
        change: Reads what there is and makes the next manifest. Called again when another writer committed meanwhile,
            which can happen only where there is no lock between processes (see `petastore.writers.commit_lock`).

    Raises:
        DatasetChangedError: Others committed each time.
    """
    with committing(location):
        for _ in range(_ATTEMPTS):
            before = manifest_token(location)
            manifest = change()
            if manifest_token(location) == before:
                inside = {key for file in manifest.inventory.files[:1] for key, _ in file.partitions}
                stored = storage_schema(field for field in schema if field.name not in inside)
                write_common_metadata(location, stored, dump_document(schema.name, schema))
                write_manifest(location, manifest)
                return manifest.inventory
    raise DatasetChangedError(
        f"{location.url}: other writers committed {_ATTEMPTS} times while this one tried to; "
        "let them end, and commit again"
    )


def check_stored(footer: Footer, schema: Unischema) -> None:
    """Refuse a file whose columns are not those of the schema.

    Time units, zones, large and view layouts, kinds of list and INT96 time stamps are not compared: they are read as
    the same values.

    Raises:
        SchemaError: Naming the file, the column and what to do.
    """
    path = footer.file.path
    partitions = dict(footer.file.partitions)
    stored = {field.name: field for field in footer.arrow_schema}
    extra = [name for name in stored if name not in schema]
    if extra:
        raise SchemaError(
            f"{path} has columns that schema {schema.name!r} lacks: {', '.join(map(repr, extra))}; add them to the "
            "schema, or write the file without them"
        )
    for field in schema:
        if field.name in stored:
            _check_column(field, stored[field.name], path)
        else:
            _check_partition(field, partitions, stored, path)


def _check_partition(
    field: UnischemaField, partitions: Mapping[str, str | None], stored: Mapping[str, pa.Field], path: str
) -> None:
    if field.name not in partitions:
        raise SchemaError(
            f"{path} has no column {field.name!r}, which the schema declares; it has {', '.join(map(repr, stored))}. "
            "Write the column, or take it out of the schema"
        )
    if partition_value(partitions[field.name], field) is None and not field.nullable:
        raise SchemaError(
            f"{path} lies under a null partition of {field.name!r}, which the schema declares as not nullable; "
            "declare it nullable=True"
        )


def _check_column(field: UnischemaField, found: pa.Field, path: str) -> None:
    expected = storage_type(field)
    if _comparable(found.type) != _comparable(expected):
        raise SchemaError(
            f"{path} stores column {field.name!r} as {found.type}, but {field!r} is stored as {expected}; "
            "encode the values with the schema before writing them, or correct the schema"
        )
    if found.nullable and not field.nullable:
        raise SchemaError(
            f"{path} stores column {field.name!r} as OPTIONAL, but the schema says nullable=False; write it with a "
            "schema in which the column is not nullable (Unischema.as_spark_schema gives one), or declare nullable=True"
        )


def _comparable(arrow_type: pa.DataType) -> pa.DataType:
    """One type for all that are read as the same values."""
    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _comparable(arrow_type.storage_type)
    if types.is_dictionary(arrow_type):
        return _comparable(arrow_type.value_type)
    if types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return pa.string()
    if types.is_large_binary(arrow_type) or types.is_binary_view(arrow_type) or types.is_fixed_size_binary(arrow_type):
        return pa.binary()
    if types.is_timestamp(arrow_type):
        return pa.timestamp("us")
    if types.is_decimal(arrow_type):
        return pa.decimal256(arrow_type.precision, arrow_type.scale)
    if types.is_map(arrow_type):
        return pa.map_(_comparable(arrow_type.key_type), _comparable(arrow_type.item_type))
    if hasattr(arrow_type, "value_type"):
        return pa.list_(_comparable(arrow_type.value_type))
    if types.is_struct(arrow_type):
        return pa.struct([(member.name, _comparable(member.type)) for member in arrow_type])
    return arrow_type
