"""Tests of memory estimates of windows: each row counts once loaded and once in its window."""

from __future__ import annotations

from pathlib import Path

import pytest

from petastore import NGram
from petastore.dataset import Dataset
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.window_reader import footprint_of_windows
from petastore.work.pools import Workers
from tests.readers.small import execution_of, written


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("footprint")) / "data")


def ngram(*offsets: int) -> NGram:
    return NGram({offset: ["x"] for offset in offsets}, 5, "id")


def of_windows(rows: Footprint, *offsets: int, workers: int = 1) -> Footprint:
    return footprint_of_windows(rows, ngram(*offsets), workers=Workers("thread", workers))


def test_memory_estimate_counts_each_row_of_a_window_twice(dataset: Dataset) -> None:
    rows = execution_of(dataset).footprint
    assert of_windows(rows, 0).row_bytes == 2 * rows.row_bytes
    assert of_windows(rows, 0, 1, 2).row_bytes == 6 * rows.row_bytes
    # Only the rows at requested offsets are output, however far apart they are.
    assert of_windows(rows, 0, 9).row_bytes == 4 * rows.row_bytes


def test_memory_estimate_of_windows_includes_rows_of_the_next_row_group(dataset: Dataset) -> None:
    rows = execution_of(dataset).footprint
    assert of_windows(rows, 0).group_bytes.tolist() == rows.group_bytes.tolist()
    assert (of_windows(rows, 0, 3).group_bytes > rows.group_bytes).all()
    assert of_windows(rows, 0, 3).inventory.rows.tolist() == (rows.inventory.rows + 3).tolist()


def test_memory_estimate_of_windows_per_worker_falls_with_more_workers(dataset: Dataset) -> None:
    rows = execution_of(dataset).footprint
    one, many = (of_windows(rows, 0, 3, workers=count) for count in (1, 4))
    assert one.work_bytes > many.work_bytes > rows.work_bytes
    assert of_windows(rows, 0, 1, 2).plan_row_bytes > of_windows(rows, 0, 1).plan_row_bytes
