"""The window reader: a reader whose rows are windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from petastore.dataset import Dataset
from petastore.errors import RequestError
from petastore.once import once
from petastore.plan.batches.budget import Needs
from petastore.plan.plan import Plan
from petastore.plan.request import PlanAsk, Tail
from petastore.plan.selection import Selection
from petastore.plan.windows.ngram import NGram
from petastore.plan.windows.windows import Windows
from petastore.readers.asked import RowsAsk, RunAsk
from petastore.readers.assembly.assemble import VALID_COLUMN, AssembledSpan, Assembler
from petastore.readers.handouts import Handout, windows_of
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.loader import RowGroupLoader
from petastore.readers.reader import Reader
from petastore.readers.windows.assemble_windows import (
    HEADS_BYTES,
    ExtendedLoader,
    RowAssembler,
    WindowAssembler,
    heads_of,
    window_schema,
)
from petastore.readers.windows.window_starts import select_window_starts
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import TransformSpec, transform_schema
from petastore.work.workers import Workers

__all__ = ["WindowReader", "Windowed", "fields_of", "open_window_reader"]

_COVERED_ROW_BYTES = 56
"""What a row of a window takes besides its values: which it is, and where it stands among those of its span."""


class Windowed(Reader):
    """What a reader does otherwise where its rows are windows; the classes after this one read rows."""

    ngram: NGram

    @once
    def windows(self) -> Windows:
        """Which rows each window covers."""
        raise NotImplementedError

    @once
    def row_schema(self) -> Unischema:
        """What the rows of windows are: all fields of all offsets, after the transform."""
        assembler = self._assembler
        assert isinstance(assembler, WindowAssembler)  # noqa: S101 - made by the method below
        return assembler.rows.schema

    def _row_assembler(self, made: Assembler) -> RowAssembler:
        """What makes the rows that windows cover, given what would make rows."""
        return RowAssembler(**fields_of(made), windows=self.windows)

    def _row_loaders(self) -> Callable[[int], RowGroupLoader]:
        """Who would take in row groups if rows were read."""
        return super()._make_loaders()

    def _make_assembler(self) -> Assembler:
        rows = self._row_assembler(super()._make_assembler())
        places = _places(self.ngram, rows.schema)
        given = {field.name: getattr(rows, field.name) for field in dataclasses.fields(Assembler)}
        return WindowAssembler(
            **{**given, "schema": window_schema(rows.schema, places), "transform": None},
            rows=rows,
            windows=self.windows,
            places=places,
            apart=self.batched_output and self._calls_functions,
        )

    def _make_loaders(self) -> Callable[[int], RowGroupLoader]:
        # Tasks hold what they need and not the reader, as in `Reader`.
        of_rows, windows = self._row_loaders(), self.windows
        heads = heads_of(windows, self.plan.unit, self.dataset.read_in_parts, lambda group: of_rows(group).fields)

        def of_group(group: int) -> RowGroupLoader:
            plain = of_rows(group)
            return ExtendedLoader(
                plain.layout,
                plain.fields,
                plain.buffers,
                windows.following(group),
                heads,
                most_bytes=plain.most_bytes,
            )

        return of_group

    @once
    def _own_batch_size(self) -> int:
        """Windows that iteration takes at a time: as many as have the rows of a row group of the largest size."""
        return max(super()._own_batch_size // self.ngram.length, 1)

    @once
    def _footprint(self) -> Footprint:
        inventory, more = self.plan.inventory, self.ngram.length - 1
        row_bytes = -(-int(inventory.decoded_bytes.sum()) // max(inventory.num_rows, 1))
        extended = dataclasses.replace(
            inventory, rows=inventory.rows + more, decoded_bytes=inventory.decoded_bytes + more * row_bytes
        )
        heads = min(HEADS_BYTES, more * row_bytes * inventory.num_row_groups)
        layout, view = self._assembler.layout, self._assembler.view
        return _WindowFootprint(
            view, self.dataset.schema, layout, extended, len(self.ngram.fields), heads // max(self.workers.at_a_time, 1)
        )

    def _rows_handed_out(self, span: AssembledSpan) -> Handout:
        columns = {name: column.rows(0, len(column.values)) for name, column in span.columns.by_name.items()}
        rows = [self._rows_at(offset, schema, columns, span.span.num_rows) for offset, schema in self._of_offsets]
        keys: list[Any] = list(self.ngram.offsets)
        if VALID_COLUMN in columns and self.plan.request.tail is Tail.PAD:
            keys.append(VALID_COLUMN)
            rows.append(columns[VALID_COLUMN].tolist())
        return windows_of(span.span, rows, lambda window: dict(zip(keys, window, strict=True)))

    @once
    def _of_offsets(self) -> list[tuple[int, Unischema]]:
        """Of each offset: the fields that windows have there."""
        return [(offset, self.ngram.get_schema_at_timestep(self.row_schema, offset)) for offset in self.ngram.offsets]

    def _rows_at(self, offset: int, schema: Unischema, columns: Mapping[str, Any], windows: int) -> list[Any]:
        """The rows that all windows have at an offset."""
        make = schema.row_type._make
        if len(schema) == 0:
            return [make(())] * windows
        values = [_values(columns[name][:, self.ngram.offsets_of(name).index(offset)]) for name in schema.fields]
        return [make(row) for row in zip(*values, strict=True)]


class WindowReader(Windowed):
    """A reader of windows; all that a `Reader` does with rows, it does with windows.

    Iterating one of `make_reader` gives dicts: offset to named tuple, as Petastorm does, without fields at offsets of
    which nothing was asked; with `tail="pad"` also `"valid"`. Batches have a column for each field, `(windows, k,
    *shape)`: k counts the offsets at which the field is asked for, in ascending order. Fields of text, bytes, decimals
    and free shapes are object arrays `(windows, k)`. Batches of one of `make_batch_reader` have as many windows as it
    takes for the rows of the largest row group.

    Args:
        dataset: Where the plan's row groups are.
        plan: What is read, in what order; its selection is that of window starts.
        ngram: What a window is; resolved.
        selection: Of which rows windows are made; None is all.
        workers: Who does the work.
        transform: A function for the rows of windows, or for DataFrames of all rows of a batch's windows.
        batched: Whether iteration gives column batches, or else windows.

    Raises:
        RequestError: The transform, or the column `valid` of `tail="pad"`, contradicts the schema.
        NoDataAvailableError: `tail="even"` with fewer windows than shards.
    """

    ngram: NGram
    """What a window is, with the fields of the dataset."""

    def __init__(
        self,
        dataset: Dataset,
        plan: Plan,
        *,
        ngram: NGram,
        selection: Selection | None,
        workers: Workers,
        transform: TransformSpec | None = None,
        batched: bool = False,
    ) -> None:
        assert plan.selection is not None  # noqa: S101 - made by `open_window_reader`
        self.ngram = ngram
        self.windows = Windows(dataset.inventory.rows, selection, plan.selection, ngram.length)
        super().__init__(dataset, plan, workers=workers, transform=transform, batched=batched)


@dataclasses.dataclass(frozen=True)
class _WindowFootprint(Footprint):
    """What windows take: the rows that they are made of, and the same laid side by side."""

    rows_of_window: int

    head_bytes: int
    """One worker's part of the beginnings of row groups that all of them share."""

    @once
    def row_bytes(self) -> int:
        return 2 * self.rows_of_window * super().row_bytes

    @property
    def needs(self) -> Needs:
        needs = super().needs
        joined = int(
            self._encoded_bytes.max(initial=0)
        )  # a row group's cells lie twice while others are put behind them
        return dataclasses.replace(
            needs,
            work_bytes=needs.work_bytes + joined + self.head_bytes,
            plan_row_bytes=needs.plan_row_bytes + self.rows_of_window * _COVERED_ROW_BYTES,
        )


