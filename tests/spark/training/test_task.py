"""Tests of extracting a rank's error from Spark's error message."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from petastore import Unischema, UnischemaField
from petastore.spark.training.task import Job
from petastore.writers.parquet import FileLayout

LAYOUT = FileLayout.of(rows_per_row_group=None, row_group_size_mb=None, rows_per_file=None)
JOB = Job(
    secret=b"hidden-word",
    schema=Unischema("ids", [UnischemaField("id", "int64")]),
    columns=("id",),
    layout=LAYOUT,
    function=b"",
    restarts=0,
    folder=None,
)
PROBLEM = "rank 1 of 2, on a: Traceback (most recent call last):\n  at x.y(Z.java:1)\nArithmeticError: the loss is NaN"


@given(st.text(), st.text(), st.integers(1, 2))
def test_rank_error_is_parsed_from_the_spark_error(before: str, after: str, times: int) -> None:
    said = before + f"WorkerError: {JOB.marked(PROBLEM)}{after}" * times
    assert JOB.problem_in(said) == PROBLEM


def test_truncated_rank_error_is_parsed() -> None:
    assert JOB.problem_in(f"Job aborted: {JOB.marked(PROBLEM)[:60]}") == PROBLEM[:27]


def test_rank_error_of_another_job_is_ignored() -> None:
    other = dataclasses.replace(JOB, mark="another")
    assert JOB.problem_in(f"Job aborted: {other.marked(PROBLEM)}") is None
    assert JOB.problem_in("Job aborted: ExecutorLostFailure (executor 1 exited)") is None


def test_training_job_repr_hides_its_secret() -> None:
    assert "hidden-word" not in repr(JOB)
