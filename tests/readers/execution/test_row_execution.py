"""What a reader of rows runs: the fields that are read, what a function makes of them, and what is handed out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from petastore import TransformSpec, UnischemaField
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan import Tail
from petastore.readers.execution.row_execution import execution_of_rows
from petastore.work.workers import Workers
from tests.readers.small import SCHEMA, execution_of, plan_of, written
from tests.readers.transforms_to_send import unchanged

DUMMY = Workers("dummy")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("row_execution")) / "data")


def test_fields_that_were_asked_for_are_read_and_come_out(dataset: Dataset) -> None:
    execution = execution_of(dataset, columns=["word", "x"])
    assert set(execution.assembly.view.fields) == set(execution.assembly.schema.fields) == {"word", "x"}
    assert execution.transform is None
    assert execution.windows is None


def test_a_function_changes_what_comes_out_and_not_what_is_read(dataset: Dataset) -> None:
    spec = TransformSpec(unchanged, edit_fields=[UnischemaField("new", np.int8)], removed_fields=["word"])
    execution = execution_of_rows(dataset, plan_of(dataset), workers=DUMMY, transform=spec)
    assert set(execution.assembly.view.fields) == set(SCHEMA.fields)
    assert set(execution.assembly.schema.fields) == {*SCHEMA.fields, "new"} - {"word"}
    assert (execution.assembly.gives_stacks, execution.assembly.stacked_columns) == (False, [])


def test_a_function_that_contradicts_the_schema_is_refused(dataset: Dataset) -> None:
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        execution_of_rows(
            dataset, plan_of(dataset), workers=DUMMY, transform=TransformSpec(unchanged, selected_fields=["nowhere"])
        )


def test_batches_have_the_rows_of_the_largest_row_group(dataset: Dataset) -> None:
    assert execution_of(dataset, batched=True).handing_out.rows == 5
    assert execution_of(dataset, last_batch=Tail.DROP).handing_out.rows == 1


def test_nothing_is_fetched_ahead_where_memory_is_bounded(dataset: Dataset) -> None:
    assert execution_of(dataset).loading.ahead_bytes > 0
    assert execution_of(dataset, workers=Workers("dummy", memory_budget=10**9)).loading.ahead_bytes == 0
