"""Tests of loading small row groups together: batches and errors equal those of loading them one by one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from petastore import make_batch_reader
from petastore.errors import DecodeError
from petastore.readers.loaded.loading import Loads


def _write(folder: Path, sizes: list[list[int]], **options: bool) -> None:
    first = 0
    for number, of_file in enumerate(sizes):
        path = folder / f"day={number % 2}" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = np.arange(first, first + sum(of_file))
        table = pa.table(
            {
                "id": rows,
                "x": pa.array(rows / 2, mask=rows % 11 == 5),
                "word": pa.array([None if row % 7 == 3 else f"word {row}" for row in rows.tolist()]),
                "list": pa.array([[row] * (row % 3) for row in rows.tolist()], pa.list_(pa.int64())),
            }
        )
        first, at = first + len(rows), 0
        with pq.ParquetWriter(path, table.schema, **options) as writer:
            for size in of_file:
                writer.write_table(table.slice(at, size))
                at += size


def _batches(folder: Path, **options: Any) -> list[dict[str, list[Any]]]:
    with make_batch_reader(str(folder), workers_count=2, num_epochs=2, provenance=True, **options) as reader:
        return [
            {name: np.asarray(values).tolist() for name, values in batch.items()} for batch in reader.iter_batches(97)
        ]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.lists(st.integers(1, 9), min_size=20, max_size=60), min_size=1, max_size=3),
    order=st.sampled_from([{"shuffle_row_groups": False}, {"seed": 5}, {"seed": 5, "shuffle_rows": True}]),
    filters=st.sampled_from([None, [("id", ">", 40)]]),
)
def test_batches_of_row_groups_loaded_together_equal_those_loaded_singly(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[list[int]],
    order: dict[str, Any],
    filters: list[tuple[str, str, int]] | None,
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    _write(folder, sizes)
    options = {**order, "filters": filters, "filter_cache": False}
    # With a memory budget, each row group is loaded separately.
    assert str(_batches(folder, **options)) == str(_batches(folder, memory_budget="1GB", **options))


def test_row_groups_are_loaded_together_when_rows_are_shuffled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, [[5] * 400])
    load, counts = Loads._load_together, list[int]()

    def counted(self: Loads, groups: Any) -> Any:
        counts.append(len(groups))
        loaded = load(self, groups)
        assert loaded is not None
        return loaded

    monkeypatch.setattr(Loads, "_load_together", counted)
    with make_batch_reader(str(tmp_path), workers_count=1, seed=1, shuffle_rows=True) as reader:
        ids = list(itertools.chain.from_iterable(batch["id"] for batch in reader.iter_batches(2000)))
    assert sorted(ids) == list(range(2000))
    assert sum(counts) == 400
    assert len(counts) <= 8


@pytest.mark.parametrize("shuffle_rows", [False, True])
def test_damaged_row_group_among_many_is_named(tmp_path: Path, shuffle_rows: bool) -> None:
    _write(tmp_path, [[5] * 400], write_page_checksum=True)
    (path,) = tmp_path.glob("*/*.parquet")
    chunk = pq.read_metadata(path).row_group(123).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset - 4] ^= 1
    path.write_bytes(data)
    with (
        make_batch_reader(str(tmp_path), workers_count=2, seed=1, shuffle_rows=shuffle_rows) as reader,
        pytest.raises(DecodeError, match="row group 123"),
    ):
        list(reader.iter_batches(100))
