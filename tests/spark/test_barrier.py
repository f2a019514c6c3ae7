"""Tests of barrier tasks in a real Spark session: they shard a dataset, and other tasks have no rank."""

from __future__ import annotations

import itertools

import pytest

from tests.spark.barrier import ROWS
from tests.spark.programs import SparkPrograms

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_from_barrier_gives_each_task_its_rank_and_raises_elsewhere(spark_programs: SparkPrograms) -> None:
    facts = spark_programs.left("classic", "barrier").facts
    for ranks in (facts["rdd"], facts["frame"]):
        assert sorted((index, count) for index, count, _ in ranks) == [(0, 2), (1, 2)]
        assert sorted(itertools.chain(*(ids for _, _, ids in ranks))) == list(range(ROWS))
    auto, none, other = facts["refused"]
    assert "the rank of this process is unknown" in auto
    assert "this process does not run a Spark barrier task" in none
    assert "context must be a BarrierTaskContext, got TaskContext" in other
