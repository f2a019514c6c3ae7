"""Tests of building an execution: one loader per dataset, and partition values separate from stored columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.dataset import Dataset
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.execution import Execution
from petastore.readers.reader import Reader
from petastore.work.pools import Workers
from tests.readers.small import ROWS, plan_of, written

DUMMY = Workers("dummy")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("building")) / "data")


def read(dataset: Dataset, execution: Execution) -> list[tuple[int, float]]:
    with Reader(dataset, execution.plan, workers=DUMMY, build=lambda *_, **__: execution) as reader:
        return [(int(number), float(value)) for number, value in reader]


def test_execution_stacks_all_fixed_size_columns(dataset: Dataset) -> None:
    execution = build_execution(dataset, plan_of(dataset, columns=["id", "x"]), workers=DUMMY)
    assert len(execution.loaders) == 1
    assert execution.layout.encoded == ()
    assert read(dataset, execution) == [(number, number / 2) for number in range(ROWS)]


def test_mixture_partition_values_are_separate_and_not_read_from_files(tmp_path: Path) -> None:
    for day in (10, 20):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        pq.write_table(pa.table({"id": [day, day + 1]}), folder / "part.parquet")
    dataset = petastore.open_dataset(str(tmp_path))
    execution = build_execution(dataset, plan_of(dataset, columns=["id", "day"]), workers=DUMMY)
    assert execution.layout.encoded == ("day",)
    assert [tuple(loader.fields) for loader in execution.loaders] == [("id",)]
    assert read(dataset, execution) == [(10, 10), (11, 10), (20, 20), (21, 20)]
