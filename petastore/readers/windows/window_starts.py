"""Window starts of a dataset: found by reading the timestamps, once, and remembered as a selection.

Row groups are read side by side, and of each one little is kept. What is found is written down beside the selections of
filters; processes that ask at the same time each read for themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.decoding.decode import Decoded, decode_cells
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.plan.selection import Pruned, Selection
from petastore.plan.unit import ReadUnit
from petastore.plan.windows.ngram import NGram
from petastore.plan.windows.series import SeriesLine, SeriesOfGroup, SeriesWindows, series_of_group
from petastore.plan.windows.timestamps import comparable, most_between
from petastore.plan.windows.window_starts import Stretch, first_unsorted, stretch_of, window_starts
from petastore.plan.windows.windows import WindowStarts
from petastore.schema.field import UnischemaField
from petastore.selecting.remembered import RememberedSelections, selection_directory, selection_of
from petastore.selecting.selection_file import as_kept
from petastore.work.futures import in_order
from petastore.work.workers import Workers

__all__ = ["select_window_starts", "windows_of_series"]

_Kept = TypeVar("_Kept")

_VERSION = 1  # of what windows are: a change makes all remembered starts foreign


def select_window_starts(
    dataset: Dataset,
    ngram: NGram,
    selection: Selection | None = None,
    *,
    workers: Workers | None = None,
    filter_cache: str | os.PathLike[str] | bool = True,
) -> WindowStarts:
    """The rows of a dataset with which windows begin.

    Args:
        dataset: Where.
        ngram: What a window is.
        selection: Of which rows windows are made, from `petastore.select_rows`; the others are as if they were not
            there. None is all.
        workers: Who reads; None is threads, one for each CPU.
        filter_cache: As for `petastore.select_rows`.

    Raises:
        InvalidArgumentError: The timestamps are not sorted inside a row group, or one is missing: file, row group and
            row are named. Or they are of a kind that `delta_threshold` does not go with.
        DecodeError: A timestamp is not what its field declares.
        DatasetChangedError: A file is not the one that the inventory describes.

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
    directory = selection_directory(filter_cache)
    field = ngram.timestamp_in(dataset.schema)
    most = most_between(ngram.delta_threshold, field)
    rows = dataset.inventory.rows
    # A version without digests may be another one that looks alike.
    is_version_known = all(file.digest for file in dataset.inventory.files)
    memory = RememberedSelections(directory) if directory is not None and is_version_known else None
    key = _key(dataset, ngram, field, most, selection)
    starts = None if memory is None else memory.load(key, rows)
    if starts is None:
        timestamps = _Timestamps(dataset, field, selection, ())
        starts = _found(dataset, ngram, timestamps, most, workers or Workers())
        if memory is not None:
            memory.save(key, starts, rows)
    among = None if selection is None else selection.fingerprint
    return WindowStarts(starts.counts, starts.bitmaps, starts.pruned, ngram.length, among)


def windows_of_series(
    dataset: Dataset, ngram: NGram, selection: Selection | None = None, *, workers: Workers | None = None
) -> tuple[WindowStarts, SeriesWindows]:
    """Return the rows with which windows begin inside each series, and the rows that each window covers.

    All timestamps and series are read each time: which rows a window covers is not remembered.

    Args:
        dataset: Where.
        ngram: What a window is; it has `group_by`.
        selection: As for `select_window_starts`.
        workers: As for `select_window_starts`.

    Raises:
        InvalidArgumentError: The timestamps of a series are not sorted inside a row group, or a timestamp or series is
            missing.
        DecodeError: A timestamp is not what its field declares.
        DatasetChangedError: A file is not the one that the inventory describes.
    """
    field, series = ngram.timestamp_in(dataset.schema), ngram.series_in(dataset.schema)
    most, rows = most_between(ngram.delta_threshold, field), dataset.inventory.rows
    timestamps = _Timestamps(dataset, field, selection, tuple(key.name for key in series))
    parts = timestamps.of_groups(timestamps.series, most, workers or Workers())
    line = SeriesLine.of(len(rows), parts)
    flags = line.window_starts(parts, most, length=ngram.length, overlap=ngram.timestamp_overlap)
    kept = {}
    for group, of_group in flags.items():
        of_rows = np.zeros(int(rows[group]), dtype=np.bool_)
        of_rows[line.rows_of(group)] = of_group
        kept[group] = as_kept(of_rows)
    starts = _with_pruned(selection_of(kept, rows), selection, rows)
    among = None if selection is None else selection.fingerprint
    names = tuple(key.name for key in series)
    found = WindowStarts(starts.counts, starts.bitmaps, starts.pruned, ngram.length, among, names)
    return found, SeriesWindows(rows, selection, found, ngram.length, line)


