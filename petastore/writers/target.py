"""The directory that a write aims at: what was there when it began, and what its mode makes of it."""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
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
from petastore.storage.files.lake_tables import reject_lake_tables_among
from petastore.storage.files.listing import files_below, is_hidden, list_data_files, writing_marker
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import delete_file
from petastore.storage.footers.footers import Footer, encoded_footers, inventory_of, parquet_among, read_footers
from petastore.storage.metadata.manifest import Manifest, manifest_token, read_manifest, read_schema_document
from petastore.writers.commit import check_stored
from petastore.writers.commit_lock import LOCK

__all__ = ["Mode", "Target", "schema_difference", "schema_there"]

Mode: TypeAlias = Literal["error", "overwrite", "append"]

_NUMBERED = re.compile(r"(?:^|/)_?part-([0-9]{5,9})[^/]*$")
# What else an overwrite removes: summaries of old files, and what killed writes left.
_LEFTOVER = re.compile(
    r"_metadata|_part-[0-9]{5,}-[0-9a-f]{32}\.parquet|_petastore/writing-[0-9a-f]{32}"
    r"|(?:_petastore/)?\.[^/]+\.[0-9a-f]{32}"  # what was to be renamed in place of a small file
)


class Target:
    """What was at the URL when the write began, and what the mode makes of it.

    Args:
        location: The dataset's directory; it need not exist.
        schema: What the rows to write are.
        mode: `"error"`, `"overwrite"` or `"append"`, as in `write_dataset`.
        writer: Who writes, for people.
        since: The `manifest_token` that stood there when the write began, "" for none; None is now.

    Raises:
        DatasetExistsError: Something is there, and the mode is `"error"`; or the URL is a file.
        SchemaError: The dataset to append to has a schema that these rows do not fit, or none.
    """

    schema: Unischema
    """The schema to write; if rows are appended, that of the dataset."""

    def __init__(
        self, location: Location, schema: Unischema, mode: Mode, *, writer: str, since: str | None = None
    ) -> None:
        if location.paths is not None:
            raise DatasetExistsError(f"{location.url} is a file; a dataset is a directory, so choose another URL")
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
        # A writer that is killed before its first file leaves only a marker; the next write may still begin.
        data = [path for path in self._found if not path.startswith(writing_marker(""))]
        if mode == "error" and data:
            raise DatasetExistsError(
                f"{location.url} is not empty: it holds {min(data)} ({len(data):,} files in all). Choose "
                'another URL, or mode="append" or mode="overwrite"'
            )
        reject_lake_tables_among(location, self._found, self._found)
        old = self._old() if mode == "append" else None
        self._is_new = old is None or not old.inventory.files

    @property
    def needs_a_file(self) -> bool:
        """Whether a write without rows must leave a file, so that the dataset has a schema."""
        return self._is_new

    @property
    def first_number(self) -> int:
        """Number of the first new file; files are read sorted by name, so rows that are appended come last."""
        if self._mode != "append":
            return 0
        numbers = [int(match[1]) for path in self._found if (match := _NUMBERED.search(path))]
        return max(numbers, default=-1) + 1

    def next_manifest(self, footers: list[Footer]) -> Manifest:
        """The manifest that follows the one that stands now.

        Raises:
            DatasetExistsError, DatasetChangedError: Another writer committed since the write began, and appending to
                what it wrote is not what was asked.
        """
        mine, beside = [(footer.file, footer.groups) for footer in footers], encoded_footers(footers)
        if self._mode == "append":
            old = self._old()
            if old is not None:
                mine = [*_parts(old.inventory), *mine]
                stored = {} if old.beside is None else old.beside.all_at(self._location)
                beside = {**old.footers, **stored, **beside}
            return Manifest(Inventory.concatenate(mine), self._document, self._writer, footers=beside)
        if manifest_token(self._location) != self._token:
            kind = DatasetExistsError if self._mode == "error" else DatasetChangedError
            raise kind(
                f"{self._location.url}: another writer committed a dataset there while this one was being written; "
                "its rows are kept and these are not. Write again"
            )
        return Manifest(Inventory.concatenate(mine), self._document, self._writer, footers=beside)

    def _old(self) -> Manifest | None:
        """Return the manifest of the dataset to append to, and take its schema; None if the dataset does not exist."""
        manifest = read_manifest(self._location)
        if manifest is not None:
            self._take_schema(manifest.schema_document)
            return manifest
        try:
            footers = read_footers(self._location, list_data_files(self._location))
        except DatasetNotFoundError:
            return None
        self._take_schema(read_schema_document(self._location))
        for footer in footers:
            check_stored(footer, self.schema)
        return Manifest(inventory_of(footers), self._document, self._writer, footers=encoded_footers(footers))

    def _take_schema(self, document: str | None) -> None:
        if document is None:
            raise SchemaError(
                f"{self._location.url} holds Parquet files without a petastore schema, so nothing says that these rows "
                "belong to them; give them one with petastore.writers.commit.commit_dataset, then append"
            )
        if document == self._document:
            return
        theirs = _parsed_schema(document, self._location.url)
        if theirs is None or not _fits(self.schema, theirs):
            raise SchemaError(
                f"{self._location.url} has another schema than the rows to append: "
                f"{schema_difference(document, self._document)}. Append with the same schema, or write elsewhere"
            )
        self.schema, self._document = theirs, document

    def delete_replaced(self, inventory: Inventory) -> None:
        """After an overwrite: delete what was there before; the manifest lists it no more."""
        if self._mode != "overwrite":
            return
        kept = {file.path for file in inventory.files}
        for path in self._found:
            if path in kept or not (self._is_data_file(path) or _LEFTOVER.fullmatch(path)):
                continue
            try:
                delete_file(self._location, path)
            except FileMissingError:  # somebody else deleted it
                continue
            except StorageError as problem:
                warnings.warn(f"the replaced file {path} stays: {problem}", stacklevel=3)

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
    """The schema of the dataset that stands at a location; None where there is none, or one that cannot be read.

    Raises:
        StorageError: The storage refused.
    """
    manifest = read_manifest(location) if location.paths is None else None
    document = read_schema_document(location) if manifest is None else manifest.schema_document
    return None if document is None else _parsed_schema(document, location.url)


