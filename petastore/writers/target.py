"""Target directory of a write: its existing data, and what `mode` does with it.

A write replaces the data, appends to it, or is rejected.
"""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from petastore.codecs.registry import codec_from_json
from petastore.errors import (
    DatasetChangedError,
    DatasetExistsError,
    DatasetNotFoundError,
    FileMissingError,
    MetadataError,
    SchemaError,
    StorageError,
)
from petastore.inventory import DataFile, Inventory
from petastore.schema import Unischema
from petastore.schema.document import dump_document, parse_document
from petastore.schema.file_schemas import FileSchemas
from petastore.storage.files.lake_tables import reject_lake_tables_among
from petastore.storage.files.listing import files_below, is_hidden, list_data_files, writing_marker
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import delete_file
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footers import (
    differing_schemas,
    encoded_footers,
    inventory_of,
    parquet_among,
    read_footer,
    read_footers,
)
from petastore.storage.metadata.manifest import Manifest, manifest_token, read_manifest, read_schema_document
from petastore.writers.commit import LOCK, check_stored

__all__ = ["Mode", "Target", "schema_difference", "schema_there"]

Mode: TypeAlias = Literal["error", "overwrite", "append"]

_NUMBERED = re.compile(r"(?:^|/)_?part-([0-9]{5,9})[^/]*$")
# Other files that an overwrite deletes: summaries of the old files, and leftovers of killed writes.
_LEFTOVER = re.compile(
    r"_metadata|_part-[0-9]{5,}-[0-9a-f]{32}\.parquet|_petastore/writing-[0-9a-f]{32}"
    r"|(?:_petastore/)?\.[^/]+\.[0-9a-f]{32}"  # temporary names of small files
)


