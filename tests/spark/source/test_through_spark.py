"""The data source writes and reads alike on classic and Connect sessions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.programs import SparkPrograms, kinds
from tests.spark.source.through_spark import PARTITIONS, ROW_GROUP_BYTES, ROWS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(params=kinds("classic", "connect"))
def facts(request: pytest.FixtureRequest, spark_programs: SparkPrograms) -> Any:
    return spark_programs.left(request.param, "source.through_spark").facts


def test_raw_values_become_a_dataset_of_row_groups_as_asked(facts: Any) -> None:
    written = facts["written"]
    assert written["schema"]
    assert written["whole"]
    assert written["files"] == PARTITIONS
    assert written["row groups"] == [200, 200, 200, 150] * PARTITIONS
    assert written["row"] == [0, True, [[0.0, 1.0], [2.0, 3.0]], "even"]
    assert written["left"] == []


def test_a_dataset_is_read_decoded(facts: Any) -> None:
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
    assert read["partitions"] == 4 * PARTITIONS  # one for each row group


def test_row_groups_have_the_bytes_that_were_asked(facts: Any) -> None:
    for of_file in facts["refused"]["cell bytes"]:
        assert len(of_file) > 2
        assert of_file[:-1] == pytest.approx([ROW_GROUP_BYTES] * len(of_file[:-1]), rel=0.05)
        assert of_file[-1] <= 1.05 * ROW_GROUP_BYTES


def test_a_session_reads_and_hands_over_some_megabytes_at_a_time_unless_told_otherwise(facts: Any) -> None:
    assert facts["session"] == {"before": [None, None], "left alone": True, "bounds": ["1000", str(4 * 2**20)]}


def test_rows_are_added_and_replaced(facts: Any) -> None:
    assert facts["appended_and_overwritten"] == {"appended": True, "overwritten": list(range(10)), "left": []}


def test_without_a_schema_columns_are_what_they_are(facts: Any) -> None:
    assert facts["inferred"] == {"id": ["int64", []], "track": ["float32", [None]], "name": ["str", []]}


def test_rows_are_shuffled_once_by_the_writer_and_no_file_is_tiny(facts: Any) -> None:
    prepared = facts["prepared"]
    assert prepared["moved"] > ROWS / 5  # a uniform permutation moves a row by a third of all, on average
    assert prepared["repeatable"]
    assert prepared["of the values alone"]
    assert prepared["with maps"] == [ROWS, ROWS]
    assert prepared["seeds differ"]
    assert len(prepared["four"][0]) == 4
    assert prepared["four"][1] < ROWS / 10
    assert prepared["few"] == prepared["mixed few"] == 1  # 64 partitions of some bytes
    assert "files=0" in prepared["refused"]


def test_what_cannot_be_is_refused_and_leaves_nothing_that_is_seen(facts: Any) -> None:
    refused = facts["refused"]
    assert "EncodeError" in refused["a value"]
    assert "column 'pose'" in refused["a value"]
    assert "it lacks ['pose']" in refused["a column"]
    assert "has no option 'rows'" in refused["an option"]
    assert "DatasetNotFoundError" in refused["nothing there"]
    assert refused["seen"] == []
    assert refused["whole"]
