"""What Spark's tasks write themselves is exact on classic and Connect sessions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.programs import SparkPrograms, kinds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(params=kinds("classic", "connect"))
def facts(request: pytest.FixtureRequest, spark_programs: SparkPrograms) -> Any:
    return spark_programs.left(request.param, "writing.by_tasks").facts


def test_rows_columns_and_files_are_those_that_write_dataset_writes(facts: Any) -> None:
    assert facts["everything"] == dict.fromkeys(("rows", "columns", "files", "named"), True)


def test_writes_of_a_block_add_up_and_are_committed_together(facts: Any) -> None:
    found = facts["told_and_indexed"]
    assert found["seen"] == []
    assert found["whole"]
    assert found["left"] == []
    assert found["writer"]


def test_row_groups_have_the_rows_asked_for_and_are_indexed_and_progress_is_told(facts: Any) -> None:
    found = facts["told_and_indexed"]
    # Two tasks of ten rows; twenty and twenty in the second and third of the DataFrame's partitions; one task of sixty.
    assert found["rows"] == [7, 3, 7, 3, *[7, 7, 6] * 2, *[7] * 8, 4]
    assert found["index"] == [2]
    assert found["told"]


def test_a_mode_says_what_becomes_of_what_was_there(facts: Any) -> None:
    found = facts["modes"]
    assert found["refused"].startswith("DatasetExistsError: ")
    assert found["appended"] == [0, 1, 2, 3, 4]
    assert found["overwritten"] == [7, 8]
    assert found["left"] == []


def test_a_block_that_raises_leaves_what_was_there(facts: Any) -> None:
    found = facts["raised"]
    assert "the user's own problem" in found["own"]
    assert "column 'pose.2', row 0: " in found["value"]
    assert "gave a str for the item 4" in found["no row"]
    assert found["kept"]
    assert found["left"] == []


def test_cells_and_raw_columns_are_told_apart_by_their_types(facts: Any) -> None:
    assert facts["kinds"] == {"cells": True, "raw": True, "of Spark": True}


def test_spark_hands_over_some_megabytes_at_a_time_unless_told_otherwise(facts: Any) -> None:
    found = facts["batches"]
    assert 3 * 2**20 < found["inside"] < 5 * 2**20
    assert 500_000 < found["of one's own"] < 1_200_000
    assert found["read"] == "512"
    assert found["restored"]


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ("cells after rows", "InvalidArgumentError: stored cells are written by Spark's own writer"),
        ("Spark's files beside rows", "Nothing was committed: a block is one or the other"),
        ("another mode", "this block began with mode='error', and mode='append' was asked for"),
        ("an unknown mode", "mode='ignore' is not known"),
        ("no items", "items=None was given"),
        ("no function", "a list was given"),
        ("no partitions", "partitions=0"),
        ("either", "'pose.2' can only be raw values, and 'blob', being bytes, could be cells as well"),
        ("a column", "it lacks ['id']"),
        ("columns of files", "the schema does not know ['name']"),
        ("hive", "columns in the names of its directories"),
        ("no files", "DatasetNotFoundError"),
        ("left", "[]"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing_that_is_committed(facts: Any, case: str, part: str) -> None:
    found = facts["refused"][case]
    assert part in found


def test_rows_of_an_rdd_are_written_where_they_are(spark_programs: SparkPrograms) -> None:
    found = spark_programs.left("classic", "writing.by_tasks").facts["rdd"]
    assert found["whole"]
    assert found["rows"] == [30, 10] * 3
    assert "items= and partitions= go with a function" in found["refused"]
