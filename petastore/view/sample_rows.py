"""Rows of a viewer page: select rows, and read their cells up to a limit of bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from petastore.arrow import arrow_numbers
from petastore.dataset import Dataset
from petastore.errors import PetastoreError
from petastore.expressions import Expression
from petastore.inventory import Inventory
from petastore.schema.field import UnischemaField
from petastore.selecting.filter import filter_row_groups
from petastore.storage.footers.footer import Footer
from petastore.storage.row_groups.asked_columns import Part
from petastore.view.cells import MOST_CELL_BYTES, Cell, cell_of
from petastore.work.pools import Workers

__all__ = ["Matches", "RowPosition", "bytes_per_row", "cells_of", "matching_places", "places_from", "stored_rows"]

_PAGE_BYTES = 48 * 1024 * 1024
"""Maximum decompressed bytes of cells in memory at a time."""

_STREAMED_BYTES = 2 * 1024**3
"""Maximum decompressed bytes of a column that are read, part by part, to reach a later row of a local file."""

_FETCHED_BYTES = 16 * 1024 * 1024
"""Maximum stored bytes of a remote row group for which whole column chunks are fetched.

If it is larger, or if at most half of its rows are needed, only the first rows are fetched, page by page.
"""

_FILTER_SECONDS = 2.0
"""Seconds after which the search for matching rows of a page stops."""

_MOST_GROUPS = 64
"""Maximum number of row groups that are scanned together."""


class RowPosition(NamedTuple):
    """Position of a row in the dataset."""

    group: int
    """Number of the row group in the dataset."""

    row: int
    """Number of the row in its row group."""


class Matches(NamedTuple):
    """Rows that match a filter, from a start row on."""

    places: list[RowPosition]
    following: RowPosition | None
    """Row from which a later search continues; None at the end of the dataset."""
    looked_at: int
    """Number of row groups that were scanned, or skipped by their statistics."""


def places_from(inventory: Inventory, first: int, count: int) -> list[RowPosition]:
    """Return the positions of consecutive rows, in the order of an unshuffled reader.

    Example:
        >>> places_from(Inventory.of_rows([3, 0, 2]), 2, 9)
        [RowPosition(group=0, row=2), RowPosition(group=2, row=0), RowPosition(group=2, row=1)]
    """
    ends = np.cumsum(inventory.rows)
    positions = np.arange(first, min(first + count, inventory.num_rows))
    groups = np.searchsorted(ends, positions, side="right")
    rows = positions - (ends - inventory.rows)[groups]
    return list(map(RowPosition, groups.tolist(), rows.tolist()))


def matching_places(dataset: Dataset, filters: Expression, begin: RowPosition, count: int) -> Matches:
    """Return the positions of rows that match a filter.

    They are up to `count` rows from `begin` on. After two seconds, no further row groups are scanned.

    Raises:
        PetastoreError: The filter is invalid, or its columns cannot be read.
    """
    groups, workers = dataset.inventory.num_row_groups, Workers()
    found: list[RowPosition] = []
    first, size, ends_at = begin.group, 1, time.monotonic() + _FILTER_SECONDS
    while first < groups and (first == begin.group or time.monotonic() < ends_at):
        stop = min(first + size, groups)
        among = np.zeros(groups, np.bool_)
        among[first:stop] = True
        selection = filter_row_groups(dataset, filters, among, workers)
        for group in (first + np.flatnonzero(selection.counts[first:stop])).tolist():
            bitmap = selection.bitmaps.get(group)
            rows = np.arange(selection.counts[group]) if bitmap is None else np.flatnonzero(bitmap)
            found += [
                RowPosition(group, row) for row in rows[rows >= begin.row if group == begin.group else ...].tolist()
            ]
            if len(found) > count:
                return Matches(found[:count], found[count], stop - begin.group)
        first, size = stop, min(2 * size, _MOST_GROUPS)
    return Matches(found, RowPosition(first, 0) if first < groups else None, first - begin.group)


def cells_of(
    dataset: Dataset, fields: Sequence[UnischemaField], places: Sequence[RowPosition]
) -> list[dict[str, Cell]]:
    """Return the cells of some rows: for each row, a dict from field name to cell.

    Columns that cannot be read have cells with the reason.
    """
    shown: list[dict[str, Cell]] = [{} for _ in places]
    for group in dict.fromkeys(place.group for place in places):
        numbers = [number for number, place in enumerate(places) if place.group == group]
        rows = [places[number].row for number in numbers]
        for name, position, cell in _cells(dataset, fields, group, rows):
            shown[numbers[position]][name] = cell
        pa.default_memory_pool().release_unused()  # frees large column chunks, of which only a few cells are shown
    return shown


def bytes_per_row(footer: Footer, ordinal: int, names: Sequence[str]) -> dict[str, float]:
    """Return the mean decompressed bytes of a cell for each column, as a dict by name.

    Args:
        footer: Footer of the file.
        ordinal: Number of the row group in the file.
        names: Names of the columns.

    Raises:
        MetadataError, DecodeError: The footer is damaged, or a column chunk is encrypted.
    """
    rows = max(int(footer.groups["rows"][ordinal]), 1)
    sizes = {}
    for name in names:
        chunks = [footer.chunk(ordinal, leaf) for leaf in footer.leaves.get(name, ())]
        sizes[name] = sum(max(chunk.decoded_bytes, chunk.copied_bytes or 0) for chunk in chunks) / rows
    return sizes


def stored_rows(dataset: Dataset, names: Sequence[str], group: int, count: int) -> pa.Table:
    """Return the first `count` rows of some stored columns of a row group.

    Raises:
        PetastoreError: The columns cannot be read.
    """
    # Whole column chunks are fetched in parallel; the first rows page by page, one request after the other.
    inventory = dataset.inventory
    is_small = inventory.stored_bytes[group] <= _FETCHED_BYTES and 2 * count > inventory.rows[group]
    is_whole = dataset.is_fetched and is_small
    part = Part(tuple(names), first=None if is_whole else count)
    (table,) = dataset.reading()(*dataset.inventory.place_of(group), [part])
    return table.slice(0, count)


def _cells(
    dataset: Dataset, fields: Sequence[UnischemaField], group: int, rows: Sequence[int]
) -> Iterator[tuple[str, int, Cell]]:
    """Yield (column name, index in `rows`, cell) for each value of some rows."""
    by_name = {field.name: field for field in fields}
    partitions = dataset.partition_values(tuple(by_name))
    for name, values in partitions.items():
        cell = cell_of(values[group : group + 1], by_name[name])
        yield from ((name, position, cell) for position in range(len(rows)))
    stored = [name for name in by_name if name not in partitions]
    if not stored:
        return
    stop, file, ordinal = max(rows) + 1, *dataset.inventory.place_of(group)
    try:
        sizes = bytes_per_row(dataset.footers.get(dataset.location, file), ordinal, stored)
    except PetastoreError as problem:
        yield from _problems(stored, rows, str(problem))
        return
    # Small columns are read together: in an object store, that saves requests.
    together, room = [], float(_PAGE_BYTES)
    for name in sorted(stored, key=lambda name: sizes[name]):
        room -= sizes[name] * stop
        if room >= 0 and sizes[name] <= MOST_CELL_BYTES:
            together.append(name)
    alone = [name for name in stored if name not in together]
    try:
        table = stored_rows(dataset, together, group, stop).take(arrow_numbers(np.array(rows))) if together else None
    except PetastoreError:
        alone, table = stored, None
    for name in together if table is not None else ():
        yield from _cells_in(table, by_name[name], dict(enumerate(range(len(rows)))))
    for name in alone:
        try:
            yield from _cells_alone(dataset, by_name[name], group, rows, sizes[name])
        except PetastoreError as problem:
            yield from _problems([name], rows, str(problem))


def _cells_in(table: Any, field: UnischemaField, positions: dict[int, int]) -> Iterator[tuple[str, int, Cell]]:
    """Yield (column name, index of the requested row, cell) for some rows of a table.

    Args:
        table: Stored cells.
        field: Field of the column.
        positions: Dict from row number in the table to index of the row among all requested rows.
    """
    column = table.column(field.name)
    for row, position in positions.items():
        chunk = column.slice(row, 1)
        yield field.name, position, cell_of(chunk.chunk(0), field)


def _cells_alone(
    dataset: Dataset, field: UnischemaField, group: int, rows: Sequence[int], size: float
) -> Iterator[tuple[str, int, Cell]]:
    """Yield (column name, index in `rows`, cell) for each value of a column of large cells.

    The column is read part by part, so that memory stays bounded. If reading up to the last row would take too many
    bytes, the cells have this reason as text.

    Args:
        dataset: The dataset.
        field: Field of the column.
        group: Number of the row group.
        rows: Rows in the row group.
        size: Mean decompressed bytes of a cell.
    """
    stop = max(rows) + 1
    if size > MOST_CELL_BYTES:
        reason = f"about {size:,.0f} bytes a cell, more than {MOST_CELL_BYTES:,}: not read"
        yield from _problems([field.name], rows, reason)
        return
    if size * stop > (_PAGE_BYTES if dataset.is_fetched else _STREAMED_BYTES):
        reason = f"not read: the rows up to this one take about {size * stop:,.0f} bytes in this row group"
        yield from _problems([field.name], rows, reason)
        return
    at_once = max(int(_PAGE_BYTES / 4 // max(size, 1)), 1)
    part = Part((field.name,), first=stop) if size * stop <= _PAGE_BYTES else Part((field.name,), rows_at_once=at_once)
    first = 0
    for table in dataset.reading()(*dataset.inventory.place_of(group), [part]):
        after = first + table.num_rows
        inside = {row - first: position for position, row in enumerate(rows) if first <= row < after}
        yield from _cells_in(table, field, inside)
        first = after
        if first >= stop:
            return


def _problems(names: Sequence[str], rows: Sequence[int], reason: str) -> Iterator[tuple[str, int, Cell]]:
    cell = Cell("problem", reason[:300])
    for name in names:
        yield from ((name, position, cell) for position in range(len(rows)))
