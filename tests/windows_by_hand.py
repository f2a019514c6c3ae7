"""Reference implementation of windows as a plain double loop, independent of the code that it checks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

__all__ = ["windows_by_hand", "windows_of_series_by_hand"]


def windows_by_hand(
    parts: Sequence[Sequence[Any]], *, length: int, most: Any, overlap: bool = True
) -> list[list[tuple[int, int]]]:
    """Return all windows over the timestamps of row groups, each a list of (row group, row)."""
    rows = [(group, row, time) for group, part in enumerate(parts) for row, time in enumerate(part)]
    windows: list[list[tuple[int, int]]] = []
    last_place, last_time = -1, None
    for first in range(len(rows) - length + 1):
        window = rows[first : first + length]
        if any(not 0 <= after[2] - before[2] <= most for before, after in itertools.pairwise(window)):
            continue
        if not overlap and last_time is not None:
            since = rows[last_place : first + 1]
            is_one_run = all(0 <= b[2] - a[2] <= most for a, b in itertools.pairwise(since))
            if first <= last_place or (is_one_run and window[0][2] <= last_time):
                continue
        last_place, last_time = first + length - 1, window[-1][2]
        windows.append([(group, row) for group, row, _ in window])
    return windows


def windows_of_series_by_hand(
    series: Sequence[Any], times: Sequence[Any], *, length: int, most: Any, overlap: bool = True
) -> list[tuple[int, ...]]:
    """Return all windows over rows with a series and a timestamp, each a tuple of row numbers, sorted."""
    windows = []
    for key in set(series):
        rows = [row for row, of_row in enumerate(series) if of_row == key]
        found = windows_by_hand([[times[row] for row in rows]], length=length, most=most, overlap=overlap)
        windows += [tuple(rows[place] for _, place in window) for window in found]
    return sorted(windows)
