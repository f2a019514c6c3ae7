"""Tests of Spark speculation: when a task runs twice at a time, each row is written once and each rank runs once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.programs import SparkPrograms

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def twice(spark_programs: SparkPrograms) -> Any:
    return spark_programs.left("standalone", "twice").facts


@pytest.mark.parametrize("way", ["source", "rows", "columns", "files"])
def test_speculative_task_writes_each_row_once(twice: Any, way: str) -> None:
    found = twice[way]
    assert {"begun-0", "begun-1"} <= set(found["attempts"])
    assert found["whole"]
    assert found["left"] == []


@pytest.mark.parametrize("launcher", ["run_on_dataframe", "TorchDistributor"])
def test_training_ranks_are_not_speculated(twice: Any, launcher: str) -> None:
    found = twice["ranks"][launcher]
    assert found["beside"] == [10, ["begun-0", "begun-1"]]
    assert found["begun"] == ["rank-0", "rank-1"]
    assert found["problems"] == [""]
