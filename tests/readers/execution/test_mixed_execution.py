"""Tests of mixture executions: one transform for all rows or one per source, the source column, row group numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore import TransformSpec, UnischemaField
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.plan.mixture.mixture import Mixture
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.mixed_datasets import MixedDatasets
from petastore.work.pools import Workers
from tests.readers.small import SCHEMA, plan_of, written
from tests.readers.transforms_to_send import unchanged

DUMMY = Workers("dummy")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    folder = Path(tmp_path_factory.mktemp("mixed_execution"))
    return [written(folder / name) for name in ("one", "other")]


def mixture_of(datasets: list[Dataset]) -> Mixture:
    return Mixture([plan_of(dataset) for dataset in datasets], [1, 1])


def execution_of(datasets: list[Dataset], **asked: Any) -> Execution:
    mixture = mixture_of(datasets)
    return build_execution(MixedDatasets(tuple(datasets), mixture), mixture, workers=DUMMY, **asked)


def renamed(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "new": np.int8(1)}


MORE = TransformSpec(renamed, edit_fields=[UnischemaField("new", np.int8)])
SAME = TransformSpec(unchanged)


def test_mixed_row_groups_are_numbered_across_sources(datasets: list[Dataset]) -> None:
    execution = execution_of(datasets)
    assert execution.plan.first_groups.tolist() == [0, 5, 10]
    assert len(execution.loaders) == 2
    assert set(execution.schema.fields) == set(SCHEMA.fields)


def test_source_column_is_added_to_the_schema_and_must_be_a_new_name(datasets: list[Dataset]) -> None:
    schema = execution_of(datasets, source_column="source").schema
    assert schema["source"].numpy_dtype is np.int32
    with pytest.raises(InvalidArgumentError, match="source_column must not be a field of the datasets, got 'id'"):
        execution_of(datasets, source_column="id")
    apart = execution_of(datasets, transforms=[SAME, None], source_column="source")
    assert "source" in apart.schema
    assert "source" not in apart.view


def test_mixture_has_one_transform_or_different_transforms_per_source(datasets: list[Dataset]) -> None:
    assert execution_of(datasets, transform=MORE).transform is not None
    assert execution_of(datasets, transforms=[MORE, MORE]).transform is not None
    apart = execution_of(datasets, transforms=[MORE, TransformSpec(renamed, edit_fields=MORE.edit_fields)])
    assert apart.transform is None
    assert "new" in apart.schema


def test_source_transforms_with_different_fields_raise(datasets: list[Dataset]) -> None:
    with pytest.raises(SchemaError, match="new"):
        execution_of(datasets, transforms=[MORE, SAME])
