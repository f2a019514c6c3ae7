"""Files that a `materialize_dataset` block adds to a dataset, and the updated manifest.

Spark gives each file a unique name, so the files of a block are those that did not exist before. If a file existed
before the block, but is not in the manifest, a failed write left it behind; the commit must not add this file to the
dataset.
"""

from __future__ import annotations

import warnings

from petastore.errors import InvalidArgumentError, SchemaError
from petastore.inventory import Inventory
from petastore.schema import Unischema
from petastore.schema.document import dump_document
from petastore.storage.files.listing import files_beside, is_called_parquet, list_data_files
from petastore.storage.files.location import Location
from petastore.storage.footers.footers import parquet_among
from petastore.storage.footers.tails import Tails
from petastore.storage.metadata.manifest import Manifest, read_manifest
from petastore.storage.requests.retries import at_once
from petastore.writers.commit import manifest_of, publish
from petastore.writers.target import schema_difference

__all__ = ["BlockCommit"]


class BlockCommit:
    """Commit of a block: records the dataset's files before it (`begin`), and commits the added files (`finish`).

    Args:
        location: The dataset's directory; it need not exist.
        schema: Schema of its rows.
        writer: Name of the writing program, for display.
        rows_per_row_group: Requested rows per row group, to compare with the written ones.
    """

    def __init__(self, location: Location, schema: Unischema, writer: str, rows_per_row_group: int | None) -> None:
        self._location = location
        self._schema = schema
        self._document = dump_document(schema.name, schema)
        self._writer = writer
        self._rows = rows_per_row_group
        self._before: set[str] = set()
        self._left_out: list[str] = []

    def begin(self) -> None:
        """Record the files that exist before the block.

        Raises:
            StorageError: A storage operation failed.
        """
        self._before = set(files_beside(self._location, ()))

    def refuse_files(self) -> None:
        """Raise an error if the block added files although it used the writer's methods, which commit their own files.

        Raises:
            InvalidArgumentError: The block added files.
            StorageError: A storage operation failed.
        """
        manifest = read_manifest(self._location)
        # other writers may append at the same time
        listed = () if manifest is None else [file.path for file in manifest.inventory.files]
        added = sorted(set(files_beside(self._location, listed)) - self._before)
        if added:
            raise InvalidArgumentError(
                f"{self._location.url}: a materialize_dataset block must write either with its writer's methods or "
                f"with Spark, got {len(added):,} more files by Spark ({added[0]}, …). Nothing was committed. Use "
                "separate blocks"
            )

    def finish(self) -> Inventory:
        """Check the files against the schema and replace the manifest.

        Raises:
            DatasetNotFoundError: There are no data files.
            SchemaError: A file does not match the schema, or the existing dataset has another schema.
            StorageError: A storage operation failed; the old dataset is unchanged.
        """
        list_data_files(self._location)  # without data files, raises an error before anything is created
        inventory = publish(self._location, self._schema, self._next_manifest)
        if self._left_out:
            warnings.warn(
                f"{self._location.url}: {len(self._left_out):,} existing files are not listed in a manifest "
                f"({self._left_out[0]}, …), and do not become part of the dataset. A failed write left them: delete "
                "them, or add all files with `petastore generate-metadata`",
                UserWarning,
                stacklevel=4,
            )
        self._compare_rows(inventory)
        return inventory

    def _next_manifest(self) -> Manifest:
        return manifest_of(self._location, self._files(), self._schema, writer=self._writer)

    def _files(self) -> list[str]:
        """Return the files to commit: existing files of the manifest, and files that the block added.

        Without a manifest, these are all Parquet files of the directory.
        """
        found = files_beside(self._location, ())
        manifest = read_manifest(self._location)
        if manifest is None:
            older = [path for path in found if path in self._before and not is_called_parquet(path)]
            with Tails(self._location) as tails:
                are_parquet = list(at_once(tails.is_parquet, older))
            self._left_out = [path for path, is_one in zip(older, are_parquet, strict=True) if not is_one]
            return sorted(set(found) - set(self._left_out))
        listed = {file.path for file in manifest.inventory.files}
        if not listed.isdisjoint(found):
            self._refuse_other_schema(manifest)
        older = sorted(self._before.intersection(found) - listed)
        self._left_out = parquet_among(self._location, older)
        return sorted(set(found) - set(older))

    def _refuse_other_schema(self, manifest: Manifest) -> None:
        if manifest.schema_document not in (None, self._document):
            raise SchemaError(
                f"the rows must have the schema of {self._location.url}, got a difference: "
                f"{schema_difference(manifest.schema_document or '', self._document)}. Nothing was committed. Append "
                'with the same schema, or write with mode "overwrite"; `petastore generate-metadata` with '
                "--unischema-class gives all files there a new schema"
            )

    def _compare_rows(self, inventory: Inventory) -> None:
        """Warn if Parquet closed a row group before the requested number of rows."""
        if self._rows is None:
            return
        for group, rows in enumerate(inventory.rows.tolist()):
            file = inventory.file[group]
            path = inventory.files[file].path
            is_last = group + 1 == inventory.num_row_groups or inventory.file[group + 1] != file
            as_asked = rows == self._rows or (is_last and rows < self._rows)
            if path not in self._before and not as_asked:
                warnings.warn(
                    f"{self._location.url}: row group {inventory.ordinal[group]} of {path} has {rows:,} rows, but "
                    f"rows_per_row_group={self._rows:,} was requested. Either the file was written with other "
                    "settings, or the rows did not fit into the memory of Spark's executor. Request fewer rows, or "
                    "give the executor more memory",
                    UserWarning,
                    stacklevel=4,
                )
                return
