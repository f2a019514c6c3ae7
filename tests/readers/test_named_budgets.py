"""Tests of the `memory_budget` that an error suggests: a reader with it opens, and reads all rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import make_batch_reader
from petastore.errors import DecodeError, InvalidArgumentError

MB = 10**6


def numbers(rows: int, columns: int) -> pa.Table:
    values = np.random.default_rng(0).random(rows)
    return pa.table({"id": np.arange(rows), **{f"x{number}": values for number in range(columns)}})


def cells(*sizes: int) -> pa.Table:
    noise = np.random.default_rng(0).bytes(max(sizes) + len(sizes))
    raw = [noise[number : number + size] for number, size in enumerate(sizes)]
    return pa.table({"id": np.arange(len(sizes)), "raw": pa.array(raw, pa.binary())})


SHAPES: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "numbers": (numbers(1_000_000, 4), {}),
    "cells of 2 MB": (
        cells(*[2 * MB, 19 * MB // 10] * 20),
        {"write_batch_size": 1, "use_dictionary": False, "compression": "none"},
    ),
    "cells in one page": (cells(*[2 * MB] * 40), {}),
    "text": (pa.table({"id": np.arange(40_000), "text": ["words " * 200] * 40_000}), {"use_dictionary": False}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write a row group of 50 to 100 MB for each shape."""
    urls = {}
    for number, (name, (table, options)) in enumerate(SHAPES.items()):
        folder = tmp_path_factory.mktemp(f"shape{number}")
        pq.write_table(table, folder / "a.parquet", row_group_size=table.num_rows, **options)
        urls[name] = str(folder)
    return urls


def named(problem: Exception) -> int:
    """Return the budget that an error suggests."""
    (number,) = re.findall(r"(?:memory_budget must be at least|Raise memory_budget to) ([\d,]+)", str(problem))
    return int(number.replace(",", ""))


def ids(url: str, batch_size: int, workers: int, budget: int) -> list[int]:
    with make_batch_reader(url, shuffle_row_groups=False, workers_count=workers, memory_budget=budget) as reader:
        assert reader.estimate_memory(batch_size).total_bytes <= budget
        return [row for batch in reader.iter_batches(batch_size) for row in batch["id"].tolist()]


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 1), (2, 2), (7, 3), (16, 4)])
@pytest.mark.parametrize("shape", SHAPES)
def test_memory_budget_named_in_the_error_is_the_smallest_that_works(
    folders: dict[str, str], shape: str, batch_size: int, workers: int
) -> None:
    rows, url = SHAPES[shape][0].num_rows, folders[shape]
    batch_size *= 1 if rows < 1000 else 500
    with pytest.raises(InvalidArgumentError) as refused:
        ids(url, batch_size, workers, 1)
    least = named(refused.value)
    for budget in (40 * MB, least - 1):
        with pytest.raises(InvalidArgumentError) as refused:
            ids(url, batch_size, workers, min(budget, least - 1))
        assert named(refused.value) == least
    assert ids(url, batch_size, workers, least) == list(range(rows))


def test_memory_budget_named_in_the_error_for_a_large_cell_works(tmp_path: Path) -> None:
    table = cells(*[1000] * 3000, 30 * MB, *[1000] * 3000)
    pq.write_table(table, tmp_path / "a.parquet", write_batch_size=1, use_dictionary=False)
    with pytest.raises(InvalidArgumentError) as refused:
        ids(str(tmp_path), 5, 2, 1)
    with pytest.raises(DecodeError, match="row 3,000 ") as too_large:
        ids(str(tmp_path), 5, 2, named(refused.value))
    assert ids(str(tmp_path), 5, 2, named(too_large.value)) == list(range(6001))
