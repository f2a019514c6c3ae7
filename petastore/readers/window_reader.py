"""Reader of windows (`NGram`): assembles windows from row groups in memory and the rows that follow them.

A row group in which windows begin is read together with the following rows that these windows need. Little more than
the first `length - 1` following rows are fetched and decoded. The following rows are cached for a while, because
several earlier row groups need the same rows if row groups are shorter than a window. In file order, each row group is
fetched once, and its first rows twice. In another order, or with long windows and small row groups, the first rows may
be fetched several times.

A span (consecutive batches that are assembled together) of windows is assembled in two steps. First, all rows of its
windows are assembled and transformed, each row once even if several windows contain it. Then the values of these rows
are copied window by window. A row that is in windows of several spans is decoded once for each span.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import arrow_numbers
from petastore.dataset import Dataset
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded
from petastore.errors import InvalidArgumentError
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.plan import Span
from petastore.plan.rank_plan import RankPlan
from petastore.plan.request import LastBatch
from petastore.plan.windows.ngram import NGram
from petastore.plan.windows.windows import Following, Windows
from petastore.readers.assembly.assemble import VALID_COLUMN, AssembledSpan, Assembler, LoadedRowGroups, SpanWork
from petastore.readers.bad_rows import selected_rows
from petastore.readers.batch import Columns
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.handouts import Handout, output_of, windows_of
from petastore.readers.execution.mixed_datasets import Readable
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.row_group_reader import Read, at_least
from petastore.readers.options import ReadOptions
from petastore.readers.random_access import RecentRowGroups
from petastore.readers.reader import Reader
from petastore.readers.window_scan import select_window_starts, windows_of_series
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.schema.values import each_value
from petastore.storage.row_groups.asked_columns import Part
from petastore.transforming.transform import AnyTransform, TransformSpec, as_transform_spec, schema_after
from petastore.work.futures import then
from petastore.work.pools import Workers

__all__ = ["execution_of_windows", "footprint_of_windows", "open_window_reader"]


HEADS_BYTES = 16 * 1024 * 1024
"""Maximum bytes of the cache of row groups' first rows; the rows read last are cached even if they are larger."""


def window_schema(rows: Unischema, places: Mapping[str, Sequence[int]]) -> Unischema:
    """Return the schema of windows, made from the fields of their rows.

    Each field has an additional first axis, whose length is the number of a window's rows that have this field.

    Args:
        rows: Schema of rows, after the transform.
        places: For each output field, the indices of the rows of a window that have this field, from 0.

    Example:
        >>> rows = Unischema("s", [UnischemaField("image", "uint8", (28, 28)), UnischemaField("label", "int64")])
        >>> window_schema(rows, {"image": [0, 1, 2], "label": [2]})
        Unischema('s_windows', [
          UnischemaField('image', uint8, (3, 28, 28)),
          UnischemaField('label', int64, (1,)),
        ])
    """
    fields = [
        UnischemaField(field.name, field.numpy_dtype, (len(places[field.name]), *field.shape), None, field.nullable)
        for field in rows
        if field.name in places
    ]
    return Unischema(f"{rows.name}_windows", fields)


