"""An execution is built of cells and of what comes out: what is kept apart, and what each dataset takes in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from petastore import Unischema, UnischemaField
from petastore.dataset import Dataset
from petastore.errors import DecodeError
from petastore.readers.assembly.encoded import EncodedColumn
from petastore.readers.execution.building import Cells, Outcome, build_execution
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.functions import Functions
from petastore.readers.loaded.loader import RowGroupLoader
from petastore.readers.loaded.loading import Loading
from petastore.readers.loaded.memory import Memory
from petastore.readers.reader import Reader
from petastore.work.workers import Workers
from tests.readers.small import ROWS, plan_of, written

DUMMY = Workers("dummy")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("building")) / "data")


def built(dataset: Dataset, loaders: list[RowGroupLoader], **partition_values: Any) -> Execution:
    """What reads the field `id`, and `x` or what directories say in place of it, which files do not have."""
    plan = plan_of(dataset, columns=["id", "x"])
    other = [UnischemaField(name, np.float32) for name in partition_values] or [dataset.schema["x"]]
    view = Unischema("view", [dataset.schema["id"], *other])

    def loading(given: Any, memory: Memory) -> Loading:
        loaders.extend(given)
        return Loading.of(given, memory)

    return build_execution(
        dataset,
        plan,
        Cells(
            view,
            {field.name: EncodedColumn.of(field, partition_values.get(field.name)) for field in view},
            [(view, partition_values)],
        ),
        Outcome(view, None, Functions.of([None], workers=DUMMY, batched=False), None),
        Memory(),
        loading=loading,
        workers=DUMMY,
        batched=False,
    )


def read(dataset: Dataset, execution: Execution) -> list[tuple[int, float]]:
    with Reader(dataset, execution.plan, workers=DUMMY, build=lambda *_, **__: execution) as reader:
        return [(int(number), float(value)) for number, value in reader]


def test_each_dataset_has_a_loader_and_all_columns_are_stacked_that_can_be(dataset: Dataset) -> None:
    loaders: list[RowGroupLoader] = []
    execution = built(dataset, loaders)
    assert len(loaders) == 1
    assert execution.assembly.layout.encoded == ()
    assert read(dataset, execution) == [(number, number / 2) for number in range(ROWS)]


def test_values_of_partitions_are_kept_apart_and_not_looked_for_in_files(dataset: Dataset) -> None:
    of_groups = pa.array([10.0, 20.0, 30.0, 40.0, 50.0], pa.float32())
    execution = built(dataset, [], day=of_groups)
    assert execution.assembly.layout.encoded == ("day",)
    assert read(dataset, execution) == [(number, 10.0 * (number // 5 + 1)) for number in range(ROWS)]


def test_a_value_of_a_partition_that_cannot_be_names_the_column(dataset: Dataset) -> None:
    with pytest.raises(DecodeError, match="'day'"):
        read(dataset, built(dataset, [], day=pa.array(["a"] * 5)))
