"""Where tasks are killed and run again, each row is written once: classic on executors, and Connect."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.programs import SparkPrograms

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(params=["local-cluster", "connect"])
def killed(request: pytest.FixtureRequest, spark_programs: SparkPrograms) -> Any:
    return spark_programs.left(request.param, "killed").facts


def test_the_data_source_gives_each_row_once_where_tasks_are_killed_and_tried_again(killed: Any) -> None:
    assert killed["source_killed"] == {"whole": True, "left": [], "indexed": True}


def test_a_block_gives_each_row_once_where_tasks_are_killed_and_tried_again(killed: Any) -> None:
    found = killed["block_killed"]
    assert {"rows", "columns"} <= found.keys()
    assert all(one == {"whole": True, "left": []} for one in found.values())


def test_rows_of_an_rdd_are_there_once_where_its_tasks_are_killed(spark_programs: SparkPrograms) -> None:
    assert "rdd" in spark_programs.left("local-cluster", "killed").facts["block_killed"]


@pytest.mark.parametrize("way", ["source_lost_for_good", "block_lost_for_good"])
def test_a_task_that_is_lost_for_good_fails_the_job_and_leaves_nothing_that_is_seen(killed: Any, way: str) -> None:
    found = killed[way]
    assert (found["refused"], found["seen"], found["whole"]) == (True, [], True)