@dataclasses.dataclass(frozen=True)
class RowsBehind:
    """Reader of row groups for windows: appends the following rows that the windows need. Thread-safe."""

    windows: Windows
    """Windows, which determine how many following rows a row group needs."""

    heads: RecentRowGroups
    """Cache of the first rows of row groups, with all columns of the files."""

    def extended(self, group: int, rows: int, read: Read) -> tuple[int, Read]:
        """Append to a row group the following rows that its windows need, as a function of type `Extended`.

        Args:
            group: Number of the row group.
            rows: Number of its rows.
            read: Function that reads the row group.

        Returns:
            Number of rows of the extended row group, and the function that reads it.
        """
        following = self.windows.following(group)
        if not following:
            return rows, read
        return rows + self.windows.num_following(group), functools.partial(self._extended, following, rows, read)

    def _extended(
        self, following: Sequence[Following], rows: int, read: Read, parts: Sequence[Part]
    ) -> Iterator[pa.Table]:
        """Yield the tables of each part (set of columns) of a row group, with the following rows appended.

        Args:
            following: Rows of later row groups to append.
            rows: Number of rows of the row group itself.
            read: Function from parts to the tables of the row group.
            parts: Sets of columns to read.
        """
        left = read(parts)
        tables = at_least(left, rows)
        for part in parts:
            given = 0
            own: list[pa.Table] = []
            while not own or given < rows:
                own.append(next(tables))
                given += own[-1].num_rows
                if part.rows_at_once is not None:
                    yield own[-1]
            after = [self._rest(rest, part) for rest in following]
            if part.rows_at_once is not None:
                yield from after
            else:
                yield pa.concat_tables([*own, *after], promote_options="permissive").combine_chunks()
        yield from left  # yields no table, but reading to the end verifies the whole row group

    def _rest(self, rest: Following, part: Part) -> pa.Table:
        # `take` copies the rows. A slice would reference the buffers of all cached rows.
        return self.heads.get(rest.group).select(part.columns).take(arrow_numbers(rest.rows))


def heads_of(windows: Windows, rows: Execution) -> RecentRowGroups:
    """Return a cache of the first rows of row groups, which windows of earlier row groups may need.

    Args:
        windows: Windows that may need the rows.
        rows: Execution of a reader of the rows.
    """

    def read(group: int) -> pa.Table:
        first, source = windows.head(group), rows.plan.source_of(group)
        parts = [Part(tuple(rows.loaders[source].fields), first=first)]
        (table,) = rows.source.datasets[source].reading()(*rows.plan.inventory.place_of(group), parts)
        return table.slice(0, first)

    return RecentRowGroups(read, HEADS_BYTES)


@dataclasses.dataclass(frozen=True, eq=False)
class WindowAssembler:
    """Assembler of windows (`NGram`): decodes rows once, then copies them into windows. Thread-safe."""

    rows: Assembler
    """Assembler of the rows that windows contain. A row is identified by its extended row group (a row group with the
    following rows that its windows need), and its index there."""

    windows: Windows
    """Windows to assemble."""

    places: Mapping[str, Sequence[int]]
    """For each output field, indices of the rows of a window that have this field, from 0."""

    schema: Unischema
    """Output fields, from `window_schema`."""

    apart: bool
    """Whether each batch has its own copies of rows, because the transform receives whole batches."""

    def begin(self, span: Span, loaded: LoadedRowGroups) -> SpanWork:
        """Return the tasks that assemble a span (consecutive batches of windows); see `Assembler.begin`."""
        covered, place_of = self._covered(span, apart=self.apart)
        work = self.rows.begin(covered, loaded)
        # Without a reference to the tasks, so that row groups can be freed before `finish` is called.
        finish, in_windows = work.finish, functools.partial(self._in_windows, span, place_of)
        return SpanWork(work.tasks, lambda: then(finish(), in_windows))

    def decoded_rows(self, span: Span) -> tuple[Assembler, Span]:
        """Return the assembler of single rows, and a span (consecutive batches) of the rows of the windows.

        A row that several windows of a batch contain occurs once in that batch.
        """
        return self.rows, self._covered(span, apart=True)[0]

    def _covered(self, span: Span, *, apart: bool) -> tuple[Span, NDArray[np.int64]]:
        """Return a span (consecutive batches) of the distinct rows of windows, and each window's indices in this span.

        The index array has shape (windows, window length). It has -1 at offsets for which the window has no fields.

        Args:
            span: Consecutive batches of windows.
            apart: Whether a row that is in windows of several batches is repeated for each batch.
        """
        wanted = sorted({place for of_field in self.places.values() for place in of_field})
        rows = self.windows.covered(span.groups, span.rows)[:, wanted].ravel()
        groups = np.repeat(span.groups, len(wanted))
        batches = np.repeat(np.arange(span.num_batches), np.diff(span.offsets) * len(wanted))
        parts = [batches] if apart else []
        streams = np.empty(0, dtype=np.uint64)
        if self.rows.draws:
            # A source of a mixture may yield a row in two of the source's epochs; the random numbers must then differ.
            streams, which = np.unique(span.random_streams(), return_inverse=True)
            parts.append(np.repeat(which.reshape(-1), len(wanted)))
        first, place_of = _each_once(*self.windows.origin(groups, rows), parts)
        picked = GroupedRows(groups[first], rows[first], None)
        offsets = np.array([0, len(first)])
        if apart:
            offsets = np.searchsorted(batches[first], np.arange(span.num_batches + 1))
        of_windows = np.full((span.num_rows, self.windows.length), -1, dtype=np.int64)
        of_windows[:, wanted] = place_of.reshape(-1, len(wanted))
        covered = dataclasses.replace(
            span, picked=picked, offsets=offsets, valid=None, random_streams=lambda: streams[parts[-1][first]]
        )
        return covered, of_windows

    def _in_windows(self, span: Span, place_of: NDArray[np.int64], rows: AssembledSpan) -> AssembledSpan:
        """Copy assembled rows into windows.

        Args:
            span: Consecutive batches of windows.
            place_of: Index of each window's rows, from `_covered`.
            rows: The assembled rows.
        """
        columns = {
            field.name: _window_column(
                rows.columns.by_name[field.name], place_of[:, list(self.places[field.name])], self.rows.buffers
            )
            for field in self.schema
        }
        if span.valid is not None:
            columns[VALID_COLUMN] = Decoded(span.valid, None)
        return AssembledSpan(span, Columns(columns))


