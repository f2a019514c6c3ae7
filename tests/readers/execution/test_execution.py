"""Tests of an execution: its repr, its default column layout, argument checks, and repeated close."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField, open_dataset
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.plan import LastBatch, Shard
from petastore.work.pools import Workers
from tests.readers.small import ROWS, execution_of, written


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("execution")) / "data")


def test_repr_of_an_execution_describes_the_read_in_one_line(dataset: Dataset) -> None:
    execution = execution_of(dataset, columns=["id", "x"], shard=Shard(1, 2), epochs=3)
    seed = execution.plan.request.order.seed
    assert str(execution) == (
        f"rows of {dataset.url}; shard 1 of 2, 11 of {ROWS} rows, 2 columns, 3 epochs, seed {seed}"
    )
    assert str(execution_of(dataset, batched=True)).startswith("batches of ")


def test_execution_without_a_transform_stacks_fixed_size_columns(dataset: Dataset) -> None:
    execution = execution_of(dataset)
    assert ("x", "maybe") in execution.stacked_columns
    assert not any("word" in together or "free" in together for together in execution.stacked_columns)


def test_execution_raises_for_fewer_rows_than_shards(dataset: Dataset) -> None:
    with pytest.raises(NoDataAvailableError, match="99 ranks"):
        execution_of(dataset, shard=Shard(0, 99)).refuse_what_cannot_be()
    execution_of(dataset, shard=Shard(0, 99), last_batch=LastBatch.PAD).refuse_what_cannot_be()


def test_execution_raises_for_fields_larger_than_max_cell_bytes(dataset: Dataset) -> None:
    with pytest.raises(InvalidArgumentError, match="max_cell_bytes"):
        execution_of(dataset, workers=Workers("dummy", max_cell_bytes=3)).refuse_what_cannot_be()


def test_execution_raises_for_a_column_named_valid_with_pad(tmp_path: Path) -> None:
    schema = Unischema("s", [UnischemaField("valid", np.bool_)])
    petastore.write_dataset(str(tmp_path), schema, [{"valid": True}])
    other = open_dataset(str(tmp_path))
    execution_of(other).refuse_what_cannot_be()
    with pytest.raises(
        InvalidArgumentError, match=r"the name 'valid' must be free, because last_batch='pad'.*schema_fields"
    ):
        execution_of(other, last_batch=LastBatch.PAD).refuse_what_cannot_be()


def test_execution_can_be_closed_repeatedly(dataset: Dataset) -> None:
    execution = execution_of(dataset)
    for _ in range(2):
        execution.close()
        execution.join()
    assert execution.memory.buffers.kept_bytes == 0
