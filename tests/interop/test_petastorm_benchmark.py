"""Tests of `reader_throughput` with Petastorm's arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

import petastore
from petastore.errors import InvalidArgumentError
from petastore.interop.petastorm_calls import ReadMethod, WorkerPoolType
from petastore.tuning import reader_throughput


@pytest.fixture
def url(tmp_path: Path) -> str:
    schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(tmp_path / "ids", schema, [{"id": number} for number in range(10)])
    return (tmp_path / "ids").as_uri()


@pytest.mark.parametrize("pool", [WorkerPoolType.THREAD, WorkerPoolType.NONE])
def test_petastorm_benchmark_measures_pools(url: str, pool: WorkerPoolType) -> None:
    found = reader_throughput(url, ["i."], 5, 5, pool, 1, read_method=ReadMethod.PYTHON, spawn_new_process=False)
    assert found.rows >= 5
    assert found.time_mean > 0


def test_petastorm_benchmark_raises_for_tensorflow(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"read_method must be 'python', got 'tf'\. Pass batch_size"):
        reader_throughput(url, read_method=ReadMethod.TF, spawn_new_process=False)
