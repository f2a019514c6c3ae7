"""Several datasets behind one reader: fields that agree, cells decoded by the codecs of their own dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.decoding.decode import Decoded, empty_column
from petastore.errors import SchemaError
from petastore.inventory import Inventory
from petastore.once import once
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.plan import Span
from petastore.plan.unit import ReadUnit
from petastore.readers.assembly.assemble import (
    VALID_COLUMN,
    AssembledSpan,
    Assembler,
    LoadedRowGroups,
    Origin,
    SpanWork,
    Task,
)
from petastore.readers.batch import Columns
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.open_files import OpenFiles

__all__ = ["MixedAssembler", "MixedDatasets", "agreed_schema"]


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

    def read_in_parts(
        self, unit: ReadUnit, parts: Sequence[Part], *, files: OpenFiles | None = None
    ) -> Iterator[pa.Table]:
        """The stored cells of a work item of any of the datasets; see `Dataset.read_in_parts`."""
        dataset = self.datasets[self.mixture.source_of(unit.group)]
        return dataset.read_in_parts(unit, parts, files=files)

    def read_together(self, units: Sequence[ReadUnit], parts: Sequence[Part]) -> Iterator[pa.Table]:
        """Several small work items, all of one of the datasets; see `Dataset.read_together`."""
        return self.datasets[self.mixture.source_of(units[0].group)].read_together(units, parts)

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

    def own_partition_values(self, source: int) -> dict[str, pa.Array]:
        """The partition columns of one dataset, with nulls for the row groups of the others."""
        first, stop = self.mixture.first_groups[source : source + 2].tolist()
        after = int(self.mixture.first_groups[-1]) - stop
        return {
            name: pa.concat_arrays([pa.nulls(first, values.type), values, pa.nulls(after, values.type)])
            for name, values in self.datasets[source].partition_values(tuple(self.views[source].fields)).items()
        }


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


@dataclasses.dataclass(frozen=True, eq=False)
class MixedAssembler(Assembler):
    """Makes spans of several datasets.

    A column that all of them store alike is gathered and decoded in one go; else it is made for each source, and what
    comes out is put together.
    """

    parts: tuple[Assembler, ...]
    """One for each source, with its own codecs and, where `is_apart`, its own transform."""

    is_apart: bool
    """Whether sources are transformed by functions of their own."""

    datasets: MixedDatasets
    """Says which source a row group is of."""

    source_column: str | None
    """The column that says which source a row is of."""

    def named_otherwise(self, origin: Origin) -> MixedAssembler:
        """The same, of rows that are named otherwise; see `Assembler.named_otherwise`."""
        parts = tuple(part.named_otherwise(origin) for part in self.parts)
        return dataclasses.replace(self, origin=origin, parts=parts)

    def begin(self, span: Span, loaded: LoadedRowGroups) -> SpanWork:
        """The work of a span; see `Assembler.begin`."""
        if not self.is_apart or span.num_rows == 0:
            return super().begin(span, loaded)
        columns: dict[str, Decoded] = {}

        def assembled(part: Assembler, own: Span) -> Mapping[str, Decoded]:
            return part.begin(own, {group: loaded[group] for group in own.needed.tolist()}).done().columns.by_name

        def assemble_apart() -> None:
            pieces = self._of_sources(span, assembled)
            for field in self.schema:
                columns[field.name] = (
                    self._sources(span)
                    if field.name == self.source_column
                    else _merged(field, span.num_rows, [(where, made[field.name]) for where, made in pieces])
                )

        def finish() -> AssembledSpan:
            valid = {} if span.valid is None else {VALID_COLUMN: Decoded(span.valid, None)}
            return AssembledSpan(span, Columns(columns | valid))

        return SpanWork([assemble_apart], finish)

    def encoded_tasks(
        self, field: UnischemaField, span: Span, loaded: LoadedRowGroups, columns: dict[str, Decoded]
    ) -> list[Task]:
        """The tasks that make one column; see `Assembler.encoded_tasks`."""
        if field.name == self.source_column:
            columns[field.name] = self._sources(span)
            return []
        if self._is_stored_alike(field, loaded):
            return super().encoded_tasks(field, span, loaded, columns)

        def decoded(part: Assembler, own: Span) -> Decoded:
            own_loaded = {group: loaded[group] for group in own.needed.tolist()}
            made: dict[str, Decoded] = {}
            for task in part.encoded_tasks(part.view[field.name], own, own_loaded, made):
                task()
            return made[field.name]

        def merge() -> None:
            columns[field.name] = _merged(field, span.num_rows, self._of_sources(span, decoded))

        return [merge]

    def _sources(self, span: Span) -> Decoded:
        return Decoded(self.datasets.source_of(span.groups).astype(np.int32), None)

    def _is_stored_alike(self, field: UnischemaField, loaded: LoadedRowGroups) -> bool:
        if field.name not in self._of_one_codec:
            return False
        if field.name in self.partition_values:
            return True
        if any(field.name in part.partition_values for part in self.parts):
            return False
        cells = [row_group.cells[field.name] for row_group in loaded.values() if field.name in row_group.cells]
        return all(other.type.equals(cells[0].type) for other in cells[1:])

    @once
    def _of_one_codec(self) -> set[str]:
        return {
            field.name
            for field in self.parts[0].view
            if all(codec_of(part.view[field.name]) == codec_of(field) for part in self.parts)
        }

    def _of_sources(self, span: Span, make: Callable[[Assembler, Span], Any]) -> list[tuple[NDArray[np.int64], Any]]:
        """Of each source that the span has rows of: where they stand in the span, and what is made of them."""
        sources = self.datasets.source_of(span.groups)
        pieces = []
        for source in np.unique(sources).tolist():
            where = np.flatnonzero(sources == source)
            own = dataclasses.replace(
                span,
                picked=GroupedRows(span.groups[where], span.rows[where], None),
                offsets=np.searchsorted(where, span.offsets),
                valid=None,
                needed=np.unique(span.groups[where]),
            )
            pieces.append((where, make(self.parts[source], own)))
        return pieces


def _merged(field: UnischemaField, rows: int, pieces: Sequence[tuple[NDArray[np.int64], Decoded]]) -> Decoded:
    """The rows of several sources put together."""
    values = empty_column(field, rows)
    missing = None if all(part.missing is None for _, part in pieces) else np.zeros(rows, dtype=np.bool_)
    for where, part in pieces:
        values[where] = part.values
        if missing is not None and part.missing is not None:
            missing[where] = part.missing
    return Decoded(values, missing)
