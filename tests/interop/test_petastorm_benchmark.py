"""Calls of `reader_throughput` that use Petastorm's words go on."""

from __future__ import annotations

from pathlib import Path

import pytest

import petastore
from petastore.cli.throughput import reader_throughput
from petastore.errors import InvalidArgumentError
from petastore.interop.petastorm_benchmark import ReadMethod, WorkerPoolType


@pytest.fixture
def url(tmp_path: Path) -> str:
    schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(tmp_path / "ids", schema, [{"id": number} for number in range(10)])
    return (tmp_path / "ids").as_uri()


@pytest.mark.parametrize("pool", [WorkerPoolType.THREAD, WorkerPoolType.NONE])
def test_pools_and_python_are_measured(url: str, pool: WorkerPoolType) -> None:
    found = reader_throughput(url, ["i."], 5, 5, pool, 1, read_method=ReadMethod.PYTHON, spawn_new_process=False)
    assert found.rows >= 5
    assert found.time_mean > 0


def test_tensorflow_is_not_measured_and_the_error_says_so(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="read_method='tf' is not measured"):
        reader_throughput(url, read_method=ReadMethod.TF, spawn_new_process=False)
