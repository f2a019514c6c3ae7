"""Tests of killed and retried Spark tasks: each row is written once, on classic executors and on Connect."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.programs import SparkPrograms

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(params=["local-cluster", "connect"])
def killed(request: pytest.FixtureRequest, spark_programs: SparkPrograms) -> Any:
    return spark_programs.left(request.param, "killed").facts


def test_data_source_writes_each_row_once_when_tasks_are_killed(killed: Any) -> None:
    assert killed["source_killed"] == {"whole": True, "left": [], "indexed": True}


def test_materialize_writes_each_row_once_when_tasks_are_killed(killed: Any) -> None:
    found = killed["block_killed"]
    assert {"rows", "columns"} <= found.keys()
    assert all(one == {"whole": True, "left": []} for one in found.values())


def test_rdd_rows_are_written_once_when_tasks_are_killed(spark_programs: SparkPrograms) -> None:
    assert "rdd" in spark_programs.left("local-cluster", "killed").facts["block_killed"]


@pytest.mark.parametrize("way", ["source_lost_for_good", "block_lost_for_good"])
def test_permanently_failed_task_leaves_no_visible_files(killed: Any, way: str) -> None:
    found = killed[way]
    assert (found["refused"], found["seen"], found["whole"]) == (True, [], True)
