"""What a reader of windows runs, made of what a reader of their rows would run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from petastore.errors import InvalidArgumentError
from petastore.once import once
from petastore.plan.request import Tail
from petastore.plan.windows.ngram import NGram
from petastore.plan.windows.windows import Windows
from petastore.readers.assembly.assemble import VALID_COLUMN, AssembledSpan, Assembler
from petastore.readers.execution.execution import Execution, WindowsOfRows
from petastore.readers.execution.handing_out import GivesBatches, HandingOut, most_rows
from petastore.readers.execution.handouts import Handout, windows_of
from petastore.readers.windows.assemble_windows import RowsBehind, WindowAssembler, heads_of, window_schema
from petastore.readers.windows.window_footprint import footprint_of_windows
from petastore.schema.unischema import Unischema
from petastore.schema.values import each_value

__all__ = ["execution_of_windows"]


def execution_of_windows(rows: Execution, ngram: NGram, windows: Windows) -> Execution:
    """What a reader of windows runs.

    Args:
        rows: What a reader of the rows would run; its plan is of the rows with which windows begin.
        ngram: What a window is; resolved.
        windows: Which rows each window covers.

    Raises:
        InvalidArgumentError: After the transform there is no field that a window has; or the rows are windows already.
    """
    of_rows = rows.assembly
    if not isinstance(of_rows.assembler, Assembler):
        raise InvalidArgumentError("windows are made of rows, and these are windows already")
    places = _places(ngram, of_rows.schema)
    schema = window_schema(of_rows.schema, places)
    heads = heads_of(windows, rows.plan.unit, rows.source, rows.loading)
    assembler = WindowAssembler(
        rows=dataclasses.replace(of_rows.assembler, origin=windows.origin),
        windows=windows,
        places=places,
        schema=schema,
        apart=rows.batched and of_rows.functions.are_called,
    )
    return dataclasses.replace(
        rows,
        loading=dataclasses.replace(rows.loading, extended=RowsBehind(windows, heads).extended),
        assembly=dataclasses.replace(
            of_rows,
            assembler=assembler,
            schema=schema,
            footprint=footprint_of_windows(of_rows.footprint, ngram, windows, workers=rows.workers),
            gives_stacks=False,
        ),
        handing_out=_handing_out(rows, ngram, schema),
        windows=WindowsOfRows(ngram, windows, of_rows.schema),
    )


def _handing_out(rows: Execution, ngram: NGram, schema: Unischema) -> HandingOut:
    last_batch = rows.plan.request.last_batch
    if not rows.batched:
        return _GivesWindows(ngram, rows.assembly.schema, last_batch)
    # As many windows as have the rows of a row group of the largest size.
    most = most_rows(int(rows.plan.inventory.rows.max(initial=1)))
    return GivesBatches(schema, last_batch, max(most // ngram.length, 1))


@dataclasses.dataclass(frozen=True, eq=False)
class _GivesWindows:
    """Windows one by one: dicts from offset to the row there, as a named tuple."""

    ngram: NGram
    """What a window is."""

    row_schema: Unischema
    """All fields of its rows, after the transform."""

    last_batch: Tail
    """Says whether windows say whether they are repeats."""

    rows: int = 1
    """Windows of what one `next` gives."""

    def handout(self, span: AssembledSpan) -> Handout:
        """The windows of a span."""
        columns = {name: column.rows(0, len(column.values)) for name, column in span.columns.by_name.items()}
        parts = [self._rows_at(offset, schema, columns, span.span.num_rows) for offset, schema in self._of_offsets]
        keys: list[Any] = list(self.ngram.offsets)
        if VALID_COLUMN in columns and self.last_batch is Tail.PAD:
            keys.append(VALID_COLUMN)
            parts.append(columns[VALID_COLUMN].tolist())
        return windows_of(span.span, parts, lambda window: dict(zip(keys, window, strict=True)))

    @once
    def _of_offsets(self) -> list[tuple[int, Unischema]]:
        """Of each offset: the fields that windows have there."""
        return [(offset, self.ngram.get_schema_at_timestep(self.row_schema, offset)) for offset in self.ngram.offsets]

    def _rows_at(self, offset: int, schema: Unischema, columns: Mapping[str, Any], windows: int) -> list[Any]:
        """The rows that all windows have at an offset."""
        make = schema.row_type._make
        if len(schema) == 0:
            return [make(())] * windows
        values = [each_value(columns[name][:, self.ngram.offsets_of(name).index(offset)]) for name in schema.fields]
        return [make(row) for row in zip(*values, strict=True)]


def _places(ngram: NGram, schema: Unischema) -> Mapping[str, Sequence[int]]:
    """Of each field that comes out: at which rows of a window, counted from 0, it is wanted."""
    asked_at = {name: ngram.offsets_of(name) for name in schema.fields}
    places = {name: [offset - ngram.offsets[0] for offset in offsets] for name, offsets in asked_at.items() if offsets}
    if not places:
        raise InvalidArgumentError(f"after the transform there is none of the fields that {ngram!r} names")
    return places
