"""Tests of the data source: it writes and reads equally on classic and Connect sessions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.programs import SparkPrograms, kinds
from tests.spark.through_spark import PARTITIONS, ROW_GROUP_BYTES, ROWS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(params=kinds("classic", "connect"))
def facts(request: pytest.FixtureRequest, spark_programs: SparkPrograms) -> Any:
    return spark_programs.left(request.param, "through_spark").facts


def test_data_source_writes_the_requested_row_groups(facts: Any) -> None:
    written = facts["written"]
    assert written["schema"]
    assert written["whole"]
    assert written["files"] == PARTITIONS
    assert written["row groups"] == [200, 200, 200, 150] * PARTITIONS
    assert written["row"] == [0, True, [[0.0, 1.0], [2.0, 3.0]], "even"]
    assert written["left"] == []


def test_data_source_reads_decoded_columns(facts: Any) -> None:
    read = facts["read"]
    assert read["types"] == {
        "id": "bigint",
        "frame": "array<array<array<smallint>>>",
        "pose": "array<array<float>>",
        "label": "string",
    }
    assert (read["count"], read["sum"]) == (ROWS, ROWS * (ROWS - 1) // 2)
    assert read["row"] == [[[5.0, 1.0], [2.0, 3.0]], None]
    assert read["some"] == ["id", "pose"]
    assert read["partitions"] == 4 * PARTITIONS  # one partition per row group


def test_data_source_writes_row_groups_of_the_requested_size(facts: Any) -> None:
    for of_file in facts["refused"]["cell bytes"]:
        assert len(of_file) > 2
        assert of_file[:-1] == pytest.approx([ROW_GROUP_BYTES] * len(of_file[:-1]), rel=0.05)
        assert of_file[-1] <= 1.05 * ROW_GROUP_BYTES


def test_data_source_limits_batches_to_a_few_megabytes(facts: Any) -> None:
    assert facts["session"] == {"before": [None, None], "left alone": True, "bounds": ["1000", str(4 * 2**20)]}


def test_data_source_appends_and_overwrites(facts: Any) -> None:
    assert facts["appended_and_overwritten"] == {"appended": True, "overwritten": list(range(10)), "left": []}


def test_data_source_without_a_schema_keeps_types(facts: Any) -> None:
    assert facts["inferred"] == {"id": ["int64", []], "track": ["float32", [None]], "name": ["str", []]}


def test_prepare_dataframe_shuffle_is_repeatable_and_writes_no_tiny_files(facts: Any) -> None:
    prepared = facts["prepared"]
    assert prepared["moved"] > ROWS / 5  # a uniform permutation moves a row by a third of all rows on average
    assert prepared["repeatable"]
    assert prepared["of the values alone"]
    assert prepared["with maps"] == [ROWS, ROWS]
    assert prepared["seeds differ"]
    assert len(prepared["four"][0]) == 4
    assert prepared["four"][1] < ROWS / 10
    assert prepared["few"] == prepared["mixed few"] == 1  # 16 partitions of a few bytes each
    assert "files must be an int of at least 1, got 0" in prepared["refused"]


def test_data_source_invalid_write_leaves_no_files(facts: Any) -> None:
    refused = facts["refused"]
    assert "EncodeError" in refused["a value"]
    assert "column 'pose'" in refused["a value"]
    assert "['pose'] missing" in refused["a column"]
    assert "got 'rows'" in refused["an option"]
    assert "DatasetNotFoundError" in refused["nothing there"]
    assert refused["seen"] == []
    assert refused["whole"]
