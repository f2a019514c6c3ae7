"""Copies some columns and rows of a dataset to another place as stored cells, without decoding and without Spark."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from petastore.errors import EncodeError
from petastore.inventory import Inventory
from petastore.plan.request import whole_number
from petastore.schema import Unischema
from petastore.schema.arrow import storage_schema
from petastore.writers.copying.requested import Copy
from petastore.writers.layout import Layout
from petastore.writers.local import write_cells

__all__ = ["DeclaredCells", "copy_cells"]


@dataclasses.dataclass(frozen=True)
class DeclaredCells:
    """Casts batches of cells to the declared types, so that the copy's columns are REQUIRED again. Picklable."""

    schema: Unischema
    """The columns of the batches."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches in the types of the schema.

        Raises:
            EncodeError: A null is in a field that is not nullable.
        """
        stored = storage_schema(self.schema)
        for batch in batches:
            for field, cells in zip(self.schema, batch.columns, strict=True):
                if cells.null_count and not field.nullable:
                    raise EncodeError("the source holds a null, but the field is not nullable", column=field.name)
            columns = [cells.cast(field.type) for cells, field in zip(batch.columns, stored, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=stored)


def copy_cells(
    source_url: str | os.PathLike[str],
    target_url: str | os.PathLike[str],
    field_regex: Iterable[str] | None = None,
    not_null_fields: Iterable[str] | None = None,
    *,
    overwrite_output: bool = False,
    files_count: int | None = None,
    row_group_size_mb: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Inventory:
    """Copy a dataset, or a part of it, in this process; parameters as in `petastore.spark.copy_dataset`.

    Args:
        source_url: A dataset of petastore or Petastorm.
        target_url: The directory of the copy.
        field_regex: Names, or regular expressions over whole names; None is all columns.
        not_null_fields: Leave out rows in which one of these columns is null.
        overwrite_output: Replace what is in the target; else that is an error.
        files_count: Files of the copy, at most.
        row_group_size_mb: MiB of a row group of the copy, about.
        storage_options: Keyword arguments of the fsspec filesystem.

    Returns:
        The files and row groups of the copy.

    Raises:
        InvalidArgumentError: As `Copy.of`; or a number is not positive.
        SchemaError: As `Copy.of`.
        DatasetNotFoundError: As `Copy.of`.
        DatasetExistsError: As `Copy.of`.
    """
    rows_per_file = None
    copied = Copy.of(
        source_url,
        target_url,
        field_regex,
        not_null_fields,
        overwrite_output=overwrite_output,
        storage_options=storage_options,
    )
    if files_count is not None:
        files = whole_number(files_count, name="partitions_count", least=1)
        rows_per_file = max(-(-copied.source.inventory.num_rows // files), 1)
    return write_cells(
        copied.target,
        copied.schema,
        DeclaredCells(copied.schema)(copied.batches()),
        Layout.of(row_group_size_mb=row_group_size_mb, rows_per_row_group=None, rows_per_file=rows_per_file),
        mode="overwrite" if overwrite_output else "error",
        writer="petastore copy",
    )