def open_window_reader(dataset: Dataset, ngram: NGram, ask: PlanAsk, rows: RowsAsk, run: RunAsk) -> WindowReader:
    """A reader of the windows of a dataset; finds their starts, which may read all timestamps.

    Args:
        dataset: Where.
        ngram: What a window is.
        ask: What is asked of the plan; its columns are those of the windows.
        rows: Of which rows windows are made, and where answers are remembered.
        run: How the reader is run; its function is one for rows, or for DataFrames where it is batched.

    Raises:
        RequestError: Something that was asked for cannot be, or rows are not sorted.
        NoDataAvailableError: `tail="even"` with fewer windows than ranks.
    """
    ngram = _resolved(ngram, dataset.schema, run.transform)
    names = {field.name for field in ngram.get_field_names_at_all_timesteps() if isinstance(field, UnischemaField)}
    columns = [field for field in dataset.schema if field.name in names]
    if not columns:
        raise RequestError(f"{ngram!r} names no field that {dataset.url} has, so there is nothing to read")
    ask = dataclasses.replace(ask, columns=columns)
    dataset.planned(ask)  # what cannot be is refused before anything is read
    selection = rows.selected(dataset, workers=run.workers, batched=run.batched)
    starts = select_window_starts(dataset, ngram, selection, workers=run.workers, selection_cache=rows.selection_cache)
    return WindowReader(
        dataset,
        dataset.planned(ask, starts),
        ngram=ngram,
        selection=selection,
        workers=run.workers,
        transform=run.transform,
        batched=run.batched,
    )


def fields_of(assembler: Assembler) -> dict[str, Any]:
    """What an assembler was made with."""
    return {field.name: getattr(assembler, field.name) for field in dataclasses.fields(assembler)}


def _resolved(ngram: NGram, schema: Unischema, transform: TransformSpec | None) -> NGram:
    """The NGram with fields of the dataset, and with those that only a transform makes."""
    after = schema if transform is None else transform_schema(schema, transform)
    return ngram.resolved(Unischema(schema.name, [*schema, *(field for field in after if field.name not in schema)]))


def _places(ngram: NGram, schema: Unischema) -> Mapping[str, Sequence[int]]:
    """Of each field that comes out: at which rows of a window, counted from 0, it is wanted."""
    found = {name: ngram.offsets_of(name) for name in schema.fields}
    places = {name: [offset - ngram.offsets[0] for offset in offsets] for name, offsets in found.items() if offsets}
    if not places:
        raise RequestError(f"after the transform there is none of the fields that {ngram!r} names")
    return places


def _values(column: Any) -> Any:
    """The values of a column one by one; None where one is missing."""
    if isinstance(column, np.ma.MaskedArray):
        gone: Any = np.ma.getmaskarray(column).reshape(len(column), -1).any(axis=1)
        return [None if none else value for none, value in zip(gone.tolist(), column.data, strict=True)]
    return column