def _found(dataset: Dataset, ngram: NGram, timestamps: _Timestamps, most: Any, workers: Workers) -> Selection:
    """The rows with which windows begin, and what left out the others."""
    rows, selection = dataset.inventory.rows, timestamps.selection
    stretches = list(timestamps.of_groups(timestamps.stretch, most, workers).values())
    flags = window_starts(stretches, most, length=ngram.length, overlap=ngram.timestamp_overlap)
    kept = {
        group: as_kept(_of_rows(of_group, int(rows[group]), group, selection))
        for group, of_group in zip(timestamps.groups, flags, strict=True)
    }
    return _with_pruned(selection_of(kept, rows), selection, rows)


def _with_pruned(starts: Selection, selection: Selection | None, rows: NDArray[np.int64]) -> Selection:
    """Window starts with what left out the other rows."""
    before = Selection(rows, {}) if selection is None else selection
    left_out = int((before.counts - starts.counts).sum())
    row_groups = int(((before.counts > 0) & (starts.counts == 0)).sum())
    pruned = (Pruned("windows", row_groups, left_out),) if left_out else ()
    return dataclasses.replace(starts, pruned=before.pruned + pruned)


def _key(dataset: Dataset, ngram: NGram, field: UnischemaField, most: Any, selection: Selection | None) -> str:
    windows = [ngram.length, ngram.timestamp_overlap, str(most), repr(field)]
    among = None if selection is None else selection.fingerprint
    text = json.dumps([_VERSION, "windows", dataset.inventory.fingerprint, windows, among])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _of_rows(flags: NDArray[np.bool_], rows: int, group: int, selection: Selection | None) -> NDArray[np.bool_]:
    """Flags of the selected rows of a row group as flags of all of its rows."""
    if selection is None or group not in selection.bitmaps:
        return flags
    of_rows = np.zeros(rows, dtype=np.bool_)
    of_rows[np.flatnonzero(selection.bitmaps[group])[flags]] = True
    return of_rows


