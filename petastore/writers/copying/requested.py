"""A copy that was asked for: its source, its target, its columns and rows; checked before anything is written."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from petastore.arrow import compute as pc
from petastore.dataset import Dataset, open_dataset
from petastore.errors import DatasetExistsError, DatasetNotFoundError, InvalidArgumentError, SchemaError
from petastore.plan.unit import ReadUnit
from petastore.schema import Unischema
from petastore.schema.select import select_fields
from petastore.storage.files.listing import files_below
from petastore.storage.files.location import Location, open_location

__all__ = ["Copy"]


@dataclasses.dataclass(frozen=True)
class Copy:
    """A copy that was asked for and can be made."""

    source: Dataset
    """The dataset."""

    target: Location
    """The directory of the copy."""

    schema: Unischema
    """The columns of the copy."""

    not_null: tuple[str, ...]
    """Columns in which no row of the copy is null."""

    @classmethod
    def of(
        cls,
        source_url: str | os.PathLike[str],
        target_url: str | os.PathLike[str],
        field_regex: Iterable[str] | None,
        not_null_fields: Iterable[str] | None,
        *,
        overwrite_output: bool,
        storage_options: Mapping[str, Any] | None,
    ) -> Copy:
        """Return the copy; see `petastore.spark.copy_dataset`.

        Raises:
            InvalidArgumentError: A column is unknown, or the target is the source or is inside it.
            SchemaError: The source has no schema.
            DatasetNotFoundError: There is no source.
            DatasetExistsError: There is something in the target, and it is not to be overwritten.
        """
        source = open_dataset(source_url, storage_options=storage_options)
        target = open_location(target_url, storage_options=storage_options)
        _refuse_overlap(source.location, target)
        if not overwrite_output:
            _refuse_files(target)
        if not source.has_schema_document:
            raise SchemaError(
                f"{source.url} is plain Parquet: no schema says what its columns are. Copy it with Spark, or give it a "
                "schema with petastore.writers.generate.generate_metadata"
            )
        copied = source.schema
        if field_regex is not None:
            asked = [field_regex] if isinstance(field_regex, str) else list(field_regex)
            copied = Unischema(copied.name, select_fields(copied, asked, among=source.url))
        not_null = tuple(not_null_fields or ())
        for name in not_null:
            if name not in source.schema:
                known = ", ".join(map(repr, source.schema.fields))
                raise InvalidArgumentError(f"not_null_fields names {name!r}, but {source.url} has {known}")
        return cls(source, target, copied, not_null)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The stored cells of the copy, a batch per row group."""
        source, names = self.source, list(dict.fromkeys([*self.schema.fields, *self.not_null]))
        of_directories = source.partition_values(names)
        for group, rows in enumerate(source.inventory.rows.tolist()):
            stored = source.read(ReadUnit.whole(source.inventory, group, names))
            cells = {name: stored.column(name) for name in stored.column_names}
            cells |= {name: pa.repeat(values[group], rows) for name, values in of_directories.items()}
            table = pa.table({name: cells[name] for name in names})
            for name in self.not_null:
                table = table.filter(pc.is_valid(table.column(name)))
            yield from table.select(list(self.schema.fields)).to_batches()


def _refuse_overlap(source: Location, target: Location) -> None:
    one, other = (f"{place.root.rstrip('/')}/" for place in (source, target))
    if source.filesystem == target.filesystem and (one.startswith(other) or other.startswith(one)):
        raise InvalidArgumentError(
            f"the copy cannot lie at {target.url}: the source, {source.url}, is or lies there, or around it"
        )


def _refuse_files(target: Location) -> None:
    with contextlib.suppress(DatasetNotFoundError):
        found = files_below(target)
        raise DatasetExistsError(
            f"{target.url} is not empty: {len(found):,} files are there already. Choose another URL, or overwrite them"
        )
