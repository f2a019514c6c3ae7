"""Datasets of a mixed reader: all must have the same fields, and each uses its own codecs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.inventory import Inventory
from petastore.lazy import once
from petastore.plan.rank_plan import RankPlan
from petastore.readers.assembly.encoded import ColumnSource, EncodedColumn
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema

__all__ = ["MixedDatasets", "Readable", "agreed_schema", "with_source"]


@dataclasses.dataclass(frozen=True, eq=False)
class MixedDatasets:
    """Datasets of a mixture as one source; row groups are numbered across all of them."""

    datasets: tuple[Dataset, ...]
    """Dataset of each source."""

    plan: RankPlan
    """Plan of the datasets' rows: a mixture, or the plan of the only dataset."""

    @once
    def url(self) -> str:
        """All URLs as text, for messages."""
        return " + ".join(self.urls)

    @property
    def urls(self) -> list[str]:
        """URL of each source."""
        return [dataset.url for dataset in self.datasets]

    @once
    def views(self) -> list[Unischema]:
        """Fields that are read from each dataset."""
        return [
            Unischema(f"{dataset.schema.name}_view", [dataset.schema[name] for name in source.request.columns])
            for dataset, source in zip(self.datasets, self.plan.sources, strict=True)
        ]

    @once
    def schema(self) -> Unischema:
        """Fields that are read from all datasets, with the codecs of the first dataset.

        Raises:
            SchemaError: The datasets differ in the dtype or shape of a field.
        """
        return self.views[0] if len(self.views) == 1 else agreed_schema(self.views, self.urls)

    @property
    def time_zones(self) -> dict[str, str]:
        """Time zones of timestamp columns, from the first dataset."""
        return self.datasets[0].time_zones

    @once
    def inventory(self) -> Inventory:
        """Inventory with the row groups of all datasets; paths begin with the URL of the dataset."""
        paths = [f"{dataset.url}/{file.path}" for dataset in self.datasets for file in dataset.inventory.files]
        files = zip(self.plan.inventory.files, paths, strict=True)
        return dataclasses.replace(
            self.plan.inventory, files=tuple(dataclasses.replace(file, path=path) for file, path in files)
        )

    def source_of(self, groups: NDArray[Any]) -> NDArray[np.int64]:
        """Return the source of each row group, shape (n,)."""
        return np.searchsorted(self.plan.first_groups, groups, side="right") - 1

    def partition_values(self, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Return, by name, the values of columns that are partition columns in all datasets: one for each row group."""
        parts = [dataset.partition_values(columns) for dataset in self.datasets]
        return {
            name: pa.concat_arrays([part[name] for part in parts])
            for name in parts[0]
            if all(name in part and part[name].type == parts[0][name].type for part in parts)
        }

    @once
    def own_partition_values(self) -> list[dict[str, pa.Array]]:
        """Partition columns of each dataset: by name, an array with one value for each row group of all datasets.

        Values for row groups of other datasets are null, unless the column is a partition column in all datasets.
        """
        of_all = self.partition_values(self.plan.request.columns)
        if len(self.datasets) == 1:
            return [of_all]
        of_datasets = []
        borders = itertools.pairwise(self.plan.first_groups.tolist())
        for dataset, view, (first, stop) in zip(self.datasets, self.views, borders, strict=True):
            after = int(self.plan.first_groups[-1]) - stop
            own = dataset.partition_values(tuple(view.fields)).items()
            of_datasets.append({name: of_all.get(name, _between(first, values, after)) for name, values in own})
        return of_datasets

    @once
    def columns(self) -> dict[str, EncodedColumn]:
        """Stored form of each field that is read: its field, codec and partition values in each dataset."""
        first_groups = self.plan.first_groups[:-1].tolist()
        return {field.name: EncodedColumn(self._sources_of(field), first_groups) for field in self.schema}

    def _sources_of(self, field: UnischemaField) -> tuple[ColumnSource, ...]:
        """Return, for each dataset, its stored form of a field; datasets with equal forms share one object."""
        own = [view[field.name] for view in self.views]
        fields = [field] * len(own) if all(codec_of(one) == codec_of(field) for one in own) else own
        known: dict[tuple[int, int], ColumnSource] = {}
        values = [of_dataset.get(field.name) for of_dataset in self.own_partition_values]
        return tuple(
            known.setdefault((id(one), id(of_groups)), ColumnSource(one, of_groups))
            for one, of_groups in zip(fields, values, strict=True)
        )

    def column_of_sources(self, name: str) -> EncodedColumn:
        """Return the column with the source number of each row, as a partition column with one value per row group."""
        counts = np.diff(self.plan.first_groups)
        numbers = pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
        return EncodedColumn.of(UnischemaField(name, np.int32), numbers)


Readable: TypeAlias = Dataset | MixedDatasets
"""One dataset, or several datasets as one: the source of a reader."""


def _between(before: int, values: pa.Array, after: int) -> pa.Array:
    return pa.concat_arrays([pa.nulls(before, values.type), values, pa.nulls(after, values.type)])


def agreed_schema(schemas: Sequence[Unischema], urls: Sequence[str]) -> Unischema:
    """Return the common schema of several datasets; a field is nullable if it is nullable in any dataset.

    Raises:
        SchemaError: A dataset lacks a field, or has another dtype or shape; the message names both datasets.

    Example:
        >>> one, other = Unischema("a", [UnischemaField("x", "int32")]), Unischema("b", [UnischemaField("x", "int64")])
        >>> agreed_schema([one, other], ["/data/a", "/data/b"])
        Traceback (most recent call last):
        petastore.errors.SchemaError: sources must agree in field 'x', got int32 in /data/a and int64 in /data/b. Leave
            it out with schema_fields, or convert it with a transform
    """
    first = schemas[0]
    for other, url in zip(schemas[1:], urls[1:], strict=True):
        only_ours, only_theirs = set(first.fields) - set(other.fields), set(other.fields) - set(first.fields)
        for lacking, having, names in ((url, urls[0], only_ours), (urls[0], url, only_theirs)):
            if names:
                raise SchemaError(
                    f"sources must have the same fields, got {having} with {min(names)!r} and {lacking} without it. "
                    "Name the common fields in schema_fields"
                )
        for field in first:
            ours, theirs = (f"{one.dtype_name}{list(one.shape) or ''}" for one in (field, other[field.name]))
            if ours != theirs:
                raise SchemaError(
                    f"sources must agree in field {field.name!r}, got {ours} in {urls[0]} and {theirs} in {url}. "
                    "Leave it out with schema_fields, or convert it with a transform"
                )
    return Unischema(
        first.name,
        [
            dataclasses.replace(field, nullable=any(schema[field.name].nullable for schema in schemas))
            for field in first
        ],
    )


def with_source(schema: Unischema, name: str | None) -> Unischema:
    """Return the schema with the column that `source_column=` adds; unchanged for None."""
    if name is None:
        return schema
    if not isinstance(name, str):
        raise InvalidArgumentError(f"source_column must be a str or None, got {name!r:.100}")
    if name in schema:
        raise InvalidArgumentError(
            f"source_column must not be a field of the datasets, got {name!r}. Choose another name"
        )
    return Unischema(schema.name, [*schema, UnischemaField(name, np.int32)])