def _each_once(
    groups: NDArray[np.int32], rows: NDArray[np.int64], parts: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the distinct rows among some rows.

    Distinct rows are sorted by `parts`, then by their order in the dataset. Equal rows of different parts count as
    distinct.

    Args:
        groups: Row group of each row, shape (n,).
        rows: Number of each row in its row group, shape (n,).
        parts: Arrays of shape (n,), such as the batch of each row.

    Returns:
        Index of the first occurrence of each distinct row, shape (distinct,); and for each row, the number of its
        distinct row, shape (n,).
    """
    key = groups * (rows.max(initial=0) + 1) + rows
    for part in reversed(parts):
        key += part * (key.max(initial=0) + 1)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return first, which


def _window_column(rows: Decoded, place_of: NDArray[np.int64], buffers: Buffers) -> Decoded:
    """Return a column of windows: the values of each window's rows, shape (windows, rows per window, …).

    Args:
        rows: The column, with one value for each distinct row.
        place_of: Index in `rows` of each row of each window, shape (windows, rows per window).
        buffers: Allocator of the result.
    """
    places = place_of.ravel()
    shape = (*place_of.shape, *rows.values.shape[1:])
    if rows.values.dtype.hasobject or len(places) == 0:
        values = rows.values[places].reshape(shape)
    else:
        values = buffers.empty(shape, rows.values.dtype)
        flat = values.reshape(len(places), *rows.values.shape[1:])
        np.take(rows.values, places, axis=0, out=flat, mode="clip")
    missing = None if rows.missing is None else rows.missing[place_of]
    return Decoded(values, missing if missing is not None and missing.any() else None)


def execution_of_windows(rows: Execution, ngram: NGram, windows: Windows) -> Execution:
    """Return the execution of a reader of windows.

    Args:
        rows: Execution of a reader of the rows; its plan has the start rows of windows.
        ngram: Window definition, with resolved fields.
        windows: Rows of each window.

    Raises:
        InvalidArgumentError: The transform removes all fields of the windows, or the rows are already windows.
    """
    if not isinstance(rows.assembler, Assembler):
        raise InvalidArgumentError(
            "an NGram must form windows from rows, got a reader that already returns windows. Pass only one NGram in "
            "schema_fields"
        )
    places, last_batch = _places(ngram, rows.schema), rows.plan.request.last_batch
    schema = window_schema(rows.schema, places)
    assembler = WindowAssembler(
        rows=dataclasses.replace(rows.assembler, origin=windows.origin),
        windows=windows,
        places=places,
        schema=schema,
        apart=rows.batched and rows.functions.are_called,
    )
    return dataclasses.replace(
        rows,
        extended=RowsBehind(windows, heads_of(windows, rows)).extended,
        assembler=assembler,
        schema=schema,
        footprint=footprint_of_windows(rows.footprint, ngram, windows, workers=rows.workers),
        hand_out=output_of(schema, last_batch, batched=True)
        if rows.batched
        else _window_output(ngram, rows.schema, last_batch),
        # Number of windows in a batch: together, they have about as many rows as the largest row group.
        rows_per_item=max(rows.rows_per_item // ngram.length, 1),
        ngram=ngram,
        windows=windows,
    )


def _window_output(ngram: NGram, rows: Unischema, last_batch: LastBatch) -> Callable[[AssembledSpan], Handout]:
    """Return the function that yields windows as dicts from offset to row (a named tuple).

    Args:
        ngram: Window definition.
        rows: All fields of a window's rows, after the transform.
        last_batch: Policy for the last batch; `"pad"` marks repeated windows.
    """
    of_offsets = [(offset, ngram.get_schema_at_timestep(rows, offset)) for offset in ngram.offsets]

    def rows_at(offset: int, schema: Unischema, columns: Mapping[str, Any], windows: int) -> list[Any]:
        make = schema.row_type._make
        if len(schema) == 0:
            return [make(())] * windows
        values = [each_value(columns[name][:, ngram.offsets_of(name).index(offset)]) for name in schema.fields]
        return [make(row) for row in zip(*values, strict=True)]

    def hand_out(span: AssembledSpan) -> Handout:
        columns = {name: column.rows(0, len(column.values)) for name, column in span.columns.by_name.items()}
        parts = [rows_at(offset, schema, columns, span.span.num_rows) for offset, schema in of_offsets]
        keys: list[Any] = list(ngram.offsets)
        if VALID_COLUMN in columns and last_batch is LastBatch.PAD:
            keys.append(VALID_COLUMN)
            parts.append(columns[VALID_COLUMN].tolist())
        return windows_of(span.span, parts, lambda window: dict(zip(keys, window, strict=True)))

    return hand_out


def _places(ngram: NGram, schema: Unischema) -> Mapping[str, Sequence[int]]:
    """For each output field, return the indices of the rows of a window that have this field."""
    asked_at = {name: ngram.offsets_of(name) for name in schema.fields}
    places = {name: [offset - ngram.offsets[0] for offset in offsets] for name, offsets in asked_at.items() if offsets}
    if not places:
        raise InvalidArgumentError(
            f"the transform must keep at least one field that {ngram!r} names, got none. Correct removed_fields or "
            "selected_fields of the transform_spec"
        )
    return places


def open_window_reader(dataset: Dataset, ngram: NGram, options: ReadOptions, *, batched: bool = False) -> Reader:
    """Open a reader of windows (`NGram`). It may read all timestamps, to find the first row of each window.

    A window is a sample: shards, shuffling and counts apply to windows instead of rows. A reader from `make_reader`
    yields dicts from offset to named tuple, as in Petastorm (empty for offsets without fields), with a key `"valid"`
    for `last_batch="pad"`. Batches have one array per field, of shape `(windows, k, *shape)`, where k is the number of
    offsets that have the field, ascending. Text, bytes, decimals and fields of free shape are object arrays `(windows,
    k)`. A batch of `make_batch_reader` has about as many rows as the largest row group.

    Args:
        dataset: The dataset to read.
        ngram: The definition of a window.
        options: Reader options. Filters select rows before windows are formed.
        batched: Whether iteration yields batches of windows, and the transform receives DataFrames.

    Raises:
        InvalidArgumentError: An argument is invalid, or rows are not sorted by timestamp.
        SchemaError: A column of the NGram or of a filter cannot be read; the message has the reason.
        NoDataAvailableError: There are fewer windows than ranks, with `last_batch="even"`.
    """
    run = options.run
    named = [ngram.timestamp_field, *ngram.group_by, *ngram.get_field_names_at_all_timesteps()]
    dataset.refuse_unreadable(field.name if isinstance(field, UnischemaField) else field for field in named)
    ngram = _resolved(ngram, dataset.schema, run.transform_spec)
    names = {field.name for field in ngram.get_field_names_at_all_timesteps() if isinstance(field, UnischemaField)}
    columns = [field for field in dataset.schema if field.name in names]
    if not columns:
        raise InvalidArgumentError(
            f"an NGram must name at least one field of {dataset.url}, got {ngram!r}. Name the fields that the "
            "transform receives, too"
        )
    ask = dataclasses.replace(options.plan, columns=columns)
    dataset.planned(ask)  # raises for invalid options before anything is read
    selection = selected_rows(dataset, [field.name for field in columns], options.rows, run, batched=batched)
    if ngram.group_by:
        starts, windows = windows_of_series(dataset, ngram, selection, workers=run.workers)
    else:
        kept_in = options.rows.filter_cache
        starts = select_window_starts(dataset, ngram, selection, workers=run.workers, filter_cache=kept_in)
        windows = Windows(dataset.inventory.rows, selection, starts, ngram.length)

    def build(
        source: Readable, plan: RankPlan, *, workers: Workers, transform: TransformSpec | None, batched: bool
    ) -> Execution:
        rows = build_execution(source, plan, workers=workers, transform=transform, batched=batched)
        return execution_of_windows(rows, ngram, windows)

    plan = dataset.planned(ask, starts)
    return Reader(dataset, plan, workers=run.workers, transform=run.transform_spec, batched=batched, build=build)


def _resolved(ngram: NGram, schema: Unischema, transform: AnyTransform | None) -> NGram:
    """Return the NGram with names replaced by fields: fields of the dataset, and fields that the transform adds.

    Raises:
        InvalidArgumentError: A name matches no field, or several fields match the timestamp.
    """
    spec = as_transform_spec(transform)
    after = schema if spec is None else schema_after(schema, spec)
    fields = Unischema(schema.name, [*schema, *(field for field in after if field.name not in schema)])
    try:
        return ngram.resolved(fields)
    except InvalidArgumentError as problem:
        if spec is None or spec.func is None:
            raise
        raise InvalidArgumentError(
            f"{problem}. A field that an NGram names and the transform adds must be declared in edit_fields"
        ) from None


def footprint_of_windows(
    rows: Footprint, ngram: NGram, windows: Windows | None = None, *, workers: Workers
) -> Footprint:
    """Return the memory footprint of a reader of windows, computed from that of a reader of the rows.

    Args:
        rows: Memory footprint of a reader of the rows.
        ngram: Window definition.
        windows: Rows of each window; None means consecutive rows.
        workers: Workers, which share the cached first rows of row groups.
    """
    inventory, more = rows.inventory, ngram.length - 1 if windows is None else windows.most_following
    row_bytes = -(-int(inventory.decoded_bytes.sum()) // max(inventory.num_rows, 1))
    extended = dataclasses.replace(
        inventory, rows=inventory.rows + more, decoded_bytes=inventory.decoded_bytes + more * row_bytes
    )
    heads = min(HEADS_BYTES, int(np.broadcast_to(more, inventory.rows.shape).sum()) * row_bytes)
    of_each = heads // max(workers.at_a_time, 1)
    return dataclasses.replace(rows, inventory=extended, rows_of_window=len(ngram.fields), head_bytes=of_each)
