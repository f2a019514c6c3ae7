"""Window starts of a dataset: the rows at which windows (`NGram`) begin, computed from the timestamps of all rows.

Several row groups are read at the same time, and only a few values of each stay in memory; with `group_by`, at most 4
bytes per row in addition. Without `group_by`, the result is cached as a selection, in the same directory as the results
of filters. Processes that start at the same time read the timestamps independently.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import arrow_numbers
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.dataset.stored_cells import stored_cells
from petastore.decoding.decode import Decoded, decode_cells
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.plan.selection import Pruned, Selection
from petastore.plan.windows.ngram import NGram
from petastore.plan.windows.series import SeriesLine, SeriesOfGroup, series_of_group
from petastore.plan.windows.window_starts import comparable, most_between
from petastore.plan.windows.windows import Windows, WindowStarts
from petastore.schema.field import UnischemaField
from petastore.selecting.remembered import selections_of
from petastore.work.futures import in_order
from petastore.work.pools import Workers

__all__ = ["select_window_starts", "windows_of_series"]

_VERSION = 1  # version of the window definition; a change invalidates all cached starts


def select_window_starts(
    dataset: Dataset,
    ngram: NGram,
    selection: Selection | None = None,
    *,
    workers: Workers | None = None,
    filter_cache: str | os.PathLike[str] | bool = True,
) -> WindowStarts:
    """Return the rows of a dataset at which windows begin.

    Args:
        dataset: Dataset of the rows.
        ngram: Window definition.
        selection: Rows from which windows are formed, from `petastore.select_rows`; the other rows are ignored. None
            means all.
        workers: Workers that read; None means one thread per CPU.
        filter_cache: As in `petastore.select_rows`.

    Raises:
        InvalidArgumentError: The timestamps are not sorted inside a row group, or a timestamp is missing (the message
            names file, row group and row), or `delta_threshold` does not match the type of the timestamps.
        DecodeError: A timestamp does not match its field.
        DatasetChangedError: A file differs from the inventory.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("track", [petastore.UnischemaField("time", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = [{"time": time} for time in (0, 1, 2, 3, 9, 10)]
        ...     _ = petastore.write_dataset(folder, schema, rows, rows_per_row_group=2)
        ...     dataset = petastore.open_dataset(folder)
        ...     select_window_starts(dataset, NGram({0: ["time"], 1: ["time"]}, 1, "time"), filter_cache=False)
        WindowStarts(4 rows in 3 of 3 row groups)
    """
    if ngram.group_by:
        return windows_of_series(dataset, ngram, selection, workers=workers)[0]
    memory = selections_of(dataset, filter_cache)
    field = ngram.timestamp_in(dataset.schema)
    most = most_between(ngram.delta_threshold, field)
    rows = dataset.inventory.rows
    among = None if selection is None else selection.fingerprint
    windows = [ngram.length, ngram.timestamp_overlap, str(most), repr(field)]
    key = "" if memory is None else memory.key(["windows", _VERSION, windows, among])
    starts = None if memory is None else memory.load(key, rows)
    if starts is None:
        starts, _ = _found(dataset, ngram, selection, workers or Workers())
        if memory is not None:
            memory.save(key, starts, rows)
    return WindowStarts(starts.counts, starts.bitmaps, starts.pruned, ngram.length, among)


def windows_of_series(
    dataset: Dataset, ngram: NGram, selection: Selection | None = None, *, workers: Workers | None = None
) -> tuple[WindowStarts, Windows]:
    """Return the rows at which windows of each series begin, and the rows that each window contains.

    Each call reads all timestamps and keys of series, because the result is not cached.

    Args:
        dataset: Dataset of the rows.
        ngram: Window definition with `group_by`.
        selection: As in `select_window_starts`.
        workers: As in `select_window_starts`.

    Raises:
        InvalidArgumentError: The timestamps of a series are not sorted inside a row group, or a timestamp or series is
            missing.
        DecodeError: A timestamp does not match its field.
        DatasetChangedError: A file differs from the inventory.
    """
    starts, line = _found(dataset, ngram, selection, workers or Workers())
    among = None if selection is None else selection.fingerprint
    names = tuple(key.name for key in ngram.series_in(dataset.schema))
    found = WindowStarts(starts.counts, starts.bitmaps, starts.pruned, ngram.length, among, names)
    return found, Windows(dataset.inventory.rows, selection, found, ngram.length, line)


def _found(
    dataset: Dataset, ngram: NGram, selection: Selection | None, workers: Workers
) -> tuple[Selection, SeriesLine]:
    """Return the rows at which windows begin, with the number of skipped rows; and all rows, ordered by series."""
    field, rows = ngram.timestamp_in(dataset.schema), dataset.inventory.rows
    most = most_between(ngram.delta_threshold, field)
    names = tuple(key.name for key in ngram.series_in(dataset.schema))
    timestamps = _Timestamps(dataset, field, selection, names)
    parts = timestamps.series(most, workers)
    line = SeriesLine.of(len(rows), parts)
    flags = line.window_starts(parts, most, length=ngram.length, overlap=ngram.timestamp_overlap)
    kept = ((group, _of_rows(of_group, int(rows[group]), timestamps.rows_of(line, group))) for group, of_group in flags)
    # Without `group_by=`, row groups are computed in order, so each mask is packed before the next one is computed.
    return _with_pruned(Selection.of_flags(sorted(kept) if names else kept, rows), selection, rows), line


def _with_pruned(starts: Selection, selection: Selection | None, rows: NDArray[np.int64]) -> Selection:
    """Return the window starts, with the numbers of row groups and rows at which no window begins."""
    before = Selection(rows, {}) if selection is None else selection
    left_out = int((before.counts - starts.counts).sum())
    row_groups = int(((before.counts > 0) & (starts.counts == 0)).sum())
    pruned = (Pruned("windows", row_groups, left_out),) if left_out else ()
    return dataclasses.replace(starts, pruned=before.pruned + pruned)


def _of_rows(flags: NDArray[np.bool_], rows: int, order: NDArray[Any] | None) -> NDArray[np.bool_]:
    """Convert the flags of some rows to a mask of all rows of a row group, shape (rows,).

    Args:
        flags: Whether a window begins at each row of `order`.
        rows: Number of rows of the row group.
        order: Row numbers to which the flags belong, each once; other rows get False. None means all rows in file
            order.
    """
    if order is None:
        return flags
    of_rows = np.zeros(rows, dtype=np.bool_)
    of_rows[order] = flags
    return of_rows


class _Timestamps:
    """Timestamps of a dataset, and the columns that identify the series of each row."""

    def __init__(
        self, dataset: Dataset, field: UnischemaField, selection: Selection | None, series: tuple[str, ...]
    ) -> None:
        self._dataset = dataset
        self._field = field
        self.selection = selection
        """Rows from which windows are formed; None means all."""
        self._series = series
        self._of_partitions = dataset.partition_values((field.name, *series))
        counts = dataset.inventory.rows if selection is None else selection.counts
        self.groups: list[int] = np.flatnonzero(counts).tolist()
        """Numbers of the row groups with rows from which windows are formed."""

    def series(self, most: Any, workers: Workers) -> dict[int, SeriesOfGroup]:
        """Return the series of each row group that has rows, by its number; several row groups are read at a time.

        Args:
            most: Maximum difference between the timestamps of consecutive rows of a window, from `most_between`.
            workers: Workers that read.
        """
        pool = workers.pool()
        try:
            return dict(in_order(functools.partial(self._series_of, most), self.groups, pool))
        finally:
            pool.close()
            pool.join()

    def _series_of(self, most: Any, group: int) -> SeriesOfGroup:
        """Return the series of a row group: its rows sorted by series, with keys and first and last timestamps."""
        rows, cells = self._rows(group), self._cells(group)
        stamps = self._decoded(group, rows, cells[self._field.name])
        codes, keys = np.zeros(len(stamps.values), np.int32), [()]
        if self._series:
            codes, keys = self._coded([_chosen(cells[name], rows) for name in self._series], group, rows)
        kept = series_of_group(codes, keys, self._comparable(stamps, group, rows), most)
        if kept.unsorted is not None:
            self._refuse_unsorted(stamps, group, rows, *kept.unsorted)
        if rows is None or not self._series:
            return kept
        order = rows if kept.order is None else rows[kept.order]
        return dataclasses.replace(kept, order=order.astype(np.int32))

    def rows_of(self, line: SeriesLine, group: int) -> NDArray[Any] | None:
        """Return a row group's rows from which windows are formed, sorted by series; None means all in file order.

        Args:
            line: All rows of the dataset, ordered by series.
            group: Number of the row group.
        """
        return line.orders.get(group) if self._series else self._rows(group)

    def _coded(
        self, columns: list[pa.Array], group: int, rows: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int32], list[tuple[Any, ...]]]:
        """Number the series of a row group by first occurrence.

        Args:
            columns: Columns of `group_by`, with the rows from which windows are formed.
            group: Number of the row group, for errors.
            rows: Numbers of these rows, for errors; None means all rows.

        Returns:
            Number of each row's series, shape (rows,); and the key of each series, a tuple with one value per column.

        Raises:
            InvalidArgumentError: A value is null or NaN.
        """
        parts, values = [], []
        for name, column in zip(self._series, columns, strict=True):
            gone = np.flatnonzero(_is_nothing(column))
            if len(gone):
                self._refuse_missing(
                    "group_by column", name, group, rows, int(gone[0]), is_nan=column[gone[0]].is_valid
                )
            encoded = column.dictionary_encode()
            parts.append(encoded.indices.to_numpy(zero_copy_only=False))
            values.append(encoded.dictionary.to_pylist())
        _, first, codes = np.unique(np.stack(parts), axis=1, return_index=True, return_inverse=True)
        by_first = np.argsort(first)
        keys = [
            tuple(of_column[part[row]] for part, of_column in zip(parts, values, strict=True))
            for row in first[by_first].tolist()
        ]
        return np.argsort(by_first).astype(np.int32)[codes.reshape(-1)], keys

    def _comparable(self, stamps: Decoded, group: int, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        values = comparable(stamps.values)
        gone = np.flatnonzero(_missing(values, stamps.missing))
        if len(gone):
            first = int(gone[0])
            is_null = values[first] is None or (stamps.missing is not None and bool(stamps.missing[first]))
            self._refuse_missing("timestamp", self._field.name, group, rows, first, is_nan=not is_null)
        return values

    def _refuse_missing(
        self, role: str, column: str, group: int, rows: NDArray[np.int64] | None, place: int, *, is_nan: bool
    ) -> NoReturn:
        rule, got, condition = ("NaN", "NaN", "<= float('inf')") if is_nan else ("null", "a null", ".is_valid()")
        raise InvalidArgumentError(
            f"{self._place(group, rows, place)}: the {role} {column!r} must not be {rule} for windows, got {got}. "
            f"Leave such rows out with filters=col({column!r}){' ' if is_nan else ''}{condition}"
        )

    def _refuse_unsorted(
        self, stamps: Decoded, group: int, rows: NDArray[np.int64] | None, wrong: int, before: int
    ) -> NoReturn:
        of_series = " of its series" if self._series else ""
        raise InvalidArgumentError(
            f"{self._place(group, rows, wrong)}: rows must be sorted by the timestamp {self._field.name!r} inside each "
            f"row group, got {stamps.values[wrong]} after {stamps.values[before]} in the row before{of_series}. Sort "
            "the rows when you write the dataset"
            + ("" if self._series else ", or name the column that tells series apart: NGram(…, group_by=…)")
        )

    def _rows(self, group: int) -> NDArray[np.int64] | None:
        """Return the rows of a row group from which windows are formed; None means all."""
        bitmap = None if self.selection is None else self.selection.bitmaps.get(group)
        return None if bitmap is None else np.flatnonzero(bitmap)

    def _decoded(self, group: int, rows: NDArray[np.int64] | None, cells: pa.Array) -> Decoded:
        try:
            chosen = _chosen(cells, rows)
            # Nulls are allowed here, because `_comparable` reports them with a clearer message.
            return decode_cells(chosen, _nullable(self._field), codec_of(self._field), max_cell_bytes=None)
        except DecodeError as problem:
            if problem.row is not None and rows is not None:
                problem.row = int(rows[problem.row])
            file, ordinal = self._dataset.inventory.place_of(group)
            raise problem.at(file=file.path, row_group=ordinal) from problem.__cause__

    def _cells(self, group: int) -> dict[str, pa.Array]:
        """Return the columns of a row group by name, with dictionary columns decoded.

        Dictionary columns are decoded, because dictionaries differ between row groups.
        """
        names = tuple(dict.fromkeys((self._field.name, *self._series)))
        cells = stored_cells(self._dataset, names, group, partitions=self._of_partitions)
        return {
            name: column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
            for name, column in cells.items()
        }

    def _place(self, group: int, rows: NDArray[np.int64] | None, place: int) -> str:
        file, ordinal = self._dataset.inventory.place_of(group)
        row = place if rows is None else int(rows[place])
        return f"row {row:,} of row group {ordinal:,} in {file.path}"


def _missing(values: NDArray[Any], missing: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Return a mask of the timestamps that are missing or NaN, shape (rows,), or (0,) if no value can be missing."""
    if values.dtype == np.dtype(object):
        return np.array([value is None or value.is_nan() for value in values], dtype=np.bool_)
    gone = np.isnan(values) if values.dtype.kind == "f" else np.zeros(0, dtype=np.bool_)
    if missing is None:
        return gone
    return missing | gone if len(gone) else missing


def _nullable(field: UnischemaField) -> UnischemaField:
    return UnischemaField(field.name, field.numpy_dtype, field.shape, field.codec, nullable=True)


def _chosen(cells: pa.Array, rows: NDArray[np.int64] | None) -> pa.Array:
    return cells if rows is None else cells.take(arrow_numbers(rows))


def _is_nothing(column: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of the cells that are null or NaN, shape (rows,)."""
    nothing: NDArray[np.bool_] = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return nothing
