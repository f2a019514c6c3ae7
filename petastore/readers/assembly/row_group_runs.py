"""Renumber the rows of small row groups that were loaded together as one run of row groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from petastore.plan.order.grouped_rows import GroupedRows, places_by_key
from petastore.plan.plan import Span
from petastore.readers.assembly.encoded import Origin
from petastore.readers.loaded.row_group import LoadedRowGroup

__all__ = ["RowsInMemory", "rows_in_memory"]


class RowsInMemory(NamedTuple):
    """Rows of a span, described by their location in memory."""

    span: Span
    """The span, renumbered: its row groups are keys of `loaded`, and its rows are indices in these values."""

    loaded: Mapping[int, LoadedRowGroup]
    """Row groups in memory; several that were loaded together are one value, under the lowest of their numbers."""

    origin: Origin
    """Function that converts keys of `loaded` and rows to row groups and rows of the dataset."""


def rows_in_memory(span: Span, loaded: Mapping[int, LoadedRowGroup], origin: Origin) -> RowsInMemory:
    """Return the rows of a span, renumbered so that row groups that were loaded together count as one.

    A batch then copies its rows from a few runs of row groups, instead of from thousands of small row groups.

    Args:
        span: The rows, by row group.
        loaded: Loaded row groups by number.
        origin: Function that converts row groups and rows of the span to those of the dataset.
    """
    groups = np.sort(np.fromiter(loaded, np.int32, len(loaded)))
    keys: dict[int, int] = {}
    by_key: dict[int, LoadedRowGroup] = {}
    key_of, first_of = groups.copy(), np.zeros(len(groups), np.int64)
    for place, group in enumerate(groups.tolist()):
        one = loaded[group]
        # Runs are compared by `id`, because the first row group of a run may have been loaded again in another run.
        key_of[place] = key = keys.setdefault(id(one), group)
        by_key[key] = one
        if one.members is not None:
            first_of[place] = one.members[group]
    places = np.searchsorted(groups, span.groups)
    rows = GroupedRows(key_of[places], span.rows + first_of[places], None)
    renumbered = dataclasses.replace(span, picked=rows, needed=np.array(sorted(by_key), np.int32))
    return RowsInMemory(renumbered, by_key, _Origin(by_key, origin))


class _Origin:
    """Function that converts rows of loaded runs to rows of the dataset."""

    def __init__(self, loaded: Mapping[int, LoadedRowGroup], origin: Origin) -> None:
        self._loaded, self._origin = loaded, origin

    def __call__(self, keys: NDArray[Any], rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        groups, rows = keys.copy(), rows.copy()
        for key, where in places_by_key(keys):
            members = self._loaded[key].members
            if members is not None:
                firsts = np.fromiter(members.values(), np.int64, len(members))
                at = np.searchsorted(firsts, rows[where], side="right") - 1
                groups[where] = np.fromiter(members, np.int32, len(members))[at]
                rows[where] -= firsts[at]
        return self._origin(groups, rows)
