"""Repair the metadata of a dataset, from intact data files.

The metadata is the manifest, packed footers and `_common_metadata`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from petastore.codecs.registry import codec_from_json
from petastore.dataset.opening import document_of_footers, located
from petastore.errors import DatasetChangedError, InvalidArgumentError, MetadataError
from petastore.schema import Unischema
from petastore.schema.document import parse_document
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import FOOTERS, inventory_of
from petastore.storage.metadata.manifest import (
    COMMON_METADATA,
    MANIFEST,
    Manifest,
    manifest_token,
    read_schema_document,
)
from petastore.storage.requests.retries import DEFAULT_STORAGE_TIMEOUT_S
from petastore.verification.metadata import CheckedFiles, check_files, check_indexes, check_schema_documents
from petastore.writers.commit import manifest_of, publish
from petastore.writers.generate import write_inventory

__all__ = ["Repair", "repair"]

_WRITER = "petastore repair"


@dataclasses.dataclass(frozen=True, slots=True)
class Repair:
    """Result of `petastore.verification.repair.repair`."""

    url: str
    """URL of the dataset, without credentials."""

    written: tuple[str, ...]
    """Files written, relative to the dataset; empty if nothing was damaged."""

    left: Mapping[str, str]
    """Problems that were not repaired: dict from file or index to what to do."""

    dry_run: bool
    """True if nothing was written."""


def repair(
    dataset_url: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S,
) -> Repair:
    """Rebuild lost or damaged metadata of a dataset. Data files are never written.

    The manifest is rebuilt from the footers of the data files, with the schema document of the manifest, of
    `_common_metadata` or of the files. If the manifest is readable, the dataset keeps its files; otherwise all data
    files in the directory become the dataset. If a data file is missing, damaged or changed, nothing is written.

    Args:
        dataset_url: Directory of the dataset.
        dry_run: Whether to return the changes without writing them.
        storage_options: Keyword arguments for the fsspec filesystem that the URL selects.
        filesystem: A pyarrow or fsspec filesystem, used instead of the one that the URL selects.
        storage_timeout: Timeout in seconds for each storage request; None means no timeout.

    Raises:
        InvalidArgumentError: The URL names single files.
        DatasetNotFoundError: No dataset exists at the URL.
        DatasetChangedError: Data files are missing or changed, or another writer committed meanwhile.
        MetadataError: A data file is damaged, or no schema document is left.
        SchemaError: A file does not match the schema document.
        StorageError: A storage operation failed.

    Example:
        >>> import os, tempfile, petastore
        >>> url = tempfile.mkdtemp() + "/words"
        >>> _ = petastore.write_dataset(url, {"id": [1, 2, 3]})
        >>> os.remove(url + "/_petastore/inventory.arrow")
        >>> repair(url).written
        ('_petastore/inventory.arrow',)
        >>> repair(url).written
        ()
    """
    location = located(
        dataset_url, storage_options=storage_options, filesystem=filesystem, storage_timeout=storage_timeout
    )
    if location.paths is not None:
        raise InvalidArgumentError(f"dataset_url must be a directory, got the file {location.url}")
    token = manifest_token(location)
    checked = check_files(location)
    _check_data_files(location, checked)
    common = list(check_schema_documents(location, checked.manifest))
    document = _document(location, checked, is_common_damaged=bool(common))
    kinds = {problem.kind for problem in checked.problems}
    needs_manifest = bool(kinds & {"manifest", "row_count", "packed_footers"}) or (
        document is not None and (checked.manifest is None or checked.manifest.schema_document is None)
    )
    written = []
    if needs_manifest or common:
        written = [COMMON_METADATA] if common else []
        written += [FOOTERS] if "packed_footers" in kinds else []
        written += [MANIFEST]
        _write(location, checked, document, token, dry_run=dry_run)
    return Repair(location.url, tuple(written), _left(location, checked), dry_run)


def _check_data_files(location: Location, checked: CheckedFiles) -> None:
    """Raise an error if a data file is damaged, missing or changed."""
    for kind, error in (
        ("footer", MetadataError),
        ("missing_file", DatasetChangedError),
        ("changed_file", DatasetChangedError),
    ):
        files = [problem for problem in checked.problems if problem.kind == kind]
        if files:
            raise error(
                f"all data files must be intact for a repair of the metadata of {location.url}, got {len(files):,} "
                f"damaged, missing or changed files. The first one is {files[0].file}: {files[0].message}. Restore "
                "these files from a backup; or delete the damaged ones and run `petastore generate-metadata`, after "
                "which the dataset has the remaining files"
            )


def _document(location: Location, checked: CheckedFiles, *, is_common_damaged: bool) -> str | None:
    """Return the schema document for the repaired metadata.

    It comes from the manifest, `_common_metadata` or the files. Return None for plain Parquet and for a dataset of
    Petastorm.

    Raises:
        MetadataError: `_common_metadata` is damaged (`is_common_damaged`), and no other schema document exists.
    """
    manifest = checked.manifest
    if manifest is not None and manifest.schema_document is not None:
        return manifest.schema_document
    common = None if is_common_damaged else read_schema_document(location, own=True)
    if common is not None:
        return common
    of_files = document_of_footers(checked.footers, location.url) if checked.footers else None
    if is_common_damaged and of_files is None:
        raise MetadataError(
            f"{location.url} cannot be repaired: {COMMON_METADATA} is damaged, and no schema document is left. Write "
            "the schema with `petastore generate-metadata --unischema-class MODULE.NAME`"
        )
    return of_files


def _write(
    location: Location, checked: CheckedFiles, document: str | None, token: str | None, *, dry_run: bool
) -> None:
    """Check the data files against the schema document, and write the metadata unless `dry_run`."""
    paths = [footer.file.path for footer in checked.footers]
    writer = _WRITER if checked.manifest is None else checked.manifest.writer

    def unchanged_token() -> None:
        if manifest_token(location) != token:
            raise DatasetChangedError(
                f"{location.url}: another writer committed during the repair. Run the repair again"
            )

    if document is None:
        unchanged_token()
        if not dry_run:
            write_inventory(location, paths, writer=writer)
        return
    schema = Unischema(*parse_document(document, codec_from_json=codec_from_json, source=location.url))

    def change() -> Manifest:
        unchanged_token()
        return manifest_of(location, paths, schema, writer=writer)

    if dry_run:
        change()
    else:
        publish(location, schema, change)


def _left(location: Location, checked: CheckedFiles) -> dict[str, str]:
    left = {
        problem.file or "": "it is not in the manifest. If it belongs to the dataset, run `petastore generate-metadata`"
        for problem in checked.problems
        if problem.kind == "unlisted_file"
    }
    inventory = inventory_of(checked.footers)
    return left | {
        problem.message.partition(": ")[0]: problem.message for problem in check_indexes(location, inventory)
    }
