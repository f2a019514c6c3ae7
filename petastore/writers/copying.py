"""Copy columns and rows of a dataset as encoded cells, without decoding or Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from petastore.arrow import compute as pc
from petastore.arrow import conformed
from petastore.dataset import Dataset, open_dataset
from petastore.errors import DatasetExistsError, DatasetNotFoundError, EncodeError, InvalidArgumentError, SchemaError
from petastore.inventory import Inventory, ReadUnit
from petastore.monitoring.progress import progress_shown
from petastore.plan.request import whole_number
from petastore.schema import Unischema
from petastore.schema.arrow import is_list, storage_schema
from petastore.schema.field import UnischemaField
from petastore.schema.select import select_fields
from petastore.storage.files.listing import files_below
from petastore.storage.files.location import Location, open_location
from petastore.writers.input_columns import infer_schema
from petastore.writers.local import write_cells
from petastore.writers.parquet import FileLayout

__all__ = ["Copy", "DeclaredCells", "copy_cells"]


@dataclasses.dataclass(frozen=True)
class DeclaredCells:
    """Picklable function that casts batches of cells to the types of the schema.

    With these types, the columns of a copy are REQUIRED again where the schema is not nullable.
    """

    schema: Unischema
    """The columns of the batches."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, cast to the types of the schema.

        Raises:
            EncodeError: A null is in a field that is not nullable, or a value does not fit in the type of its field.
        """
        stored = storage_schema(self.schema)
        for batch in batches:
            for field, cells in zip(self.schema, batch.columns, strict=True):
                if cells.null_count and not field.nullable:
                    raise EncodeError(
                        "the value must not be null, because the schema of the source says nullable=False, got a null. "
                        "Name the field in not_null_fields to skip such rows",
                        column=field.name,
                    )
            columns = [_cast(cells, field) for cells, field in zip(batch.columns, stored, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=stored)


def _cast(cells: pa.Array, wanted: pa.Field) -> pa.Array:
    advice = "Leave the column out with field_regex (--columns)"
    if pa.types.is_time(cells.type) and pa.types.is_integer(wanted.type):  # Arrow casts times only to integers as wide
        cells = cells.view(pa.int32() if pa.types.is_time32(cells.type) else pa.int64())
    try:
        cast = conformed(cells, wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise EncodeError(
            f"values must fit in {wanted.type}, the type in which the copy stores them, got {cells.type} ({problem}). "
            f"{advice}",
            column=wanted.name,
        ) from problem
    items = cast
    while is_list(items.type):
        is_nullable, items = items.type.value_field.nullable, items.flatten()
        if items.null_count and not is_nullable:
            raise EncodeError(
                f"lists must not contain nulls, because the copy stores them as arrays, got a null. {advice}",
                column=wanted.name,
            )
    return cast


@dataclasses.dataclass(frozen=True)
class Copy:
    """Checked arguments of a copy: source, target, schema and filter."""

    source: Dataset
    """Dataset to copy."""

    target: Location
    """The directory of the copy."""

    schema: Unischema
    """Schema of the copy."""

    not_null: tuple[str, ...]
    """Names of columns; rows with a null in any of these columns are skipped."""

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
        """Check the arguments of `petastore.spark.copy_dataset`; nothing is copied yet.

        Raises:
            InvalidArgumentError: A column is unknown, or target and source are equal or nested.
            SchemaError: A column of plain Parquet to copy cannot be read.
            DatasetNotFoundError: The source does not exist.
            DatasetExistsError: The target has files, and `overwrite_output` is False.
        """
        source = open_dataset(source_url, storage_options=storage_options)
        target = open_location(target_url, storage_options=storage_options)
        _refuse_overlap(source.location, target)
        if not overwrite_output:
            _refuse_files(target)
        copied = source.schema if source.has_schema_document else _inferred(source, is_whole=field_regex is None)
        if field_regex is not None:
            asked = [field_regex] if isinstance(field_regex, str) else list(field_regex)
            copied = Unischema(copied.name, select_fields(copied, asked, among=source.url))
        not_null = tuple(not_null_fields or ())
        for name in not_null:
            if name not in source.schema:
                known = ", ".join(map(repr, source.schema.fields))
                raise InvalidArgumentError(f"not_null_fields must name fields of {source.url} ({known}), got {name!r}")
        return cls(source, target, copied, not_null)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the stored cells of the copy as record batches, row group by row group."""
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


def _inferred(source: Dataset, *, is_whole: bool) -> Unischema:
    """Return the schema of plain Parquet, in which decimals keep their precision and scale.

    Raises:
        SchemaError: The whole dataset is copied (`is_whole`), and a column cannot be read.
    """
    for reason in source.unreadable.values() if is_whole else ():
        raise SchemaError(f"{reason}. To copy other columns, name them in field_regex (--columns)")
    stored = source.arrow_schema

    def exact(field: UnischemaField) -> UnischemaField:
        if field.numpy_dtype is not Decimal or not field.is_scalar or field.name not in stored.names:
            return field
        inferred = infer_schema(pa.schema([stored.field(field.name)]).empty_table())
        return dataclasses.replace(inferred[field.name], nullable=field.nullable)

    return Unischema(source.schema.name, map(exact, source.schema))


def _refuse_overlap(source: Location, target: Location) -> None:
    one, other = (f"{place.root.rstrip('/')}/" for place in (source, target))
    if source.filesystem == target.filesystem and (one.startswith(other) or other.startswith(one)):
        raise InvalidArgumentError(f"the target must be outside the source {source.url}, got {target.url}")


def _refuse_files(target: Location) -> None:
    with contextlib.suppress(DatasetNotFoundError):
        if found := files_below(target):
            raise DatasetExistsError(
                f"the target {target.url} must be empty, got {len(found):,} files. Choose another URL, or "
                "replace them with overwrite_output=True (--overwrite-output)"
            )


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
    progress: bool | Callable[[int], object] | None = None,
) -> Inventory:
    """Copy a dataset, or a part of it, in this process.

    The parameters are those of `petastore.spark.copy_dataset`.

    Args:
        source_url: A dataset of petastore or Petastorm, or plain Parquet, whose copy has the inferred schema.
        target_url: The directory of the copy.
        field_regex: Names, or regular expressions over whole names; None means all columns.
        not_null_fields: Names of columns; rows with a null in any of these columns are skipped.
        overwrite_output: Whether to replace an existing target; False raises an error if the target has files.
        files_count: Maximum number of files of the copy.
        row_group_size_mb: Approximate size of a row group of the copy in MiB; None means 32.
        storage_options: Keyword arguments of the fsspec filesystem.
        progress: As in `write_dataset`.

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
    total = None if copied.not_null else copied.source.inventory.num_rows
    with progress_shown(progress, "copying", "rows", total) as show:
        return write_cells(
            copied.target,
            copied.schema,
            DeclaredCells(copied.schema)(copied.batches()),
            FileLayout.of(row_group_size_mb=row_group_size_mb, rows_per_row_group=None, rows_per_file=rows_per_file),
            mode="overwrite" if overwrite_output else "error",
            writer="petastore copy",
            progress=show,
        )
