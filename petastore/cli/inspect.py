"""What there is to say about a dataset, as a value.

Opening it has read everything but at most one footer, and its row-group indexes.
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

__all__ = ["DatasetFacts", "FieldFacts", "IndexFacts", "PartitionFacts", "Spread", "dataset_facts"]

HISTOGRAM_BUCKETS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class FieldFacts:
    """One field."""

    name: str
    dtype: str
    """As the schema document spells it: `"uint8"`, `"str"`, `"datetime64[us]"`, …"""
    shape: tuple[int | None, ...]
    """Shape of one value; None is a free dimension."""
    nullable: bool
    codec: dict[str, Any] | None
    """The codec's id and configuration; None where a value is stored as the Parquet type of the same meaning."""
    codec_text: str | None
    """The codec as one writes it in Python."""
    stored: str | None
    """Arrow type of the column in the files; None for a partition key, whose values are in the paths."""
    stored_nullable: bool
    """Whether the column is OPTIONAL in the files; False means REQUIRED, which decodes faster."""


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One hive partition key."""

    name: str
    values: tuple[str | None, ...]
    """Its distinct values, sorted; None is Hive's null."""


@dataclasses.dataclass(frozen=True, slots=True)
class IndexFacts:
    """One row-group index."""

    name: str
    fields: tuple[str, ...]
    """Names of the fields that it is about; none where it cannot be used."""
    values: int | None
    """How many values it knows; None where it knows one thing alone, such as which row groups have any value."""
    problem: str | None
    """Why it cannot be used: it is stale, or damaged; else None."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Smallest, middle and largest of some numbers; all 0 when there are none.

    Example:
        >>> Spread.of(np.array([5, 1, 3, 4]))
        Spread(smallest=1, median=3, largest=5)
    """

    smallest: int
    median: int
    """The lower of the two middle ones where their number is even."""
    largest: int

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> Spread:
        """The spread of an array of shape `(n,)`."""
        if not len(numbers):
            return cls(0, 0, 0)
        ordered = np.sort(numbers)
        return cls(int(ordered[0]), int(ordered[(len(ordered) - 1) // 2]), int(ordered[-1]))


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetFacts:
    """Everything that `petastore inspect` shows. Sizes are bytes."""

    url: str
    writer: str
    """Who wrote it: the manifest's word, or Parquet's `created_by`."""
    schema: str | None
    """Name of the stored Unischema; None where the schema was inferred from plain Parquet."""
    fields: tuple[FieldFacts, ...]
    partitions: tuple[PartitionFacts, ...]
    indexes: tuple[IndexFacts, ...]
    files: int
    row_groups: int
    rows: int
    stored_bytes: int
    """Bytes of all row groups in the files, compressed."""
    page_bytes: int
    """The same once decompressed."""
    decoded_bytes: int
    """Bytes of all rows as arrays, of the fields whose values have one size."""
    fields_of_varying_size: tuple[str, ...]
    """Fields that `decoded_bytes` leaves out: free shapes, text, bytes, decimals."""
    rows_of_row_groups: Spread
    bytes_of_row_groups: Spread
    """Stored bytes."""
    histogram: tuple[int, ...]
    """Row groups in each of 16 equally wide ranges of rows, from the smallest to the largest row group; empty where
    all are of one size."""

    def as_json(self) -> dict[str, Any]:
        """The same as JSON: dicts, lists, numbers, text, booleans and None."""
        return dataclasses.asdict(self)


def dataset_facts(dataset: Dataset) -> DatasetFacts:
    """The facts of an opened dataset."""
    inventory = dataset.inventory
    rows = inventory.rows
    return DatasetFacts(
        url=dataset.url,
        writer=dataset.writer,
        schema=dataset.schema.name if dataset.has_schema_document else None,
        fields=tuple(_field_facts(field, dataset.arrow_schema) for field in dataset.schema),
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
    """Each row-group index by itself: one that is stale does not hide the others."""
    from petastore.storage.metadata.find_index import find_indexes, index_names

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
