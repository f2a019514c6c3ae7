"""Tests of loading small row groups together: same rows and errors as one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import petastore
from petastore import make_batch_reader, make_reader
from petastore.errors import DatasetChangedError, DecodeError
from petastore.readers.loaded.loading import runs
from petastore.work.pools import PoolType


@given(st.lists(st.integers(0, 10**6), max_size=200), st.integers(0, 10))
def test_small_row_groups_are_loaded_together_within_512_kib(sizes: list[int], workers: int) -> None:
    groups = list(range(len(sizes)))
    found = runs(groups, np.array(sizes, dtype=np.int64), workers)
    assert [group for run in found for group in groups[run]] == groups
    for run in found:
        held = sizes[run]
        assert held
        assert len(held) == 1 or (sum(held) <= 512 * 1024 and len(held) <= len(groups) // (4 * max(workers, 1)))


def table(number: int, rows: int) -> pa.Table:
    """Return a table with many column types, and nulls in some files."""
    generator = np.random.default_rng(number)
    gone = [None if number % 3 == 0 and row % 5 == 0 else row for row in range(rows)]
    return pa.table(
        {
            "id": np.arange(rows) + 1000 * number,
            "x": generator.random(rows),
            "maybe": pa.array(gone, pa.int32()),
            "name": pa.array([None if row is None else "ä" * (row % 7) for row in gone], pa.string()),
            "raw": pa.array([bytes([row % 250]) * (number % 4) for row in range(rows)], pa.binary()),
            "flag": generator.random(rows) < 0.5,
            "when": pa.array(np.datetime64("2026-01-01", "us") + np.arange(rows)),
            "list": pa.array([[row] * (row % 3) for row in range(rows)], pa.list_(pa.int16())),
            "vector": pa.array([[row, number] for row in range(rows)], pa.list_(pa.float32(), 2)),
        }
    )


def values(reader: Any) -> list[list[tuple[str, list[str], list[bool]]]]:
    """Return for each batch and column its name, its values as text, and its null mask."""
    with reader:
        return [
            [
                (name, [str(cell) for cell in np.ma.getdata(column)], np.ma.getmaskarray(column).ravel().tolist())
                for name, column in zip(batch._fields, batch, strict=True)
            ]
            for batch in reader
        ]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("many")
    for number in range(60):
        path = directory / f"day={number % 2}" / f"{number:03d}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table(number, [0, 1, 17, 40][number % 4]), path, row_group_size=20)
    return directory


@pytest.mark.parametrize("pool", ["dummy", "thread"])
@pytest.mark.parametrize("shuffle", [{"shuffle_row_groups": False}, {"seed": 3}, {"seed": 3, "shuffle_rows": True}])
def test_row_groups_fetched_together_equal_those_fetched_singly(
    many: Path, pool: PoolType, shuffle: dict[str, Any]
) -> None:
    together = values(make_batch_reader(str(many), reader_pool_type=pool, **shuffle))
    one_by_one = values(make_batch_reader(str(many), reader_pool_type=pool, memory_budget=2**30, **shuffle))
    assert len(together) == len(one_by_one) > 10
    assert together == one_by_one


def test_files_with_different_column_types_are_loaded_one_by_one(tmp_path: Path) -> None:
    for number in range(60):
        column = pa.array(["a", "b"] * 5)
        column = column.dictionary_encode() if number % 2 else column
        pq.write_table(
            pa.table({"name": column, "id": range(10)}), tmp_path / f"{number:02d}.parquet", store_schema=False
        )
    with make_batch_reader(str(tmp_path), shuffle_row_groups=False) as reader:
        assert [name for batch in reader for name in batch.name.tolist()] == ["a", "b"] * 300


def test_damaged_file_raises_after_the_rows_before_it(tmp_path: Path) -> None:
    for number in range(60):
        pq.write_table(
            pa.table({"id": np.random.default_rng(number).integers(0, 2**60, 100)}),
            tmp_path / f"{number:02d}.parquet",
            write_page_checksum=True,
            compression="none",
            use_dictionary=False,
        )
    dataset = petastore.open_dataset(tmp_path)
    path = tmp_path / "41.parquet"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    seen: list[Any] = []
    with make_reader(dataset.url, shuffle_row_groups=False) as reader, pytest.raises(DecodeError, match=r"41\.parquet"):
        seen.extend(reader)
    assert len(seen) <= 4100


def test_rewritten_small_file_raises_in_each_epoch(tmp_path: Path) -> None:
    for number in range(40):
        pq.write_table(pa.table({"id": range(100)}), tmp_path / f"{number:02d}.parquet")
    with make_batch_reader(str(tmp_path), shuffle_row_groups=False, num_epochs=1) as reader:
        assert sum(len(batch.id) for batch in reader) == 4000
        pq.write_table(pa.table({"id": range(1, 101)}), tmp_path / "20.parquet")
        with pytest.raises(DatasetChangedError, match=r"20\.parquet was rewritten"):
            sum(len(batch.id) for batch in reader)
