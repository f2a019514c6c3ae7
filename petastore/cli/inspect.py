"""The result of `petastore inspect` as Python objects.

The result is computed from the open dataset, at most one footer, and the row-group indexes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import DatasetChangedError, MetadataError

if TYPE_CHECKING:
    from petastore.dataset import Dataset
    from petastore.inventory import Inventory
    from petastore.schema import UnischemaField
    from petastore.schema.file_schemas import ColumnDifference

__all__ = ["DatasetFacts", "FieldFacts", "IndexFacts", "PartitionFacts", "Spread", "dataset_facts"]

HISTOGRAM_BUCKETS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class FieldFacts:
    """Facts about one field of the dataset."""

    name: str
    dtype: str
    """Name of the dtype, such as `"uint8"`, `"str"` or `"datetime64[us]"`."""
    shape: tuple[int | None, ...]
    """Shape of one value; None means a variable dimension."""
    nullable: bool
    codec: dict[str, Any] | None
    """Id and configuration of the codec; None without a codec."""
    codec_text: str | None
    """The codec as a Python expression."""
    stored: str | None
    """Arrow type of the column in the files; None for a hive partition key."""
    stored_nullable: bool
    """Whether the column is OPTIONAL in the files; False means REQUIRED, which decodes faster."""


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Facts about one hive partition key."""

    name: str
    values: tuple[str | None, ...]
    """Distinct values, sorted; None stands for Hive's null."""


@dataclasses.dataclass(frozen=True, slots=True)
class IndexFacts:
    """Facts about one row-group index."""

    name: str
    fields: tuple[str, ...]
    """Names of the indexed fields; empty if the index cannot be used."""
    values: int | None
    """Number of distinct indexed values; None for an index of non-null values (`FieldNotNullIndexer`)."""
    problem: str | None
    """Why the index cannot be used (stale or damaged); None if it can."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of numbers; all 0 for an empty list.

    Example:
        >>> Spread.of(np.array([5, 1, 3, 4]))
        Spread(smallest=1, median=3, largest=5)
    """

    smallest: int
    median: int
    """Median; the lower of the two middle numbers if their count is even."""
    largest: int

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> Spread:
        """Return minimum, median and maximum of an array of shape `(n,)`."""
        if not len(numbers):
            return cls(0, 0, 0)
        ordered = np.sort(numbers)
        return cls(int(ordered[0]), int(ordered[(len(ordered) - 1) // 2]), int(ordered[-1]))


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetFacts:
    """All facts that `petastore inspect` shows. Sizes are bytes."""

    url: str
    writer: str
    """Program that wrote the dataset: from the manifest, or Parquet's `created_by`."""
    schema: str | None
    """Name of the stored Unischema; None if the schema was inferred from plain Parquet."""
    fields: tuple[FieldFacts, ...]
    differences: tuple[ColumnDifference, ...]
    """Columns that some files lack or store as another type."""
    partitions: tuple[PartitionFacts, ...]
    indexes: tuple[IndexFacts, ...]
    files: int
    row_groups: int
    rows: int
    stored_bytes: int
    """Compressed bytes of all row groups."""
    page_bytes: int
    """Decompressed bytes of all row groups."""
    decoded_bytes: int
    """Bytes of all rows after decoding, for fields whose values have a fixed size."""
    fields_of_varying_size: tuple[str, ...]
    """Names of fields that are not counted in `decoded_bytes`: variable shapes, text, bytes, decimals."""
    rows_of_row_groups: Spread
    bytes_of_row_groups: Spread
    """Stored bytes per row group."""
    histogram: tuple[int, ...]
    """Number of row groups in each of 16 equally wide ranges of row counts; empty if all row groups have one size."""


def dataset_facts(dataset: Dataset) -> DatasetFacts:
    """Return the facts of an open dataset."""
    inventory = dataset.inventory
    rows = inventory.rows
    return DatasetFacts(
        url=dataset.url,
        writer=dataset.writer,
        schema=dataset.schema.name if dataset.has_schema_document else None,
        fields=tuple(_field_facts(field, dataset.arrow_schema) for field in dataset.schema),
        differences=dataset.differences,
        partitions=tuple(_partition_facts(name, inventory) for name in dataset.partition_names),
        indexes=_indexes_facts(dataset),
        files=len(inventory.files),
        row_groups=inventory.num_row_groups,
        rows=inventory.num_rows,
        stored_bytes=int(inventory.stored_bytes.sum()),
        page_bytes=int(inventory.decoded_bytes.sum()),
        decoded_bytes=inventory.num_rows * sum(field.decoded_bytes or 0 for field in dataset.schema),
        fields_of_varying_size=tuple(field.name for field in dataset.schema if field.decoded_bytes is None),
        rows_of_row_groups=Spread.of(rows),
        bytes_of_row_groups=Spread.of(inventory.stored_bytes),
        histogram=_histogram(rows),
    )


def _field_facts(field: UnischemaField, arrow_schema: Any) -> FieldFacts:
    position = arrow_schema.get_field_index(field.name)
    stored = arrow_schema.field(position) if position >= 0 else None
    return FieldFacts(
        name=field.name,
        dtype=field.dtype_name,
        shape=field.shape,
        nullable=field.nullable,
        codec=None if field.codec is None else {"id": field.codec.codec_id, **field.codec.config()},
        codec_text=None if field.codec is None else repr(field.codec),
        stored=None if stored is None else str(stored.type),
        stored_nullable=stored is None or stored.nullable,
    )


def _partition_facts(name: str, inventory: Inventory) -> PartitionFacts:
    values = {value for file in inventory.files for key, value in file.partitions if key == name}
    return PartitionFacts(name, tuple(sorted(values, key=lambda value: (value is None, value or ""))))


def _indexes_facts(dataset: Dataset) -> tuple[IndexFacts, ...]:
    """Return the facts of each row-group index.

    For an index that cannot be used, `problem` has the reason; the other indexes are still returned.
    """
    from petastore.storage.metadata.row_group_index import find_indexes, index_names

    if dataset.location.paths is not None:
        return ()
    facts = []
    for name in index_names(dataset.location, dataset.inventory):
        try:
            index = find_indexes(dataset.location, dataset.inventory, [name])[name]
        except (DatasetChangedError, MetadataError) as problem:
            facts.append(IndexFacts(name, (), None, str(problem)))
        else:
            count = None if index.values is None else len(index.values)
            facts.append(IndexFacts(name, index.column_names, count, None))
    return tuple(facts)


def _histogram(rows: NDArray[np.int64]) -> tuple[int, ...]:
    if not len(rows) or rows.min() == rows.max():
        return ()
    counts, _ = np.histogram(rows, bins=HISTOGRAM_BUCKETS)
    return tuple(int(count) for count in counts)
