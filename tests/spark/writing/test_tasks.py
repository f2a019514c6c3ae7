"""Tests of writing in Spark tasks on classic and Connect sessions: rows, row groups, indexes, failures."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.programs import SparkPrograms, kinds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(params=kinds("classic", "connect"))
def facts(request: pytest.FixtureRequest, spark_programs: SparkPrograms) -> Any:
    return spark_programs.left(request.param, "writing.by_tasks").facts


def test_writer_methods_equal_write_dataset(facts: Any) -> None:
    assert facts["everything"] == dict.fromkeys(("rows", "columns", "files", "named"), True)


def test_writer_commits_all_writes_of_a_block_together(facts: Any) -> None:
    found = facts["told_and_indexed"]
    assert found["seen"] == []
    assert found["whole"]
    assert found["left"] == []
    assert found["writer"]


def test_writer_writes_row_groups_indexes_and_progress(facts: Any) -> None:
    found = facts["told_and_indexed"]
    # Two tasks of ten rows; twenty and twenty in the second and third of the DataFrame's partitions; one task of sixty.
    assert found["rows"] == [7, 3, 7, 3, *[7, 7, 6] * 2, *[7] * 8, 4]
    assert found["index"] == [2]
    assert found["told"]


def test_writer_mode_rejects_appends_to_or_overwrites_existing_files(facts: Any) -> None:
    found = facts["modes"]
    assert found["refused"].startswith("DatasetExistsError: ")
    assert found["appended"] == [0, 1, 2, 3, 4]
    assert found["overwritten"] == [7, 8]
    assert found["left"] == []


def test_writer_failed_block_keeps_existing_files(facts: Any) -> None:
    found = facts["raised"]
    assert "the user's own problem" in found["own"]
    assert "column 'pose.2', row 0: " in found["value"]
    assert "got str for the item 4" in found["no row"]
    assert found["kept"]
    assert found["left"] == []


def test_writer_distinguishes_encoded_and_raw_columns_by_type(facts: Any) -> None:
    assert facts["kinds"] == {"cells": True, "raw": True, "of Spark": True}


def test_writer_limits_spark_batches_to_a_few_megabytes(facts: Any) -> None:
    found = facts["batches"]
    assert 3 * 2**20 < found["inside"] < 5 * 2**20
    assert 500_000 < found["of one's own"] < 1_200_000
    assert found["read"] == "512"
    assert found["restored"]


@pytest.mark.parametrize(
    ("case", "part"),
    [
        (
            "cells after rows",
            "InvalidArgumentError: df must have raw values in a block that wrote rows or columns before",
        ),
        ("Spark's files beside rows", "Nothing was committed. Use separate blocks"),
        ("another mode", "mode must be 'error', as in the block's first write, got 'append'"),
        ("an unknown mode", "mode must be one of 'error', 'overwrite', 'append', got 'ignore'"),
        ("no items", "items must be the arguments of the function, such as range(n), got None"),
        ("no function", "rows must be an RDD of dicts, or a function with its items, got list"),
        ("no partitions", "partitions must be an int of at least 1, got 0"),
        ("either", "got 'pose.2', which are raw, and 'blob', which are bytes and could be both"),
        ("a column", "['id'] missing"),
        ("columns of files", "['name'] unknown"),
        ("hive", "paths must have no columns in directory names"),
        ("no files", "DatasetNotFoundError"),
        ("left", "[]"),
    ],
)
def test_writer_invalid_rows_commit_nothing(facts: Any, case: str, part: str) -> None:
    found = facts["refused"][case]
    assert part in found


def test_writer_writes_rdd_rows_in_their_tasks(spark_programs: SparkPrograms) -> None:
    found = spark_programs.left("classic", "writing.by_tasks").facts["rdd"]
    assert found["whole"]
    assert found["rows"] == [30, 10] * 3
    assert "items and partitions must be left out with an RDD" in found["refused"]
