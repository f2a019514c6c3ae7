"""Check the metadata of a dataset: manifest, files, footers, schema and indexes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from petastore.errors import DatasetChangedError, FileMissingError, MetadataError
from petastore.inventory import DataFile, Inventory
from petastore.storage.files.listing import list_data_files
from petastore.storage.files.location import Location
from petastore.storage.files.whole_files import NewerFormatError
from petastore.storage.footers.footer import Footer, is_unchanged
from petastore.storage.footers.footers import FOOTERS, footer_if_there, read_footer
from petastore.storage.metadata.manifest import (
    COMMON_METADATA,
    MANIFEST,
    Manifest,
    looked_around,
    read_manifest,
    read_schema_document,
)
from petastore.storage.metadata.row_group_index import find_indexes, index_names
from petastore.storage.requests.retries import at_once
from petastore.verification.report import Problem

__all__ = ["CheckedFiles", "check_files", "check_indexes", "check_schema_documents"]


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedFiles:
    """Files of a dataset, compared with its manifest."""

    manifest: Manifest | None
    """Manifest of the dataset; None if it is missing or unreadable."""

    footers: list[Footer]
    """Footers of the readable files, sorted by path."""

    problems: list[Problem]


def check_files(location: Location) -> CheckedFiles:
    """Read the manifest and the footers of all files, and compare them.

    Raises:
        DatasetNotFoundError: There are no data files.
        MetadataError: The manifest is newer than this release.
        StorageError: A storage operation failed, apart from damaged and missing files.
    """
    problems: list[Problem] = []
    manifest = None
    try:
        manifest = read_manifest(location)
    except NewerFormatError:
        raise
    except MetadataError as problem:
        problems.append(Problem("manifest", str(problem), MANIFEST))
    if manifest is None:
        paths, listed = list_data_files(location), dict[str, DataFile]()
    else:
        listed = {file.path: file for file in manifest.inventory.files}
        paths = list(listed)
        message = "the manifest does not list this file; readers do not read it"
        strangers = looked_around(location, manifest).strangers
        problems.extend(Problem("unlisted_file", message, path) for path in strangers)
    footers = []
    for found in at_once(lambda path: _footer(location, path), paths):
        if isinstance(found, Problem):
            problems.append(found)
            continue
        footers.append(found)
        if manifest is not None:
            problems.extend(_against_manifest(found, listed[found.file.path], manifest.inventory))
    if manifest is not None:
        problems.extend(_packed_footers(location, manifest))
    return CheckedFiles(manifest, footers, problems)


def _footer(location: Location, path: str) -> Footer | Problem:
    try:
        return read_footer(location, path)
    except FileMissingError as problem:
        return Problem("missing_file", str(problem), path)
    except MetadataError as problem:
        return Problem("footer", str(problem), path)


def _against_manifest(footer: Footer, listed: DataFile, inventory: Inventory) -> Iterator[Problem]:
    path, found = footer.file.path, footer.file
    if not is_unchanged(found, listed):
        yield Problem(
            "changed_file",
            f"the manifest lists {listed.size:,} bytes and footer {listed.digest or 'unknown'}, but the file has "
            f"{found.size:,} bytes and footer {found.digest}",
            path,
        )
        return
    expected, rows = inventory.rows_of(path), footer.groups["rows"]
    if expected is None or expected.tolist() != rows.tolist():
        total = 0 if expected is None else int(expected.sum())
        yield Problem(
            "row_count",
            f"the row groups differ between manifest and footer: the manifest lists {total:,} rows in "
            f"{0 if expected is None else len(expected):,} row groups, and the footer {int(rows.sum()):,} rows in "
            f"{len(rows):,} row groups",
            path,
        )


def _packed_footers(location: Location, manifest: Manifest) -> Iterator[Problem]:
    if manifest.beside is None:
        return
    packed = {file.path for file in manifest.inventory.files if manifest.beside.length_of(file)}
    lost = packed - manifest.beside.all_at(location).keys()
    if lost:
        yield Problem("packed_footers", f"{len(lost):,} of {len(packed):,} footers are missing or damaged", FOOTERS)


def check_schema_documents(location: Location, manifest: Manifest | None) -> Iterator[Problem]:
    """Yield the problems of the schema document in `_common_metadata`.

    Raises:
        StorageError: A storage operation failed.
    """
    if location.paths is not None:
        return
    declared = None if manifest is None else manifest.schema_document
    try:
        other = read_schema_document(location)
        is_there = declared is None or footer_if_there(location, COMMON_METADATA) is not None
    except MetadataError as problem:
        yield Problem("schema", str(problem), COMMON_METADATA)
        return
    if not is_there:
        yield Problem("schema", "the file is missing; other programs read the schema from it", COMMON_METADATA)
    elif declared is not None and other is not None and declared != other:
        yield Problem("schema", "the schema document differs from the manifest's", COMMON_METADATA)


def check_indexes(location: Location, inventory: Inventory) -> Iterator[Problem]:
    """Yield a problem for each row-group index that cannot be used.

    Raises:
        StorageError: A storage operation failed.
    """
    for name in () if location.paths is not None else index_names(location, inventory):
        try:
            find_indexes(location, inventory, [name])
        except (DatasetChangedError, MetadataError) as problem:
            yield Problem("index", f"index {name!r}: {problem}")
