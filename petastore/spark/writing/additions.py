"""What a `materialize_dataset` block adds to a dataset, and the manifest that follows.

Spark gives each file a name that no other has, so a block's files are those that were not there before. What lay there
unlisted before the block was left by a write that failed: it must not slip into the dataset with the next commit.
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
from petastore.storage.requests.at_once import at_once
from petastore.writers.commit import manifest_of, publish
from petastore.writers.target import schema_difference

__all__ = ["BlockCommit"]


class BlockCommit:
    """Looks at the dataset before a block (`begin`) and commits what the block added (`finish`).

    Args:
        location: The dataset's directory; it need not exist.
        schema: What its rows are.
        writer: Who writes, for people.
        rows_per_row_group: Rows asked for, to be compared with what was written.
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
        """Remember what is there.

        Raises:
            StorageError: The storage refused.
        """
        self._before = set(files_beside(self._location, ()))

    def refuse_files(self) -> None:
        """For blocks whose rows are committed otherwise: nothing was added.

        Raises:
            InvalidArgumentError: Something was.
            StorageError: The storage refused.
        """
        manifest = read_manifest(self._location)
        listed = () if manifest is None else [file.path for file in manifest.inventory.files]  # others append, too
        added = sorted(set(files_beside(self._location, listed)) - self._before)
        if added:
            raise InvalidArgumentError(
                f"{self._location.url}: this block wrote through its writer's tasks, and Spark wrote {len(added):,} "
                f"files beside them ({added[0]}, …). Nothing was committed: a block is one or the other. Give what "
                "Spark's own writer writes a block of its own"
            )

    def finish(self) -> Inventory:
        """Check the files against the schema and put the next manifest in place.

        Raises:
            DatasetNotFoundError: There are no data files.
            SchemaError: A file does not keep the schema, or the dataset that was added to has another.
            StorageError: The storage refused; the old dataset still stands.
        """
        list_data_files(self._location)  # where nothing was written, nothing is made
        inventory = publish(self._location, self._schema, self._next_manifest)
        if self._left_out:
            warnings.warn(
                f"{self._location.url}: {len(self._left_out):,} files lay there that no manifest lists "
                f"({self._left_out[0]}, …); they stay out of the dataset. A write that raised left them: delete them, "
                "or take all files with `petastore generate-metadata`",
                UserWarning,
                stacklevel=4,
            )
        self._compare_rows(inventory)
        return inventory

    def _next_manifest(self) -> Manifest:
        return manifest_of(self._location, self._files(), self._schema, writer=self._writer)

    def _files(self) -> list[str]:
        """What the manifest lists and is still there, and what the block added; all Parquet, where there is none."""
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
                f"{self._location.url} has another schema than the rows written to it: "
                f"{schema_difference(manifest.schema_document or '', self._document)}. Nothing was committed. Append "
                'with the same schema, or write with mode "overwrite"; `petastore generate-metadata` with '
                "--unischema-class gives all files there a new schema"
            )

    def _compare_rows(self, inventory: Inventory) -> None:
        """Warn where Parquet ended a row group before it had the rows asked for."""
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
                    f"rows_per_row_group={self._rows:,} was asked for. Either it was written with other settings, or "
                    "its rows did not fit into the memory of Spark's executor: ask for fewer, or give it more",
                    UserWarning,
                    stacklevel=4,
                )
                return