def _parsed_schema(document: str, url: str) -> Unischema | None:
    """The schema of a document; None where it is damaged or newer than this release."""
    try:
        return Unischema(*parse_document(document, codec_from_json=codec_from_json, source=url))
    except (MetadataError, SchemaError):
        return None


def _fits(rows: Unischema, theirs: Unischema) -> bool:
    """Whether rows of a schema are rows of the other: fields in any order, and a value may be missing there only."""
    return (
        rows.name == theirs.name
        and rows.fields.keys() == theirs.fields.keys()
        and all(
            field in (theirs[field.name], dataclasses.replace(theirs[field.name], nullable=False)) for field in rows
        )
    )


def schema_difference(theirs: str, ours: str) -> str:
    """What differs between two schema documents, for people.

    Example:
        >>> schema_difference('{"name": "a", "fields": []}', '{"name": "b", "fields": []}')
        "it is called 'a', these 'b'"
    """
    try:
        old, new = json.loads(theirs), json.loads(ours)
        before = {field["name"]: field for field in old["fields"]}
        after = {field["name"]: field for field in new["fields"]}
        found = [] if old["name"] == new["name"] else [f"it is called {old['name']!r}, these {new['name']!r}"]
    except (ValueError, KeyError, TypeError) as problem:
        return f"its schema document is damaged ({problem})"
    for name in {**before, **after}:
        if name not in after or name not in before:
            found.append(f"{'these rows lack' if name in before else 'it lacks'} the field {name!r}")
        elif before[name] != after[name]:
            changed = [key for key in {**before[name], **after[name]} if before[name].get(key) != after[name].get(key)]
            found += [
                f"{key} of {name!r} is {before[name].get(key)!r}, not {after[name].get(key)!r}" for key in changed
            ]
    return "; ".join(found) or "the fields stand in another order"
