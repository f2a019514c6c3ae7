"""Tests of row group and file sizes: `rows_per_row_group`, `row_group_size_mb` and their defaults."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.writers.parquet import FileLayout, row_groups


def batches_of(sizes: list[int], cell: int = 8) -> list[pa.RecordBatch]:
    numbers = itertools.count()
    return [
        pa.record_batch(
            {"id": pa.array([next(numbers) for _ in range(size)], pa.int64()), "blob": [b"x" * cell] * size}
        )
        for size in sizes
    ]


def layout(**asked: Any) -> FileLayout:
    return FileLayout.of(**{"rows_per_row_group": None, "row_group_size_mb": None, "rows_per_file": None, **asked})


@given(st.lists(st.integers(0, 30), max_size=10), st.integers(1, 25), st.none() | st.integers(1, 40))
def test_rows_per_row_group_is_exact(sizes: list[int], rows: int, per_file: int | None) -> None:
    groups = list(row_groups(batches_of(sizes), layout(rows_per_row_group=rows, rows_per_file=per_file)))
    total = sum(sizes)
    ids = [value for group in groups for value in group.column("id").to_pylist()]
    assert ids == list(range(total))
    expected = []
    for start in range(0, total, per_file or max(1, total)):
        inside = min(per_file or total, total - start)
        expected += [rows] * (inside // rows) + [inside % rows] * (inside % rows > 0)
    assert [group.num_rows for group in groups] == expected


@given(st.lists(st.integers(0, 30), max_size=10), st.integers(1, 5000), st.none() | st.integers(1, 40))
def test_row_group_size_mb_keeps_all_rows_in_order(sizes: list[int], size: int, per_file: int | None) -> None:
    asked = layout(row_group_size_mb=size / 2**20, rows_per_file=per_file)
    groups = list(row_groups(batches_of(sizes, cell=100), asked))
    assert [value for group in groups for value in group.column("id").to_pylist()] == list(range(sum(sizes)))
    assert all(group.num_rows for group in groups)


def test_row_groups_are_within_5_percent_of_row_group_size_mb() -> None:
    cells = np.random.default_rng(0).integers(500, 1500, 4000)
    batches = [pa.record_batch({"blob": [b"x" * size for size in part]}) for part in np.split(cells, 40)]
    groups = list(row_groups(batches, layout(row_group_size_mb=0.25)))
    sizes = np.array([group.nbytes for group in groups[:-1]])
    assert np.abs(sizes / (0.25 * 2**20) - 1).max() < 0.05


def test_row_larger_than_row_group_size_gets_its_own_row_group() -> None:
    groups = list(row_groups(batches_of([3], cell=1000), layout(row_group_size_mb=1 / 2**20)))
    assert [group.num_rows for group in groups] == [1, 1, 1]


def test_row_group_size_defaults_to_32_mib() -> None:
    assert layout().row_group_bytes == 32 * 2**20


@pytest.mark.parametrize(
    "asked",
    [
        {"rows_per_row_group": 10, "row_group_size_mb": 32},
        {"rows_per_row_group": 0},
        {"rows_per_row_group": 1.5},
        {"rows_per_row_group": True},
        {"rows_per_file": -1},
        {"row_group_size_mb": 0},
        {"row_group_size_mb": float("inf")},
        {"row_group_size_mb": float("nan")},
        {"row_group_size_mb": "32"},
    ],
)
def test_invalid_row_group_sizes_raise(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(asked))):
        layout(**asked)