class Target:
    """Destination of a write: the files that exist at its start, and the mode.

    The mode decides whether these files are kept or replaced.

    Args:
        location: The dataset's directory; it need not exist.
        schema: Schema of the rows to write.
        mode: `"error"`, `"overwrite"` or `"append"`, as in `write_dataset`.
        writer: Name of the writing program, for display.
        since: `manifest_token` at the start of the write, "" without a manifest; None reads the current token.

    Raises:
        DatasetExistsError: A dataset exists, and the mode is `"error"`; or the URL is a file.
        SchemaError: The dataset to append to has no schema, a schema that these rows do not fit, or hive partitions.
    """

    schema: Unischema
    """The schema to write; if rows are appended, the schema of the existing dataset."""

    needs_a_file: bool
    """Whether a write without rows must create a file, so that the dataset has a schema."""

    def __init__(
        self, location: Location, schema: Unischema, mode: Mode, *, writer: str, since: str | None = None
    ) -> None:
        if location.paths is not None:
            raise DatasetExistsError(
                f"the dataset URL must be a directory, got the file {location.url}. Choose another URL"
            )
        self._location = location
        self.schema = schema
        self._mode = mode
        self._writer = writer
        self._document = dump_document(schema.name, schema)
        self._token = manifest_token(location) if since is None else since or None
        try:
            self._found = [path for path in files_below(location) if path != LOCK]
        except DatasetNotFoundError:
            self._found = []
        # A writer killed before its first file leaves only a marker; the next write may still begin.
        data = [path for path in self._found if not path.startswith(writing_marker(""))]
        if mode == "error" and data:
            raise DatasetExistsError(
                f"{location.url} must be empty, got {min(data)} ({len(data):,} files in all). Choose another URL, "
                'or mode="append" or mode="overwrite"'
            )
        reject_lake_tables_among(location, self._found, self._found)
        old = self._old() if mode == "append" else None
        self.needs_a_file = old is None or not old.inventory.files

    @property
    def first_number(self) -> int:
        """Number in the name of the first new file.

        Files are read sorted by name, so rows that are appended come last.
        """
        if self._mode != "append":
            return 0
        numbers = [int(match[1]) for path in self._found if (match := _NUMBERED.search(path))]
        return max(numbers, default=-1) + 1

    def next_manifest(self, footers: list[Footer]) -> Manifest:
        """Return the manifest that replaces the current one.

        Args:
            footers: Footers of the files that this write added.

        Raises:
            DatasetExistsError, DatasetChangedError: Another writer has committed since the write began, and this write
                does not append.
        """
        mine, beside = [(footer.file, footer.groups) for footer in footers], encoded_footers(footers)
        if self._mode == "append":
            old = self._old()
            if old is not None:
                mine = [*_parts(old.inventory), *mine]
                stored = {} if old.beside is None else old.beside.all_at(self._location)
                beside = {**old.footers, **stored, **beside}
            inventory = Inventory.concatenate(mine)
            schemas = None if old is None else self._schemas(old, inventory, footers)
            # Without new files, a new field would be in no file, so the old schema is kept.
            document = self._document if footers or old is None else old.schema_document
            return Manifest(inventory, document, self._writer, schemas, footers=beside)
        if manifest_token(self._location) != self._token:
            kind = DatasetExistsError if self._mode == "error" else DatasetChangedError
            raise kind(
                f"{self._location.url}: another writer committed a dataset during this write; its rows are kept, and "
                "this write is discarded. Write again"
            )
        return Manifest(Inventory.concatenate(mine), self._document, self._writer, footers=beside)

    def _old(self) -> Manifest | None:
        """Return the manifest of the dataset to append to, and adopt its schema.

        Return None if the dataset does not exist.
        """
        manifest = read_manifest(self._location)
        if manifest is not None:
            self._take_schema(manifest.schema_document)
            self._refuse_partitions(manifest.inventory, manifest.schemas)
            return manifest
        try:
            footers = read_footers(self._location, list_data_files(self._location))
        except DatasetNotFoundError:
            return None
        self._take_schema(read_schema_document(self._location))
        for footer in footers:
            check_stored(footer, self.schema)
        inventory, schemas = inventory_of(footers), differing_schemas(footers)
        self._refuse_partitions(inventory, schemas)
        return Manifest(inventory, self._document, self._writer, schemas, footers=encoded_footers(footers))

    def _refuse_partitions(self, inventory: Inventory, schemas: FileSchemas | None) -> None:
        """Raise an error if a partition key is only in directory names, because new files have no such directory."""
        keys = dict.fromkeys(key for file in inventory.files for key, _ in file.partitions)
        if not keys:
            return
        if schemas is None:  # all files have the columns of the first one
            stored = [read_footer(self._location, inventory.files[0].path).arrow_schema]
        else:
            stored = list(schemas.schemas)
        lost = [key for key in keys if any(key not in schema.names for schema in stored)]
        if lost:
            raise SchemaError(
                f"{self._location.url} must store the values of {', '.join(map(repr, lost))} in its files to append "
                "rows, got hive partitions, whose values are only in directory names. Copy the dataset with "
                "`petastore copy`, which writes them as columns, and append to the copy; or add files with the "
                "program that wrote the partitions, and run `petastore generate-metadata`"
            )

    def _schemas(self, old: Manifest, inventory: Inventory, footers: Sequence[Footer]) -> FileSchemas | None:
        """Return the Arrow schema of each old and new file.

        Return None if all are equal, or if one is unknown.
        """
        of_files = {footer.file.path: footer.arrow_schema for footer in footers}
        files = old.inventory.files
        if old.schemas is not None:
            numbers = zip(old.schemas.paths, old.schemas.of_files, strict=True)
            of_files |= {path: old.schemas.schemas[number] for path, number in numbers}
        elif files and footers:
            first = read_footer(self._location, files[0].path).arrow_schema
            of_files |= {file.path: first for file in files}
        if not of_files.keys() >= {file.path for file in inventory.files}:
            return None
        schemas = FileSchemas.of((file.path, of_files[file.path]) for file in inventory.files)
        return None if schemas.are_equal else schemas

    def _take_schema(self, document: str | None) -> None:
        if document is None:
            raise SchemaError(
                f"{self._location.url} must have a petastore schema to append rows, got Parquet files without one. Add "
                "the schema that readers infer with petastore.writers.generate.generate_metadata(url, "
                "petastore.open_dataset(url).schema), or copy the files with `petastore copy`; then append"
            )
        if document == self._document:
            return
        theirs = _parsed_schema(document, self._location.url)
        if theirs is None or not _fits(self.schema, theirs):
            ours = self._document if theirs is None else dump_document(theirs.name, self.schema)
            raise SchemaError(
                f"rows to append must have the schema of {self._location.url}, got a difference: "
                f"{schema_difference(document, ours)}. Append with the same schema, or write to another URL"
            )
        added = [field for field in self.schema if field.name not in theirs]
        self.schema = Unischema(theirs.name, [*theirs, *added])
        self._document = dump_document(theirs.name, self.schema) if added else document

    def delete_replaced(self, inventory: Inventory) -> None:
        """Delete the old files after an overwrite; the manifest no longer lists them."""
        if self._mode != "overwrite":
            return
        kept = {file.path for file in inventory.files}
        for path in self._found:
            if path in kept or not (self._is_data_file(path) or _LEFTOVER.fullmatch(path)):
                continue
            try:
                delete_file(self._location, path)
            except FileMissingError:  # deleted by another process
                continue
            except StorageError as problem:
                warnings.warn(f"the replaced file {path} cannot be deleted: {problem}. Delete it by hand", stacklevel=3)

    def _is_data_file(self, path: str) -> bool:
        return not is_hidden(path) and bool(parquet_among(self._location, [path]))


