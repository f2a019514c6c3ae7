"""Several datasets behind one reader: fields that agree, cells decoded by the codecs of their own dataset."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.errors import SchemaError
from petastore.inventory import Inventory
from petastore.once import once
from petastore.plan.mixture.mixture import Mixture
from petastore.readers.assembly.encoded import ColumnSource, EncodedColumn
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema

__all__ = ["MixedDatasets", "agreed_schema"]


@dataclasses.dataclass(frozen=True, eq=False)
class MixedDatasets:
    """The datasets of a mixture, as a reader needs them; row groups are numbered through all of them."""

    datasets: tuple[Dataset, ...]
    """One for each source."""

    mixture: Mixture
    """What is read of them."""

    @once
    def url(self) -> str:
        """All URLs, for people."""
        return " + ".join(self.urls)

    @property
    def urls(self) -> list[str]:
        """The URL of each source."""
        return [dataset.url for dataset in self.datasets]

    @once
    def views(self) -> list[Unischema]:
        """Of each dataset: the fields that are read."""
        return [
            Unischema(f"{dataset.schema.name}_view", [dataset.schema[name] for name in source.request.columns])
            for dataset, source in zip(self.datasets, self.mixture.sources, strict=True)
        ]

    @once
    def schema(self) -> Unischema:
        """The fields that are read, as all datasets together have them; codecs are those of the first.

        Raises:
            SchemaError: They differ in dtype or shape.
        """
        return agreed_schema(self.views, self.urls)

    @property
    def time_zones(self) -> dict[str, str]:
        """Time zones of columns that are stored with one, as the first dataset has them."""
        return self.datasets[0].time_zones

    @once
    def inventory(self) -> Inventory:
        """The row groups of all, under paths that say of which dataset they are."""
        paths = [f"{dataset.url}/{file.path}" for dataset in self.datasets for file in dataset.inventory.files]
        files = zip(self.mixture.inventory.files, paths, strict=True)
        return dataclasses.replace(
            self.mixture.inventory, files=tuple(dataclasses.replace(file, path=path) for file, path in files)
        )

    def source_of(self, groups: NDArray[Any]) -> NDArray[np.int64]:
        """The sources of some row groups, shape (n,)."""
        return np.searchsorted(self.mixture.first_groups, groups, side="right") - 1

    def partition_values(self, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Of each column that is a partition column of all: its cell for each row group, as one Arrow array."""
        parts = [dataset.partition_values(columns) for dataset in self.datasets]
        return {
            name: pa.concat_arrays([part[name] for part in parts])
            for name in parts[0]
            if all(name in part and part[name].type == parts[0][name].type for part in parts)
        }

    @once
    def own_partition_values(self) -> list[dict[str, pa.Array]]:
        """Of each dataset: its partition columns, with nulls for the row groups of the others, if they have others."""
        of_all = self.partition_values(self.mixture.request.columns)
        of_datasets = []
        borders = itertools.pairwise(self.mixture.first_groups.tolist())
        for dataset, view, (first, stop) in zip(self.datasets, self.views, borders, strict=True):
            after = int(self.mixture.first_groups[-1]) - stop
            own = dataset.partition_values(tuple(view.fields)).items()
            of_datasets.append({name: of_all.get(name, _between(first, values, after)) for name, values in own})
        return of_datasets

    @once
    def columns(self) -> dict[str, EncodedColumn]:
        """How the datasets have each field that is read."""
        first_groups = self.mixture.first_groups[:-1].tolist()
        return {field.name: EncodedColumn(self._sources_of(field), first_groups) for field in self.schema}

    def _sources_of(self, field: UnischemaField) -> tuple[ColumnSource, ...]:
        """How each dataset has a field; the same object for those that have it alike."""
        own = [view[field.name] for view in self.views]
        fields = [field] * len(own) if all(codec_of(one) == codec_of(field) for one in own) else own
        known: dict[tuple[int, int], ColumnSource] = {}
        values = [of_dataset.get(field.name) for of_dataset in self.own_partition_values]
        return tuple(
            known.setdefault((id(one), id(of_groups)), ColumnSource(one, of_groups))
            for one, of_groups in zip(fields, values, strict=True)
        )

    def column_of_sources(self, name: str) -> EncodedColumn:
        """A column that says which source a row is of, as if each row group had it as a value of its directory."""
        counts = np.diff(self.mixture.first_groups)
        numbers = pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
        return EncodedColumn.of(UnischemaField(name, np.int32), numbers)


def _between(before: int, values: pa.Array, after: int) -> pa.Array:
    return pa.concat_arrays([pa.nulls(before, values.type), values, pa.nulls(after, values.type)])


def agreed_schema(schemas: Sequence[Unischema], urls: Sequence[str]) -> Unischema:
    """One schema for several: a field may be missing where it may be in any of them.

    Raises:
        SchemaError: A field is not in all of them, or differs in dtype or shape; both datasets are named.

    Example:
        >>> one, other = Unischema("a", [UnischemaField("x", "int32")]), Unischema("b", [UnischemaField("x", "int64")])
        >>> agreed_schema([one, other], ["/data/a", "/data/b"])
        Traceback (most recent call last):
        petastore.errors.SchemaError: field 'x' is int32 in /data/a, but int64 in /data/b; datasets that are mixed
            must agree in it: leave it out by schema_fields, or bring it into one form by a transform
    """
    first = schemas[0]
    for other, url in zip(schemas[1:], urls[1:], strict=True):
        only_ours, only_theirs = set(first.fields) - set(other.fields), set(other.fields) - set(first.fields)
        for lacking, having, names in ((url, urls[0], only_ours), (urls[0], url, only_theirs)):
            if names:
                raise SchemaError(
                    f"{lacking} has no field {min(names)!r}, but {having} has; datasets that are mixed must have the "
                    "same fields: name those that all have in schema_fields"
                )
        for field in first:
            ours, theirs = (f"{one.dtype_name}{list(one.shape) or ''}" for one in (field, other[field.name]))
            if ours != theirs:
                raise SchemaError(
                    f"field {field.name!r} is {ours} in {urls[0]}, but {theirs} in {url}; datasets that are mixed must "
                    "agree in it: leave it out by schema_fields, or bring it into one form by a transform"
                )
    return Unischema(
        first.name,
        [
            dataclasses.replace(field, nullable=any(schema[field.name].nullable for schema in schemas))
            for field in first
        ],
    )
