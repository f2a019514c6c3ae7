"""Tests of finding window starts from timestamps: reference implementation, cache, unsorted or missing timestamps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import NGram, Unischema, UnischemaField, open_dataset
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan import ReadUnit, Selection
from petastore.readers.window_scan import select_window_starts
from petastore.work.pools import Workers
from tests.windows_by_hand import windows_by_hand

TIMES = [0, 1, 2, 3, 9, 10, 11, 11, 12, 20]
DUMMY = Workers("dummy")


def written(folder: Path, times: list[Any], dtype: Any = np.int64) -> Dataset:
    schema = Unischema("track", [UnischemaField("time", dtype, nullable=True)])
    petastore.write_dataset(str(folder), schema, [{"time": time} for time in times], rows_per_row_group=4)
    return open_dataset(str(folder))


def pairs(overlap: bool = True) -> NGram:
    return NGram({0: ["time"], 1: ["time"]}, 1, "time", timestamp_overlap=overlap)


def rows_of(starts: Selection, dataset: Dataset) -> list[tuple[int, int]]:
    found = []
    for group, rows in enumerate(dataset.inventory.rows.tolist()):
        bitmap = starts.bitmaps.get(group, np.full(rows, bool(starts.counts[group])))
        assert starts.counts[group] == bitmap.sum()
        found += [(group, row) for row in np.flatnonzero(bitmap).tolist()]
    return found


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("kind", ["dummy", "thread"])
def test_window_starts_of_a_dataset_equal_a_reference_implementation(tmp_path: Path, overlap: bool, kind: Any) -> None:
    dataset = written(tmp_path, TIMES)
    starts = select_window_starts(dataset, pairs(overlap), workers=Workers(kind, 2), filter_cache=False)
    by_hand = windows_by_hand([TIMES[:4], TIMES[4:8], TIMES[8:]], length=2, most=1, overlap=overlap)
    assert rows_of(starts, dataset) == [window[0] for window in by_hand]
    assert starts.length == 2


def test_windows_are_formed_from_selected_rows_only(tmp_path: Path) -> None:
    dataset = written(tmp_path, TIMES)
    odd = Selection(np.array([2, 4, 2]), {0: np.array([True, False, True, False])})
    wide = NGram({0: ["time"], 1: ["time"]}, 2, "time")
    starts = select_window_starts(dataset, wide, odd, workers=DUMMY, filter_cache=False)
    assert rows_of(starts, dataset) == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert starts.among == odd.fingerprint
    assert [(pruned.by, pruned.rows) for pruned in starts.pruned if pruned.by == "windows"] == [("windows", 3)]


def test_cached_window_starts_are_used_only_for_the_same_ngram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = written(tmp_path / "data", TIMES)
    read = Dataset.read
    asked: list[int] = []

    def noted(self: Dataset, unit: ReadUnit) -> Any:
        asked.append(unit.group)
        return read(self, unit)

    monkeypatch.setattr(Dataset, "read", noted)
    memory = str(tmp_path / "memory")
    first = select_window_starts(dataset, pairs(), workers=DUMMY, filter_cache=memory)
    assert asked == [0, 1, 2]
    again = select_window_starts(dataset, pairs(), workers=DUMMY, filter_cache=memory)
    assert (again.fingerprint, asked) == (first.fingerprint, [0, 1, 2])
    select_window_starts(dataset, pairs(overlap=False), workers=DUMMY, filter_cache=memory)
    assert asked == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("times", "dtype", "said"),
    [
        (
            [0, 1, 2, 3, 5, 4],
            np.int64,
            r"row 1 of row group 1 in .*: rows must be sorted by the timestamp 'time' .*, got 4 after 5",
        ),
        ([0, 1, None, 3], np.int64, r"row 2 of row group 0 in .*: the timestamp 'time' must not be null for windows"),
        (
            [0.0, 1.0, 2.0, 3.0, float("nan")],
            np.float64,
            r"row 0 of row group 1 in .*: the timestamp 'time' must not be NaN .*, got NaN.*<= float\('inf'\)",
        ),
    ],
    ids=["unsorted", "missing", "no number"],
)
def test_missing_or_unsorted_timestamps_raise_when_windows_are_selected(
    tmp_path: Path, times: list[Any], dtype: Any, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        select_window_starts(written(tmp_path, times, dtype), pairs(), workers=DUMMY, filter_cache=False)


def test_numeric_delta_threshold_for_times_raises_before_reading(tmp_path: Path) -> None:
    dataset = written(tmp_path, [np.datetime64(1, "s")], "datetime64[s]")
    with pytest.raises(
        InvalidArgumentError, match=r"delta_threshold must be datetime.* 'time' of datetime64.s., got 1$"
    ):
        select_window_starts(dataset, pairs(), workers=DUMMY, filter_cache=False)
