"""Assemble: from a span and the row groups at hand, the columns of its batches.

Every column of a span is gathered and decoded once, into one buffer; batches are views of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from petastore.codecs.registry import codec_of
from petastore.errors import DecodeError
from petastore.inventory import Inventory
from petastore.plan.plan import Span
from petastore.readers.batch import Batch
from petastore.readers.decode import Decoded, decode_cells, empty_column
from petastore.readers.gather import Picks
from petastore.readers.transform import TransformSpec, transform_columns
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.storage.layouts import arrow_numbers

__all__ = ["VALID_COLUMN", "AssembledSpan", "Assembler"]

VALID_COLUMN = "valid"
"""The boolean column that `tail="pad"` adds: False where a row is a repeat."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class AssembledSpan:
    """The columns of a span, and where its batches begin."""

    span: Span
    columns: Mapping[str, Decoded]

    def batch(self, place: int) -> Batch:
        """One of the batches, by its place in the span; its columns are views."""
        first, stop = self.span.offsets[place : place + 2].tolist()
        columns = {name: column.rows(first, stop) for name, column in self.columns.items()}
        return Batch(columns, stop - first, self.span.cursor_after(place))

    def batches(self) -> Iterator[Batch]:
        """All batches in order."""
        return map(self.batch, range(self.span.num_batches))


@dataclasses.dataclass(frozen=True, eq=False)
class Assembler:
    """Makes spans of one reader. Thread-safe: holds no state."""

    inventory: Inventory
    """What exists; says where a row came from when it cannot be decoded."""

    view: Unischema
    """The fields that are read, before the transform."""

    schema: Unischema
    """The fields that come out."""

    partition_values: Mapping[str, Any]
    """Of each partition column that is read: a `pyarrow.Array` with its value for each row group of the dataset."""

    transform: TransformSpec | None
    """The user's function."""

    batched: bool
    """Whether the transform takes a DataFrame of a batch, or else a row."""

    def assemble(self, span: Span, tables: Mapping[int, pa.Table]) -> AssembledSpan:
        """The columns of a span.

        Args:
            span: What is wanted.
            tables: Of each row group that the span needs: its columns, one chunk each, all rows.

        Raises:
            DecodeError: Naming column, file, row group and row.
            TransformError: From the user's function.
        """
        if len(span.rows) == 0:
            columns = {field.name: Decoded(empty_column(field, 0), None) for field in self.schema}
            return AssembledSpan(span, columns)
        picks = Picks.of_span(span)
        columns = {field.name: self.column(field, span, picks, tables) for field in self.view}
        if self.transform is not None:
            columns = transform_columns(columns, span.offsets, self.schema, self.transform, batched=self.batched)
        if span.valid is not None:
            columns[VALID_COLUMN] = Decoded(span.valid, None)
        return AssembledSpan(span, columns)

    def column(self, field: UnischemaField, span: Span, picks: Picks, tables: Mapping[int, pa.Table]) -> Decoded:
        """One column of a span, before the transform.

        Args:
            field: What it is, one of `view`.
            span: What is wanted.
            picks: Those of the span.
            tables: As for `assemble`.

        Raises:
            DecodeError: Naming column, file, row group and row.
        """
        if field.name in self.partition_values:
            cells = self.partition_values[field.name].take(arrow_numbers(span.groups))
        else:
            chunks = {group: _only_chunk(table.column(field.name)) for group, table in tables.items()}
            plain = _plain_values(field, chunks)
            if plain is not None:
                out = np.empty(len(span.rows), dtype=field.dtype)
                picks.values(plain, out)
                return Decoded(out, None)
            cells = picks.cells(chunks)
        try:
            return decode_cells(cells, field, codec_of(field))
        except DecodeError as problem:
            raise self._placed(problem, span) from problem.__cause__

    def _placed(self, problem: DecodeError, span: Span) -> DecodeError:
        if problem.row is not None:
            group = int(span.groups[problem.row])
            problem.row = int(span.rows[problem.row])
            problem.file = self.inventory.files[self.inventory.file[group]].path
            problem.row_group = int(self.inventory.ordinal[group])
        return problem


def _only_chunk(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _plain_values(field: UnischemaField, chunks: Mapping[int, Any]) -> dict[int, Any] | None:
    """The values of scalar columns that are stored just as they are declared, without a copy; else None."""
    if not field.is_scalar or field.codec is not None or field.dtype.kind not in "iuf":
        return None
    values = {}
    for group, chunk in chunks.items():
        if chunk.null_count or not pa.types.is_primitive(chunk.type) or _numpy_dtype(chunk.type) != field.dtype:
            return None
        values[group] = chunk.to_numpy(zero_copy_only=True)
    return values


def _numpy_dtype(arrow_type: Any) -> Any:
    is_number = pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type)
    return np.dtype(arrow_type.to_pandas_dtype()) if is_number else None
