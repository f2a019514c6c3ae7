"""An execution says what a reader runs, and refuses what no stage could see by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField, open_dataset
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.plan import Shard, Tail
from petastore.work.workers import Workers
from tests.readers.small import ROWS, execution_of, plan_of, written


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("execution")) / "data")


def test_it_says_in_one_line_what_is_read(dataset: Dataset) -> None:
    execution = execution_of(dataset, columns=["id", "x"], shard=Shard(1, 2), epochs=3)
    seed = execution.plan.request.order.seed
    assert str(execution) == (
        f"rows of {dataset.url}; shard 1 of 2, 11 of {ROWS} rows, 2 columns, 3 epochs, seed {seed}"
    )
    assert str(execution_of(dataset, batched=True)).startswith("batches of ")


def test_on_another_plan_all_else_is_the_same(dataset: Dataset) -> None:
    execution = execution_of(dataset)
    other = plan_of(dataset, shard=Shard(0, 2))
    moved = execution.on(other)
    assert moved.plan is other
    assert (moved.assembly, moved.loading, moved.source) == (execution.assembly, execution.loading, execution.source)


def test_columns_of_one_dtype_and_shape_come_out_in_one_array_where_no_function_touches_them(dataset: Dataset) -> None:
    assembly = execution_of(dataset).assembly
    assert ("x", "maybe") in assembly.stacked_columns
    assert not any("word" in together or "free" in together for together in assembly.stacked_columns)


def test_fewer_rows_than_shards_are_refused(dataset: Dataset) -> None:
    with pytest.raises(NoDataAvailableError, match="99 ranks"):
        execution_of(dataset, shard=Shard(0, 99)).refuse_what_cannot_be()
    execution_of(dataset, shard=Shard(0, 99), last_batch=Tail.PAD).refuse_what_cannot_be()


def test_a_field_of_values_that_are_too_large_is_refused(dataset: Dataset) -> None:
    with pytest.raises(InvalidArgumentError, match="max_cell_bytes"):
        execution_of(dataset, workers=Workers("dummy", max_cell_bytes=3)).refuse_what_cannot_be()


def test_a_column_of_the_name_that_marks_repeats_is_refused_where_repeats_are_marked(tmp_path: Path) -> None:
    schema = Unischema("s", [UnischemaField("valid", np.bool_)])
    petastore.write_dataset(str(tmp_path), schema, [{"valid": True}])
    other = open_dataset(str(tmp_path))
    execution_of(other).refuse_what_cannot_be()
    with pytest.raises(InvalidArgumentError, match=r"last_batch='pad' adds a column 'valid'.*schema_fields"):
        execution_of(other, last_batch=Tail.PAD).refuse_what_cannot_be()


def test_it_is_ended_as_often_as_one_likes(dataset: Dataset) -> None:
    execution = execution_of(dataset)
    for _ in range(2):
        execution.close()
        execution.join()
    assert execution.loading.memory.buffers.kept_bytes == 0