def _parts(inventory: Inventory) -> list[tuple[DataFile, dict[str, Any]]]:
    borders = np.searchsorted(inventory.file, np.arange(len(inventory.files) + 1))
    return [
        (
            file,
            {name: getattr(inventory, name)[start:stop] for name in ("rows", "stored_bytes", "decoded_bytes")},
        )
        for file, start, stop in zip(inventory.files, borders, borders[1:], strict=False)
    ]


def schema_there(location: Location) -> Unischema | None:
    """Return the schema of the dataset at a location.

    Return None if the dataset does not exist, or if its schema is missing or unreadable.

    Raises:
        StorageError: A storage operation failed.
    """
    manifest = read_manifest(location) if location.paths is None else None
    document = read_schema_document(location) if manifest is None else manifest.schema_document
    return None if document is None else _parsed_schema(document, location.url)


def _parsed_schema(document: str, url: str) -> Unischema | None:
    """Return the schema of a schema document.

    Return None if the document is damaged or newer than this release.
    """
    try:
        return Unischema(*parse_document(document, codec_from_json=codec_from_json, source=url))
    except (MetadataError, SchemaError):
        return None


def _fits(rows: Unischema, theirs: Unischema) -> bool:
    """Return whether rows of a schema can be appended to a dataset.

    The dataset's schema is `theirs`. The names of the schemas may differ, fields may have any order, and nulls are
    allowed only where the dataset allows them. Each schema may have nullable fields that the other does not have.
    """
    ours_alone = [field for field in rows if field.name not in theirs]
    theirs_alone = [field for field in theirs if field.name not in rows]
    return all(field.nullable for field in [*ours_alone, *theirs_alone]) and all(
        field in (theirs[field.name], dataclasses.replace(theirs[field.name], nullable=False))
        for field in rows
        if field.name in theirs
    )


def schema_difference(theirs: str, ours: str) -> str:
    """Describe the differences between two schema documents, for error messages.

    Example:
        >>> schema_difference('{"name": "a", "fields": []}', '{"name": "b", "fields": []}')
        "the dataset's schema is named 'a', and the rows' schema 'b'"
    """
    try:
        old, new = json.loads(theirs), json.loads(ours)
        before = {field["name"]: field for field in old["fields"]}
        after = {field["name"]: field for field in new["fields"]}
        names = f"the dataset's schema is named {old['name']!r}, and the rows' schema {new['name']!r}"
        found = [] if old["name"] == new["name"] else [names]
    except (ValueError, KeyError, TypeError) as problem:
        return f"the schema document of the dataset is damaged ({problem})"
    for name in {**before, **after}:
        if name not in after or name not in before:
            found.append(f"{'the rows lack' if name in before else 'the dataset lacks'} the field {name!r}")
        elif before[name] != after[name]:
            changed = [key for key in {**before[name], **after[name]} if before[name].get(key) != after[name].get(key)]
            found += [
                f"{key} of {name!r} is {before[name].get(key)!r} in the dataset and {after[name].get(key)!r} in the "
                "rows"
                for key in changed
            ]
    return "; ".join(found) or "the fields have another order"