class _Timestamps:
    """The timestamps of a dataset, and the columns that name the series of its rows."""

    def __init__(
        self, dataset: Dataset, field: UnischemaField, selection: Selection | None, series: tuple[str, ...]
    ) -> None:
        self._dataset = dataset
        self._field = field
        self.selection = selection
        """Which rows windows are made of; None is all."""
        self._series = series
        self._of_partitions = dataset.partition_values((field.name, *series))
        counts = dataset.inventory.rows if selection is None else selection.counts
        self.groups: list[int] = np.flatnonzero(counts).tolist()
        """The row groups that have rows of which windows are made."""

    def stretch(self, most: Any, group: int) -> Stretch:
        """What is kept of a row group."""
        rows = self._rows(group)
        stamps = self._decoded(group, rows, self._cells(group)[self._field.name])
        values = self._comparable(stamps, group, rows)
        wrong = first_unsorted(values)
        if wrong is not None:
            self._refuse_unsorted(stamps, group, rows, wrong, wrong - 1)
        return stretch_of(values, most)

    def series(self, most: Any, group: int) -> SeriesOfGroup:
        """Return the series of the rows of one row group."""
        rows, cells = self._rows(group), self._cells(group)
        stamps = self._decoded(group, rows, cells[self._field.name])
        codes, keys = self._coded([_chosen(cells[name], rows) for name in self._series], group, rows)
        kept = series_of_group(codes, keys, self._comparable(stamps, group, rows), most)
        if kept.unsorted is not None:
            self._refuse_unsorted(stamps, group, rows, *kept.unsorted)
        if rows is None:
            return kept
        order = rows if kept.order is None else rows[kept.order]
        return dataclasses.replace(kept, order=order.astype(np.int32))

    def _coded(
        self, columns: list[pa.Array], group: int, rows: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int32], list[tuple[Any, ...]]]:
        """The series of each row as a place among those that there are, in the order in which they come."""
        parts, values = [], []
        for name, column in zip(self._series, columns, strict=True):
            gone = np.flatnonzero(_is_nothing(column))
            if len(gone):
                raise InvalidArgumentError(
                    f"{self._place(group, rows, int(gone[0]))}: the series {name!r} is missing, so windows cannot "
                    "be made of these rows; leave such rows out by filters"
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
            raise InvalidArgumentError(
                f"{self._place(group, rows, int(gone[0]))}: the timestamp {self._field.name!r} is missing, so windows "
                "cannot be made of these rows; leave such rows out by filters"
            )
        return values

    def _refuse_unsorted(
        self, stamps: Decoded, group: int, rows: NDArray[np.int64] | None, wrong: int, before: int
    ) -> NoReturn:
        of_series = " of its series" if self._series else ""
        raise InvalidArgumentError(
            f"{self._place(group, rows, wrong)}: the timestamp {self._field.name!r} is {stamps.values[wrong]}, "
            f"after {stamps.values[before]} in the row before{of_series}; windows are made of rows that are sorted by "
            "it inside each row group: sort them when you write the dataset"
            + ("" if self._series else ", or name the column that tells series apart: NGram(…, group_by=…)")
        )

    def _rows(self, group: int) -> NDArray[np.int64] | None:
        """The rows of a row group of which windows are made; None is all."""
        bitmap = None if self.selection is None else self.selection.bitmaps.get(group)
        return None if bitmap is None else np.flatnonzero(bitmap)

    def _decoded(self, group: int, rows: NDArray[np.int64] | None, cells: pa.Array) -> Decoded:
        try:
            chosen = _chosen(cells, rows)
            # What is missing is told by us, who know what it is needed for.
            return decode_cells(chosen, _nullable(self._field), codec_of(self._field), max_cell_bytes=None)
        except DecodeError as problem:
            if problem.row is not None and rows is not None:
                problem.row = int(rows[problem.row])
            file, ordinal = self._dataset.inventory.place_of(group)
            raise problem.at(file=file.path, row_group=ordinal) from problem.__cause__

    def _cells(self, group: int) -> dict[str, pa.Array]:
        """The columns of a row group, as they are stored."""
        inventory, names = self._dataset.inventory, dict.fromkeys((self._field.name, *self._series))
        of_group = arrow_numbers(np.full(int(inventory.rows[group]), group))
        cells = {name: self._of_partitions[name].take(of_group) for name in names if name in self._of_partitions}
        stored = [name for name in names if name not in cells]
        if stored:
            table = self._dataset.read(ReadUnit.whole(inventory, group, stored))
            cells |= {name: _one_array(table.column(name)) for name in stored}
        return cells

    def of_groups(self, kept: Callable[[Any, int], _Kept], most: Any, workers: Workers) -> dict[int, _Kept]:
        """Return what `kept` makes of each row group; row groups are read concurrently."""
        pool = workers.pool()
        try:
            return dict(
                zip(
                    self.groups,
                    (of_one for _, of_one in in_order(functools.partial(kept, most), self.groups, pool)),
                    strict=True,
                )
            )
        finally:
            pool.close()
            pool.join()

    def _place(self, group: int, rows: NDArray[np.int64] | None, place: int) -> str:
        file, ordinal = self._dataset.inventory.place_of(group)
        row = place if rows is None else int(rows[place])
        return f"row {row:,} of row group {ordinal:,} in {file.path}"


def _missing(values: NDArray[Any], missing: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Which timestamps are missing, or are no numbers; empty where none is."""
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


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, without the dictionary of a row group, which others do not share."""
    array = column.combine_chunks()
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def _is_nothing(column: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of missing or NaN cells."""
    nothing: NDArray[np.bool_] = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return nothing
