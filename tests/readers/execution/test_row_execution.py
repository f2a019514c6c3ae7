"""Tests of row reader executions: selected fields, transform output, and default batch size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from petastore import TransformSpec, UnischemaField
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan import LastBatch
from petastore.readers.execution.building import build_execution
from petastore.work.pools import Workers
from tests.readers.small import SCHEMA, execution_of, plan_of, written
from tests.readers.transforms_to_send import unchanged

DUMMY = Workers("dummy")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("row_execution")) / "data")


def test_execution_reads_and_returns_the_selected_fields(dataset: Dataset) -> None:
    execution = execution_of(dataset, columns=["word", "x"])
    assert set(execution.view.fields) == set(execution.schema.fields) == {"word", "x"}
    assert execution.transform is None
    assert execution.windows is None


def test_transform_changes_the_output_and_not_the_columns_read(dataset: Dataset) -> None:
    spec = TransformSpec(unchanged, edit_fields=[UnischemaField("new", np.int8)], removed_fields=["word"])
    execution = build_execution(dataset, plan_of(dataset), workers=DUMMY, transform=spec)
    assert set(execution.view.fields) == set(SCHEMA.fields)
    assert set(execution.schema.fields) == {*SCHEMA.fields, "new"} - {"word"}
    assert execution.stacked_columns == []


def test_transform_that_selects_an_unknown_field_raises(dataset: Dataset) -> None:
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        build_execution(
            dataset, plan_of(dataset), workers=DUMMY, transform=TransformSpec(unchanged, selected_fields=["nowhere"])
        )


def test_default_batch_size_is_the_largest_row_group(dataset: Dataset) -> None:
    assert execution_of(dataset, batched=True).rows_per_item == 5
    assert execution_of(dataset, last_batch=LastBatch.DROP).rows_per_item == 1
