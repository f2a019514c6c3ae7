"""Windows executed: row groups at hand with the rows that follow them, and columns of windows made of columns of rows.

A row group in which windows begin is read together with the rows that they need of those after it. Of these little more
than the first `length - 1` rows is fetched and decoded, and what was is kept for a while: where row groups have fewer
rows than a window, several before them need the same. So each row group is fetched once, and its beginning once more;
in another order than the file's, and where windows are long and row groups small, more often than once.

A span of windows is made in two steps. All rows that its windows cover are assembled as any rows are, each row once
however many windows of the span it is in, and transformed; then their values are laid side by side window by window. A
row that windows of several spans cover is decoded once for each of these spans.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.plan.plan import Span
from petastore.plan.unit import ReadUnit
from petastore.plan.windows.windows import Following, Windows
from petastore.readers.assembly.assemble import VALID_COLUMN, AssembledSpan, Assembler, LoadedRowGroups, SpanWork
from petastore.readers.batch import Columns
from petastore.readers.loaded.loader import Read, at_least
from petastore.readers.loaded.loading import Loading, Readable
from petastore.readers.loaded.recent_row_groups import RecentRowGroups
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.storage.row_groups.asked_columns import Part
from petastore.work.futures import after

__all__ = ["HEADS_BYTES", "RowsBehind", "WindowAssembler", "heads_of", "window_schema"]

HEADS_BYTES = 16 * 1024 * 1024
"""Bytes of first rows of row groups that are kept; one row group's, where these are more."""


def window_schema(rows: Unischema, places: Mapping[str, Sequence[int]]) -> Unischema:
    """What batches of windows have: of each field an axis in front, as long as the window has rows with the field.

    Args:
        rows: What rows are, after the transform.
        places: Of each field that comes out: at which rows of a window, counted from 0, it is wanted.

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
    """Reads row groups with the rows that follow them. Thread-safe: holds no state."""

    windows: Windows
    """Which rows follow."""

    heads: RecentRowGroups
    """The first rows of row groups, with all columns that the files hold."""

    def extended(self, group: int, rows: int, read: Read) -> tuple[int, Read]:
        """How many rows a row group has with those that follow, and what reads them; see `Loading.extended`."""
        following = self.windows.following(group)
        if not following:
            return rows, read
        return rows + self.windows.num_following(group), functools.partial(self._extended, following, rows, read)

    def _extended(
        self, following: Sequence[Following], rows: int, read: Read, parts: Sequence[Part]
    ) -> Iterator[pa.Table]:
        """The tables of the row group's parts, each followed by those of the rows that follow."""
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
        yield from left  # there is none; whoever reads to the end has all of the row group checked

    def _rest(self, rest: Following, part: Part) -> pa.Table:
        # Not a slice: whoever looks into the buffers finds the rows alone.
        return self.heads.get(rest.group).select(part.columns).take(arrow_numbers(rest.rows))


def heads_of(
    windows: Windows, unit_of: Callable[[int], ReadUnit], source: Readable, loading: Loading
) -> RecentRowGroups:
    """The first rows of row groups, as far as windows that begin before may need them; the last ones are kept.

    Args:
        windows: What may need them.
        unit_of: `Plan.unit`.
        source: Where row groups are.
        loading: How they are loaded; says which columns their files hold.
    """

    def read(group: int) -> pa.Table:
        first, unit, source_of = windows.head(group), unit_of(group), loading.source_of(group)
        parts = [Part(tuple(loading.loaders[source_of].fields), first=first)]
        (table,) = source.datasets[source_of].reading()(unit.file, unit.row_group, parts)
        return table.slice(0, first)

    return RecentRowGroups(read, HEADS_BYTES)


@dataclasses.dataclass(frozen=True, eq=False)
class WindowAssembler:
    """Makes spans of windows. Thread-safe, as `Assembler` is."""

    rows: Assembler
    """Makes the rows that they cover; a row is named by an extended row group and its place there."""

    windows: Windows
    """Which these are."""

    places: Mapping[str, Sequence[int]]
    """Of each field that comes out: at which rows of a window, counted from 0, it is wanted."""

    schema: Unischema
    """The fields that come out, as `window_schema` says."""

    apart: bool
    """Whether the rows of a batch are made for themselves, as functions of whole batches want it."""

    def begin(self, span: Span, loaded: LoadedRowGroups) -> SpanWork:
        """The work of a span; see `Assembler.begin`."""
        covered, place_of = self._covered(span, apart=self.apart)
        work = self.rows.begin(covered, loaded)
        return SpanWork(work.tasks, functools.partial(self._finish_windows, span, place_of, work.finish))

    def decoded_rows(self, span: Span) -> tuple[Assembler, Span]:
        """Who decodes rows for a span, and which these are: those that the windows of its batches cover."""
        return self.rows, self._covered(span, apart=True)[0]

    def _covered(self, span: Span, *, apart: bool) -> tuple[Span, NDArray[np.int64]]:
        """The rows that the windows of a span cover, and where those of each window stand among them.

        Args:
            span: Of windows.
            apart: Whether rows that windows of several batches cover are there for each of these batches.
        """
        wanted = sorted({place for of_field in self.places.values() for place in of_field})
        rows = self.windows.covered(span.groups, span.rows)[:, wanted].ravel()
        groups = np.repeat(span.groups, len(wanted))
        batches = np.repeat(np.arange(span.num_batches), np.diff(span.offsets) * len(wanted))
        parts = [batches] if apart else []
        streams = np.empty(0, dtype=np.uint64)
        if self.rows.draws:
            # A source of a mixture may come to a row in two of its epochs: its random numbers differ then.
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

    def _finish_windows(
        self,
        span: Span,
        place_of: NDArray[np.int64],
        finish: Callable[[], AssembledSpan | Future[AssembledSpan]],
    ) -> AssembledSpan | Future[AssembledSpan]:
        made = finish()
        if isinstance(made, Future):
            return after([made], lambda: self._laid(span, place_of, made.result()))
        return self._laid(span, place_of, made)

    def _laid(self, span: Span, place_of: NDArray[np.int64], rows: AssembledSpan) -> AssembledSpan:
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
    """Of rows of which some come several times: where each stands first, and which of these each one is.

    They are in the order of the first of `parts`, which tell equal rows apart, of the next one, and so on, and then of
    the dataset.
    """
    key = groups * (rows.max(initial=0) + 1) + rows
    for part in reversed(parts):
        key += part * (key.max(initial=0) + 1)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return first, which


def _window_column(rows: Decoded, place_of: NDArray[np.int64], buffers: Buffers) -> Decoded:
    """The values of rows laid side by side, shape (windows, rows of each, …)."""
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
